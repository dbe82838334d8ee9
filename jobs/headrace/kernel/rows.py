"""Rows that leave: of judged elements each by itself, without key and state, or of the panes of a stage.

The values of such a pane are the rows of a group.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates.ordering import changed_rows, distinct_pairs, in_order, rank_rows
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy, of_ids, of_lists, to_timestamps
from headrace.kernel.delta import Accounting, Columns, Disposition, account_of_rows, fates_of
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import Counts, StageResult
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.model.time import Instant
from headrace.program import columns as c

TASK_BITS = 40
"""A task numbers its rows in so many bits: two rows of an epoch have two numbers."""


class LeavingRows(msgspec.Struct, frozen=True):
    """What leaves of elements: ``rows`` as ``CompiledStage.pane_schema`` says (None: nothing); what became of all."""

    rows: pa.RecordBatch | None = None
    accounting: Accounting = msgspec.field(default_factory=Accounting)
    counts: Counts = msgspec.field(default_factory=Counts)


def select_rows(
    stage: CompiledStage, judged_rows: Columns, watermark: Instant, *, epoch: int, task: int, first: int = 0
) -> LeavingRows:
    """The rows of ``judged_rows`` that are accepted, in their order. Rows behind ``watermark``, which the last epoch
    left, leave, too, and are LATE. ``task`` is the number of who computes them in the epoch, which numbers its rows
    from ``first`` on.
    """
    fates = fates_of(judged_rows)
    accepted_rows = np.flatnonzero(fates == Disposition.ACCEPTED)
    accounting = account_of_rows(judged_rows, fates, accepted_rows)
    if not len(accepted_rows):
        return LeavingRows(None, accounting)
    everything = len(accepted_rows) == len(fates)
    places = None if everything else pa.array(accepted_rows)

    def column_named(name: str) -> pa.Array:
        return judged_rows[name] if places is None else judged_rows[name].take(places)

    event_times = column_named(c.EVENT_TIME)
    columns = {name: column_named(name) for name in stage.stage.row_columns}
    columns[EVENT_TIME] = to_timestamps(event_times)
    columns["timing"], late = _row_timing(event_times, watermark)
    withdrawn = pc.less(column_named(c.SIGN), arrow_scalar(0)) if stage.stage.withdrawable else None
    columns["is_retraction"] = pa.repeat(arrow_scalar(False), len(event_times)) if withdrawn is None else withdrawn
    columns["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), len(event_times))
    columns["sequence"] = pa.array(np.arange(len(event_times), dtype=np.int64) + (task << TASK_BITS) + first)
    rows = pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)
    return LeavingRows(rows, accounting, _row_counts(late, withdrawn, len(event_times)))


def rows_of_groups(result: StageResult, *, first: int) -> pa.RecordBatch:
    """The rows that leave of the panes of an epoch, as ``CompiledStage.pane_schema`` says, numbered from ``first`` on.
    A row that several panes of an epoch give leaves once; a row that stays does not leave.
    """
    stage, emission = result.stage, result.emission
    rows, groups = of_lists(emission.panes.field(c.ROWS))
    pane = groups.of_row
    event_times, *values = rows.flatten()
    columns = dict(zip(stage.stage.leaving_types, values, strict=True))
    if stage.stage.shows_windows:
        begin, end = (emission.panes.field(name).take(pa.array(pane)) for name in (WINDOW_START, WINDOW_END))
        columns |= {WINDOW_START: to_timestamps(begin), WINDOW_END: to_timestamps(end)}
        event_times = pc.coalesce(event_times, pc.subtract(end, arrow_scalar(1)))
    signs = np.where(emission.is_retraction[pane], -1, 1)
    identity = [event_times, *columns.values()]
    left = net_rows(identity, signs, emission.row[pane])
    columns[EVENT_TIME] = to_timestamps(event_times)
    indices = pa.array(left)
    columns = {name: column.take(indices) for name, column in columns.items()}
    columns["timing"] = emission.panes.field("timing").take(pa.array(pane[left]))
    columns["is_retraction"] = pa.array(signs[left] < 0)
    columns["epoch"] = pa.repeat(pa.scalar(result.epoch, pa.int64()), len(left))
    columns["sequence"] = pa.array(np.arange(first, first + len(left), dtype=np.int64))
    return pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)


def net_rows(columns: Sequence[pa.Array], signs: Ints, group: Ints) -> Ints:
    """Find the rows that are left where a row and its withdrawal in one ``group`` cancel out. Among equal rows the last
    ones are left, in their order.
    """
    if not (signs < 0).any():
        return np.arange(len(signs))
    codes = distinct_pairs(group, rank_rows(columns, len(signs)))[0]
    # a sort of the codes alone would put equal rows in any order, and the last of them must stay the last
    order = in_order(codes, np.arange(len(codes)))
    begins = changed_rows(codes[order])
    groups = of_ids(np.cumsum(begins) - 1, int(begins.sum()))
    signs_in_order = signs[order]
    net = np.repeat(groups.reduce(np.add, signs_in_order, 0), groups.sizes)
    is_alike = signs_in_order == np.sign(net)
    alike_from_here = np.cumsum(is_alike[::-1])[::-1]
    ends = np.append(alike_from_here, 0)[groups.offsets[1:]]
    rank = alike_from_here - np.repeat(ends, groups.sizes)  # from the last one on
    return np.sort(order[is_alike & (rank <= np.abs(net))])


def counts_of_rows(rows: pa.RecordBatch, of_panes: Counts) -> Counts:
    """What became of the windows of an epoch, by the ``rows`` that left."""
    retracts = as_numpy(rows.column("is_retraction"))
    timing = rows.column("timing")
    rows_by_timing = {
        kind: int((as_numpy(pc.equal(timing, arrow_scalar(kind.value))) & ~retracts).sum()) for kind in Timing
    }
    return replace(
        of_panes,
        early=rows_by_timing[Timing.EARLY],
        on_time=rows_by_timing[Timing.ON_TIME],
        late=rows_by_timing[Timing.LATE],
        retractions=int(retracts.sum()),
    )


def _row_timing(event_times: pa.Array, watermark: Instant) -> tuple[pa.Array, pa.Array | None]:
    """The timing of rows at these times; and which are late, None if none is."""
    on_time, late = arrow_scalar(Timing.ON_TIME.value), arrow_scalar(Timing.LATE.value)
    if pc.min(event_times).as_py() >= watermark:
        return pa.repeat(on_time, len(event_times)), None
    is_late = pc.less(event_times, arrow_scalar(int(watermark)))
    return pc.if_else(is_late, late, on_time), is_late


def _row_counts(late: pa.Array | None, withdrawn: pa.Array | None, length: int) -> Counts:
    retracts = np.zeros(length, np.bool_) if withdrawn is None else as_numpy(withdrawn)
    is_late = np.zeros(length, np.bool_) if late is None else as_numpy(late)
    return Counts(
        on_time=int((~is_late & ~retracts).sum()),
        late=int((is_late & ~retracts).sum()),
        retractions=int(retracts.sum()),
    )
