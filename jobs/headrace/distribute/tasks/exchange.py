"""What crosses an exchange between two levels of tasks: groups of a delta, rows of state, and judged records.

A task sends every part its result, and its share of the bundle for that part, as Arrow IPC. It is cut into blobs of at
most BLOB_BYTES, since each passes through the JVM, which holds a few. Blobs are numbered; the digest of all that a task
said tells whether two parts heard the same, since a task may run twice.

Elements for a stage are mostly aggregated first: a share's delta stands for them. The elements themselves travel, each
with its place, where the order of arrival counts in the stage and the tasks above take elements in turns.

Judged records travel to the tasks that tell duplicates, and from a user's own Spark code. They say where they are from;
their text stays in its file, which is read again for the few of them that are dropped.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.distribute.records import FileRecords, Lacks, Records, read_one
from headrace.distribute.tasks.plan import EpochTask
from headrace.errors import HeadraceError, RetryError
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy
from headrace.kernel.delta import AggregatedBundle, Columns, KeyHashes, aggregate_rows, takes_part
from headrace.kernel.keys import hash_keys
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.sources.changelogs import rows_at
from headrace.sources.validation import JudgedRecords
from headrace.state.chunks import key_group_ranges, part_of
from headrace.this_process import Size

BLOB_BYTES: Final = Size(1024 * 1024)
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("task", pa.int64()),
        ("number", pa.int32()),
        ("digest", pa.binary()),
        ("blob", pa.binary()),
    ]
)
"""``task`` numbers the tasks of a level in the order of what they say; blob number 0 is what a task found."""


@dataclass(frozen=True)
class ReceivedMessage:
    """What one task of the level above said to a part: its ``result``, and rows for the part (None: none)."""

    task: int
    digest: bytes
    result: Any
    rows: pa.RecordBatch | None


def message_batches(
    task: int, parts: int, result: Any, content: bytes, bundles: Mapping[int, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows with which ``task`` tells all ``parts`` its ``result``, and some of them their ``bundles``.

    ``content`` stands for ``result`` in the digest: two runs of a task may differ in what does not matter.
    """
    streams = {part: as_stream(rows) for part, rows in sorted(bundles.items()) if rows.num_rows}
    digest = hashlib.sha256(content)
    for part, stream in streams.items():
        digest.update(part.to_bytes(4, "little"))
        digest.update(stream)
    stamp, header = digest.digest(), pickle.dumps(result)
    for part in range(parts):
        stream = streams.get(part, pa.py_buffer(b""))
        blobs = [
            stream[start : start + BLOB_BYTES.value].to_pybytes() for start in range(0, len(stream), BLOB_BYTES.value)
        ]
        # the first blob says how many follow, so that a lost one is noticed
        head = len(blobs).to_bytes(4, "little") + header
        for number, blob in enumerate([head, *blobs]):
            yield _blob_row(part, task, number, stamp, blob)


