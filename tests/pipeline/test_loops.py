"""What a loop may be: all that would have no result, or more than one, is refused when the pipeline is built."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.model.expressions.expr import render
from headrace.pipeline.identity import fingerprint, recorded_definition, with_declared_names
from headrace.pipeline.loops import LoopError
from headrace.read.definition_plan import Action, definition_changes
from tests.own_triggers import Jump

VALUE, VERTEX, W = col("value"), col("vertex"), col("w")
SCHEMA = {"a": int, "b": int, "w": int, "f": float, "s": str, "at": datetime}
LINKS = hr.json("landing/links", SCHEMA).event_time("at", bound="5m")


def loop(**parts: Any) -> hr.Loop:
    return hr.Loop(**{"start": VERTEX, "step": VALUE, "combine": "least", **parts})


def pipeline(given_loop: hr.Loop | None = None, **parts: Any) -> hr.Pipeline:
    common = {"key": ["a", "b"], "where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1h")}
    return hr.Pipeline("links", LINKS, **{**common, "loop": given_loop or loop(), **parts})


def test_panes_are_of_vertices_and_records_of_edges() -> None:
    own_pipeline = pipeline(loop(step=VALUE + W), what={"far": VALUE * 2}, filter=W > 1)
    assert dict(own_pipeline.key_types) == {"vertex": hr.DataType.INT}
    assert dict(own_pipeline.value_types) == {"value": hr.DataType.INT, "far": hr.DataType.INT}
    assert [*own_pipeline.key] == [*own_pipeline.record_key_types] == ["a", "b"]
    assert own_pipeline.stages[0].aggregation.filter is None


def test_parts_can_be_replaced() -> None:
    own_pipeline = pipeline(loop(step=VALUE + W), what={"far": VALUE * 2}, filter=W > 1)
    assert fingerprint(replace(own_pipeline, description="another")) == fingerprint(own_pipeline)


def test_each_output_may_have_its_own() -> None:
    parts: dict[str, Any] = {"key": ["a", "b"], "where": hr.GlobalWindows(), "when": hr.on_update()}
    own_pipeline = hr.Pipeline(
        "links",
        LINKS,
        outputs={
            "near": hr.Output(**parts, loop=loop(step=VALUE + W), what={"far": VALUE}),
            "sizes": hr.Output(of="near", key="value", what={"n": hr.count()}, where=hr.GlobalWindows(), when=None),
            "plain": hr.Output(key="a", what={"n": hr.count()}, where=hr.FixedWindows("1h")),
        },
    )
    near_output = own_pipeline.by_output["near"]
    assert near_output.loop is not None
    assert [*near_output.value_types] == ["value", "far"]
    assert [*own_pipeline.by_output["sizes"].stages[0].schema] == [
        "vertex",
        "value",
        "far",
        "window_start",
        "window_end",
    ]


STEPS: dict[str, tuple[hr.Expr, str]] = {
    "negated": (-VALUE, "turns the order of values round"),
    "taken from something": (W - VALUE, "turns the order of values round"),
    "times something": (VALUE * W, "not known to keep the order"),
    "through a function": (VALUE.abs(), "not known to keep the order"),
    "of a condition": (hr.if_else(VALUE > 3, VALUE, W), "not known to keep the order"),
    "twice": (VALUE + VALUE, "plus itself"),
    "without the value": (W, "does not read the value"),
    "down by a constant": (VALUE + -1, "makes the value better"),
    "down by taking": (VALUE - 1, "makes the value better"),
    "inside of another": (hr.greatest(VALUE - 1, W), "makes the value better"),
    "nothing": (hr.least(VALUE, None), "always NULL"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_not_monotone_is_refused(name: str) -> None:
    step, why = STEPS[name]
    with pytest.raises(LoopError, match=why) as error:
        loop(step=step)
    assert error.value.code == "config.loop"


@pytest.mark.parametrize(
    ("step", "combine"),
    [
        (VALUE, "least"),
        (W + VALUE + 2, "least"),
        (VALUE - W, "greatest"),
        (VALUE - 1, "greatest"),
        (hr.greatest(VALUE, W), "least"),
        (hr.least(VALUE + W, 100), "least"),
    ],
    ids=str,
)
def test_steps_that_keep_the_order_are_taken(step: hr.Expr, combine: str) -> None:
    assert pipeline(loop(step=step, combine=combine)).loop is not None


def test_terms_say_which_way_they_may_go() -> None:
    for combine, signs in {"least": {"w": 1, "a": -1}, "greatest": {"w": -1, "a": 1}}.items():
        terms = loop(step=VALUE + W - col("a"), combine=combine).compiled_step.terms
        assert {render(term.expr): term.sign for term in terms} == signs
    (free,) = loop(step=hr.least(VALUE, W)).compiled_step.terms
    assert free.sign == 0


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "one end": (lambda: pipeline(key=["a"]), "two ends"),
    "ends of two types": (lambda: pipeline(key=["a", "s"]), "of one type"),
    "an aggregate": (lambda: pipeline(what={"n": hr.count()}), "expressions over it may stand here"),
    "a start over edges": (lambda: loop(start=W), "'vertex' alone"),
    "a start of nothing": (lambda: pipeline(loop(start=hr.if_else(VERTEX > 0, None, None))), "always NULL"),
    "a float": (lambda: pipeline(loop(start=VERTEX.cast(float))), "compare exactly"),
    "a step to another type": (lambda: pipeline(loop(step=VALUE + col("f"))), "it is float"),
    "a step over nothing": (lambda: pipeline(loop(step=VALUE + col("x"))), "no column 'x'"),
    "a term of nothing": (lambda: pipeline(loop(step=VALUE + hr.if_else(W > 0, None, None))), "always NULL"),
    "sessions": (lambda: pipeline(where=hr.Sessions("1h")), "the same window"),
    "sliding windows": (lambda: pipeline(where=hr.SlidingWindows("1h", "10m")), "the same window"),
    "a phase": (lambda: pipeline(where=hr.FixedWindows("1h", phase=col("a") % 60)), "the same window"),
    "discarding": (lambda: pipeline(how=hr.discarding()), "discarding forgets"),
    "the last ones": (lambda: pipeline(how=hr.accumulating(keep_last=3)), "keep_last"),
    "another timestamp": (lambda: pipeline(how=hr.retracting(timestamp="earliest")), "leave timestamp out"),
    "a pattern": (lambda: pipeline(when=hr.Repeatedly(hr.AfterPattern("a", {"a": VALUE > 1}))), "order of arrival"),
    "a trigger of one's own": (lambda: pipeline(when=hr.Repeatedly(Jump(3, "value"))), "order of arrival"),
    "finishing": (lambda: pipeline(allow_finishing=True), "forgets its values"),
    "no rounds": (lambda: loop(rounds=0), "at least 1"),
    "another combine": (lambda: loop(combine="mean"), '"least", "greatest"'),
    "panes": (
        lambda: hr.Output(of="hourly", key=["a", "b"], loop=loop(), where=hr.GlobalWindows(), when=hr.on_update()),
        "panes of other outputs",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_result_is_refused(name: str) -> None:
    make, why = WRONG[name]
    with pytest.raises(LoopError, match=why) as error:
        make()
    assert error.value.code == "config.loop"


def test_an_output_says_which_it_is() -> None:
    output = hr.Output(key=["a", "b"], loop=loop(), where=hr.Sessions("1h"))
    with pytest.raises(LoopError, match="output near of pipeline links: where"):
        hr.Pipeline("links", LINKS, outputs={"near": output})


def test_a_column_called_value_is_refused() -> None:
    links = hr.json("landing/links", {"a": int, "b": int, "value": int, "at": datetime}).event_time("at", bound="5m")
    with pytest.raises(LoopError, match="have a column 'value'"):
        hr.Pipeline("links", links, key=["a", "b"], loop=loop(), where=hr.GlobalWindows(), when=hr.on_update())


@pytest.mark.parametrize(
    ("parts", "action"),
    [
        ({"rounds": 1}, Action.KEEP),
        ({"both_ways": True}, Action.REPLAY),
        ({"step": VALUE + W}, Action.REPLAY),
        ({"combine": "greatest"}, Action.REPLAY),
    ],
    ids=str,
)
def test_rounds_may_change_and_what_they_compute_may_not(parts: dict[str, Any], action: Action) -> None:
    pipeline_before, now = pipeline(), pipeline(loop(**parts))
    changes = definition_changes(now, with_declared_names(now, recorded_definition(pipeline_before)))
    assert max((change.action for change in changes), key=[*Action].index) is action
    assert any("loop" in str(change) for change in changes)
