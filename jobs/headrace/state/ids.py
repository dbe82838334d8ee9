"""Ids that are remembered, and what they say of new records: only the first of an id counts (semantics 12.10).

A remembered id is a row: the id with its hash, the event time of its record, and the epoch that it came in. Rows are
kept in immutable layers in the order of their hashes. An id is forgotten once the watermark has passed its event time
plus the horizon: it counts no more from then on, and is left out when its layer is merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.delta import Fate
from headrace.kernel.keys import grouped, hashes
from headrace.kernel.state import no_rows, rows_of, together
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expr import DataType, Schema
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.typing import type_of
from headrace.pipeline.inputs import Deduplicate
from headrace.program import columns as c
from headrace_snapshots.format.layers import plan_merge

_AT = "at"


@dataclass(frozen=True)
class IdLayer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` remembered."""

    rows: pa.RecordBatch
    first_epoch: int
    last_epoch: int
    expires: Instant


@dataclass(frozen=True)
class IdChange:
    """What an epoch does to the layers: the ``expired`` oldest go, ``top`` replaces the ``replaces`` newest."""

    top: IdLayer | None = None
    replaces: int = 0
    expired: int = 0

    @property
    def epochs(self) -> tuple[int, int]:
        """Whose rows ``top`` holds."""
        return (0, 0) if self.top is None else (self.top.first_epoch, self.top.last_epoch)

    @property
    def expires(self) -> Instant:
        """The watermark that must be exceeded for ``top`` to count no more."""
        return NEVER if self.top is None else self.top.expires


@dataclass(frozen=True)
class RememberedIds:
    """The ids of one pipeline after an epoch, under the watermark that it left."""

    deduplicate: Deduplicate
    columns: Schema
    layers: tuple[IdLayer, ...] = ()
    watermark: Instant = MIN_INSTANT

    @property
    def schema(self) -> pa.Schema:
        """A stored row."""
        kind = ARROW_TYPES[type_of(self.deduplicate.id, self.columns) or DataType.STRING]
        return pa.schema([(c.HASH, pa.uint64()), (c.ID, kind), (_AT, pa.int64()), (c.EPOCH, pa.int64())])

    def seen(self, judged: Mapping[str, pa.Array]) -> pa.Array:
        """What ids say of judged records, which stand in their order of arrival: DUPLICATE if the id is known or
        another one of its records came before in this epoch, FORGOTTEN if nobody can tell any more, NULL for the first
        of an id and for what takes no part.
        """
        takes_part = _takes_part(judged)
        at = judged[c.EVENT_TIME].fill_null(0).to_numpy(zero_copy_only=False)
        beyond = takes_part & self._is_beyond(at)
        counts = np.flatnonzero(takes_part & ~beyond)
        again = np.zeros(len(at), np.bool_)
        ids = judged[c.ID].take(pa.array(counts))
        hashed = hashes([ids])
        known = self._alive(np.unique(hashed))
        both = grouped(
            np.concatenate([known.column(c.HASH).to_numpy(), hashed]), [pa.concat_arrays([known.column(c.ID), ids])]
        )
        first = both.first_rows[both.of_each]
        is_first = first == np.arange(len(first))
        again[counts] = ~is_first[known.num_rows :]
        fates = np.where(beyond, int(Fate.FORGOTTEN), int(Fate.DUPLICATE)).astype(np.int8)
        return pa.array(fates, mask=~(beyond | again))

    def _alive(self, wanted: NDArray[np.uint64]) -> pa.RecordBatch:
        """The rows of some hashes that are not forgotten."""
        rows = together(self.schema, [rows_of(layer.rows, wanted) for layer in self.layers])
        return rows.filter(pa.array(~self._is_beyond(rows.column(_AT).to_numpy())))

    def _is_beyond(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = int(self.watermark) > at + int(self.deduplicate.horizon)
        return found

    def after(
        self, epoch: int, judged: Mapping[str, pa.Array] | None, watermark: Instant
    ) -> "tuple[RememberedIds, IdChange]":
        """Ids after ``epoch``, whose records are ``judged`` (None: it had none), and what that means for the stored
        ones.
        """
        gone = 0
        while gone < len(self.layers) and watermark > self.layers[gone].expires:
            gone += 1
        layers, change = list(self.layers[gone:]), IdChange(expired=gone)
        found = no_rows(self.schema) if judged is None else self._new(judged, epoch)
        if found.num_rows:
            left = len(layers)
            layers.append(self._layer(found, epoch, epoch))
            start = plan_merge([layer.rows.num_rows for layer in layers])
            if start is not None:
                layers = [*layers[:start], self._merged(layers[start:])]
            change = IdChange(layers[-1], 0 if start is None else left - start, gone)
        return replace(self, layers=tuple(layers), watermark=watermark), change

    def _new(self, judged: Mapping[str, pa.Array], epoch: int) -> pa.RecordBatch:
        rows = pa.array(np.flatnonzero(_takes_part(judged) & judged[c.SEEN].is_null().to_numpy(zero_copy_only=False)))
        ids = judged[c.ID].take(rows)
        columns = [pa.array(hashes([ids])), ids, judged[c.EVENT_TIME].take(rows)]
        columns.append(pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)))
        return _in_order(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def _merged(self, layers: Sequence[IdLayer]) -> IdLayer:
        rows = together(self.schema, [layer.rows for layer in layers])
        # under the old watermark: this epoch's records were judged by it, a redone epoch would be again
        alive = rows.filter(pa.array(~self._is_beyond(rows.column(_AT).to_numpy())))
        return self._layer(_in_order(alive), layers[0].first_epoch, layers[-1].last_epoch)

    def _layer(self, rows: pa.RecordBatch, first: int, last: int) -> IdLayer:
        latest = pc.max(rows.column(_AT)).as_py()
        expires = MIN_INSTANT if latest is None else Instant(latest + int(self.deduplicate.horizon))
        return IdLayer(rows, first, last, expires)


def _takes_part(judged: Mapping[str, pa.Array]) -> NDArray[np.bool_]:
    takes = pc.and_(pc.and_(judged[c.REJECT].is_null(), judged[c.ADMITTED]), judged[c.EVENT_TIME].is_valid())
    found: NDArray[np.bool_] = takes.to_numpy(zero_copy_only=False)
    return found


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    order = np.argsort(rows.column(c.HASH).to_numpy(), kind="stable")
    return rows.take(pa.array(order))
