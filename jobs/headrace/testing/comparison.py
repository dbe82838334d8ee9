"""What a test expects beside what it found, and a difference that can be read."""

import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.expr import constant_to_json
from headrace.model.panes import WINDOW_END, WINDOW_START, Timing
from headrace.model.suggestions import keywords
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
    found: Sequence[PaneRow | Row] = getattr(result, view)
    _check_columns(result.columns[view], view, expected)
    rows = [_row(each) for each in found]
    pairs = _matched(expected, rows)
    missing = [number for number in range(len(expected)) if number not in pairs]
    left = [number for number in range(len(rows)) if number not in pairs.values()]
    if not missing and not left:
        return None
    lines = [f"{view}: {_count(len(expected), 'expected')}, {_count(len(rows), 'found')}"]
    for number in missing:
        lines.append(f"  - expected {_written(expected[number])}")
        closest = min(left, key=lambda row: len(_unequal(expected[number], rows[row])), default=None)
        wrong = [] if closest is None else _unequal(expected[number], rows[closest])
        if closest is not None and (len(wrong) < len(expected[number]) or wrong == ["is_retraction"]):
            left.remove(closest)
            lines.append(f"  + found    {_found(found[closest])}")
            lines += [f"      {name}: {_beside(name, expected[number], rows[closest])}" for name in wrong]
    lines += [f"  + found    {_found(found[number])}, which was not expected" for number in left]
    return "\n".join(lines)


def _beside(name: str, expected: Mapping[str, Any], found: Row) -> str:
    return f"{shown(expected.get(name, False))} expected, {shown(found.get(name))} found"


def _count(number: int, what: str) -> str:
    return f"{number or 'none'} {what}"


def _row(each: PaneRow | Row) -> Row:
    row = each.row if isinstance(each, PaneRow) else each
    if WINDOW_START not in row:
        return row
    return {**row, "window": TimeSpan(row[WINDOW_START], row[WINDOW_END])}


def _written(expected: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {shown(value)}" for name, value in expected.items()) + "}"


def _found(each: PaneRow | Row) -> str:
    return repr(each) if isinstance(each, PaneRow) else _written({k: v for k, v in each.items() if v is not None})


def _check_columns(known: Sequence[str], view: str, expected: Expected) -> None:
    for row in expected:
        if not isinstance(row, Mapping):
            raise UnitTestError(f"{view}: {shown(row)} is expected; write a dict of values by column")
        for name in row:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise UnitTestError(f"{view} have no column {name!r}; {hint}they have {', '.join(known)}")


def _unequal(expected: Mapping[str, Any], row: Row) -> list[str]:
    """The columns in which ``row`` is not what is ``expected``."""
    wrong = [name for name, value in expected.items() if not equal(value, row.get(name), name)]
    if "is_retraction" not in expected and row.get("is_retraction"):
        wrong.append("is_retraction")
    return wrong


def _matched(expected: Expected, rows: Sequence[Row]) -> dict[int, int]:
    """The row of each expected one, so that as many as possible have one."""
    fits = [[number for number, row in enumerate(rows) if not _unequal(each, row)] for each in expected]
    owner: dict[int, int] = {}

    def place(number: int, seen: set[int]) -> bool:
        for row in fits[number]:
            if row not in seen:
                seen.add(row)
                if row not in owner or place(owner[row], seen):
                    owner[row] = number
                    return True
        return False

    for number in range(len(expected)):
        place(number, set())
    return {number: row for row, number in owner.items()}


def equal(expected: Any, found: Any, column: str) -> bool:
    """Whether ``found`` is what a test wrote: times as text too, floats to a relative error of 1e-9."""
    match found:
        case None:
            same = expected is None
        case _ if expected is None:
            same = False
        case TimeSpan():
            same = _equal_windows(expected, found)
        case datetime():
            same = real(moment(expected, f"the expected {column}")) == found
        case list() | tuple():
            same = _equal_lists(expected, found, column)
        case bool():
            same = expected is found
        case float():
            same = _equal_numbers(expected, found)
        case date():
            same = expected in (found, found.isoformat())
        case Decimal():
            same = _equal_decimals(expected, found)
        case bytes():
            same = expected in (found, constant_to_json(found))
        case _ if column == "timing":
            same = _timing(expected) == found
        case _:
            same = not isinstance(expected, bool) and bool(expected == found)
    return same


def _equal_decimals(expected: Any, found: Decimal) -> bool:
    """A float stands for the number that it is written as."""
    try:
        return not isinstance(expected, bool) and Decimal(str(expected)) == found
    except InvalidOperation:
        return False


def _equal_numbers(expected: Any, found: float) -> bool:
    if not isinstance(expected, int | float) or isinstance(expected, bool):
        return False
    return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(expected) and math.isnan(found))


def _equal_lists(expected: Any, found: Sequence[Any], column: str) -> bool:
    if not isinstance(expected, list | tuple) or len(expected) != len(found):
        return False
    return all(equal(one, other, column) for one, other in zip(expected, found, strict=True))


def _equal_windows(expected: Any, found: TimeSpan) -> bool:
    if not isinstance(expected, list | tuple) or len(expected) != 2:
        raise UnitTestError(f'the expected window is {shown(expected)}; write both ends, such as ["13:00", "14:00"]')
    return all(
        other is None if one is None else real(moment(one, "an end of the expected window")) == other
        for one, other in zip(expected, found, strict=True)
    )


def _timing(expected: object) -> str:
    text = str(expected).upper().replace(" ", "_")
    if text not in list(Timing):
        raise UnitTestError(f"the expected timing is {shown(expected)}; write one of {', '.join(Timing)}")
    return text
