"""What comes into a pipeline: event time of records, further inputs beside the first, and duplicates that go no further
(semantics 12.9 to 12.11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.errors import PipelineError
from headrace.model.expr import Column, DataType, Expr, Literal, Schema
from headrace.model.time import MAX_INSTANT, Duration, Instant, duration
from headrace.model.typing import type_of
from headrace.model.watermarks import WatermarkStrategy
from headrace.pipeline.sources import FileSource

OWN = "source"
"""The name of a pipeline's own input, in snapshots and counts."""


@dataclass(frozen=True, init=False)
class EventTime:
    """Which expression is the event time (a timestamp), how its watermark advances, and what a split is.

    ``expr`` is None for ``Ingestion`` and only for it. ``split``: the minimum over splits is the watermark, so that one
    quiet producer holds it back; default one split. ``max_ahead``: a record dated further than that ahead of processing
    time is accepted, but says nothing to the watermark, which one mistaken date would take past all others (12.14);
    None for schedules, whose times lie ahead by nature.
    """

    expr: Expr | None
    watermark: WatermarkStrategy
    split: Expr | None
    max_ahead: Duration | None

    def __init__(
        self,
        expr: Expr | None,
        watermark: WatermarkStrategy,
        split: Expr | None = None,
        max_ahead: timedelta | int | None = timedelta(days=1),
    ) -> None:
        granules = duration(max_ahead) if isinstance(max_ahead, timedelta) else max_ahead
        if granules is not None and granules < 0:
            raise PipelineError(f"max_ahead of EventTime must not be negative: {max_ahead}")
        object.__setattr__(self, "expr", expr)
        object.__setattr__(self, "watermark", watermark)
        object.__setattr__(self, "split", split)
        object.__setattr__(self, "max_ahead", granules)

    def latest(self, processing_time: Instant) -> Instant:
        """The latest time that the watermark may come to at ``processing_time``."""
        return MAX_INSTANT if self.max_ahead is None else Instant(min(processing_time + self.max_ahead, MAX_INSTANT))


@dataclass(frozen=True)
class Input:
    """Another input of a pipeline: its records join those of the pipeline's own source, and the watermark is the
    minimum over all inputs (12.9).

    Its records take the form of the pipeline's own: ``columns`` gives columns of the pipeline's schema as expressions
    over this input's; one that it leaves out is this input's column of that name, or NULL if there is none. A column
    that says which input a record is from is a literal: ``columns={"side": lit("bid"), "price": col("offer")}``.
    """

    name: str
    source: FileSource
    event_time: EventTime
    columns: Mapping[str, Expr] = field(default_factory=dict)

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
    """Of the records with the same ``id`` only the first to arrive counts, across all keys, windows and inputs (12.10).

    An id is remembered until the watermark passes its event time plus ``horizon``. A record that comes later than that
    cannot be told from a duplicate and is dropped as late. A record without an id goes to the dead letter.
    """

    id: Expr
    horizon: Duration

    def __init__(self, id: Expr, horizon: timedelta | int) -> None:  # noqa: A002 (the word of the domain)
        granules = duration(horizon) if isinstance(horizon, timedelta) else Duration(horizon)
        if granules < 0:
            raise PipelineError(f"the horizon of Deduplicate must not be negative: {horizon}")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "horizon", granules)
