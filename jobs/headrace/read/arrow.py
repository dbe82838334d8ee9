"""Arrow types of the columns that readers see."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headrace.model.decimals import PRECISION, SCALE
from headrace.model.expr import DataType
from headrace.model.value_types import ListType, PairsType, ValueType

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
    return pa.schema([(name, _type(kind)) for name, kind in columns.items()])


def named_as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` of an engine, which has the columns of ``schema`` in their order: what engines call columns may end at a
    NUL.
    """
    return rows.rename_columns(schema.names).cast(schema)


def _type(kind: ValueType) -> pa.DataType:
    match kind:
        case ListType(item):
            return pa.list_(_TYPES[item])
        case PairsType(left, right):
            return pa.list_(pa.struct([("left", _TYPES[left]), ("right", _TYPES[right])]))
    return _TYPES[kind]
