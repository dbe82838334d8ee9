"""Outputs of one pipeline as sides of a join: what stands run by run, what is kept, said, planned and refused."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.describe.pipeline import draw_graph, pipeline_sections
from headrace.errors import PipelineError
from headrace.pipeline.identity import fingerprint
from headrace.read.definition_plan import Action
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FANOUT
from headrace_snapshots.format.manifest import OutputTables
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.joins.trades import Trades, time_at

FACTS = hr.json("landing/trades", {"id": str, "ccy": str, "rate": int, "at": datetime}).event_time("at", bound="0s")
IS_RATE = col("rate").is_not_null()
SIDES: dict[str, Any] = {
    "deals": hr.Rows(["id", "ccy"], filter=col("id").is_not_null()),
    "rates": hr.Rows(["ccy", "rate"], filter=IS_RATE),
    "means": hr.Output(
        key="ccy", what={"mean": col("rate").mean()}, where=hr.FixedWindows("10m"), filter=IS_RATE,
        when=hr.on_update(), how=hr.retracting("1h"),
    ),
}  # fmt: skip


def deal(id: str, minute: int, ccy: str | None = "usd") -> dict[str, Any]:  # noqa: A002
    return {"id": id, "ccy": ccy, "at": time_at(minute)}


def rate(minute: int, value: int, ccy: str = "usd") -> dict[str, Any]:
    return {"ccy": ccy, "rate": value, "at": time_at(minute)}


def build_pipeline(*joins: hr.types.Join, **outputs: Any) -> hr.Pipeline:
    """A row of each deal, with what ``joins`` bring along, and further ``outputs``."""
    columns = {name: col(name) for join in joins for name in join.columns}
    rows = hr.Rows({"id": col("id"), **columns}, of="deals", join=joins)
    return hr.Pipeline("desks", FACTS, outputs={**SIDES, "rated": rows, **outputs}, executor="local")


def join_rates(**options: Any) -> hr.types.Join:
    return hr.as_of("rates", "ccy", **{"columns": ["rate"], "lateness": "1h", **options})


OF_MEANS = hr.same_window("means", "ccy", window=hr.FixedWindows("10m"), columns=["mean"], outer=True)


@pytest.fixture
def trades(tmp_path: Path) -> Trades:
    return Trades(tmp_path)


def test_rows_of_one_input_meet_each_other_and_late_ones_correct(trades: Trades) -> None:
    pipeline = build_pipeline(join_rates(outer=True))
    trades.run(pipeline, trades=[deal("a", 5), deal("b", 20), deal("none", 20, None), rate(0, 1)])
    assert trades.current(pipeline, "rated") == Counter({("a", 1): 1, ("b", 1): 1, ("none", None): 1})
    trades.run(pipeline, trades=[rate(10, 2), rate(85, 3), deal("c", 20)])  # all are judged under the old watermark
    assert trades.current(pipeline, "rated") == Counter({("a", 1): 1, ("b", 2): 1, ("c", 2): 1, ("none", None): 1})
    trades.run(pipeline, trades=[rate(15, 9), deal("late", 20)])
    assert trades.current(pipeline, "rated") == Counter({("a", 1): 1, ("b", 2): 1, ("c", 2): 1, ("none", None): 1})
    catalog = Catalog(open_store(trades.root), pipeline.name)
    assert catalog.manifest(catalog.head().refs[MAIN]).counts["rated/late_panes_dropped"] == 1


def test_a_pane_that_is_withdrawn_takes_along_what_it_met_in_the_same_epoch(trades: Trades) -> None:
    means = hr.as_of("means", {"ccy": "ccy"}, columns=["mean"], lateness="1h")
    sums = hr.Output(of="rated", key=None, what={"n": hr.count(), "sum": col("mean").sum()}, when=hr.on_update(),
                     where=hr.CalendarWindows("day"), how=hr.retracting("1d"))  # fmt: skip
    pipeline = build_pipeline(means, sums=sums)
    trades.run(pipeline, trades=[deal("a", 15), deal("b", 17), rate(1, 10)])
    assert trades.current(pipeline, "rated") == Counter({("a", 10.0): 1, ("b", 10.0): 1})
    trades.run(pipeline, trades=[rate(2, 20)])
    assert trades.current(pipeline, "rated") == Counter({("a", 15.0): 1, ("b", 15.0): 1})
    panes = trades.handle(pipeline)["sums"].panes().to_arrow().to_pylist()
    assert [(row["n"], row["sum"], row["is_retraction"]) for row in panes] == [
        (2, 20, False), (2, 20, True), (2, 30, False)
    ]  # fmt: skip


def test_both_sides_are_panes(trades: Trades) -> None:
    counts = hr.Output(key="ccy", what={"n": hr.count()}, where=hr.FixedWindows("10m"), when=hr.on_update(),
                       how=hr.retracting("1h"), filter=col("id").is_not_null())  # fmt: skip
    worth = hr.Rows({"ccy": col("ccy"), "n": col("n"), "mean": col("mean")}, of="counts", join=[OF_MEANS])
    pipeline = build_pipeline(join_rates(), counts=counts, worth=worth)
    trades.run(pipeline, trades=[deal("a", 5), rate(1, 10), deal("b", 15)])
    assert trades.current(pipeline, "worth") == Counter({("usd", 1, 10.0): 1, ("usd", 1, None): 1})
    trades.run(pipeline, trades=[rate(3, 20), deal("c", 6)])
    assert trades.current(pipeline, "worth") == Counter({("usd", 2, 15.0): 1, ("usd", 1, None): 1})
    changes = [row for row in trades.handle(pipeline)["worth"].panes().to_arrow().to_pylist() if row["epoch"]]
    assert sorted((row["n"], row["mean"], row["is_retraction"]) for row in changes) == [(1, 10, True), (2, 15, False)]


def test_an_output_joins_itself_and_others_one_behind_the_other(trades: Trades) -> None:
    next_deal = hr.next_event("deals", "ccy", within="1h", columns={"next": "id"}, lateness="1h")
    pipeline = build_pipeline(
        join_rates(), hr.within("deals", "ccy", between=("1s", "1h"), columns={"next": "id"}, lateness="1h")
    )
    trades.run(pipeline, trades=[deal("a", 5), deal("b", 20), rate(0, 1)])
    assert trades.current(pipeline, "rated") == Counter({("a", 1, "b"): 1})
    trades.run(pipeline, trades=[rate(4, 2), deal("c", 30)])
    assert trades.current(pipeline, "rated") == Counter({("a", 2, "b"): 1, ("a", 2, "c"): 1, ("b", 2, "c"): 1})
    second = replace(build_pipeline(next_deal), name="second")
    trades.run(second)
    assert trades.current(second, "rated") == Counter({("a", "a"): 1, ("b", "b"): 1, ("c", "c"): 1})


def test_merges_let_hidden_versions_go_and_keep_what_may_be_asked_for(trades: Trades) -> None:
    pipeline = build_pipeline(join_rates(lateness="20m"))
    for minute in range(0, 10 * (FANOUT.value + 2), 10):
        trades.run(pipeline, trades=[rate(minute, minute)])
    end = 10 * (FANOUT.value + 1)
    trades.run(pipeline, trades=[deal("a", end - 15)])
    assert trades.current(pipeline, "rated") == Counter({("a", end - 20): 1})
    catalog = Catalog(open_store(trades.root), pipeline.name)
    layers = catalog.manifest(catalog.head().refs[MAIN]).tables[OutputTables("rated").join_right(0)]
    assert sum(layer.rows for layer in layers) < FANOUT.value


def test_what_a_row_waits_for_is_said(trades: Trades) -> None:
    pipeline = build_pipeline(
        hr.within("rates", "ccy", between=("0s", "30m"), columns=["rate"], outer=True, lateness="1h")
    )
    trades.run(pipeline, trades=[deal("a", 5), rate(10, 1)])
    (explanation,) = trades.handle(pipeline)["rated"].explain({"id": "a"}).joins
    assert explanation.watermark == explanation.rows[0].at + 5 * 60_000_000  # type: ignore[index]
    assert [*explanation.rows[0].lines(explanation)][1:] == [  # type: ignore[index]
        f"  meets the row of rates of {time_at(10)}: rate = 1",
        f"  waits for rates until the watermark is above {time_at(35)}: "
        "what comes on time may still change what it meets",
    ]


def test_a_definition_knows_what_is_joined_but_not_what_that_is_called(trades: Trades) -> None:
    pipeline = build_pipeline(join_rates())
    outputs = {("quotes" if name == "rates" else name): output for name, output in pipeline.outputs.items()}
    outputs["quotes"] = replace(outputs["quotes"], formerly="rates")
    outputs["rated"] = hr.Rows(
        ["id", "rate"], of="deals", join=[hr.as_of("quotes", "ccy", columns=["rate"], lateness="1h")]
    )
    other = replace(pipeline, outputs=outputs)
    assert fingerprint(other.by_output["rated"]) == fingerprint(pipeline.by_output["rated"])
    trades.run(pipeline, trades=[deal("a", 5), rate(0, 1)])
    trades.run(other, trades=[deal("b", 5)])
    assert trades.current(other, "rated") == Counter({("a", 1): 1, ("b", 1): 1})
    outputs["quotes"] = replace(outputs["quotes"], filter=col("rate") > 0)
    plans = trades.handle(other).plans(replace(pipeline, outputs=outputs))
    assert "output 'quotes' has changed" in str(plans["rated"])
    assert {name for name, plan in plans.items() if Action.REPLAY in {one.action for one in plan.changes}} == {
        "rated",
        "quotes",
    }


def test_check_draws_and_says_what_is_joined() -> None:
    pipeline = build_pipeline(join_rates())
    text = "\n".join(line for section in pipeline_sections(pipeline) for line in section.lines)
    assert "watermark: the least of the output watermarks of deals, rates" in text
    assert "  │     panes of rates" in draw_graph(pipeline)


def build_counts(how: hr.How, where: hr.WindowFn = hr.FixedWindows("1h")) -> hr.Pipeline:  # noqa: B008
    """Deals with a rate, counted."""
    counts = hr.Output(of="deals", join=[join_rates()], key="ccy", what={"n": hr.count()}, where=where, how=how)
    return build_pipeline(join_rates(), counts=counts)


def build_continued() -> hr.Output:
    """An output that would continue a trigger."""
    where = hr.FixedWindows("1h")
    return hr.Output(of="deals", join=[join_rates()], key="ccy", what={"n": hr.count()}, when=None, where=where)


CIRCLE = hr.Rows(["ccy", "rate"], of="rated")
MEANS_TWICE = replace(SIDES["means"], how=hr.accumulating("1h"))
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no such output": (lambda: build_pipeline(hr.as_of("rate", "ccy", columns=["rate"])), "joins 'rate', and there is"),
    "a circle": (lambda: build_pipeline(join_rates(), rates=CIRCLE), "rates reads rated reads rates"),
    "of records": (lambda: hr.Rows(["id"], join=[join_rates()]), "Let these be an output"),
    "of a pipeline": (lambda: hr.Pipeline("p", FACTS, join=[join_rates()], rows=["id"]), "joined with inputs"),
    "an input": (lambda: build_pipeline(hr.as_of(FACTS.named("facts"), "ccy", columns=["rate"])), "facts is an input"),
    "continued": (build_continued, "joined rows have none"),
    "counted twice": (lambda: build_pipeline(OF_MEANS, means=MEANS_TWICE), "accumulates"),
    "no such column": (lambda: build_pipeline(join_rates(columns=["price"])), "price"),
    "not taken back": (lambda: build_counts(hr.discarding()), "use how=retracting"),
    "a session": (lambda: build_counts(hr.retracting(), hr.Sessions("1h")), "do not merge"),
    "history of what stays": (lambda: build_pipeline(join_rates(history="1h")), "none of its panes can be withdrawn"),
    "two joins of one": (lambda: build_pipeline(join_rates(), join_rates(columns={"b": "rate"})), "two joins are of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_say_what_to_write(name: str) -> None:
    make, message = MISTAKES[name]
    with pytest.raises(PipelineError, match=message):
        make()
