"""Decimals on Arrow columns, 38 digits of which 9 are after the point; and floats rounded as Python rounds them.

``model.expressions.data_types`` says what decimals are. What may need more digits on its way is done in 256 bits.
Arrow's rules for the digits of a result ask for more than there are. So operands say that they have fewer than they
may (``_reinterpret_decimal``), which no kernel of Arrow's checks.
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
_SMALLEST_FLOAT, _LARGEST_FLOAT = 1e-10, 1e29


def _reinterpret_decimal(values: pa.Array, precision: int, scale: int = SCALE) -> pa.Array:
    """The same 256 bits as decimals of another type."""
    kind = pa.decimal256(precision, scale)
    return pa.Array.from_buffers(kind, len(values), values.buffers(), offset=values.offset)


def to_decimals(values: Any) -> Any:
    """Decimals of any type, without digits after the 9th, as such. Raises ArrowInvalid for one that does not fit."""
    return values.cast(DECIMAL)


@contextmanager
def translate_overflow(what: str, ways_out: str = OPERANDS) -> Iterator[None]:
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
    return to_decimals(pc.if_else(fits, whole, pa.scalar(None, wide.type)))


# --- arithmetic


def add(left: Any, right: Any) -> Any:
    """The sum, exact."""
    return to_decimals(pc.add(left.cast(_WIDE), right.cast(_WIDE)))


def subtract(left: Any, right: Any) -> Any:
    """The difference, exact."""
    return to_decimals(pc.subtract(left.cast(_WIDE), right.cast(_WIDE)))


def multiply(left: pa.Array, right: pa.Array) -> pa.Array:
    """The product, half to even."""
    product = pc.multiply(
        _reinterpret_decimal(left.cast(_WIDE), PRECISION - 1), _reinterpret_decimal(right.cast(_WIDE), PRECISION - 1)
    )
    return to_decimals(_round_digits(product, SCALE))


def _round_digits(values: pa.Array, digits: int, mode: str = "half_to_even") -> pa.Array:
    """Decimals with so many digits after the point, of 256 bits.

    Arrow forgets that a rounded value did not fit if a later one fits, and gives 0. So the type has all 76 digits.
    """
    wide = values.cast(pa.decimal256(values.type.precision, values.type.scale))
    return pc.round(_reinterpret_decimal(wide, 76, wide.type.scale), ndigits=digits, round_mode=mode)


def divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """The quotient, half to even; NULL where the divisor is zero."""
    return divide_sum(left.cast(SUM), right)


def divide_sum(left: pa.Array, right: pa.Array) -> pa.Array:
    """The quotient of a SUM and a DECIMAL, a DECIMAL."""
    divisor = _nonzero_divisor(right)
    cut = _truncated_quotient(left, divisor)
    even = _round_digits(cut, SCALE)
    rounded_away = _round_digits(cut, SCALE, "half_towards_infinity")
    if pc.any(differ := pc.not_equal(even, rounded_away)).as_py():
        exact = pc.equal(_wide_product(cut, divisor), left.cast(pa.decimal256(76, _CUT + SCALE)))
        even = pc.if_else(pc.and_(differ, pc.invert(exact)), rounded_away, even)  # more was cut off than a half
    return to_decimals(even)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """The remainder with the sign of the divisor, exact; NULL where that is zero."""
    divisor = _nonzero_divisor(right)
    whole = pc.trunc(_truncated_quotient(left.cast(SUM), divisor)).cast(pa.decimal256(PRECISION + 1, 0))
    truncated_part = _reinterpret_decimal(
        pc.multiply(_reinterpret_decimal(whole, 30, 0), _reinterpret_decimal(divisor, 40)), PRECISION
    )
    rest = to_decimals(pc.subtract(left.cast(_WIDE), truncated_part))
    crosses = pc.not_equal(pc.multiply(pc.sign(rest), pc.sign(right)), pc.abs(pc.sign(rest)))
    correction = pc.if_else(pc.and_(crosses, pc.is_valid(divisor)), right, _ZERO)
    return add(rest, correction)


_CUT = _CLAIM + 1


def _nonzero_divisor(right: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(right, _ZERO), _NULL, right).cast(_WIDE)


def _truncated_quotient(left: pa.Array, divisor: pa.Array) -> pa.Array:
    """The quotient cut to 13 digits after the point."""
    nonzero_divisor = pc.coalesce(divisor, pa.scalar(Decimal(1), _WIDE))
    cut_quotient = pc.divide(_reinterpret_decimal(left, 50), _reinterpret_decimal(nonzero_divisor, _CLAIM))
    assert cut_quotient.type.scale == _CUT
    return pc.if_else(divisor.is_valid(), cut_quotient, pa.scalar(None, cut_quotient.type))


def _wide_product(cut: pa.Array, divisor: pa.Array) -> pa.Array:
    product = pc.multiply(_reinterpret_decimal(cut, 35, _CUT), _reinterpret_decimal(divisor, 40))
    return _reinterpret_decimal(product, 76, _CUT + SCALE)


# --- other numbers


def of_ints(values: Any) -> Any:
    return values.cast(DECIMAL)


def of_floats(values: pa.Array) -> pa.Array:
    """The nearest decimals of the numbers that floats are written as; NULL of what does not fit."""
    size = pc.abs(values)
    in_range = pc.if_else(pc.less(size, _LARGEST_FLOAT), values, pa.scalar(None, pa.float64()))  # NaN is not less
    # what rounds to 0 may have more digits than can be read
    text = pc.cast(pc.if_else(pc.less(size, _SMALLEST_FLOAT), 0.0, in_range), pa.string())
    return to_decimals(_round_digits(pc.cast(text, _DIGITS_OF_FLOATS), SCALE))


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
    return values if digits >= SCALE else to_decimals(_round_digits(values, digits))


def null_if_huge(values: pa.Array) -> pa.Array:
    """Values that can be rounded to whole numbers of 64 bits; NULL for others."""
    return pc.if_else(pc.less(pc.abs(values), pa.scalar(Decimal(10) ** 20, DECIMAL)), values, _NULL)


def spell_decimals(values: pa.Array) -> pa.Array:
    """Decimals in digits, without trailing zeros: ``-12.5``."""
    digits = pc.cast(_as_billionths(pc.abs(values)), pa.string())
    digits = pc.utf8_lpad(digits, SCALE + 1, "0")
    fraction = pc.ascii_rtrim(pc.utf8_slice_codeunits(digits, -SCALE), characters="0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    sign = pc.if_else(pc.less(values, _ZERO), "-", "")
    return pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, -SCALE), point, fraction, "")


def _as_billionths(values: pa.Array) -> pa.Array:
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


def parse_decimals(text: pa.Array) -> pa.Array:
    """The decimals that texts say exactly, NULL of those that say none."""
    nothing = pa.scalar(None, pa.string())
    text = pc.if_else(pc.match_substring_regex(text, _HAS_DIGITS), text, nothing)
    parts = pc.extract_regex(text, _PATTERN)
    sign, whole, fraction, power = (pc.struct_field(parts, name) for name in ("sign", "whole", "fraction", "power"))
    digits = pc.ascii_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0")
    significant_digits = pc.ascii_rtrim(digits, characters="0")
    exponent = _parse_exponents(power)
    exponent = pc.subtract(exponent, _text_length(fraction))
    exponent = pc.add(exponent, pc.subtract(_text_length(digits), _text_length(significant_digits)))
    is_zero = pc.equal(significant_digits, "")
    largest = pc.add(_text_length(significant_digits), exponent)
    fits = pc.and_(pc.greater_equal(exponent, -SCALE), pc.less_equal(largest, PRECISION - SCALE))
    fitting_digits = pc.if_else(pc.or_(is_zero, fits), significant_digits, nothing)
    exponent = pc.if_else(is_zero, 0, exponent)
    plain = pc.binary_join_element_wise(pc.if_else(is_zero, "0", fitting_digits), pc.cast(exponent, pa.string()), "e")
    return pc.cast(pc.binary_join_element_wise(sign, plain, ""), DECIMAL)


def _parse_exponents(power: pa.Array) -> pa.Array:
    """Powers of ten; large ones become other large ones."""
    negative = pc.starts_with(power, "-")
    size = pc.ascii_ltrim(pc.ascii_ltrim(power, characters="+-"), characters="0")
    size = pc.if_else(pc.greater(_text_length(size), 9), "9999999999", pc.if_else(pc.equal(size, ""), "0", size))
    number = pc.cast(size, pa.int64())
    return pc.if_else(negative, pc.negate(number), number)


def _text_length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text).cast(pa.int64())


_ALL_WHOLE_FROM = 2.0**52
"""From here on every float is a whole number."""


def round_floats_to(values: pa.Array, digits: int) -> pa.Array:
    """The nearest numbers with ``digits`` (at most 22) after the point; halves go to even, by what a double exactly is.

    A product with a power of ten is off by less than a part in 2^52. Where it is further than that from the middle
    between two whole numbers, the nearest of them is right. The quotient of two exact numbers is then the double
    nearest to the decimal that is meant. Elsewhere Python is asked.
    """
    numbers = as_numpy(values.fill_null(0.0))
    power = 10.0**digits
    with np.errstate(all="ignore"):
        scaled_numbers = numbers * power
        rounded_numbers = np.rint(scaled_numbers) / power
        from_middle = np.abs(np.abs(scaled_numbers - np.trunc(scaled_numbers)) - 0.5)
        is_sure = (np.abs(scaled_numbers) < _ALL_WHOLE_FROM) & (from_middle > np.abs(scaled_numbers) * 2.0**-52)
        is_fraction = np.abs(numbers) < _ALL_WHOLE_FROM
    rounded_numbers = np.where(is_fraction, rounded_numbers, numbers)
    for place in np.flatnonzero(is_fraction & ~is_sure):
        rounded_numbers[place] = round(float(numbers[place]), digits)
    return pa.array(rounded_numbers, mask=as_numpy(values.is_null()))
