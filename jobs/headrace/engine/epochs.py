"""Epochs of one pipeline inside one Spark application: restore, compute one after another, write what an epoch changed.

``compute`` is called from one thread, epoch by epoch; ``write`` may run beside it in another, since everything it
reads is immutable (the ABS paper's asynchronous snapshots come free).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ParamSpec, TypeVar

from pyspark.sql import functions as f

from headrace.engine import state as states
from headrace.engine.delta import Accounting, Fate
from headrace.engine.dues import Dues
from headrace.engine.errors import spark_errors
from headrace.engine.intake import Intake, Taken
from headrace.engine.layers import Added, Layer
from headrace.engine.operator import Operator, Stepped, due_after, entering, run_stages
from headrace.engine.plan import Plan
from headrace.engine.reader import read_files
from headrace.engine.requests import SparkRequests
from headrace.engine.session import in_background_pool
from headrace.engine.side_outputs import late_rows, rejected_panes, rejected_rows
from headrace.engine.types import DataFrame, SparkSession
from headrace.engine.views import newest_records
from headrace.engine.writer import write_files
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Pipeline
from headrace.sources.landing import ByInput, Landing, counted
from headrace.sources.progress import Progress
from headrace.state.tables import IDS, state_tables
from headrace.state.written import Written
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.files import Layer as StoredLayer
from headrace_snapshots.store import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Computed:
    """One epoch, computed and held in memory: what it found, where it has come, and the rows that ``write`` will
    store. ``stages`` has one entry for each stage of the pipeline; ``signals`` are those that it heard.
    """

    epoch: int
    files: ByInput
    taken: Taken
    remembered: Added
    stages: tuple[Stepped, ...]
    progress: Progress
    counts: Mapping[str, int]
    timings: Mapping[str, float] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()

    @property
    def accounting(self) -> Accounting:
        """That of the records of the source."""
        return self.stages[0].accounting


class EpochEngine:
    """The state of one pipeline in one Spark application. Raises typed errors (``headrace.engine.errors``)."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, store: ObjectStore, landing: Landing) -> None:
        self.spark, self.pipeline, self.store, self.landing = spark, pipeline, store, landing
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "1")
        self.operators = [Operator(stage, partitions) for stage in pipeline.stages]
        stores = {name: place.store.uri for name, place in landing.places.items()}
        self.intake = Intake(spark, pipeline, self.operators[0], stores)
        self.progress = Progress()
        self.epoch = -1

    executor = "spark"

    @cached_property
    def scan_requests(self) -> SparkRequests:
        """Requests that Spark itself makes."""
        return SparkRequests(self.spark, (self.store.uri, *self.landing.uris))

    def unseen_puts(self, written: Written) -> int:
        """Tasks put each file."""
        return written.files

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own, whose Spark jobs share the cores fairly with the epoch being computed."""
        return in_background_pool(self.spark, run)

    @property
    def plan(self) -> Plan:
        """That of the last stage, whose panes readers see."""
        return self.operators[-1].plan

    def restore(self, epoch: int, progress: Progress, tables: Mapping[str, Sequence[StoredLayer]]) -> None:
        """Go on from a snapshot: its epoch, its progress, the layers of its tables. State moves between partitions
        here, only here.
        """
        with spark_errors():
            self._restore(epoch, progress, tables)

    def _restore(self, epoch: int, progress: Progress, tables: Mapping[str, Sequence[StoredLayer]]) -> None:
        self.epoch, self.progress = epoch, progress
        inputs = [progress.watermark, *progress.output_watermarks]
        outputs = progress.output_watermarks or [MIN_INSTANT] * len(self.operators)
        names = state_tables(self.pipeline)
        for operator, name, watermark, output in zip(self.operators, names, inputs, outputs, strict=False):
            operator.layers = [self._load(operator, layer) for layer in tables.get(name, ())]
            operator.watermark, operator.published = watermark, output
            operator.processing_time = progress.processing_time
        known = [self._load_ids(layer) for layer in tables.get(IDS, ())]
        self.intake.restore(progress.inputs, known, progress.watermark)
        self.operators[0].percentiles = dict(self.intake.percentiles)

    def _load_ids(self, layer: StoredLayer) -> Layer:
        known = self.intake.duplicates
        assert known is not None
        rows = known.load(read_files(self.spark, self.store, layer.files, known.schema(self.pipeline.schema)))
        return Layer(rows, layer.rows, layer.first_epoch, layer.last_epoch, _expires(layer))

    def _load(self, operator: Operator, layer: StoredLayer) -> states.StateLayer:
        stored = read_files(self.spark, self.store, layer.files, operator.plan.state_schema)
        rows = states.load(operator.plan, stored, operator.partitions)
        dues = Dues.unknown(self.progress.due_event), Dues.unknown(self.progress.due_time)
        return states.StateLayer(rows, layer.rows, layer.first_epoch, layer.last_epoch, _expires(layer), *dues)

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
        epoch before. Two Spark jobs for each stage.
        """
        with spark_errors():
            return self._compute(files, processing_time, is_last, signals)

    def _compute(self, files: ByInput, processing_time: Instant, is_last: bool, signals: Sequence[Signal]) -> Computed:
        started = time.monotonic()
        epoch, old = self.epoch + 1, self.progress
        now = Instant(max(old.processing_time, processing_time))
        taken = self.intake.take(files, epoch, now)
        read = time.monotonic()
        clocks = self.intake.advance(files, taken, now)
        watermark = MAX_INSTANT if is_last else clocks.watermark
        stages = run_stages(
            self.operators,
            epoch,
            taken.bundle,
            processing_time=now,
            watermark=watermark,
            percentiles=clocks.percentiles,
            signals=signals,
            is_batch=is_last and epoch == 0,
        )
        due_event, due_time = due_after(self.operators)
        self.progress = Progress(
            inputs=dict(self.intake.progress),
            watermark=self.operators[0].watermark,
            processing_time=self.operators[0].processing_time,
            output_watermarks=tuple(operator.output_watermark for operator in self.operators),
            due_event=due_event,
            due_time=Instant(min(due_time, clocks.idle_deadline)),
            min_event_time=taken.bundle.accounting.min_accepted,
            max_event_time=taken.bundle.accounting.max_accepted,
            held_back_by=None if is_last else clocks.held_back_by,
            ahead=taken.ahead,
        )
        self.epoch = epoch
        remembered = self.intake.remember(epoch, taken, self.progress.watermark)
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

    def write(self, computed: Computed, prefix: str) -> Written:
        """Store what ``computed`` changed under ``prefix``; a Spark job per table that has rows."""
        with spark_errors():
            return self._write(computed, prefix)

    def _write(self, computed: Computed, prefix: str) -> Written:
        def table(rows: DataFrame | None, name: str) -> tuple[DataFile, ...]:
            return () if rows is None else write_files(rows, self.store.uri, prefix, name)

        first, last, records = computed.stages[0], computed.stages[-1], computed.taken.records
        panes = late = None
        if last.step is not None and last.has_panes:
            panes = last.step.panes()
        fates = computed.accounting.rows
        if records is not None and (computed.accounting.late or fates.get(Fate.FORGOTTEN)):
            plan = self.operators[0].plan
            late = late_rows(plan, records.whole(), first.clocks.watermark_before, computed.epoch)
        rejected = list(self._rejected_panes(computed))
        if records is not None and fates.get(Fate.REJECTED):
            rejected.append(rejected_rows(records.numbered(), computed.epoch))
        return Written(
            state=tuple(
                table(stage.state.rows, name)
                for name, stage in zip(state_tables(self.pipeline), computed.stages, strict=True)
            ),
            ids=table(computed.remembered.rows, IDS),
            panes=table(panes, "panes"),
            late=table(late, "late"),
            rejected=table(states.union(rejected) if rejected else None, "rejected"),
        )

    def _rejected_panes(self, computed: Computed) -> Iterator[DataFrame]:
        """Of each aggregation behind the first the panes above it whose key is NULL there."""
        for number, (above, stage) in enumerate(pairwise(computed.stages), start=1):
            plan = self.operators[number].plan
            panes = entering(plan, above) if stage.accounting.rows.get(Fate.REJECTED) else None
            if panes is not None:
                yield rejected_panes(plan, panes, number, computed.epoch)

    def fold_current(self, layers: Sequence[StoredLayer], prefix: str, bottom: bool) -> tuple[DataFile, ...]:
        """Merge layers of ``current``: of every (key, window) the newest record; retractions go when nothing is
        below.
        """
        files = [file for layer in layers for file in layer.files]
        with spark_errors():
            rows = newest_records(self.plan, read_files(self.spark, self.store, files, self.plan.pane_schema))
            if bottom:
                rows = rows.where(~f.col("is_retraction"))
            return write_files(rows, self.store.uri, prefix, "current")


def _expires(layer: StoredLayer) -> Instant:
    return NEVER if layer.expires is None else Instant(layer.expires)


def _counts(files: ByInput, stages: tuple[Stepped, ...]) -> dict[str, int]:
    """Rows by what became of them: records at the source, drops at any stage, panes of the last one."""
    fates = stages[0].accounting.rows
    found = [stage.summary.asDict() if stage.summary is not None else {} for stage in stages]
    panes = {f"panes_{name}": found[-1].get(name) or 0 for name in ("early", "on_time", "late")}
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
        "retractions": found[-1].get("retractions") or 0,
        "state_rows": sum((summary.get("stay") or 0) + (summary.get("tombstones") or 0) for summary in found),
    }
