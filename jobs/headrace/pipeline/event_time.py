"""Event time of records, how its watermark advances, and which records are duplicates.

Event time of records, and how its watermark advances (semantics 12.11, 12.14).

Duplicates that go no further than the first record of an id (semantics 12.10).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.model.arguments import Arguments, Length, Suggesting, keywords
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.functions import Read, read
from headrace.model.time import LONGEST_WINDOW, MAX_INSTANT, UNITS, Duration, Instant
from headrace.model.vocabulary import REQUIRED, word
from headrace.model.watermarks import BoundedOutOfOrderness, Ingestion, SplitStrategy, WatermarkStrategy

_DAY = Duration(86_400_000_000)


@word("event time", expr=None, watermark=REQUIRED, split=None, max_ahead=UNITS["days"])
@dataclass(frozen=True)
class EventTime:
    """Which expression is the event time (a timestamp), how its watermark advances, and what a split is.

    ``expr`` is None for ``Ingestion`` and only for it. ``split``: the minimum over splits is the watermark; default one
    split. ``max_ahead`` None: no time is too far ahead (12.14). ``FileSource.event_time`` says what each means.
    """

    expr: Expr | None
    watermark: WatermarkStrategy
    split: Expr | None = None
    max_ahead: Duration | None = _DAY

    def latest(self, processing_time: Instant) -> Instant:
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
    given = Arguments("event_time")
    ahead = None if max_ahead is None else given.duration("max_ahead", max_ahead)
    split_expr = None if split is None else read(given, "split", split)
    return EventTime(read(given, "at", at), _strategy(given, bound, watermark, idle), split_expr, ahead)


def _strategy(
    given: Arguments, bound: Length | None, watermark: WatermarkStrategy | None, idle: Length | None
) -> WatermarkStrategy:
    silence = None if idle is None else given.duration("idle", idle, least=1)
    if watermark is None:
        if bound is None:
            raise given.wrong(
                "bound",
                bound,
                'say how far records may be out of order, such as "4h" ("0s": they are in order), or give a watermark=',
            )
        return BoundedOutOfOrderness(given.duration("bound", bound, most=LONGEST_WINDOW), silence)
    if bound is not None:
        raise given.wrong("bound", bound, "there is a watermark= too; give one of them")
    if idle is not None:
        raise given.wrong("idle", idle, "give it to the strategy that watermark= names")
    strategy = given.instance("watermark", watermark, WatermarkStrategy, 'a strategy such as Punctuated("until")')  # type: ignore[type-abstract]
    if isinstance(strategy, Ingestion):
        raise given.wrong("watermark", watermark, "the time of arrival has no event time; write .arrival_time()")
    return strategy


def arrival_time() -> EventTime:
    """Event time is the time of arrival."""
    return EventTime(None, Ingestion())


@word("deduplicate", id=REQUIRED, horizon=REQUIRED)
@keywords
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
        given = Arguments("Deduplicate")
        object.__setattr__(self, "id", read(given, "id", id))
        object.__setattr__(self, "horizon", given.duration("horizon", horizon))
