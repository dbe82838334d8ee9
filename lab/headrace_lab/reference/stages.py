"""A stage of a pipeline as a grouping: what it makes of the records that reach it, and of the panes above it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.model.accumulation import EVENT_TIME
from headrace.model.expressions.columns import in_order
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, Schema, StructType
from headrace.model.time import GLOBAL_WINDOW_END, Instant
from headrace.model.windows import Window
from headrace.pipeline.rows import BUCKET, GroupFunction, GroupQuery, GroupRows
from headrace.pipeline.stages import Stage
from headrace_lab.reference.contents import extract_with, read
from headrace_lab.reference.elements import Element, Key, Pane
from headrace_lab.reference.evaluate import Record, evaluate, evaluate_of
from headrace_lab.reference.operator import Grouping
from headrace_lab.reference.rows import compute_rows, group_entry, take_rows, window_record


@dataclass(frozen=True)
class Entrance:
    """The way into ``stage``."""

    stage: Stage

    @property
    def grouping(self) -> Grouping:
        """Its where, when, how and what."""
        a, stage = self.stage.aggregation, self.stage
        extract = extract_with(list(a.aggregates.values()), stage.schema)
        if isinstance(a, GroupRows):
            taken_rows = compute_rows(stage, a.take) if isinstance(a.take, GroupFunction | GroupQuery) else take_rows(a)
            parts = (taken_rows, stage.schema, stage.key_types)
            return Grouping(a.where, stage.when, a.how, *parts, takes_each=a.takes_each)
        compute, condition = partial(compute_values, stage), partial(lets_out, stage)
        return Grouping(a.where, stage.when, a.how, extract, stage.schema, stage.key_types, compute, condition)

    def missing(self, record: Record) -> str | None:
        """The first key column that is NULL, where that is no group. What the step of a loop reads of an edge is no
        part of its key; rows have none, but columns that may overflow.

        Raises OverflowsInRecordError.
        """
        if self.stage.gives_rows and self.admits(record):
            for name, expr in self.stage.row_columns.items():
                evaluate_of(f"column {name}", expr, record, self.stage.schema)
        of_edge = {BUCKET, *(term.name for term in self.stage.terms)}
        keys = [(name, expr) for name, expr in self.stage.aggregation.key.items() if name not in of_edge]
        values = ((name, evaluate_of(f"key {name}", expr, record, self.stage.schema)) for name, expr in keys)
        missing = [name for name, value in values if value is None]
        return next(iter([] if self.stage.null_keys else missing), None)

    @property
    def unfit_reasons(self) -> frozenset[str]:
        """What ``unfit`` may say."""
        return frozenset(reason for term in self.stage.terms for reason in (term.of_null, term.of_wrong_sign))

    def unfit(self, record: Record) -> str | None:
        """Why no loop can go over the edge ``record`` (13.7). Raises OverflowsInRecordError."""
        for term in self.stage.terms:
            value = evaluate_of("value of the edge", term.expr, record, self.stage.schema)
            if value is None:
                return term.of_null
            if value * term.sign < 0 if term.sign else False:
                return term.of_wrong_sign
        return None

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
            value=self._value(record, timestamp),
            is_retraction=is_retraction,
            record=record,
            size=element_size(record, schema),
        )

    def _value(self, record: Record, timestamp: Instant) -> tuple[Any, ...]:
        a, schema = self.stage.aggregation, self.stage.schema
        if a.takes_rows:
            return group_entry(self.stage, record, timestamp)
        return tuple(read(aggregate, record, schema, timestamp) for aggregate in a.aggregates.values())


def pane_record(stage: Stage, pane: Pane) -> Record:
    """What a stage below ``stage`` reads of ``pane``: key, aggregates and window; NULL for an end that is infinite. A
    row has its columns, and its event time.
    """
    if stage.gives_rows:
        event_time = pane.timestamp if pane.timestamp < GLOBAL_WINDOW_END - 1 else None
        return {**_columns(stage.value_types, pane.values), EVENT_TIME: event_time}
    return {
        **dict(zip(stage.aggregation.key, pane.key, strict=True)),
        **_columns(stage.value_types, pane.values),
        **window_record(pane.window),
    }


def _columns(names: Iterable[str], values: tuple[Any, ...]) -> Record:
    """Values by their names, lists as expressions read them."""
    lists = (list(value) if isinstance(value, tuple) else value for value in values)
    return dict(zip(names, lists, strict=True))


def compute_values(stage: Stage, key: Key, window: Window, aggregates: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a row of results of ``stage``: its aggregates, and what is computed of them (8.4)."""
    a = stage.aggregation
    row = {**dict(zip(a.key, key, strict=True)), **_columns(a.aggregates, aggregates)}
    row |= window_record(window)
    for name, expr in in_order(a.results).items():
        row[name] = evaluate(expr, row, stage.pane_schema)
    return (*aggregates, *(row[name] for name in a.results))


def lets_out(stage: Stage, pane: Pane) -> bool:
    """Whether ``having`` is TRUE of ``pane``, or there is none (9.10)."""
    condition = stage.aggregation.having
    return condition is None or evaluate(condition, pane_record(stage, pane), stage.pane_schema) is True


def element_size(record: Record, schema: Schema) -> int:
    """Bytes of the columns of ``schema`` in ``record`` that are not NULL (9.5). They are 8 for a number, a timestamp or
    a date, 16 for a decimal, 1 for a bool. Bytes and strings count by their length, in UTF-8; what is nested the sum of
    its parts.
    """
    return sum(_size(record[name], kind) for name, kind in schema.items() if record.get(name) is not None)


def _size(value: Any, kind: ColumnType) -> int:  # noqa: PLR0911 (a line for each type)
    if value is None:
        return 0
    match kind:
        case ListType(item):
            return sum(_size(one, item) for one in value)
        case StructType(fields):
            parts = value.values() if isinstance(value, dict) else value
            return sum(_size(one, own) for one, (_, own) in zip(parts, fields, strict=True))
        case MapType(own):
            return sum(len(key.encode()) + _size(one, own) for key, one in value)
    if kind is DataType.STRING:
        return len(value.encode())
    if kind is DataType.BYTES:
        return len(value)
    return {DataType.BOOL: 1, DataType.DECIMAL: 16}.get(kind, 8)
