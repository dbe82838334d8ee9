"""The elements that one task has for a stage, on their way to the tasks that hold its keys.

Mostly they are aggregated first: a share's delta stands for its elements. Where the order of arrival counts in the
stage, and tasks above hold elements that arrived in turns, the elements travel themselves, each with its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.delta import AggregatedBundle, KeyHashes, aggregate
from headrace.kernel.elements import Columns, takes_part
from headrace.kernel.keys import hashes
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.state.key_groups import part_of, parts

_PLACE = "_place_"
_SHARE_BITS = 40
_UNUSED = frozenset({c.SPLIT, c.MARK, c.ID, c.SEEN, c.REJECT, c.ADMITTED})


@dataclass(frozen=True)
class ShuffleInput:
    """A bundle aggregated, and what of it goes to which part."""

    aggregated: AggregatedBundle = field(default_factory=AggregatedBundle)
    parts: Mapping[int, pa.RecordBatch] = field(default_factory=dict)


def bundle(
    stage: CompiledStage,
    judged: Columns,
    order: Columns | None,
    watermark: Instant,
    output_watermark: Instant,
    *,
    share: int,
    number: int,
    hashed: KeyHashes | None = None,
) -> ShuffleInput:
    """``judged`` rows as share number ``share`` of the elements of an epoch, for ``number`` parts of the keys of
    ``stage``, under its old ``watermark`` and ``output_watermark``. ``order``: columns by which rows of all shares are
    in order, None if that of the shares is enough. ``hashed``: those of keys of the same rows, for other stages.
    """
    place = share << _SHARE_BITS
    aggregated = aggregate(stage, judged, watermark, output_watermark, place=place, hashed=hashed)
    if aggregated.delta is None:
        return ShuffleInput(aggregated)
    if order is None:
        in_order = aggregated.delta.column(c.HASH).to_numpy()
        spans = {part: keys.span(in_order) for part, keys in enumerate(parts(number))}
        cut = {part: aggregated.delta.slice(span.start, span.stop - span.start) for part, span in spans.items()}
        return ShuffleInput(aggregated, {part: rows for part, rows in cut.items() if rows.num_rows})
    return ShuffleInput(aggregated, _travelling(stage, judged, order, number))


def _travelling(stage: CompiledStage, judged: Columns, order: Columns, number: int) -> dict[int, pa.RecordBatch]:
    counts = takes_part(judged)
    if c.SEEN in judged:  # NULL for what is new
        counts &= judged[c.SEEN].is_null().to_numpy(zero_copy_only=False)
    rows = {name: values for name, values in judged.items() if name not in _UNUSED}
    rows |= {f"{_PLACE}{name}": values for name, values in order.items()}
    return by_part(pa.RecordBatch.from_pydict(rows).filter(pa.array(counts)), stage.keys, number)


def by_part(rows: pa.RecordBatch, names: Sequence[str], number: int) -> dict[int, pa.RecordBatch]:
    """``rows`` by the part that the hash of the columns called ``names`` is of, out of so many."""
    part_of_row = part_of(hashes([rows.column(name) for name in names], rows.num_rows), number)
    return {int(part): rows.filter(pa.array(part_of_row == part)) for part in np.unique(part_of_row)}


def deltas_of(
    stage: CompiledStage, shares: Iterable[pa.RecordBatch | None], watermark: Instant, output_watermark: Instant
) -> list[pa.RecordBatch]:
    """The delta of one part out of the ``shares`` of all tasks above, in their order: pieces, each in the order of its
    hashes, that are the delta one below the other.
    """
    rows = [share for share in shares if share is not None and share.num_rows]
    places = [(name, "ascending") for name in rows[0].schema.names if name.startswith(_PLACE)] if rows else []
    if not places:
        return rows
    arrived = pa.concat_batches(rows)
    arrived = arrived.take(pc.sort_indices(arrived, sort_keys=places))
    columns = {name: arrived.column(name) for name in arrived.schema.names if not name.startswith(_PLACE)}
    columns[c.REJECT] = pa.nulls(arrived.num_rows, pa.string())
    columns[c.ADMITTED] = pa.repeat(pa.scalar(True), arrived.num_rows)
    delta = aggregate(stage, columns, watermark, output_watermark).delta
    return [] if delta is None else [delta]
