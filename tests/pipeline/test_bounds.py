"""Pipelines are as large as they can be computed, and no larger: a clear error, at once, where one is written."""

import pickle
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Expr, Pipeline, Trigger, col
from headrace.describe.pipeline import pipeline_notes, pipeline_sections
from headrace.errors import PipelineError
from headrace.model.expressions.typing import DEEPEST, MOST_NODES, Extent, child_expressions, tree_extent
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.validation import DEEPEST_TRIGGER, MOST_AGGREGATIONS
from headrace.read.views.conditions import QueryError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace_lab.reference import Epoch, run_pipeline


def chain(operators: int) -> Expr:
    expr: Expr = col("x")
    for number in range(operators):
        expr = expr + number
    return expr


def choices(levels: int) -> Expr:
    expr: Expr = col("x")
    for number in range(levels):
        expr = hr.if_else(col("x") == number, number, expr)
    return expr


def doubled_expr(times: int) -> Expr:
    expr: Expr = col("x")
    for _ in range(times):
        expr = expr + expr
    return expr


def nested_trigger(levels: int) -> Trigger:
    after_count: Trigger = hr.AfterCount(1)
    for _ in range(levels):
        after_count = hr.Repeatedly(after_count)
    return after_count


def totals(**parts: Any) -> Pipeline:
    schema = {"user": str, "at": datetime, "x": int, "ok": bool}
    given_input = hr.json("landing", schema).event_time(parts.pop("at", "at"), bound="0s")
    plain: dict[str, Any] = {
        "key": "user",
        "what": {"n": col("x").sum()},
        "where": hr.FixedWindows("1h"),
        "executor": "local",
    }
    return Pipeline("totals", given_input, **{**plain, **parts})


def lower_aggregations(number: int) -> list[hr.Aggregation]:
    parts = {"key": "user", "what": {"n": col("n").sum()}, "where": hr.FixedWindows("1h"), "how": hr.discarding()}
    return [hr.Aggregation(**parts) for _ in range(number)]


def land(root: Path) -> None:
    (root / "landing").mkdir()
    (root / "landing" / "1.json").write_text('{"user": "ann", "at": "2026-01-01T00:00:00Z", "x": 0}\n')


LONG = chain(2_000)
TOO_LARGE: dict[str, tuple[Callable[[], Any], str]] = {
    "an aggregate": (
        lambda: totals(what={"n": LONG.sum()}),
        "totals: aggregate n: the expression is 2,001 levels deep",
    ),
    "a pair": (lambda: totals(what={"n": col("x").pairs(LONG)}), "aggregate n"),
    "a key": (lambda: totals(key={"user": LONG}), "key user"),
    "a filter": (lambda: totals(filter=LONG > 1), "the filter"),
    "an event time": (lambda: totals(at=LONG.cast(datetime)), "the event time"),
    "an id": (lambda: totals(deduplicate=hr.Deduplicate(LONG, "1h")), "the id of Deduplicate"),
    "a phase": (lambda: totals(where=hr.FixedWindows("1h", phase=LONG)), "the phase"),
    "a predicate": (lambda: totals(when=hr.Repeatedly(hr.AfterPunctuation(LONG > 1))), "AfterPunctuation"),
    "a predicate of aggregates": (
        lambda: totals(when=hr.Repeatedly(hr.DataDriven({"x": col("x").sum()}, LONG > 1))),
        "DataDriven",
    ),
    "a later aggregation": (
        lambda: totals(how=hr.discarding(), then=[hr.Aggregation(what={"m": LONG.sum()}, where=hr.FixedWindows("1h"))]),
        "aggregate m",
    ),
    "choices": (lambda: totals(what={"n": choices(400).sum()}), "402 levels deep"),
    "e + e, eighteen times": (lambda: totals(what={"n": doubled_expr(18).sum()}), "has 524,287 parts"),
    "e + e, a hundred times": (lambda: totals(what={"n": doubled_expr(100).sum()}), "parts, and may have 10,000"),
    "a trigger": (lambda: totals(when=nested_trigger(2_000)), "has 2,001 nodes in 2,001 levels"),
    "a broad trigger": (
        lambda: totals(when=hr.Repeatedly(hr.AfterAny(*[hr.AfterCount(1)] * 600))),
        "has 602 nodes in 3 levels",
    ),
    "2,000 aggregations": (
        lambda: totals(how=hr.discarding(), then=lower_aggregations(2_000)),
        "it has 2,001 aggregations",
    ),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_what_is_too_large_is_refused_at_once(what: str) -> None:
    build, why = TOO_LARGE[what]
    began = time.process_time()
    with pytest.raises(PipelineError, match=why):
        build()
    assert time.process_time() - began < 20, "it was worked out instead of being refused: that would take for ever"


def test_a_condition_of_readers_is_bounded_too(tmp_path: Path) -> None:
    land(tmp_path)
    process(totals(), tmp_path.as_uri(), RunOptions("run", publish=True))
    with pytest.raises(QueryError, match="2,002 levels deep"):
        hr.open(tmp_path.as_uri())["totals"].current(where=LONG > 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "large",
    [
        lambda: totals(what={"n": chain(DEEPEST - 1).sum()}),
        lambda: totals(what={"n": choices(DEEPEST - 2).sum()}),
        lambda: totals(what={"n": doubled_expr(MOST_NODES.bit_length() - 2).sum()}),
        lambda: totals(when=nested_trigger(DEEPEST_TRIGGER - 1)),
        lambda: totals(how=hr.discarding(), then=lower_aggregations(MOST_AGGREGATIONS // 4)),
    ],
    ids=["a chain", "choices", "doubled", "a trigger", "aggregations"],
)
def test_what_is_as_large_as_it_may_be_runs(tmp_path: Path, large: Callable[[], Pipeline]) -> None:
    pipeline = pickle.loads(pickle.dumps(large()))
    assert fingerprint(pipeline) and pipeline_sections(pipeline) and repr(pipeline) is not None
    assert all(pipeline_notes(pipeline))
    land(tmp_path)
    process(pipeline, tmp_path.as_uri(), RunOptions("run", mode=Mode.BATCH))
    (row,) = hr.open(tmp_path.as_uri())["totals"].current(at="main").to_arrow()["n"].to_pylist()
    (pane,) = run_pipeline(pipeline, [Epoch(0, [{"user": "ann", "at": 0, "x": 0}], is_last=True)])[0].panes  # type: ignore[arg-type]
    assert (row,) == pane.values


def test_the_extent_of_a_tree() -> None:
    assert tree_extent(col("x"), child_expressions) == Extent(1, 1)
    assert tree_extent(chain(2_000), child_expressions) == Extent(4_001, 2_001)
    assert tree_extent(doubled_expr(100), child_expressions) == Extent(2**101 - 1, 101)
