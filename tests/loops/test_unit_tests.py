"""Users' unit tests of pipelines with loops: a step is an epoch, and what is in flight comes in the next one."""

from typing import Any

import headrace as hr
from headrace.testing import assert_panes, rows, run, watermark
from tests.loops.pipelines import LOOPS, pipeline

WINDOW = ["1970-01-01T00:00:00Z", "1970-01-01T00:00:10Z"]


def edge(a: str, b: str, weight: int, second: int) -> dict[str, Any]:
    return {"a": a, "b": b, "weight": weight, "at": f"1970-01-01T00:00:{second:02}Z"}


def pane(vertex: str, value: int, timing: str, **more: Any) -> dict[str, Any]:
    return {"vertex": vertex, "value": value, "timing": timing, "window": WINDOW, **more}


def test_steps_of_a_unit_test_are_epochs_of_a_loop() -> None:
    definition = pipeline(
        LOOPS["paths"].with_rounds(1), where=hr.FixedWindows("10s"), when=hr.AfterWatermark(early=hr.AfterCount(1))
    )
    result = run(
        definition,
        [
            rows(edge("v00", "b", 1, 1), edge("b", "c", 1, 2)),
            watermark("1970-01-01T00:00:40Z"),
            rows(edge("v00", "z", -1, 41)),
            rows(edge("v00", "c", 1, 2)),
        ],
    )
    first, second, third, last = result.steps
    assert_panes(first, [pane("v00", 0, "EARLY")])
    assert_panes(second, [pane("b", 1, "EARLY")])
    on_time = [("v00", 0), ("b", 1), ("c", 2)]
    withdrawn = [pane(*each, "EARLY", is_retraction=True) for each in on_time]
    assert_panes(third, [pane("c", 2, "EARLY"), *withdrawn, *(pane(*each, "ON_TIME") for each in on_time)])
    assert [letter["reason"] for letter in third.rejected] == ["the step of the loop descends: weight"]
    assert [(row["a"], row["b"]) for row in last.late] == [("v00", "c")]
