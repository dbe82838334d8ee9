"""Columns that readers see in Arrow's types, and keys that people write as values of such columns.

``typed_key`` makes values of the key's columns of what people write on a command line, in Python or on a page.
"""

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError
from headrace.kernel.columns import ARROW_TYPES, arrow_type, entries_of, holds_type
from headrace.model.arguments import short_repr
from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ValueType
from headrace.model.time import BEGIN_OF_CALENDAR, END_OF_CALENDAR, Instant, iso_8601, parse_instant

if TYPE_CHECKING:
    import pandas as pd

TIME: Final = pa.timestamp("us", "UTC")

_ARROW_OF_KIND: Final = {
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
    return pa.schema([(name, arrow_type(kind, _ARROW_OF_KIND)) for name, kind in columns.items()])


def named_as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the names of ``schema``, in order: what engines call columns may end at a NUL."""
    return rows.rename_columns(schema.names).cast(schema)


def zoneless_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values, times without their zone, which is UTC: for one with a zone Arrow imports pandas."""
    return python_rows(rows.cast(pa.schema([(field.name, _without_time_zones(field.type)) for field in rows.schema])))


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """``rows`` as Python's values by column. A time outside of the years 1 to 9999, for which Python has no datetime,
    is the text that ``iso_8601`` gives.
    """
    columns = [_python_values(_combine_chunks(column)) for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def column_beyond_python(rows: pa.Table) -> str | None:
    """The first column with a time in a struct, or a map, that Python has no datetime for; None if there is none."""
    for field in rows.schema:
        is_object = holds_type(field.type, lambda kind: pa.types.is_struct(kind) or pa.types.is_map(kind))
        if is_object and _has_time_beyond_python(rows.column(field.name).combine_chunks()):
            return str(field.name)
    return None


def _has_time_beyond_python(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_map(kind):
        return _has_time_beyond_python(entries_of(values))
    if pa.types.is_list(kind):
        return _has_time_beyond_python(values.flatten())
    if pa.types.is_struct(kind):
        return any(_has_time_beyond_python(values.field(number)) for number in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind)) and not _in_calendar(values)


def _combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _python_values(values: pa.Array) -> list[Any]:
    kind = values.type
    if pa.types.is_map(kind):
        lists = _python_values(entries_of(values))
        return [None if one is None else {entry["key"]: entry["value"] for entry in one} for one in lists]
    is_plain = not holds_type(kind, lambda inner: pa.types.is_timestamp(inner) or pa.types.is_map(inner))
    if pa.types.is_struct(kind) and not is_plain:
        return _python_structs(values)
    if pa.types.is_list(kind) and not is_plain:
        items, is_valid = _python_values(values.flatten()), values.is_valid().to_pylist()
        ends = np.cumsum([size or 0 for size in pc.list_value_length(values).to_pylist()]).tolist()
        spans = zip([0, *ends], ends, is_valid, strict=False)
        return [items[begin:end] if is_known else None for begin, end, is_known in spans]
    if not pa.types.is_timestamp(kind) or _in_calendar(values):
        return list(values.to_pylist())
    return [None if time is None else _python_time(time, kind) for time in values.cast(pa.int64()).to_pylist()]


def _python_structs(values: pa.Array) -> list[Any]:
    fields = zip(*(_python_values(part) for part in values.flatten()), strict=True)
    names = [field.name for field in values.type]
    rows = zip(fields, values.is_valid().to_pylist(), strict=True)
    return [dict(zip(names, parts, strict=True)) if is_known else None for parts, is_known in rows]


def _in_calendar(values: pa.Array) -> bool:
    ends = pc.min_max(values.cast(pa.int64())).as_py()
    return ends["min"] is None or bool(ends["min"] >= BEGIN_OF_CALENDAR and ends["max"] <= END_OF_CALENDAR)


def _python_time(time: int, kind: pa.TimestampType) -> Any:
    if not BEGIN_OF_CALENDAR <= time <= END_OF_CALENDAR:
        return iso_8601(time)
    return pa.scalar(time, pa.int64()).cast(kind).as_py()


def _without_time_zones(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_time_zones(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_time_zones(kind.item_type))
    return pa.list_(_without_time_zones(kind.value_type)) if pa.types.is_list(kind) else kind


GivenKey = Any
"""The key that is asked about: a value, several in the order of the key's columns, by their names, or None."""


class ExplainError(FixConfigError, code="config.explain"):
    """The key or the window that is asked about is not written as one."""


def typed_key(kinds: Mapping[str, DataType], key: GivenKey, whose: str, *, null_keys: bool) -> dict[str, Any]:
    """The value of each column of the ``key``; ``whose`` it is, for people. ``null_keys``: it may be NULL. Raises
    ExplainError.
    """
    names = ", ".join(kinds) or "none: leave key out"
    key = _as_object(key, kinds)
    if isinstance(key, Mapping):
        values = [key.get(name) for name in kinds] if key.keys() == kinds.keys() else []
    else:
        values = [] if key is None else list(key) if isinstance(key, list | tuple) else [key]
    if len(values) != len(kinds):
        raise ExplainError(
            f"key={short_repr(key)} does not name a key of {whose}: give a value for each of its columns, in their "
            f"order ({names})"
        )
    return {
        name: None if value is None and null_keys else _parse_key_value(name, kind, value)
        for (name, kind), value in zip(kinds.items(), values, strict=True)
    }


def _as_object(key: GivenKey, kinds: Mapping[str, DataType]) -> GivenKey:
    """The only item of ``key``, as the JSON object of the columns of ``kinds`` that it is written as."""
    text = key[0] if isinstance(key, list) and len(key) == 1 else key
    if not kinds or not isinstance(text, str) or text[:1] != "{":
        return key
    try:
        key_object = json.loads(text)
    except ValueError:
        return key
    return key_object if key_object.keys() == kinds.keys() else key


def time_from_text(text: str) -> datetime | Instant:
    """The time that people write, also one that Python has no datetime for, as it is printed. Raises ValueError."""
    return parse_instant(text) if text[:1] in ("+", "-") else datetime.fromisoformat(text)


_KEY_READERS = {
    DataType.INT: int,
    DataType.TIMESTAMP: time_from_text,
    DataType.DATE: date.fromisoformat,
    DataType.DECIMAL: Decimal,
    DataType.BYTES: base64.b64decode,
    DataType.BOOL: {"true": True, "false": False}.__getitem__,
}
"""How text becomes the value of a key."""


def _parse_key_value(name: str, kind: DataType, key_value: Any) -> Any:
    try:
        value = _KEY_READERS[kind](key_value) if isinstance(key_value, str) and kind in _KEY_READERS else key_value  # type: ignore[operator]
        if value is None or (isinstance(value, datetime) and value.tzinfo is None):
            raise ValueError("no time zone" if value is not None else "NULL is no key")
        if kind is DataType.TIMESTAMP and isinstance(key_value, str) and isinstance(value, int):
            return value  # beyond what Arrow gives Python
        return pa.scalar(value, ARROW_TYPES[kind]).as_py()
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, pa.ArrowException) as error:
        raise ExplainError(f"key: {key_value!r} is not the {kind} that {name} is ({error})") from error


_MOST_IN_FLOATS: Final = 2**53
"""Up to here floats hold every int."""


def pandas_frame(table: pa.Table) -> "pd.DataFrame":
    """``table`` as a frame of pandas that has all ints as they are.

    Beside NULL, pandas has ints as floats. A column with an int that floats do not hold is ``Int64`` instead. In lists,
    structs and maps ints are Python's.
    """
    frame: pd.DataFrame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type) and "int64" in str(column.type):
            frame[name] = column.to_pandas(integer_object_nulls=True)
        elif column.type == pa.int64() and column.null_count and _has_large_ints(column):
            frame[name] = column.to_pandas(types_mapper=lambda _: _nullable_ints())
    return frame


def _has_large_ints(column: pa.ChunkedArray) -> bool:
    ends = pc.min_max(column)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is not None and (least < -_MOST_IN_FLOATS or most > _MOST_IN_FLOATS)


def _nullable_ints() -> "pd.Int64Dtype":
    import pandas as pd

    return pd.Int64Dtype()
