"""Files that a snapshot names, and when layers of them are merged.

Files that a snapshot names: data files that Headrace wrote, input files that it read, and layers of data files.

When to merge the layers of a layered table: a pure decision over their row counts.

The tier of a layer is floor(log16(rows)). Read from the newest layer back, the layers up to the first of a higher tier
than the newest are its *group*; in the whole list every layer belongs to the group of the highest tier at or after
it, so there are at most as many groups as tiers. Only the newest group can grow. When sixteen have gathered in it they
become one:

* fewer than sixteen layers a tier stay: at most 15 * (log16(largest layer) + 1) layers, however many epochs;
* a merge of a group ends in a layer of the group's own tier, so what a row is in grows by a whole layer of that tier
  each time: a row is rewritten at most sixteen times a tier, and in steady streams once.
"""

from collections.abc import Sequence

import msgspec

from headrace_snapshots.format.codec import JSON, JsonRecord


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


FANOUT = 16


def tier(rows: int) -> int:
    """floor(log16(rows)), 0 for an empty layer."""
    return (max(rows, 1).bit_length() - 1) // 4


def plan_merge(rows: Sequence[int]) -> int | None:
    """Where to start: layers[start:] should become one layer; None when nothing is to be merged.

    ``rows``: rows of each layer, oldest first. Meant to be asked after each new layer.
    """
    start, sizes = None, list(rows)
    while (begin := _newest_group(sizes)) <= len(sizes) - FANOUT:
        start = begin
        # Merged it may complete a group of the next tier: then that is rewritten once instead of twice.
        sizes = [*sizes[:begin], sum(sizes[begin:])]
    return start


def _newest_group(sizes: Sequence[int]) -> int:
    begin = len(sizes)
    while begin > 0 and tier(sizes[begin - 1]) <= tier(sizes[-1]):
        begin -= 1
    return begin