def _blob_row(*values: int | bytes) -> pa.RecordBatch:
    columns = [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def as_stream(rows: pa.RecordBatch) -> pa.Buffer:
    """``rows`` as a stream of Arrow IPC with one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


class TornExchangeError(RetryError, code="retry.shuffle_incomplete"):
    """Blobs of a task are missing, or are of two runs of it."""


def receive_messages(batches: Iterable[pa.RecordBatch], tasks: int) -> list[ReceivedMessage]:
    """What all tasks above said to one part, in order; the first ``tasks`` are among them. Raises TornExchangeError."""
    blobs: dict[int, dict[int, tuple[bytes, pa.Scalar]]] = {}
    for batch in batches:
        for row in range(batch.num_rows):
            task, number, digest = (batch.column(name)[row].as_py() for name in ("task", "number", "digest"))
            blobs.setdefault(task, {})[number] = (digest, batch.column("blob")[row])
    if silent := sorted(set(range(tasks)) - set(blobs)):
        raise TornExchangeError(f"task {silent[0]} of {tasks} sent nothing: run again")
    return [_decode_message(task, blobs_of_task) for task, blobs_of_task in sorted(blobs.items())]


def _decode_message(task: int, blobs: dict[int, tuple[bytes, pa.Scalar]]) -> ReceivedMessage:
    stamps = {digest for digest, _ in blobs.values()}
    if len(stamps) != 1 or 0 not in blobs:
        raise TornExchangeError(f"what task {task} said is of {len(stamps)} runs of it: run again")
    head = blobs[0][1].as_buffer()
    count = int.from_bytes(head[:4], "little")
    if sorted(blobs) != list(range(count + 1)):
        raise TornExchangeError(f"of {count} blobs of task {task} {len(blobs) - 1} have come: run again")
    rows = None
    if count:
        contents = [blobs[number][1].as_buffer() for number in range(1, count + 1)]
        with pa.ipc.open_stream(b"".join(contents)) as reader:  # a copy: what comes through Spark is not aligned
            rows = reader.read_next_batch()
    return ReceivedMessage(task, stamps.pop(), pickle.loads(head[4:]), rows)  # noqa: S301 (our own, of this application)


_PLACE = "_place_"
_SHARE_BITS = 40
_UNUSED_COLUMNS = frozenset({c.SPLIT, c.MARK, c.ID, c.ID_FATE, c.REJECT, c.IS_ADMITTED})


class ShuffleInput(msgspec.Struct, frozen=True):
    """A bundle aggregated, and what of it goes to which part."""

    aggregated: AggregatedBundle = msgspec.field(default_factory=AggregatedBundle)
    parts: Mapping[int, pa.RecordBatch] = msgspec.field(default_factory=dict)


def build_shuffle_input(
    stage: CompiledStage,
    judged_rows: Columns,
    order: Columns | None,
    watermark: Instant,
    output_watermark: Instant,
    *,
    share: int,
    number: int,
    key_hashes: KeyHashes | None = None,
) -> ShuffleInput:
    """``judged_rows`` as share number ``share`` of an epoch's elements, for ``number`` parts of the keys of ``stage``.
    ``watermark`` and ``output_watermark`` are the old ones of the stage. ``order``: columns by which rows of all shares
    are in order, None if that of the shares is enough. ``key_hashes``: those of keys of the same rows, for other
    stages.
    """
    # rows of a share are numbered below that, so places of all shares are in the order of arrival
    place = share << _SHARE_BITS
    bundle = aggregate_rows(stage, judged_rows, watermark, output_watermark, place=place, key_hashes=key_hashes)
    if bundle.delta is None:
        return ShuffleInput(bundle)
    if order is None:
        in_order = as_numpy(bundle.delta.column(c.HASH))
        spans = {part: keys.row_slice(in_order) for part, keys in enumerate(key_group_ranges(number))}
        cut = {part: bundle.delta.slice(span.start, span.stop - span.start) for part, span in spans.items()}
        return ShuffleInput(bundle, {part: rows for part, rows in cut.items() if rows.num_rows})
    return ShuffleInput(bundle, _shuffled_rows(stage, judged_rows, order, number))


def shuffle_elements(task: EpochTask, number: int, judged_rows: Columns, order: Columns | None = None) -> ShuffleInput:
    """``judged_rows`` of a task as elements of stage ``number`` of its chain; ``order``: as for the above."""
    stage, watermark = task.chain.stages[number], task.state.clocks[number].watermark
    order = order if stage.is_ordered else None
    output_watermark = task.output_watermark(number)
    return build_shuffle_input(
        stage, judged_rows, order, watermark, output_watermark, share=task.number, number=task.parts
    )


def _shuffled_rows(
    stage: CompiledStage, judged_rows: Columns, order: Columns, number: int
) -> dict[int, pa.RecordBatch]:
    counts = takes_part(judged_rows)
    if c.ID_FATE in judged_rows:  # NULL for what is new
        counts &= as_numpy(judged_rows[c.ID_FATE].is_null())
    rows = {name: values for name, values in judged_rows.items() if name not in _UNUSED_COLUMNS}
    rows |= {f"{_PLACE}{name}": values for name, values in order.items()}
    return by_part(pa.RecordBatch.from_pydict(rows).filter(pa.array(counts)), stage.keys, number)


def by_part(rows: pa.RecordBatch, names: Sequence[str], number: int) -> dict[int, pa.RecordBatch]:
    """``rows`` by the part that the hash of the columns called ``names`` is of, out of so many."""
    return _split(rows, part_of(hash_keys([rows.column(name) for name in names], rows.num_rows), number))


def by_id(rows: pa.RecordBatch, number: int) -> dict[int, pa.RecordBatch]:
    """``rows`` by the part of their id's hash; rows without an id, of joined inputs, go to all parts in turn."""
    part_of_row = part_of(hash_keys([rows.column(c.ID)], rows.num_rows), number)
    has_none = as_numpy(rows.column(c.ID).is_null())
    return _split(rows, np.where(has_none, np.cumsum(has_none) % number, part_of_row))


def _split(rows: pa.RecordBatch, part_of_row: Ints) -> dict[int, pa.RecordBatch]:
    return {int(part): rows.filter(pa.array(part_of_row == part)) for part in np.unique(part_of_row)}


_SIDE = "side_{}"
"""What the rows of a side are called in a bundle, which has them as one list: other sides have other columns."""


def sides_by_part(rows: Mapping[int, pa.RecordBatch], number: int) -> dict[int, pa.RecordBatch]:
    """``rows`` of each side of joins for each of so many parts of their keys."""
    bundles: dict[int, dict[str, pa.Array]] = {}
    for side, of_side in rows.items():
        # there are no more parts than groups of keys; numpy orders such short numbers by their digits
        part = part_of(as_numpy(of_side.column(c.HASH)), number).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(part, minlength=number))])
        for part_number in np.flatnonzero(np.diff(ends)).tolist():
            # rows of its own, which the part lets go whatever others do
            places = order[ends[part_number] : ends[part_number + 1]]
            own = of_side.take(pa.array(places)).to_struct_array()
            bundles.setdefault(part_number, {})[_SIDE.format(side)] = pa.ListArray.from_arrays(
                pa.array([0, len(own)], pa.int32()), own
            )
    return {part: pa.RecordBatch.from_pydict(sides) for part, sides in bundles.items()}


