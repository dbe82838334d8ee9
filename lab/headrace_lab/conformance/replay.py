"""Replaying cases: what an executor answers step by step, and whether that is what the case expects.

An executor sees only values and returns only values, so one may run many cases side by side. ``check`` compares: it
knows no executor.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

from headrace.model.panes import Pane
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace_lab.conformance.cases import (
    Case,
    Expect,
    ExpectAssigned,
    ExpectCombined,
    ExpectDropped,
    ExpectMerged,
    ExpectOutputWatermark,
    Json,
    Step,
)
from headrace_lab.conformance.schema import read_window

RELATIVE_ERROR = 1e-9
"""How far two floats may be apart and still be equal (semantics 12.4); everything else compares exactly."""

ABSOLUTE_ERROR = 1e-12
"""The same near 0, where what sums leave of values that cancel out has no size to be relative to."""


@dataclass(frozen=True)
class StepOutcome:
    """What one step did. ``dropped`` counts from the beginning, ``output_watermarks`` has one entry per stage.

    ``answer`` is that of an assign or merge step (a set of windows) or of a combine step (a value).
    """

    panes: tuple[Pane, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    output_watermarks: tuple[Instant, ...] = ()
    answer: Any = None


@dataclass(frozen=True)
class CaseReplay:
    """One replayed case: an outcome for each of its steps, or why there is none.

    ``unsupported`` says what the executor does not do, ``error`` what it died of.
    """

    outcomes: tuple[StepOutcome, ...] = ()
    unsupported: str | None = None
    error: str | None = None


class CaseExecutor(Protocol):
    """Something that runs cases. The only value of a pane is the aggregate, or a tuple of what was collected."""

    def replay(self, cases: Sequence[Case]) -> Iterable[CaseReplay]:
        """One replay for each case, in order. What goes wrong in a case is told in its replay."""


def check(case: Case, outcomes: Sequence[StepOutcome]) -> str | None:
    """What is wrong with ``outcomes``, at the first step where something is; None if they are as the case expects."""
    unclaimed: list[Pane] = []
    for number, (step, outcome) in enumerate(zip(case.steps, outcomes, strict=True), start=1):
        if isinstance(step, Expect):
            problem = _compare(step, unclaimed)
            unclaimed = []
        else:
            problem = _unexpected(unclaimed) if case.strict else None
            problem = problem or _check_answer(step, outcome)
        if problem:
            return f"{_script(case, number)}\n{problem}"
        unclaimed += outcome.panes
    problem = _unexpected(unclaimed)
    return f"{_script(case, len(case.steps) + 1)}\n{problem}" if problem else None


def _check_answer(step: Step, outcome: StepOutcome) -> str | None:
    match step:
        case ExpectDropped(counts):
            found = {cause: outcome.dropped.get(cause, 0) for cause in counts}
            return None if found == counts else f"expected drops {dict(counts)}, found {found}"
        case ExpectOutputWatermark(stages):
            marks = {stage: mark for stage, mark in enumerate(outcome.output_watermarks) if stage in stages}
            return None if marks == stages else f"expected output watermarks {dict(stages)}, found {marks}"
        case ExpectAssigned(_, windows) | ExpectMerged(_, windows):
            answer = frozenset(outcome.answer)
            same = answer == windows
            return None if same else f"expected windows {_render_all(windows)}, found {_render_all(answer)}"
        case ExpectCombined(equals=value):
            return None if _same(value, outcome.answer) else f"expected {value!r}, found {outcome.answer!r}"
    return None


def _script(case: Case, failing: int) -> str:
    """The steps around the failing one, with an arrow at it."""
    lines = [f"{case.name}: step {failing} of {len(case.steps)}"]
    for number, step in enumerate([*case.steps, "end of the case"], start=1):
        if failing - 4 <= number <= failing:
            lines.append(f"{'-->' if number == failing else '   '} {number:3} {step}")
    return "\n".join(lines)


# --- panes ------------------------------------------------------------------------------------------------------------


def _compare(expect: Expect, panes: Sequence[Pane]) -> str | None:
    unmatched, unexpected = _match(expect.panes, panes)
    problem = "\n".join([*[f"Unmatched output: {_render_expected(pane)}" for pane in unmatched], *_surplus(unexpected)])
    if problem:
        return problem
    if expect.ordered:
        return _in_order(expect.panes, panes)
    if expect.ordered_per_window:
        windows = {pane.window for pane in panes}
        problems = [
            _in_order(
                [e for e in expect.panes if read_window(e["window"]) == window],
                [p for p in panes if p.window == window],
            )
            for window in sorted(windows)
        ]
        return next((p for p in problems if p), None)
    return None


def _in_order(expected: Sequence[Json], panes: Sequence[Pane]) -> str | None:
    pairs = list(zip_longest(expected, panes))
    if all(e is not None and p is not None and _matches(e, p) for e, p in pairs):
        return None
    return "\n".join(["Wrong order of output:", *_list("expected", map(_render_expected, expected)), *_found(panes)])


def _match(expected: Sequence[Json], panes: Sequence[Pane]) -> tuple[list[Json], list[Pane]]:
    """A largest pairing of expected and emitted panes, by augmenting paths; returns what is left on both sides.

    A greedy one would not do: an expected pane that lists few attributes matches many.
    """
    partner: dict[int, int] = {}  # emitted -> expected

    def place(e: int, tried: set[int]) -> bool:
        for p, pane in enumerate(panes):
            if p in tried or not _matches(expected[e], pane):
                continue
            tried.add(p)
            if p not in partner or place(partner[p], tried):
                partner[p] = e
                return True
        return False

    unmatched = [expected[e] for e in range(len(expected)) if not place(e, set())]
    return unmatched, [pane for p, pane in enumerate(panes) if p not in partner]


def _matches(expected: Json, pane: Pane) -> bool:
    found = _attributes(pane)
    wanted = {"retraction": False, **expected}
    timings = wanted.pop("timing_in", [pane.timing])
    return pane.timing in timings and all(_equal(name, value, found[name]) for name, value in wanted.items())


def _attributes(pane: Pane) -> dict[str, Any]:
    (value,) = pane.values
    return {
        "window": pane.window,
        "key": pane.key[0],
        "values": list(value) if isinstance(value, tuple) else [value],
        "result": value,
        "timestamp": pane.timestamp,
        "timing": pane.timing,
        "index": pane.index,
        "nonspeculative_index": pane.nonspeculative_index,
        "is_first": pane.is_first,
        "is_last": pane.is_last,
        "retraction": pane.is_retraction,
    }


def _equal(name: str, wanted: Any, found: Any) -> bool:
    if name == "window":
        return bool(read_window(wanted) == found)
    if name == "key":
        return str(wanted) == str(found)
    if name == "values":
        return _same_bag(wanted, found)
    if name == "timestamp" and isinstance(wanted, str):
        return bool(found >= GLOBAL_WINDOW_END - 1 if wanted == "+inf" else found <= MIN_INSTANT)
    return _same(wanted, found)


def _same(wanted: Any, found: Any) -> bool:
    numbers = (int, float)
    if isinstance(wanted, float) or isinstance(found, float):
        if not isinstance(wanted, numbers) or not isinstance(found, numbers):
            return False
        both_nan = wanted != wanted and found != found  # noqa: PLR0124 (also where an int is too large for a float)
        return both_nan or math.isclose(wanted, found, rel_tol=RELATIVE_ERROR, abs_tol=ABSOLUTE_ERROR)
    return bool(wanted == found)


def _same_bag(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    left = list(found)
    for value in wanted:
        at = next((i for i, other in enumerate(left) if _same(value, other)), None)
        if at is None:
            return False
        del left[at]
    return not left


# --- for people -------------------------------------------------------------------------------------------------------


def _unexpected(panes: Sequence[Pane]) -> str | None:
    return "\n".join(_surplus(panes)) or None


def _surplus(panes: Sequence[Pane]) -> list[str]:
    return [f"Unexpected output: {_render_pane(pane)}" for pane in panes]


def _found(panes: Sequence[Pane]) -> list[str]:
    return _list("found", map(_render_pane, panes))


def _list(title: str, lines: Iterable[str]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in lines)]


def _render_pane(pane: Pane) -> str:
    found = {**_attributes(pane), "window": _render_window(pane.window), "timestamp": _render_instant(pane.timestamp)}
    found.pop("values" if not isinstance(pane.values[0], tuple) else "result")
    return " ".join(f"{name}={value}" for name, value in found.items())


def _render_expected(expected: Json) -> str:
    shown = {**expected, "window": _render_window(read_window(expected["window"]))}
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _render_all(windows: Iterable[Window]) -> str:
    return "{" + ", ".join(_render_window(window) for window in sorted(windows)) + "}"


def _render_window(window: Window) -> str:
    return f"[{_render_instant(window.start)}, {_render_instant(window.end)})"


def _render_instant(at: Instant) -> str:
    if at >= min(GLOBAL_WINDOW_END - 1, MAX_INSTANT):
        return "+inf"
    return "-inf" if at <= MIN_INSTANT else str(at)
