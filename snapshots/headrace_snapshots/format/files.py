"""Files that a snapshot names: data files that Headrace wrote, input files that it read, and layers of data files."""

import msgspec

from headrace_snapshots.format.codec import JSON
from headrace_snapshots.format.record import JsonRecord


class LoggedFile:
    """A file that a file log lists: DataFile or InputFile. Only the latter has an ETag."""

    __slots__ = ()
    path: str

    @staticmethod
    def from_json(value: JSON) -> "LoggedFile":
        """Read what ``to_json`` of either wrote. Raises msgspec.ValidationError."""
        kind: type[LoggedFile] = InputFile if isinstance(value, dict) and "etag" in value else DataFile
        return msgspec.convert(value, kind)


class Footer(JsonRecord, frozen=True):
    """The last ``bytes`` of a data file, and their hex SHA-256. They say where its chunks are, with a checksum of each,
    so that a reader can verify what it reads without all the rest.
    """

    bytes: int
    sha256: str


class DataFile(JsonRecord, LoggedFile, frozen=True, omit_defaults=True):
    """A data file: its path below the root, rows, length in bytes, and hex SHA-256 of its content.

    ``groups``: the first and the last key group that it has rows of. ``windows``: no window of its rows that is known
    begins before the first of these instants or ends after the second, in granules. ``footer`` is there if it has more
    than one chunk. Each of them is None where that is not known, and any row may be in the file.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    groups: tuple[int, int] | None = None
    windows: tuple[int, int] | None = None
    footer: Footer | None = None


class InputFile(JsonRecord, LoggedFile, frozen=True, omit_defaults=True):
    """A file of a source as it was when it was read: whatever its store says about it, and which ``input`` it is of.

    ``digest``: a hash of its content, where the ETag may change without it. ``rules``: the number of those by which its
    records were read.
    """

    path: str
    size: int
    etag: str
    input: str
    digest: str | None = None
    rules: int = 0


class Layer(JsonRecord, frozen=True):
    """One layer of a layered table: files with the rows changed in ``first_epoch`` to ``last_epoch``, inclusive.

    ``expires``: once the watermark exceeds it (in granules), no row counts any more; None where that is not known.
    """

    files: tuple[DataFile, ...]
    rows: int
    first_epoch: int
    last_epoch: int
    expires: int | None

    @classmethod
    def of(cls, files: tuple[DataFile, ...], first_epoch: int, last_epoch: int, expires: int | None = None) -> "Layer":
        """The layer of all rows of ``files``."""
        return cls(files, sum(file.rows for file in files), first_epoch, last_epoch, expires)

    def __post_init__(self) -> None:
        if self.rows != (counted := sum(file.rows for file in self.files)):
            raise ValueError(f"a layer of {self.rows} rows, and of {counted} in its files")
