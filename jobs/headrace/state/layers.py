"""The state of a stage as immutable layers: opened for a part of the keys, looked up, and grown by an epoch.

A remembered id is a row: the id with its hash, the event time of its record, and the epoch that it came in. Only the
first of an id counts (semantics 12.10); where records can withdraw others, the first of either sign (14.7). Rows are
kept in the order of their hashes. An id is forgotten once the watermark has passed its event time plus the horizon.
From then on it does not count, and is left out when its layer is merged.

An epoch of a part of a stage is a function: of its rows of state, its share of the delta and the clocks. The result
comes in slices of the keys where there is much to do. So memory does not grow with what an epoch touches, nor with how
many windows are due at once. Nothing is stored here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel import state as kernel_state
from headrace.kernel.columns import arrow_scalar, as_numpy
from headrace.kernel.delta import Disposition, takes_part
from headrace.kernel.keys import group_by_key, type_of_comparable
from headrace.kernel.keys import hash_keys as key_hashes
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult, step_stage
from headrace.model.event_time import Deduplicate
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.typing import kind_of
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.chunks import WHOLE, KeyGroupRange, in_order, in_part, some_rows
from headrace.state.file_cache import RowCache
from headrace.state.files import as_stored, decode_parquet
from headrace.state.sorted_file import SortedFile, StateLayer, by_deadlines, in_turn
from headrace.this_process import Size
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import IDS, OutputTables
from headrace_snapshots.store import ObjectStore, do_all

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoins

_SEEN_AT = "at"


@dataclass(frozen=True)
class RememberedIds:
    """The ids of one pipeline after an epoch, under the watermark that it left."""

    deduplicate: Deduplicate
    columns: Schema
    layers: tuple[StateLayer, ...] = ()
    watermark: Instant = MIN_INSTANT
    is_signed: bool = False

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, watermark: Instant = MIN_INSTANT) -> "RememberedIds":
        """The ids of ``pipeline``, which has some, without their layers."""
        assert pipeline.deduplicate is not None
        return cls(pipeline.deduplicate, pipeline.schema, (), watermark, is_signed=pipeline.withdraws_records)

    @property
    def schema(self) -> pa.Schema:
        kind = type_of_comparable(kind_of(self.deduplicate.id, self.columns) or DataType.STRING)
        sign = [(c.SIGN, pa.int64())] if self.is_signed else []
        return pa.schema([(c.HASH, pa.uint64()), (c.ID, kind), *sign, (_SEEN_AT, pa.int64()), (c.EPOCH, pa.int64())])

    @property
    def _identity(self) -> list[str]:
        """Columns that are the same for duplicates."""
        return [c.ID, c.SIGN] if self.is_signed else [c.ID]

    def find_duplicates(self, judged_rows: Mapping[str, pa.Array]) -> pa.Array:
        """What ids say of judged records, which stand in their order of arrival. DUPLICATE: the id is known, or another
        of its records came before in this epoch. FORGOTTEN: nobody can tell any more. NULL: the first of an id, and
        records that take no part.
        """
        counting = _has_id(judged_rows)
        event_times = as_numpy(judged_rows[c.EVENT_TIME].fill_null(0))
        is_forgotten = counting & self._is_beyond(event_times)
        counts = np.flatnonzero(counting & ~is_forgotten)
        is_repeated = np.zeros(len(event_times), np.bool_)
        own = [judged_rows[name].take(pa.array(counts)) for name in self._identity]
        # by the id alone, without the sign: both of a pair are in one part
        hashes = key_hashes(own[:1])
        unexpired_rows = self._unexpired_rows(kernel_state.distinct_hashes([hashes]))
        both = group_by_key(
            np.concatenate([as_numpy(unexpired_rows.column(c.HASH)), hashes]),
            [
                pa.concat_arrays([unexpired_rows.column(name), new])
                for name, new in zip(self._identity, own, strict=True)
            ],
        )
        first = both.first_rows[both.of_each]
        is_first = first == np.arange(len(first))
        is_repeated[counts] = ~is_first[unexpired_rows.num_rows :]
        fates = np.where(is_forgotten, int(Disposition.FORGOTTEN), int(Disposition.DUPLICATE)).astype(np.int8)
        return pa.array(fates, mask=~(is_forgotten | is_repeated))

    def _unexpired_rows(self, wanted_hashes: NDArray[np.uint64]) -> pa.RecordBatch:
        """The rows of some hashes that are not forgotten."""
        batches = _rows_of([run for layer in self.layers for run in layer.runs], wanted_hashes)
        rows = kernel_state.concat_rows(self.schema, [*batches])
        return rows.filter(pa.array(self.unexpired_mask(rows)))

    def unexpired_mask(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Which stored rows are not forgotten."""
        return ~self._is_beyond(as_numpy(rows.column(_SEEN_AT)))

    def _is_beyond(self, event_times: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_beyond_horizon: NDArray[np.bool_] = int(self.watermark) > event_times + int(self.deduplicate.horizon)
        return is_beyond_horizon

    def new_rows(self, judged_rows: Mapping[str, pa.Array], epoch: int) -> pa.RecordBatch:
        """The rows to remember of the records of ``epoch``, in the order of their hashes."""
        rows = pa.array(np.flatnonzero(_has_id(judged_rows) & as_numpy(judged_rows[c.ID_FATE].is_null())))
        ids = [judged_rows[name].take(rows) for name in self._identity]
        columns = [pa.array(key_hashes(ids[:1])), *ids, judged_rows[c.EVENT_TIME].take(rows)]
        columns.append(pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)))
        return in_order(pa.RecordBatch.from_arrays(columns, schema=self.schema), as_numpy(columns[0]))[0]

    def expiry_watermark(self, rows: pa.RecordBatch) -> Instant:
        """The watermark that must be exceeded for all of ``rows`` to be forgotten."""
        return Instant(pc.max(rows.column(_SEEN_AT)).as_py() + int(self.deduplicate.horizon))


