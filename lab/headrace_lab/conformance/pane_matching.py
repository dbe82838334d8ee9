"""Panes beside what a case expects of them: only the listed attributes count, in an order only where it says so."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace.testing.results import equal_numbers, row_difference
from headrace_lab.conformance.cases import RESULT, Expect, Json
from headrace_lab.conformance.schema import read_window
from headrace_lab.reference.elements import Pane


def compare_panes(expect: Expect, panes: Sequence[Pane], names: tuple[str, ...] = (RESULT,)) -> str | None:
    """How ``panes``, whose values have these ``names``, differ from what is expected; None if they do not."""
    rows = _Panes(names)
    if (differing := row_difference(rows, expect.panes, panes)) is not None:
        missing = f"Unmatched output: {differing.missing} of {len(expect.panes)} expected panes"
        more = f"Unexpected output: {differing.unexpected} of {len(panes)} panes"
        heads = [head for head, count in ((missing, differing.missing), (more, differing.unexpected)) if count]
        return "\n".join([*heads, *differing.lines])
    if expect.ordered:
        return _in_order(rows, expect.panes, panes)
    if expect.ordered_per_window:
        windows = {pane.window for pane in panes}
        problems = [
            _in_order(
                rows,
                [e for e in expect.panes if read_window(e["window"]) == window],
                [p for p in panes if p.window == window],
            )
            for window in sorted(windows)
        ]
        return next((p for p in problems if p), None)
    return None


def _in_order(rows: "_Panes", expected: Sequence[Json], panes: Sequence[Pane]) -> str | None:
    pairs = list(zip_longest(expected, panes))
    if all(e is not None and p is not None and not rows.unequal(e, p) for e, p in pairs):
        return None
    lines = ["Wrong order of output:", *_list("expected", map(rows.expected, expected))]
    return "\n".join([*lines, *_list("found", map(rows.found, panes))])


def _list(title: str, lines: Iterable[str]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in lines)]


@dataclass(frozen=True)
class _Panes:
    """How panes are compared and written, whose values have these ``names``."""

    names: tuple[str, ...]

    def unequal(self, expected: Mapping[str, Any], actual: Pane) -> list[str]:
        """The attributes in which ``actual`` is not what is ``expected``; one that does not say so is no retraction."""
        attributes = self._attributes(actual)
        expected_attributes = {"retraction": False, **expected}
        return [name for name, value in expected_attributes.items() if not _equal(name, value, attributes)]

    def both(self, column: str, expected: Mapping[str, Any], actual: Pane) -> tuple[str, str]:
        """Both values of an attribute."""
        timing_there = actual.timing if column == "timing_in" else self._attributes(actual)[column]
        return _format_value(column, expected.get(column, False)), _format_value(column, timing_there)

    def expected(self, row: Mapping[str, Any]) -> str:
        """The attributes that a case lists."""
        return " ".join(f"{name}={_format_value(name, value)}" for name, value in row.items())

    def found(self, row: Pane) -> str:
        """All attributes of a pane."""
        attributes = self._attributes(row)
        attributes.pop("values" if not isinstance(row.values[0], tuple) else "result")
        if len(self.names) == 1:
            attributes.pop("columns")
        return self.expected(attributes)

    def _attributes(self, pane: Pane) -> dict[str, Any]:
        values = dict(zip(self.names, pane.values, strict=True))
        value = values.pop(RESULT)
        return {
            "window": pane.window,
            "key": pane.key[0],
            "values": list(value) if isinstance(value, tuple) else [value],
            "result": value,
            "columns": values,
            "timestamp": pane.timestamp,
            "timing": pane.timing,
            "index": pane.index,
            "nonspeculative_index": pane.nonspeculative_index,
            "is_first": pane.is_first,
            "is_last": pane.is_last,
            "retraction": pane.is_retraction,
        }


def _equal(name: str, expected: Any, attributes: Mapping[str, Any]) -> bool:  # noqa: PLR0911 (a line for each attribute)
    if name == "timing_in":
        return attributes["timing"] in expected
    actual = attributes[name]
    if name == "window":
        return bool(read_window(expected) == actual)
    if name == "key":
        return str(expected) == str(actual)
    if name == "values":
        return _equal_bags(expected, actual)
    if name == "timestamp" and isinstance(expected, str):
        return bool(actual >= GLOBAL_WINDOW_END - 1 if expected == "+inf" else actual <= MIN_INSTANT)
    if name == "columns":
        return all(equal_values(value, actual[column]) for column, value in expected.items())
    return equal_values(expected, actual)


def equal_values(expected: Any, actual: Any) -> bool:
    """Whether a value is the expected one; floats to an error."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(equal_values(expected[name], actual[name]) for name in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(equal_values, expected, actual))
    numbers = (int, float)
    if isinstance(expected, float) or isinstance(actual, float):
        return isinstance(expected, numbers) and isinstance(actual, numbers) and equal_numbers(expected, actual)
    return bool(expected == actual)


def _equal_bags(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    left = list(actual)
    for value in expected:
        index = next((i for i, other in enumerate(left) if equal_values(value, other)), None)
        if index is None:
            return False
        del left[index]
    return not left


def _format_value(name: str, value: Any) -> str:
    if name == "window":
        return written_window(value if isinstance(value, Window) else read_window(value))
    return _written_instant(Instant(value)) if name == "timestamp" and isinstance(value, int) else str(value)


def written_window(window: Window) -> str:
    """A window as cases are read by people: ``[0, 10)``."""
    return f"[{_written_instant(window.start)}, {_written_instant(window.end)})"


def _written_instant(moment: Instant) -> str:
    if moment >= min(GLOBAL_WINDOW_END - 1, MAX_INSTANT):
        return "+inf"
    return "-inf" if moment <= MIN_INSTANT else str(moment)
