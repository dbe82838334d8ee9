"""Key groups: the top bits of a key's hash. A part of the keys is a run of groups, so any number of parts finds its own
rows in what any other number of parts has stored.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints

GROUPS = 1 << 16
_SHIFT = np.uint64(48)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class KeyGroupRange:
    """The key groups ``first`` to ``last``, inclusive."""

    first: int
    last: int

    def overlaps(self, groups: tuple[int, int] | None) -> bool:
        """Whether some of ``groups`` (first, last; None: of nobody knows which) may be among its own."""
        return groups is None or (groups[0] <= self.last and self.first <= groups[1])

    def holds(self, groups: tuple[int, int] | None) -> bool:
        """Whether all of ``groups`` are among its own."""
        return groups is not None and self.first <= groups[0] and groups[1] <= self.last

    def cut(self, number: int) -> "tuple[KeyGroupRange, ...]":
        """Itself in ``number`` parts of nearly one size, or in as many as it has groups."""
        size = self.last + 1 - self.first
        bounds = [self.first + index * size // min(number, size) for index in range(min(number, size) + 1)]
        return tuple(KeyGroupRange(first, after - 1) for first, after in pairwise(bounds))

    def span(self, hashes: Hashes) -> slice:
        """Where its rows stand in ascending ``hashes``."""
        low = np.uint64(self.first) << _SHIFT
        high = (np.uint64(self.last) << _SHIFT) | np.uint64((1 << 48) - 1)
        begin, end = np.searchsorted(hashes, low, "left"), np.searchsorted(hashes, high, "right")
        return slice(int(begin), int(end))


WHOLE = KeyGroupRange(0, GROUPS - 1)


def parts(number: int) -> tuple[KeyGroupRange, ...]:
    """All key groups in ``number`` parts of nearly one size."""
    bounds = [-(-index * GROUPS // number) for index in range(number + 1)]
    return tuple(KeyGroupRange(first, after - 1) for first, after in pairwise(bounds))


def part_of(hashes: Hashes, number: int) -> Ints:
    """The part of each hash."""
    numbers: Ints = group_of(hashes) * number // GROUPS
    return numbers


def group_of(hashes: Hashes) -> Ints:
    """The group of each hash."""
    groups: Ints = (hashes >> _SHIFT).astype(np.int64)
    return groups


def groups_of(hashes: Hashes) -> tuple[int, int] | None:
    """The first and the last group of ascending ``hashes``, None if there are none."""
    if not len(hashes):
        return None
    return int(hashes[0] >> _SHIFT), int(hashes[-1] >> _SHIFT)
