"""A stage of a pipeline as a grouping: what it makes of the records that reach it, and of the panes above it."""

from dataclasses import dataclass
from typing import Any

from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.panes import WINDOW_END, WINDOW_START, Pane
from headrace.model.time import Instant, is_finite
from headrace.pipeline.aggregation import Stage
from headrace.reference.contents import extract_with, read
from headrace.reference.elements import Element
from headrace.reference.evaluate import Record, evaluate
from headrace.reference.operator import Grouping


@dataclass(frozen=True)
class Entrance:
    """The way into ``stage``."""

    stage: Stage

    @property
    def grouping(self) -> Grouping:
        """Its where, when, how and what."""
        a, stage = self.stage.aggregation, self.stage
        extract = extract_with(list(a.what.values()), stage.schema)
        return Grouping(a.where, stage.when, a.how, extract, stage.schema, stage.key_types)

    def missing(self, record: Record) -> str | None:
        """The first key column that is NULL."""
        keys = self.stage.aggregation.key.items()
        return next((name for name, expr in keys if evaluate(expr, record, self.stage.schema) is None), None)

    def admits(self, record: Record) -> bool:
        """Whether ``record`` passes the filter."""
        condition = self.stage.aggregation.filter
        return condition is None or evaluate(condition, record, self.stage.schema) is True

    def element(self, record: Record, timestamp: Instant, is_retraction: bool = False) -> Element:
        """``record`` as an element at ``timestamp``."""
        a, schema = self.stage.aggregation, self.stage.schema
        return Element(
            key=tuple(evaluate(expr, record, schema) for expr in a.key.values()),
            timestamp=timestamp,
            value=tuple(read(aggregate, record, schema, timestamp) for aggregate in a.what.values()),
            is_retraction=is_retraction,
            record=record,
            size=element_size(record, schema),
        )


def pane_record(stage: Stage, pane: Pane) -> Record:
    """What a stage below ``stage`` reads of ``pane``: key, aggregates and window; NULL for an end that is infinite."""
    start, end = pane.window
    return {
        **dict(zip(stage.aggregation.key, pane.key, strict=True)),
        **dict(zip(stage.aggregation.what, pane.values, strict=True)),
        WINDOW_START: start if is_finite(start) else None,
        WINDOW_END: end if is_finite(end) else None,
    }


def element_size(record: Record, schema: Schema) -> int:
    """Bytes of the columns of ``schema`` in ``record`` that are not NULL (9.5): 8 for a number, a timestamp or a date,
    16 for a decimal, 1 for a bool, their length for bytes and strings in UTF-8."""
    return sum(_size(record[name], kind) for name, kind in schema.items() if record.get(name) is not None)


def _size(value: Any, kind: DataType) -> int:
    if kind is DataType.STRING:
        return len(value.encode())
    if kind is DataType.BYTES:
        return len(value)
    return {DataType.BOOL: 1, DataType.DECIMAL: 16}.get(kind, 8)
