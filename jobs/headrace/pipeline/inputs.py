"""What comes into a pipeline: event time of records, further inputs beside the first, and duplicates that go no further
(semantics 12.9 to 12.11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, Length
from headrace.model.expressions.coercion import Read, read
from headrace.model.expressions.expr import Column, DataType, Expr, Literal, Schema
from headrace.model.expressions.typing import type_of
from headrace.model.time import LONGEST_WINDOW, MAX_INSTANT, Duration, Instant
from headrace.model.watermarks import BoundedOutOfOrderness, Ingestion, WatermarkStrategy
from headrace.pipeline.sources import FileSource

OWN = "source"
"""The name of a pipeline's own input, in snapshots and counts."""


_DAY = Duration(86_400_000_000)


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
    each = None if split is None else read(given, "split", split)
    return EventTime(read(given, "at", at), _strategy(given, bound, watermark, idle), each, ahead)


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
    found = given.instance("watermark", watermark, WatermarkStrategy, 'a strategy such as Punctuated("until")')  # type: ignore[type-abstract]
    if isinstance(found, Ingestion):
        raise given.wrong("watermark", watermark, "the time of arrival has no event time; write .arrival_time()")
    return found


def arrival_time() -> EventTime:
    """Event time is the time of arrival."""
    return EventTime(None, Ingestion())


@dataclass(frozen=True)
class Input:
    """A source with its event time: what a pipeline reads, alone or beside others (12.9). Written
    ``json(...).event_time(...)``.
    """

    source: FileSource
    event_time: EventTime
    name: str = OWN
    columns: Mapping[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = Arguments("Input")
        given.instance("source", self.source, FileSource, 'a source such as json("landing/flights", {...})')
        given.instance("event_time", self.event_time, EventTime, ".event_time(...) of a source in its place")

    def named(self, name: str, columns: Mapping[str, Expr] | None = None) -> "Input":
        """This input as one of those ``union`` read by a pipeline: its records join those of the pipeline's own input,
        and the watermark is the minimum over all inputs (12.9).

        Its records take the form of the pipeline's own: ``columns`` gives columns of the pipeline's schema as
        expressions over this input's; one that it leaves out is this input's column of that name, or NULL if there is
        none. A column that says which input a record is from is a literal: ``{"side": lit("bid")}``.
        """
        given = Arguments("named")
        text = given.text("name", name, "weather")
        if text == OWN:
            raise given.wrong("name", name, "that is the name of every pipeline's own input; choose another")
        write = '{"name": expression}, such as {"origin": col("airport")}'
        return replace(
            self, name=text, columns=given.mapping("columns", {} if columns is None else columns, Expr, write, least=0)
        )

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema``, the pipeline's, over this input's. Raises PipelineError if one does not fit."""
        unknown = self.columns.keys() - schema.keys()
        if unknown:
            raise PipelineError(
                f"input {self.name} gives {', '.join(sorted(unknown))}, which the pipeline does not read"
            )
        return {name: self._expression(name, kind) for name, kind in schema.items()}

    def _expression(self, name: str, kind: DataType) -> Expr:
        expr = self.columns.get(name)
        if expr is None:
            expr = Column(name) if name in self.source.columns else Literal(None, kind)
        found = type_of(expr, self.source.columns)
        if found is not kind:
            raise PipelineError(f"input {self.name} gives {name!r} as {found}, and the pipeline reads {kind}; cast it")
        return expr


@dataclass(frozen=True, init=False)
class Deduplicate:
    """Counts only the first record of each ``id``, across all keys, windows and inputs (12.10).

    An id is remembered until the watermark passes its event time plus ``horizon``. A record that comes later than that
    cannot be told from a duplicate and is dropped as late. A record without an id goes to the dead letter.
    """

    id: Expr
    horizon: Duration

    def __init__(self, id: Read, horizon: Length) -> None:  # noqa: A002 (the word of the domain)
        given = Arguments("Deduplicate")
        object.__setattr__(self, "id", read(given, "id", id))
        object.__setattr__(self, "horizon", given.duration("horizon", horizon))
