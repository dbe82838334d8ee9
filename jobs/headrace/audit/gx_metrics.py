# mypy: disable-error-code="misc"
"""What Great Expectations' engines for pandas and for Spark do otherwise: here both give the same.

``pandas_frame`` and ``without_pruning`` give rows in which NaN is a value (Semantics 12.23). The metrics below belong
to two engines of ours, which have all others from the library. What else uses it in this process keeps its own. NULL is
neither less nor greater than a value, and equals NULL. A sum with a NULL equals nothing, and a sum of nothing is 0. A
least or greatest value that is NaN lies between no bounds. No value has a z-score beside NaN or an infinity. A quantile
is a value that is there, and no NaN.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from great_expectations.compatibility.pyspark import functions, types
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import ExecutionEngine, PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations import metrics
from great_expectations.expectations.metrics import column_aggregate_metric_provider as aggregates
from great_expectations.expectations.metrics import map_metric_provider as maps
from great_expectations.expectations.metrics.metric_provider import metric_value

from headrace.formats.fields import with_json


class NotANumber(np.float64):
    """NaN as a value: it equals itself and is above all numbers. pandas takes the NaN of floats for NULL."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return isinstance(other, NotANumber)

    def __ne__(self, other: object) -> Any:
        return not isinstance(other, NotANumber)

    def __lt__(self, _: object) -> Any:
        return False

    __le__, __gt__ = __eq__, __ne__

    def __ge__(self, _: object) -> Any:
        return True

    def __hash__(self) -> int:
        return hash(NotANumber)


NAN: Final = NotANumber("nan")

_DTYPES: Final = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """``table`` for pandas: integers and booleans stay what they are beside NULLs, lists are JSON, NaN is ``NAN``."""
    frame: pd.DataFrame = with_json(table).to_pandas(types_mapper=_DTYPES.get)
    for name in table.column_names:
        if pa.types.is_floating(table.schema.field(name).type):
            is_nan = pc.fill_null(pc.is_nan(table.column(name)), False).to_numpy()
            if is_nan.any():
                frame[name] = _with_nan(frame[name], is_nan)
    return frame


def _with_nan(values: "pd.Series[Any]", is_nan: "np.ndarray[Any, Any]") -> "pd.Series[Any]":
    objects = np.empty(len(values), dtype=object)
    objects[:] = [*values.to_numpy()]  # of numpy's class, which is what an expectation of a type looks for
    objects[is_nan] = NAN
    return pd.Series(objects, index=values.index, dtype=object)


class GxPandasEngine(PandasExecutionEngine):
    """The library's, with our metrics: it looks them up by the name of the class, then of its bases."""


class GxSparkEngine(SparkDFExecutionEngine):
    """The same for Spark."""


_PANDAS = {"engine": GxPandasEngine}
_SPARK = {"engine": GxSparkEngine}


def use_engine(source: Any, engine: type[ExecutionEngine]) -> None:
    """Let ``source`` of the library look at its rows with ``engine``.

    Its ``execution_engine_override`` is for a class of sources, and a class would be registered for the whole process.
    """
    object.__setattr__(source, "_execution_engine_type", lambda: engine)  # pydantic allows no such attribute


def _compare_columns(left: Any, right: Any, compare: Callable[[Any, Any], Any], *, of_nulls: bool) -> Any:
    """Whether ``compare`` holds for each row; ``of_nulls``: where both are NULL."""
    has_both = (left.notnull() & right.notnull()).to_numpy()
    holds = (left.isnull() & right.isnull()).to_numpy() if of_nulls else np.zeros(len(left), dtype=bool)
    holds[has_both] = compare(left[has_both], right[has_both]).astype(bool)
    return pd.Series(holds, index=left.index)


def _is_greater(_: Any, left: Any, right: Any, or_equal: bool | None = False, **_more: Any) -> Any:
    compare = operator.ge if or_equal else operator.gt
    return _compare_columns(left, right, compare, of_nulls=bool(or_equal))


def _is_greater_on_spark(_: Any, left: Any, right: Any, or_equal: bool | None = False, **_more: Any) -> Any:
    is_greater = functions.coalesce(left > right, functions.lit(False))
    return is_greater | left.eqNullSafe(right) if or_equal else is_greater


class GreaterColumn(metrics.ColumnPairValuesAGreaterThanB):
    """Whether one column is greater than another."""

    _pandas = maps.column_pair_condition_partial(**_PANDAS)(_is_greater)
    _spark = maps.column_pair_condition_partial(**_SPARK)(_is_greater_on_spark)


def _is_equal(_: Any, left: Any, right: Any, **_more: Any) -> Any:
    return _compare_columns(left, right, operator.eq, of_nulls=True)


class EqualColumn(metrics.ColumnPairValuesEqual):
    """Whether two columns are equal."""

    _pandas = maps.column_pair_condition_partial(**_PANDAS)(_is_equal)


def _are_all_equal(_: Any, column_list: Any, **_more: Any) -> Any:
    first, *others = (column for _, column in column_list.items())
    same = [_compare_columns(other, first, operator.eq, of_nulls=True) for other in others]
    return reduce(operator.and_, same, pd.Series(True, index=first.index))


class EqualColumns(metrics.MulticolumnValuesEqual):
    """Whether all columns are equal."""

    _pandas = maps.multicolumn_condition_partial(**_PANDAS)(_are_all_equal)


def _are_all_different(_: Any, column_list: Any, **_more: Any) -> Any:
    pairs = combinations((column for _, column in column_list.items()), 2)
    same = [_compare_columns(left, right, operator.eq, of_nulls=True) for left, right in pairs]
    return ~reduce(operator.or_, same, pd.Series(False, index=column_list.index))


