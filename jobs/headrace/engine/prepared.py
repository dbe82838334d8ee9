"""Lists of columns that are handed to the JVM once and used in every epoch: each column in a list costs a call of Py4J,
and another one when Python lets go of it. What they give is what ``select`` and ``groupBy(...).agg(...)`` give.
"""

from collections.abc import Iterable
from typing import Any

from headrace.engine.types import DataFrame, SparkColumn


class Selection:
    """Columns to select, or to group by, in the order given."""

    def __init__(self, columns: Iterable[SparkColumn | str]) -> None:
        self._columns = list(columns)
        self._in_jvm: Any = None

    def of(self, rows: DataFrame) -> DataFrame:
        """``rows.select(*columns)``."""
        return _frame(rows, rows._jdf.select(self.in_jvm(rows)))

    def in_jvm(self, rows: DataFrame) -> Any:
        """The list as the JVM that holds ``rows`` has it."""
        if self._in_jvm is None:
            self._in_jvm = rows._jcols(*self._columns)  # type: ignore[operator]
        return self._in_jvm


class Aggregates:
    """Aggregates over groups."""

    def __init__(self, by: Iterable[SparkColumn | str], aggregates: Iterable[SparkColumn]) -> None:
        self._by = Selection(by)
        self._first, *rest = aggregates
        self._rest = Selection(rest)

    def of(self, rows: DataFrame) -> DataFrame:
        """``rows.groupBy(*by).agg(*aggregates)``."""
        grouped = rows._jdf.groupBy(self._by.in_jvm(rows))
        return _frame(rows, grouped.agg(self._first._jc, self._rest.in_jvm(rows)))


def _frame(rows: DataFrame, made: Any) -> DataFrame:
    return type(rows)(made, rows.sparkSession)
