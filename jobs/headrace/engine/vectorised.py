"""Users' own objects in tasks: functions over Arrow batches, the only Python that the engine runs there.

An object travels to the tasks with the module that defines it, which they need not be able to import.
"""

from collections.abc import Callable
from typing import cast

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.functions import arrow_udf

from headrace.engine.travelling import travels
from headrace.engine.types import SPARK_TYPES, SparkColumn
from headrace.model.expr import DataType
from headrace.model.value_types import ListType

Named = Callable[..., SparkColumn]


def vectorised(
    owner: object, function: Callable[..., pa.Array], returns: t.DataType, *, is_read_often: bool = False
) -> Named:
    """``function`` over columns; it calls methods of ``owner``.

    Spark takes any Python function for cheap and copies a call to wherever its result is read: calls over results of
    calls would grow exponentially. ``is_read_often`` prevents that, but such a call cannot stand in an aggregation.
    """
    module = type(owner).__module__
    if module.partition(".")[0] != "headrace":
        travels(module)
    # its type hints know fewer result types than it takes
    made = cast("Callable[..., Named]", arrow_udf)(function, returns)
    # what might be something else the next time is computed once
    return made.asNondeterministic() if is_read_often else made  # type: ignore[attr-defined]


def own_type(kind: DataType | ListType) -> t.DataType:
    """The Spark type of a value as users' own objects see it: timestamps are Instants (granules)."""
    if isinstance(kind, ListType):
        return t.ArrayType(own_type(kind.item))
    return t.LongType() if kind is DataType.TIMESTAMP else SPARK_TYPES[kind]


def to_own(value: SparkColumn, kind: DataType) -> SparkColumn:
    """A value as users' own objects see it."""
    return f.unix_micros(value) if kind is DataType.TIMESTAMP else value


def from_own(value: SparkColumn, kind: DataType | ListType) -> SparkColumn:
    """A value, or a list, that a user's own object gave."""
    if kind is DataType.TIMESTAMP:
        return f.timestamp_micros(value)
    if isinstance(kind, ListType) and kind.item is DataType.TIMESTAMP:
        return f.transform(value, f.timestamp_micros)
    return value
