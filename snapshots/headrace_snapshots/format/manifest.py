"""The manifest of a global snapshot: everything that one needs to continue from it, to read it and to explain it.

``OutputTables`` has the names of the tables and logs of a manifest. No other module spells them. All outputs of a
pipeline share the remembered ids, the log of inputs and the log of dead letters. Each output has tables and logs of its
own. Their names begin with the name of the output, where it has one: ``hourly/state``.

``Skip`` is one of the few ancestors that a manifest names beside its parent. By these any other one is found in so many
requests as the logarithm of the epochs to it. They are the roots of the trees of a skew-binary random-access list
(Myers, *An applicative random-access stack*, 1983). Each skips a whole tree, and the two newest trees become one
whenever they are equally large. So a manifest names at most log2(epochs) + 1 of them, and the parent's say what a new
snapshot's are.

``NodeMaker`` puts the files of a layer, where these are many, into a node. The epoch that made the layer writes the
node, and manifests name it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import ClassVar, Final, Never, Self

import msgspec

from headrace.this_process import Size
from headrace_snapshots.format.codec import JSON, JsonRecord, NewerFormatError, StoredObject
from headrace_snapshots.format.files import (
    FileLog,
    FileRecord,
    FilesByRecord,
    FilesNode,
    IndexNode,
    Layer,
    UnfinishedMerge,
    files_in,
)

IDS = "ids"
"""The table of ids by which duplicates are told."""

INPUTS = "inputs"
"""The log of files that were read."""

REJECTED = "rejected"
"""The log of dead letters: records and panes."""

_CURRENT = "current"


class OutputTables(msgspec.Struct, frozen=True):
    """The names of the tables and logs of one ``output``; "": the output without a name."""

    output: str = ""

    def state_table(self, stage: int) -> str:
        """The table of rows of state of ``stage``, counted from 0."""
        return self.qualified_name(f"state_{stage}" if stage else "state")

    def state_tables(self, stages: int) -> tuple[str, ...]:
        """The tables of state of so many stages."""
        return tuple(map(self.state_table, range(stages)))

    @property
    def edges(self) -> str:
        """The table of the edges of a loop."""
        return self.qualified_name("edges")

    @property
    def in_flight(self) -> str:
        """The table of what goes round a loop and has not arrived."""
        return self.qualified_name("inflight")

    def join_left(self, join: int) -> str:
        """The table of the left rows of a ``join``, counted from 0."""
        return self.qualified_name(f"joinleft_{join}" if join else "joinleft")

    def join_right(self, join: int) -> str:
        """The table of the right rows of a ``join``, counted from 0."""
        return self.qualified_name(f"joinright_{join}" if join else "joinright")

    @property
    def current(self) -> str:
        return self.qualified_name(_CURRENT)

    @property
    def panes(self) -> str:
        """The log of panes and retractions."""
        return self.qualified_name("panes")

    @property
    def late(self) -> str:
        """The log of late rows."""
        return self.qualified_name("late")

    def plain_name(self, name: str) -> str | None:
        """What a table, log or count of this output is called in a pipeline without names; None if it is another's."""
        begin = self.qualified_name("")
        return name.removeprefix(begin) if name.startswith(begin) else None

    def qualified_name(self, name: str) -> str:
        """What a table, log or count called ``name`` in a pipeline without names is called of this output."""
        return f"{self.output}/{name}" if self.output else name


UNNAMED = OutputTables()
"""Tables and logs of an output without a name, which is the only one of its pipeline."""


def file_stem(table: str) -> str:
    """What names of files of ``table``, or of a log, begin with: all files of an epoch lie in one folder."""
    return table.replace("/", "-")


def is_current(table: str) -> bool:
    """Whether ``table`` is ``current`` of some output. All other tables hold state."""
    return table.rpartition("/")[2] == _CURRENT


class Skip(JsonRecord, frozen=True):
    """An ancestor of a snapshot, and its epoch."""

    snapshot_id: str
    epoch: int


def skips_after(parent: Skip, skips: Sequence[Skip]) -> tuple[Skip, ...]:
    """The skips of a child of ``parent``, whose own are ``skips``; newest first.

    A parent that was written before there were skips has none: those of its descendants end at it.
    """
    if len(skips) > 1 and parent.epoch - skips[0].epoch == skips[0].epoch - skips[1].epoch:
        return tuple(skips[1:])
    return (parent, *skips)


OUTPUTS = "outputs"
"""Under what schema, progress and definition have what is of each output, where outputs have names."""

ADOPTED = "adopted"
"""The epoch from which on the rows of an output are those of a branch, which was computed for it; in its schema."""

