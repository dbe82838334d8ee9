"""What is asked of the columns of some rows, whether they are a table in this process or a frame of Spark's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_TEXT: Final = 200
"""Text counts by so many of its first characters."""


BlameDirection = Literal["missing", "text", "above", "below"]
"""Which rows are to blame for a column that is not as usual."""


@dataclass(frozen=True)
class BlamedRows:
    """The rows whose ``column`` is missing, is the text ``value``, or is a number above or below ``value``."""

    column: str
    blamed: BlameDirection
    value: str | float | None = None


class ColumnReader(Protocol):
    """Figures of columns of some rows. Text counts by its first ``LONGEST_TEXT`` characters; booleans are text."""

    def missing_counts(self, columns: Sequence[str]) -> Mapping[str, int]:
        """How many values of each are NULL, or floats that are not finite."""

    def is_text(self, column: str) -> bool:
        """Whether it is text or a boolean, and no number."""

    def most_frequent(self, column: str, number: int) -> list[tuple[str, int]]:
        """The most frequent texts and how often they come; the first in order of those that are as frequent."""

    def at_ranks(self, column: str, places: Sequence[int]) -> Mapping[int, float]:
        """The finite numbers at ``places`` (from 1 on) when they are sorted."""

    def first_rows(self, condition: BlamedRows, order: Sequence[str], number: int) -> "pa.Table":
        """The first rows in ``order`` that fulfil ``condition``: the columns of both."""
