"""Replaying cases: what an executor answers step by step, and whether that is what the case expects.

An executor sees only values and returns only values, so one may run many cases side by side. ``check`` compares: it
knows no executor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.model.time import Instant
from headrace.model.windows import Window
from headrace_lab.conformance.cases import (
    Case,
    Expect,
    ExpectAssigned,
    ExpectCombined,
    ExpectDropped,
    ExpectMerged,
    ExpectOutputWatermark,
    Step,
)
from headrace_lab.conformance.pane_matching import compare_panes, equal_values, written_window
from headrace_lab.reference.elements import Pane


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
    """Something that runs cases. The first value of a pane is the aggregate, or a tuple of what was collected; others
    are those of columns that the case names.
    """

    def replay(self, cases: Sequence[Case]) -> Iterable[CaseReplay]:
        """One replay for each case, in order. What goes wrong in a case is told in its replay."""


def check(case: Case, outcomes: Sequence[StepOutcome]) -> str | None:
    """What is wrong with ``outcomes``, at the first step where something is; None if they are as the case expects."""
    unclaimed_panes: list[Pane] = []
    for number, (step, outcome) in enumerate(zip(case.steps, outcomes, strict=True), start=1):
        if isinstance(step, Expect):
            problem = compare_panes(step, unclaimed_panes, case.names)
            unclaimed_panes = []
        else:
            problem = _explain_unclaimed(unclaimed_panes, case.names) if case.strict else None
            problem = problem or _check_answer(step, outcome)
        if problem:
            return f"{_script(case, number)}\n{problem}"
        unclaimed_panes += outcome.panes
    problem = _explain_unclaimed(unclaimed_panes, case.names)
    return f"{_script(case, len(case.steps) + 1)}\n{problem}" if problem else None


def _check_answer(step: Step, outcome: StepOutcome) -> str | None:
    match step:
        case ExpectDropped(counts):
            dropped_by_cause = {cause: outcome.dropped.get(cause, 0) for cause in counts}
            return None if dropped_by_cause == counts else f"expected drops {dict(counts)}, found {dropped_by_cause}"
        case ExpectOutputWatermark(stages):
            marks = {stage: mark for stage, mark in enumerate(outcome.output_watermarks) if stage in stages}
            return None if marks == stages else f"expected output watermarks {dict(stages)}, found {marks}"
        case ExpectAssigned(_, windows) | ExpectMerged(_, windows):
            answer = frozenset(outcome.answer)
            same = answer == windows
            return None if same else f"expected windows {_format_windows(windows)}, found {_format_windows(answer)}"
        case ExpectCombined(equals=value):
            return None if equal_values(value, outcome.answer) else f"expected {value!r}, found {outcome.answer!r}"
    return None


def _script(case: Case, failing: int) -> str:
    """The steps around the failing one, with an arrow at it."""
    lines = [f"{case.name}: step {failing} of {len(case.steps)}"]
    for number, step in enumerate([*case.steps, "end of the case"], start=1):
        if failing - 4 <= number <= failing:
            lines.append(f"{'-->' if number == failing else '   '} {number:3} {step}")
    return "\n".join(lines)


def _explain_unclaimed(panes: Sequence[Pane], names: tuple[str, ...]) -> str | None:
    return compare_panes(Expect(()), panes, names)


def _format_windows(windows: Iterable[Window]) -> str:
    return "{" + ", ".join(map(written_window, sorted(windows))) + "}"
