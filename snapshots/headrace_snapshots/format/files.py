"""Files that a snapshot names: data files that Headrace wrote, layers of them, input files that it read, and file logs.

``plan_merge`` decides when to merge the layers of a layered table, by their row counts alone. The tier of a layer is
floor(log16(rows)). Read from the newest layer back, the layers up to the first of a higher tier than the newest are its
*group*. In the whole list every layer belongs to the group of the highest tier at or after it. So there are at most as
many groups as tiers. Only the newest group can grow. When sixteen have gathered in it they become one:

* fewer than sixteen layers a tier stay: at most 15 * (log16(largest layer) + 1) layers, however many epochs;
* a merge of a group ends in a layer of the group's own tier. So what a row is in grows by a whole layer of that tier
  each time. A row is rewritten at most sixteen times a tier, and in steady streams once.

A large merge goes on over several epochs, a part of the keys at a time. Until it is done its layers count, and together
they are one layer for the plan of the next merge.

``FileLog`` is an append-only list of files, kept as a persistent tree so that manifests stay small.

A record is one epoch's files. The newest records are in the manifest itself (the *tail*); when they name 32 files they
become a leaf object, and 32 nodes of one level become a node of the next. So a manifest holds fewer than 32 files and
fewer than 32 references a level. A node's id is the hash of its content: writing it twice changes nothing, and reading
it checks it. Its content names its writer, so that no two writers ever store the same node. When it is deleted, nobody
else can have come to need it.

Files of a layer, where there are many, are in nodes of their own (``FilesNode``), stored once by the epoch that made
it; manifests name the node and say what is needed without it. So are those of a merge that goes on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import Any, ClassVar, Final, Self, TypeAlias

import msgspec

from headrace.this_process import Size
from headrace_snapshots.format import codec


class LoggedFile:
    """A file that a file log lists: DataFile or InputFile. Only the latter has an ETag."""

    __slots__ = ()
    path: str

    @staticmethod
    def from_json(value: codec.JSON) -> "LoggedFile":
        """Read what ``to_json`` of either wrote. Raises msgspec.ValidationError."""
        kind: type[LoggedFile] = InputFile if isinstance(value, dict) and "etag" in value else DataFile
        return codec.convert_value(value, kind)


class Footer(codec.JsonRecord, frozen=True):
    """The last ``bytes`` of a data file, and their hex SHA-256. They say where its chunks are, with a checksum of each,
    so that a reader can verify what it reads without all the rest.
    """

    bytes: int
    sha256: str


class DataFile(codec.JsonRecord, LoggedFile, frozen=True, omit_defaults=True):
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


class InputFile(codec.JsonRecord, LoggedFile, frozen=True, omit_defaults=True):
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


class IndexRef(codec.JsonRecord, frozen=True):
    """A node of the tree, and what is below it: epochs (inclusive), number of files and their rows."""

    id: str
    first_epoch: int
    last_epoch: int
    files: int
    rows: int


FilesByRecord: TypeAlias = tuple[tuple[DataFile, ...], ...]
"""Data files below a node, by record."""


class FilesNode(IndexRef, frozen=True, dict=True):
    """A node that has the files of a layer, or of parts of a merge, where epochs are numbers of parts. ``bytes``: how
    long they are together. ``identity``: that of the layer.
    """

    bytes: int
    identity: str = ""

    def read_by(self, read: "Callable[[FilesNode], FilesByRecord]") -> "FilesNode":
        """The same, whose files ``read`` gives: what is stored does not say by what it is read."""
        node = self.replace()
        vars(node)["read"] = read
        return node

    def with_files(self, files: FilesByRecord) -> "FilesNode":
        """The same, whose ``files`` are known."""
        return self.read_by(partial(_given_files, files))

    @property
    def by_record(self) -> FilesByRecord:
        """Its files: a request, unless they are known. Raises BrokenObjectError."""
        files: FilesByRecord = vars(self)["read"](self)
        return files

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the files with it."""
        return _restore_node, (msgspec.structs.astuple(self), self.by_record)


def _restore_node(fields: tuple[Any, ...], files: FilesByRecord) -> FilesNode:
    return FilesNode(*fields).with_files(files)


