"""What every expression can be asked for that is a number."""

from typing import TYPE_CHECKING

from headrace.model.arguments import Arguments
from headrace.model.suggestions import method_keywords

if TYPE_CHECKING:
    from headrace.model.expressions.data_types import Scalar
    from headrace.model.expressions.expr import Expr

MOST_DIGITS = 15
"""Digits after the point that a number can be rounded to."""


@method_keywords
class NumberMethods:
    """Functions of a number."""

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

    def abs(self) -> "Expr":
        """The absolute value of this number."""
        return self._apply("abs")

    def round(self, digits: int | None = None) -> "Expr":
        """The nearest int, or the even one of two that are equally near, as Python's ``round``; NULL where 64 bits do
        not hold it. With ``digits``, from 0 to 15, a number of this type with so many after the point, half to even.

        A float is rounded as the number that it is, which is seldom the one that was written: 2.675 is a little less
        than that, and ``.round(2)`` is 2.67. Decimals are exact.
        """
        if digits is None:
            return self._apply("round")
        given = Arguments("round")
        if given.whole("digits", digits, least=0) > MOST_DIGITS:
            raise given.wrong("digits", digits, f"write at most {MOST_DIGITS}: a float has no more")
        return self._apply("round_to", digits)

    def floor(self) -> "Expr":
        """The largest int that is not above this number; NULL where 64 bits do not hold it."""
        return self._apply("floor")

    def ceil(self) -> "Expr":
        """The smallest int that is not below this number; NULL where 64 bits do not hold it."""
        return self._apply("ceil")
