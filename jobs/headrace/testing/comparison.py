"""What a test expects beside what it found, and a difference that can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.identity import constant_to_json
from headrace.model.panes import WINDOW_END, WINDOW_START, Timing
from headrace.model.suggestions import did_you_mean, keywords
from headrace.testing import matching
from headrace.testing.errors import UnitTestError
from headrace.testing.results import PaneRow, Row, StepResults, TimeSpan, shown
from headrace.testing.times import moment, real

Expected = Sequence[Mapping[str, Any]]

VIEWS = ("panes", "current", "late", "rejected")


@keywords
def assert_panes(result: StepResults, expected: Expected) -> None:
    """The panes of ``result`` are these, in any order.

    Columns that an expected pane leaves out do not count, but one that does not say ``is_retraction: True`` is not a
    retraction. ``window`` is a pair of times; times may be short. Raises AssertionError with the difference.
    """
    _assert(result, "panes", expected)


@keywords
def assert_current(result: StepResults, expected: Expected) -> None:
    """What counts after ``result`` is this, in any order; as ``assert_panes``."""
    _assert(result, "current", expected)


@keywords
def assert_late(result: StepResults, expected: Expected) -> None:
    """The late records of ``result`` are these, in any order; as ``assert_panes``."""
    _assert(result, "late", expected)


@keywords
def assert_rejected(result: StepResults, expected: Expected) -> None:
    """The dead letters of ``result`` are these, in any order; as ``assert_panes``."""
    _assert(result, "rejected", expected)


def _assert(result: StepResults, view: str, expected: Expected) -> None:
    __tracebackhide__ = True
    given = Arguments(f"assert_{view}", UnitTestError)
    given.instance("result", result, StepResults, "the result of run(...)")
    given.several("expected", expected, Mapping, '{"origin": "EWR", "n": 3}')  # type: ignore[type-abstract]
    if text := difference(result, view, expected):
        raise AssertionError(text)


def difference(result: StepResults, view: str, expected: Expected) -> str | None:
    """How the ``view`` of ``result`` differs from what is ``expected``; None if it does not.

    Raises UnitTestError for an expected column that there is not.
    """
    _check_columns(result.columns[view], view, expected)
    rows = [_ViewRow(row, _row(row)) for row in getattr(result, view)]
    mismatch = matching.difference(_ViewRows(), expected, rows)
    if mismatch is None:
        return None
    return "\n".join((f"{view}: {_count(len(expected), 'expected')}, {_count(len(rows), 'found')}", *mismatch.lines))


def _count(number: int, what: str) -> str:
    return f"{number or 'none'} {what}"


@dataclass(frozen=True)
class _ViewRow:
    """A row as the result has it, and its values by column."""

    given: PaneRow | Row
    values: Row


class _ViewRows:
    """How rows of views are compared and written."""

    def unequal(self, expected: Mapping[str, Any], actual: _ViewRow) -> list[str]:
        """The columns that differ; a row that does not say so is no retraction."""
        wrong = [name for name, value in expected.items() if not equal(value, actual.values.get(name), name)]
        if "is_retraction" not in expected and actual.values.get("is_retraction"):
            wrong.append("is_retraction")
        return wrong

    def both(self, column: str, expected: Mapping[str, Any], actual: _ViewRow) -> tuple[str, str]:
        """Both values of a column."""
        return shown(expected.get(column, False)), shown(actual.values.get(column))

    def expected(self, row: Mapping[str, Any]) -> str:
        """The columns that a test wrote."""
        return "{" + ", ".join(f"{name}: {shown(value)}" for name, value in row.items()) + "}"

    def found(self, row: _ViewRow) -> str:
        """A pane in a line; of another row what is not null."""
        if isinstance(row.given, PaneRow):
            return repr(row.given)
        return self.expected({name: value for name, value in row.given.items() if value is not None})


def _row(given: PaneRow | Row) -> Row:
    row = given.row if isinstance(given, PaneRow) else given
    if WINDOW_START not in row:
        return row
    return {**row, "window": TimeSpan(row[WINDOW_START], row[WINDOW_END])}


def _check_columns(known: Sequence[str], view: str, expected: Expected) -> None:
    for row in expected:
        if not isinstance(row, Mapping):
            raise UnitTestError(f"{view}: {shown(row)} is expected; write a dict of values by column")
        for name in row:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise UnitTestError(f"{view} have no column {name!r}; {hint}they have {', '.join(known)}")


def equal(expected: Any, actual: Any, column: str) -> bool:
    """Whether ``actual`` is what a test wrote: times as text too, floats to a relative error of 1e-9."""
    match actual:
        case None:
            same = expected is None
        case _ if expected is None:
            same = False
        case TimeSpan():
            same = _equal_windows(expected, actual)
        case datetime():
            same = real(moment(expected, f"the expected {column}")) == actual
        case list() | tuple():
            same = _equal_lists(expected, actual, column)
        case bool():
            same = expected is actual
        case float():
            same = _is_number(expected) and matching.equal_numbers(expected, actual)
        case date():
            same = expected in (actual, actual.isoformat())
        case Decimal():
            same = _equal_decimals(expected, actual)
        case bytes():
            same = expected in (actual, constant_to_json(actual))
        case _ if column == "timing":
            same = _timing(expected) == actual
        case _:
            same = not isinstance(expected, bool) and bool(expected == actual)
    return same


def _equal_decimals(expected: Any, actual: Decimal) -> bool:
    """A float stands for the number that it is written as."""
    try:
        return not isinstance(expected, bool) and Decimal(str(expected)) == actual
    except InvalidOperation:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal_lists(expected: Any, actual: Sequence[Any], column: str) -> bool:
    if not isinstance(expected, list | tuple) or len(expected) != len(actual):
        return False
    return all(
        equal(expected_value, actual_value, column)
        for expected_value, actual_value in zip(expected, actual, strict=True)
    )


def _equal_windows(expected: Any, actual: TimeSpan) -> bool:
    if not isinstance(expected, list | tuple) or len(expected) != 2:
        raise UnitTestError(f'the expected window is {shown(expected)}; write both ends, such as ["13:00", "14:00"]')
    return all(
        actual_bound is None
        if expected_bound is None
        else real(moment(expected_bound, "an end of the expected window")) == actual_bound
        for expected_bound, actual_bound in zip(expected, actual, strict=True)
    )


def _timing(expected: object) -> str:
    text = str(expected).upper().replace(" ", "_")
    if text not in list(Timing):
        raise UnitTestError(f"the expected timing is {shown(expected)}; write one of {', '.join(Timing)}")
    return text
