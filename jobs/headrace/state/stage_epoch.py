"""An epoch of a part of a stage as a function: what its rows of state, its share of the delta and the clocks give.

The result comes in slices of the keys where there is much to do, so that memory does not grow with what an epoch
touches, nor with how many windows are due at once. Nothing is stored here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import distinct
from headrace.kernel.step import StageResult, step
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.key_groups import WHOLE, KeyGroupRange
from headrace.state.layers import Layers

SLICE_ROWS = 2**16
"""Of so many rows an epoch is computed at a time, about: each takes 600 bytes meanwhile."""


@dataclass(frozen=True)
class StageEpoch:
    """An epoch, by its ``number``, of the part of a stage that has these ``keys``. ``layers`` are the state before it;
    ``deltas`` are the delta in pieces, each in the order of its hashes. ``is_batch``: the epoch is all that there is.
    """

    number: int
    layers: Layers
    deltas: Sequence[pa.RecordBatch]
    clocks: FiringClocks
    keys: KeyGroupRange = WHOLE
    output_watermark: Instant = MIN_INSTANT
    signals: Sequence[Signal] = ()
    is_batch: bool = False

    @property
    def stage(self) -> CompiledStage:
        """Whose epoch it is."""
        return self.layers.stage

    def results(self) -> Iterator[StageResult]:
        """Compute it, a slice of the keys at a time, in the order of their hashes; slices in which there is nothing to
        look at give no result. One that is let go takes no memory while the next one is computed.
        """
        for layers, delta in self._slices():
            touched = np.zeros(0, np.uint64) if delta is None else distinct([delta.column(c.HASH).to_numpy()])
            result = step(
                self.stage,
                layers.lookup(touched, self.clocks, self.signals),
                delta,
                self.clocks,
                self.number,
                output_watermark=self.output_watermark,
                signals=self.signals,
                is_batch=self.is_batch,
            )
            if result is not None:
                yield result
            del result

    def _slices(self) -> Iterator[tuple[Layers, pa.RecordBatch | None]]:
        """The layers and the delta of each slice."""
        rows = sum(delta.num_rows for delta in self.deltas) + self.layers.most_found(self.clocks, self.signals)
        slices = self.keys.cut(-(-rows // SLICE_ROWS)) if rows > SLICE_ROWS else ()
        if not slices:
            yield self.layers, one_below_the_other(self.deltas)
        for keys in slices:
            spans = [keys.span(delta.column(c.HASH).to_numpy()) for delta in self.deltas]
            cut = [
                delta.slice(span.start, span.stop - span.start) for delta, span in zip(self.deltas, spans, strict=True)
            ]
            yield self.layers.within(keys), one_below_the_other([rows for rows in cut if rows.num_rows])


def one_below_the_other(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Pieces as one; None if there are none."""
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return pa.concat_batches(pieces)
