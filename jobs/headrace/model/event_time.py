"""Event time of records, how far it has come by their watermark, and which of them are duplicates.

A watermark strategy is a pure function of facts about *splits* (semantics 1.2, 9.2, 9.4, 12.11 and 12.14). An engine
computes ``SplitFacts`` of an epoch with one aggregate over its accepted records, adds them up with ``update_splits``,
and asks ``watermark_after``::

    splits = update_splits(splits, {"JFK": SplitFacts(mark=..., lags=...)}, processing_time)
    watermark = strategy.watermark_after(splits, processing_time, previous=watermark)

A fact about a split is its *mark*: the maximum of ``strategy.mark(event_time)`` over its records. Watermarks never go
back.

Duplicates go no further than the first record of an id (semantics 12.10).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.model.arguments import REQUIRED, Arguments, Length, Suggesting, check_keywords, register_word
from headrace.model.expressions.columns import Read, column_or_expression
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, Literal
from headrace.model.time import LONGEST_WINDOW, MAX_INSTANT, MIN_INSTANT, NEVER, UNITS, Duration, Instant

LAG_BUCKETS = 100
"""The histogram of lags has a bucket for each of so many parts of the bound, and one for lags beyond it."""


@dataclass(frozen=True)
class SplitFacts:
    """What one epoch tells of a split: its mark (None if no record had one), and how many records had which lag."""

    mark: Instant | None
    lags: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """What is known of a split. ``mark`` is its largest mark, ``heard`` the processing time at which it was last heard.
    The mark last rose at ``since``. ``lags`` says how many records had a lag in which bucket.
    """

    mark: Instant | None
    heard: Instant
    since: Instant
    lags: Mapping[int, int] = field(default_factory=dict)


def update_splits(
    splits: Mapping[str, Split], facts: Mapping[str, SplitFacts], processing_time: Instant
) -> dict[str, Split]:
    """``splits`` after an epoch at ``processing_time`` with ``facts`` about those that it heard of."""
    return {**splits, **{name: _update_split(splits.get(name), fact, processing_time) for name, fact in facts.items()}}


def _update_split(old: Split | None, facts: SplitFacts, now: Instant) -> Split:
    if old is None or (old.mark == MAX_INSTANT and facts.mark != MAX_INSTANT):  # one that was over begins anew
        return Split(facts.mark, now, now, dict(facts.lags))
    marks = [mark for mark in (old.mark, facts.mark) if mark is not None]
    mark = max(marks, default=None)
    buckets = sorted({*old.lags, *facts.lags})
    lags = {bucket: old.lags.get(bucket, 0) + facts.lags.get(bucket, 0) for bucket in buckets}
    return Split(mark, now, old.since if mark == old.mark else now, lags)


class WatermarkStrategy(ABC):
    """What all strategies share."""

    @abstractmethod
    def watermark_after(self, splits: Mapping[str, Split], processing_time: Instant, previous: Instant) -> Instant:
        """The source's watermark at the end of an epoch that ends at ``processing_time``, of ``splits`` by name; never
        below ``previous``.
        """

    def is_idle(self, splits: Mapping[str, Split], processing_time: Instant) -> bool:
        """Whether all known ``splits`` of the source are idle at ``processing_time``: then it does not hold back the
        others (12.9, 12.11).
        """
        return False


@register_word("arrival")
@dataclass(frozen=True)
class Ingestion(WatermarkStrategy):
    """Event time is the processing time of the epoch that reads a record: a perfect watermark, nothing is ever late.
    Windows become those of arrival time (semantics 9.9)."""

    def watermark_after(self, splits: Mapping[str, Split], processing_time: Instant, previous: Instant) -> Instant:
        return max(previous, processing_time)


class SplitStrategy(WatermarkStrategy):
    """The minimum over splits, leaving out idle ones. Subclass it for a strategy of your own: a frozen dataclass with
    ``idle_timeout`` that overrides ``lower_bound``. It also overrides ``mark`` if the mark is not the event time.

    >>> @dataclass(frozen=True)
    ... class FiveMinutes(hr.SplitStrategy):
    ...     idle_timeout: timedelta | None = None
    ...     def lower_bound(self, mark):
    ...         return mark - 300_000_000
    >>> FiveMinutes().lower_bound(900_000_000)
    600000000
    """

    idle_timeout: Duration | None

    def mark(self, event_time: Expr) -> Expr:
        """The timestamp whose maximum over the records of a split is its mark, by default ``event_time``; NULL where a
        record says nothing.
        """
        return event_time

    @abstractmethod
    def lower_bound(self, mark: Instant) -> Instant:
        """The watermark of a split with that mark."""

    def watermark_after(self, splits: Mapping[str, Split], processing_time: Instant, previous: Instant) -> Instant:
        bounds = [self._split_watermark(split) for split in self._active_splits(splits, processing_time).values()]
        return max(previous, min(bounds, default=previous))

    def is_idle(self, splits: Mapping[str, Split], processing_time: Instant) -> bool:
        return bool(splits) and not self._active_splits(splits, processing_time)

    def idle_deadline(self, splits: Mapping[str, Split], processing_time: Instant) -> Instant:
        """The processing time at which the next of ``splits`` becomes idle, seen from ``processing_time``; NEVER if
        none does. Then a timer epoch may move the watermark (12.1).
        """
        if self.idle_timeout is None:
            return NEVER
        speaking = self._active_splits(splits, processing_time).values()
        return Instant(min((split.heard for split in speaking), default=NEVER - self.idle_timeout) + self.idle_timeout)

    def slowest(self, splits: Mapping[str, Split], processing_time: Instant) -> str | None:
        """The one of ``splits`` that holds the watermark back at ``processing_time``; its ``since`` tells how long
        already. None if none does.
        """
        speaking = self._active_splits(splits, processing_time)
        return min(speaking, key=lambda name: (self._split_watermark(speaking[name]), name), default=None)

    def _split_watermark(self, split: Split) -> Instant:
        return MIN_INSTANT if split.mark is None else max(MIN_INSTANT, self.lower_bound(split.mark))

    def _active_splits(self, splits: Mapping[str, Split], now: Instant) -> dict[str, Split]:
        """Splits that are not idle (12.11)."""
        timeout = self.idle_timeout
        return {name: split for name, split in splits.items() if timeout is None or now - split.heard < timeout}


@register_word("bounded out of orderness", bound=REQUIRED, idle_timeout=None)
@check_keywords
@dataclass(frozen=True, init=False)
class BoundedOutOfOrderness(SplitStrategy):
    """A split's watermark is its largest event time minus ``bound``. A split that was silent for ``idle_timeout`` in
    processing time is left out until it speaks again.

    It also gives percentile watermarks (9.2), from how far records were behind the mark that the epoch before left.
    """

    bound: Duration
    idle_timeout: Duration | None

    def __init__(self, bound: Length, idle_timeout: Length | None = None) -> None:
        arguments = Arguments("BoundedOutOfOrderness")
        object.__setattr__(self, "bound", arguments.duration("bound", bound, most=LONGEST_WINDOW))
        object.__setattr__(self, "idle_timeout", _checked_idle_timeout(arguments, idle_timeout))

    def lower_bound(self, mark: Instant) -> Instant:
        return Instant(mark - self.bound)

    def percentile_after(
        self, q: float, splits: Mapping[str, Split], processing_time: Instant, previous: Instant
    ) -> Instant:
        """The watermark of the fastest ``q`` % of the input, never below ``previous``. The source's own watermark is
        below or at it (``Clocks`` and engines take the maximum of both)."""
        speaking = self._active_splits(splits, processing_time).values()
        bounds = [
            MIN_INSTANT if split.mark is None else Instant(split.mark - self._lag_at_percentile(split.lags, q))
            for split in speaking
        ]
        return max(previous, min(bounds, default=previous))

    def _lag_at_percentile(self, lags: Mapping[int, int], q: float) -> int:
        """A lag that at most 100 - ``q`` % of the records exceed: the end of their bucket."""
        total, count = sum(lags.values()), 0
        for bucket in sorted(lags):
            count += lags[bucket]
            if count * 100 >= q * total and bucket < LAG_BUCKETS:
                return -(-(bucket + 1) * self.bound // LAG_BUCKETS)
        return self.bound


@register_word("monotonic", idle_timeout=None)
@check_keywords
@dataclass(frozen=True, init=False)
class Monotonic(SplitStrategy):
    """Event times never fall within a split: its watermark is its largest event time. What falls may be late."""

    idle_timeout: Duration | None

    def __init__(self, idle_timeout: Length | None = None) -> None:
        object.__setattr__(self, "idle_timeout", _checked_idle_timeout(Arguments("Monotonic"), idle_timeout))

    def lower_bound(self, mark: Instant) -> Instant:
        return mark


@register_word("punctuated", asserted=REQUIRED, idle_timeout=None)
@check_keywords
@dataclass(frozen=True, init=False)
class Punctuated(SplitStrategy):
    """Records assert the watermark themselves: where ``asserted`` is not NULL, no more elements of the split come whose
    event time is below it (9.4). A split that has asserted nothing yet holds the watermark at -inf.

    A record that asserts and has no event time is a control record: neither data nor a dead letter. A split that was
    silent for ``idle_timeout`` ("1h") in processing time does not hold the watermark.

    >>> clicks = hr.json("landing/clicks", {"at": datetime, "until": datetime})
    >>> clicks.event_time("at", watermark=hr.Punctuated("until", "1h")).event_time.watermark.asserted.name
    'until'
    """

    asserted: Expr
    idle_timeout: Duration | None

    def __init__(self, asserted: Read, idle_timeout: Length | None = None) -> None:
        arguments = Arguments("Punctuated")
        object.__setattr__(self, "asserted", column_or_expression(arguments, "asserted", asserted))
        object.__setattr__(self, "idle_timeout", _checked_idle_timeout(arguments, idle_timeout))

    def mark(self, event_time: Expr) -> Expr:
        return self.asserted

    def lower_bound(self, mark: Instant) -> Instant:
        return mark


@register_word("from source")
@dataclass(frozen=True)
class FromSource(SplitStrategy):
    """The source knows how far it has come, and records say nothing. For a pipeline that is read (``published``) it is
    the output watermark, which is never ahead of what may still come.
    """

    idle_timeout = None

    def mark(self, event_time: Expr) -> Expr:
        return Literal(None, DataType.TIMESTAMP)

    def lower_bound(self, mark: Instant) -> Instant:
        return mark


def _checked_idle_timeout(arguments: Arguments, value: Length | None) -> Duration | None:
    return None if value is None else arguments.duration("idle_timeout", value, least=1)


_A_DAY = Duration(86_400_000_000)


@register_word("event time", expr=None, watermark=REQUIRED, split=None, max_ahead=UNITS["days"])
@dataclass(frozen=True)
class EventTime:
    """Which expression is the event time (a timestamp), how its watermark advances, and what a split is.

    ``expr`` is None for ``Ingestion`` and only for it. ``split``: the minimum over splits is the watermark; default one
    split. ``max_ahead`` None: no time is too far ahead (12.14). ``FileSource.event_time`` says what each means.
    """

    expr: Expr | None
    watermark: WatermarkStrategy
    split: Expr | None = None
    max_ahead: Duration | None = _A_DAY

    def latest_watermark(self, processing_time: Instant) -> Instant:
        """The latest time that the watermark may come to at ``processing_time``."""
        return MAX_INSTANT if self.max_ahead is None else Instant(min(processing_time + self.max_ahead, MAX_INSTANT))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of records for their event time and the watermark, each with its purpose."""
        if self.expr is None:
            return
        yield "the event time", self.expr
        if self.split is not None:
            yield "the split", self.split
        if isinstance(self.watermark, SplitStrategy):
            yield "the watermark", self.watermark.mark(self.expr)


