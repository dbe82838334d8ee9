"""Types of the engine that other packages may name without importing pyspark themselves."""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from headrace.model.expressions.data_types import PRECISION, SCALE, DataType, ListType

__all__ = ["SPARK_TYPES", "DataFrame", "SparkColumn", "SparkSession", "spark_type"]

SPARK_TYPES: dict[DataType, t.DataType] = {
    DataType.STRING: t.StringType(),
    DataType.INT: t.LongType(),
    DataType.FLOAT: t.DoubleType(),
    DataType.BOOL: t.BooleanType(),
    DataType.TIMESTAMP: t.TimestampType(),
    DataType.DATE: t.DateType(),
    DataType.BYTES: t.BinaryType(),
    DataType.DECIMAL: t.DecimalType(PRECISION, SCALE),
}


def spark_type(kind: DataType | ListType) -> t.DataType:
    """The type of a column of a source."""
    return t.ArrayType(SPARK_TYPES[kind.item]) if isinstance(kind, ListType) else SPARK_TYPES[kind]
