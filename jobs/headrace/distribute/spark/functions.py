"""A user's own Spark code, named ``module:function``: found, called, and held to what it declares."""

from collections.abc import Callable

from headrace.distribute.spark.errors import SparkFunctionError
from headrace.distribute.spark.frames import column_named
from headrace.distribute.spark.task_payload import travels
from headrace.distribute.spark.types import SPARK_TYPES, DataFrame
from headrace.pipeline.loading.code_digests import named_function
from headrace.pipeline.source import SparkFunction


def applied(function: SparkFunction, rows: DataFrame) -> DataFrame:
    """What ``function`` makes of ``rows``: the columns of theirs that start with ``_``, then those that it declares.

    Raises SparkFunctionError.
    """
    ours = [name for name in rows.columns if name.startswith("_")]
    try:
        result = _resolve(function)(rows)
    except SparkFunctionError:
        raise
    except Exception as error:
        raise SparkFunctionError(f"Spark function {function.name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame):
        raise SparkFunctionError(f"Spark function {function.name} gives {type(result).__name__}, not a DataFrame")
    lost = [name for name in ours if name not in result.columns]
    if lost:
        raise SparkFunctionError(
            f"Spark function {function.name} loses column {lost[0]}: columns that start with _ say where a record is "
            f"from; add columns with withColumn or select('*', ...), and drop only your own"
        )
    for name, kind in function.returns.items():
        if name not in result.columns:
            raise SparkFunctionError(f"Spark function {function.name} declares column {name}, and does not give it")
        kind_given = result.schema[name].dataType
        if kind_given != SPARK_TYPES[kind]:
            raise SparkFunctionError(
                f"Spark function {function.name} declares column {name} as {kind}, which is Spark's "
                f"{SPARK_TYPES[kind].simpleString()}, and gives {kind_given.simpleString()}; cast it"
            )
    return result.select(*map(column_named, ours), *map(column_named, function.returns))


def _resolve(function: SparkFunction) -> Callable[[DataFrame], object]:
    named = named_function(f"Spark function {function.name}", function.name, function.package, SparkFunctionError)
    travels(named.module)  # with its own functions for rows
    return named.function
