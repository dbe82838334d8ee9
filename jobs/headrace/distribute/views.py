"""The newest records of a pipeline's panes, which readers see as ``current``."""

import numpy as np
import pyarrow as pa

from headrace.kernel.groups import Groups, Ints
from headrace.kernel.keys import grouped, hashes
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT

_MOST = 2**63 - 1


def newest_records(stage: CompiledStage, panes: pa.RecordBatch) -> pa.RecordBatch:
    """The newest record of each (key, window), retraction or not."""
    if not panes.num_rows:
        return panes
    keys = [panes.column(name) for name in stage.keys]
    window = [
        panes.column(name).cast(pa.int64()).fill_null(int(MIN_INSTANT)).to_numpy()
        for name in ("window_start", "window_end")
    ]
    groups = grouped(hashes(keys), keys, *window)
    return panes.take(pa.array(_last(groups, *(panes.column(name).to_numpy() for name in ("epoch", "sequence")))))


def _last(groups: Groups, epoch: Ints, sequence: Ints) -> Ints:
    """Of each group the row with the greatest (epoch, sequence), of which no two have the same."""
    places = int(sequence.max()) + 1
    if (int(epoch.max()) + 1) * places > _MOST:
        return _last(groups, *(np.unique(some, return_inverse=True)[1] for some in (epoch, sequence)))
    at = epoch * places + sequence
    arranged = at if groups.order is None else at[groups.order]
    greatest = groups.reduce(np.maximum, arranged, 0)
    rows = np.flatnonzero(arranged == np.repeat(greatest, groups.sizes))
    return rows if groups.order is None else groups.order[rows]