def event_time(
    at: Read,
    *,
    bound: Length | None,
    watermark: WatermarkStrategy | None,
    idle: Length | None,
    split: Read | None,
    max_ahead: Length | None,
) -> EventTime:
    """What ``FileSource.event_time`` was given. Raises PipelineError."""
    arguments = Arguments("event_time")
    most_ahead = None if max_ahead is None else arguments.duration("max_ahead", max_ahead)
    split_expr = None if split is None else column_or_expression(arguments, "split", split)
    return EventTime(
        column_or_expression(arguments, "at", at),
        _watermark_strategy(arguments, bound, watermark, idle),
        split_expr,
        most_ahead,
    )


def _watermark_strategy(
    arguments: Arguments, bound: Length | None, watermark: WatermarkStrategy | None, idle: Length | None
) -> WatermarkStrategy:
    silence = None if idle is None else arguments.duration("idle", idle, least=1)
    if watermark is None:
        if bound is None:
            raise arguments.refusal(
                "bound",
                bound,
                'say how far records may be out of order, such as "4h" ("0s": they are in order), or give a watermark=',
            )
        return BoundedOutOfOrderness(arguments.duration("bound", bound, most=LONGEST_WINDOW), silence)
    if bound is not None:
        raise arguments.refusal("bound", bound, "there is a watermark= too; give one of them")
    if idle is not None:
        raise arguments.refusal("idle", idle, "give it to the strategy that watermark= names")
    strategy = arguments.instance("watermark", watermark, WatermarkStrategy, 'a strategy such as Punctuated("until")')  # type: ignore[type-abstract]
    if isinstance(strategy, Ingestion):
        raise arguments.refusal("watermark", watermark, "the time of arrival has no event time; write .arrival_time()")
    return strategy


def arrival_time() -> EventTime:
    """Event time is the time of arrival."""
    return EventTime(None, Ingestion())


@register_word("deduplicate", id=REQUIRED, horizon=REQUIRED)
@check_keywords
@dataclass(frozen=True, init=False)
class Deduplicate(Suggesting):
    """Counts only the first record of each ``id``, across all keys, windows and inputs (12.10).

    An id is remembered until the watermark passes its event time plus ``horizon``. A record that comes later than that
    cannot be told from a duplicate and is dropped as late. A record without an id goes to the dead letter.

    >>> hr.Deduplicate("order_id", horizon="1d").id.name
    'order_id'
    """

    id: Expr
    horizon: Duration

    def __init__(self, id: Read, horizon: Length) -> None:  # noqa: A002 (the word of the domain)
        arguments = Arguments("Deduplicate")
        object.__setattr__(self, "id", column_or_expression(arguments, "id", id))
        object.__setattr__(self, "horizon", arguments.duration("horizon", horizon))
