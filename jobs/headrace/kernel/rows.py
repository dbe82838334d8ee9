"""Rows that leave: of judged elements each by itself, without a key and without state; or of the panes of a stage,
whose values are the rows of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates.group_rows import combined
from headrace.kernel.aggregates.ordering import changes, in_order
from headrace.kernel.columns import Ints, as_numpy, constant, of_ids, of_lists, timestamps
from headrace.kernel.delta import Accounting, Columns, Disposition, account_of_rows, fates_of
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import Counts, StageResult
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.model.time import Instant
from headrace.program import columns as c

TASK_BITS = 40
"""A task numbers its rows in so many bits: two rows of an epoch have two numbers."""


@dataclass(frozen=True)
class LeavingRows:
    """What leaves of some elements: ``rows`` as ``CompiledStage.pane_schema`` says, None if nothing does; and what
    became of all.
    """

    rows: pa.RecordBatch | None = None
    accounting: Accounting = field(default_factory=Accounting)
    counts: Counts = field(default_factory=Counts)


def select_rows(stage: CompiledStage, judged: Columns, watermark: Instant, *, epoch: int, task: int) -> LeavingRows:
    """The rows of ``judged`` elements that are accepted, in their order, under the ``watermark`` that the last epoch
    left: what is behind it leaves, too, and is LATE. ``task`` is the number of who computes them in the epoch.
    """
    fates = fates_of(judged)
    accepted = np.flatnonzero(fates == Disposition.ACCEPTED)
    accounting = account_of_rows(judged, fates, accepted)
    if not len(accepted):
        return LeavingRows(None, accounting)
    everything = len(accepted) == len(fates)
    places = None if everything else pa.array(accepted)

    def of(name: str) -> pa.Array:
        return judged[name] if places is None else judged[name].take(places)

    at = of(c.EVENT_TIME)
    columns = {name: of(name) for name in stage.stage.row_columns}
    columns[EVENT_TIME] = timestamps(at)
    columns["timing"], late = _timing(at, watermark)
    withdrawn = pc.less(of(c.SIGN), constant(0)) if stage.stage.withdrawable else None
    columns["is_retraction"] = pa.repeat(constant(False), len(at)) if withdrawn is None else withdrawn
    columns["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), len(at))
    columns["sequence"] = pa.array(_numbered(len(at), task))
    rows = pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)
    return LeavingRows(rows, accounting, _counts(late, withdrawn, len(at)))


def rows_of_groups(result: StageResult, *, first: int) -> pa.RecordBatch:
    """The rows that leave of the panes of an epoch, as ``CompiledStage.pane_schema`` says, numbered from ``first`` on:
    what a later pane of an epoch gives again leaves once, and what stays does not leave.
    """
    stage, emission = result.stage, result.emission
    rows, groups = of_lists(emission.panes.field(c.ROWS))
    pane = groups.of_row
    at, *values = rows.flatten()
    columns = dict(zip(stage.stage.row_columns, values, strict=True))
    if stage.stage.shows_windows:
        ends = (emission.panes.field(name).take(pa.array(pane)) for name in (WINDOW_START, WINDOW_END))
        columns |= {name: timestamps(end) for name, end in zip((WINDOW_START, WINDOW_END), ends, strict=True)}
    signs = np.where(emission.is_retraction[pane], -1, 1)
    identity = [at, *columns.values()]
    left = net_rows(identity, signs, emission.row[pane])
    columns[EVENT_TIME] = timestamps(at)
    taken = pa.array(left)
    columns = {name: column.take(taken) for name, column in columns.items()}
    columns["timing"] = emission.panes.field("timing").take(pa.array(pane[left]))
    columns["is_retraction"] = pa.array(signs[left] < 0)
    columns["epoch"] = pa.repeat(pa.scalar(result.epoch, pa.int64()), len(left))
    columns["sequence"] = pa.array(np.arange(first, first + len(left), dtype=np.int64))
    return pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)


def net_rows(columns: Sequence[pa.Array], signs: Ints, group: Ints) -> Ints:
    """Find which of some rows are left where a row and its withdrawal in one ``group`` make nothing: of equal ones the
    last, in their order.
    """
    if not (signs < 0).any():
        return np.arange(len(signs))
    codes = combined(columns, len(signs))
    order = in_order(group, codes)
    begins = changes(group[order], codes[order])
    groups = of_ids(np.cumsum(begins) - 1, int(begins.sum()))
    ordered = signs[order]
    net = np.repeat(groups.reduce(np.add, ordered, 0), groups.sizes)
    is_alike = ordered == np.sign(net)
    after = np.cumsum(is_alike[::-1])[::-1]
    ends = np.append(after, 0)[groups.offsets[1:]]
    rank = after - np.repeat(ends, groups.sizes)  # from the last one on
    return np.sort(order[is_alike & (rank <= np.abs(net))])


def counts_of_rows(rows: pa.RecordBatch, of_panes: Counts) -> Counts:
    """What became of the windows of an epoch, by the ``rows`` that left."""
    retracts = as_numpy(rows.column("is_retraction"))
    timing = rows.column("timing")
    of = {kind: int((as_numpy(pc.equal(timing, constant(kind.value))) & ~retracts).sum()) for kind in Timing}
    return replace(
        of_panes,
        early=of[Timing.EARLY],
        on_time=of[Timing.ON_TIME],
        late=of[Timing.LATE],
        retractions=int(retracts.sum()),
    )


def _numbered(length: int, task: int) -> Ints:
    return np.arange(length, dtype=np.int64) + (task << TASK_BITS)


def _timing(at: pa.Array, watermark: Instant) -> tuple[pa.Array, pa.Array | None]:
    """The timing of rows at these times; and which are late, None if none is."""
    on_time, late = constant(Timing.ON_TIME.value), constant(Timing.LATE.value)
    if pc.min(at).as_py() >= watermark:
        return pa.repeat(on_time, len(at)), None
    is_late = pc.less(at, constant(int(watermark)))
    return pc.if_else(is_late, late, on_time), is_late


def _counts(late: pa.Array | None, withdrawn: pa.Array | None, length: int) -> Counts:
    retracts = np.zeros(length, np.bool_) if withdrawn is None else as_numpy(withdrawn)
    is_late = np.zeros(length, np.bool_) if late is None else as_numpy(late)
    return Counts(
        on_time=int((~is_late & ~retracts).sum()),
        late=int((is_late & ~retracts).sum()),
        retractions=int(retracts.sum()),
    )
