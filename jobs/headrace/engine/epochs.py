"""Epochs of one pipeline inside one Spark application: restore, compute one after another, write what an epoch changed.

``compute`` is called from one thread, epoch by epoch; ``write`` may run beside it in another, since everything it
reads is immutable (the ABS paper's asynchronous snapshots come free).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Row
from pyspark.sql import functions as f

from headrace.engine import columns as c
from headrace.engine import state as states
from headrace.engine import step as steps
from headrace.engine.delta import Accounting, Fate, account, aggregate, assigned
from headrace.engine.errors import UnreadableFileError, spark_errors
from headrace.engine.firing import Clocks
from headrace.engine.plan import Plan
from headrace.engine.progress import Progress
from headrace.engine.source_planning import InputFile, advance
from headrace.engine.source_reading import Batch, open_batch, read_batch, rejected_rows
from headrace.engine.storage import spark_uri
from headrace.engine.types import DataFrame, SparkSession
from headrace.engine.views import newest_records, read_panes
from headrace.engine.writer import write_files
from headrace.errors import FixDataError
from headrace.model.time import NEVER, Instant
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.sources import OnUnreadable
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.layers import plan_merge
from headrace_snapshots.store import ObjectStore

_NOTHING = Accounting(rows={}, late=0, max_event_time=None, min_accepted=None, max_accepted=None)


class DeadLetterBudgetError(FixDataError):
    """More records of one epoch were rejected than the source allows."""

    code = "data.dead_letter_budget"


@dataclass(frozen=True)
class Computed:
    """One epoch, computed and held in memory: what it found, where it has come, and the rows that ``write`` will
    store.
    """

    epoch: int
    files: tuple[InputFile, ...]
    batch: Batch | None
    clocks: Clocks
    progress: Progress
    accounting: Accounting
    counts: Mapping[str, int]
    step: steps.Step | None
    state_rows: DataFrame | None
    replaces: int
    """How many of the newest state layers of the previous epoch the written layer takes the place of (a merge)."""
    state_epochs: tuple[int, int]
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Taken:
    """An epoch's input: the batch that could be read, its delta, its accounting, the splits after it."""

    batch: Batch | None
    delta: DataFrame | None
    accounting: Accounting
    splits: dict[str, Instant]


@dataclass(frozen=True)
class Written:
    """Files of one epoch by table; no files where there were no rows."""

    state: tuple[DataFile, ...]
    panes: tuple[DataFile, ...]
    late: tuple[DataFile, ...]
    rejected: tuple[DataFile, ...]


