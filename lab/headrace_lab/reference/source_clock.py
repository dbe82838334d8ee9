"""How far a source has come: what each epoch says of its splits, and the watermarks that follow (12.11, 12.14, 9.2)."""

from collections import Counter
from collections.abc import Iterable

from headrace.model.changelog import TOMBSTONE_AT
from headrace.model.event_time import (
    LAG_BUCKETS,
    BoundedOutOfOrderness,
    EventTime,
    Punctuated,
    Split,
    SplitFacts,
    SplitStrategy,
    update_splits,
)
from headrace.model.expressions.data_types import Schema
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace_lab.reference.evaluate import Record, evaluate, evaluate_of


def lag_bucket(strategy: BoundedOutOfOrderness, lag: int) -> int:
    """The bucket of a record that is ``lag`` behind its split's mark (negative: ahead of it)."""
    if lag <= 0:
        return 0
    return LAG_BUCKETS if lag >= strategy.bound else lag * LAG_BUCKETS // strategy.bound


class SourceClock:
    """The watermark and percentile watermarks of a source, epoch by epoch; ``percentiles`` are the wanted ones."""

    def __init__(self, event_time: EventTime, schema: Schema, percentiles: Iterable[float] = ()) -> None:
        self._event_time = event_time
        self.schema = schema
        self.watermark = MIN_INSTANT
        self.percentiles = dict.fromkeys(percentiles, MIN_INSTANT)
        self.splits: dict[str, Split] = {}
        self._marks: dict[str, list[Instant]] = {}
        self._lags: dict[str, Counter[int]] = {}
        self.is_idle = False

    def percentile(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` % of the input, never below the watermark."""
        return max(self.watermark, self.percentiles[q])

    def check(self, record: Record) -> None:
        """Raise OverflowsInRecordError if something of ``record`` that clocks look at leaves its type."""
        event_time = self._event_time
        read = {"event time": event_time.expr, "split": event_time.split}
        if isinstance(event_time.watermark, Punctuated) and event_time.expr is not None:
            read = {"asserted watermark": event_time.watermark.asserted, **read}
        for what, expr in read.items():
            if expr is not None:
                evaluate_of(what, expr, record, self.schema)

    def timestamp(self, record: Record, processing_time: Instant) -> Instant | None:
        """The event time of ``record``, read at ``processing_time``; None if it has none."""
        expr = self._event_time.expr
        if expr is not None and (deleted_at := record.get(TOMBSTONE_AT)) is not None:
            return Instant(deleted_at)
        return processing_time if expr is None else evaluate(expr, record, self.schema)

    def is_control(self, record: Record) -> bool:
        """Whether ``record`` only asserts a watermark: it has no event time (9.4b)."""
        strategy, expr = self._event_time.watermark, self._event_time.expr
        if expr is None or not isinstance(strategy, Punctuated):
            return False
        asserted_value = evaluate(strategy.asserted, record, self.schema)
        return asserted_value is not None and evaluate(expr, record, self.schema) is None

    def observe(self, record: Record, processing_time: Instant) -> bool:
        """A record that is accepted, or a control record. False if it lies too far ahead to say anything (12.14)."""
        strategy, expr, split = self._event_time.watermark, self._event_time.expr, self._event_time.split
        if expr is None or not isinstance(strategy, SplitStrategy):
            return True
        name = "" if split is None else evaluate(split, record, self.schema) or ""
        mark = evaluate(strategy.mark(expr), record, self.schema)
        if strategy.mark(expr) is expr:
            mark = self.timestamp(record, processing_time)
        if mark is not None and mark > self._event_time.latest_watermark(processing_time):
            return False
        marks = self._marks.setdefault(name, [])
        if mark is not None:
            marks.append(mark)
        mark_before = self.splits[name].mark if name in self.splits else None
        if mark_before is not None and isinstance(strategy, BoundedOutOfOrderness):
            self._lags.setdefault(name, Counter())[lag_bucket(strategy, mark_before - mark)] += 1
        return True

    def advance(self, processing_time: Instant, is_last: bool) -> None:
        """The end of an epoch; the last one takes the watermarks to +inf."""
        facts = {
            name: SplitFacts(max(marks, default=None), self._lags.get(name, {})) for name, marks in self._marks.items()
        }
        self.splits = update_splits(self.splits, facts, processing_time)
        self._marks, self._lags = {}, {}
        strategy = self._event_time.watermark
        new_watermark = strategy.watermark_after(self.splits, processing_time, self.watermark)
        new_watermark = max(self.watermark, min(new_watermark, self._event_time.latest_watermark(processing_time)))
        self.watermark = MAX_INSTANT if is_last else new_watermark
        self.is_idle = strategy.is_idle(self.splits, processing_time) and not is_last
        if isinstance(strategy, BoundedOutOfOrderness):
            for q, old in self.percentiles.items():
                self.percentiles[q] = strategy.percentile_after(q, self.splits, processing_time, old)
