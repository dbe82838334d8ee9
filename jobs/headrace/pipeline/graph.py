"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

source, event time, key, *where* (window), *when* (trigger), *how* (accumulation, lateness), *what* (aggregates),
expectations.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, How
from headrace.model.combiners import Aggregate, ValueType
from headrace.model.expr import DataType, Expr, Schema
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.model.triggers import Trigger
from headrace.model.typing import type_of
from headrace.model.watermarks import BoundedOutOfOrderness
from headrace.model.windows import WindowFn
from headrace.pipeline.expectations import Expectation
from headrace.pipeline.sources import FileSource
from headrace.pipeline.validation import check

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class EventTime:
    """Which expression is the event time (a timestamp), how far its watermark lags, and what a split is.

    ``split``: the minimum over splits is the watermark, so that one quiet producer holds it back; default one split.
    """

    expr: Expr
    watermark: BoundedOutOfOrderness
    split: Expr | None = None


@dataclass(frozen=True)
class Aggregation:
    """One grouping: its key, *where*, *when*, *how* and *what*, over rows that pass ``filter``.

    Behind another one it reads the key, aggregates, ``window_start`` and ``window_end`` of that one's panes; their
    event time is the panes' own timestamp (semantics 7).
    """

    key: Mapping[str, Expr]
    where: WindowFn
    when: Trigger
    how: How
    what: Mapping[str, Aggregate]
    filter: Expr | None = None


@dataclass(frozen=True)
class Stage:
    """An aggregation with the types of the rows that reach it; ``withdrawable``: these can be withdrawn again."""

    aggregation: Aggregation
    schema: Schema
    withdrawable: bool = False

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns and their types, in order."""
        return {name: aggregate.output_type(self.schema) for name, aggregate in self.aggregation.what.items()}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that a stage behind it can read."""
        values = {name: kind for name, kind in self.value_types.items() if isinstance(kind, DataType)}
        window = {WINDOW_START: DataType.TIMESTAMP, WINDOW_END: DataType.TIMESTAMP}
        return {**self.key_types, **values, **window}


@dataclass(frozen=True)
class Pipeline:
    """One aggregation from a source to panes, or several in a chain (``then``).

    ``key`` maps key column names to expressions; a record whose event time or any key is NULL goes to the dead letter.
    ``filter`` is applied after that check; what it removes still moves the watermark. ``allow_finishing`` accepts a
    trigger that can finish and so drop data (semantics 4.8).
    Raises PipelineError, saying what to change, when the parts do not fit.
    """

    name: str
    source: FileSource
    event_time: EventTime
    key: Mapping[str, Expr]
    where: WindowFn
    when: Trigger
    how: How
    what: Mapping[str, Aggregate]
    filter: Expr | None = None
    expectations: tuple[Expectation, ...] = ()
    description: str = ""
    schedule: str | None = None
    allow_finishing: bool = False
    then: tuple[Aggregation, ...] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PipelineError(
                f"pipeline name {self.name!r}: use lower case letters, digits and _, starting with a letter"
            )
        check(self)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its aggregations, each with the types of what it reads."""
        first = Aggregation(self.key, self.where, self.when, self.how, self.what, self.filter)
        stages = [Stage(first, self.schema)]
        for aggregation in self.then:
            above = stages[-1]
            withdrawable = above.aggregation.how.accumulation is Accumulation.RETRACTING
            stages.append(Stage(aggregation, above.pane_schema, withdrawable))
        return tuple(stages)

    @property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns of its panes (those of the last stage) and their types, in order."""
        return self.stages[-1].key_types

    @property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns of its panes and their types, in order."""
        return self.stages[-1].value_types

    @property
    def schema(self) -> Schema:
        """Columns of the source."""
        return self.source.schema
