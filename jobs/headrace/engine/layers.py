"""Tables that grow by layers: what an epoch puts on top, what becomes one layer, which of the oldest count no more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.engine.types import DataFrame
from headrace.model.time import NEVER, Instant
from headrace_snapshots.format.layers import plan_merge


@dataclass(frozen=True)
class Layer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` wrote. Nothing in it counts once the watermark exceeds
    ``expires``.
    """

    rows: DataFrame
    count: int
    first_epoch: int
    last_epoch: int
    expires: Instant = NEVER


@dataclass(frozen=True)
class Added:
    """What an epoch does to a table: the ``expired`` oldest layers go, ``rows`` are to be stored in place of the
    ``replaces`` newest; None if there is nothing to store.
    """

    rows: DataFrame | None = None
    replaces: int = 0
    epochs: tuple[int, int] = (0, 0)
    expires: Instant = NEVER
    expired: int = 0

    @property
    def adds(self) -> bool:
        """Whether there is something to store."""
        return self.rows is not None


_Layer = TypeVar("_Layer", bound=Layer)


def expired(layers: Sequence[Layer], watermark: Instant) -> int:
    """How many of the oldest layers count no more. Newer ones stay while something older does, which they may hide."""
    gone = 0
    while gone < len(layers) and watermark > layers[gone].expires:
        gone += 1
    return gone


def put_on_top(
    layers: Sequence[_Layer], top: _Layer, merged: Callable[[Sequence[_Layer], bool], _Layer]
) -> tuple[list[_Layer], Added]:
    """``layers`` with ``top`` on them; layers of similar size are ``merged`` (given whether none is below them)."""
    grown = [*layers, top]
    start = plan_merge([layer.count for layer in grown])
    if start is not None:
        top = merged(grown[start:], start == 0)
        grown = [*grown[:start], *([top] if top.count else [])]
    replaces = 0 if start is None else len(layers) - start
    return grown, Added(top.rows if top.count else None, replaces, (top.first_epoch, top.last_epoch), top.expires)
