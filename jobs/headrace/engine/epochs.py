"""Epochs of one pipeline inside one Spark application: restore, compute one after another, write what an epoch changed.

``compute`` is called from one thread, epoch by epoch; ``write`` may run beside it in another, since everything it
reads is immutable (the ABS paper's asynchronous snapshots come free).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import functions as f

from headrace.engine import columns as c
from headrace.engine import state as states
from headrace.engine.delta import Accounting, Fate, assigned
from headrace.engine.dues import Dues
from headrace.engine.errors import UnreadableFileError, spark_errors
from headrace.engine.operator import EMPTY, Operator, Stepped, TakenIn, due_after, run_stages
from headrace.engine.plan import Plan
from headrace.engine.progress import Progress
from headrace.engine.source_clock import SourceClock
from headrace.engine.source_planning import InputFile, advance
from headrace.engine.source_reading import Batch, open_batch, read_batch, rejected_rows
from headrace.engine.storage import spark_uri
from headrace.engine.types import DataFrame, SparkSession
from headrace.engine.views import newest_records, read_panes
from headrace.engine.writer import write_files
from headrace.errors import FixDataError, PipelineError
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.model.watermarks import SplitFacts
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.sources import OnUnreadable
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.store import ObjectStore


def state_tables(pipeline: Pipeline) -> list[str]:
    """The names of the tables that hold the state of each stage."""
    return [f"state_{i}" if i else "state" for i in range(len(pipeline.stages))]


class DeadLetterBudgetError(FixDataError):
    """More records of one epoch were rejected than the source allows."""

    code = "data.dead_letter_budget"


@dataclass(frozen=True)
class Computed:
    """One epoch, computed and held in memory: what it found, where it has come, and the rows that ``write`` will
    store. ``stages`` has one entry for each stage of the pipeline; ``signals`` are those that it heard.
    """

    epoch: int
    files: tuple[InputFile, ...]
    batch: Batch | None
    stages: tuple[Stepped, ...]
    progress: Progress
    counts: Mapping[str, int]
    timings: Mapping[str, float] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()

    @property
    def accounting(self) -> Accounting:
        """That of the records of the source."""
        return self.stages[0].accounting


@dataclass(frozen=True)
class Written:
    """Files of one epoch by table; no files where there were no rows. ``state`` has one entry for each stage."""

    state: tuple[tuple[DataFile, ...], ...]
    panes: tuple[DataFile, ...]
    late: tuple[DataFile, ...]
    rejected: tuple[DataFile, ...]


class EpochEngine:
    """The state of one pipeline in one Spark application. Raises typed errors (``headrace.engine.errors``)."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, store: ObjectStore, source: ObjectStore) -> None:
        if pipeline.also or pipeline.deduplicate is not None:
            what = "deduplicate" if pipeline.deduplicate is not None else "also"
            raise PipelineError(f"pipeline {pipeline.name}: the Spark engine does not run {what}= yet; leave it out")
        self.spark, self.pipeline, self.store, self.source = spark, pipeline, store, source
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "1")
        self.operators = [Operator(stage, partitions) for stage in pipeline.stages]
        self.progress = Progress()
        self.epoch = -1

    @property
    def plan(self) -> Plan:
        """That of the last stage, whose panes readers see."""
        return self.operators[-1].plan

    def restore(self, epoch: int, progress: Progress, state: Sequence[Sequence[Layer]]) -> None:
        """Go on from a snapshot: its epoch, its progress, the layers of each stage. State moves between partitions
        here, only here.
        """
        self.epoch, self.progress = epoch, progress
        inputs = [progress.watermark, *progress.output_watermarks]
        outputs = progress.output_watermarks or [MIN_INSTANT] * len(self.operators)
        for operator, layers, watermark, output in zip(self.operators, state, inputs, outputs, strict=False):
            operator.layers = [self._load(operator, layer) for layer in layers]
            operator.watermark, operator.published = watermark, output
            operator.processing_time = progress.processing_time
        self.operators[0].percentiles = dict(progress.percentiles)

    def _load(self, operator: Operator, layer: Layer) -> states.StateLayer:
        uris = [spark_uri(self.store.uri, file.path) for file in layer.files]
        rows = states.load(self.spark, operator.plan, uris, operator.partitions).localCheckpoint(eager=False)
        dues = Dues.unknown(self.progress.due_event), Dues.unknown(self.progress.due_time)
        return states.StateLayer(rows, layer.rows, layer.first_epoch, layer.last_epoch, *dues)

    def has_due(self, processing_time: Instant) -> bool:
        """Whether some window may want an activation at ``processing_time`` without new input."""
        return self.progress.due_time <= processing_time

    def compute(
        self,
        files: Sequence[InputFile],
        processing_time: Instant,
        look_back: int,
        *,
        is_last: bool = False,
        signals: Sequence[Signal] = (),
    ) -> Computed:
        """The next epoch over ``files`` (none: a timer epoch) at ``processing_time`` (semantics 12.1); if it
        ``is_last``, the watermark goes to +inf behind it. ``signals`` came since the epoch before. Two Spark jobs for
        each stage.
        """
        with spark_errors():
            return self._compute(tuple(files), processing_time, look_back, is_last, signals)

    def _compute(
        self,
        files: tuple[InputFile, ...],
        processing_time: Instant,
        look_back: int,
        is_last: bool,
        signals: Sequence[Signal],
    ) -> Computed:
        started = time.monotonic()
        epoch, old = self.epoch + 1, self.progress
        clock = Instant(max(old.processing_time, processing_time))
        batch, taken, facts = self._take_in(files, clock)
        read = time.monotonic()
        wanted = self.operators[0].plan.trigger.percentiles
        source = self._source_clock(old).after(facts, clock, wanted)
        stages = run_stages(
            self.operators,
            epoch,
            taken,
            processing_time=clock,
            watermark=MAX_INSTANT if is_last else source.watermark,
            percentiles=source.percentiles,
            signals=signals,
        )
        due_event, due_time = due_after(self.operators)
        self.progress = Progress(
            offsets=advance(old.offsets, files, look_back),
            splits=source.splits,
            percentiles=source.percentiles,
            watermark=self.operators[0].watermark,
            processing_time=self.operators[0].processing_time,
            output_watermarks=tuple(operator.output_watermark for operator in self.operators),
            due_event=due_event,
            due_time=Instant(min(due_time, source.idle_deadline(clock))),
            min_event_time=taken.accounting.min_accepted,
            max_event_time=taken.accounting.max_accepted,
        )
        self.epoch = epoch
        finished = time.monotonic()
        return Computed(
            epoch=epoch,
            files=files,
            batch=batch,
            stages=stages,
            progress=self.progress,
            counts=_counts(files, stages),
            timings={"read_seconds": read - started, "fire_seconds": finished - read},
            signals=tuple(signals),
        )

    def _source_clock(self, progress: Progress) -> SourceClock:
        return SourceClock(self.pipeline.event_time, progress.splits, progress.watermark, progress.percentiles)

    def _take_in(
        self, files: tuple[InputFile, ...], processing_time: Instant
    ) -> tuple[Batch | None, TakenIn, dict[str, SplitFacts]]:
        """The batch of ``files`` as far as it could be read, its bundle, and what it says of splits."""
        if not files:
            return None, EMPTY, {}
        batch = open_batch(self.spark, self.pipeline, files, self.source.uri, processing_time)
        while True:
            try:
                with spark_errors():
                    return (batch, *self._take_in_batch(batch))
            except UnreadableFileError as torn:
                if self.pipeline.source.on_unreadable is OnUnreadable.FAIL:
                    raise
                batch = batch.without(torn)

    def _take_in_batch(self, batch: Batch) -> tuple[TakenIn, dict[str, SplitFacts]]:
        first = self.operators[0]
        judged = read_batch(self.spark, self.pipeline, first.plan, batch)
        taken = first.take_in(judged)
        self._check_budget(batch, taken.accounting.rows.get(Fate.REJECTED, 0))
        clock = self._source_clock(self.progress)
        return taken, clock.facts(judged, taken.accounting.max_event_time, first.plan.trigger.percentiles)

    def _check_budget(self, batch: Batch, rejected: int) -> None:
        budget = self.pipeline.source.max_rejected
        if budget is None or rejected <= budget:
            return
        sample = self._rejected(batch, self.epoch + 1).limit(3).collect()
        shown = "; ".join(f"{row['file']} record {row['position']}: {row['reason']}" for row in sample)
        raise DeadLetterBudgetError(
            f"epoch {self.epoch + 1} rejects {rejected} records and max_rejected is {budget}: {shown}. "
            "Correct the files, or raise max_rejected of the source"
        )

    def _rejected(self, batch: Batch, epoch: int) -> DataFrame:
        return rejected_rows(self.spark, self.pipeline, self.operators[0].plan, batch, epoch)

    def write(self, computed: Computed, prefix: str) -> Written:
        """Store what ``computed`` changed under ``prefix``; a Spark job per table that has rows."""
        with spark_errors():
            return self._write(computed, prefix)

    def _write(self, computed: Computed, prefix: str) -> Written:
        def table(rows: DataFrame | None, name: str) -> tuple[DataFile, ...]:
            return () if rows is None else write_files(rows, self.store.uri, prefix, name)

        last, batch = computed.stages[-1], computed.batch
        panes = late = rejected = None
        if last.step is not None and last.has_panes:
            panes = last.step.panes()
        if batch is not None and computed.accounting.late:
            late = self._late_rows(batch, computed)
        if batch is not None and computed.accounting.rows.get(Fate.REJECTED):
            rejected = self._rejected(batch, computed.epoch)
        return Written(
            state=tuple(
                table(stage.state_rows, name)
                for name, stage in zip(state_tables(self.pipeline), computed.stages, strict=True)
            ),
            panes=table(panes, "panes"),
            late=table(late, "late"),
            rejected=table(rejected, "rejected"),
        )

    def _late_rows(self, batch: Batch, computed: Computed) -> DataFrame:
        """Dropped (record, window) pairs: keys, event time, window, the raw record, its file and the reason."""
        plan = self.operators[0].plan
        judged = read_batch(self.spark, self.pipeline, plan, batch)
        rows = assigned(plan, judged, computed.stages[0].clocks.watermark_before)
        rows = rows.where(f.col("_fate") == int(Fate.LATE))
        return rows.select(
            *plan.keys,
            f.timestamp_micros("_event_time").alias("event_time"),
            f.timestamp_micros(c.WINDOW_START).alias("window_start"),
            f.timestamp_micros(c.WINDOW_END).alias("window_end"),
            f.lit("window expired").alias("reason"),
            f.col("_file").alias("file"),
            f.col("_raw").alias("raw"),
            f.lit(computed.epoch).cast("long").alias("epoch"),
        )

    def fold_current(self, layers: Sequence[Layer], prefix: str, bottom: bool) -> tuple[DataFile, ...]:
        """Merge layers of ``current``: of every (key, window) the newest record; retractions go when nothing is
        below.
        """
        files = [file for layer in layers for file in layer.files]
        with spark_errors():
            rows = newest_records(self.plan, read_panes(self.spark, self.plan, self.store.uri, files))
            if bottom:
                rows = rows.where(~f.col("is_retraction"))
            return write_files(rows, self.store.uri, prefix, "current")


