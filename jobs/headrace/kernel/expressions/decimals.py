"""Numbers with digits after the point: decimals on Arrow columns, and floats rounded as Python rounds them.

Decimals on Arrow columns: 38 digits, 9 of them after the point (``model.expressions.decimals``).

What may need more digits on its way is done in 256 bits. Arrow's rules for the digits of a result ask for more than
there are; so operands say that they have fewer than they may (``_claimed``), which no kernel of Arrow's checks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, DecimalOverflowError
from headrace.kernel.columns import DECIMAL, as_numpy
from headrace.model.expressions.data_types import DIGITS, PRECISION, SCALE

SUM = pa.decimal256(76, SCALE)
"""Sums of fewer than 2^63 decimals."""

_WIDE = pa.decimal256(PRECISION, SCALE)
_CLAIM = 12
# of memory: an import makes nothing of Python's values, for the first of which Arrow imports pandas
_ZERO = pa.Array.from_buffers(DECIMAL, 1, [None, pa.py_buffer(bytes(16))])[0]
_NULL = pa.nulls(1, DECIMAL)[0]
_DIGITS_OF_FLOATS = pa.decimal256(76, 30)
_SMALLEST, _LARGEST = 1e-10, 1e29


def _claimed(values: pa.Array, precision: int, scale: int = SCALE) -> pa.Array:
    """The same 256 bits as decimals of another type."""
    kind = pa.decimal256(precision, scale)
    return pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)


def fitting(values: Any) -> Any:
    """Decimals of any type, without digits after the 9th, as such. Raises ArrowInvalid for one that does not fit."""
    return values.cast(DECIMAL)


@contextmanager
def overflowing(what: str, ways_out: str = OPERANDS) -> Iterator[None]:
    """Raise DecimalOverflowError, naming ``what`` and the ``ways_out``, where a decimal does not fit."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "fit in precision" not in str(error):
            raise
        raise DecimalOverflowError(f"{what} leaves {DIGITS}{ways_out}") from None


def stored_decimals(values: pa.Array) -> pa.Array:
    """Decimals of any type of Arrow's; NULL where one does not fit, or only without digits that count."""
    scale = values.type.scale
    wide = values.cast(pa.decimal256(76, scale))
    whole = pc.round(wide, ndigits=SCALE, round_mode="towards_zero") if scale > SCALE else wide
    limit = pa.scalar(Decimal(10) ** (PRECISION - SCALE), wide.type) if 76 - scale > PRECISION - SCALE else None
    fits = pc.equal(whole, wide)
    if limit is not None:
        fits = pc.and_(fits, pc.less(pc.abs(wide), limit))
    return fitting(pc.if_else(fits, whole, pa.scalar(None, wide.type)))


# --- arithmetic


def add(left: Any, right: Any) -> Any:
    """The sum, exact."""
    return fitting(pc.add(left.cast(_WIDE), right.cast(_WIDE)))


def subtract(left: Any, right: Any) -> Any:
    """The difference, exact."""
    return fitting(pc.subtract(left.cast(_WIDE), right.cast(_WIDE)))


def multiply(left: pa.Array, right: pa.Array) -> pa.Array:
    """The product, half to even."""
    product = pc.multiply(_claimed(left.cast(_WIDE), PRECISION - 1), _claimed(right.cast(_WIDE), PRECISION - 1))
    return fitting(pc.round(product, ndigits=SCALE, round_mode="half_to_even"))


def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """The quotient, half to even; NULL where the divisor is zero."""
    return quotient(left.cast(SUM), right)


def quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """The quotient of a SUM and a DECIMAL, a DECIMAL."""
    divisor = _divisor(right)
    cut = _cut(left, divisor)
    even = pc.round(cut, ndigits=SCALE, round_mode="half_to_even")
    away = pc.round(cut, ndigits=SCALE, round_mode="half_towards_infinity")
    if pc.any(differ := pc.not_equal(even, away)).as_py():
        exact = pc.equal(_product(cut, divisor), left.cast(pa.decimal256(76, _CUT + SCALE)))
        even = pc.if_else(pc.and_(differ, pc.invert(exact)), away, even)  # more was cut off than a half
    return fitting(even)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """The remainder with the sign of the divisor, exact; NULL where that is zero."""
    divisor = _divisor(right)
    whole = pc.trunc(_cut(left.cast(SUM), divisor)).cast(pa.decimal256(PRECISION + 1, 0))
    taken = _claimed(pc.multiply(_claimed(whole, 30, 0), _claimed(divisor, 40)), PRECISION)
    rest = fitting(pc.subtract(left.cast(_WIDE), taken))
    crosses = pc.not_equal(pc.multiply(pc.sign(rest), pc.sign(right)), pc.abs(pc.sign(rest)))
    moved = pc.if_else(pc.and_(crosses, pc.is_valid(divisor)), right, _ZERO)
    return add(rest, moved)


_CUT = _CLAIM + 1


def _divisor(right: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(right, _ZERO), _NULL, right).cast(_WIDE)


def _cut(left: pa.Array, divisor: pa.Array) -> pa.Array:
    """The quotient cut to 13 digits after the point."""
    known = pc.coalesce(divisor, pa.scalar(Decimal(1), _WIDE))
    shortened = pc.divide(_claimed(left, 50), _claimed(known, _CLAIM))
    assert shortened.type.scale == _CUT
    return pc.if_else(divisor.is_valid(), shortened, pa.scalar(None, shortened.type))


def _product(cut: pa.Array, divisor: pa.Array) -> pa.Array:
    product = pc.multiply(_claimed(cut, 35, _CUT), _claimed(divisor, 40))
    return _claimed(product, 76, _CUT + SCALE)


# --- other numbers


def of_ints(values: Any) -> Any:
    """Integers as decimals."""
    return values.cast(DECIMAL)


def of_floats(values: pa.Array) -> pa.Array:
    """The nearest decimals of the numbers that floats are written as; NULL of what does not fit."""
    size = pc.abs(values)
    known = pc.if_else(pc.less(size, _LARGEST), values, pa.scalar(None, pa.float64()))  # NaN is not less
    text = pc.cast(pc.if_else(pc.less(size, _SMALLEST), 0.0, known), pa.string())
    return fitting(pc.round(pc.cast(text, _DIGITS_OF_FLOATS), ndigits=SCALE, round_mode="half_to_even"))


def to_floats(values: pa.Array) -> pa.Array:
    """The nearest floats."""
    return pc.cast(pc.cast(values, pa.string()), pa.float64())


def to_ints(values: pa.Array) -> pa.Array:
    """Without fractions; NULL where 64 bits do not hold that."""
    whole = pc.trunc(values)
    low, high = (pa.scalar(Decimal(bound), DECIMAL) for bound in (-(2**63), 2**63 - 1))
    fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    return pc.if_else(fits, whole, _NULL).cast(pa.int64())


def round_to(values: pa.Array, digits: int) -> pa.Array:
    """The nearest decimals with so many digits after the point, half to even."""
    return values if digits >= SCALE else pc.round(values, ndigits=digits, round_mode="half_to_even")


def moderate(values: pa.Array) -> pa.Array:
    """Values that can be rounded to whole numbers of 64 bits; NULL for others."""
    return pc.if_else(pc.less(pc.abs(values), pa.scalar(Decimal(10) ** 20, DECIMAL)), values, _NULL)


def spelled(values: pa.Array) -> pa.Array:
    """Decimals in digits, without trailing zeros: ``-12.5``."""
    digits = pc.cast(_whole(pc.abs(values)), pa.string())
    digits = pc.utf8_lpad(digits, SCALE + 1, "0")
    fraction = pc.ascii_rtrim(pc.utf8_slice_codeunits(digits, -SCALE), characters="0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    sign = pc.if_else(pc.less(values, _ZERO), "-", "")
    return pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, -SCALE), point, fraction, "")


def _whole(values: pa.Array) -> pa.Array:
    """Billionths, as decimals without digits after the point."""
    kind = pa.decimal128(PRECISION, 0)
    return pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)


