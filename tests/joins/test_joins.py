"""Joins as users see them: what stands, run by run; what is late; what is refused."""

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import col
from headrace.describe.pipeline import draw_graph, pipeline_notes, pipeline_sections
from headrace.errors import HeadraceError, PipelineError
from headrace.kernel.joins.sides import CompiledJoin
from headrace.model.expressions.data_types import DataType
from headrace.model.time import Duration, Instant
from headrace.runs.restore import ChangedPipelineError
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FANOUT
from headrace_snapshots.format.manifest import OutputTables
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.joins.trades import RATES, SIGNED_RATES, TRADE, TRADES, Trades, as_of, rate, rated_pipeline, time_at, trade


@pytest.fixture
def trades(tmp_path: Path) -> Trades:
    return Trades(tmp_path)


def test_a_row_meets_the_version_that_held_at_its_time(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of())
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1), rate(10, 2), rate(30, 3)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 2): 1})


def test_a_version_that_comes_late_corrects_what_it_should_have_met_and_nothing_else(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of())
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1)])
    trades.run(pipeline, rates=[rate(10, 2)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 2): 1})
    changed_rows = [
        (row["id"], row["rate"], row["is_retraction"]) for row in trades.view(pipeline, "panes") if row["epoch"]
    ]
    assert sorted(changed_rows) == [("b", 1, True), ("b", 2, False)]


def test_an_outer_row_leaves_at_once_and_is_withdrawn_when_its_partner_comes(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(outer=True))
    trades.run(pipeline, trades=[trade("a", 5), trade("none", 5, ccy=None)])
    assert trades.current(pipeline) == Counter({("a", None): 1, ("none", None): 1})
    trades.run(pipeline, rates=[rate(0, 1)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("none", None): 1})


def test_from_a_deleted_version_on_nothing_holds(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(deleted=col("gone")))
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1), rate(10, 2, gone=True)])
    assert trades.current(pipeline) == Counter({("a", 1): 1})
    trades.run(pipeline, rates=[rate(8, 3)])  # which the deletion hides
    assert trades.current(pipeline) == Counter({("a", 1): 1})


def test_of_versions_at_one_moment_the_greatest_by_order_counts(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(order="seq"))
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 1, seq=2), rate(0, 9, seq=1), rate(0, 5)])
    assert trades.current(pipeline) == Counter({("a", 1): 1})


def test_a_version_that_is_withdrawn_is_as_if_it_had_never_held(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(right=SIGNED_RATES))
    old, new = rate(0, 1, sign=1), rate(10, 2, sign=1)
    trades.run(pipeline, trades=[trade("b", 20)], rates=[old, new])
    assert trades.current(pipeline) == Counter({("b", 2): 1})
    trades.run(pipeline, rates=[{**new, "sign": -1}])
    assert trades.current(pipeline) == Counter({("b", 1): 1})


def test_a_withdrawn_left_row_takes_along_what_it_met(trades: Trades) -> None:
    changes = hr.json("landing/trades", {**TRADE, "sign": int}, changelog=col("sign")).event_time("at", bound="0s")
    pipeline = rated_pipeline(as_of(), input=changes)
    assert "sign" not in pipeline.joined_schema  # in which the withdrawal differs
    trades.run(pipeline, trades=[trade("a", 5, sign=1), trade("b", 6, sign=1)], rates=[rate(0, 1)])
    trades.run(pipeline, trades=[trade("a", 5, sign=-1)])
    assert trades.current(pipeline) == Counter({("b", 1): 1})


def test_versions_older_than_max_age_do_not_hold(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(max_age="10m"))
    trades.run(pipeline, trades=[trade("a", 10), trade("b", 11)], rates=[rate(0, 1)])
    assert trades.current(pipeline) == Counter({("a", 1): 1})


def test_all_events_of_an_interval_are_met_both_ends_included(trades: Trades) -> None:
    pipeline = rated_pipeline(hr.within(RATES, "ccy", between=("-5m", "5m"), columns=["rate"], lateness="1h"))
    rates = [rate(minute, minute) for minute in (4, 5, 10, 15, 16)]
    trades.run(pipeline, trades=[trade("a", 10)], rates=rates)
    assert trades.current(pipeline) == Counter({("a", minute): 1 for minute in (5, 10, 15)})


