"""What readers see: the newest records of a pipeline's panes, as ``current``; the rows that fulfil a condition."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.expressions.evaluation import column
from headrace.kernel.grouping import Groups, Ints
from headrace.kernel.keys import grouped, hashes
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr
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
    groups = grouped(hashes(keys, panes.num_rows), keys, *window)
    return panes.take(pa.array(_last(groups, *(panes.column(name).to_numpy() for name in ("epoch", "sequence")))))


def scalar_columns(columns: pa.Schema) -> dict[str, DataType]:
    """The columns that expressions can read: those that hold one value each."""
    kinds = {arrow: kind for kind, arrow in ARROW_TYPES.items()}
    return {field.name: kinds[field.type] for field in columns if field.type in kinds}


def fulfilling(condition: Expr, columns: pa.Schema, rows: Mapping[str, pa.Array], length: int) -> pa.Array:
    """For each of so many ``rows`` whether ``condition`` is TRUE. ``rows`` has what it reads, ``columns``
    what it could.

    Raises IntegerOverflowError.
    """
    read = {name: values.cast(columns.field(name).type) for name, values in rows.items()}
    return pc.fill_null(column(condition, read, scalar_columns(columns), length).cast(pa.bool_()), False)


def _last(groups: Groups, epoch: Ints, sequence: Ints) -> Ints:
    """The row of each group with the greatest (epoch, sequence); no two rows have the same."""
    places = int(sequence.max()) + 1
    if (int(epoch.max()) + 1) * places > _MOST:
        return _last(groups, *(np.unique(numbers, return_inverse=True)[1] for numbers in (epoch, sequence)))
    at = epoch * places + sequence
    arranged = at if groups.order is None else at[groups.order]
    greatest = groups.reduce(np.maximum, arranged, 0)
    rows = np.flatnonzero(arranged == np.repeat(greatest, groups.sizes))
    return rows if groups.order is None else groups.order[rows]