def _counts(files: tuple[InputFile, ...], stages: tuple[Stepped, ...]) -> dict[str, int]:
    """Rows by what became of them: records at the source, drops at any stage, panes of the last one."""
    fates = stages[0].accounting.rows
    found = [stage.summary.asDict() if stage.summary is not None else {} for stage in stages]
    panes = {f"panes_{name}": found[-1].get(name) or 0 for name in ("early", "on_time", "late")}
    return {
        "input_files": len(files),
        "input_bytes": sum(file.size for file in files),
        "records": sum(fates.values()),
        "accepted": fates.get(Fate.ACCEPTED, 0),
        "rejected": fates.get(Fate.REJECTED, 0),
        "filtered": fates.get(Fate.FILTERED, 0),
        "in_no_window": fates.get(Fate.NOWHERE, 0),
        "late_dropped": stages[0].late,
        "late_panes_dropped": sum(stage.late for stage in stages[1:]),
        "rejected_panes": sum(stage.accounting.rows.get(Fate.REJECTED, 0) for stage in stages[1:]),
        "closed_dropped": sum(stage.closed for stage in stages),
        "retractions_dropped": sum(stage.dropped_retractions for stage in stages),
        "panes": sum(panes.values()),
        **panes,
        "retractions": found[-1].get("retractions") or 0,
        "state_rows": sum(summary.get("rows") or 0 for summary in found),
    }
