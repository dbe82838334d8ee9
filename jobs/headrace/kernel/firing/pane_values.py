"""The values of panes: of what aggregates are, what is computed of them, and what their type cannot hold.

Results that their type does not hold: which window of which key it is, and what a person can do about it.

What is computed of rows of results: columns over aggregates, and whether a row leaves (semantics 8.4, 9.10).

The values of panes: what the aggregates of a stage are over the contents of windows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import ValueOverflowError
from headrace.kernel.aggregates import Accumulator, unpacked
from headrace.kernel.expressions.evaluation import column
from headrace.kernel.grouping import Ints, of_lists, truths, valid
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import timestamps
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.columns import in_order
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.trees import columns_of
from headrace.model.time import Instant, render
from headrace.program import columns as c

Result = Callable[[Mapping[str, pa.Array]], pa.Array]
"""Makes a column of results of columns that have a row for each."""

WAYS_OUT = (
    "give it a wider type (a sum of integers as .cast(Decimal), any as .cast(float), which rounds), filter such "
    "records out, or correct them"
)


def result_of(
    name: str, accumulator: Accumulator, contents: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """The aggregate ``name`` of the windows of ``rows`` that ``which`` names, whose ``contents`` these are.

    Raises ValueOverflowError, saying of which key and window, for the first result that its type does not hold.
    """
    return located(f"aggregate {name!r}", accumulator.result, contents, rows, which)


def located(
    what: str, result: Result, columns: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """``result`` of the ``columns`` of those windows. Raises ValueOverflowError as ``result_of`` does, of ``what``."""
    try:
        return result(columns)
    except ValueOverflowError:
        at = _first_overflow(result, columns, len(which))
    try:
        return result(_some(columns, at, 1))  # which says its own value
    except ValueOverflowError as error:
        place = _place(rows, int(which[at]))
        raise type(error)(
            f"{what} of {place}: {error}. Nothing of this epoch is committed: {WAYS_OUT}. A pipeline whose "
            "aggregates or filter change computes their history again with a backfill"
        ) from None


def _first_overflow(result: Result, columns: Mapping[str, pa.Array], length: int) -> int:
    """The position of the first of ``length`` results that does not fit, found by halving."""
    first = 0
    while length > 1:
        half = length // 2
        try:
            result(_some(columns, first, half))
        except ValueOverflowError:
            length = half
        else:
            first, length = first + half, length - half
    return first


def _some(columns: Mapping[str, pa.Array], first: int, length: int) -> dict[str, pa.Array]:
    taken = pa.array(range(first, first + length))
    return {name: values.take(taken) for name, values in columns.items()}


def _place(rows: Mapping[str, pa.Array], row: int) -> str:
    names: Sequence[str] = [name for name in rows if not name.startswith("_")]
    key = ", ".join(f"{name}={rows[name][row].as_py()!r}" for name in names)
    start, end = (render(Instant(rows[name][row].as_py())) for name in (c.WINDOW_START, c.WINDOW_END))
    return f"{f'key {key}' if key else 'all records'} in the window from {start} to {end}"


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


def results(
    stage: CompiledStage, rows: Mapping[str, pa.Array], which: Ints, cleared: NDArray[np.bool_]
) -> dict[str, pa.Array]:
    """The aggregates of those windows of ``rows`` that ``which`` names; contents are empty where ``cleared``."""
    taken = None if len(which) == len(rows[c.WINDOW_START]) else pa.array(which)
    empty = pa.array(cleared) if cleared.any() else None
    contents = {}
    for part in stage.parts:
        stored = rows[part.name] if taken is None else rows[part.name].take(taken)
        contents[part.name] = stored if empty is None else pc.if_else(empty, pa.scalar(None, stored.type), stored)
    if stage.how.keep_last is not None:
        contents = unpacked(contents[c.KEPT], stage.aggregated, stage.input_column)
    named = {column: rows[column] for column in stage.identity if column in rows}
    values = {
        name: result_of(name, accumulator, contents, named, which) for name, accumulator in stage.accumulators.items()
    }
    return values | columns_of_results(stage, values, rows, which) if stage.stage.aggregation.results else values


def beside_live(stage: CompiledStage, rows: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Where unchanged panes are elided: whether the only live pane of a window is what a pane would be now, and its
    timestamp (semantics 9.1). A retracting window holds the same throughout an epoch.
    """
    live = rows[c.LIVE]
    alone = truths(pc.equal(pc.list_value_length(live), 1))
    which = np.flatnonzero(alone)
    panes, _ = of_lists(live.take(pa.array(which)))
    now = results(stage, rows, which, np.zeros(len(which), np.bool_))
    equal = np.ones(len(which), np.bool_)
    for own, name in ((c.WINDOW_START, WINDOW_START), (c.WINDOW_END, WINDOW_END)):
        equal &= rows[own].to_numpy()[which] == panes.field(name).to_numpy()
    for name, values in now.items():
        equal &= same(values.cast(stage.pane_type.field(name).type), panes.field(name))
    is_same, time = np.zeros(len(live), np.bool_), np.zeros(len(live), np.int64)
    is_same[which], time[which] = equal, panes.field("pane_time").to_numpy()
    return {c.SAME: pa.array(is_same), c.LIVE_TIME: pa.array(time, mask=~alone)}


def same(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Where two columns of one type are equal: NULL equals NULL, and NaN NaN."""
    known, kind = valid(left), left.type
    if pa.types.is_list(kind):
        equal = _same_lists(left, right)
    elif pa.types.is_struct(kind):
        equal = np.ones(len(left), np.bool_)
        for i in range(kind.num_fields):
            equal &= same(left.field(i), right.field(i))
    else:
        equal = truths(pc.equal(left, right))
    if pa.types.is_floating(kind):
        equal = equal | truths(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    unchanged: NDArray[np.bool_] = ~(known ^ valid(right)) & (~known | equal)
    return unchanged


def _same_lists(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    (items, groups), (others, beside) = of_lists(left), of_lists(right)
    equal: NDArray[np.bool_] = groups.sizes == beside.sizes
    known = np.flatnonzero(equal & (groups.sizes > 0))
    (items, groups), (others, _) = of_lists(left.take(pa.array(known))), of_lists(right.take(pa.array(known)))
    equal[known] = groups.reduce(np.minimum, same(items, others).astype(np.int8), 1) > 0
    return equal
