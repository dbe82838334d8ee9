"""Layers of a side merged: equal rows are added up, and versions that nothing can make count again are left out."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.ordering import rank_rows, to_comparable
from headrace.kernel.columns import Ints, as_numpy, is_nested
from headrace.kernel.joins import sides
from headrace.kernel.keys import group_by_key, hash_keys
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program import columns as c


def newest_kept(join: sides.CompiledJoin, rows: pa.RecordBatch, watermark: Instant) -> pa.RecordBatch:
    """``rows`` of a side, all that there are of some hashes, in the order of (hash, event time), with equal ones added
    up. A version is left out if a newer one hides it from every left row that may come, and nothing can withdraw the
    newer.
    """
    names = [name for name in rows.schema.names if name not in (c.HASH, c.COUNT)]
    rows = _added_up(rows, names)
    if _are_hidden(join, rows):
        groups = group_by_key(as_numpy(rows.column(c.HASH)), [rows.column(name) for name in join.right_keys])
        times, counts = (as_numpy(rows.column(name)) for name in (c.EVENT_TIME, c.COUNT))
        # a withdrawal whose row has not come hides nothing
        holds = np.where((counts > 0) & (times < join.held_from(watermark)), times, int(MIN_INSTANT))
        holds_in_order = holds if groups.order is None else holds[groups.order]
        oldest_needed = groups.reduce(np.maximum, holds_in_order, 0)[groups.of_each]
        rows = rows.take(pa.array(np.flatnonzero(times >= oldest_needed)))
    return rows.take(pa.array(_settled_order(rows, names)))


def _settled_order(rows: pa.RecordBatch, names: Sequence[str]) -> Ints:
    """The order of (hash, event time) of ``rows``, and of those of one place one that the others have no part in."""
    hashes, times = (as_numpy(rows.column(name)) for name in (c.HASH, c.EVENT_TIME))
    columns = [rows.column(name) for name in names]
    if not any(is_nested(column.type) for column in columns):  # they are in the order of their hashes
        return sides.in_order(hashes, times)
    order: Ints = np.lexsort((rank_rows(columns, rows.num_rows), times, hashes))
    return order


def _are_hidden(join: sides.CompiledJoin, rows: pa.RecordBatch) -> bool:
    """Whether newer ones of ``rows`` may hide older ones for good: versions without an age."""
    return join.join.begin is None and join.join.window is None and rows.schema.equals(join.right_schema)


def merge_side(
    join: sides.CompiledJoin, ranges: Iterable[pa.RecordBatch], watermark: Instant
) -> Iterator[pa.RecordBatch]:
    """Yields ``newest_kept`` of rows of a side that come in ``ranges`` of the order of (hash, event time). No range
    cuts rows of one hash and moment. Where a key goes on in the next range, only the version waits that holds.
    """
    waiting: pa.RecordBatch | None = None
    for rows in ranges:
        hashes, times = (as_numpy(rows.column(name)) for name in (c.HASH, c.EVENT_TIME))
        last = hashes.max()
        kept_part = newest_kept(join, rows if waiting is None else pa.concat_batches([waiting, rows]), watermark)
        # later ones of the last hash may hide what is before the moment from which on versions can be withdrawn
        goes_on = _are_hidden(join, rows) and times[hashes == last].max() < join.held_from(watermark)
        settled_count = (
            int(np.searchsorted(as_numpy(kept_part.column(c.HASH)), last)) if goes_on else kept_part.num_rows
        )
        waiting = kept_part.slice(settled_count) if settled_count < kept_part.num_rows else None
        if settled_count:
            yield kept_part.slice(0, settled_count)
    if waiting is not None:
        yield waiting


def _added_up(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """``rows`` with how often each is there: those that are not there are left out."""
    columns = [to_comparable(rows.column(name)) for name in names]
    groups = group_by_key(hash_keys(columns, rows.num_rows), columns)
    counts = as_numpy(rows.column(c.COUNT))
    total = groups.reduce(np.add, counts if groups.order is None else counts[groups.order], 0)
    present = np.flatnonzero(total)
    rows_present = rows.take(pa.array(groups.first_rows[present]))
    return rows_present.set_column(rows_present.schema.get_field_index(c.COUNT), c.COUNT, pa.array(total[present]))
