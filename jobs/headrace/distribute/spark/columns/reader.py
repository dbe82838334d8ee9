"""Figures of columns of a DataFrame: exact, and the same as those of a table in one process."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from headrace.distribute.column_figures import LONGEST_TEXT, Blamed, BlamedRows
from headrace.distribute.spark.types import DataFrame, SparkColumn
from headrace.distribute.spark.view_frames import column_named

_TEXTS: Final = ("string", "boolean")
_FLOATS: Final = ("double", "float")


class SparkColumns:
    """Columns of ``frame``, which is scanned several times: persist it before."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._kinds = dict(frame.dtypes)

    def missing(self, columns: Sequence[str]) -> Mapping[str, int]:
        """How many values of each are NULL, or floats that are not finite: one scan."""
        counts = [f.count_if(self._is_missing(name)).alias(str(place)) for place, name in enumerate(columns)]
        (row,) = self._frame.agg(*counts).collect() if counts else ([],)
        return dict(zip(columns, row, strict=True))

    def is_text(self, column: str) -> bool:
        """Whether it is text or a boolean, and no number."""
        return self._kinds[column] in _TEXTS

    def frequent(self, column: str, number: int) -> list[tuple[str, int]]:
        """The most frequent texts and how often they come; the first in order of those that are as frequent."""
        texts = self._frame.select(self._text(column).alias("text")).where(f.col("text").isNotNull())
        counted = texts.groupBy("text").agg(f.count("*").alias("number"))
        best = counted.orderBy(f.desc("number"), f.asc("text")).limit(number)
        return [(row.text, row.number) for row in best.collect()]

    def at_ranks(self, column: str, places: Sequence[int]) -> Mapping[int, float]:
        """The finite numbers at ``places`` (from 1 on) when they are sorted.

        Equal values are counted before they are sorted, which one task does: it spills what does not fit.
        """
        if not places:
            return {}
        finite = self._frame.where(~self._is_missing(column)).select(column_named(column).alias("value"))
        counted = finite.groupBy("value").agg(f.count("*").alias("number"))
        so_far = f.sum("number").over(Window.orderBy("value").rowsBetween(Window.unboundedPreceding, 0))
        ending = counted.withColumn("last", so_far)
        wanted = f.array(*map(f.lit, places))
        here = f.filter(wanted, lambda place: (place <= f.col("last")) & (place > f.col("last") - f.col("number")))
        ranked = ending.withColumn("places", here).where(f.size("places") > 0).select("value", "places").collect()
        return {place: float(row.value) + 0.0 for row in ranked for place in row.places}  # no negative zero

    def rows(self, condition: BlamedRows, order: Sequence[str], number: int) -> pa.Table:
        """The first rows in ``order`` that fulfil ``condition``: the columns of both."""
        names = [*dict.fromkeys((*order, condition.column))]
        fulfilling = self._frame.where(self._fulfils(condition)).orderBy(
            *(column_named(name).asc_nulls_last() for name in order)
        )
        table: pa.Table = fulfilling.limit(number).select(*map(column_named, names)).toArrow()
        return table

    def _is_missing(self, column: str) -> SparkColumn:
        value = column_named(column)
        if self._kinds[column] not in _FLOATS:
            return value.isNull()
        return value.isNull() | f.isnan(value) | (f.abs(value) == float("inf"))

    def _text(self, column: str) -> SparkColumn:
        return f.substring(column_named(column).cast("string"), 1, LONGEST_TEXT)

    def _fulfils(self, condition: BlamedRows) -> SparkColumn:
        match condition.blamed:
            case Blamed.MISSING:
                return self._is_missing(condition.column)
            case Blamed.TEXT:
                return cast("SparkColumn", self._text(condition.column) == condition.value)
        value, bound = column_named(condition.column).cast("double"), f.lit(condition.value)
        is_beyond = value > bound if condition.blamed is Blamed.ABOVE else value < bound
        return ~self._is_missing(condition.column) & is_beyond
