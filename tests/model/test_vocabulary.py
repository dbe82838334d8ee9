"""Every trigger, window function and function of expressions is known in every place, and a place that forgot one is
named.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pytest

import headrace as hr
from headrace import col
from headrace.describe.triggers import condition
from headrace.describe.windows import windows
from headrace.errors import PipelineError
from headrace.kernel.expressions import evaluation
from headrace.model.expressions import typing
from headrace.model.time import Instant
from headrace.pipeline.identity import encoding
from headrace.program.triggers import compile_trigger
from headrace.reference.evaluate import _FUNCTIONS as EVALUATED
from headrace.reference.triggers import start
from headrace.reference.windows import assign

SCHEMA = {"n": hr.DataType.INT, "end": hr.DataType.BOOL}
TRIGGERS = [
    hr.Default(),
    hr.AfterWatermark(),
    hr.AfterWatermark(hr.AfterCount(2), hr.AfterCount(1)),
    hr.AfterCount(2),
    hr.AfterBytes(9),
    hr.AfterProcessingTime("5m"),
    hr.AfterSynchronizedProcessingTime(),
    hr.AfterPunctuation(col("end")),
    hr.AfterPattern("ab*", {"a": col("n") > 9, "b": col("n") > 5}),
    hr.AfterPercentileWatermark(95),
    hr.AfterSignal("go"),
    hr.DataDriven({"total": col("n").sum()}, col("total") > 100),
    hr.Always(),
    hr.Never(),
    hr.Repeatedly(hr.AfterCount(2)),
    hr.OrFinally(hr.AfterCount(2), hr.AfterWatermark()),
    hr.AfterAny(hr.AfterCount(2), hr.AfterWatermark()),
    hr.AfterAll(hr.AfterCount(2), hr.AfterWatermark()),
    hr.AfterEach(hr.AfterCount(2), hr.AfterWatermark()),
]
WINDOWS = [
    hr.FixedWindows("1h"),
    hr.SlidingWindows("1h", "10m"),
    hr.Sessions("30m"),
    hr.CalendarWindows("month"),
    hr.GlobalWindows(),
    hr.ShiftedOutputTime(hr.FixedWindows("1h"), "2h"),
]


def forgot_trigger(trigger: hr.Trigger) -> Iterator[str]:
    """The places that do not know ``trigger``."""
    kind = type(trigger)
    if kind not in encoding.TRIGGERS:
        yield "pipeline/identity/encoding"
    if kind not in condition.registry:
        yield "describe/triggers"
    if kind.__name__ not in hr.__all__:
        yield "__init__"
    try:
        compile_trigger(trigger, False, SCHEMA)
    except PipelineError:
        yield "program/triggers"
    try:
        start(trigger, False)
    except PipelineError:
        yield "reference/triggers"


def forgot_windows(where: hr.WindowFn) -> Iterator[str]:
    """The places that do not know ``where``."""
    kind = type(where)
    if kind not in encoding._WORDS:
        yield "pipeline/identity/encoding"
    if kind not in windows.registry:
        yield "describe/windows"
    if kind.__name__ not in hr.__all__:
        yield "__init__"
    try:
        assign(where, Instant(0))
    except PipelineError:
        yield "reference/windows"


def forgot_functions(names: Collection[str]) -> Iterator[str]:
    """The places that do not know all of ``names``."""
    tables = {
        "kernel/expressions/evaluation": evaluation._FUNCTIONS,
        "reference/evaluate": EVALUATED,
    }
    for place, table in tables.items():
        if missing := sorted({*names} - table.keys()):
            yield f"{place}: {', '.join(missing)}"


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_every_trigger_is_known_everywhere(trigger: hr.Trigger) -> None:
    assert not [*forgot_trigger(trigger)]


@pytest.mark.parametrize("where", WINDOWS, ids=lambda where: type(where).__name__)
def test_every_window_function_is_known_everywhere(where: hr.WindowFn) -> None:
    assert not [*forgot_windows(where)]


def test_every_trigger_with_a_word_has_a_sample_here() -> None:
    assert {type(trigger) for trigger in TRIGGERS} == {*encoding.TRIGGERS}


def test_every_window_function_with_a_word_has_a_sample_here() -> None:
    assert {type(where) for where in WINDOWS} == {kind for kind in encoding._WORDS if issubclass(kind, hr.WindowFn)}


def test_every_function_with_a_type_is_evaluated_by_both() -> None:
    assert not [*forgot_functions(typing._SIGNATURES)]


def test_a_forgotten_place_is_named() -> None:
    @dataclass(frozen=True)
    class AfterNothing(hr.Trigger):
        """A trigger that nobody has been told of."""

    @dataclass(frozen=True)
    class NoWindows(hr.WindowFn):
        """Windows that nobody has been told of."""

    own = ["pipeline/identity/encoding", "describe/triggers", "__init__", "program/triggers", "reference/triggers"]
    assert [*forgot_trigger(AfterNothing())] == own
    assert [*forgot_windows(NoWindows())] == [
        "pipeline/identity/encoding", "describe/windows", "__init__", "reference/windows"
    ]  # fmt: skip
    assert [*forgot_functions(["lower", "reverse"])] == [
        "kernel/expressions/evaluation: reverse", "reference/evaluate: reverse"
    ]  # fmt: skip
