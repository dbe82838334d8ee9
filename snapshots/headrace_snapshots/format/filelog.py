"""File logs: append-only lists of files, kept as a persistent tree so that manifests stay small.

A record is one epoch's files. The newest records are in the manifest itself (the *tail*); when they name 64 files
they become a leaf object, and 64 nodes of one level become a node of the next. So a manifest holds fewer than 64
files and fewer than 64 references a level. A node's id is the hash of its content: writing it twice changes nothing,
and reading it checks it. Its content names its writer, so that no two writers ever store the same node: when it is
deleted, nobody else can have come to need it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace_snapshots.format.codec import JSON, BrokenObjectError, Fields, canonical, checksum, decode, encode
from headrace_snapshots.format.files import DataFile, InputFile

RADIX = 64
AHEAD = 8
"""Nodes that are asked for together by who reads back."""

KIND = "index"

LoggedFile = DataFile | InputFile


@dataclass(frozen=True)
class FileRecord:
    """The files that one epoch added, in order."""

    epoch: int
    files: tuple[LoggedFile, ...]

    def to_json(self) -> JSON:
        """A JSON object."""
        return {"epoch": self.epoch, "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, fields: Fields) -> "FileRecord":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(fields.integer("epoch"), fields.items("files", _file))


@dataclass(frozen=True)
class IndexRef:
    """A node of the tree, and what is below it: epochs (inclusive), number of files and their rows."""

    id: str
    first_epoch: int
    last_epoch: int
    files: int
    rows: int

    def to_json(self) -> JSON:
        """A JSON object."""
        return {
            "id": self.id,
            "first_epoch": self.first_epoch,
            "last_epoch": self.last_epoch,
            "files": self.files,
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "IndexRef":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        numbers = (fields.integer(name) for name in ("first_epoch", "last_epoch", "files", "rows"))
        return cls(fields.text("id"), *numbers)


@dataclass(frozen=True)
class IndexNode:
    """A stored node: records (a leaf) or references to nodes of the level below, oldest first.

    ``writer``: unique to who stored it; "" in those of the first format.
    """

    records: tuple[FileRecord, ...] = ()
    refs: tuple[IndexRef, ...] = ()
    writer: str = ""

    @cached_property
    def id(self) -> str:
        """Hash of the content."""
        return checksum(canonical(self._content()))[:32]

    def to_bytes(self) -> bytes:
        """The object to store."""
        return encode(KIND, self._content(), 2 if self.writer else 1)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, expected_id: str) -> "IndexNode":
        """The node in object ``name``. Raises BrokenObjectError, also when it is not the node ``expected_id``."""
        node = decode(
            KIND,
            data,
            name,
            lambda f: cls(
                f.items("records", FileRecord.from_json),
                f.items("refs", IndexRef.from_json),
                f.text("writer") if "writer" in f.value else "",
            ),
        )
        if node.id != expected_id:
            raise BrokenObjectError(f"{name} is another node ({node.id}): go on from an older snapshot")
        return node

    @cached_property
    def ref(self) -> IndexRef:
        """The reference to this node."""
        below = [*self.refs, *(_summary(record) for record in self.records)]
        return IndexRef(
            self.id,
            below[0].first_epoch,
            below[-1].last_epoch,
            sum(part.files for part in below),
            sum(part.rows for part in below),
        )

    def _content(self) -> JSON:
        below = {"records": [r.to_json() for r in self.records], "refs": [r.to_json() for r in self.refs]}
        return {**below, "writer": self.writer} if self.writer else below


@dataclass(frozen=True)
class FileLog:
    """A log as a manifest holds it: its newest records, and references by level (0: to leaves), oldest first."""

    tail: tuple[FileRecord, ...] = ()
    levels: tuple[tuple[IndexRef, ...], ...] = ()

    @property
    def files(self) -> int:
        """Number of files in the whole log."""
        return sum(ref.files for level in self.levels for ref in level) + sum(len(r.files) for r in self.tail)

    @property
    def rows(self) -> int:
        """Rows of all data files in the whole log."""
        return sum(ref.rows for level in self.levels for ref in level) + sum(_summary(r).rows for r in self.tail)

    def to_json(self) -> JSON:
        """A JSON object."""
        return {
            "tail": [record.to_json() for record in self.tail],
            "levels": [{"refs": [ref.to_json() for ref in level]} for level in self.levels],
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "FileLog":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(
            fields.items("tail", FileRecord.from_json),
            fields.items("levels", lambda level: level.items("refs", IndexRef.from_json)),
        )


def append(log: FileLog, record: FileRecord, writer: str = "") -> tuple[FileLog, tuple[IndexNode, ...]]:
    """The log with ``record`` at its end, and the nodes of ``writer`` to store before any manifest names it.

    Raises ValueError for an epoch before the log's last.
    """
    last = _last_epoch(log)
    if last is not None and record.epoch < last:
        raise ValueError(f"a record of epoch {record.epoch} cannot follow one of epoch {last}")
    tail = (*log.tail, record)
    if sum(max(1, len(r.files)) for r in tail) < RADIX:
        return FileLog(tail, log.levels), ()
    nodes, levels = [IndexNode(records=tail, writer=writer)], list(log.levels)
    for number in range(len(levels) + 1):
        level = (*(levels[number] if number < len(levels) else ()), nodes[-1].ref)
        full = len(level) == RADIX
        levels[number : number + 1] = [() if full else level]
        if not full:
            break
        nodes.append(IndexNode(refs=level, writer=writer))
    return FileLog((), tuple(levels)), tuple(nodes)


def cut(
    log: FileLog, floor: int, read_node: Callable[[str], IndexNode], writer: str = ""
) -> tuple[FileLog, tuple[IndexNode, ...]]:
    """The log without records of epochs before ``floor``, and the nodes of ``writer`` to store.

    A leaf stays whole as long as any of it does, so that a log is cut rarely: up to 63 records more are left.
    """
    nodes: list[IndexNode] = []

    def kept(refs: Sequence[IndexRef], level: int) -> tuple[IndexRef, ...]:
        left = [ref for ref in refs if ref.last_epoch >= floor]
        if level and left and left[0].first_epoch < floor:
            below = read_node(left[0].id).refs
            if len(inner := kept(below, level - 1)) < len(below) or inner[0] != below[0]:
                nodes.append(IndexNode(refs=inner, writer=writer))
                left[0] = nodes[-1].ref
        return tuple(left)

    levels = tuple(kept(refs, level) for level, refs in enumerate(log.levels))
    return FileLog(log.tail, levels), tuple(nodes)


def iterate(
    log: FileLog, read_node: Callable[[str], IndexNode], since_epoch: int | None = None
) -> Iterator[FileRecord]:
    """Records of epochs after ``since_epoch`` (None: all), oldest first; reads only nodes that hold such records."""
    for level in reversed(log.levels):
        yield from _below(level, read_node, since_epoch)
    yield from (r for r in log.tail if since_epoch is None or r.epoch > since_epoch)


def newest_first(log: FileLog, read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]) -> Iterator[FileRecord]:
    """All records, newest first; ``read_nodes`` is asked for a few nodes at a time, when they are needed."""
    yield from reversed(log.tail)
    for level in log.levels:
        yield from _below_newest_first(level, read_nodes)


def _below_newest_first(
    refs: Sequence[IndexRef], read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]
) -> Iterator[FileRecord]:
    for end in range(len(refs), 0, -AHEAD):
        ids = [ref.id for ref in refs[max(0, end - AHEAD) : end]]
        for node in read_nodes(ids[::-1]):
            yield from _below_newest_first(node.refs, read_nodes)
            yield from reversed(node.records)


def _below(
    refs: Sequence[IndexRef], read_node: Callable[[str], IndexNode], since_epoch: int | None
) -> Iterator[FileRecord]:
    for ref in refs:
        if since_epoch is None or ref.last_epoch > since_epoch:
            node = read_node(ref.id)
            yield from _below(node.refs, read_node, since_epoch)
            yield from (r for r in node.records if since_epoch is None or r.epoch > since_epoch)


def _last_epoch(log: FileLog) -> int | None:
    if log.tail:
        return log.tail[-1].epoch
    return next((level[-1].last_epoch for level in log.levels if level), None)


def _summary(record: FileRecord) -> IndexRef:
    rows = sum(file.rows for file in record.files if isinstance(file, DataFile))
    return IndexRef("", record.epoch, record.epoch, len(record.files), rows)


def _file(fields: Fields) -> LoggedFile:
    return InputFile.from_json(fields) if "etag" in fields.value else DataFile.from_json(fields)