def test_the_next_event_is_met(trades: Trades) -> None:
    pipeline = rated_pipeline(hr.next_event(RATES, "ccy", within="10m", columns=["rate"], lateness="1h"))
    trades.run(pipeline, trades=[trade("a", 10), trade("b", 31)], rates=[rate(9, 1), rate(12, 2), rate(13, 3)])
    assert trades.current(pipeline) == Counter({("a", 2): 1})
    trades.run(pipeline, rates=[rate(11, 4)])
    assert trades.current(pipeline) == Counter({("a", 4): 1})


def test_rows_of_one_window_are_met(trades: Trades) -> None:
    join = hr.same_window(RATES, "ccy", window=hr.FixedWindows("1h"), columns=["rate"])
    trades.run(
        rated_pipeline(join), trades=[trade("a", 10), trade("b", 70)], rates=[rate(0, 1), rate(59, 2), rate(60, 3)]
    )
    assert trades.current(rated_pipeline(join)) == Counter({("a", 1): 1, ("a", 2): 1, ("b", 3): 1})


def test_joins_stand_one_behind_the_other(trades: Trades) -> None:
    desks = hr.json("landing/desks", {"name": str, "rate": int, "at": datetime}).event_time("at", bound="0s")
    second = hr.as_of(desks.named("desks"), {"rate": "rate"}, columns=["name"], lateness="1h", outer=True)
    pipeline = rated_pipeline(as_of(), second)
    named_rates = [{"name": "one", "rate": 1, "at": "2026-05-01T00:00:00Z"}]
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1), rate(10, 2)], desks=named_rates)
    assert trades.current(pipeline) == Counter({("a", 1, "one"): 1, ("b", 2, None): 1})
    trades.run(pipeline, desks=[{"name": "two", "rate": 2, "at": "2026-05-01T00:10:00Z"}])
    assert trades.current(pipeline) == Counter({("a", 1, "one"): 1, ("b", 2, "two"): 1})


def test_duplicates_are_told_before_they_meet_anything(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(), deduplicate=hr.Deduplicate("id", "30m"))
    rates = [rate(0, 1), rate(0, 1, ccy="eur"), rate(0, 2, ccy="eur")]
    trades.run(pipeline, trades=[trade("a", 5), trade("a", 6), trade("b", 5, ccy=None)], rates=rates)
    trades.run(pipeline, trades=[trade("a", 7), trade("b", 7), trade("c", 60)], rates=[rate(60, 3, ccy="eur")])
    trades.run(pipeline, trades=[trade("d", 10, ccy="eur"), trade("a", 60, ccy="eur")], rates=[rate(59, 2)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 1): 1, ("c", 2): 1, ("a", 3): 1})
    assert [(row["input"], row["reason"]) for row in trades.view(pipeline, "late")] == [
        ("source", "id beyond its horizon")
    ]


def test_what_is_computed_of_either_side_is_compared(trades: Trades) -> None:
    hundred = hr.json("landing/hundreds", {"hundred": int, "at": datetime}).event_time("at", bound="0s")
    second = hr.as_of(
        hundred.named("hundreds"), {col("rate") * 2**61: "hundred"}, columns=["hundred"], outer=True, lateness="1h"
    )
    first = hr.as_of(RATES, {col("ccy").lower(): col("ccy").strip()}, columns=["rate"], lateness="1h")
    pipeline = rated_pipeline(first, second)
    trades.run(
        pipeline,
        trades=[trade("a", 5, ccy="USD"), trade("b", 20, ccy="EUR"), trade("c", 20, ccy="none")],
        rates=[rate(0, 1, ccy="usd "), rate(0, 4, ccy="eur")],
        hundreds=[{"hundred": 2**61, "at": time_at(1)}],
    )
    assert trades.current(pipeline) == Counter({("a", 1, 2**61): 1})
    (letter,) = trades.view(pipeline, "rejected")
    assert (letter["input"], letter["reason"].startswith("on of as_of hundreds: ")) == ("joined rows", True)
    (met_lines, *_) = next(
        section.lines for section in pipeline_sections(pipeline) if section.heading == "join of rates"
    )
    assert met_lines.endswith("where ccy.lower() = ccy.strip() of rates")


