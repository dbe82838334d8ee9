"""Both executors of unit tests say the same where the reference once said something else, or nothing."""

from datetime import datetime
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import IntegerOverflowError
from headrace.testing import end, rows, run, watermark

EXECUTORS: tuple[Any, ...] = ("local", "reference")
EDGES = {"a": str, "b": str, "weight": int, "at": datetime}


def paths(step: hr.Expr = col("value") + col("weight"), bound: str = "0s") -> hr.Pipeline:  # noqa: B008
    return hr.Pipeline(
        "paths",
        hr.json("landing/paths", EDGES).event_time("at", bound=bound),
        key=["a", "b"],
        loop=hr.Loop(start=hr.if_else(col("vertex") == "x", 0, None), step=step, combine="least"),
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("0s"),
        executor="local",
    )


def edge(a: str | None, b: str, weight: int | None = 1, time: str = "01:00") -> dict[str, Any]:
    return {"a": a, "b": b, "weight": weight, "at": time}


def test_edges_of_a_loop_that_are_late() -> None:
    steps = [watermark("05:00"), rows(edge("x", "y"), edge("x", "z", time="06:00"))]
    local, reference = (run(paths(), steps, executor=executor).late for executor in EXECUTORS)
    assert [(row["reason"], row["a"], row["b"]) for row in local] == [("window expired", "x", "y")]
    assert [{**row, "input": None, "raw": None} for row in local] == [*reference]


def test_edges_that_no_loop_can_go_over() -> None:
    given_rows = rows(edge("x", "y", -1), edge("x", "y", None), edge(None, "y"), edge("x", "y"))
    rejections_by_executor = [
        [(r["position"], r["reason"]) for r in run(paths(), [given_rows], executor=e).rejected] for e in EXECUTORS
    ]
    assert rejections_by_executor[0] == rejections_by_executor[1]
    assert [reason for _, reason in rejections_by_executor[0]] == [
        "the step of the loop descends: weight",
        "the step of the loop is null: weight",
        "key is null: a",
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_loop_reads_of_an_edge_and_overflows_is_a_dead_letter(executor: Any) -> None:
    pipeline = paths(col("value") + col("weight") * 100, bound="1h")
    result = run(pipeline, [rows(edge("x", "y", 2**60), edge("x", "z"))], executor=executor)
    assert [row["reason"] for row in result.rejected] == ["value of the edge: (weight * 100) leaves 64 bits"]
    assert {row["vertex"]: row["value"] for row in result.current} == {"x": 0, "z": 100}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_path_that_overflows_names_columns_as_the_definition_does(executor: Any) -> None:
    given_rows = rows(edge("x", "y", 2**62), edge("y", "z", 2**62))
    with pytest.raises(IntegerOverflowError, match=r"\(value \+ weight\).* leaves 64 bits") as error:
        run(paths(), [given_rows, end()], executor=executor)
    assert "_e0" not in str(error.value)


@pytest.mark.parametrize(
    "values", [[1e308, -1e308], [1e308, 1e308], [1e308, 1.0000001e308, 1e308], [1e200, 2e200], [1.0, 2.0, 4.0], [1e16]]
)
@pytest.mark.parametrize("how", [hr.retracting("1d"), hr.accumulating("1d")])
def test_the_variance_of_large_floats(values: list[float], how: hr.How) -> None:
    pipeline = hr.Pipeline(
        "spread",
        hr.json("landing/spread", {"k": str, "x": float, "at": datetime}).event_time("at", bound="1h"),
        key="k",
        what={"spread": col("x").variance()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=how,
        executor="local",
    )
    steps = [rows({"k": "a", "x": x, "at": "00:01"}) for x in values]
    local, reference = ([row["spread"] for row in run(pipeline, steps, executor=e).panes] for e in EXECUTORS)
    assert local == pytest.approx(reference, rel=1e-9)


def chain(when: hr.Trigger, how: hr.How) -> hr.Pipeline:
    return hr.Pipeline(
        "chain",
        hr.json("landing/chain", {"k": str, "v": int, "at": datetime}).event_time("at", bound="1h"),
        key="k",
        what={"s": col("v").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=how,
        then=[hr.Aggregation(what={"all": col("s").sum()}, where=hr.FixedWindows("1h"), when=when)],
        executor="local",
    )


BIG = hr.Repeatedly(hr.DataDriven({"t": col("s").sum()}, col("t") > 10))


@pytest.mark.parametrize(
    ("when", "how", "is_said"),
    [
        (BIG, hr.retracting("1d"), True),
        (BIG, hr.discarding("1d"), False),
        (hr.on_update(), hr.retracting("1d"), False),
    ],
)
def test_check_says_that_a_trigger_counts_withdrawn_panes(when: hr.Trigger, how: hr.How, is_said: bool) -> None:
    (checked_pipeline,) = hr.check(chain(when, how)).pipelines
    notes = [note for note in checked_pipeline.notes if "DataDriven looks at what elements hold" in note]
    assert bool(notes) is is_said


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("where", [hr.FixedWindows("1h"), hr.SlidingWindows("1h", period="1h"), hr.Sessions("1h")])
@pytest.mark.parametrize("lateness", ["0s", "1h", None])
def test_the_end_of_the_input_passes_windows_beyond_the_end_of_time(
    executor: Any, where: hr.WindowFn, lateness: str | None
) -> None:
    pipeline = hr.Pipeline(
        "below",
        hr.json("landing/numbers", {"k": str, "n": int, "at": datetime}).event_time("at", bound="0s"),
        key="k",
        what={"n": col("n").sum()},
        where=hr.GlobalWindows(),
        when=hr.Repeatedly(hr.AfterCount(1)),
        how=hr.discarding(on_time="FIRE_IF_NON_EMPTY"),
        then=[
            hr.Aggregation(
                key="k",
                what={"n": col("n").sum()},
                where=where,
                when=hr.AfterWatermark(late=hr.AfterCount(1)),
                how=hr.discarding(lateness),
            )
        ],
        executor="local",
    )
    # nothing comes to the window in the epoch that ends the input
    steps = [rows({"k": "a", "n": 1, "at": "00:10"}, {"k": "a", "n": 2, "at": "00:20"}), watermark("05:00"), end()]
    panes = run(pipeline, steps, executor=executor).panes
    assert [(pane["n"], pane["timing"], pane["is_last"]) for pane in panes] == [(3, "ON_TIME", lateness is not None)]