def _given_files(files: FilesByRecord, node: FilesNode) -> FilesByRecord:
    del node
    return files


class Layer(codec.JsonRecord, frozen=True, omit_defaults=True):
    """One layer of a layered table: files with the rows changed in ``first_epoch`` to ``last_epoch``, inclusive.

    ``expires``: once the watermark exceeds it (in granules), no row counts any more; None where that is not known.
    Where there are many files the ``node`` has them, and it has no ``own``.
    """

    own: tuple[DataFile, ...] = msgspec.field(name="files")
    rows: int
    first_epoch: int
    last_epoch: int
    expires: int | None
    node: FilesNode | None = None

    @classmethod
    def from_files(
        cls, files: tuple[DataFile, ...], first_epoch: int, last_epoch: int, expires: int | None = None
    ) -> "Layer":
        """The layer of all rows of ``files``."""
        return cls(files, sum(file.rows for file in files), first_epoch, last_epoch, expires)

    def stored_as(self, files: tuple[DataFile, ...]) -> "Layer":
        """The same rows in other ``files``."""
        return self.replace(own=files, node=None)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All its files; files of a node are read. Raises BrokenObjectError."""
        return self.own if self.node is None else tuple(chain.from_iterable(self.node.by_record))

    @property
    def file_count(self) -> int:
        return len(self.own) if self.node is None else self.node.files

    @property
    def bytes(self) -> int:
        """How long its files are together."""
        return sum(file.bytes for file in self.own) if self.node is None else self.node.bytes

    def is_like(self, other: "Layer") -> bool:
        """Whether it has rows of the same epochs, and as many files: without looking at these."""
        own, others = ((layer.first_epoch, layer.last_epoch, layer.rows, layer.file_count) for layer in (self, other))
        return own == others

    @property
    def identity(self) -> str:
        """What tells it from any other: of its files."""
        if self.node is not None:
            return self.node.identity
        return codec.checksum("\n".join(file.path for file in self.own).encode())[:16]

    def __post_init__(self) -> None:
        rows_in_files = sum(file.rows for file in self.own) if self.node is None else self.node.rows
        if self.rows != rows_in_files:
            raise ValueError(f"a layer of {self.rows} rows, and of {rows_in_files} in its files")


FANOUT: Final = Size(16)


def size_tier(rows: int) -> int:
    """floor(log16(rows)), 0 for an empty layer."""
    return (max(rows, 1).bit_length() - 1) // 4


def plan_merge(rows: Sequence[int]) -> int | None:
    """Where to start: layers[start:] should become one layer; None when nothing is to be merged.

    ``rows``: rows of each layer, oldest first. Meant to be asked after each new layer.
    """
    start, sizes = None, list(rows)
    while (begin := _newest_group(sizes)) <= len(sizes) - FANOUT.value:
        start = begin
        # Merged it may complete a group of the next tier: then that is rewritten once instead of twice.
        sizes = [*sizes[:begin], sum(sizes[begin:])]
    return start


class UnfinishedMerge(codec.JsonRecord, frozen=True, omit_defaults=True):
    """A merge of neighbouring layers, of which the first so many of its ``parts`` of the keys are done: ``files`` by
    part. ``layers`` are the identities of what it merges, oldest first, with rows of ``first_epoch`` to ``last_epoch``.
    ``is_lowest``: nothing lies below them. It began at ``watermark``: what is newer was judged there, or later. Where
    there are many files ``nodes`` have those of the first parts, and it has those of the others as its ``own``.
    """

    layers: tuple[str, ...]
    first_epoch: int
    last_epoch: int
    parts: int
    is_lowest: bool = False
    own: FilesByRecord = msgspec.field(name="files", default=())
    nodes: tuple[FilesNode, ...] = ()
    watermark: int | None = None

    @classmethod
    def from_layers(
        cls, layers: Sequence[Layer], parts: int, *, is_lowest: bool, watermark: int | None = None
    ) -> "UnfinishedMerge":
        """One of ``layers`` that has not begun."""
        identities = tuple(layer.identity for layer in layers)
        first, last = layers[0].first_epoch, layers[-1].last_epoch
        return cls(identities, first, last, parts, is_lowest, watermark=watermark)

    @property
    def files(self) -> FilesByRecord:
        """The files of the parts that are done; files of nodes are read. Raises BrokenObjectError."""
        return (*chain.from_iterable(node.by_record for node in self.nodes), *self.own)

    @property
    def rows(self) -> int:
        """The rows of the parts that are done."""
        return sum(node.rows for node in self.nodes) + sum(file.rows for part in self.own for file in part)

    @property
    def parts_done(self) -> int:
        return len(self.own) + (self.nodes[-1].last_epoch + 1 if self.nodes else 0)

    @property
    def left(self) -> range:
        """The parts that are not done."""
        return range(self.parts_done, self.parts)

    def with_next(self, parts: Sequence[tuple[DataFile, ...]]) -> "UnfinishedMerge":
        """The merge once the next ``parts`` are done, by their files."""
        return self.replace(own=(*self.own, *parts))

    def source_layers(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """What it merges of ``layers``: the oldest may have expired; nothing if they are not there."""
        own = tuple(layer for layer in layers if self._covers_layer(layer))
        is_same = self.layers[len(self.layers) - len(own) :] == tuple(layer.identity for layer in own)
        return own if is_same else ()

    def apply_to(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """``layers`` with what they became in the place of those that it merges, once all parts are done."""
        own = self.source_layers(layers)
        if not own:
            return tuple(layers)
        start, ends = layers.index(own[0]), [layer.expires for layer in own]
        expires = None if None in ends else max(end for end in ends if end is not None)
        files = tuple(file for part in self.files for file in part)
        merged_layers = (Layer.from_files(files, self.first_epoch, self.last_epoch, expires),) if files else ()
        return (*layers[:start], *merged_layers, *layers[start + len(own) :])

    def _covers_layer(self, layer: Layer) -> bool:
        return self.first_epoch <= layer.first_epoch and layer.last_epoch <= self.last_epoch


def plan_next_merge(layers: Sequence[Layer], unfinished_merges: Sequence[UnfinishedMerge]) -> int | None:
    """Where the next merge starts, as ``plan_merge`` says, beside ``unfinished_merges``; None: nowhere."""
    places: list[tuple[int, int, bool]] = []  # where it begins, its rows, whether it is being merged
    layers_by_epoch: dict[int, Sequence[Layer]] = {
        sources[0].first_epoch: sources for merge in unfinished_merges if (sources := merge.source_layers(layers))
    }
    place = 0
    while place < len(layers):
        first = layers[place].first_epoch
        own = layers_by_epoch.get(first, layers[place : place + 1])
        places.append((place, sum(layer.rows for layer in own), first in layers_by_epoch))
        place += len(own)
    newest = max((number for number, (_, _, is_merged) in enumerate(places) if is_merged), default=-1) + 1
    for first in (0, newest):  # where it would take what is being merged along, what is newer alone
        start = plan_merge([rows for _, rows, _ in places[first:]])
        if start is not None and first + start >= newest:
            return places[first + start][0]
    return None


def _newest_group(sizes: Sequence[int]) -> int:
    begin = len(sizes)
    while begin > 0 and size_tier(sizes[begin - 1]) <= size_tier(sizes[-1]):
        begin -= 1
    return begin


RADIX: Final = Size(32)
NODES_AHEAD = 8
"""Nodes that a reader of records requests together."""


class FileRecord(codec.JsonRecord, frozen=True):
    """The files that one epoch added, in order."""

    epoch: int
    files: tuple[LoggedFile, ...]


def files_in(record: FileRecord) -> tuple[DataFile, ...]:
    return tuple(file for file in record.files if isinstance(file, DataFile))


_ID = 32
"""Hex digits of a node's checksum that are its name."""