def hourly(**options: Any) -> dict[str, Any]:
    return {
        "key": "ccy",
        "what": {"sum": (col("amount") * col("rate")).sum()},
        "where": hr.FixedWindows("1h"),
        "when": hr.on_update(),
        "how": hr.retracting("1h"),
        **options,
    }


def test_joined_rows_are_aggregated_and_corrected(trades: Trades) -> None:
    pipeline = hr.Pipeline("sums", TRADES, join=[as_of(lateness=None)], executor="local", **hourly())
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1)])
    trades.run(pipeline, rates=[rate(10, 3)])
    assert [row[1] for row in trades.current(pipeline)] == [40]


def test_each_of_several_outputs_reads_joined_rows(trades: Trades) -> None:
    outputs = {"rows": hr.Rows(["id", "rate"]), "sums": hr.Output(**hourly()), "late": hr.Rows(["rate"], of="rows")}
    pipeline = hr.Pipeline("both", TRADES, join=[as_of()], outputs=outputs, executor="local")
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 2)])
    assert trades.current(pipeline, "rows") == Counter({("a", 2): 1})
    assert [row[1] for row in trades.current(pipeline, "sums")] == [20]
    assert trades.current(pipeline, "late") == Counter({(2,): 1})


def test_an_output_has_a_join_of_its_own_beside_one_without(trades: Trades) -> None:
    outputs = {"rated": hr.Rows(["id", "rate"], join=[as_of(outer=True)]), "all": hr.Rows(["id"])}
    pipeline = hr.Pipeline("apart", TRADES, outputs=outputs, executor="local")
    assert [input_.name for input_ in pipeline.inputs] == ["source", "rates"]
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 2), {"ccy": "usd", "rate": 3}])
    assert trades.current(pipeline, "rated") == Counter({("a", 2): 1})
    assert trades.current(pipeline, "all") == Counter({("a",): 1})


def test_what_is_late_for_a_join_says_which_side_it_is_of(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(max_age="5m", lateness="0s"))
    trades.run(pipeline, trades=[trade("a", 90)], rates=[rate(90, 1)])
    trades.run(pipeline, trades=[trade("old", 10)], rates=[rate(10, 7), rate(86, 8)])
    late = {(row["input"], row["reason"]) for row in trades.view(pipeline, "late")}
    assert late == {("source", "too late for the join"), ("rates", "too late for the join")}
    assert trades.current(pipeline) == Counter({("a", 1): 1})


def test_records_that_no_side_can_take_are_dead_letters(trades: Trades) -> None:
    doubled_join = hr.as_of(RATES, "ccy", columns={"double": col("rate") * 2}, lateness="1h")
    pipeline = rated_pipeline(doubled_join, rows={"id": col("id"), "most": col("double") * 2**60})
    wrong = {"ccy": "usd", "rate": 2**62, "at": "2026-05-01T00:01:00Z"}
    trades.run(pipeline, trades=[trade("a", 5), {"id": "b"}], rates=[rate(0, 4), wrong])
    letters = sorted((row["input"], row["reason"]) for row in trades.view(pipeline, "rejected"))
    assert [name for name, _ in letters] == ["joined rows", "rates", "source"]
    assert letters[2] == ("source", "event time is null")
    assert not trades.current(pipeline)


def test_what_a_pipeline_publishes_is_a_table_that_can_be_taken_back(trades: Trades) -> None:
    cleaned_pipeline = hr.Pipeline("cleaned", replace(RATES, name="source"), rows=["ccy", "rate"], executor="local")
    upstream = hr.published("cleaned", cleaned_pipeline).named("rates")
    pipeline = rated_pipeline(as_of(right=upstream))
    trades.land("rates", rate(0, 1))
    trades.handle(cleaned_pipeline).run()
    first = trades.handle(cleaned_pipeline).catalog.head().refs["published"]
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 1): 1})
    trades.land("rates", rate(10, 2), rate(50, 3, ccy="eur"))
    trades.handle(cleaned_pipeline).run()
    trades.run(pipeline)
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 2): 1})
    forgets = rated_pipeline(as_of(right=upstream, lateness="0s", history="0s"), name="forgets")
    trades.run(forgets, trades=[trade("c", 60)])
    trades.handle(cleaned_pipeline).rollback(to=first)
    trades.run(pipeline)
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 1): 1, ("c", 1): 1})
    with pytest.raises(HeadraceError, match="backfill forgets"):  # it would go on with what was taken back
        trades.run(forgets, trades=[trade("d", 90)])


