"""How many values differ, in bounded state: their hashes while they are few, then HyperLogLog.

HyperLogLog is by Flajolet, Fusy, Gandouet and Meunier (AofA 2007). It is read by the estimator of Ertl (2017,
arXiv:1702.01284), which needs no other for small numbers: relative standard error 1.04 / sqrt(2^12).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.ordering import Bools, changes, in_order
from headrace.kernel.aggregates.parts import Elements, PlainPart
from headrace.kernel.aggregates.sums import add
from headrace.kernel.grouping import Groups, Ints, of_ids, of_lists, to_lists
from headrace.kernel.keys import whole_hashes

HASHES = 512
"""Of up to so many values the hashes are stored, and the count is exact."""

REGISTERS = 2**12

_RANK_BITS = 6
_REST_BITS = 63 - 12


@dataclass(frozen=True)
class DistinctSketchPart(PlainPart):
    """A sorted list for each group: hashes of 63 bits; or, of more than ``HASHES`` values, the registers of HLL that
    are not 0, as negative numbers: ``~(register * 64 + rank)``.
    """

    STORED = pa.list_(pa.int64())

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        values, known = groups.without_nulls(elements.value)
        return _made((whole_hashes([values]) >> np.uint64(1)).astype(np.int64), known)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        items, inner = groups.flattened(parts)
        return _made(items.to_numpy(), inner)


def _made(items: Ints, groups: Groups) -> pa.Array:
    number = len(groups)
    ids, items = _distinct(groups.of_row, items)
    many = (np.bincount(ids, minlength=number) > HASHES) | (np.bincount(ids[items < 0], minlength=number) > 0)
    if many.any():
        ids, items = _distinct(ids, np.where(many[ids] & (items >= 0), _register(items), items))
    return to_lists(pa.array(items), of_ids(ids, number), empty_is_null=True)


def _distinct(ids: Ints, items: Ints) -> tuple[Ints, Ints]:
    """Each hash once, and each register once, with the highest rank, in order."""
    order = in_order(ids, items)
    ids, items = ids[order], items[order]
    begins: Bools = changes(ids, np.where(items < 0, items >> _RANK_BITS, items))
    return ids[begins], items[begins]


def _register(registers: Ints) -> Ints:
    """The register of a hash with its rank: the zeros before the first one of the other bits, and one more."""
    _, used = np.frexp((registers >> 12).astype(np.float64))
    code: Ints = (registers % REGISTERS << _RANK_BITS) + (_REST_BITS + 1 - used)
    return ~code


def estimate(part: pa.Array) -> pa.Array:
    """How many values differ."""
    items, groups = of_lists(part)
    codes = items.to_numpy()
    many = np.zeros(len(groups), np.bool_)
    filled = groups.sizes > 0
    many[filled] = codes[groups.offsets[:-1][filled]] < 0
    counts = groups.sizes.copy()
    if many.any():
        sums = add(np.exp2(-(~codes % 2**_RANK_BITS).astype(np.float64)), groups)[many]
        unused = 1.0 - groups.sizes[many] / REGISTERS
        counts[many] = np.rint(REGISTERS**2 / (2 * np.log(2) * (sums + REGISTERS * _sigma(unused)))).astype(np.int64)
    return pa.array(counts)


def _sigma(part: Floats) -> Floats:
    """What registers of rank 0, ``part`` of all, add: x, and the sum of x^(2^k) * 2^(k-1) (Ertl, sigma)."""
    power, factor, total = part, 1.0, part
    while True:
        power = power * power
        added = total + power * factor
        if (added == total).all():
            return total
        total, factor = added, factor * 2
