"""Sketches: how many values differ, and quantiles, in bounded state.

How many values differ, in bounded state: their hashes while they are few, then HyperLogLog.

HyperLogLog is by Flajolet, Fusy, Gandouet and Meunier (AofA 2007). It is read by the estimator of Ertl (2017,
arXiv:1702.01284), which needs no other for small numbers: relative standard error 1.04 / sqrt(2^12).

A mergeable sketch of numbers for quantiles: the compactors of Manku, Rajagopalan and Lindsay (SIGMOD 1998), as KLL
(Karnin, Lang and Liberty, FOCS 2016) stacks them.

A value of level h stands for 2^h values. A level of more than ``CAPACITY`` values is sorted, and every other value goes
up. That moves a rank by at most 2^h, so the error of n values in whatever order and parts is at most
log2(n / CAPACITY) / CAPACITY: 0.018 for a million, less than ``RANK_ERROR``; mostly a tenth of that, as the errors of
different levels and bundles fall on both sides. It is deterministic: which of two values goes up, a hash of all of
them says.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.ordering import Bools, changes, coded, in_order, nearest_rank
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements, PlainPart, add
from headrace.kernel.columns import Groups, Ints, as_numpy, of_ids, of_lists, to_lists
from headrace.kernel.keys import whole_hashes
from headrace.model.expressions.expr import Expr

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
        return _made(as_numpy(items), inner)


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
    codes = as_numpy(items)
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


CAPACITY = 600

_LEVEL = pa.int8()
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class QuantileSketchPart(AccumulatorPart):
    """The sketch as a list of values with their levels, by level, then value."""

    @classmethod
    def of(cls, name: str, value: Expr | None, kind: pa.DataType) -> "QuantileSketchPart":
        """A sketch of ``value``, numbers of type ``kind``."""
        return cls(name, pa.list_(pa.struct([("value", kind), ("level", _LEVEL)])), value)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        values, known = groups.without_nulls(elements.value)
        return self._made(values, np.zeros(len(values), np.int64), known)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        items, inner = groups.flattened(parts)
        return self._made(items.field(0), as_numpy(items.field(1).cast(pa.int64())), inner)

    def _made(self, values: pa.Array, levels: Ints, groups: Groups) -> pa.Array:
        coded_values, ids = coded(values), groups.of_row
        codes = coded_values.codes
        if groups.sizes.max(initial=0) > CAPACITY:
            ids, levels, codes = _compacted(ids, levels, codes, len(groups))
        order = in_order(ids * 64 + levels, codes)
        fields = [coded_values.values(codes[order]), pa.array(levels[order]).cast(_LEVEL)]
        items = pa.StructArray.from_arrays(fields, fields=list(self.type.value_type))
        return to_lists(items, of_ids(ids, len(groups)), empty_is_null=True)


def _compacted(ids: Ints, levels: Ints, codes: Ints, number: int) -> tuple[Ints, Ints, Ints]:
    """Values, of which no group has more than ``CAPACITY`` on a level."""
    kept: list[tuple[Ints, Ints]] = []
    up = ids[:0], codes[:0]
    highest = int(levels.max())
    while len(kept) <= highest or len(up[0]):
        here = levels == len(kept)
        on_level = np.concatenate([ids[here], up[0]]), np.concatenate([codes[here], up[1]])
        stays, up = _halved(*on_level, number)
        kept.append(stays)
    sizes = [len(stay) for stay, _ in kept]
    return (
        np.concatenate([stay for stay, _ in kept]),
        np.repeat(np.arange(len(kept)), sizes),
        np.concatenate([codes for _, codes in kept]),
    )


def _halved(ids: Ints, codes: Ints, number: int) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """What stays on a level, and what goes up."""
    is_full = np.bincount(ids, minlength=number) > CAPACITY
    full = is_full[ids]
    if not full.any():
        return (ids, codes), (ids[:0], codes[:0])
    stays = ids[~full], codes[~full]
    order = in_order(ids[full], codes[full])
    ids, codes = ids[full][order], codes[full][order]
    groups = of_ids(ids, number)
    place = np.arange(len(ids)) - groups.offsets[ids]
    # the largest of an odd number has no other
    alone = (place == groups.sizes[ids] - 1) & (place % 2 == 0)
    goes = ~alone & (place % 2 == _sides(codes, groups)[ids])
    return (np.append(stays[0], ids[alone]), np.append(stays[1], codes[alone])), (ids[goes], codes[goes])


def _sides(codes: Ints, groups: Groups) -> NDArray[np.int64]:
    """0 or 1 for each group: which of two neighbours goes up."""
    total = groups.reduce(np.add, codes.view(np.uint64), 0)
    mixed = (total ^ (total >> np.uint64(32))) * _MIX
    return (mixed >> np.uint64(63)).astype(np.int64)


def quantile(part: pa.Array, q: float) -> pa.Array:
    """The value at rank ``q``; NULL of nothing."""
    items, groups = of_lists(part)
    codes = coded(items.field(0))
    order = in_order(groups.of_row, codes.codes)
    weights = np.left_shift(1, as_numpy(items.field(1).cast(pa.int64()))[order])
    rows = nearest_rank(weights, groups, q)
    empty = groups.sizes == 0
    return items.field(0).take(pa.array(order)).take(pa.array(rows, mask=empty))
