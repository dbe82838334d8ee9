"""Columns of results and ``having``: what they may read, what is wrong with them, and what a fingerprint says of them
(semantics 8.4, 9.10).
"""

from datetime import datetime
from typing import Any

import pytest

import headrace as hr
from headrace import Aggregation, Output, Pipeline, col, count
from headrace.describe.pipeline import draw_graph, pipeline_sections
from headrace.errors import PipelineError
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.identity import fingerprint, pipeline_meaning
from headrace.testing import rows, run

FLIGHTS = hr.json("landing/flights", {"carrier": str, "delay": int, "at": datetime}).event_time("at", bound="1h")
WHAT: dict[str, Any] = {"late": hr.if_else(col("delay") > 0, 1, 0).sum(), "flights": count()}
RATE = col("late") / col("flights")
DAILY = Aggregation(what={"worst": col("rate").max()}, where=hr.FixedWindows("1d"))


def carriers(**parts: Any) -> Pipeline:
    given_parts = {"key": "carrier", "what": WHAT, "where": hr.FixedWindows("1h"), "when": hr.on_update()}
    return Pipeline("carriers", FLIGHTS, **{**given_parts, "how": hr.retracting("1d"), **parts})


def test_columns_stand_behind_the_aggregates_with_their_types() -> None:
    what = {
        "bad": col("rate") > 0.5,
        "rate": RATE,
        **WHAT,
        "who": hr.concat(col("carrier"), "!"),
        "since": col("window_start"),
    }
    own_pipeline = carriers(what=what, then=[DAILY])
    assert [*own_pipeline.stages[0].value_types.items()] == [
        ("late", DataType.INT),
        ("flights", DataType.INT),
        ("bad", DataType.BOOL),
        ("rate", DataType.FLOAT),
        ("who", DataType.STRING),
        ("since", DataType.TIMESTAMP),
    ]
    assert own_pipeline.value_types == {"worst": DataType.FLOAT}, "the aggregation below reads them"


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an aggregate that there is not": (
        {"what": {**WHAT, "rate": col("lat") / col("flights")}},
        "Pipeline carriers(what['rate']=(lat / flights)): there is no result 'lat'; did you mean 'late'? it reads a "
        "row of results, which has carrier, late, flights, rate, window_start, window_end; of records name an "
        'aggregate in what=, such as "lat": col("lat").max()',
    ),
    "a column of records": (
        {"having": col("delay") > 3},
        "Pipeline carriers(having=(delay > 3)): there is no result 'delay'; it reads a row of results, which has "
        "carrier, late, flights, window_start, window_end; of records name an aggregate in what=, such as "
        '"delay": col("delay").max()',
    ),
    "a cycle": (
        {"what": {**WHAT, "a": col("b") + 1, "b": col("c"), "c": col("a")}},
        "a reads b reads c reads a: nothing can be computed first; let one of them read aggregates alone",
    ),
    "of itself": ({"what": {**WHAT, "a": col("a") + 1}}, "a reads a: nothing can be computed first"),
    "no aggregate": ({"what": {"who": col("carrier")}}, "there is no aggregate; write {"),
    "no condition": (
        {"having": RATE},
        "pipeline carriers: having: the condition is float, and must be bool",
    ),
    "no expression": ({"having": "late > 3"}, "Pipeline carriers(having='late > 3'): not an expression; write"),
    "operands that do not fit": (
        {"what": {**WHAT, "x": col("late") + col("carrier")}},
        "pipeline carriers: what['x']: in (late + carrier): + needs numbers, found int and string",
    ),
    "nothing": ({"what": {**WHAT, "x": hr.lit(None)}}, "what['x']: None is always NULL; name a result in it"),
    "an aggregate of an aggregate": (
        {"what": {**WHAT, "most": col("late").max()}},
        "what['most']: 'late' is a result of this aggregation, and an aggregate reads what comes into it: an aggregate "
        'of results is a further one, then=[Aggregation(what={...: col("late").max()}, ...)]; an expression over '
        "results stands in what= by itself",
    ),
    "a list": (
        {"what": {**WHAT, "all": col("delay").collect(), "x": col("all") + 1}},
        "what['x']: in all: a list of int is no value",
    ),
    "a list of pairs": (
        {"what": {**WHAT, "all": col("delay").map_agg(col("delay")), "x": col("all").is_null()}},
        "what['x']: 'all' is a list of pairs, which no expression reads",
    ),
    "a name twice": ({"what": {**WHAT, "carrier": RATE}}, "column 'carrier' is both a key and an aggregate"),
    "accumulating sessions": (
        {"having": RATE > 0.5, "where": hr.Sessions("1h"), "how": hr.accumulating("1d")},
        "having: accumulating windows that merge leave the rows of what they merged standing, and nobody could tell "
        "which of them to withdraw; use how=retracting()",
    ),
    "sessions below what can withdraw": (
        {
            "how": hr.accumulating("1d"),
            "having": col("late") > 1,
            "allow_double_counting": True,
            "then": [Aggregation(what={"n": count()}, where=hr.Sessions("1h"))],
        },
        "withdraws panes from windows that merge",
    ),
}