def test_a_replay_and_a_batch_give_the_same_rows(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of())
    for minute in range(0, 40, 10):
        trades.run(pipeline, trades=[trade(f"t{minute}", minute)], rates=[rate(minute - 5, minute)] if minute else [])
    stands = trades.current(pipeline)
    trades.handle(pipeline).backfill(promote=True)
    assert trades.current(pipeline) == stands == Counter({(f"t{minute}", minute): 1 for minute in (10, 20, 30)})


def test_state_does_not_grow_with_what_can_change_nothing_any_more(trades: Trades) -> None:
    pipeline = rated_pipeline(as_of(lateness="0s", max_age="15m"))
    rows = []
    for minute in range(0, 120, 10):
        trades.run(pipeline, trades=[trade("a", minute)], rates=[rate(minute, minute)])
        catalog = Catalog(open_store(trades.root), pipeline.name)
        tables = catalog.manifest(catalog.head().refs[MAIN]).tables
        rows.append({name: sum(layer.rows for layer in tables.get(name, ())) for name in ("joinleft", "joinright")})
    assert rows[-1]["joinleft"] <= 1
    assert rows[-1] == rows[5]


@pytest.mark.parametrize("window", [hr.FixedWindows("1h"), hr.CalendarWindows("day")])
def test_what_a_window_join_takes_late_is_not_late_behind_it(trades: Trades, window: hr.WindowFn) -> None:
    join = hr.same_window(RATES, "ccy", window=window, columns=["rate"])
    parts = hourly(what={"n": hr.count()}, where=hr.FixedWindows("1m"), how=hr.retracting("30m"))
    pipeline = hr.Pipeline("behind", TRADES, join=[join], executor="local", **parts)
    day = 24 * 60
    trades.run(pipeline, trades=[trade("a", day + 10)], rates=[rate(day - 55, 1), rate(day + 10, 1)])
    trades.run(pipeline, trades=[trade("b", day - 55)])  # its window ended ten minutes ago
    trades.run(pipeline, trades=[trade("c", day + 45)], rates=[rate(day + 45, 1)])
    trades.run(pipeline, trades=[trade("late", day - 55)])
    stands = trades.view(pipeline, "current")
    assert [pane["n"] for pane in stands if pane["window_start"].day == 1] == [1]
    assert [row["reason"] for row in trades.view(pipeline, "late")] == ["too late for the join"]


def test_the_watermark_behind_a_window_join_is_no_further_than_what_it_takes() -> None:
    dice = random.Random(1)
    for _ in range(2_000):
        size, lateness = dice.randrange(1, 12), dice.choice([0, 3, 7, 25])
        definition = hr.same_window(RATES, "ccy", window=hr.FixedWindows(f"{size}us"), columns=["rate"])
        join = CompiledJoin(0, definition, {"ccy": DataType.STRING}, Duration(lateness), False)
        begin = 1_700_000_000_000_000
        watermark, expected_watermark = (Instant(begin + dice.randrange(200)) for _ in range(2))
        delayed_watermark, least, times = (
            join.delayed_watermark(watermark),
            join.awaited_watermark(expected_watermark),
            np.arange(begin - 100, begin + 400),
        )
        assert delayed_watermark <= join.delayed_watermark(Instant(watermark + 1))
        assert join.delayed_watermark(Instant(least - 1)) < expected_watermark <= join.delayed_watermark(least)
        assert (times[~join.late_mask(join.left_completion(times), watermark)] + lateness >= delayed_watermark).all()
        assert (times[join.left_completion(times) >= watermark] >= delayed_watermark).all()