def sides_of(bundles: Iterable[pa.RecordBatch], side: int) -> list[pa.RecordBatch]:
    """The rows of a ``side`` that came in ``bundles``."""
    name = _SIDE.format(side)
    return [
        pa.RecordBatch.from_struct_array(rows.column(name).flatten()) for rows in bundles if name in rows.schema.names
    ]


def deltas_of(
    stage: CompiledStage, shares: Iterable[pa.RecordBatch | None], watermark: Instant, output_watermark: Instant
) -> list[pa.RecordBatch]:
    """The delta of one part, made of the ``shares`` of all tasks above, in their order. It comes in batches, each in
    the order of its hashes, which stand one below the other.
    """
    rows = [share for share in shares if share is not None and share.num_rows]
    places = [(name, "ascending") for name in rows[0].schema.names if name.startswith(_PLACE)] if rows else []
    if not places:
        return rows
    arrived_rows = pa.concat_batches(rows)
    arrived_rows = arrived_rows.take(pc.sort_indices(arrived_rows, sort_keys=places))
    columns = {name: arrived_rows.column(name) for name in arrived_rows.schema.names if not name.startswith(_PLACE)}
    # only rows that take part were sent
    columns[c.REJECT] = pa.nulls(arrived_rows.num_rows, pa.string())
    columns[c.IS_ADMITTED] = pa.repeat(arrow_scalar(True), arrived_rows.num_rows)
    delta = aggregate_rows(stage, columns, watermark, output_watermark).delta
    return [] if delta is None else [delta]


SHARE, FILE, POSITION = "_share", "_file_number", "_position"
"""Where a record is from: the share of the input, the number of its file there, its position in the file."""

PLACE = (SHARE, FILE, POSITION)
"""The order of arrival."""

ITEM = "_item"
"""The order of what was made of one record, where several were. It counts within a share."""

_LEFT = (c.SPLIT, c.MARK, c.REJECT, c.IS_ADMITTED)


def record_places(records: FileRecords, share: int, *, has_items: bool) -> dict[str, pa.Array]:
    """Where the ``records`` of share number ``share`` are from. ``has_items``: some share has several of one record."""
    rows = np.arange(len(records.columns[c.EVENT_TIME]))
    return {
        SHARE: pa.array(np.full(len(rows), share, np.int64)),
        FILE: pa.array(records.file_of(rows)),
        POSITION: pa.array(records.positions),
        **({ITEM: pa.array(rows)} if has_items else {}),
    }


_OF_CHAIN = "_of_{}_"
"""What the names of columns that only one of several chains has begin with while they travel."""


def travelling_batch(
    records: JudgedRecords, places: Columns, rows: NDArray[np.bool_], *, skipped_chains: Set[int] = frozenset()
) -> pa.RecordBatch:
    """The ``rows`` of judged records, all of which take part, with their places; without ``skipped_chains``."""
    columns = {name: values for name, values in records.common.items() if name not in _LEFT}
    chains = [(n, chain) for n, chain in enumerate(records.chains) if n not in skipped_chains]
    for number, chain in chains if len(records.chains) > 1 else ():
        own = {name: values for name, values in chain.items() if name not in (c.SPLIT, c.MARK, *columns)}
        columns |= {f"{_OF_CHAIN.format(number)}{name}": values for name, values in own.items()}
    return pa.RecordBatch.from_pydict({**columns, **places}).filter(pa.array(rows))


