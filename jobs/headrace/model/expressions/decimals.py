"""Decimals: numbers of 38 digits, 9 of them after the point, between -10^29 and 10^29.

They add, subtract and leave remainders exactly; products, quotients and means are rounded to the 9th digit, half to
even. What does not fit is an error. All of it is arithmetic of whole numbers: of billionths.
"""

from decimal import Decimal

PRECISION, SCALE = 38, 9
DIGITS = f"{PRECISION} digits, {SCALE} of them after the point"

ONE: int = 10**SCALE
"""Billionths of 1."""

_LIMIT: int = 10**PRECISION


def billionths(value: Decimal | int) -> int | None:
    """``value`` in billionths; None unless they say it exactly, and it fits."""
    if not (value := Decimal(value)).is_finite():
        return None
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits)))
    shift = int(exponent) + SCALE
    if not whole:
        return 0
    if shift > PRECISION or -shift > len(digits):
        return None
    units, rest = divmod(whole * 10 ** max(shift, 0), 10 ** max(-shift, 0))
    return None if rest or not fits(units) else (-units if sign else units)


def fits(billionths: int) -> bool:
    """Whether a decimal holds that."""
    return abs(billionths) < _LIMIT


def of_billionths(number: int) -> Decimal:
    """The decimal of so many billionths, without trailing zeros."""
    digits = str(abs(number))
    kept = digits.rstrip("0") or "0"
    exponent = 0 if kept == "0" else len(digits) - len(kept) - SCALE
    return Decimal((number < 0, tuple(map(int, kept)), exponent))


def rounded(numerator: int, denominator: int) -> int:
    """The quotient, half to even."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    quotient, rest = divmod(numerator, denominator)
    up = 2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1)
    return quotient + up


def spelled(value: Decimal) -> str:
    """``value`` in digits, without trailing zeros: ``-12.5``."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text
