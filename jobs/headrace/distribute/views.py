"""The newest records of a pipeline's panes, which readers see as ``current``."""

import numpy as np
import pyarrow as pa

from headrace.kernel.keys import grouped, hashes
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT


def newest_records(stage: CompiledStage, panes: pa.RecordBatch) -> pa.RecordBatch:
    """The newest record of each (key, window), retraction or not."""
    order = np.lexsort([panes.column(name).to_numpy() for name in ("sequence", "epoch")])
    rows = panes.take(pa.array(order))
    keys = [rows.column(name) for name in stage.keys]
    window = [
        rows.column(name).cast(pa.int64()).fill_null(int(MIN_INSTANT)).to_numpy()
        for name in ("window_start", "window_end")
    ]
    groups = grouped(hashes(keys), keys, *window)
    last = groups.offsets[1:] - 1
    return rows.take(pa.array(last if groups.order is None else groups.order[last]))
