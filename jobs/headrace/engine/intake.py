"""The way from files of all inputs into the first aggregation: records judged, duplicates known, clocks moved on
(semantics 12.9 to 12.11).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import functions as f

from headrace.engine.delta import Fate
from headrace.engine.duplicates import Duplicates
from headrace.engine.errors import spark_errors
from headrace.engine.expressions import named
from headrace.engine.layers import Added, Layer
from headrace.engine.operator import EMPTY, Operator, TakenIn
from headrace.engine.source_clock import Facts, SourceClock
from headrace.engine.source_reading import Batch, numbered_records, open_batch, read_batches
from headrace.engine.source_records import POSITION, RAW
from headrace.engine.types import DataFrame, SparkSession
from headrace.model.time import Instant
from headrace.model.watermarks import SplitFacts
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.sources import OnUnreadable
from headrace.program import columns as c
from headrace.sources.budgets import DeadLetterBudgetError
from headrace.sources.clock import Clocks, slowest_of
from headrace.sources.errors import UnreadableFileError
from headrace.sources.landing import ByInput
from headrace.sources.planning import advance
from headrace.sources.progress import Ahead, InputProgress

_READERS = 4


@dataclass(frozen=True)
class Records:
    """The judged records of an epoch. They can be asked for again and give the same; nothing is read before that."""

    spark: SparkSession
    pipeline: Pipeline
    operator: Operator
    batches: tuple[Batch, ...]
    duplicates: Duplicates | None

    @cached_property
    def _read(self) -> DataFrame:
        rows = read_batches(self.spark, self.pipeline, self.operator.plan, self.batches)
        # what comes out otherwise every time is kept as it came out the first time
        return rows if self.is_repeatable else rows.localCheckpoint(eager=False)

    @property
    def is_repeatable(self) -> bool:
        """Whether reading the files again gives the same records."""
        transforms = [batch.input.source.transform for batch in self.batches]
        return all(transform is None or transform.deterministic for transform in transforms)

    @cached_property
    def taking_part(self) -> DataFrame:
        """The records without their text and their file, duplicates told from others; held where it is needed twice."""
        if self.duplicates is None:
            return self._read
        rows = self.duplicates.by_id(self._read.drop(RAW, c.FILE))
        return self.duplicates.judged(rows.localCheckpoint(eager=False))

    def whole(self) -> DataFrame:
        """The records with their text and their file, duplicates told from others."""
        if self.duplicates is None:
            return self._read
        return self.duplicates.judged(self.duplicates.by_id(self._read))

    def numbered(self) -> DataFrame:
        """The records with their positions; these are NULL if reading the files again would give others."""
        if not self.is_repeatable:
            return self._read.withColumn(POSITION, f.lit(None).cast("long"))
        return numbered_records(self.spark, self.pipeline, self.operator.plan, self.batches)


@dataclass(frozen=True)
class Taken:
    """The files of an epoch as a bundle of the first aggregation, and what they say of splits, by input. ``ahead``: of
    inputs with records that were too far ahead of processing time to say anything.
    """

    bundle: TakenIn = EMPTY
    records: Records | None = None
    facts: Mapping[str, Mapping[str, SplitFacts]] = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()


class Intake:
    """All inputs of a pipeline in a Spark application: their clocks and offsets, and the ids that are remembered.

    ``stores`` are the URIs of the stores by input.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, operator: Operator, stores: Mapping[str, str]) -> None:
        self.spark, self.pipeline, self.operator, self.stores = spark, pipeline, operator, stores
        self.progress = {each.name: InputProgress() for each in pipeline.inputs}
        self.duplicates = None
        if pipeline.deduplicate is not None:
            self.duplicates = Duplicates(pipeline.deduplicate, operator.partitions)

    def restore(self, progress: Mapping[str, InputProgress], ids: Sequence[Layer], watermark: Instant) -> None:
        """Go on from a snapshot. An input that it does not know begins."""
        self.progress |= progress
        if self.pipeline.deduplicate is not None:
            self.duplicates = Duplicates(self.pipeline.deduplicate, self.operator.partitions, tuple(ids), watermark)

    def take(self, files: ByInput, epoch: int, processing_time: Instant) -> Taken:
        """The records of ``files`` as far as they can be read. Raises DeadLetterBudgetError."""
        batches = [
            open_batch(
                self.spark,
                self.pipeline,
                each,
                files[each.name],
                self.stores[each.name],
                processing_time=processing_time,
            )
            for each in self.pipeline.inputs
            if files.get(each.name)
        ]
        batches = [batch for batch in batches if batch.groups or batch.unreadable]  # the others have no rows
        if not batches:
            return Taken()
        while True:
            try:
                with spark_errors():
                    return self._take(tuple(batches), epoch)
            except UnreadableFileError as torn:
                batches = _without(batches, torn)
                for other in self._torn(batches):
                    batches = _without(batches, other)

    def _torn(self, batches: Sequence[Batch]) -> list[UnreadableFileError]:
        """Every file of ``batches`` that is torn inside. Each is read by itself, so that many cost what one does."""

        def read(batch: Batch) -> UnreadableFileError | None:
            rows = read_batches(self.spark, self.pipeline, self.operator.plan, [batch]).drop(RAW, c.FILE)
            try:
                with spark_errors():
                    rows.agg(f.max(f.xxhash64(*map(named, rows.columns)))).collect()
            except UnreadableFileError as error:
                return error
            return None

        with ThreadPoolExecutor(_READERS) as pool:
            found = pool.map(read, [alone for batch in batches for alone in batch.alone()])
            return [error for error in found if error is not None]

    def _take(self, batches: tuple[Batch, ...], epoch: int) -> Taken:
        records = Records(self.spark, self.pipeline, self.operator, batches, self.duplicates)
        bundle = self.operator.take_in(records.taking_part)
        self._check_budgets(records, bundle.accounting.rows.get(Fate.REJECTED, 0), epoch)
        facts = {batch.input.name: self._facts(batch, records, bundle) for batch in batches}
        ahead = [self._ahead(batch, records, facts[batch.input.name].ahead) for batch in batches]
        splits = {name: found.splits for name, found in facts.items()}
        return Taken(bundle, records, splits, tuple(found for found in ahead if found is not None))

    def _facts(self, batch: Batch, records: Records, bundle: TakenIn) -> Facts:
        name, now = batch.input.name, batch.processing_time
        clock, latest = self._clock(name), bundle.accounting.max_event_time
        if len(self.pipeline.inputs) > 1:
            return clock.facts(records.taking_part.where(f.col(c.INPUT) == name), now, self._percentiles)
        if clock.follows_event_times(self._percentiles):  # which the accounting knows already
            if latest is None:
                return Facts()
            if latest <= batch.input.event_time.latest(now):
                return Facts({"": SplitFacts(latest)})
        return clock.facts(records.taking_part, now, self._percentiles)

    def _ahead(self, batch: Batch, records: Records, count: int) -> Ahead | None:
        """Names the first of ``count`` records that are ahead: one more scan, where there are any."""
        if not count:
            return None
        name, is_ahead = batch.input.name, self._clock(batch.input.name).is_ahead(batch.processing_time)
        rows = records.numbered().where((f.col(c.INPUT) == name) & f.col(c.REJECT).isNull() & is_ahead)
        first = rows.agg(f.min(f.struct(c.FILE, POSITION, c.MARK)).alias("first")).collect()[0]["first"]
        return Ahead(name, count, first[c.FILE], first[POSITION], Instant(first[c.MARK]))

    def _check_budgets(self, records: Records, rejected: int, epoch: int) -> None:
        budgets = {b.input.name: b.input.source.max_rejected for b in records.batches}
        strictest = min((budget for budget in budgets.values() if budget is not None), default=rejected)
        if rejected <= strictest:
            return
        dead = records.numbered().where(f.col(c.REJECT).isNotNull())
        found = {row[c.INPUT]: row["count"] for row in dead.groupBy(c.INPUT).count().collect()}
        for name, budget in budgets.items():
            if budget is not None and found.get(name, 0) > budget:
                sample = dead.where(f.col(c.INPUT) == name).limit(3).collect()
                shown = "; ".join(f"{row[c.FILE]} record {row[POSITION]}: {row[c.REJECT]}" for row in sample)
                raise DeadLetterBudgetError(
                    f"epoch {epoch} rejects {found[name]} records of input {name} and max_rejected is {budget}: "
                    f"{shown}. Correct the files, or raise max_rejected of the source"
                )

    @property
    def _percentiles(self) -> frozenset[float]:
        return self.operator.plan.trigger.percentiles

    @property
    def percentiles(self) -> dict[float, Instant]:
        """Percentile watermarks, each the least of all inputs."""
        clocks = [self._clock(name) for name in self.progress]
        return {q: min(clock.percentile(q) for clock in clocks) for q in self._percentiles}

    def _clock(self, name: str) -> SourceClock:
        event_time = next(each.event_time for each in self.pipeline.inputs if each.name == name)
        return SourceClock.of(event_time, self.progress[name])

    def advance(self, files: ByInput, taken: Taken, processing_time: Instant) -> Clocks:
        """Move offsets and clocks on behind an epoch."""
        clocks: dict[str, SourceClock] = {}
        for each in self.pipeline.inputs:
            name = each.name
            clock = clocks[name] = self._clock(name).after(
                taken.facts.get(name, {}), processing_time, self._percentiles
            )
            offsets = advance(self.progress[name].offsets, files.get(name, ()), each.source.look_back)
            self.progress[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
        return slowest_of(clocks, processing_time, self._percentiles)

    def remember(self, epoch: int, taken: Taken, watermark: Instant) -> Added:
        """Remember the ids of an epoch that came to ``watermark``; what that means for those stored."""
        if self.duplicates is None:
            return Added()
        seen = None if taken.records is None else taken.records.taking_part
        self.duplicates, remembered = self.duplicates.after(epoch, seen, watermark)
        return remembered


def _without(batches: Sequence[Batch], torn: UnreadableFileError) -> list[Batch]:
    """``batches`` with the file of ``torn`` as a dead letter; raises it if that may not be, or was so already."""
    rest: list[Batch] = []
    for batch in batches:
        less = batch.without(torn)
        if less is not None and batch.input.source.on_unreadable is OnUnreadable.FAIL:
            raise torn
        rest.append(less or batch)
    if rest == list(batches):
        raise torn
    return rest