class IndexNode(codec.StoredObject, frozen=True, omit_defaults=True, dict=True):
    """A stored node: records (a leaf) or references to nodes of the level below, oldest first.

    ``writer``: unique to who stored it; "" in those of the first format.
    """

    KIND: ClassVar = "index"

    records: tuple[FileRecord, ...]
    refs: tuple[IndexRef, ...]
    writer: str = ""

    @property
    def format(self) -> int:
        """The second since it says who stored it."""
        return 2 if self.writer else 1

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """The node in object ``name``. Raises BrokenObjectError or NewerFormatError."""
        node = super().from_bytes(data, name)
        if (digest := codec.stated_checksum(data)) is not None:
            vars(node)["id"] = digest[:_ID]  # it was held against the content just now
        return node

    @cached_property
    def id(self) -> str:
        """Hash of the content."""
        return codec.checksum(codec.canonical_json(self.to_json()))[:_ID]

    @cached_property
    def ref(self) -> IndexRef:
        parts = [*self.refs, *(_record_summary(record) for record in self.records)]
        return IndexRef(
            self.id,
            parts[0].first_epoch,
            parts[-1].last_epoch,
            sum(part.files for part in parts),
            sum(part.rows for part in parts),
        )


class Level(codec.JsonRecord, frozen=True):
    """The references to nodes of one level, oldest first."""

    refs: tuple[IndexRef, ...]


