"""Columns as Iceberg has them."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from headrace.model.accumulation import WINDOW_START
from headrace.model.expressions import data_types
from headrace.model.expressions.data_types import PRECISION, SCALE, DataType

_TYPES: Final[Mapping[DataType, IcebergType]] = {
    DataType.STRING: StringType(),
    DataType.INT: LongType(),
    DataType.FLOAT: DoubleType(),
    DataType.BOOL: BooleanType(),
    DataType.TIMESTAMP: TimestamptzType(),
    DataType.DATE: DateType(),
    DataType.BYTES: BinaryType(),
    DataType.DECIMAL: DecimalType(PRECISION, SCALE),
}
_TRANSFORMS: Final[Mapping[str, Transform[int, int]]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
_FIRST_PARTITION_FIELD: Final = 1000
_NUMBERS: Final = 10
"""How many numbers are set aside for a column and its parts."""


def iceberg_type(kind: data_types.ValueType, number: int = 1) -> IcebergType:
    """The type of a column, whose parts have numbers from ``number`` on: a catalog gives them others."""
    match kind:
        case data_types.ListType(item):
            return ListType(number, _TYPES[item], element_required=False)
        case data_types.PairsType(left, right):
            parts = zip(("left", "right"), (left, right), strict=True)
            pair = StructType(*(NestedField(number + n, name, _TYPES[part]) for n, (name, part) in enumerate(parts, 1)))
            return ListType(number, pair, element_required=False)
    return _TYPES[kind]


def iceberg_schema(columns: Mapping[str, data_types.ValueType]) -> Schema:
    """A schema of ``columns``, for a new table."""
    return Schema(
        *(
            NestedField(number, name, iceberg_type(kind, number + 1))
            for number, (name, kind) in zip(range(1, 2**31, _NUMBERS), columns.items(), strict=False)
        )
    )


def partitions(schema: Schema, by: str | None) -> PartitionSpec:
    """How a new table is partitioned."""
    if by is None:
        return PartitionSpec()
    source = schema.find_field(WINDOW_START).field_id
    return PartitionSpec(PartitionField(source, _FIRST_PARTITION_FIELD, _TRANSFORMS[by], f"{WINDOW_START}_{by}"))


def is_same(left: IcebergType, right: IcebergType) -> bool:
    """Whether two columns are of one type, whatever numbers their parts have."""
    match left, right:
        case ListType(), ListType():
            return is_same(left.element_type, right.element_type)
        case StructType(), StructType():
            pairs = list(zip(left.fields, right.fields, strict=False))
            return len(left.fields) == len(right.fields) and all(
                mine.name == other.name and is_same(mine.field_type, other.field_type) for mine, other in pairs
            )
    return bool(left == right)
