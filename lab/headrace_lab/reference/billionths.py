"""Arithmetic of decimals, which are whole numbers of billionths."""

from headrace.model.expressions.data_types import SCALE

ONE: int = 10**SCALE
"""Billionths of 1."""


def divide_rounded(numerator: int, denominator: int) -> int:
    """The quotient, half to even."""
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    quotient, rest = divmod(numerator, denominator)
    rounds_up = 2 * rest > denominator or (2 * rest == denominator and quotient % 2 == 1)
    return quotient + rounds_up