class DifferentColumns(metrics.SelectColumnValuesUniqueWithinRecord):
    """Whether no two columns are equal."""

    _pandas = maps.multicolumn_condition_partial(**_PANDAS)(_are_all_different)


def _equals_total(_: Any, column_list: Any, sum_total: float, **_more: Any) -> Any:
    is_whole = column_list.notnull().all(axis=1).to_numpy()
    holds = np.zeros(len(column_list), dtype=bool)
    holds[is_whole] = (column_list[is_whole].sum(axis=1, skipna=False) == sum_total).astype(bool)
    return pd.Series(holds, index=column_list.index)


def _equals_total_on_spark(_: Any, column_list: Any, sum_total: float, **_more: Any) -> Any:
    total = reduce(operator.add, (_without_overflow(column_list, name) for name in column_list.columns))
    return functions.coalesce(total == functions.lit(sum_total), functions.lit(False))


def _without_overflow(rows: Any, name: str) -> Any:
    """The column of ``rows``, wider if it has integers."""
    is_whole = isinstance(rows.schema[name].dataType, types.IntegralType)
    return _column_named(name).cast(types.DecimalType(38, 0)) if is_whole else _column_named(name)


class RowTotal(metrics.MulticolumnSumEqual):
    """Whether the columns of each row add up to a number."""

    _pandas = maps.multicolumn_condition_partial(**_PANDAS)(_equals_total)
    _spark = maps.multicolumn_condition_partial(**_SPARK)(_equals_total_on_spark)


def _sum_on_spark(_: Any, column: Any, _table: Any, _column_name: str, **_more: Any) -> Any:
    is_whole = isinstance(_table.schema[_column_name].dataType, types.IntegralType)
    wide_column = column.cast(types.DoubleType()) if is_whole else column  # Spark refuses a sum that overflows
    return functions.coalesce(functions.sum(wide_column), functions.lit(0))


class ColumnTotal(metrics.ColumnSum):
    """The sum of a column."""

    _spark = aggregates.column_aggregate_partial(**_SPARK)(_sum_on_spark)


def _greatest_value(_: Any, column: Any, **_more: Any) -> Any:
    return _as_float(column.max())


def _least_value(_: Any, column: Any, **_more: Any) -> Any:
    return _as_float(column.min())


def _as_float(value: Any) -> Any:
    return math.nan if value is NAN else value


class GreatestValue(metrics.ColumnMax):
    """The greatest value of a column."""

    _pandas = aggregates.column_aggregate_value(**_PANDAS)(_greatest_value)


class LeastValue(metrics.ColumnMin):
    """The least value of a column."""

    _pandas = aggregates.column_aggregate_value(**_PANDAS)(_least_value)


def _score_values(_: Any, column: Any, _metrics: Any, **_more: Any) -> Any:
    mean, deviation = _metrics["column.mean"], _metrics["column.standard_deviation"]
    if pd.isna(mean) or not math.isfinite(mean):
        return pd.Series(math.inf, index=column.index)
    if pd.isna(deviation) or not deviation:  # one value, or equal ones: NaN passes
        return pd.Series(math.nan, index=column.index)
    return (column - mean) / deviation


def _score_values_on_spark(_: Any, column: Any, _metrics: Any, **_more: Any) -> Any:
    mean, deviation = _metrics["column.mean"], _metrics["column.standard_deviation"]
    if mean is None or not math.isfinite(mean):  # one that is NaN is given as None
        return functions.lit(math.inf)
    return (column - mean) / deviation if deviation else functions.lit(None)


class DeviationScore(metrics.ColumnValuesZScore):
    """How many standard deviations a value is away. Beside NaN or an infinity none is near."""

    _pandas_function = maps.column_function_partial(**_PANDAS)(_score_values)
    _spark_function = maps.column_function_partial(**_SPARK)(_score_values_on_spark)


def _count_in_bins(execution_engine: Any, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:
    rows, _domain, accessor = execution_engine.get_compute_domain(
        domain_kwargs=metric_domain_kwargs, domain_type=MetricDomainTypes.COLUMN
    )
    numbers = _without_nan(rows[accessor["column"]]).to_numpy(dtype=float)
    return [*np.histogram(numbers, metric_value_kwargs["bins"])[0]]


def _without_nan(column: Any) -> Any:
    """Values that are neither NULL nor NaN."""
    values = column.dropna()
    return values[values != NAN] if values.dtype == object else values


class ColumnBins(metrics.ColumnHistogram):
    """How many values are between bounds; NaN is beyond the last."""

    _pandas = metric_value(**_PANDAS)(_count_in_bins)


def _values_at(_: Any, column: Any, quantiles: Sequence[float], **_more: Any) -> list[Any]:
    values = _without_nan(column).sort_values()
    places = [max(0, math.ceil(quantile * len(values)) - 1) for quantile in quantiles]
    return [values.iloc[place] if len(values) else None for place in places]


class PresentQuantiles(metrics.ColumnQuantileValues):
    """The least value, of each quantile, that is not below that share of the values."""

    _pandas = aggregates.column_aggregate_value(**_PANDAS)(_values_at)


def float_columns(rows: Any) -> list[str]:
    """The columns of Spark's ``rows`` that are floats."""
    return [field.name for field in rows.schema if isinstance(field.dataType, types.DoubleType | types.FloatType)]


def without_pruning(rows: Any) -> Any:
    """``rows`` of Spark in which a filter finds NaN: rows that are persisted have statistics that leave it out."""
    nan = functions.lit(math.nan)
    return rows.withColumns({name: functions.nanvl(_column_named(name), nan) for name in float_columns(rows)})


def _column_named(name: str) -> Any:
    return functions.col(f"`{name.replace('`', '``')}`")
