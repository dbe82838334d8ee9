"""Epochs of one pipeline in this process, without a JVM: restore, compute one after another, store what changed.

``compute`` is called from one thread, epoch by epoch; ``write`` may run beside it in another, since everything it
reads is immutable. It merges layers too: until they are one, epochs look into all of them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.clocks import Moved, inputs_behind, moved, source_clocks, stage_clocks
from headrace.distribute.epoch import Attempts, Computed
from headrace.distribute.intake import Heard, Said, check, said
from headrace.distribute.limits import columns_fit
from headrace.distribute.local.operator import NOTHING, Operator, Stepped, run_stages
from headrace.distribute.records import FileRecords, in_arrival_order, read_records
from headrace.distribute.side_outputs import dead_panes, late_rows, rejected_rows
from headrace.distribute.views import newest_records
from headrace.errors import FixConfigError
from headrace.kernel.delta import AggregatedBundle, Fate, aggregate
from headrace.kernel.elements import judge
from headrace.kernel.step import elements_in_order
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Pipeline
from headrace.program import columns as c
from headrace.sources.clock import SourceClock
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import InputProgress, Progress, later_of
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
class LocalComputed(Computed):
    """An epoch whose rows are held in memory, for ``write`` to store them."""

    taken: Taken = field(kw_only=True)
    remembered: LayerChange = field(kw_only=True)
    stepped: tuple[Stepped, ...] = field(kw_only=True)


class LocalEngine:
    """The state of one pipeline in this process."""

    def __init__(self, pipeline: Pipeline, store: ObjectStore, landing: Landing, attempts: Attempts) -> None:
        _refuse_spark_code(pipeline)
        self.pipeline, self.store, self.landing, self.attempts = pipeline, store, landing, attempts
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
        self.inputs = {**self.inputs, **progress.inputs}
        compiled = [operator.compiled for operator in self.operators]
        clocks = stage_clocks(progress, compiled, self._clocks())
        for name, operator, own in zip(state_tables(self.pipeline), self.operators, clocks, strict=True):
            opened = self._opened(operator.compiled.state_schema, tables.get(name, ()))
            operator.restore(Layers(operator.compiled, opened), own)
        if self.ids is not None:
            known = self._opened(self.ids.schema, tables.get(IDS, ()))
            self.ids = replace(self.ids, layers=known, watermark=progress.watermark)

    def _opened(self, schema: pa.Schema, stored: Sequence[StoredLayer]) -> tuple[StateLayer, ...]:
        return tuple(open_rows(self.cache, self.store, schema, layer) for layer in stored)

    executor = "local"

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
    ) -> LocalComputed:
        """The next epoch over ``files`` (none: a timer epoch) at ``processing_time`` (semantics 12.1); if it
        ``is_last``, the watermark goes to +inf behind it, and a first epoch is a batch. ``signals`` came since the
        epoch before. Raises LargeEpochError for more than Arrow's columns hold.
        """
        with columns_fit():
            return self._compute(files, processing_time, is_last, signals)

    def _compute(
        self, files: ByInput, processing_time: Instant, is_last: bool, signals: Sequence[Signal]
    ) -> LocalComputed:
        started = time.monotonic()
        self._let_go_of_what_is_stored()
        epoch = self.epoch + 1
        now = Instant(max(self.progress.processing_time, processing_time))
        taken = self._take(files, epoch, now)
        read = time.monotonic()
        wanted = self.operators[0].compiled.trigger.percentiles
        clocks = moved(self._clocks(), taken.said, now, wanted, is_last=is_last)
        stepped = run_stages(
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
        return LocalComputed(
            attempt=self.attempts(epoch),
            epoch=epoch,
            files=files,
            stages=tuple(each.outcome for each in stepped),
            progress=self.progress,
            taken=taken,
            remembered=remembered,
            stepped=stepped,
            timings={"read_seconds": read - started, "fire_seconds": finished - read},
            signals=tuple(signals),
        )

    def _clocks(self) -> dict[str, SourceClock]:
        return source_clocks(self.pipeline, self.inputs)

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
        heard = Heard(self._clocks(), now, frozenset(compiled.trigger.percentiles), self.progress.newest)
        found = said(pipeline, records, heard)
        check(pipeline, epoch, found)
        behind = first.output_watermark if compiled.stamps_elements else MIN_INSTANT
        return Taken(records, found, aggregate(compiled, records.columns, first.watermark, behind))

    def _come_to(self, files: ByInput, taken: Taken, clocks: Moved) -> Progress:
        self.inputs = inputs_behind(self.pipeline, self.inputs, files, clocks)
        first, accounting = self.operators[0], taken.bundle.accounting
        at = first.clocks.processing_time
        dues = [operator.layers.next_due(operator.watermark, at) for operator in self.operators]
        return Progress(
            inputs=self.inputs,
            watermark=first.watermark,
            processing_time=at,
            output_watermarks=tuple(operator.output_watermark for operator in self.operators),
            due_event=Instant(min(event for event, _ in dues)),
            due_time=Instant(min(clocks.together.idle_deadline, *(due for _, due in dues))),
            min_event_time=accounting.min_accepted,
            max_event_time=accounting.max_accepted,
            held_back_by=None if clocks.is_last else clocks.together.held_back_by,
            ahead=taken.said.ahead,
            newest=later_of(self.progress.newest, taken.said.newest),
            behind=taken.said.behind,
        )

    def write(self, computed: LocalComputed, tables: Mapping[str, Sequence[StoredLayer]]) -> Written:
        """Store what ``computed`` changed: a put for each table that has rows. ``tables`` are those before it."""

        def put(rows: pa.RecordBatch | None, name: str) -> tuple[DataFile, ...]:
            return put_rows(self.store, f"{computed.attempt.prefix}/{name}-00000-0", rows)

        def layer(change: LayerChange, name: str) -> tuple[DataFile, ...]:
            files, top = put_layer(self.store, self.cache, f"{computed.attempt.prefix}/{name}-00000-0", change)
            if top is not None:
                self._stored.put((name, top))
            return files

        last, records = computed.stepped[-1], computed.taken.records
        late = None
        rejected = []
        if records is not None:
            late = late_rows(self.operators[0].compiled, records, computed.taken.bundle.late, computed.epoch)
            rejected.append(rejected_rows(records, computed.epoch))
        rejected += [self._rejected_panes(computed, number) for number in range(1, len(computed.stepped))]
        dead = [rows for rows in rejected if rows is not None]
        changes: dict[str, LayerChange] = dict(
            zip(state_tables(self.pipeline), (stage.state for stage in computed.stepped), strict=True)
        )
        if self.ids is not None:
            changes[IDS] = computed.remembered
        return Written(
            tables={
                name: _after(tables.get(name, ()), change, layer(change, name)) for name, change in changes.items()
            },
            panes=put(last.result.panes() if last.result else None, "panes"),
            late=put(late, "late"),
            rejected=put(pa.concat_batches(dead) if dead else None, "rejected"),
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

    def _rejected_panes(self, computed: LocalComputed, number: int) -> pa.RecordBatch | None:
        """Of the aggregation ``number`` the panes above it whose key is NULL there."""
        above = computed.stepped[number - 1].result
        if above is None or not computed.stages[number].accounting.rows.get(Fate.REJECTED):
            return None
        compiled, panes = self.operators[number].compiled, elements_in_order([above])
        return dead_panes(compiled, number, panes, judge(compiled, panes), computed.epoch)

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


def _refuse_spark_code(pipeline: Pipeline) -> None:
    for function in pipeline.spark_functions:
        raise LocalTransformError(
            f"pipeline {pipeline.name} sends rows through {function.name}, which is Spark code: "
            "run it with --executor spark"
        )


def _after(layers: Sequence[StoredLayer], change: LayerChange, files: tuple[DataFile, ...]) -> tuple[StoredLayer, ...]:
    """The layers of a table behind an epoch that did ``change`` to it and stored ``files``."""
    kept = tuple(layers[change.expired : len(layers) - change.replaces])
    if not change.adds:
        return kept
    expires = None if change.expires == NEVER else int(change.expires)
    return (*kept, StoredLayer(files, sum(file.rows for file in files), *change.epochs, expires))
