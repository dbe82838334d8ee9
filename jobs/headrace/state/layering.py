"""Tables that grow by layers: what an epoch puts on top, what is to become one layer, which of the oldest count no
more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.model.time import NEVER, Instant
from headrace.state.runs import Run
from headrace_snapshots.format.layers import plan_merge


@dataclass(frozen=True)
class StateLayer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` wrote. Nothing in it counts once the watermark exceeds
    ``expires``.

    Its runs are files of other keys each; or layers that are to be one, oldest first, until they are merged: then of
    several rows of one (key, window) that of the last run counts.
    """

    runs: tuple[Run, ...]
    first_epoch: int
    last_epoch: int
    expires: Instant = NEVER

    @property
    def row_count(self) -> int:
        """How many there are, those that count no more included."""
        return sum(run.rows.num_rows for run in self.runs)


def _nothing() -> Iterator[pa.RecordBatch]:
    return iter(())


@dataclass(frozen=True)
class LayerChange:
    """What an epoch does to a table: the ``expired`` oldest layers go, ``top`` comes in place of the ``replaces``
    newest of the others; None if none comes. ``merged`` gives the rows of ``top`` that are to be stored, in order and
    one piece after another.
    """

    top: StateLayer | None = None
    replaces: int = 0
    expired: int = 0
    merged: Callable[[], Iterator[pa.RecordBatch]] = _nothing

    @property
    def adds(self) -> bool:
        """Whether a layer comes on top; merged it may turn out to have no rows."""
        return self.top is not None

    @property
    def epochs(self) -> tuple[int, int]:
        """Whose rows ``top`` holds."""
        return (0, 0) if self.top is None else (self.top.first_epoch, self.top.last_epoch)

    @property
    def expires(self) -> Instant:
        """The watermark that must be exceeded for ``top`` to count no more."""
        return NEVER if self.top is None else self.top.expires


def expired(layers: Sequence[StateLayer], watermark: Instant) -> int:
    """How many of the oldest count no more. Newer ones stay while something older does, which they may hide."""
    gone = 0
    while gone < len(layers) and watermark > layers[gone].expires:
        gone += 1
    return gone


def put_on_top(layers: Sequence[StateLayer], top: StateLayer) -> tuple[StateLayer, ...]:
    """``layers`` with ``top`` on them. Those that are to be merged are one layer then, of the runs of all of them."""
    grown = (*layers, top)
    start = plan_merge([layer.row_count for layer in grown])
    return grown if start is None else (*grown[:start], stacked(grown[start:]))


def stacked(layers: Sequence[StateLayer]) -> StateLayer:
    """Layers, oldest first, as one that is to be merged."""
    runs = tuple(run for layer in layers for run in layer.runs)
    return StateLayer(runs, layers[0].first_epoch, layers[-1].last_epoch, max(layer.expires for layer in layers))


def with_stored(layers: Sequence[StateLayer], stored: StateLayer) -> tuple[StateLayer, ...]:
    """``layers`` with ``stored`` in place of that of the same epochs, whose rows it holds; if there is none, as they
    are.
    """
    epochs = (stored.first_epoch, stored.last_epoch)
    return tuple(stored if (layer.first_epoch, layer.last_epoch) == epochs else layer for layer in layers)