def _has_id(judged_rows: Mapping[str, pa.Array]) -> NDArray[np.bool_]:
    """Which judged records take part and have an id: all but those of inputs that are joined."""
    has_id: NDArray[np.bool_] = takes_part(judged_rows) & as_numpy(judged_rows[c.ID].is_valid())
    return has_id


def open_rows(
    cache: RowCache, store: ObjectStore, schema: pa.Schema, layer: Layer, part: KeyGroupRange = WHOLE
) -> StateLayer:
    """The rows of ``layer``, which have a hash, whose keys are in ``part``: mapped, none copied. Files that have none
    are not looked at. Raises BrokenObjectError, for a file that is read and is not what was written.
    """
    runs = []
    for file in layer.files:
        if part.overlaps(file.groups):
            run = cache.load_file(store, file, schema)
            runs.append(run if part.contains(file.groups) else run.slice_keys(part))
    expires = NEVER if layer.expires is None else Instant(layer.expires)
    nonempty_runs = tuple(run for run in runs if run.rows.num_rows)
    return StateLayer(nonempty_runs, layer.first_epoch, layer.last_epoch, expires)


def some_of(
    store: ObjectStore, schema: pa.Schema, layers: Iterable[Layer], part: KeyGroupRange
) -> list[pa.RecordBatch]:
    """The rows of ``layers``, which have a hash, by file and in their order: of those whose keys are in ``part`` all,
    and few others. What is not needed for them is not read. Raises BrokenObjectError.
    """

    def load_rows(file: DataFile) -> pa.RecordBatch:
        rows = some_rows(store, file, in_part(part))
        return decode_parquet(read_verified(store, file), schema) if rows is None else as_stored(rows, schema)

    return do_all(store, load_rows, [file for layer in layers for file in layer.files if part.overlaps(file.groups)])


def compiled_joins(pipeline: Pipeline) -> "CompiledJoins | None":
    """The joins of ``pipeline``, which has one output; None if it has none."""
    if not pipeline.join:
        return None
    from headrace.kernel.joins.sides import compile_joins  # which few pipelines need

    return compile_joins(pipeline)


def state_schemas(pipeline: Pipeline) -> Mapping[str, pa.Schema]:
    """What a row is of each table that holds state."""
    schemas = {
        OutputTables(output).state_table(number): CompiledStage(stage).state_schema
        for output, output_pipeline in pipeline.by_output.items()
        for number, stage in enumerate(output_pipeline.stages)
    }
    for output, output_pipeline in pipeline.by_output.items():
        joins = compiled_joins(output_pipeline)
        for join in () if joins is None else joins.joins:
            names = OutputTables(output)
            schemas[names.join_left(join.number)] = join.left_schema
            schemas[names.join_right(join.number)] = join.right_schema
        if output_pipeline.loop is not None and output_pipeline.edges is not None:
            from headrace.kernel.loops import CompiledLoop  # which few pipelines need

            loop = CompiledLoop.from_loop(
                output_pipeline.loop, output_pipeline.edges, CompiledStage(output_pipeline.stages[0])
            )
            names = OutputTables(output)
            schemas |= {names.edges: loop.edge_schema, names.in_flight: loop.message_schema}
    if pipeline.deduplicate is not None:
        schemas[IDS] = RememberedIds.from_pipeline(pipeline).schema
    return schemas