def of_billionths(numbers: NDArray[np.int64], absent: NDArray[np.bool_] | None) -> pa.Array:
    """Billionths as decimals, NULL where they are ``absent``."""
    billionths = pa.array(numbers, mask=absent).cast(pa.decimal128(PRECISION, 0))
    return pa.Array.from_buffers(DECIMAL, len(billionths), billionths.buffers(), offset=billionths.offset)


def words_of(column: pa.Array) -> NDArray[np.int64]:
    """Words of 64 bits of decimals, of 128 or 256 bits, a row for each, the least first; NULL is 0."""
    width = column.type.bit_width // 64
    data = np.frombuffer(column.buffers()[1], np.int64) if len(column) else np.empty(0, np.int64)
    words = data[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
    if column.null_count:
        words = np.where(as_numpy(column.is_valid())[:, None], words, 0)
    return words


# --- text

SHORT = PRECISION - SCALE
"""So many characters without an exponent are a decimal, or none at all: of longer ones Arrow's parser wraps some."""

_PATTERN = r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)(?:[eE](?P<power>[+-]?[0-9]+))?$"
_HAS_DIGITS = r"^[+-]?\.?[0-9]"


def judged(text: pa.Array) -> pa.Array:
    """The decimals that texts say exactly, NULL of those that say none."""
    nothing = pa.scalar(None, pa.string())
    text = pc.if_else(pc.match_substring_regex(text, _HAS_DIGITS), text, nothing)
    parts = pc.extract_regex(text, _PATTERN)
    sign, whole, fraction, power = (pc.struct_field(parts, name) for name in ("sign", "whole", "fraction", "power"))
    digits = pc.ascii_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0")
    kept = pc.ascii_rtrim(digits, characters="0")
    exponent = _exponents(power)
    exponent = pc.subtract(exponent, _length(fraction))
    exponent = pc.add(exponent, pc.subtract(_length(digits), _length(kept)))
    is_zero = pc.equal(kept, "")
    largest = pc.add(_length(kept), exponent)
    fits = pc.and_(pc.greater_equal(exponent, -SCALE), pc.less_equal(largest, PRECISION - SCALE))
    known = pc.if_else(pc.or_(is_zero, fits), kept, nothing)
    exponent = pc.if_else(is_zero, 0, exponent)
    plain = pc.binary_join_element_wise(pc.if_else(is_zero, "0", known), pc.cast(exponent, pa.string()), "e")
    return pc.cast(pc.binary_join_element_wise(sign, plain, ""), DECIMAL)


def _exponents(power: pa.Array) -> pa.Array:
    """Powers of ten; of large ones others as large."""
    negative = pc.starts_with(power, "-")
    size = pc.ascii_ltrim(pc.ascii_ltrim(power, characters="+-"), characters="0")
    size = pc.if_else(pc.greater(_length(size), 9), "9999999999", pc.if_else(pc.equal(size, ""), "0", size))
    number = pc.cast(size, pa.int64())
    return pc.if_else(negative, pc.negate(number), number)


def _length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text).cast(pa.int64())


_WHOLE = 2.0**52
"""From here on every float is a whole number."""


def round_floats_to(values: pa.Array, digits: int) -> pa.Array:
    """The nearest numbers with ``digits`` (at most 22) after the point; of what a double exactly is, half to even.

    A product with a power of ten is off by less than a part in 2^52. Where it is further than that from the middle
    between two whole numbers the nearest of them is the right one, and a quotient of two exact numbers is the double
    nearest to the decimal that is meant. Elsewhere Python is asked.
    """
    numbers = as_numpy(values.fill_null(0.0))
    power = 10.0**digits
    with np.errstate(all="ignore"):
        scaled = numbers * power
        rounded = np.rint(scaled) / power
        from_middle = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
        is_sure = (np.abs(scaled) < _WHOLE) & (from_middle > np.abs(scaled) * 2.0**-52)
        is_fraction = np.abs(numbers) < _WHOLE
    rounded = np.where(is_fraction, rounded, numbers)
    for place in np.flatnonzero(is_fraction & ~is_sure):
        rounded[place] = round(float(numbers[place]), digits)
    return pa.array(rounded, mask=as_numpy(values.is_null()))