class EpochEngine:
    """The state of one pipeline in one Spark application. Raises typed errors (``headrace.engine.errors``)."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, store: ObjectStore, source: ObjectStore) -> None:
        self.spark, self.pipeline, self.store, self.source = spark, pipeline, store, source
        self.plan = Plan(pipeline)
        self.partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "1")
        self.layers: list[states.StateLayer] = []
        self.progress = Progress()
        self.epoch = -1

    def restore(self, epoch: int, progress: Progress, layers: Sequence[Layer]) -> None:
        """Go on from a snapshot: its epoch, its progress, its state files. State moves between partitions here, only
        here.
        """
        self.epoch, self.progress = epoch, progress
        self.layers = [self._load(layer) for layer in layers]

    def _load(self, layer: Layer) -> states.StateLayer:
        uris = [spark_uri(self.store.uri, file.path) for file in layer.files]
        rows = states.load(self.spark, self.plan, uris, self.partitions).localCheckpoint(eager=False)
        return states.StateLayer(
            rows, layer.rows, layer.first_epoch, layer.last_epoch, self.progress.due_event, self.progress.due_time
        )

    def has_due(self, processing_time: Instant) -> bool:
        """Whether some window may want an activation at ``processing_time`` without new input."""
        return states.next_due(self.layers)[1] <= processing_time

    def compute(self, files: Sequence[InputFile], processing_time: Instant, look_back: int) -> Computed:
        """The next epoch over ``files`` (none: a timer epoch) at ``processing_time`` (semantics 12.1). Two Spark
        jobs.
        """
        with spark_errors():
            return self._compute(tuple(files), processing_time, look_back)

    def _compute(self, files: tuple[InputFile, ...], processing_time: Instant, look_back: int) -> Computed:
        started = time.monotonic()
        epoch, old = self.epoch + 1, self.progress
        taken = self._take_in(files, old)
        accounting, splits = taken.accounting, taken.splits
        read = time.monotonic()
        clocks = Clocks(
            watermark_before=old.watermark,
            watermark_after=self.pipeline.event_time.watermark.watermark(old.watermark, list(splits.values())),
            previous_processing_time=old.processing_time,
            processing_time=Instant(max(old.processing_time, processing_time)),
        )
        step = steps.build(self.plan, epoch, self.layers, taken.delta, clocks)
        summary: Row | None = None
        if step is not None:
            step = replace(step, rows=step.rows.localCheckpoint(eager=False))
            summary = step.summary().collect()[0]
            if not summary["rows"]:
                step = None
        state_rows, replaces, span = self._add_layer(epoch, step, summary)
        self.layers = states.look_ahead(self.layers, clocks)
        due_event, due_time = states.next_due(self.layers)
        self.progress = Progress(
            offsets=advance(old.offsets, files, look_back),
            splits=splits,
            watermark=clocks.watermark_after,
            processing_time=clocks.processing_time,
            due_event=due_event,
            due_time=due_time,
            min_event_time=accounting.min_accepted,
            max_event_time=accounting.max_accepted,
        )
        self.epoch = epoch
        finished = time.monotonic()
        return Computed(
            epoch=epoch,
            files=files,
            batch=taken.batch,
            clocks=clocks,
            progress=self.progress,
            accounting=accounting,
            counts=_counts(files, accounting, summary),
            step=step,
            state_rows=state_rows,
            replaces=replaces,
            state_epochs=span,
            timings={"read_seconds": read - started, "fire_seconds": finished - read},
        )

    def _take_in(self, files: tuple[InputFile, ...], old: Progress) -> "_Taken":
        """The delta of ``files``, its accounting, and the splits' largest event times after it."""
        if not files:
            return _Taken(None, None, _NOTHING, dict(old.splits))
        batch = open_batch(self.spark, self.pipeline, files, self.source.uri)
        while True:
            try:
                with spark_errors():
                    return self._take_in_batch(batch, old)
            except UnreadableFileError as torn:
                if self.pipeline.source.on_unreadable is OnUnreadable.FAIL:
                    raise
                batch = batch.without(torn)

    def _take_in_batch(self, batch: Batch, old: Progress) -> "_Taken":
        judged = read_batch(self.spark, self.plan, batch)
        delta = aggregate(self.plan, assigned(self.plan, judged, old.watermark), self.partitions)
        delta = delta.localCheckpoint(eager=False)
        accounting = account(self.plan, delta)
        self._check_budget(batch, accounting.rows.get(Fate.REJECTED, 0))
        splits = dict(old.splits)
        for name, latest in self._split_maxima(judged, accounting).items():
            splits[name] = Instant(max(splits.get(name, latest), latest))
        return _Taken(batch, delta if accounting.rows.get(Fate.ACCEPTED) else None, accounting, splits)

    def _split_maxima(self, judged: DataFrame, accounting: Accounting) -> dict[str, Instant]:
        if self.pipeline.event_time.split is None:
            return {} if accounting.max_event_time is None else {"": accounting.max_event_time}
        accepted = judged.where(f.col("_reject").isNull())
        rows = accepted.groupBy("_split").agg(f.max("_event_time").alias("latest")).collect()
        return {row["_split"]: Instant(row["latest"]) for row in rows}

    def _check_budget(self, batch: Batch, rejected: int) -> None:
        budget = self.pipeline.source.max_rejected
        if budget is None or rejected <= budget:
            return
        sample = rejected_rows(self.spark, self.plan, batch, self.epoch + 1).limit(3).collect()
        shown = "; ".join(f"{row['file']} record {row['position']}: {row['reason']}" for row in sample)
        raise DeadLetterBudgetError(
            f"epoch {self.epoch + 1} rejects {rejected} records and max_rejected is {budget}: {shown}. "
            "Correct the files, or raise max_rejected of the source"
        )

    def _add_layer(
        self, epoch: int, step: steps.Step | None, summary: Row | None
    ) -> tuple[DataFrame | None, int, tuple[int, int]]:
        """Put the epoch's rows on top of the layers, merging layers of similar size; what is to be stored for it."""
        if step is None or summary is None:
            return None, 0, (epoch, epoch)
        count = summary["rows"] + summary["tombstones"]
        due_event, due_time = Instant(summary["due_event"]), Instant(summary["due_time"])
        layers = [*self.layers, states.StateLayer(step.state(), count, epoch, epoch, due_event, due_time)]
        start = plan_merge([layer.count for layer in layers])
        if start is None:
            self.layers = layers
            return step.state(), 0, (epoch, epoch)
        rows = states.merge(self.plan, layers[start:], drop_deleted=start == 0).localCheckpoint(eager=False)
        found = rows.agg(
            f.count(f.lit(1)).alias("rows"), f.min(c.DUE_EVENT).alias("due_event"), f.min(c.DUE_TIME).alias("due_time")
        ).collect()[0]
        merged = states.StateLayer(
            rows,
            found["rows"],
            layers[start].first_epoch,
            epoch,
            Instant(found["due_event"] if found["due_event"] is not None else NEVER),
            Instant(found["due_time"] if found["due_time"] is not None else NEVER),
        )
        self.layers = [*layers[:start], merged] if found["rows"] else layers[:start]
        return rows, len(layers) - 1 - start, (merged.first_epoch, epoch)

    def write(self, computed: Computed, prefix: str) -> Written:
        """Store what ``computed`` changed under ``prefix``; a Spark job per table that has rows."""
        with spark_errors():
            return self._write(computed, prefix)

    def _write(self, computed: Computed, prefix: str) -> Written:
        def table(rows: DataFrame | None, name: str) -> tuple[DataFile, ...]:
            return () if rows is None else write_files(rows, self.store.uri, prefix, name)

        step, batch = computed.step, computed.batch
        panes = late = rejected = None
        if step is not None and any(computed.counts[name] for name in ("panes", "retractions")):
            panes = step.panes()
        if batch is not None and computed.accounting.late:
            late = self._late_rows(batch, computed)
        if batch is not None and computed.accounting.rows.get(Fate.REJECTED):
            rejected = rejected_rows(self.spark, self.plan, batch, computed.epoch)
        return Written(
            state=table(computed.state_rows, "state"),
            panes=table(panes, "panes"),
            late=table(late, "late"),
            rejected=table(rejected, "rejected"),
        )

    def _late_rows(self, batch: Batch, computed: Computed) -> DataFrame:
        """Dropped (record, window) pairs: keys, event time, window, the raw record, its file and the reason."""
        judged = read_batch(self.spark, self.plan, batch)
        rows = assigned(self.plan, judged, computed.clocks.watermark_before)
        rows = rows.where(f.col("_fate") == int(Fate.LATE))
        return rows.select(
            *self.plan.keys,
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


def _counts(files: tuple[InputFile, ...], accounting: Accounting, summary: Row | None) -> dict[str, int]:
    fates = accounting.rows
    found = summary.asDict() if summary is not None else {}
    panes = {f"panes_{name}": found.get(name) or 0 for name in ("early", "on_time", "late")}
    return {
        "input_files": len(files),
        "input_bytes": sum(file.size for file in files),
        "records": sum(fates.values()),
        "accepted": fates.get(Fate.ACCEPTED, 0),
        "rejected": fates.get(Fate.REJECTED, 0),
        "filtered": fates.get(Fate.FILTERED, 0),
        "in_no_window": fates.get(Fate.NOWHERE, 0),
        "late_dropped": accounting.late,
        "closed_dropped": found.get("dropped_closed") or 0,
        "panes": sum(panes.values()),
        **panes,
        "retractions": found.get("retractions") or 0,
        "state_rows": found.get("rows") or 0,
    }
