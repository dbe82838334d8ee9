"""Expected rows beside the rows that were found: as many pairs as possible, and a difference that can be read.

Users' tests and conformance cases are compared by this; what a row is, and what is equal in it, each says itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Found_contra = TypeVar("Found_contra", contravariant=True)
T = TypeVar("T")

ExpectedRow = Mapping[str, Any]
"""The values by column that a test wrote. What it leaves out does not count."""

RELATIVE_ERROR = 1e-9
"""How far two floats may be apart and still be equal (semantics 12.4); everything else compares exactly."""

ABSOLUTE_ERROR = 1e-12
"""The same near 0, where what sums leave of values that cancel out has no size to be relative to."""


class RowKind(Protocol[Found_contra]):
    """Rows of one kind: what is equal in them, and how they are written."""

    def unequal(self, expected: ExpectedRow, actual: Found_contra) -> Sequence[str]:
        """The columns in which ``actual`` is not what is ``expected``."""

    def both(self, column: str, expected: ExpectedRow, actual: Found_contra) -> tuple[str, str]:
        """What is expected and what was found in ``column``, in words."""

    def expected(self, row: ExpectedRow) -> str:
        """An expected row in words."""

    def found(self, row: Found_contra) -> str:
        """A row that was found, in words."""


@dataclass(frozen=True)
class Difference:
    """How many expected rows were not found, how many found rows were not expected, and both in ``lines``: a row that
    is missing stands beside the one that is most like it.
    """

    missing: int
    unexpected: int
    lines: tuple[str, ...]


def difference(kind: RowKind[T], expected: Sequence[ExpectedRow], actual: Sequence[T]) -> Difference | None:
    """How ``actual`` differs from what is ``expected`` in any order; None if it does not."""
    compared = _Compared(kind, expected, actual)
    pairs = compared.pairs()
    missing = [number for number in range(len(expected)) if number not in pairs]
    taken = {*pairs.values()}
    left = [number for number in range(len(actual)) if number not in taken]
    if not missing and not left:
        return None
    return Difference(len(missing), len(left), tuple(compared.lines(missing, left)))


@dataclass(frozen=True)
class _Compared(Generic[T]):
    kind: RowKind[T]
    expected: Sequence[ExpectedRow]
    rows: Sequence[T]

    def pairs(self) -> dict[int, int]:
        """The row of each expected one, so that as many as possible have one: a largest pairing, by augmenting paths.
        A greedy one would not do, since an expected row that lists few columns fits many.
        """
        fits = [
            [number for number, row in enumerate(self.rows) if not self.kind.unequal(expected_row, row)]
            for expected_row in self.expected
        ]
        owner: dict[int, int] = {}

        def place(number: int, seen: set[int]) -> bool:
            for row in fits[number]:
                if row not in seen:
                    seen.add(row)
                    if row not in owner or place(owner[row], seen):
                        owner[row] = number
                        return True
            return False

        for number in range(len(self.expected)):
            place(number, set())
        return {number: row for row, number in owner.items()}

    def lines(self, missing: Sequence[int], left: list[int]) -> list[str]:
        """Each ``missing`` row beside the closest of those ``left``, if they have anything in common; then the rest."""
        lines: list[str] = []
        for number in missing:
            expected = self.expected[number]
            lines.append(f"  - expected {self.kind.expected(expected)}")
            closest = min(left, key=lambda row: len(self.kind.unequal(expected, self.rows[row])), default=None)
            if closest is not None and self._is_alike(expected, self.rows[closest]):
                left.remove(closest)
                lines += self._beside(expected, self.rows[closest])
        return [*lines, *(f"  + found    {self.kind.found(self.rows[row])}, which was not expected" for row in left)]

    def _is_alike(self, expected: ExpectedRow, row: T) -> bool:
        wrong = self.kind.unequal(expected, row)
        return not expected or any(column not in wrong for column in expected)

    def _beside(self, expected: ExpectedRow, row: T) -> list[str]:
        lines = [f"  + found    {self.kind.found(row)}"]
        for column in self.kind.unequal(expected, row):
            wanted, there = self.kind.both(column, expected, row)
            lines.append(f"      {column}: {wanted} expected, {there} found")
        return lines


def equal_numbers(expected: float, actual: float) -> bool:
    """Whether two numbers, one of them a float, are the same to the errors above; NaN is NaN."""
    both_nan = expected != expected and actual != actual  # noqa: PLR0124 (also where an int is too large for a float)
    return both_nan or math.isclose(expected, actual, rel_tol=RELATIVE_ERROR, abs_tol=ABSOLUTE_ERROR)