@dataclass(frozen=True)
class ShippedRecords(Records):
    """Records of some shares of an epoch, in their order of arrival, with where they are from (``place``)."""

    task: EpochTask
    judged: JudgedRecords
    place: Columns

    @classmethod
    def from_batches(
        cls, task: EpochTask, batches: Sequence[pa.RecordBatch], errors: Mapping[int, HeadraceError]
    ) -> "ShippedRecords":
        """Makes records of the batches that ``travelling_batch`` made, in order of arrival. Chains with ``errors``, by
        number, have columns in some batches only.
        """
        begin = tuple(map(_OF_CHAIN.format, errors))
        rows = in_arrival_order(pa.concat_batches([_drop_columns(batch, begin) for batch in batches]))
        columns = {name: rows.column(name) for name in rows.schema.names}
        place = {name: columns.pop(name) for name in (*PLACE, ITEM) if name in columns}
        begins = tuple(map(_OF_CHAIN.format, range(len(task.work.readers))))
        chains = [
            {name.removeprefix(b): column for name, column in columns.items() if name.startswith(b)} for b in begins
        ]
        common = {name: values for name, values in columns.items() if not name.startswith(begins)}
        common[c.REJECT] = pa.nulls(rows.num_rows, pa.string())
        common[c.IS_ADMITTED] = pa.repeat(arrow_scalar(True), rows.num_rows)
        by_chain = tuple({**common, **chain_columns} for chain_columns in chains)
        return cls(task, JudgedRecords(common, by_chain, errors), place)

    def with_columns(self, columns: Columns) -> "ShippedRecords":
        judged_records = self.judged
        chains = tuple({**chain, **columns} for chain in judged_records.chains)
        return replace(self, judged=replace(judged_records, common={**judged_records.common, **columns}, chains=chains))

    def with_errors(self, errors: Mapping[int, HeadraceError]) -> "ShippedRecords":
        """These, which some more chains, by number, cannot take."""
        return replace(self, judged=self.judged.with_errors(errors))

    @property
    def lacks(self) -> Lacks:
        """Who read their files has said it."""
        return {}

    def of_input(self, name: str) -> NDArray[np.bool_]:
        names = [[piece.input for piece in share] for share in self.task.plan.shares]
        share, file = (as_numpy(self.place[name]) for name in (SHARE, FILE))
        pieces, piece_of = np.unique((share << 32) | file, return_inverse=True)
        is_of_input = [names[piece >> 32][piece & 0xFFFFFFFF] == name for piece in pieces.tolist()]
        return np.array(is_of_input, np.bool_)[piece_of]

    def by_file(self, rows: Ints) -> Iterator[tuple[str, str, slice]]:
        share, file = (as_numpy(self.place[name])[rows] for name in (SHARE, FILE))
        begins = np.flatnonzero(np.diff((share << 32) | file, prepend=-1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
            piece = self.task.plan.shares[share[begin]][file[begin]]
            yield piece.input, piece.file.path, slice(begin, end)

    def origins(self, rows: Ints) -> dict[str, pa.Array]:
        work = self.task.work
        share, file, position = (as_numpy(self.place[name])[rows] for name in PLACE)
        inputs = {input_.name: input_ for input_ in work.pipeline.inputs}
        names, paths, raw = [], [], []
        for share_number, number in sorted(set(zip(share.tolist(), file.tolist(), strict=True))):
            piece = self.task.plan.shares[share_number][number]
            is_of_piece = (share == share_number) & (file == number)
            read = read_one(work.pipeline, work.landing, inputs[piece.input], piece).records
            assert read is not None
            positions = position[is_of_piece]
            signs = None if c.SIGN not in self.columns else as_numpy(self.columns[c.SIGN])[rows][is_of_piece]
            raw.append(read.raw(rows_at(read, positions, signs)))
            names.append(pa.repeat(arrow_scalar(piece.input), len(positions)))
            paths.append(pa.repeat(arrow_scalar(piece.file.path), len(positions)))
        return {
            "input": _concat_arrays(names, pa.string()),
            "file": _concat_arrays(paths, pa.string()),
            "position": pa.array(position),
            "raw": _concat_arrays(raw, pa.binary()),
        }


def _drop_columns(rows: pa.RecordBatch, begin: tuple[str, ...]) -> pa.RecordBatch:
    """``rows`` without the columns whose names begin so."""
    return rows.select([name for name in rows.schema.names if not name.startswith(begin)])


def in_arrival_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = [(name, "ascending") for name in (*PLACE, ITEM) if name in rows.schema.names]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _concat_arrays(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, kind), *arrays])
