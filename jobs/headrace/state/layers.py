"""The state of a stage as immutable layers: what an epoch looks up in them, and how they grow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import Hashes, distinct, hashes_of, newest, remaining, there, told
from headrace.model.time import NEVER, Instant
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.datafiles.sorted_file import SortedFile, in_turn
from headrace.state.key_groups import KeyGroupRange
from headrace.state.open_layer import StateLayer

FEW = 64
"""Rows of a run that are looked at for the earliest hold at first."""


@dataclass(frozen=True)
class Layers:
    """The layers of a stage, oldest first."""

    stage: CompiledStage
    layers: tuple[StateLayer, ...] = ()

    @property
    def runs(self) -> list[SortedFile]:
        """Sorted files of all layers: of several rows of one (key, window), that of the last file counts."""
        return [run for layer in self.layers for run in layer.runs]

    def lookup(self, touched: Hashes, clocks: FiringClocks, signals: Sequence[Signal] = ()) -> pa.RecordBatch:
        """The newest rows of keys that an epoch may change something of: those ``touched``, those with a due
        activation, and open windows that hear one of ``signals``. Rows that say that a window is gone are left out.
        """
        heard = self._heard(signals)
        wanted = [touched, *(run.due(clocks) for run in in_turn(self.runs) if run.most_due(clocks))]
        if heard:
            wanted += [hashes_of(run.rows, told(self.stage, run.rows, heard)) for run in in_turn(self.runs)]
        hashes = distinct(wanted)
        return remaining(self.stage, (run.rows_of(hashes) for run in in_turn(self.runs)))

    def most_found(self, clocks: FiringClocks, signals: Sequence[Signal] = ()) -> int:
        """An upper bound of how many rows ``lookup`` would find besides those of keys that are touched."""
        if self._heard(signals):
            return sum(layer.row_count for layer in self.layers)
        return sum(run.most_due(clocks) for run in in_turn(self.runs))

    def _heard(self, signals: Sequence[Signal]) -> list[Signal]:
        return [signal for signal in signals if signal.name in self.stage.trigger.signals]

    def within(self, part: KeyGroupRange) -> "Layers":
        """The rows of a part of the keys."""
        cut = (tuple(run.cut(part) for run in in_turn(layer.runs)) for layer in self.layers)
        filled = (tuple(run for run in runs if run.rows.num_rows) for runs in cut)
        return replace(
            self, layers=tuple(replace(layer, runs=runs) for layer, runs in zip(self.layers, filled, strict=True))
        )

    def next_due(self, watermark: Instant, now: Instant) -> tuple[Instant, Instant]:
        """Lower bounds of the next watermark and the next processing time at which some window wants an activation,
        given the current ones.
        """
        steps = [
            (run.deadlines.event.next_from(watermark), run.deadlines.time.next_from(now + 1))
            for run in in_turn(self.runs)
        ]
        return min((event for event, _ in steps), default=NEVER), min((time for _, time in steps), default=NEVER)

    def earliest_hold(self, watermark: Instant) -> Instant:
        """The earliest hold of an open window, or ``watermark`` if none is earlier (semantics 7.1)."""
        looked_at = [c.HASH, *self.stage.identity, c.STATUS, c.HOLD]
        for bound, hashes in _by_hold(self.runs, watermark):
            rows = newest(self.stage, [run.rows_of(hashes, looked_at) for run in in_turn(self.runs)])
            holds = pc.min(rows.column(c.HOLD).filter(pc.equal(rows.column(c.STATUS), c.OPEN))).as_py()
            if holds is not None and holds <= bound:
                return Instant(holds)
        return watermark

    def kept(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of ``changes`` that belong on top: where there is nothing to hide, those that say that a window is
        gone do not.
        """
        return changes if self.layers else there(changes)

    def grown(self, runs: Sequence[SortedFile], epoch: int) -> "Layers":
        """With a layer on top of ``runs``, what ``epoch`` changed and is ``kept``."""
        filled = tuple(run for run in runs if run.rows.num_rows)
        if not filled:
            return self
        ends = [_latest_end(run.rows) for run in in_turn(filled)]
        expires = self.stage.expiry(max((Instant(end) for end in ends if end is not None), default=None))
        return replace(self, layers=(*self.layers, StateLayer(filled, epoch, epoch, expires)))


def _latest_end(rows: pa.RecordBatch) -> int | None:
    """The latest end of a window that is there."""
    is_there = pc.not_equal(rows.column(c.STATUS), c.DELETED)
    latest: int | None = pc.max(rows.column(c.WINDOW_END).filter(is_there)).as_py()
    return latest


def _by_hold(runs: Sequence[SortedFile], watermark: Instant) -> Iterator[tuple[int, Hashes]]:
    """The hashes of rows whose hold is before ``watermark``, the earliest first: a few, among which are all whose hold
    is before a bound, and then, since newer rows may supersede all of them, ever more up to the next bound.
    """
    indexes, few = [run.deadlines.hold for run in runs], FEW
    last = [int(np.searchsorted(run.deadlines.hold.times, watermark)) for run in in_turn(runs)]
    begins = [0] * len(runs)
    while begins != last:
        ends = [min(begin + few, end) for begin, end in zip(begins, last, strict=True)]
        cut_off = [int(index.times[a - 1]) for index, a, b in zip(indexes, ends, last, strict=True) if a < b]
        bound = min(cut_off, default=int(watermark) - 1)
        ends = [
            min(end, int(np.searchsorted(index.times, bound, "right")))
            for index, end in zip(indexes, ends, strict=True)
        ]
        places = zip(in_turn(runs), indexes, begins, ends, strict=True)
        yield bound, distinct([run.hashes[index.rows_at(a, b)] for run, index, a, b in places])
        begins, few = ends, few * 8
