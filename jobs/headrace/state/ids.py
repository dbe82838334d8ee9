"""Ids that are remembered, and what they say of new records: only the first of an id counts (semantics 12.10); where
records can withdraw others, the first of either sign (14.7).

A remembered id is a row: the id with its hash, the event time of its record, and the epoch that it came in. Rows are
kept in immutable layers in the order of their hashes. An id is forgotten once the watermark has passed its event time
plus the horizon: it counts no more from then on, and is left out when its layer is merged.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.delta import Disposition
from headrace.kernel.elements import takes_part
from headrace.kernel.keys import grouped, hashes
from headrace.kernel.state import distinct, together
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.typing import type_of
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.event_time import Deduplicate
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.state.datafiles.sorted_file import in_turn
from headrace.state.open_layer import StateLayer

_AT = "at"


@dataclass(frozen=True)
class RememberedIds:
    """The ids of one pipeline after an epoch, under the watermark that it left."""

    deduplicate: Deduplicate
    columns: Schema
    layers: tuple[StateLayer, ...] = ()
    watermark: Instant = MIN_INSTANT
    is_signed: bool = False

    @classmethod
    def of(cls, pipeline: Pipeline, watermark: Instant = MIN_INSTANT) -> "RememberedIds":
        """The ids of ``pipeline``, which has some, without their layers."""
        assert pipeline.deduplicate is not None
        return cls(pipeline.deduplicate, pipeline.schema, (), watermark, is_signed=pipeline.withdraws_records)

    @property
    def schema(self) -> pa.Schema:
        """A stored row."""
        kind = ARROW_TYPES[type_of(self.deduplicate.id, self.columns) or DataType.STRING]
        sign = [(c.SIGN, pa.int64())] if self.is_signed else []
        return pa.schema([(c.HASH, pa.uint64()), (c.ID, kind), *sign, (_AT, pa.int64()), (c.EPOCH, pa.int64())])

    @property
    def _identity(self) -> list[str]:
        """Columns that are the same for duplicates."""
        return [c.ID, c.SIGN] if self.is_signed else [c.ID]

    def seen(self, judged: Mapping[str, pa.Array]) -> pa.Array:
        """What ids say of judged records, which stand in their order of arrival. DUPLICATE: the id is known, or another
        of its records came before in this epoch. FORGOTTEN: nobody can tell any more. NULL: the first of an id, and
        records that take no part.
        """
        counting = takes_part(judged)
        at = judged[c.EVENT_TIME].fill_null(0).to_numpy(zero_copy_only=False)
        beyond = counting & self._is_beyond(at)
        counts = np.flatnonzero(counting & ~beyond)
        again = np.zeros(len(at), np.bool_)
        own = [judged[name].take(pa.array(counts)) for name in self._identity]
        hashed = hashes(own[:1])
        known = self._alive(distinct([hashed]))
        both = grouped(
            np.concatenate([known.column(c.HASH).to_numpy(), hashed]),
            [pa.concat_arrays([known.column(name), new]) for name, new in zip(self._identity, own, strict=True)],
        )
        first = both.first_rows[both.of_each]
        is_first = first == np.arange(len(first))
        again[counts] = ~is_first[known.num_rows :]
        fates = np.where(beyond, int(Disposition.FORGOTTEN), int(Disposition.DUPLICATE)).astype(np.int8)
        return pa.array(fates, mask=~(beyond | again))

    def _alive(self, wanted: NDArray[np.uint64]) -> pa.RecordBatch:
        """The rows of some hashes that are not forgotten."""
        batches = [run.rows_of(wanted) for layer in self.layers for run in in_turn(layer.runs)]
        rows = together(self.schema, batches)
        return rows.filter(pa.array(self.counts(rows)))

    def counts(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Which stored rows are not forgotten."""
        return ~self._is_beyond(rows.column(_AT).to_numpy())

    def _is_beyond(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        beyond: NDArray[np.bool_] = int(self.watermark) > at + int(self.deduplicate.horizon)
        return beyond

    def new(self, judged: Mapping[str, pa.Array], epoch: int) -> pa.RecordBatch:
        """The rows to remember of the records of ``epoch``, in the order of their hashes."""
        rows = pa.array(np.flatnonzero(takes_part(judged) & judged[c.SEEN].is_null().to_numpy(zero_copy_only=False)))
        ids = [judged[name].take(rows) for name in self._identity]
        columns = [pa.array(hashes(ids[:1])), *ids, judged[c.EVENT_TIME].take(rows)]
        columns.append(pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)))
        return _in_order(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def expiry(self, rows: pa.RecordBatch) -> Instant:
        """The watermark that must be exceeded for all of ``rows`` to be forgotten."""
        return Instant(pc.max(rows.column(_AT)).as_py() + int(self.deduplicate.horizon))


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    order = np.argsort(rows.column(c.HASH).to_numpy(), kind="stable")
    return rows.take(pa.array(order))