FEW: Final = Size(64)
"""Rows of a run that are looked at for the earliest hold at first."""


@dataclass(frozen=True)
class Layers:
    """The layers of a stage, oldest first."""

    stage: CompiledStage
    layers: tuple[StateLayer, ...] = ()

    @property
    def runs(self) -> list[SortedFile]:
        """Sorted files of all layers: of several rows of one (key, window), that of the last file counts."""
        return [run for layer in self.layers for run in layer.runs]

    def affected_rows(
        self, touched_hashes: kernel_state.Hashes, clocks: FiringClocks, signals: Sequence[Signal] = ()
    ) -> pa.RecordBatch:
        """The newest rows of keys that an epoch may change something of. They are those of ``touched_hashes``, those
        with a due activation, and open windows that hear one of ``signals``. Rows that say that a window is gone are
        left out.
        """
        relevant_signals = self._relevant_signals(signals)
        if not self.runs:
            return kernel_state.remaining_rows(self.stage, ())
        due_runs = [run for run in by_deadlines(self.runs) if run.most_due(clocks)]
        wanted_hashes = [touched_hashes, *(run.due_hashes(clocks) for run in in_turn(due_runs))]
        if relevant_signals:
            wanted_hashes += [
                kernel_state.hashes_of(run.rows, kernel_state.rows_with_signal(self.stage, run.rows, relevant_signals))
                for run in in_turn(self.runs)
            ]
        hashes = kernel_state.distinct_hashes(wanted_hashes)
        return kernel_state.remaining_rows(self.stage, _rows_of(self.runs, hashes))

    def most_found(self, clocks: FiringClocks, signals: Sequence[Signal] = ()) -> int:
        """An upper bound of how many rows ``affected_rows`` would find besides those of keys that are touched."""
        if self._relevant_signals(signals):
            return sum(layer.row_count for layer in self.layers)
        return sum(run.most_due(clocks) for run in by_deadlines(self.runs))

    def _relevant_signals(self, signals: Sequence[Signal]) -> list[Signal]:
        return [signal for signal in signals if signal.name in self.stage.trigger.signals]

    def slice_keys(self, part: KeyGroupRange) -> "Layers":
        """The rows of a part of the keys."""
        cut = (
            tuple(run.slice_keys(part) for run in in_turn(run for run in layer.runs if run.overlaps(part)))
            for layer in self.layers
        )
        nonempty_runs = (tuple(run for run in runs if run.rows.num_rows) for runs in cut)
        return replace(
            self,
            layers=tuple(replace(layer, runs=runs) for layer, runs in zip(self.layers, nonempty_runs, strict=True)),
        )

    def next_due(self, watermark: Instant, now: Instant) -> tuple[Instant, Instant]:
        """Lower bounds of the next watermark and processing time at which a window wants an activation."""
        steps = [
            (run.deadlines.event.next_from(watermark), run.deadlines.time.next_from(now + 1))
            for run in by_deadlines(self.runs)
        ]
        return min((event for event, _ in steps), default=NEVER), min((time for _, time in steps), default=NEVER)

    def earliest_hold(self, watermark: Instant) -> Instant:
        """The earliest hold of an open window, or ``watermark`` if none is earlier (semantics 7.1)."""
        looked_at = [c.HASH, *self.stage.identity, c.STATUS, c.HOLD]
        for bound, hashes in _by_hold(self.runs, watermark):
            rows = kernel_state.newest_rows(self.stage, [*_rows_of(self.runs, hashes, looked_at)])
            holds = pc.min(
                rows.column(c.HOLD).filter(pc.equal(rows.column(c.STATUS), arrow_scalar(c.STATUS_OPEN)))
            ).as_py()
            if holds is not None and holds <= bound:
                return Instant(holds)
        return watermark

    def changes_to_keep(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of ``changes`` that belong on top: where nothing is to be hidden, none of windows that are gone."""
        return changes if self.layers else kernel_state.present_rows(changes)

    def with_layer(self, runs: Sequence[SortedFile], epoch: int) -> "Layers":
        """With a layer on top of ``runs``, what ``epoch`` changed and is ``changes_to_keep``."""
        nonempty_runs = tuple(run for run in runs if run.rows.num_rows)
        if not nonempty_runs:
            return self
        ends = [_latest_end(run.rows) for run in in_turn(nonempty_runs)]
        expires = self.stage.expiry_watermark(max((Instant(end) for end in ends if end is not None), default=None))
        return replace(self, layers=(*self.layers, StateLayer(nonempty_runs, epoch, epoch, expires)))


def _rows_of(
    runs: Iterable[SortedFile], wanted_hashes: kernel_state.Hashes, names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of each of ``runs`` whose hash is one of ``wanted_hashes``, which ascend: of the columns ``names``, or
    all. Files that cannot have any are not looked at.
    """
    return (run.rows_of(wanted_hashes, names) for run in in_turn(run for run in runs if run.may_have(wanted_hashes)))


def _latest_end(rows: pa.RecordBatch) -> int | None:
    """The latest end of a window that is there."""
    is_there = pc.not_equal(rows.column(c.STATUS), arrow_scalar(c.STATUS_GONE))
    latest: int | None = pc.max(rows.column(c.WINDOW_END).filter(is_there)).as_py()
    return latest


def _by_hold(runs: Sequence[SortedFile], watermark: Instant) -> Iterator[tuple[int, kernel_state.Hashes]]:
    """The hashes of rows whose hold is before ``watermark``, the earliest first. A few come first, among which are all
    whose hold is before a bound. Newer rows may supersede all of them, so ever more follow, up to the next bound.
    """
    indexes, few = [run.deadlines.hold for run in runs], FEW.value
    last = [int(np.searchsorted(run.deadlines.hold.times, watermark)) for run in by_deadlines(runs)]
    begins = [0] * len(runs)
    while begins != last:
        ends = [min(begin + few, end) for begin, end in zip(begins, last, strict=True)]
        cut_off = [int(index.times[a - 1]) for index, a, b in zip(indexes, ends, last, strict=True) if a < b]
        bound = min(cut_off, default=int(watermark) - 1)
        ends = [
            min(end, int(np.searchsorted(index.times, bound, "right")))
            for index, end in zip(indexes, ends, strict=True)
        ]
        places = zip(in_turn(runs), indexes, begins, ends, strict=True)
        yield bound, kernel_state.distinct_hashes([run.hashes[index.rows_at(a, b)] for run, index, a, b in places])
        begins, few = ends, few * 8


SLICE_ROWS: Final = Size(2**16)
"""About how many rows an epoch computes at a time: each takes 600 bytes meanwhile."""


@dataclass(frozen=True)
class StageEpoch:
    """An epoch, by its ``number``, of the part of a stage that has these ``keys``. ``layers`` are the state before it;
    ``deltas`` are the delta in batches, each in the order of its hashes. ``is_batch``: the epoch is all that there is.
    """

    number: int
    layers: Layers
    deltas: Sequence[pa.RecordBatch]
    clocks: FiringClocks
    keys: KeyGroupRange = WHOLE
    output_watermark: Instant = MIN_INSTANT
    signals: Sequence[Signal] = ()
    is_batch: bool = False

    @property
    def stage(self) -> CompiledStage:
        return self.layers.stage

    def compute_results(self) -> Iterator[StageResult]:
        """Compute it, a slice of the keys at a time, in the order of their hashes; slices in which there is nothing to
        look at give no result. One that is let go takes no memory while the next one is computed.
        """
        for layers, delta in self._key_slices():
            touched_hashes = np.zeros(0, np.uint64) if delta is None else as_numpy(delta.column(c.HASH))
            result = step_stage(
                self.stage,
                layers.affected_rows(touched_hashes, self.clocks, self.signals),
                delta,
                self.clocks,
                self.number,
                output_watermark=self.output_watermark,
                signals=self.signals,
                is_batch=self.is_batch,
            )
            if result is not None:
                yield result
            # a name for it would keep it in memory while the next slice is computed
            del result

    def _key_slices(self) -> Iterator[tuple[Layers, pa.RecordBatch | None]]:
        """The layers and the delta of each slice."""
        rows = sum(delta.num_rows for delta in self.deltas) + self.layers.most_found(self.clocks, self.signals)
        slices = self.keys.split_evenly(-(-rows // SLICE_ROWS.value)) if rows > SLICE_ROWS.value else ()
        if not slices:
            yield self.layers, one_below_the_other(self.deltas)
        for keys in slices:
            spans = [keys.row_slice(as_numpy(delta.column(c.HASH))) for delta in self.deltas]
            cut = [
                delta.slice(span.start, span.stop - span.start) for delta, span in zip(self.deltas, spans, strict=True)
            ]
            yield self.layers.slice_keys(keys), one_below_the_other([rows for rows in cut if rows.num_rows])


def one_below_the_other(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """``batches`` as one; None if there are none."""
    if len(batches) < 2:
        return batches[0] if batches else None
    return pa.concat_batches(batches)
