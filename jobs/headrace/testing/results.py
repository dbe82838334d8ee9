"""What a run of a test gives, panes and rows as plain values, and what the test expects beside it.

``row_difference`` holds expected rows beside those that were found: as many pairs as possible, and a difference that
can be read. Users' tests and conformance cases are compared by this; what a row is, and what is equal in it, each says
itself (``RowKind``).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.model.arguments import Arguments, Suggesting, check_keywords, did_you_mean
from headrace.model.expressions.typing import constant_to_json
from headrace.model.time import parse_instant, to_instant
from headrace.testing.steps import UnitTestError, datetime_or_none, instant_of_value, text_of

Row = dict[str, Any]


class TimeSpan(NamedTuple):
    """A window: both ends, None where it has none."""

    start: datetime | None
    end: datetime | None

    def __str__(self) -> str:
        return f"[{text_of(self.start)}, {text_of(self.end)})"


@dataclass(frozen=True, repr=False)
class PaneRow:
    """One result of one (key, window), or the retraction of one (``is_retraction``).

    ``key`` and ``values`` are by column. ``step`` is the number of the step that gave it, ``time`` its event time.
    ``timing`` is "EARLY", "ON_TIME" or "LATE". ``index`` counts the panes of the window from 0; ``is_first`` and
    ``is_last`` say which of them it is. ``pane["flights"]`` and ``row`` have all
    of it under the names of the columns that readers see.
    """

    step: int
    key: Mapping[str, Any]
    window: TimeSpan
    values: Mapping[str, Any]
    timing: Timing
    index: int
    is_retraction: bool
    is_first: bool
    is_last: bool
    time: datetime | None

    @property
    def row(self) -> Row:
        """Its columns, as the view ``panes`` has them."""
        return {
            **self.key,
            **self.values,
            "window_start": self.window.start,
            "window_end": self.window.end,
            "pane_time": self.time,
            "timing": str(self.timing),
            "pane_index": self.index,
            "is_first": self.is_first,
            "is_last": self.is_last,
            "is_retraction": self.is_retraction,
        }

    def __getitem__(self, column: str) -> Any:
        return self.row[column]

    def __repr__(self) -> str:
        sign = "retraction of " if self.is_retraction else ""
        columns = " ".join(f"{name}={value_text(value)}" for name, value in {**self.key, **self.values}.items())
        return f"<{sign}{self.timing} #{self.index} {self.window} {columns}>"


@dataclass(frozen=True, repr=False)
class OutputRow(PaneRow):
    """A row that left as it is, or its withdrawal (``is_retraction``), of a pipeline or an output of ``rows``. It has
    no key and no window; ``time`` is its event time.
    """

    @classmethod
    def from_values(
        cls, step: int, values: Mapping[str, Any], time: datetime | None, timing: Timing, *, is_retraction: bool
    ) -> "OutputRow":
        """The row of these ``values``."""
        return cls(step, {}, TimeSpan(time, time), values, timing, 0, is_retraction, True, True, time)

    @property
    def row(self) -> Row:
        """Its columns, as the view ``panes`` has them."""
        row_fields = {EVENT_TIME: self.time, "timing": str(self.timing), "is_retraction": self.is_retraction}
        return {**self.values, **row_fields}

    @property
    def content(self) -> tuple[str, ...]:
        """What equal rows have in common."""
        return tuple(
            repr(value + 0.0 if isinstance(value, float) else value) for value in (*self.values.values(), self.time)
        )

    def __repr__(self) -> str:
        sign = "withdrawal of " if self.is_retraction else ""
        columns = " ".join(f"{name}={value_text(value)}" for name, value in self.values.items())
        return f"<{sign}{self.timing} row {text_of(self.time)} {columns}>"


def value_text(value: Any) -> str:
    """A value in one line."""
    return text_of(value) if isinstance(value, datetime) else repr(value)


class Panes(Sequence[PaneRow]):
    """Panes in order. ``only`` gives some of their columns as plain dicts, to compare with."""

    def __init__(self, panes: Iterable[PaneRow]) -> None:
        self._panes = tuple(panes)

    @overload
    def __getitem__(self, index: int) -> PaneRow: ...

    @overload
    def __getitem__(self, index: slice) -> "Panes": ...

    def __getitem__(self, index: int | slice) -> "PaneRow | Panes":
        return Panes(self._panes[index]) if isinstance(index, slice) else self._panes[index]

    def __len__(self) -> int:
        return len(self._panes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self._panes) == list(other)

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self._panes))}]"

    def only(self, *columns: str) -> list[Row]:
        """These ``columns`` of each pane: ``result.current.only("origin", "flights") == [{...}]``."""
        return [{name: pane[name] for name in columns} for pane in self._panes]


@dataclass(frozen=True)
class StepResults(Suggesting):
    """What one step gave, or several.

    ``panes`` are in order: by step, key and window, and those of a window as they were emitted. ``current`` is what
    counts after it: the newest pane of each key and window that was not withdrawn, by window and key. ``late`` are
    dropped records, ``rejected`` those that could not be used and ``reason`` why, as the views of these names have
    them. ``watermark`` and ``processing_time`` are the clocks after it. ``ahead`` counts the records dated too far
    ahead of the clock to move the watermark. ``columns`` are those that there are, by view.
    """

    panes: Panes
    current: Panes
    late: list[Row]
    rejected: list[Row]
    watermark: datetime
    processing_time: datetime | None
    ahead: int = 0
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def retractions(self) -> Panes:
        """The retractions among ``panes``."""
        return Panes(pane for pane in self.panes if pane.is_retraction)


@dataclass(frozen=True)
class Result(StepResults):
    """What a whole test gave, and each of its ``steps``. All else is as in ``StepResults``, for all steps together."""

    steps: tuple[StepResults, ...] = ()


def current_of(panes: Iterable[PaneRow]) -> Panes:
    """The newest of ``panes`` for each key and window, unless it is a retraction; by window and key. For rows it is
    those that stand, by time.
    """
    panes = [*panes]
    rows = [pane for pane in panes if isinstance(pane, OutputRow)]
    if rows:
        return _standing_rows(rows)
    newest: dict[tuple[Any, ...], PaneRow] = {}
    for pane in panes:
        newest[(*pane.key.values(), pane.window)] = pane
    left = [pane for pane in newest.values() if not pane.is_retraction]
    rank = _rank_by_key(left)
    return Panes(
        sorted(left, key=lambda pane: (_start_sort_key(pane.window.start), *rank(pane), _end_sort_key(pane.window.end)))
    )


def _standing_rows(rows: Sequence[OutputRow]) -> Panes:
    """What stands of ``rows``: of equal ones as many as came more often than they were withdrawn."""
    left: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        left[row.content] += -1 if row.is_retraction else 1
    standing = []
    for row in rows:
        if not row.is_retraction and left[row.content] > 0:
            left[row.content] -= 1
            standing.append(row)
    return Panes(sorted(standing, key=lambda row: _start_sort_key(row.time)))


def in_order(panes: Iterable[PaneRow]) -> list[PaneRow]:
    """Panes of one step as ``StepResults.panes`` has them; panes of a window, and rows, are in order already."""
    pane_list = [*panes]
    if any(isinstance(pane, OutputRow) for pane in pane_list):
        return pane_list
    rank = _rank_by_key(pane_list)
    return sorted(pane_list, key=lambda p: (*rank(p), _start_sort_key(p.window.start), _end_sort_key(p.window.end)))


def _rank_by_key(panes: Collection[PaneRow]) -> Callable[[PaneRow], list[Any]]:
    """What orders panes by key: beside datetimes, times that are text count as what they say."""
    times = {name for pane in panes for name, value in pane.key.items() if isinstance(value, datetime)}

    def rank(name: str, value: Any) -> tuple[bool, Any]:
        if name not in times or value is None:
            return value is None, value
        return False, to_instant(value) if isinstance(value, datetime) else parse_instant(value)

    return lambda pane: [rank(name, value) for name, value in pane.key.items()]


def _start_sort_key(start: datetime | None) -> tuple[bool, datetime | None]:
    return (start is not None, start)


def _end_sort_key(end: datetime | None) -> tuple[bool, datetime | None]:
    return (end is None, end)


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
    """How many expected rows were not found, how many found rows were not expected, and both in ``lines``. A row that
    is missing stands beside the one that is most like it.
    """

    missing: int
    unexpected: int
    lines: tuple[str, ...]


def row_difference(kind: RowKind[T], expected: Sequence[ExpectedRow], actual: Sequence[T]) -> Difference | None:
    """How ``actual`` differs from what is ``expected`` in any order; None if it does not."""
    comparison = _ComparedRows(kind, expected, actual)
    pairs = comparison.largest_pairing()
    missing = [number for number in range(len(expected)) if number not in pairs]
    paired_rows = {*pairs.values()}
    left = [number for number in range(len(actual)) if number not in paired_rows]
    if not missing and not left:
        return None
    return Difference(len(missing), len(left), tuple(comparison.describe_difference(missing, left)))


@dataclass(frozen=True)
class _ComparedRows(Generic[T]):
    kind: RowKind[T]
    expected: Sequence[ExpectedRow]
    rows: Sequence[T]

    def largest_pairing(self) -> dict[int, int]:
        """The row of each expected one, so that as many as possible have one: a largest pairing, by augmenting paths.
        A greedy one would not do, since an expected row that lists few columns fits many.
        """
        fits = [
            [number for number, row in enumerate(self.rows) if not self.kind.unequal(expected_row, row)]
            for expected_row in self.expected
        ]
        owner: dict[int, int] = {}

        def assign_row(number: int, rows_tried: set[int]) -> bool:
            for row in fits[number]:
                if row not in rows_tried:
                    rows_tried.add(row)
                    if row not in owner or assign_row(owner[row], rows_tried):
                        owner[row] = number
                        return True
            return False

        for number in range(len(self.expected)):
            assign_row(number, set())
        return {number: row for row, number in owner.items()}

    def describe_difference(self, missing: Sequence[int], left: list[int]) -> list[str]:
        """Each ``missing`` row beside the closest of those ``left``, if they have anything in common; then the rest."""
        lines: list[str] = []
        for number in missing:
            expected = self.expected[number]
            lines.append(f"  - expected {self.kind.expected(expected)}")
            closest = min(left, key=lambda row: len(self.kind.unequal(expected, self.rows[row])), default=None)
            if closest is not None and self._is_alike(expected, self.rows[closest]):
                left.remove(closest)
                lines += self._describe_pair(expected, self.rows[closest])
        return [
            *lines,
            *(f"  + found    {self.kind.found(self.rows[row])}, which was not expected" for row in left),
        ]

    def _is_alike(self, expected: ExpectedRow, row: T) -> bool:
        wrong = self.kind.unequal(expected, row)
        return not expected or any(column not in wrong for column in expected)

    def _describe_pair(self, expected: ExpectedRow, row: T) -> list[str]:
        lines = [f"  + found    {self.kind.found(row)}"]
        for column in self.kind.unequal(expected, row):
            expected_text, actual_text = self.kind.both(column, expected, row)
            lines.append(f"      {column}: {expected_text} expected, {actual_text} found")
        return lines


def equal_numbers(expected: float, actual: float) -> bool:
    """Whether two numbers, one of them a float, are the same to the errors above; NaN is NaN."""
    both_nan = expected != expected and actual != actual  # noqa: PLR0124 (also where an int is too large for a float)
    return both_nan or math.isclose(expected, actual, rel_tol=RELATIVE_ERROR, abs_tol=ABSOLUTE_ERROR)


Expected = Sequence[Mapping[str, Any]]

VIEWS = ("panes", "current", "late", "rejected")


@check_keywords
def assert_panes(result: StepResults, expected: Expected) -> None:
    """The panes of ``result`` are these, in any order.

    Columns that an expected pane leaves out do not count, but one that does not say ``is_retraction: True`` is not a
    retraction. ``window`` is a pair of times; times may be short. Raises AssertionError with the difference.
    """
    _assert_view(result, "panes", expected)


@check_keywords
def assert_current(result: StepResults, expected: Expected) -> None:
    """What counts after ``result`` is ``expected``, in any order; the rest is as in ``assert_panes``."""
    _assert_view(result, "current", expected)


@check_keywords
def assert_late(result: StepResults, expected: Expected) -> None:
    """The late records of ``result`` are ``expected``, in any order; the rest is as in ``assert_panes``."""
    _assert_view(result, "late", expected)


@check_keywords
def assert_rejected(result: StepResults, expected: Expected) -> None:
    """The dead letters of ``result`` are ``expected``, in any order; the rest is as in ``assert_panes``."""
    _assert_view(result, "rejected", expected)


def _assert_view(result: StepResults, view: str, expected: Expected) -> None:
    __tracebackhide__ = True
    arguments = Arguments(f"assert_{view}", UnitTestError)
    arguments.instance("result", result, StepResults, "the result of run(...)")
    arguments.tuple_of("expected", expected, Mapping, '{"origin": "EWR", "n": 3}')  # type: ignore[type-abstract]
    if text := view_difference(result, view, expected):
        raise AssertionError(text)


def view_difference(result: StepResults, view: str, expected: Expected) -> str | None:
    """How the ``view`` of ``result`` differs from what is ``expected``; None if it does not.

    Raises UnitTestError for an expected column that there is not.
    """
    _check_columns(result.columns[view], view, expected)
    rows = [_ViewRow(row, _row_with_window(row)) for row in getattr(result, view)]
    mismatch = row_difference(_ViewRows(), expected, rows)
    if mismatch is None:
        return None
    return "\n".join(
        (f"{view}: {_count_text(len(expected), 'expected')}, {_count_text(len(rows), 'found')}", *mismatch.lines)
    )


def _count_text(number: int, what: str) -> str:
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
        wrong = [name for name, value in expected.items() if not matches_expected(value, actual.values.get(name), name)]
        if "is_retraction" not in expected and actual.values.get("is_retraction"):
            wrong.append("is_retraction")
        return wrong

    def both(self, column: str, expected: Mapping[str, Any], actual: _ViewRow) -> tuple[str, str]:
        """Both values of a column."""
        return value_text(expected.get(column, False)), value_text(actual.values.get(column))

    def expected(self, row: Mapping[str, Any]) -> str:
        """The columns that a test wrote."""
        return "{" + ", ".join(f"{name}: {value_text(value)}" for name, value in row.items()) + "}"

    def found(self, row: _ViewRow) -> str:
        """A pane in a line; another row shows what is not null."""
        if isinstance(row.given, PaneRow):
            return repr(row.given)
        return self.expected({name: value for name, value in row.given.items() if value is not None})


def _row_with_window(pane_or_row: PaneRow | Row) -> Row:
    row = pane_or_row.row if isinstance(pane_or_row, PaneRow) else pane_or_row
    if WINDOW_START not in row:
        return row
    return {**row, "window": TimeSpan(row[WINDOW_START], row[WINDOW_END])}


def _check_columns(known_columns: Sequence[str], view: str, expected: Expected) -> None:
    for row in expected:
        if not isinstance(row, Mapping):
            raise UnitTestError(f"{view}: {value_text(row)} is expected; write a dict of values by column")
        for name in row:
            if name not in known_columns:
                hint = did_you_mean(str(name), known_columns)
                raise UnitTestError(f"{view} have no column {name!r}; {hint}they have {', '.join(known_columns)}")


def matches_expected(expected: Any, actual: Any, column: str) -> bool:
    """Whether ``actual`` is what a test wrote: times as text too, floats to a relative error of 1e-9."""
    match actual:
        case None:
            same = expected is None
        case _ if expected is None:
            same = False
        case TimeSpan():
            same = _equal_windows(expected, actual)
        case datetime():
            same = datetime_or_none(instant_of_value(expected, f"the expected {column}")) == actual
        case list() | tuple() | dict():
            same = _equal_parts(expected, actual, column)
        case bool():
            same = expected is actual
        case float():
            same = _is_number(expected) and equal_numbers(expected, actual)
        case date():
            same = expected in (actual, actual.isoformat())
        case Decimal():
            same = _equal_decimals(expected, actual)
        case bytes():
            same = expected in (actual, constant_to_json(actual))
        case _ if column == "timing":
            same = _parse_timing(expected) == actual
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


def _equal_parts(expected: Any, actual: Sequence[Any] | dict[str, Any], column: str) -> bool:
    if isinstance(actual, dict):
        is_alike = isinstance(expected, Mapping) and expected.keys() == actual.keys()
        return is_alike and all(matches_expected(expected[name], value, column) for name, value in actual.items())
    if not isinstance(expected, list | tuple) or len(expected) != len(actual):
        return False
    return all(
        matches_expected(expected_value, actual_value, column)
        for expected_value, actual_value in zip(expected, actual, strict=True)
    )


def _equal_windows(expected: Any, actual: TimeSpan) -> bool:
    if not isinstance(expected, list | tuple) or len(expected) != 2:
        raise UnitTestError(
            f'the expected window is {value_text(expected)}; write both ends, such as ["13:00", "14:00"]'
        )
    return all(
        actual_bound is None
        if expected_bound is None
        else datetime_or_none(instant_of_value(expected_bound, "an end of the expected window")) == actual_bound
        for expected_bound, actual_bound in zip(expected, actual, strict=True)
    )


def _parse_timing(expected: object) -> str:
    text = str(expected).upper().replace(" ", "_")
    if text not in list(Timing):
        raise UnitTestError(f"the expected timing is {value_text(expected)}; write one of {', '.join(Timing)}")
    return text
