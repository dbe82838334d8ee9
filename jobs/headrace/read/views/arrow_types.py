"""Columns that readers see in Arrow's types, and keys that people write as values of such columns.

Keys as people write them, on a command line, in Python or on a page, become values of the key's columns.
"""

import base64
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError
from headrace.kernel.columns import ARROW_TYPES, arrow_type
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ValueType
from headrace.model.time import BEGIN_OF_CALENDAR, END_OF_CALENDAR, Instant, iso_8601, parse

TIME: Final = pa.timestamp("us", "UTC")

_TYPES: Final = {
    DataType.STRING: pa.string(),
    DataType.INT: pa.int64(),
    DataType.FLOAT: pa.float64(),
    DataType.BOOL: pa.bool_(),
    DataType.TIMESTAMP: TIME,
    DataType.DATE: pa.date32(),
    DataType.BYTES: pa.binary(),
    DataType.DECIMAL: pa.decimal128(PRECISION, SCALE),
}


def schema_of(columns: Mapping[str, ValueType]) -> pa.Schema:
    """The columns with their Arrow types, timestamps in UTC."""
    return pa.schema([(name, arrow_type(kind, _TYPES)) for name, kind in columns.items()])


def named_as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` of an engine, which has the columns of ``schema`` in their order: what engines call columns may end at a
    NUL.
    """
    return rows.rename_columns(schema.names).cast(schema)


def zoneless_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values, times without their zone, which is UTC: for one with a zone Arrow imports pandas."""
    return python_rows(rows.cast(pa.schema([(field.name, _zoneless(field.type)) for field in rows.schema])))


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """``rows`` as Python's values by column. A time outside of the years 1 to 9999, for which Python has no datetime,
    is the text that ``iso_8601`` gives.
    """
    columns = [_python_values(_whole(column)) for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _python_values(values: pa.Array) -> list[Any]:
    kind = values.type
    if pa.types.is_list(kind) and _has_times(kind):
        items, known = _python_values(values.flatten()), values.is_valid().to_pylist()
        ends = np.cumsum([size or 0 for size in pc.list_value_length(values).to_pylist()]).tolist()
        spans = zip([0, *ends], ends, known, strict=False)
        return [items[begin:end] if is_known else None for begin, end, is_known in spans]
    if pa.types.is_struct(kind) and _has_times(kind):
        fields = zip(*(_python_values(part) for part in values.flatten()), strict=True)
        names = [field.name for field in kind]
        rows = zip(fields, values.is_valid().to_pylist(), strict=True)
        return [dict(zip(names, parts, strict=True)) if is_known else None for parts, is_known in rows]
    if not pa.types.is_timestamp(kind) or _in_calendar(values):
        return list(values.to_pylist())
    return [None if at is None else _moment(at, kind) for at in values.cast(pa.int64()).to_pylist()]


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _has_times(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_has_times(field.type) for field in kind)
    return bool(pa.types.is_timestamp(kind))


def _in_calendar(values: pa.Array) -> bool:
    ends = pc.min_max(values.cast(pa.int64())).as_py()
    return ends["min"] is None or bool(ends["min"] >= BEGIN_OF_CALENDAR and ends["max"] <= END_OF_CALENDAR)


def _moment(at: int, kind: pa.TimestampType) -> Any:
    if not BEGIN_OF_CALENDAR <= at <= END_OF_CALENDAR:
        return iso_8601(at)
    return pa.scalar(at, pa.int64()).cast(kind).as_py()


def _zoneless(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    return pa.list_(_zoneless(kind.value_type)) if pa.types.is_list(kind) else kind


Given = Any
"""The key that is asked about: a value, several in the order of the key's columns, by their names, or None."""


class ExplainError(FixConfigError, code="config.explain"):
    """The key or the window that is asked about is not written as one."""


def typed_key(kinds: Mapping[str, DataType], given: Given, whose: str) -> dict[str, Any]:
    """The value of each column of the key that is ``given``; ``whose`` it is, for people. Raises ExplainError."""
    names = ", ".join(kinds) or "none: leave key out"
    if isinstance(given, Mapping):
        values = [given.get(name) for name in kinds] if given.keys() == kinds.keys() else []
    else:
        values = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if len(values) != len(kinds):
        raise ExplainError(
            f"key={shown(given)} does not name a key of {whose}: give a value for each of its columns, in their order "
            f"({names})"
        )
    return {name: _value(name, kind, value) for (name, kind), value in zip(kinds.items(), values, strict=True)}


def time_from_text(text: str) -> datetime | Instant:
    """The time that people write, also one that Python has no datetime for, as it is printed. Raises ValueError."""
    return parse(text) if text[:1] in ("+", "-") else datetime.fromisoformat(text)


_READ = {
    DataType.INT: int,
    DataType.TIMESTAMP: time_from_text,
    DataType.DATE: date.fromisoformat,
    DataType.DECIMAL: Decimal,
    DataType.BYTES: base64.b64decode,
    DataType.BOOL: {"true": True, "false": False}.__getitem__,
}
"""How text becomes the value of a key."""


def _value(name: str, kind: DataType, given: Any) -> Any:
    try:
        value = _READ[kind](given) if isinstance(given, str) and kind in _READ else given  # type: ignore[operator]
        if value is None or (isinstance(value, datetime) and value.tzinfo is None):
            raise ValueError("no time zone" if value is not None else "NULL is no key")
        if kind is DataType.TIMESTAMP and isinstance(given, str) and isinstance(value, int):
            return value  # beyond what Arrow gives Python
        return pa.scalar(value, ARROW_TYPES[kind]).as_py()
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, pa.ArrowException) as error:
        raise ExplainError(f"key: {given!r} is not the {kind} that {name} is ({error})") from error