class NamesFile(codec.JsonRecord, frozen=True):
    """A data file of names of files of one ``input``, sorted, with what tells the content that each had."""

    input: str
    file: DataFile


class LoggedNames(codec.JsonRecord, frozen=True):
    """The names that the first ``of`` files of a log of inputs have, for a look-up that does not read them all. The
    newest of ``files``, which are oldest first, counts for a name. They repeat what the log says, and may be lost.
    """

    of: int
    files: tuple[NamesFile, ...]


class FileLog(codec.JsonRecord, frozen=True, omit_defaults=True):
    """A log as a manifest holds it: its newest records, and references by level (the first: to leaves); a log of inputs
    has ``names``, too, once there are many.
    """

    tail: tuple[FileRecord, ...]
    levels: tuple[Level, ...]
    names: LoggedNames | None = None

    @classmethod
    def empty(cls) -> "FileLog":
        return cls((), ())

    @property
    def refs(self) -> Iterator[IndexRef]:
        """The nodes that it names, of all levels."""
        return (ref for level in self.levels for ref in level.refs)

    @property
    def first_epoch(self) -> int | None:
        """The first epoch that has a record; None if none has."""
        epochs = (*(ref.first_epoch for ref in self.refs), *(record.epoch for record in self.tail[:1]))
        return min(epochs, default=None)

    @property
    def files(self) -> int:
        """Number of files in the whole log."""
        return sum(ref.files for ref in self.refs) + sum(len(r.files) for r in self.tail)

    @property
    def rows(self) -> int:
        """Rows of all data files in the whole log."""
        return sum(ref.rows for ref in self.refs) + sum(_record_summary(r).rows for r in self.tail)


def append(log: FileLog, record: FileRecord, writer: str = "") -> tuple[FileLog, tuple[IndexNode, ...]]:
    """The log with ``record`` at its end, and the nodes of ``writer`` to store before any manifest names it.

    Raises ValueError for an epoch before the log's last.
    """
    last = _last_epoch(log)
    if last is not None and record.epoch < last:
        raise ValueError(f"a record of epoch {record.epoch} cannot follow one of epoch {last}")
    tail = (*log.tail, record)
    if sum(max(1, len(r.files)) for r in tail) < RADIX.value:
        return log.replace(tail=tail), ()
    nodes, levels = [IndexNode(tail, (), writer)], list(log.levels)
    for number in range(len(levels) + 1):
        refs = (*(levels[number].refs if number < len(levels) else ()), nodes[-1].ref)
        is_full = len(refs) >= RADIX.value  # more where older versions stored it, by another number
        levels[number : number + 1] = [Level(() if is_full else refs)]
        if not is_full:
            break
        nodes.append(IndexNode((), refs, writer))
    return log.replace(tail=(), levels=tuple(levels)), tuple(nodes)


