"""When the windows of a state layer want to be activated, as far as the driver knows it without asking Spark.

A layer that wants nothing costs an epoch nothing: then no Spark job looks at it. What is kept are lower bounds, rounded
down to a multiple of ``grain``: a due may be asked for too early, never too late.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model.time import MIN_INSTANT, NEVER, Instant

LIMIT = 512
"""How many distinct activations are kept of a layer; later ones are looked up when their time comes."""


@dataclass(frozen=True)
class Dues:
    """``values`` are known activations below ``floor``, ascending, each within ``grain`` above its value; from
    ``floor`` on nothing is known.
    """

    values: tuple[int, ...] = ()
    floor: Instant = NEVER
    grain: int = 1

    @classmethod
    def of(cls, found: Sequence[int], grain: int) -> "Dues":
        """From the ``LIMIT`` + 1 (or fewer) earliest activations of a layer, ascending."""
        values = tuple(found[:LIMIT])
        return cls(values, Instant(found[LIMIT]) if len(found) > LIMIT else NEVER, grain)

    @classmethod
    def unknown(cls, floor: Instant) -> "Dues":
        """All that is known is that nothing is due before ``floor``."""
        return cls((), floor)

    def may_lie_in(self, low: Instant, high: Instant) -> bool:
        """Whether an activation may be due at a time in [low, high)."""
        return high > self.floor or any(low < value + self.grain and value < high for value in self.values)

    def next_after(self, at: Instant) -> Instant:
        """A lower bound of the first activation later than ``at``, NEVER if there is none."""
        return Instant(next((value for value in self.values if value + self.grain > at + 1), self.floor))


UNKNOWN = Dues.unknown(MIN_INSTANT)
