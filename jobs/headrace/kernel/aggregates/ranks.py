"""Quantiles by nearest rank: the smallest value with a part ``q`` of all values at or below it."""

import math
from fractions import Fraction

import numpy as np

from headrace.kernel.grouping import Groups, Ints


def nearest_rank(weights: Ints, groups: Groups, q: float) -> Ints:
    """The row of each group at the rank of ``q``, of rows in order that stand for ``weights`` values each; of a group
    without rows any number.
    """
    before = np.append(0, np.cumsum(weights))
    starts, ends = before[groups.offsets[:-1]], before[groups.offsets[1:]]
    return np.searchsorted(before[1:], starts + _ranks(ends - starts, q) - 1, side="right")


def _ranks(sizes: Ints, q: float) -> Ints:
    """``q`` is the decimal as it is written. Of groups of n rows in all, fewer than sqrt(2n) sizes differ."""
    part = Fraction(repr(float(q)))
    different, place = np.unique(sizes, return_inverse=True)
    ranks = [max(math.ceil(part * int(size)), 1) for size in different]
    return np.array(ranks, np.int64)[place] if ranks else sizes