def cut_before_epoch(
    log: FileLog, floor: int, read_node: Callable[[str], IndexNode], writer: str = ""
) -> tuple[FileLog, tuple[IndexNode, ...]]:
    """The log without records of epochs before ``floor``, and the nodes of ``writer`` to store.

    A leaf stays whole as long as any of it does, so that a log is cut rarely: up to 63 records more are left.
    """
    nodes: list[IndexNode] = []

    def kept_refs(refs: Sequence[IndexRef], level: int) -> tuple[IndexRef, ...]:
        left = [ref for ref in refs if ref.last_epoch >= floor]
        if level and left and left[0].first_epoch < floor:
            child_refs = read_node(left[0].id).refs
            if len(inner := kept_refs(child_refs, level - 1)) < len(child_refs) or inner[0] != child_refs[0]:
                nodes.append(IndexNode((), inner, writer))
                left[0] = nodes[-1].ref
        return tuple(left)

    levels = tuple(Level(kept_refs(level.refs, number)) for number, level in enumerate(log.levels))
    return FileLog(log.tail, levels), tuple(nodes)


def iterate_records(
    log: FileLog, read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]], since_epoch: int | None = None
) -> Iterator[FileRecord]:
    """Records after ``since_epoch`` (None: all), oldest first; reads only nodes that hold such, a few at a time."""
    for level in reversed(log.levels):
        yield from _records_below(level.refs, read_nodes, since_epoch)
    yield from (r for r in log.tail if since_epoch is None or r.epoch > since_epoch)


def records_after_files(
    log: FileLog, files: int, read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]
) -> Iterator[FileRecord]:
    """Records after the first so many ``files``, oldest first; reads only nodes that hold some, many at a time."""
    refs = [ref for level in reversed(log.levels) for ref in level.refs]
    yield from (record for begin, record in _records_after_files(refs, 0, files, read_nodes) if begin >= files)
    begin = sum(ref.files for ref in refs)
    for record in log.tail:
        if begin >= files:
            yield record
        begin += len(record.files)


def _records_after_files(
    refs: Sequence[IndexRef], begin: int, files: int, read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]
) -> Iterator[tuple[int, FileRecord]]:
    """Records below ``refs``, each with how many files come before it, from the node on that has the next of them."""
    left: list[tuple[int, str]] = []
    for ref in refs:
        if begin + ref.files > files:
            left.append((begin, ref.id))
        begin += ref.files
    for first in range(0, len(left), RADIX.value):
        batch = left[first : first + RADIX.value]
        for (start, _), node in zip(batch, read_nodes([node_id for _, node_id in batch]), strict=True):
            yield from _records_after_files(node.refs, start, files, read_nodes)
            files_before = accumulate((len(record.files) for record in node.records), initial=start)
            yield from zip(files_before, node.records, strict=False)


def newest_first(log: FileLog, read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]) -> Iterator[FileRecord]:
    """All records, newest first; ``read_nodes`` is asked for a few nodes at a time, when they are needed."""
    yield from reversed(log.tail)
    for level in log.levels:
        yield from _below_newest_first(level.refs, read_nodes)


def _below_newest_first(
    refs: Sequence[IndexRef], read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]]
) -> Iterator[FileRecord]:
    for end in range(len(refs), 0, -NODES_AHEAD):
        ids = [ref.id for ref in refs[max(0, end - NODES_AHEAD) : end]]
        for node in read_nodes(ids[::-1]):
            yield from _below_newest_first(node.refs, read_nodes)
            yield from reversed(node.records)


def _records_below(
    refs: Sequence[IndexRef], read_nodes: Callable[[Sequence[str]], Iterable[IndexNode]], since_epoch: int | None
) -> Iterator[FileRecord]:
    wanted_ids = [ref.id for ref in refs if since_epoch is None or ref.last_epoch > since_epoch]
    for first in range(0, len(wanted_ids), NODES_AHEAD):
        for node in read_nodes(wanted_ids[first : first + NODES_AHEAD]):
            yield from _records_below(node.refs, read_nodes, since_epoch)
            yield from (r for r in node.records if since_epoch is None or r.epoch > since_epoch)


def _last_epoch(log: FileLog) -> int | None:
    if log.tail:
        return log.tail[-1].epoch
    return next((level.refs[-1].last_epoch for level in log.levels if level.refs), None)


def _record_summary(record: FileRecord) -> IndexRef:
    rows = sum(file.rows for file in record.files if isinstance(file, DataFile))
    return IndexRef("", record.epoch, record.epoch, len(record.files), rows)