FORMERLY = "formerly"
"""What an output was called before, newest name first, "" where it had none; in its schema."""

ROWS = "rows"
"""What is said of an output that gives rows, in its schema."""

INPUT_WATERMARK = "input_watermark"
"""The watermark that comes to an output that reads others, or what a loop makes, in its progress."""


RESERVED_FIELDS = frozenset({"position", "summaries"})
"""Fields of format 3 that no version writes yet, beside ``upstream`` of an input in ``progress``."""

POSITION = "position"
"""The field of an input in ``progress`` that says how far it was read, where its source is not files."""


OF_EPOCH = frozenset(
    {
        "signals",
        "executor",
        "min_event_time",
        "max_event_time",
        "ahead",
        "behind",
        "behind_by_file",
        "lacking",
        "rejects",
    }
)
"""What ``progress`` says of its own epoch alone; all else goes on."""


class Patch(JsonRecord, frozen=True, omit_defaults=True):
    """An output patch: the ``epoch`` of main that it is, and the branch and its snapshot that the rows are of;
    ``output`` is the one that is patched, where they have names.
    """

    epoch: int
    branch: str
    snapshot: str
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class EpochFields:
    """What a manifest says of its own epoch alone. Who writes one says all of it, so nothing of this is inherited.
    ``progress``: the fields ``OF_EPOCH`` of it, as far as there are any.
    """

    snapshot_id: str
    branch: str
    generation: int
    created_at: str
    progress: Mapping[str, JSON]
    counts: Mapping[str, int]
    timings: Mapping[str, float]
    requests: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Continuing:
    """What the next manifest has of one unless its writer changes it; ``progress`` without what an epoch alone says."""

    pipeline: str
    fingerprint: str
    definition: Mapping[str, JSON]
    schema: Mapping[str, JSON]
    code: Mapping[str, str]
    progress: Mapping[str, JSON]
    tables: Mapping[str, tuple[Layer, ...]]
    merges: Mapping[str, tuple[UnfinishedMerge, ...]]
    logs: Mapping[str, FileLog]
    patch: Patch | None


MANY: Final = Size(32)
"""A layer of more files has them in a node. Otherwise the manifests that name it would repeat what the node says once,
for 32 files or more.
"""

LEAF: Final = Size(4096)
"""Files of a node, about; a node of more names nodes, which are read together."""


class LayerNode(IndexNode, frozen=True, dict=True):
    """A node that is written for a layer or a merge: packed where it is long, as all in it is read together."""

    PACKED_FROM: ClassVar = 8_192


