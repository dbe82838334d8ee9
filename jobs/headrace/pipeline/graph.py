"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

source, event time, key, *where* (window), *when* (trigger), *how* (accumulation, lateness), *what* (aggregates),
expectations.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.accumulation import How
from headrace.model.combiners import Aggregate
from headrace.model.expr import DataType, Expr, Schema
from headrace.model.triggers import Trigger
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
class Pipeline:
    """One aggregation from a source to panes.

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

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PipelineError(
                f"pipeline name {self.name!r}: use lower case letters, digits and _, starting with a letter"
            )
        check(self)

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        from headrace.model.typing import type_of

        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, DataType]:
        """Aggregate columns and their types, in order."""
        return {name: aggregate.output_type(self.schema) for name, aggregate in self.what.items()}

    @property
    def schema(self) -> Schema:
        """Columns of the source."""
        return self.source.schema
