"""What is measured of a version: a few numbers, kept with its audit. Pure values.

A version is a range of epochs that became visible together, or is to. Earlier versions are known by these numbers
alone, so that no data is read again.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from headrace.pipeline.expectations import ExpectationView
from headrace_snapshots.format.record import JsonRecord

MOST_FREQUENT: Final = 50
"""As many values of a column of text are told apart; all others are the rest."""

QUANTILES: Final = 20
"""Numbers are known by their quantiles at 1/20, 2/20, ... 19/20, by nearest rank."""


class ColumnMeasure(JsonRecord, frozen=True, omit_defaults=True):
    """One column: how many values are ``missing`` (NULL, or a float that is not finite), and how the others are
    distributed. ``frequent`` are the most frequent texts with how often they come; ``quantiles`` are of numbers.
    """

    missing: int
    frequent: tuple[tuple[str, int], ...] | None = None
    quantiles: tuple[float, ...] | None = None


class ViewMeasure(JsonRecord, frozen=True):
    """The rows of one view, and the columns of which something is declared."""

    rows: int
    columns: Mapping[str, ColumnMeasure]

    def present(self, column: str) -> int:
        """How many values of ``column`` are not missing."""
        return self.rows - self.columns[column].missing


class VersionMeasure(JsonRecord, frozen=True, omit_defaults=True):
    """A version, by the ``snapshot`` that ends it. ``records`` were read; meanwhile the watermark went on by ``passed``
    microseconds, None if it stood, or began or ended with the version.
    """

    snapshot: str
    records: int
    passed: int | None = None
    views: Mapping[ExpectationView, ViewMeasure] = {}

    def column(self, view: ExpectationView, column: str) -> tuple[ViewMeasure, ColumnMeasure] | None:
        """What was measured of a column, if anything was."""
        rows = self.views.get(view)
        measure = None if rows is None else rows.columns.get(column)
        return None if rows is None or measure is None else (rows, measure)

    @property
    def rate(self) -> Fraction | None:
        """Records for each hour of event time; None where no time passed."""
        return None if not self.passed else Fraction(self.records * _HOUR, self.passed)


_HOUR: Final = 3_600_000_000


def ranks(values: int) -> list[int]:
    """The places, from 1 on, of the quantiles among so many sorted ``values``: nearest rank, none twice."""
    return sorted({_rank(number, values) for number in range(1, QUANTILES)}) if values else []


def quantiles(values: int, at_ranks: Mapping[int, float]) -> tuple[float, ...]:
    """The quantiles of so many ``values``, those at ``ranks`` being ``at_ranks``."""
    return tuple(at_ranks[_rank(number, values)] for number in range(1, QUANTILES)) if values else ()


def _rank(number: int, values: int) -> int:
    return -(-number * values // QUANTILES)
