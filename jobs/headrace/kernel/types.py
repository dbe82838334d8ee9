"""Arrow types of the kernel's columns. A TIMESTAMP is microseconds in UTC; users' own objects see an Instant."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.decimals import PRECISION, SCALE
from headrace.model.expressions.value_types import ListType, PairsType, ValueType
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