class NodeMaker:
    """Puts many files of a layer, or of a merge, into nodes; store ``made_nodes`` before a manifest names them."""

    def __init__(self, new_writer: Callable[[], str]) -> None:
        self.made_nodes: list[IndexNode] = []
        self._new_writer = new_writer

    def stored_layer(self, layer: Layer, old_layers: Sequence[Layer]) -> Layer:
        """``layer`` as it is stored: with the node that it has among ``old_layers``, or a new one."""
        if len(layer.own) <= MANY.value:
            return layer
        for one in old_layers:
            if one.node is not None and one.is_like(layer) and one.files == layer.own:
                return layer.replace(own=(), node=one.node)
        cut = (layer.own[begin : begin + LEAF.value] for begin in range(0, len(layer.own), LEAF.value))
        node = self._new_node([FileRecord(layer.last_epoch, files) for files in cut], layer.identity)
        return layer.replace(own=(), node=node)

    def stored_merge(self, merge: UnfinishedMerge, old_merges: Sequence[UnfinishedMerge]) -> UnfinishedMerge:
        """``merge`` as it is stored, with nodes of ``old_merges``, and a new one if its other parts have many files."""
        if not _are_many(merge.own):
            return merge
        for one in old_merges:
            if one.layers == merge.layers and len(one.nodes) > len(merge.nodes):
                stored_files, files = one.replace(own=()).files, merge.files
                if files[: len(stored_files)] == stored_files:
                    merge = merge.replace(nodes=one.nodes, own=files[len(stored_files) :])
        if not _are_many(merge.own):
            return merge
        first = merge.parts_done - len(merge.own)
        node = self._new_node([FileRecord(first + number, files) for number, files in enumerate(merge.own)])
        return merge.replace(own=(), nodes=(*merge.nodes, node))

    def _new_node(self, records: Sequence[FileRecord], identity: str = "") -> FilesNode:
        """The node that has ``records``: itself, or in nodes that it names."""
        writer = self._new_writer()
        files = tuple(files_in(record) for record in records)
        files_before = accumulate(map(len, files), initial=0)
        leaves = groupby(zip(files_before, records, strict=False), key=lambda place: place[0] // LEAF.value)
        nodes: list[IndexNode] = [LayerNode(tuple(record for _, record in leaf), (), writer) for _, leaf in leaves]
        if len(nodes) > 1:
            nodes.append(LayerNode((), tuple(node.ref for node in nodes), writer))
        self.made_nodes += nodes
        ref = nodes[-1].ref
        size = sum(file.bytes for file in chain.from_iterable(files))
        node = FilesNode(ref.id, ref.first_epoch, ref.last_epoch, ref.files, ref.rows, size, identity)
        return node.with_files(files)


def _are_many(parts: FilesByRecord) -> bool:
    return sum(map(len, parts)) > MANY.value


class Manifest(StoredObject, frozen=True, omit_defaults=True, weakref=True):
    """One snapshot. Immutable once stored.

    ``progress`` is the engine's own (offsets, splits, watermark, clocks, next deadline), and so is ``schema``, the
    columns of what readers see; ``tables`` are layered
    tables, oldest layer first; ``logs`` are file logs; ``counts`` are rows by what became of them, of this epoch
    alone; ``timings`` are seconds; ``requests`` are storage requests by kind. ``created_at`` is ISO 8601 in UTC.
    ``code`` are digests of users' own code (Spark functions, own objects) by its name. ``skips`` are ancestors, newest
    first, by which others are found fast; the catalog gives them at the commit. ``definition`` is what ``fingerprint``
    is a digest of. Older manifests have neither. ``patch`` is the newest output patch up to here, None if there was
    none. ``merges`` are those of each table that go on, newest layers last: who does not know of them loses what they
    have done.
    """

    KIND: ClassVar = "manifest"
    PACKED_FROM: ClassVar = 8_192

    snapshot_id: str
    pipeline: str
    fingerprint: str
    branch: str
    epoch: int
    parent: str | None
    generation: int
    created_at: str
    progress: Mapping[str, JSON]
    schema: Mapping[str, JSON]
    tables: Mapping[str, tuple[Layer, ...]]
    logs: Mapping[str, FileLog]
    counts: Mapping[str, int]
    timings: Mapping[str, float]
    requests: Mapping[str, int]
    code: Mapping[str, str]
    skips: tuple[Skip, ...] = ()
    definition: Mapping[str, JSON] = {}
    patch: Patch | None = None
    merges: Mapping[str, tuple[UnfinishedMerge, ...]] = {}

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Read what ``to_json`` wrote. Raises MalformedError; NewerFormatError for a field that is reserved."""
        reserved_fields = {*RESERVED_FIELDS} & {*value}
        progress = value.get("progress") or {}
        if any("upstream" in input_ for input_ in (progress.get("inputs") or {}).values()):
            reserved_fields.add("upstream")
        if reserved_fields:
            raise NewerFormatError(
                f"snapshot {value.get('snapshot_id')} has {', '.join(sorted(reserved_fields))}, which this Headrace "
                "does not know: upgrade it"
            )
        return super().from_json(value)

    @classmethod
    def next_of(cls, parent: "Manifest | None", *, continuing: Continuing, epoch: EpochFields) -> "Manifest":
        """The manifest after ``parent`` (None: the first of its pipeline), and the only way to make one. Raises
        ValueError where progress says of an epoch what goes on, or the other way round.
        """
        if misplaced_fields := (continuing.progress.keys() & OF_EPOCH) | (epoch.progress.keys() - OF_EPOCH):
            raise ValueError(f"progress says in the wrong place: {', '.join(sorted(misplaced_fields))}")
        return cls(
            snapshot_id=epoch.snapshot_id,
            pipeline=continuing.pipeline,
            fingerprint=continuing.fingerprint,
            branch=epoch.branch,
            epoch=0 if parent is None else parent.epoch + 1,
            parent=None if parent is None else parent.snapshot_id,
            generation=epoch.generation,
            created_at=epoch.created_at,
            progress={**continuing.progress, **epoch.progress},
            schema=continuing.schema,
            tables=continuing.tables,
            logs=continuing.logs,
            counts=epoch.counts,
            timings=epoch.timings,
            requests=epoch.requests,
            code=continuing.code,
            definition=continuing.definition,
            patch=continuing.patch,
            merges={table: merges for table, merges in continuing.merges.items() if merges},
        )

    @property
    def continuing(self) -> Continuing:
        """What the next manifest goes out from."""
        return Continuing(
            pipeline=self.pipeline,
            fingerprint=self.fingerprint,
            definition=self.definition,
            schema=self.schema,
            code=self.code,
            progress={name: value for name, value in self.progress.items() if name not in OF_EPOCH},
            tables=self.tables,
            logs=self.logs,
            patch=self.patch,
            merges=self.merges,
        )

    def replace(self, **changes: Never) -> Self:
        """A copy with other fields, for tests that break one: type checkers refuse each field. A new manifest is
        ``next_of`` another; what some output sees of this one is ``seen_as``.
        """
        return super().replace(**changes)

    def with_skips(self, skips: tuple[Skip, ...]) -> Self:
        """The same, with the ``skips`` that the catalog finds at the commit."""
        return super().replace(skips=skips)

    def seen_as(
        self,
        *,
        fingerprint: str | None = None,
        schema: Mapping[str, JSON] | None = None,
        progress: Mapping[str, JSON] | None = None,
        tables: Mapping[str, tuple[Layer, ...]] | None = None,
        logs: Mapping[str, FileLog] | None = None,
        counts: Mapping[str, int] | None = None,
        definition: Mapping[str, JSON] | None = None,
    ) -> Self:
        """This snapshot as some reader sees it: the same epoch, never stored. None: what it is."""
        return super().replace(
            fingerprint=self.fingerprint if fingerprint is None else fingerprint,
            schema=self.schema if schema is None else schema,
            progress=self.progress if progress is None else progress,
            tables=self.tables if tables is None else tables,
            logs=self.logs if logs is None else logs,
            counts=self.counts if counts is None else counts,
            definition=self.definition if definition is None else definition,
            merges={},
        )

    @property
    def nodes(self) -> Iterator[FilesNode]:
        """The nodes that have files of its tables, and of merges that go on."""
        yield from self.layer_nodes
        yield from self.merge_nodes

    @property
    def layer_nodes(self) -> Iterator[FilesNode]:
        """The nodes that have files of its tables."""
        return (layer.node for layers in self.tables.values() for layer in layers if layer.node is not None)

    @property
    def merge_nodes(self) -> Iterator[FilesNode]:
        """The nodes that have files of merges that go on."""
        return (node for merges in self.merges.values() for merge in merges for node in merge.nodes)

    def in_nodes(
        self, parent: "Manifest | None", new_writer: Callable[[], str]
    ) -> tuple["Manifest", Sequence[IndexNode]]:
        """The same with many files of a layer or of a merge in nodes; and those nodes that ``parent`` does not name,
        which are to be stored before it.
        """
        tables, merges = ({}, {}) if parent is None else (parent.tables, parent.merges)
        maker = NodeMaker(new_writer)
        stored_manifest = super().replace(
            tables={
                name: tuple(maker.stored_layer(layer, tables.get(name, ())) for layer in layers)
                for name, layers in self.tables.items()
            },
            merges={
                name: tuple(maker.stored_merge(merge, merges.get(name, ())) for merge in own)
                for name, own in self.merges.items()
            },
        )
        return stored_manifest, maker.made_nodes

    def read_by(self, read: Callable[[FilesNode], FilesByRecord]) -> Self:
        """The same, whose nodes ``read`` reads when somebody asks for their files."""
        if next(self.nodes, None) is None:
            return self

        def of_layer(layer: Layer) -> Layer:
            return layer if layer.node is None else layer.replace(node=layer.node.read_by(read))

        def of_merge(merge: UnfinishedMerge) -> UnfinishedMerge:
            return merge.replace(nodes=tuple(node.read_by(read) for node in merge.nodes))

        return super().replace(
            tables={name: tuple(map(of_layer, layers)) for name, layers in self.tables.items()},
            merges={name: tuple(map(of_merge, merges)) for name, merges in self.merges.items()},
        )

    @property
    def format(self) -> int:
        """The sixth where nodes have files of tables, and where some output gives rows. An older reader would fold rows
        by a key and window that they have not. The third where outputs have names, in which an older reader would find
        no rows where it looks for them. The third, too, where an input has a position, which is unknown to it.
        """
        gives_rows = any(ROWS in own for own in (self.schema, *self.schema.get(OUTPUTS, {}).values()))
        if gives_rows or next(self.nodes, None) is not None:
            return 6
        inputs: Mapping[str, JSON] = self.progress.get("inputs") or {}
        return 3 if OUTPUTS in self.schema or any(POSITION in read for read in inputs.values()) else 1

    @property
    def is_patch(self) -> bool:
        """Whether it is an output patch: it read no input, and changed no state."""
        return self.patch is not None and self.patch.epoch == self.epoch
