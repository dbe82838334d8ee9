"""Files that a snapshot names: data files that Headrace wrote, input files that it read, and layers of data files."""

from dataclasses import dataclass

from headrace_snapshots.format.codec import JSON, Fields, MalformedError


@dataclass(frozen=True)
class Footer:
    """The last ``bytes`` of a data file, and their hex SHA-256. They say where its chunks are, with a checksum of each,
    so that a reader can verify what it reads without all the rest.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True)
class DataFile:
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

    def to_json(self) -> JSON:
        """A JSON object."""
        own: JSON = {"path": self.path, "rows": self.rows, "bytes": self.bytes, "sha256": self.sha256}
        if self.groups is not None:
            own["groups"] = list(self.groups)
        if self.windows is not None:
            own["windows"] = list(self.windows)
        if self.footer is not None:
            own["footer"] = {"bytes": self.footer.bytes, "sha256": self.footer.sha256}
        return own

    @classmethod
    def from_json(cls, fields: Fields) -> "DataFile":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(
            fields.text("path"),
            fields.integer("rows"),
            fields.integer("bytes"),
            fields.text("sha256"),
            _pair(fields, "groups"),
            _pair(fields, "windows"),
            _footer(fields.fields("footer")) if "footer" in fields.value else None,
        )


def _pair(fields: Fields, name: str) -> tuple[int, int] | None:
    if name not in fields.value:
        return None
    found = fields.value[name]
    if not (isinstance(found, list) and len(found) == 2 and all(type(each) is int for each in found)):
        raise MalformedError(f"{fields.where}.{name} is not a pair of integers")
    first, last = found
    return first, last


def _footer(fields: Fields) -> Footer:
    return Footer(fields.integer("bytes"), fields.text("sha256"))


@dataclass(frozen=True)
class InputFile:
    """A file of a source as it was when it was read: whatever its store says about it, and which ``input`` it is of.

    ``digest``: a hash of its content, where the ETag may change without it.
    """

    path: str
    size: int
    etag: str
    input: str
    digest: str | None = None

    def to_json(self) -> JSON:
        """A JSON object."""
        own = {"path": self.path, "size": self.size, "etag": self.etag, "input": self.input}
        return own if self.digest is None else {**own, "digest": self.digest}

    @classmethod
    def from_json(cls, fields: Fields) -> "InputFile":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        digest = fields.text("digest") if "digest" in fields.value else None
        return cls(fields.text("path"), fields.integer("size"), fields.text("etag"), fields.text("input"), digest)


@dataclass(frozen=True)
class Layer:
    """One layer of a layered table: files with the rows changed in ``first_epoch`` to ``last_epoch``, inclusive.

    ``expires``: once the watermark exceeds it (in granules), no row counts any more; None where that is not known.
    """

    files: tuple[DataFile, ...]
    rows: int
    first_epoch: int
    last_epoch: int
    expires: int | None = None

    def to_json(self) -> JSON:
        """A JSON object."""
        return {
            "files": [file.to_json() for file in self.files],
            "rows": self.rows,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
            "expires": self.expires,
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "Layer":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        layer = cls(
            fields.items("files", DataFile.from_json),
            fields.integer("rows"),
            fields.integer("first_epoch"),
            fields.integer("last_epoch"),
            fields.optional_integer("expires"),
        )
        if layer.rows != sum(file.rows for file in layer.files):
            raise MalformedError(f"{fields.where} counts {layer.rows} rows, its files count others")
        return layer