@pytest.mark.parametrize(("parts", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_found_when_the_pipeline_is_built(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as error:
        carriers(**parts)
    assert message in str(error.value)


def test_an_output_has_them_too_and_says_whose_mistake_it_is() -> None:
    own = {"key": "carrier", "what": {**WHAT, "rate": RATE}, "where": hr.FixedWindows("1h")}
    own_pipeline = Pipeline("carriers", FLIGHTS, outputs={"hourly": Output(**own, having=col("rate") > 0.5)})
    hourly_alone = own_pipeline.by_output["hourly"]
    assert hourly_alone.having is not None
    assert [*hourly_alone.value_types] == ["late", "flights", "rate"]
    with pytest.raises(PipelineError, match=r"output hourly of pipeline carriers: having: the condition is float"):
        Pipeline("carriers", FLIGHTS, outputs={"hourly": Output(**own, having=col("rate"))})
    with pytest.raises(PipelineError, match="a pipeline with outputs= has it in each of them"):
        Pipeline("carriers", FLIGHTS, outputs={"hourly": Output(**own)}, having=col("rate") > 0.5)


def test_windows_that_can_have_only_one_pane_withdraw_nothing() -> None:
    one_pane_pipeline = carriers(
        how=hr.accumulating(), when=hr.on_window_close(), having=col("late") > 1, where=hr.Sessions("1h")
    )
    accumulating_pipeline = carriers(how=hr.accumulating("1d"), having=col("late") > 1)
    discarding_pipeline = carriers(how=hr.discarding("1d"), having=col("late") > 1)
    assert [
        pipeline.stages[0].withdraws for pipeline in (one_pane_pipeline, accumulating_pipeline, discarding_pipeline)
    ] == [
        False,
        True,
        False,
    ]
    assert not carriers(how=hr.accumulating("1d")).stages[0].withdraws


def test_a_definition_has_them_only_where_there_are_some() -> None:
    plain, rated_pipeline = carriers(), carriers(what={**WHAT, "rate": RATE})
    (stage,) = pipeline_meaning(plain)["stages"]
    assert not {"results", "having"} & {*stage}
    (stage,) = pipeline_meaning(rated_pipeline)["stages"]
    assert stage["results"] == [["rate", ["binary", "/", ["column", "late"], ["column", "flights"]]]]
    others = [
        plain,
        rated_pipeline,
        carriers(what={**WHAT, "rate": RATE * 100}),
        carriers(what={**WHAT, "share": RATE}),
        carriers(having=col("late") > 1),
        carriers(having=col("late") > 2),
    ]
    assert len({fingerprint(made_other) for made_other in others}) == len(others)
    assert fingerprint(carriers(what={"rate": RATE, **WHAT})) == fingerprint(rated_pipeline), (
        "panes have the aggregates first"
    )


def test_check_says_them_in_words() -> None:
    own_pipeline = carriers(what={**WHAT, "rate": RATE}, having=col("rate") > 0.5)
    (what,) = [section.lines for section in pipeline_sections(own_pipeline) if section.heading == "what"]
    assert "rate = (late / flights), of each row of these" in what
    assert "only rows leave of which (rate > 0.5) is true; one that no longer is so is withdrawn" in what
    assert "late, flights, rate per carrier: fixed windows of 1h" in "\n".join(draw_graph(own_pipeline))
    assert "having (rate > 0.5)" in draw_graph(own_pipeline)


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_an_aggregate_of_some_elements_alone_is_followed_when_they_change(executor: Any) -> None:
    source = hr.json("landing/orders", {"id": str, "price": int, "sign": int, "at": datetime}, changelog=col("sign"))
    dear = col("price") > 1
    what = {
        "all": count(),
        "dear": count().where(dear),
        "total": col("price").sum().where(dear),
        "last": col("id").last().where(dear),
        "dearest": col("id").max_by(col("price")).where(col("price") < 3),
        "ids": col("id").collect().where(dear),
        "sizes": hr.case((col("price") > 2, "large"), (dear, "middle"), otherwise="small").collect(),
    }
    pipeline = hr.Pipeline(
        "orders", source.event_time("at", bound="0s"), what=what, where=hr.GlobalWindows(), when=hr.on_update()
    )

    def order(id: str, price: int | None, second: int, sign: int = 1) -> dict[str, Any]:  # noqa: A002 (its column)
        return {"id": id, "price": price, "sign": sign, "at": f"2026-05-01T00:00:{second:02}Z"}

    steps = [
        rows(order("a", 1, 1), order("b", 2, 2), order("c", 3, 3), order("d", None, 4)),
        rows(order("c", 3, 3, -1)),
    ]
    current_before, current_after = (step.current for step in run(pipeline, steps, executor=executor).steps)
    assert current_before.only(*what) == [
        {"all": 4, "dear": 2, "total": 5, "last": "c", "dearest": "b", "ids": ["b", "c"],
         "sizes": ["large", "middle", "small", "small"]},
    ]  # fmt: skip
    assert current_after.only(*what) == [
        {"all": 3, "dear": 1, "total": 2, "last": "b", "dearest": "b", "ids": ["b"],
         "sizes": ["middle", "small", "small"]},
    ]  # fmt: skip
