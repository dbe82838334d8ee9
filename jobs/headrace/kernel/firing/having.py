"""What is computed of rows of results: columns over aggregates, and whether a row leaves (semantics 8.4, 9.10)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.expressions.evaluation import column
from headrace.kernel.firing.overflows import located
from headrace.kernel.grouping import Ints, truths
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import timestamps
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.result_columns import in_order
from headrace.model.expressions.traversal import columns_of
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.program import columns as c

Columns = Mapping[str, pa.Array]


def columns_of_results(stage: CompiledStage, aggregates: Columns, rows: Columns, which: Ints) -> dict[str, pa.Array]:
    """What is computed of the ``aggregates`` of those windows of ``rows`` that ``which`` names.

    Raises ValueOverflowError for a value that its type does not hold.
    """
    results = stage.stage.aggregation.results
    window = [rows[name].take(pa.array(which)) for name in (c.WINDOW_START, c.WINDOW_END)]
    values = {name: made.cast(stage.pane_type.field(name).type) for name, made in aggregates.items()}
    rows_of_results = _ResultRows.of(stage, rows, which, {**values, WINDOW_START: window[0], WINDOW_END: window[1]})
    for name, expr in in_order(results).items():
        rows_of_results.row[name] = rows_of_results.computed(f"column {name!r}", expr)
    return {name: rows_of_results.row[name] for name in results}


def lets_out(stage: CompiledStage, panes: pa.StructArray, rows: Columns, which: Ints) -> NDArray[np.bool_]:
    """Whether ``having`` is TRUE of each of ``panes``, of those windows of ``rows``: of one pane always the same."""
    condition = stage.stage.aggregation.having
    assert condition is not None
    values = {name: panes.field(name) for name in (*stage.stage.value_types, WINDOW_START, WINDOW_END)}
    return truths(_ResultRows.of(stage, rows, which, values).computed("having", condition))


@dataclass(frozen=True)
class _ResultRows:
    """Rows of results, one for each of ``windows`` that ``which`` names: the columns that expressions read."""

    stage: CompiledStage
    windows: Columns
    which: Ints
    row: dict[str, pa.Array]

    @classmethod
    def of(cls, stage: CompiledStage, windows: Columns, which: Ints, values: Columns) -> "_ResultRows":
        """Rows of these ``values``, with the ends of a window in granules."""
        keys = {name: windows[name].take(pa.array(which)) for name in stage.keys}
        ends = {name: timestamps(values[name]) for name in (WINDOW_START, WINDOW_END)}
        return cls(stage, windows, which, {**keys, **values, **ends})

    def computed(self, what: str, expr: Expr) -> pa.Array:
        """``expr`` over each row. Raises ValueOverflowError, of ``what``."""
        read = {name: self.row[name] for name in columns_of(expr) | {WINDOW_START}}  # which each row has
        windows = {name: self.windows[name] for name in self.stage.identity}
        return located(what, lambda columns: self._of(expr, columns), read, windows, self.which)

    def _of(self, expr: Expr, columns: Columns) -> pa.Array:
        return column(expr, columns, self.stage.stage.pane_schema, len(columns[WINDOW_START]))
