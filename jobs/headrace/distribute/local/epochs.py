"""Epochs of one pipeline in this process, without a JVM: restore, compute one after another, store what changed.

``compute`` is called from one thread, epoch by epoch; ``write`` may run beside it in another, since everything it
reads is immutable. It merges layers too: until they are one, epochs look into all of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.clocks import Moved, StageClocks, moved
from headrace.distribute.intake import Said, check, said
from headrace.distribute.limits import columns_fit
from headrace.distribute.local.operator import NOTHING, Operator, Stepped, run_stages
from headrace.distribute.records import FileRecords, in_arrival_order, read_records
from headrace.distribute.side_outputs import late_rows, rejected_panes, rejected_rows
from headrace.errors import FixConfigError
from headrace.kernel.delta import Accounting, AggregatedBundle, Fate, aggregate
from headrace.kernel.elements import judge
from headrace.kernel.groups import valid
from headrace.kernel.keys import grouped, hashes
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import elements_in_order
from headrace.kernel.types import TIMESTAMP
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Pipeline
from headrace.program import columns as c
from headrace.sources.as_json import as_json
from headrace.sources.clock import SourceClock
from headrace.sources.landing import ByInput, Landing, counted
from headrace.sources.planning import advance
from headrace.sources.progress import InputProgress, Progress
from headrace.state.cache import default_cache
from headrace.state.files import put_rows, read_rows
from headrace.state.ids import RememberedIds
from headrace.state.layering import LayerChange, StateLayer
from headrace.state.layers import Layers
from headrace.state.stored import open_rows
from headrace.state.storing import put_layer
from headrace.state.tables import IDS, state_tables
from headrace.state.written import Written
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.files import Layer as StoredLayer
from headrace_snapshots.store import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


class NoRequests:
    """Nothing goes past the store port."""

    def snapshot(self) -> dict[str, int]:
        """No kind at all."""
        return {}

    def since(self, previous: Mapping[str, int]) -> dict[str, int]:
        """No kind at all."""
        del previous
        return {}


class LocalTransformError(FixConfigError):
    """A pipeline names Spark code of its own, which needs Spark."""

    code = "config.needs_spark"


@dataclass(frozen=True)
class Taken:
    """The input of an epoch: its records, what they say, and they as a bundle of the first aggregation."""

    records: FileRecords | None = None
    said: Said = field(default_factory=Said)
    bundle: AggregatedBundle = NOTHING


@dataclass(frozen=True)
class Computed:
    """One epoch, computed and held in memory: what it found, where it has come, and the rows that ``write`` will
    store. ``stages`` has one entry for each stage of the pipeline; ``signals`` are those that it heard.
    """

    epoch: int
    files: ByInput
    taken: Taken
    remembered: LayerChange
    stages: tuple[Stepped, ...]
    progress: Progress
    counts: Mapping[str, int]
    timings: Mapping[str, float] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()

    @property
    def accounting(self) -> Accounting:
        """That of the records of the source."""
        return self.stages[0].accounting


class LocalEngine:
    """The state of one pipeline in this process."""

    def __init__(self, pipeline: Pipeline, store: ObjectStore, landing: Landing) -> None:
        _refuse_spark_code(pipeline)
        self.pipeline, self.store, self.landing = pipeline, store, landing
        self.operators = [Operator(stage) for stage in pipeline.stages]
        self.inputs = {each.name: InputProgress() for each in pipeline.inputs}
        self.ids = None
        if pipeline.deduplicate is not None:
            self.ids = RememberedIds(pipeline.deduplicate, pipeline.schema)
        self.progress = Progress()
        self.epoch = -1
        self.cache = default_cache()
        self._stored: SimpleQueue[tuple[str, StateLayer]] = SimpleQueue()

    def restore(self, epoch: int, progress: Progress, tables: Mapping[str, Sequence[StoredLayer]]) -> None:
        """Go on from a snapshot: its epoch, its progress, the layers of its tables."""
        self.epoch, self.progress = epoch, progress
        inputs = [progress.watermark, *progress.output_watermarks]
        outputs = progress.output_watermarks or [MIN_INSTANT] * len(self.operators)
        names = state_tables(self.pipeline)
        for name, operator, watermark, output in zip(names, self.operators, inputs, outputs, strict=False):
            opened = self._opened(operator.compiled.state_schema, tables.get(name, ()))
            operator.restore(
                Layers(operator.compiled, opened), StageClocks(watermark, progress.processing_time, output)
            )
        self.inputs |= progress.inputs
        if self.ids is not None:
            known = self._opened(self.ids.schema, tables.get(IDS, ()))
            self.ids = replace(self.ids, layers=known, watermark=progress.watermark)
        first, clocks = self.operators[0], [self._clock(name) for name in self.inputs]
        wanted = first.compiled.trigger.percentiles
        percentiles = {q: min(clock.percentile(q) for clock in clocks) for q in wanted}
        first.clocks = replace(first.clocks, percentiles=percentiles)

    def _opened(self, schema: pa.Schema, stored: Sequence[StoredLayer]) -> tuple[StateLayer, ...]:
        return tuple(open_rows(self.cache, self.store, schema, layer) for layer in stored)

    executor = "local"
    scan_requests = NoRequests()

    def unseen_puts(self, written: Written) -> int:
        """All of them are made through this process's store."""
        del written
        return 0

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` itself."""
        return run

    def has_due(self, processing_time: Instant) -> bool:
        """Whether some window may want an activation at ``processing_time`` without new input."""
        return self.progress.due_time <= processing_time

    def compute(
        self,
        files: ByInput,
        processing_time: Instant,
        *,
        is_last: bool = False,
        signals: Sequence[Signal] = (),
    ) -> Computed:
        """The next epoch over ``files`` (none: a timer epoch) at ``processing_time`` (semantics 12.1); if it
        ``is_last``, the watermark goes to +inf behind it, and a first epoch is a batch. ``signals`` came since the
        epoch before. Raises LargeEpochError for more than Arrow's columns hold.
        """
        with columns_fit():
            return self._compute(files, processing_time, is_last, signals)

    def _compute(self, files: ByInput, processing_time: Instant, is_last: bool, signals: Sequence[Signal]) -> Computed:
        started = time.monotonic()
        self._let_go_of_what_is_stored()
        epoch = self.epoch + 1
        now = Instant(max(self.progress.processing_time, processing_time))
        taken = self._take(files, epoch, now)
        read = time.monotonic()
        wanted = self.operators[0].compiled.trigger.percentiles
        clocks = moved(self._clocks(), taken.said, now, wanted, is_last=is_last)
        stages = run_stages(
            self.operators,
            epoch,
            taken.bundle,
            processing_time=now,
            watermark=clocks.watermark,
            percentiles=clocks.together.percentiles,
            signals=signals,
            is_batch=is_last and epoch == 0,
        )
        self.progress = self._come_to(files, taken, clocks)
        self.epoch = epoch
        remembered = LayerChange()
        if self.ids is not None:
            seen = None if taken.records is None else taken.records.columns
            self.ids, remembered = self.ids.after(epoch, seen, self.progress.watermark)
        finished = time.monotonic()
        return Computed(
            epoch=epoch,
            files=files,
            taken=taken,
            remembered=remembered,
            stages=stages,
            progress=self.progress,
            counts=_counts(files, stages),
            timings={"read_seconds": read - started, "fire_seconds": finished - read},
            signals=tuple(signals),
        )

    def _clock(self, name: str) -> SourceClock:
        event_time = next(each.event_time for each in self.pipeline.inputs if each.name == name)
        return SourceClock.of(event_time, self.inputs[name])

    def _clocks(self) -> dict[str, SourceClock]:
        return {name: self._clock(name) for name in self.inputs}

    def _take(self, files: ByInput, epoch: int, now: Instant) -> Taken:
        """The records of ``files``. Raises UnreadableFileError where a source says FAIL, DeadLetterBudgetError."""
        first, pipeline = self.operators[0], self.pipeline
        compiled = first.compiled
        records = read_records(pipeline, compiled, self.landing, in_arrival_order(pipeline, files), now)
        if records is None:
            return Taken()
        if self.ids is not None:
            columns = {**records.columns, c.SEEN: self.ids.seen(records.columns)}
            records = replace(records, columns=columns)
        found = said(pipeline, records, self._clocks(), now, compiled.trigger.percentiles)
        check(pipeline, epoch, found)
        behind = first.output_watermark if compiled.stamps_elements else MIN_INSTANT
        return Taken(records, found, aggregate(compiled, records.columns, first.watermark, behind))

    def _come_to(self, files: ByInput, taken: Taken, clocks: Moved) -> Progress:
        for each in self.pipeline.inputs:
            name, clock = each.name, clocks.inputs[each.name]
            offsets = advance(self.inputs[name].offsets, files.get(name, ()), each.source.look_back)
            self.inputs[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
        first, accounting = self.operators[0], taken.bundle.accounting
        at = first.clocks.processing_time
        dues = [operator.layers.next_due(operator.watermark, at) for operator in self.operators]
        return Progress(
            inputs=dict(self.inputs),
            watermark=first.watermark,
            processing_time=at,
            output_watermarks=tuple(operator.output_watermark for operator in self.operators),
            due_event=Instant(min(event for event, _ in dues)),
            due_time=Instant(min(clocks.together.idle_deadline, *(due for _, due in dues))),
            min_event_time=accounting.min_accepted,
            max_event_time=accounting.max_accepted,
            held_back_by=None if clocks.is_last else clocks.together.held_back_by,
            ahead=taken.said.ahead,
        )

    def write(self, computed: Computed, prefix: str) -> Written:
        """Store what ``computed`` changed under ``prefix``: a put for each table that has rows."""

        def table(rows: pa.RecordBatch | None, name: str) -> tuple[DataFile, ...]:
            return put_rows(self.store, f"{prefix}/{name}-00000-0", rows)

        def layer(change: LayerChange, name: str) -> tuple[DataFile, ...]:
            files, top = put_layer(self.store, self.cache, f"{prefix}/{name}-00000-0", change)
            if top is not None:
                self._stored.put((name, top))
            return files

        last, records = computed.stages[-1], computed.taken.records
        late = None
        rejected = []
        if records is not None:
            late = late_rows(self.operators[0].compiled, records, computed.taken.bundle.late, computed.epoch)
            rejected.append(rejected_rows(records, computed.epoch))
        rejected += [self._rejected_panes(computed, number) for number in range(1, len(computed.stages))]
        dead = [rows for rows in rejected if rows is not None]
        return Written(
            state=tuple(
                layer(stage.state, name)
                for name, stage in zip(state_tables(self.pipeline), computed.stages, strict=True)
            ),
            ids=layer(computed.remembered, IDS),
            panes=table(last.result.panes() if last.result else None, "panes"),
            late=table(late, "late"),
            rejected=table(pa.concat_batches(dead) if dead else None, "rejected"),
        )

    def _let_go_of_what_is_stored(self) -> None:
        """Go on with the stored form of layers that ``write`` has merged and put into the cache meanwhile."""
        names = state_tables(self.pipeline)
        while not self._stored.empty():
            name, layer = self._stored.get()
            if name == IDS and self.ids is not None:
                self.ids = self.ids.with_stored(layer)
            else:
                operator = self.operators[names.index(name)]
                operator.layers = operator.layers.with_stored(layer)

    def _rejected_panes(self, computed: Computed, number: int) -> pa.RecordBatch | None:
        """Of the aggregation ``number`` the panes above it whose key is NULL there."""
        above = computed.stages[number - 1].result
        if above is None or not computed.stages[number].accounting.rows.get(Fate.REJECTED):
            return None
        compiled, panes = self.operators[number].compiled, elements_in_order([above])
        reasons = judge(compiled, panes)[c.REJECT]
        dead = np.flatnonzero(valid(reasons))
        shown = {name: panes[name] for name in compiled.stage.schema}
        shown["pane_time"] = panes[c.EVENT_TIME].cast(TIMESTAMP)
        if compiled.stage.withdrawable:
            shown["is_retraction"] = pc.less(panes[c.SIGN], 0)
        return rejected_panes(number, reasons.take(pa.array(dead)), as_json(shown, dead), computed.epoch)

    def fold_current(self, layers: Sequence[StoredLayer], prefix: str, bottom: bool) -> tuple[DataFile, ...]:
        """Merge layers of ``current``: of every (key, window) the newest record; retractions go when nothing is
        below.
        """
        files = [file for layer in layers for file in layer.files]
        stage = self.operators[-1].compiled
        rows = newest_records(stage, read_rows(self.store, files, stage.pane_schema))
        if bottom:
            rows = rows.filter(pc.invert(rows.column("is_retraction")))
        return put_rows(self.store, f"{prefix}/current-00000-0", rows)


def newest_records(stage: CompiledStage, panes: pa.RecordBatch) -> pa.RecordBatch:
    """The newest record of each (key, window), retraction or not."""
    order = np.lexsort([panes.column(name).to_numpy() for name in ("sequence", "epoch")])
    rows = panes.take(pa.array(order))
    keys = [rows.column(name) for name in stage.keys]
    window = [
        rows.column(name).cast(pa.int64()).fill_null(int(MIN_INSTANT)).to_numpy()
        for name in ("window_start", "window_end")
    ]
    groups = grouped(hashes(keys), keys, *window)
    last = groups.offsets[1:] - 1
    return rows.take(pa.array(last if groups.order is None else groups.order[last]))


def _refuse_spark_code(pipeline: Pipeline) -> None:
    named = [each.source.transform for each in pipeline.inputs]
    named += [stage.aggregation.transform for stage in pipeline.stages]
    for function in named:
        if function is not None:
            raise LocalTransformError(
                f"pipeline {pipeline.name} sends rows through {function.name}, which is Spark code: "
                "run it with --executor spark"
            )


def _counts(files: ByInput, stages: tuple[Stepped, ...]) -> dict[str, int]:
    """Rows by what became of them: records at the source, drops at any stage, panes of the last one."""
    fates = stages[0].accounting.rows
    last = stages[-1].result
    panes = {f"panes_{name}": getattr(last.counts, name) if last else 0 for name in ("early", "on_time", "late")}
    return {
        "input_files": counted(files),
        "input_bytes": sum(file.size for some in files.values() for file in some),
        "records": sum(fates.values()),
        "accepted": fates.get(Fate.ACCEPTED, 0),
        "rejected": fates.get(Fate.REJECTED, 0),
        "filtered": fates.get(Fate.FILTERED, 0),
        "in_no_window": fates.get(Fate.NOWHERE, 0),
        "duplicates": fates.get(Fate.DUPLICATE, 0),
        "late_dropped": stages[0].late + fates.get(Fate.FORGOTTEN, 0),
        "late_panes_dropped": sum(stage.late for stage in stages[1:]),
        "rejected_panes": sum(stage.accounting.rows.get(Fate.REJECTED, 0) for stage in stages[1:]),
        "closed_dropped": sum(stage.closed for stage in stages),
        "retractions_dropped": sum(stage.dropped_retractions for stage in stages),
        "panes": sum(panes.values()),
        **panes,
        "retractions": last.counts.retractions if last else 0,
        "state_rows": sum(stage.result.changes.num_rows for stage in stages if stage.result),
    }
