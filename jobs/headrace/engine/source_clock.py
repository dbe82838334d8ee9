"""Facts about splits from an epoch's records (semantics 9.2, 12.11, 12.14)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import functions as f

from headrace.engine.expressions import by_reference
from headrace.engine.types import DataFrame, SparkColumn
from headrace.model.time import Instant
from headrace.model.watermarks import LAG_BUCKETS, BoundedOutOfOrderness, SplitFacts, SplitStrategy
from headrace.program import columns as c
from headrace.sources import clock
from headrace.sources.judging import mark_of

_BUCKET, _AHEAD = "_bucket", "_ahead"


@dataclass(frozen=True)
class Facts:
    """What records of an epoch say of splits, and how many were too far ahead of processing time to say anything."""

    splits: Mapping[str, SplitFacts] = field(default_factory=dict)
    ahead: int = 0


@dataclass(frozen=True)
class SourceClock(clock.SourceClock):
    """Splits and watermarks of one input after an epoch, and what frames of records say of them."""

    def follows_event_times(self, wanted: Iterable[float]) -> bool:
        """Whether the largest event time is all that it wants to know of records."""
        strategy = self.event_time.watermark
        one = self.event_time.split is None and mark_of(self.event_time) is None
        return isinstance(strategy, SplitStrategy) and one and not self._counts_lags(wanted)

    def _counts_lags(self, wanted: Iterable[float]) -> bool:
        return isinstance(self.event_time.watermark, BoundedOutOfOrderness) and bool(list(wanted))

    def facts(self, judged: DataFrame, processing_time: Instant, wanted: Iterable[float]) -> "Facts":
        """What ``judged`` records of the input say of splits. Scans them once more."""
        strategy = self.event_time.watermark
        if not isinstance(strategy, SplitStrategy):
            return Facts()
        accepted = judged.where(f.col(c.REJECT).isNull())
        bucket = f.lit(None).cast("int")
        if isinstance(strategy, BoundedOutOfOrderness) and self._counts_lags(wanted) and self.splits:
            before = f.create_map(
                *[f.lit(v) for name, s in self.splits.items() if s.mark is not None for v in (name, int(s.mark))]
            )
            lag = f.try_element_at(before, f.col(c.SPLIT)) - f.col(c.MARK)
            beyond = f.when(lag >= int(strategy.bound), LAG_BUCKETS)
            # whole numbers: the quotient of floats is off by a bucket where bounds are years long
            inside = f.call_function("div", lag * f.lit(LAG_BUCKETS), f.lit(max(int(strategy.bound), 1))).cast("int")
            bucket = f.when(lag <= 0, 0).otherwise(f.coalesce(beyond, inside))
        ahead = self.is_ahead(processing_time)
        rows = (
            accepted.select(c.SPLIT, c.MARK, bucket.alias(_BUCKET), ahead.alias(_AHEAD))
            .groupBy(c.SPLIT, _BUCKET, _AHEAD)
            .agg(f.max(c.MARK).alias("mark"), f.count(f.lit(1)).alias("records"))
            .collect()
        )
        found: dict[str, SplitFacts] = {}
        for row in rows:
            if row[_AHEAD]:
                continue
            old = found.get(row[c.SPLIT], SplitFacts(None))
            seen = [m for m in (old.mark, row["mark"]) if m is not None]
            counts = dict(old.lags)
            if row[_BUCKET] is not None:
                counts[row[_BUCKET]] = counts.get(row[_BUCKET], 0) + row["records"]
            found[row[c.SPLIT]] = SplitFacts(Instant(max(seen)) if seen else None, counts)
        return Facts(found, sum(row["records"] for row in rows if row[_AHEAD]))

    def is_ahead(self, processing_time: Instant) -> SparkColumn:
        """Whether a judged record lies too far ahead to say anything to the watermark (12.14)."""
        latest = by_reference(self.event_time.latest(processing_time), c.MARK)
        return f.coalesce(f.col(c.MARK) > latest, f.lit(False))
