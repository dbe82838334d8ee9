"""Arrow types of the kernel's columns, and columns of stored rows that had other names when they were written.

Arrow types of the kernel's columns. A TIMESTAMP is microseconds in UTC; users' own objects see an Instant.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ListType, PairsType, ValueType
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT

TIMESTAMP = pa.timestamp("us", tz="UTC")
DATE = pa.date32()
DECIMAL = pa.decimal128(PRECISION, SCALE)

ARROW_TYPES: dict[DataType, pa.DataType] = {
    DataType.STRING: pa.string(),
    DataType.INT: pa.int64(),
    DataType.FLOAT: pa.float64(),
    DataType.BOOL: pa.bool_(),
    DataType.TIMESTAMP: TIMESTAMP,
    DataType.DATE: DATE,
    DataType.BYTES: pa.binary(),
    DataType.DECIMAL: DECIMAL,
}


def arrow_type(kind: ValueType, types: Mapping[DataType, pa.DataType] = ARROW_TYPES) -> pa.DataType:
    """The Arrow type of a column or of a pane value, where that of what is in it is one of ``types``."""
    match kind:
        case ListType(item):
            return pa.list_(types[item])
        case PairsType(left, right):
            return pa.list_(pa.struct([("left", types[left]), ("right", types[right])]))
    return types[kind]


def own_arrow_type(kind: DataType | ListType) -> pa.DataType:
    """The Arrow type of a value as users' own objects see it: timestamps are Instants."""
    if isinstance(kind, ListType):
        return pa.list_(own_arrow_type(kind.item))
    return pa.int64() if kind is DataType.TIMESTAMP else ARROW_TYPES[kind]


def timestamps(granules: pa.Array) -> pa.Array:
    """Instants as timestamps, NULL where they are not finite."""
    finite = pc.and_(pc.greater(granules, int(MIN_INSTANT)), pc.less(granules, int(GLOBAL_WINDOW_END) - 1))
    return pc.if_else(finite, granules, None).cast(TIMESTAMP)


Names = Mapping[str, str | None]
"""What columns are called in rows as they were written, None: they are not there. Others have the name of today."""


def names_there(schema: pa.Schema, names: Names) -> list[str]:
    """The columns of rows as they were written that ``schema`` has under the names of today."""
    there = (names.get(name, name) for name in schema.names)
    return [name for name in there if name is not None]


def as_now(rows: pa.Table, schema: pa.Schema, names: Names) -> pa.Table:
    """Rows as they were written with the columns of ``schema``; what was not there is NULL."""

    def column(field: pa.Field) -> pa.Array:
        name = names.get(field.name, field.name)
        return pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name).cast(field.type)

    return pa.table([column(field) for field in schema], schema=schema)