def test_nothing_is_late_for_a_join_of_calendar_windows_for_ages(trades: Trades) -> None:
    ages = "1500000d"
    join = hr.same_window(RATES, "ccy", window=hr.CalendarWindows("month"), columns=["rate"], lateness=ages)
    parts = hourly(where=hr.GlobalWindows(), what={"n": hr.count()}, how=hr.retracting(ages))
    pipeline = hr.Pipeline("ages", TRADES, join=[join], executor="local", **parts)
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 1)])
    trades.run(pipeline, trades=[trade("b", 1)])
    assert trades.current(pipeline) == Counter({("usd", 2): 1})


@pytest.mark.parametrize("executor", ["local", "reference"])
@pytest.mark.parametrize("window", [hr.CalendarWindows("day"), hr.CalendarWindows("month", count=24)])
def test_a_window_join_waits_at_the_last_instant_of_the_years_too(window: hr.WindowFn, executor: Any) -> None:
    """A date as far ahead as can be moves the watermark there; its window has not passed yet."""
    schema = {"key": str, "at": datetime, "x": int}
    left, right = (hr.json(name, schema).event_time("at", bound="0s", max_ahead=None) for name in ("left", "right"))
    counts = hr.Pipeline(
        "counts",
        left,
        join=[hr.same_window(right.named("right"), "key", window=window, columns={"y": "x"}, outer=True)],
        key="key",
        what={"n": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting(),
    )
    last_record = {"key": "a", "at": "9998-12-31T23:59:59.999999Z"}
    rows, run = hr.testing.rows, hr.testing.run
    first_step = hr.testing.together(rows(last_record), rows(last_record, of="right"))
    result = run(counts, [first_step, rows({"key": "b", "at": "9998-12-31T10:00:00Z"})], executor=executor)
    assert [(pane.key["key"], pane["n"]) for pane in result.panes] == [("a", 1), ("b", 1)]
    assert result.late == []


def test_layers_of_a_later_join_stay_as_long_as_an_earlier_one_waits(trades: Trades) -> None:
    visits = hr.json("landing/visits", {"ccy": str, "visit": int, "at": datetime}).event_time("at", bound="0s")
    join_within = hr.within(visits.named("visits"), "ccy", between=("0s", "1h"), columns=["visit"], outer=True)
    pipeline = rated_pipeline(join_within, as_of(max_age="10m", lateness="0s"), rows=["id", "rate"])
    for minute in (100, 120, 150):
        visit = {"ccy": "none", "visit": 1, "at": time_at(minute)}
        trades.run(pipeline, trades=[trade("none", minute, ccy="none")], rates=[rate(minute, minute)], visits=[visit])
    trades.run(pipeline, trades=[trade("a", 105)])
    assert trades.current(pipeline)["a", 100] == 1


def test_merges_keep_the_version_that_a_later_join_may_ask_for(trades: Trades) -> None:
    visits = hr.json("landing/visits", {"ccy": str, "visit": int, "at": datetime}).event_time("at", bound="0s")
    join_within = hr.within(visits.named("visits"), "ccy", between=("0s", "1h"), columns=["visit"], outer=True)
    rates = as_of(right=SIGNED_RATES, lateness="0s", history="20m")
    outputs = {"plain": hr.Rows(["id"]), "rated": hr.Rows(["id", "rate"], join=[join_within, rates])}
    pipeline = hr.Pipeline("merged", TRADES, outputs=outputs, executor="local")
    versions = {minute: rate(minute, minute, sign=1) for minute in range(0, 10 * (FANOUT.value + 2), 10)}
    for minute, version in versions.items():
        visit = {"ccy": "none", "visit": 1, "at": time_at(minute)}
        trades.run(pipeline, trades=[trade("none", minute, ccy="none")], rates=[version], visits=[visit])
    trades.run(pipeline, trades=[trade("a", 125)])  # 45 minutes behind, and on time: it may meet a visit yet
    assert trades.current(pipeline, "rated")["a", 120] == 1
    catalog = Catalog(open_store(trades.root), pipeline.name)
    layers = catalog.manifest(catalog.head().refs[MAIN]).tables[OutputTables("rated").join_right(1)]
    assert sum(layer.rows for layer in layers) < FANOUT.value  # what is hidden for 20 minutes is let go
    trades.run(pipeline, rates=[{**versions[minute], "sign": -1} for minute in (120, 110, 80)])
    assert trades.current(pipeline, "rated")["a", 100] == 1
    late = trades.handle(pipeline)["rated"].late().to_arrow().to_pylist()
    assert [row["reason"] for row in late] == ["withdrawal: too late for the join"]


def test_a_changed_join_is_a_changed_pipeline(trades: Trades) -> None:
    trades.run(rated_pipeline(as_of()), trades=[trade("a", 5)], rates=[rate(0, 1)])
    with pytest.raises(ChangedPipelineError):
        trades.run(rated_pipeline(as_of(max_age="1h")))


@set_sizes(task_bytes=1, join_part_bytes=256)
def test_a_key_that_is_spread_meets_the_same_in_any_number_of_tasks(
    trades: Trades, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, options = random.Random(4), {"right": SIGNED_RATES, "order": "seq", "outer": True, "lateness": "1d"}
    plain, spread = (replace(rated_pipeline(as_of(**options, spread=n)), name=f"over{n}") for n in (1, 5))
    rates: list[dict[str, Any]] = []
    for run, tasks in enumerate(("1", "3", "2")):
        monkeypatch.setenv("HEADRACE_TASKS", tasks)
        new = [rate(rng.randrange(90), rng.randrange(9), seq=number, sign=1) for number in range(4)]
        withdrawn_rates = [{**rates.pop(rng.randrange(len(rates))), "sign": -1}] if rates else []
        rates += new
        new_trades = [trade(f"{run}-{number}", rng.randrange(90)) for number in range(20)]
        trades.run(plain, trades=new_trades, rates=new + withdrawn_rates)
        trades.run(spread)
        assert trades.current(spread) == trades.current(plain)
    assert {met_rows for _, met_rows in trades.current(plain)} > {None}
    trades.handle(spread).backfill(promote=True)
    assert trades.current(spread) == trades.current(plain)
    with pytest.raises(ChangedPipelineError, match="spread of the join with rates"):
        trades.run(replace(rated_pipeline(as_of(**options, spread=2)), name="over5"))


def test_an_epoch_without_rows_asks_for_nothing_and_stores_nothing(trades: Trades) -> None:
    pipelines = rated_pipeline(as_of()), replace(rated_pipeline(), name="alone")
    trades.land("rates", rate(0, 1))
    trades.land("trades", trade("a", 5))
    for pipeline in pipelines:
        trades.run(pipeline)
    empty = 6
    for _ in range(empty):
        trades.land("trades")
    last, requests = [], []
    for pipeline in pipelines:
        trades.handle(pipeline).run(files_per_epoch=1)
        catalog = Catalog(open_store(trades.root), pipeline.name)
        line = [*catalog.ancestry(catalog.head().refs[MAIN])][:empty]
        last.append(line[0])
        requests.append(sum(sum(manifest.requests.values()) for manifest in line))
        assert not [*trades.folder.glob(f"{pipeline.name}/data/{last[-1].epoch:08}-*/*")]
    # the first epoch of a run looks for the files of state, which restores them; an epoch asks for no more than that
    assert abs(requests[0] - requests[1]) < empty
    assert {layer.last_epoch for layer in last[0].tables["joinright"]} == {0}


def joined_trades(*joins: Any, **options: Any) -> hr.Pipeline:
    return rated_pipeline(*joins, **{"rows": ["id"], **options})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.as_of(replace(RATES, name="source"), "ccy"), 'write .named("rates") after it'),
        (lambda: joined_trades(hr.as_of(RATES, "ccy", columns=["ccy"])), "too;"),
        (lambda: as_of(spread=0), "write a number from 1 to 1024"),
        (lambda: joined_trades(hr.as_of(RATES, "cy")), "the left side has no column 'cy'"),
        (lambda: joined_trades(hr.as_of(RATES, {"ccy": "cy"})), "'cy'"),
        (lambda: joined_trades(hr.as_of(RATES, {col("cy").lower(): "ccy"})), "'cy'"),
        (lambda: joined_trades(hr.as_of(RATES, {col("amount") % 3: "ccy"})), "'(amount % 3)' is int on the left"),
        (lambda: hr.as_of(RATES, {"ccy": "ccy", col("ccy"): "ccy"}), "two conditions of one column"),
        (lambda: joined_trades(hr.as_of(RATES, {"id": "rate"})), "both are of one type"),
        (lambda: hr.as_of(RATES, "ccy", max_age="-1h"), "must not be negative"),
        (lambda: hr.as_of(RATES, []), "write"),
        (lambda: hr.as_of(TRADE, "ccy"), "or the name of an output"),  # type: ignore[arg-type]
        (lambda: hr.as_of(RATES, "ccy", history="1d"), "none of its records can be withdrawn"),
        (lambda: as_of(right=SIGNED_RATES, history="1d", max_age="1d"), "max_age= bounds"),
        (lambda: hr.as_of(RATES, "ccy", deleted=True), "not an expression"),
        (lambda: joined_trades(as_of(deleted=col("rate"))), "must be bool"),
        (lambda: joined_trades(as_of(right=SIGNED_RATES, columns=["sign"])), "in which a withdrawal differs"),
        (lambda: hr.within(RATES, "ccy", between=("1h", "0s")), "it ends before it begins"),
        (lambda: hr.within(RATES, "ccy", between="1h"), "write two lengths of time"),
        (lambda: hr.same_window(RATES, "ccy", window=hr.Sessions("1h")), "write FixedWindows"),
        (lambda: joined_trades(as_of(), as_of()), "two joins are of input rates"),
        (
            lambda: joined_trades(as_of(right=replace(RATES, **vars(RATES.source.arrival_time().named("rates"))))),
            "arrival",
        ),
        (
            lambda: hr.Pipeline("sums", TRADES, join=[as_of()], **hourly(how=hr.accumulating())),
            "use how=retracting",
        ),
        (lambda: hr.Pipeline("sums", TRADES, join=[as_of()], **hourly(where=hr.Sessions("1h"))), "never split"),
        (
            lambda: hr.Pipeline(
                "sums",
                TRADES,
                join=[hr.within(RATES, "ccy", between=("0s", "1h"), columns=["rate"])],
                **hourly(how=hr.retracting(keep_last=3)),
            ),
            "joined rows have none",
        ),
        (lambda: hr.Pipeline("p", TRADES, join=["rates"], rows=["id"]), "as_of(rates"),
        (lambda: hr.Rows(["rate"], of="rows", join=[as_of()]), "hr.published(...), and join there"),
        (
            lambda: hr.Pipeline(
                "p",
                TRADES,
                outputs={
                    "one": hr.Rows(["id"], join=[as_of()]),
                    "two": hr.Rows(["id"], join=[as_of(right=SIGNED_RATES)]),
                },
            ),
            "two joins have other inputs of this name",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_write(make: Any, says: str) -> None:
    with pytest.raises(PipelineError) as error:
        make()
    assert says in str(error.value)


def test_versions_that_are_kept_for_good_are_a_note() -> None:
    assert any("all are kept for good" in note for note in pipeline_notes(rated_pipeline(as_of(right=SIGNED_RATES))))
    assert not any(
        "for good" in note for note in pipeline_notes(rated_pipeline(as_of(right=SIGNED_RATES, history="1d")))
    )


def test_what_may_fall_silent_is_a_note_with_what_to_write() -> None:
    found_notes = [note for note in pipeline_notes(rated_pipeline(as_of())) if "idle" in note]
    assert [note.split(" has")[0] for note in found_notes] == ["input source", "input rates"]
    assert 'idle="10m") before .named("rates")' in found_notes[1]
    published_rates = hr.published("quotes", {"ccy": str, "rate": int}).named("rates")
    assert not any(
        "input rates" in note for note in pipeline_notes(rated_pipeline(as_of(right=published_rates)))
    )  # it has its own clock


def test_a_drawing_shows_joins() -> None:
    assert "join the last version of rates that is not later" in "\n".join(draw_graph(rated_pipeline(as_of())))
