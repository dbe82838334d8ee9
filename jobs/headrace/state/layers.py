"""The state of a stage as immutable layers: what an epoch puts on top, what becomes one layer, which count no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.groups import Ints, truths
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import Hashes, hashes_of, lookup, newest, no_rows, rows_of
from headrace.model.time import GLOBAL_WINDOW_END, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import Clocks
from headrace_snapshots.format.layers import plan_merge


@dataclass(frozen=True)
class DeadlineIndex:
    """The distinct activations that the rows of a layer want, ascending."""

    values: Ints

    @classmethod
    def of(cls, dues: Ints) -> "DeadlineIndex":
        """Of a column of dues, NEVER where a row wants none."""
        return cls(np.unique(dues[dues < GLOBAL_WINDOW_END]))

    def any_in(self, low: int, high: int) -> bool:
        """Whether an activation is due at a time in [low, high)."""
        return bool(np.searchsorted(self.values, low) < np.searchsorted(self.values, high))

    def next_from(self, at: int) -> Instant:
        """The first activation at ``at`` or later, NEVER if there is none."""
        found = int(np.searchsorted(self.values, at))
        return Instant(int(self.values[found])) if found < len(self.values) else NEVER


@dataclass(frozen=True)
class StateLayer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` wrote, in the order of (hash, window). Nothing in it counts
    once the watermark exceeds ``expires``.
    """

    rows: pa.RecordBatch
    first_epoch: int
    last_epoch: int
    expires: Instant = NEVER

    @cached_property
    def event_dues(self) -> DeadlineIndex:
        """Watermarks that rows wait for."""
        return DeadlineIndex.of(self.rows.column(c.DUE_EVENT).to_numpy())

    @cached_property
    def time_dues(self) -> DeadlineIndex:
        """Processing times that rows wait for."""
        return DeadlineIndex.of(self.rows.column(c.DUE_TIME).to_numpy())

    @cached_property
    def hold(self) -> Instant:
        """A lower bound of the holds of its rows."""
        least = pc.min(self.rows.column(c.HOLD)).as_py()
        return NEVER if least is None else Instant(least)

    def is_due(self, clocks: Clocks) -> bool:
        """Whether some row may want an activation under ``clocks`` (a newer layer may know better)."""
        steps = [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]
        if any(self.event_dues.any_in(before, after) for before, after in steps):
            return True
        return self.time_dues.any_in(clocks.previous_processing_time + 1, clocks.processing_time + 1)


@dataclass(frozen=True)
class LayerChange:
    """What an epoch does to a table: the ``expired`` oldest layers go, ``top`` is to be stored in place of the
    ``replaces`` newest of the others; None if there is nothing to store.
    """

    top: StateLayer | None = None
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
class Layers:
    """The layers of a stage, oldest first."""

    stage: CompiledStage
    layers: tuple[StateLayer, ...] = ()

    def lookup(self, touched: Hashes, clocks: Clocks, signals: Sequence[Signal] = ()) -> pa.RecordBatch:
        """The rows that an epoch may change something of (``kernel.state.lookup``)."""
        heard = [signal for signal in signals if signal.name in self.stage.trigger.signals]
        if not len(touched) and not heard and not any(layer.is_due(clocks) for layer in self.layers):
            return no_rows(self.stage.state_schema)
        return lookup(self.stage, [layer.rows for layer in self.layers], touched, clocks, heard)

    def next_due(self, watermark: Instant, now: Instant) -> tuple[Instant, Instant]:
        """Lower bounds of the next watermark and the next processing time at which some window wants an activation,
        given those of now.
        """
        event = min((layer.event_dues.next_from(watermark) for layer in self.layers), default=NEVER)
        time = min((layer.time_dues.next_from(now + 1) for layer in self.layers), default=NEVER)
        return event, time

    def earliest_hold(self, watermark: Instant) -> Instant:
        """The earliest hold of an open window, or ``watermark`` if none is earlier (semantics 7.1)."""
        holding = [layer.rows for layer in self.layers if layer.hold < watermark]
        if not holding:
            return watermark
        wanted = [hashes_of(rows, _holds_below(rows, watermark)) for rows in holding]
        found = np.unique(np.concatenate(wanted))
        rows = newest(self.stage, [rows_of(layer.rows, found) for layer in self.layers])
        is_open = pc.equal(rows.column(c.STATUS), c.OPEN)
        earliest = pc.min(rows.column(c.HOLD).filter(is_open)).as_py()
        return watermark if earliest is None else Instant(min(earliest, watermark))

    def grown(self, changes: pa.RecordBatch | None, epoch: int, watermark: Instant) -> "tuple[Layers, LayerChange]":
        """With what an epoch that came to ``watermark`` changed on top; expired layers go, those of similar size are
        merged.
        """
        gone = 0
        # newer ones stay while something older does, which they may hide
        while gone < len(self.layers) and watermark > self.layers[gone].expires:
            gone += 1
        left = self.layers[gone:]
        if changes is not None and not left:  # there is nothing that a row could say to be gone
            changes = changes.filter(pc.not_equal(changes.column(c.STATUS), c.DELETED))
        if changes is None or not changes.num_rows:
            return Layers(self.stage, left), LayerChange(expired=gone)
        grown = [*left, self._layer(changes, epoch, epoch)]
        start = plan_merge([layer.rows.num_rows for layer in grown])
        replaces = 0
        if start is not None:
            replaces = len(left) - start
            grown = [*grown[:start], self._merged(grown[start:], is_lowest=start == 0)]
        top = grown[-1]
        if not top.rows.num_rows:
            grown.pop()
        return Layers(self.stage, tuple(grown)), LayerChange(top, replaces, gone)

    def _merged(self, layers: Sequence[StateLayer], *, is_lowest: bool) -> StateLayer:
        rows = newest(self.stage, [layer.rows for layer in layers])
        if is_lowest:
            rows = rows.filter(pc.not_equal(rows.column(c.STATUS), c.DELETED))
        return self._layer(rows, layers[0].first_epoch, layers[-1].last_epoch)

    def _layer(self, rows: pa.RecordBatch, first: int, last: int) -> StateLayer:
        there = pc.not_equal(rows.column(c.STATUS), c.DELETED)
        latest = pc.max(rows.column(c.WINDOW_END).filter(there)).as_py()
        return StateLayer(rows, first, last, self.stage.expiry(None if latest is None else Instant(latest)))


def _holds_below(rows: pa.RecordBatch, watermark: Instant) -> NDArray[np.bool_]:
    return truths(pc.less(rows.column(c.HOLD), int(watermark)))
