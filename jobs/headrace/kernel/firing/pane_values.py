"""The values of panes: what the aggregates of a stage are over the contents of windows."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates import unpacked
from headrace.kernel.firing.having import columns_of_results
from headrace.kernel.firing.overflows import result_of
from headrace.kernel.grouping import Ints, of_lists, truths, valid
from headrace.kernel.stage import CompiledStage
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.program import columns as c


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
