"""Rows that leave as they are: what an output of rows gives of judged elements, without a key and without state."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.columns import TIMESTAMP, Ints, as_numpy, constant
from headrace.kernel.delta import Accounting, Columns, Disposition, account_of_rows, fates_of
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import Counts
from headrace.model.accumulation import EVENT_TIME, Timing
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
    columns[EVENT_TIME] = at.cast(TIMESTAMP)
    columns["timing"], late = _timing(at, watermark)
    withdrawn = pc.less(of(c.SIGN), constant(0)) if stage.stage.withdrawable else None
    columns["is_retraction"] = pa.repeat(constant(False), len(at)) if withdrawn is None else withdrawn
    columns["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), len(at))
    columns["sequence"] = pa.array(_numbered(len(at), task))
    rows = pa.RecordBatch.from_pydict(columns, schema=stage.pane_schema)
    return LeavingRows(rows, accounting, _counts(late, withdrawn, len(at)))


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
