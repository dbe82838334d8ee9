"""Sketches: how many values differ, and quantiles, in bounded state; and as bytes, which readers merge over rows.

``DistinctSketchPart`` tells how many values differ: by their hashes while they are few, then by HyperLogLog.
HyperLogLog is by Flajolet, Fusy, Gandouet and Meunier (AofA 2007). It is read by the estimator of Ertl (2017,
arXiv:1702.01284), which needs no other for small numbers: relative standard error 1.04 / sqrt(2^12).

``QuantileSketchPart`` is a mergeable sketch of numbers. It has the compactors of Manku, Rajagopalan and Lindsay (SIGMOD
1998), as KLL (Karnin, Lang and Liberty, FOCS 2016) stacks them. A value of level h stands for 2^h values. A level of
more than ``CAPACITY`` values is sorted, and every other value goes up. That moves a rank by at most 2^h. So the error
of n values, in whatever order and parts, is at most log2(n / CAPACITY) / CAPACITY. That is 0.018 for a million, less
than ``combiners.RANK_ERROR``; mostly a tenth of that, as the errors of different levels and bundles fall on both sides.
It is deterministic: which of two values goes up, a hash of all of them says.

A sketch as bytes begins with three letters: HRD of how many values differ, or HRQ of quantiles. The number of its
format, which is 1, is next. Numbers are little-endian.

HRD goes on with 0 and, in order, the 63-bit hashes of up to 512 values, eight bytes each (``kernel.keys`` says what is
hashed; the lowest bit is left out). HRD of more values goes on with 1 and the 4,096 registers of HyperLogLog, a byte
each. The lowest 12 bits of a hash say which register; the zeros before the first one of the 51 others, and one more,
are its rank. The greatest rank of a register counts, 0 stands for none.

HRQ goes on with the type of its values (0 int, 1 float, 2 decimal), and how many there are in four bytes. The level of
each in a byte, and the values, are next. A value has eight bytes, a decimal sixteen, billionths. Values are in the
order of levels, then of values.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import FixDataError
from headrace.kernel.aggregates.integers import Floats
from headrace.kernel.aggregates.ordering import Bools, changed_rows, code_values, in_order, nearest_rank
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements, PlainPart, sum_floats
from headrace.kernel.columns import DECIMAL, Groups, Ints, as_numpy, of_ids, of_lists, to_lists
from headrace.kernel.keys import whole_hashes
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.expressions.expr import Expr

HASHES = 512
"""The most values of which hashes are stored, so that the count is exact."""

REGISTERS = 2**12

_RANK_BITS = 6
_REST_BITS = 63 - 12


@dataclass(frozen=True)
class DistinctSketchPart(PlainPart):
    """A sorted list for each group: hashes of 63 bits; or, of more than ``HASHES`` values, the registers of HLL that
    are not 0, as negative numbers: ``~(register * 64 + rank)``.
    """

    STORED_TYPE = pa.list_(pa.int64())

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self.of_values(*groups.without_nulls(elements.value))

    def of_values(self, values: pa.Array, groups: Groups) -> pa.Array:
        """The sketches of groups of ``values``, none of which is NULL."""
        return _make_distinct_sketches((whole_hashes([values]) >> np.uint64(1)).astype(np.int64), groups)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        items, inner = groups.flatten_lists(parts)
        return _make_distinct_sketches(as_numpy(items), inner)


def _make_distinct_sketches(items: Ints, groups: Groups) -> pa.Array:
    number = len(groups)
    ids, items = _distinct_items(groups.of_row, items)
    many = (np.bincount(ids, minlength=number) > HASHES) | (np.bincount(ids[items < 0], minlength=number) > 0)
    if many.any():
        ids, items = _distinct_items(ids, np.where(many[ids] & (items >= 0), _to_registers(items), items))
    return to_lists(pa.array(items), of_ids(ids, number), empty_is_null=True)


def _distinct_items(ids: Ints, items: Ints) -> tuple[Ints, Ints]:
    """Each hash once, and each register once, with the highest rank, in order."""
    order = in_order(ids, items)
    ids, items = ids[order], items[order]
    begins: Bools = changed_rows(ids, np.where(items < 0, items >> _RANK_BITS, items))
    return ids[begins], items[begins]


def _to_registers(registers: Ints) -> Ints:
    """The register of a hash with its rank: the zeros before the first one of the other bits, and one more."""
    _, used = np.frexp((registers >> 12).astype(np.float64))
    code: Ints = (registers % REGISTERS << _RANK_BITS) + (_REST_BITS + 1 - used)
    return ~code


def estimate_distinct(part: pa.Array) -> pa.Array:
    items, groups = of_lists(part)
    codes = as_numpy(items)
    many = np.zeros(len(groups), np.bool_)
    has_values = groups.sizes > 0
    many[has_values] = codes[groups.offsets[:-1][has_values]] < 0
    counts = groups.sizes.copy()
    if many.any():
        sums = sum_floats(np.exp2(-(~codes % 2**_RANK_BITS).astype(np.float64)), groups)[many]
        unused_share = 1.0 - groups.sizes[many] / REGISTERS
        counts[many] = np.rint(REGISTERS**2 / (2 * np.log(2) * (sums + REGISTERS * _sigma(unused_share)))).astype(
            np.int64
        )
    return pa.array(counts)


def _sigma(part: Floats) -> Floats:
    """What registers of rank 0, ``part`` of all, add: x, and the sum of x^(2^k) * 2^(k-1) (Ertl, sigma)."""
    power, factor, total = part, 1.0, part
    while True:
        power = power * power
        new_total = total + power * factor
        if (new_total == total).all():
            return total
        total, factor = new_total, factor * 2


CAPACITY = 600

_LEVEL = pa.int8()
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class QuantileSketchPart(AccumulatorPart):
    """The sketch as a list of values with their levels, by level, then value."""

    @classmethod
    def from_value(cls, name: str, value: Expr | None, kind: pa.DataType) -> "QuantileSketchPart":
        return cls(name, pa.list_(pa.struct([("value", kind), ("level", _LEVEL)])), value)

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        return self.of_values(*groups.without_nulls(elements.value))

    def of_values(self, values: pa.Array, groups: Groups) -> pa.Array:
        """The sketches of groups of ``values``, none of which is NULL."""
        return self._make_sketches(values, np.zeros(len(values), np.int64), groups)

    def gather_valid(self, parts: pa.Array, groups: Groups) -> pa.Array:
        items, inner = groups.flatten_lists(parts)
        return self._make_sketches(items.field(0), as_numpy(items.field(1).cast(pa.int64())), inner)

    def _make_sketches(self, values: pa.Array, levels: Ints, groups: Groups) -> pa.Array:
        coded_values, ids = code_values(values), groups.of_row
        codes = coded_values.codes
        if groups.sizes.max(initial=0) > CAPACITY:
            ids, levels, codes = _compact_levels(ids, levels, codes, len(groups))
        order = in_order(ids * 64 + levels, codes)
        fields = [coded_values.decode_values(codes[order]), pa.array(levels[order]).cast(_LEVEL)]
        items = pa.StructArray.from_arrays(fields, fields=list(self.type.value_type))
        return to_lists(items, of_ids(ids, len(groups)), empty_is_null=True)


def _compact_levels(ids: Ints, levels: Ints, codes: Ints, number: int) -> tuple[Ints, Ints, Ints]:
    """Values, of which no group has more than ``CAPACITY`` on a level."""
    kept_levels: list[tuple[Ints, Ints]] = []
    carried_up = ids[:0], codes[:0]
    highest = int(levels.max())
    while len(kept_levels) <= highest or len(carried_up[0]):
        on_this_level = levels == len(kept_levels)
        on_level = (
            np.concatenate([ids[on_this_level], carried_up[0]]),
            np.concatenate([codes[on_this_level], carried_up[1]]),
        )
        stays, carried_up = _split_level(*on_level, number)
        kept_levels.append(stays)
    sizes = [len(stay) for stay, _ in kept_levels]
    return (
        np.concatenate([stay for stay, _ in kept_levels]),
        np.repeat(np.arange(len(kept_levels)), sizes),
        np.concatenate([codes for _, codes in kept_levels]),
    )


def _split_level(ids: Ints, codes: Ints, number: int) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
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
    is_odd_one = (place == groups.sizes[ids] - 1) & (place % 2 == 0)
    goes = ~is_odd_one & (place % 2 == _choose_sides(codes, groups)[ids])
    return (np.append(stays[0], ids[is_odd_one]), np.append(stays[1], codes[is_odd_one])), (ids[goes], codes[goes])


def _choose_sides(codes: Ints, groups: Groups) -> NDArray[np.int64]:
    """0 or 1 for each group: which of two neighbours goes up."""
    total = groups.reduce(np.add, codes.view(np.uint64), 0)
    mixed_bits = (total ^ (total >> np.uint64(32))) * _MIX
    return (mixed_bits >> np.uint64(63)).astype(np.int64)


def sketch_quantile(part: pa.Array, q: float) -> pa.Array:
    """The value at rank ``q``; NULL of nothing."""
    items, groups = of_lists(part)
    codes = code_values(items.field(0))
    order = in_order(groups.of_row, codes.codes)
    weights = np.left_shift(1, as_numpy(items.field(1).cast(pa.int64()))[order])
    rows = nearest_rank(weights, groups, q)
    empty = groups.sizes == 0
    return items.field(0).take(pa.array(order)).take(pa.array(rows, mask=empty))


_DISTINCT, _QUANTILES, _FORMAT = b"HRD", b"HRQ", 1
_HASHES, _OF_REGISTERS = 0, 1
_RANKS: Final = 64
"""Ranks that a code of a register has room for."""

_SKETCHED_TYPES: Final = (pa.int64(), pa.float64(), DECIMAL)
_SKETCH_HEAD: Final = struct.Struct("<3sBB")


class SketchError(FixDataError, code="data.sketch"):
    """Bytes that are to be merged are no sketch of this kind, or of another type than the others."""


def distinct_bytes(parts: pa.Array) -> pa.Array:
    """The contents of ``DistinctSketchPart`` as bytes; NULL of nothing."""
    return _sketch_each_list(parts, lambda items: _distinct_sketch(as_numpy(items)))


def quantile_bytes(parts: pa.Array) -> pa.Array:
    """The contents of ``QuantileSketchPart`` as bytes; NULL of nothing."""
    return _sketch_each_list(parts, _quantile_sketch)


def _sketch_each_list(parts: pa.Array, spell: Callable[[pa.Array], bytes]) -> pa.Array:
    items, groups = of_lists(parts)
    spans = pairwise(groups.offsets.tolist())
    sketches = [spell(items.slice(begin, end - begin)) if end > begin else None for begin, end in spans]
    return pa.array(sketches, pa.binary())


def _distinct_sketch(items: Ints) -> bytes:
    if items[0] >= 0:
        return _SKETCH_HEAD.pack(_DISTINCT, _FORMAT, _HASHES) + items.astype("<i8").tobytes()
    registers = np.zeros(REGISTERS, np.uint8)
    registers[~items // _RANKS] = ~items % _RANKS
    return _SKETCH_HEAD.pack(_DISTINCT, _FORMAT, _OF_REGISTERS) + registers.tobytes()


def _quantile_sketch(items: pa.Array) -> bytes:
    values, levels = items.field(0), as_numpy(items.field(1))
    kind = _SKETCHED_TYPES.index(values.type)
    head = _SKETCH_HEAD.pack(_QUANTILES, _FORMAT, kind) + struct.pack("<I", len(items))
    width = values.type.bit_width // 8
    octets = values.buffers()[1].slice(values.offset * width, len(values) * width)
    return head + levels.astype(np.uint8).tobytes() + bytes(octets)


@check_keywords
def merge_distinct_sketches(sketches: "Iterable[bytes | None]") -> int:
    """How many different values all ``sketches`` saw together, to a relative error of 5 %. A sketch is what
    ``distinct_sketch`` gave for a key or window. They come as bytes in a list, a pandas Series or an Arrow column.
    NULLs count for nothing. The values were of one type. Raises SketchError.

    >>> hr.merge_distinct_sketches([])
    0
    """
    parts = [_decode_hashes(sketch) for sketch in _checked_sketches("merge_distinct_sketches", sketches)]
    part = DistinctSketchPart.from_value("sketch", None)
    lists = pa.array([[]], DistinctSketchPart.STORED_TYPE) if not parts else _make_lists(parts, pa.int64())
    return int(estimate_distinct(part.gather_valid(lists, Groups(np.array([0, len(lists)]))))[0].as_py())


Number = int | float | Decimal


@check_keywords
def merge_quantile_sketches(
    sketches: "Iterable[bytes | None]", qs: "Sequence[float]"
) -> "list[int | float | Decimal | None]":
    """For each of ``qs`` (0 to 1), a value with that part of all values at or below it. Its rank error is 2 %. The
    values are those that all ``sketches`` saw. They are what ``quantile_sketch`` gave of several keys or windows: bytes
    in a list, a pandas Series or an Arrow column. NULLs count for nothing; without sketches each is None. Raises
    SketchError.

    >>> hr.merge_quantile_sketches([], [0.5, 0.99])
    [None, None]
    """
    arguments = Arguments("merge_quantile_sketches")
    if not isinstance(qs, list | tuple) or not qs:
        raise arguments.refusal("qs", qs, "write a list of numbers from 0 to 1, [0.5, 0.99]")
    ranks = [float(arguments.number("qs", q, most=1)) for q in qs]
    parts = [_decode_levels(sketch) for sketch in _checked_sketches("merge_quantile_sketches", sketches)]
    if not parts:
        return [None] * len(ranks)
    kinds = {part.field(0).type for part in parts}
    if len(kinds) > 1:
        raise SketchError(
            f"sketches of {' and of '.join(sorted(map(str, kinds)))} are not merged: cast the values first"
        )
    sketch_part = QuantileSketchPart.from_value("sketch", None, kinds.pop())
    lists = _make_lists(parts, sketch_part.type.value_type)
    merged_sketch = sketch_part.gather_valid(lists, Groups(np.array([0, len(lists)])))
    return [sketch_quantile(merged_sketch, q)[0].as_py() for q in ranks]


T = TypeVar("T")


def _checked_sketches(owner: str, sketches: "Iterable[bytes | None]") -> list[bytes]:
    arguments, write = Arguments(owner), "give a column of sketches, or a list of them"
    if isinstance(sketches, bytes | str | Expr) or not isinstance(sketches, Iterable):
        raise arguments.refusal("sketches", sketches, write)
    values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in sketches]
    for value in values:
        if not (isinstance(value, bytes) or value is None or value != value):  # noqa: PLR0124 (NaN is pandas' NULL)
            raise arguments.refusal("sketches", value, write)
    return [value for value in values if isinstance(value, bytes)]


def _make_lists(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    sizes = np.append(0, np.cumsum([len(part) for part in parts]))
    return to_lists(pa.concat_arrays([*parts]).cast(kind), Groups(sizes))


def _kind_and_body(sketch: bytes, letters: bytes, what: str) -> tuple[int, bytes]:
    """The byte behind the number of the format, and what follows."""
    if len(sketch) < _SKETCH_HEAD.size or sketch[: len(letters)] != letters:
        raise SketchError(f"bytes that begin with {sketch[:5]!r} are no sketch of {what}")
    _, number, kind = _SKETCH_HEAD.unpack(sketch[: _SKETCH_HEAD.size])
    if number != _FORMAT:
        raise SketchError(f"a sketch of {what} has format {number}, and this version reads {_FORMAT}: update Headrace")
    return kind, sketch[_SKETCH_HEAD.size :]


def _decode_hashes(sketch: bytes) -> pa.Array:
    what = "how many values differ"
    kind, body = _kind_and_body(sketch, _DISTINCT, what)
    if kind == _HASHES and not len(body) % 8:
        return pa.array(np.frombuffer(body, "<i8").astype(np.int64))
    if kind != _OF_REGISTERS or len(body) != REGISTERS:
        raise SketchError(f"a sketch of {what} is cut off, or damaged: it has {len(sketch):,} bytes")
    ranks = np.frombuffer(body, np.uint8).astype(np.int64)
    used = np.flatnonzero(ranks)
    return pa.array(~(used * _RANKS + ranks[used]))


def _decode_levels(sketch: bytes) -> pa.StructArray:
    what = "quantiles"
    kind, body = _kind_and_body(sketch, _QUANTILES, what)
    number = int.from_bytes(body[:4], "little")
    if kind >= len(_SKETCHED_TYPES) or len(body) != 4 + number * (1 + _SKETCHED_TYPES[kind].bit_width // 8):
        raise SketchError(f"a sketch of {what} is cut off, or damaged: it has {len(sketch):,} bytes")
    levels = pa.array(np.frombuffer(body[4 : 4 + number], np.uint8).astype(np.int8))
    values = pa.Array.from_buffers(_SKETCHED_TYPES[kind], number, [None, pa.py_buffer(body[4 + number :])])
    return pa.StructArray.from_arrays([values, levels], names=["value", "level"])
