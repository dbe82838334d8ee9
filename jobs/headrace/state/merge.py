"""Merging of layers in bounded memory: range by range of the order that all runs share."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import newest, there, together
from headrace.program import columns as c
from headrace.state.datafiles.sorted_file import SortedFile
from headrace.state.key_groups import Hashes
from headrace.state.open_layer import StateLayer

RANGE_BYTES = 16 * 1024 * 1024
"""What a range holds of all runs, about; it takes some times as much to merge it."""

_SAMPLES = 32
"""Rows by which a range is measured, in all runs together."""


def merge_layers(stage: CompiledStage, layers: Sequence[StateLayer], *, is_lowest: bool) -> Iterator[pa.RecordBatch]:
    """Yields the newest row of every (key, window) in the order of (hash, window). ``layers`` stand oldest first.
    Rows that say that a window is gone are left out if the oldest layer ``is_lowest``: there is nothing to hide.
    """
    for pieces in _ranges([run for layer in layers for run in layer.runs], c.WINDOW_START):
        rows = newest(stage, pieces)
        if is_lowest:
            rows = there(rows)
        if rows.num_rows:
            yield rows


def merge_ids(
    schema: pa.Schema, layers: Sequence[StateLayer], counts: Callable[[pa.RecordBatch], NDArray[np.bool_]]
) -> Iterator[pa.RecordBatch]:
    """The rows of all ``layers`` that still count, in the order of their hashes."""
    for pieces in _ranges([run for layer in layers for run in layer.runs], None):
        rows = together(schema, pieces)
        order = np.argsort(rows.column(c.HASH).to_numpy(), kind="stable")
        kept = order[counts(rows)[order]]
        if len(kept):
            yield rows.take(pa.array(kept))


def merge_rows(
    layers: Sequence[StateLayer], kept: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What is ``kept`` of the rows of all ``layers``, given those of some hashes at a time, in the order of hashes."""
    for pieces in _ranges([run for layer in layers for run in layer.runs], None):
        rows = kept(pa.concat_batches(pieces))
        if rows.num_rows:
            yield rows


def _ranges(runs: Sequence[SortedFile], within: str | None) -> Iterator[list[pa.RecordBatch]]:
    """The rows of ``runs``, each in the order of its hashes and of the column ``within`` them, in ranges of that order:
    the pieces that are not empty, in the order of the runs. Equal rows of the order are in one range.
    """
    ordered = [_Ordered(run, within) for run in runs if run.rows.num_rows]
    begins = [0] * len(ordered)
    for bound in _bounds(ordered):
        ends = [run.end(bound) for run in ordered]
        pieces = [run.rows.slice(a, b - a) for run, a, b in zip(ordered, begins, ends, strict=True) if a < b]
        if pieces:
            yield pieces
        begins = ends
        for run in runs:
            run.release()


_Place = tuple[np.uint64, np.int64]


class _Ordered:
    """A run and the columns of its order."""

    def __init__(self, run: SortedFile, within: str | None) -> None:
        self.run, self.rows = run, run.rows
        self.hashes = run.hashes
        self.within: Ints | None = None if within is None else run.rows.column(within).to_numpy()

    def sampled(self, step: int) -> tuple[Hashes, Ints]:
        """Where every so many-th row is in the common order."""
        rows = np.arange(step - 1, len(self.hashes), step)
        places = self.hashes[rows], np.zeros(len(rows), np.int64) if self.within is None else self.within[rows]
        self.run.release()
        return places

    def end(self, bound: _Place | None) -> int:
        """How many rows are at ``bound`` or before it."""
        if bound is None:
            return len(self.hashes)
        after = int(np.searchsorted(self.hashes, bound[0], "right"))
        if self.within is None:
            return after
        first = int(np.searchsorted(self.hashes, bound[0], "left"))
        return first + int(np.searchsorted(self.within[first:after], bound[1], "right"))


def _bounds(runs: Sequence[_Ordered]) -> Iterator[_Place | None]:
    """The last places of ranges of about RANGE_BYTES; None: the last range has all that is left."""
    total = sum(len(run.hashes) for run in runs)
    width = sum(run.rows.nbytes for run in runs) / max(total, 1)
    step = max(int(RANGE_BYTES / max(width, 1)) // _SAMPLES, 1)
    samples = [run.sampled(step) for run in runs]
    hashes, within = (np.concatenate(arrays) for arrays in zip(*samples, strict=True)) if samples else ((), ())
    order = np.lexsort([within, hashes])
    for place in order[_SAMPLES - 1 :: _SAMPLES]:
        yield hashes[place], within[place]
    yield None
