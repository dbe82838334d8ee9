"""Every trigger, window function, combiner and function of expressions is known in every place, and a place that forgot
one is named.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.kernel.aggregates.accumulators import compile_aggregates
from headrace.kernel.expressions import evaluation
from headrace.kernel.windows import assign_windows
from headrace.model.arguments import WORDS, kinds_by_word
from headrace.model.combiners import TRAITS, Combiner, CombinerTraits, ResultType
from headrace.model.expressions import typing
from headrace.model.time import Instant
from headrace.model.triggers.elementary import condition, inputs, missing, predicates
from headrace.model.windows import describe_windows, touching
from headrace.program.triggers.node import TriggerPlace, compile_trigger
from headrace.read import open_windows
from headrace_lab.conformance import words as conformance
from headrace_lab.reference.contents import combine
from headrace_lab.reference.evaluate import _FUNCTIONS as EVALUATED
from headrace_lab.reference.triggers import start
from headrace_lab.reference.windows import assign
from tests.own_combiners import Span

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
AGGREGATES = [
    hr.count(),
    col("n").sum(),
    col("n").min(),
    col("n").max(),
    col("n").mean(),
    col("n").variance(),
    col("n").first(),
    col("n").last(),
    col("n").max_by(col("n")),
    col("n").min_by(col("n")),
    (col("n") > 3).bool_and(),
    (col("n") > 3).bool_or(),
    col("n").mode(),
    col("n").quantiles([0.5]),
    col("n").list_agg(2, col("n")),
    col("n").map_agg(col("n")),
    col("n").collect(),
    col("n").top(3),
    col("n").distinct(),
    col("n").approx_distinct(),
    col("n").quantile(0.5),
    col("n").distinct_sketch(),
    col("n").quantile_sketch(),
    col("n").pairs(col("n")),
    col("n").combine(Span()),
]

NOT_IN_CASES = {"after pattern", "data driven"}
"""Triggers that hold expressions, which conformance cases cannot say."""

METHODS = {"custom": "combine"}
"""Combiners whose method has another name."""


def forgot_trigger(trigger: hr.Trigger) -> Iterator[str]:
    """The places that do not know ``trigger``."""
    kind = type(trigger)
    if kind not in WORDS:
        yield "its class: a word (@word)"
    if kind not in condition.registry:
        yield "its class: its condition (model/triggers/elementary)"
    if kind not in (open_windows.condition.registry if trigger.children else missing.registry):
        yield "read/open_windows" if trigger.children else "its class: what is missing (model/triggers/elementary)"
    reads = any(_holds(value, hr.Expr | hr.Aggregate) for value in _values(trigger))
    if reads and not {kind} <= inputs.registry.keys() & predicates.registry.keys():
        yield "its class: what it reads (model/triggers/reads)"
    if kind.__name__ not in hr.__all__:
        yield "__init__"
    try:
        compile_trigger(trigger, TriggerPlace(merging=False, schema=SCHEMA))
    except PipelineError:
        yield "program/triggers"
    try:
        start(trigger, False)
    except PipelineError:
        yield "reference/triggers"
    if not _is_in_cases(kind, conformance.TRIGGERS):
        yield "lab: conformance/words"


def _values(value: Any) -> list[Any]:
    return [getattr(value, each.name) for each in fields(value)]


def _holds(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) or (isinstance(value, dict) and any(_holds(each, kind) for each in value.values()))


def _is_in_cases(kind: type, case_words: Collection[str]) -> bool:
    name = WORDS[kind].name if kind in WORDS else ""
    return name.replace(" ", "_") in case_words or name in NOT_IN_CASES


def forgot_windows(where: hr.WindowFn) -> Iterator[str]:
    """The places that do not know ``where``."""
    kind = type(where)
    if kind not in WORDS:
        yield "its class: a word (@word)"
    if kind not in describe_windows.registry:
        yield "its class: the windows in one line (describe_windows)"
    if kind not in touching.registry:
        yield "its class: the event times that a range depends on (touching)"
    if kind.__name__ not in hr.__all__:
        yield "__init__"
    try:
        assign_windows(where, pa.array([0], pa.int64()), {}, {})
    except PipelineError:
        yield "kernel/windows"
    try:
        assign(where, Instant(0))
    except PipelineError:
        yield "reference/windows"
    if not _is_in_cases(kind, conformance.WINDOWS):
        yield "lab: conformance/words"


def forgot_combiner(aggregate: hr.Aggregate) -> Iterator[str]:
    """The places that do not know the combiner of ``aggregate``."""
    combiner = aggregate.combiner
    if not hasattr(hr.Expr, METHODS.get(combiner.value, combiner.value)):
        yield "model/expressions/methods"
    if combiner not in TRAITS:
        yield "model/combiners: TRAITS"
        return
    try:
        compile_aggregates({"x": aggregate}, SCHEMA, withdrawable=True, all_kept=False)
        compile_aggregates({"x": aggregate}, SCHEMA, withdrawable=False, all_kept=False)
    except AssertionError:
        yield "kernel/aggregates/accumulators"
    try:
        combine(aggregate, [])
    except AssertionError:
        yield "reference/contents"


def forgot_functions(names: Collection[str]) -> Iterator[str]:
    """The places that do not know all of ``names``."""
    tables = {
        "model/expressions/typing": typing._SIGNATURES,
        "kernel/expressions/evaluation": evaluation._FUNCTIONS,
        "reference/evaluate": EVALUATED,
    }
    for place, table in tables.items():
        if left := sorted({*names} - table.keys()):
            yield f"{place}: {', '.join(left)}"


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_every_trigger_is_known_everywhere(trigger: hr.Trigger) -> None:
    assert not [*forgot_trigger(trigger)]


@pytest.mark.parametrize("where", WINDOWS, ids=lambda where: type(where).__name__)
def test_every_window_function_is_known_everywhere(where: hr.WindowFn) -> None:
    assert not [*forgot_windows(where)]


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=lambda aggregate: aggregate.combiner.value)
def test_every_combiner_is_known_everywhere(aggregate: hr.Aggregate) -> None:
    assert not [*forgot_combiner(aggregate)]


def test_every_word_has_a_sample_here() -> None:
    assert {type(trigger) for trigger in TRIGGERS} == {*kinds_by_word(hr.Trigger).values()}
    assert {type(where) for where in WINDOWS} == {*kinds_by_word(hr.WindowFn).values()}
    assert {aggregate.combiner for aggregate in AGGREGATES} == {*Combiner}


def test_every_trigger_of_its_modules_has_a_word() -> None:
    public = {getattr(hr, name) for name in hr.__all__ if name not in hr._MODULES}
    triggers = {each for each in public if isinstance(each, type) and issubclass(each, hr.Trigger)}
    assert triggers - {hr.Trigger, hr.CustomTrigger} == {*kinds_by_word(hr.Trigger).values()}


def test_a_word_means_one_class_and_names_parts_that_it_has() -> None:
    names = [word.name for word in WORDS.values()]
    assert len({*names}) == len(names)
    for kind, word in WORDS.items():
        assert word.parts.keys() <= {each.name for each in fields(kind)}, kind


def test_every_function_with_a_type_is_evaluated_by_both() -> None:
    assert not [*forgot_functions(typing._SIGNATURES)]


def test_a_forgotten_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class AfterNothing(hr.Trigger):
        """A trigger that nobody has been told of."""

        predicate: hr.Expr

    @dataclass(frozen=True)
    class NoWindows(hr.WindowFn):
        """Windows that nobody has been told of."""

    class NewCombiner(StrEnum):
        NEW = "of today"

    assert [*forgot_trigger(AfterNothing(col("end")))] == [
        "its class: a word (@word)",
        "its class: its condition (model/triggers/elementary)",
        "its class: what is missing (model/triggers/elementary)",
        "its class: what it reads (model/triggers/reads)",
        "__init__",
        "program/triggers",
        "reference/triggers",
        "lab: conformance/words",
    ]
    assert [*forgot_windows(NoWindows())] == [
        "its class: a word (@word)",
        "its class: the windows in one line (describe_windows)",
        "its class: the event times that a range depends on (touching)",
        "__init__",
        "kernel/windows",
        "reference/windows",
        "lab: conformance/words",
    ]
    new = hr.Aggregate(NewCombiner.NEW, col("n"))  # type: ignore[arg-type]
    assert [*forgot_combiner(new)] == ["model/expressions/methods", "model/combiners: TRAITS"]
    monkeypatch.setitem(TRAITS, NewCombiner.NEW, CombinerTraits(ResultType.INPUT))  # type: ignore[arg-type]
    assert [*forgot_combiner(new)] == [
        "model/expressions/methods", "kernel/aggregates/accumulators", "reference/contents"
    ]  # fmt: skip
    assert [*forgot_functions(["lower", "reverse"])] == [
        "model/expressions/typing: reverse", "kernel/expressions/evaluation: reverse", "reference/evaluate: reverse"
    ]  # fmt: skip
