"""Lookups: rows meet what had come when they were read, once and for good; a replay and a backfill repeat it."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.describe.pipeline import pipeline_notes, pipeline_sections
from headrace.errors import PipelineError
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.relanding import LandingAgainError
from headrace.testing import processing_time, rows, run, together
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import Keep, expire
from headrace_snapshots.format.files import FANOUT
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.joins.trades import RATE, RATES, SIGNED_RATES, TRADE, TRADES, Trades, as_of, rate, rated_pipeline, trade
from tests.joins.trades import time_at as minute

ARRIVING = hr.json("landing/rates", RATE).arrival_time().named("rates")
CHANGES = hr.json("landing/trades", {**TRADE, "sign": int}, changelog=col("sign")).event_time("at", bound="0s")


def lookup(**options: Any) -> hr.types.Join:
    """The rate that was known."""
    return hr.lookup(options.pop("right", ARRIVING), "ccy", **{"columns": ["rate"], "lateness": "1h", **options})


@pytest.fixture
def trades(tmp_path: Path) -> Trades:
    return Trades(tmp_path)


def test_a_row_meets_what_came_last_whatever_event_times_say_and_keeps_it(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup(outer=True))
    trades.run(pipeline, trades=[trade("early", 5)])
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(600, 1)])
    trades.run(pipeline, rates=[rate(0, 0)])
    trades.run(pipeline, trades=[trade("b", 20), trade("none", 20, ccy=None)])
    assert trades.current(pipeline) == Counter({("early", None): 1, ("a", 1): 1, ("b", 0): 1, ("none", None): 1})
    assert not any(row["is_retraction"] for row in trades.view(pipeline, "panes"))


def test_of_versions_of_one_epoch_the_greatest_by_order_counts_and_a_deleted_one_ends_it(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup(order="seq", deleted=col("gone")))
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 1, seq=2), rate(0, 9, seq=1)])
    trades.run(pipeline, trades=[trade("b", 6)], rates=[rate(0, 3, seq=1)])
    trades.run(pipeline, trades=[trade("c", 7)], rates=[rate(0, 3, seq=0, gone=True)])
    trades.run(pipeline, trades=[trade("d", 8)], rates=[rate(0, 4)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 3): 1, ("d", 4): 1})


def test_a_late_row_is_late_by_its_own_time_and_a_version_never(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup(lateness="10m"))
    trades.run(pipeline, trades=[trade("a", 60)], rates=[rate(60, 1)])
    trades.run(pipeline, trades=[trade("b", 50), trade("late", 49)], rates=[rate(0, 2)])
    assert trades.current(pipeline) == Counter({("a", 1): 1, ("b", 2): 1})
    (late,) = trades.view(pipeline, "late")
    assert (late["input"], late["reason"]) == ("source", "too late for the join")


def test_late_rows_do_not_land_where_they_would_meet_others(trades: Trades) -> None:
    pipeline, longer = rated_pipeline(lookup(lateness="10m")), rated_pipeline(lookup(lateness="1d"))
    trades.run(pipeline, trades=[trade("a", 600)], rates=[rate(600, 1)])
    trades.run(pipeline, trades=[trade("late", 5)], rates=[rate(0, 2)])
    with pytest.raises(LandingAgainError, match=r"rated looks up rates.*longer lateness="):
        trades.handle(pipeline).replay_late()
    with pytest.raises(LandingAgainError, match="a join, and what its late records would meet does not land with them"):
        trades.handle(rated_pipeline(as_of())).replay_late()
    trades.handle(longer).backfill(promote=True)
    assert trades.current(longer) == Counter({("a", 1): 1, ("late", 2): 1})


def test_what_is_aggregated_behind_it_is_never_withdrawn(trades: Trades) -> None:
    how = {"where": hr.Sessions("1h"), "what": {"sum": (col("amount") * col("rate")).sum()}, "executor": "local"}
    pipeline = hr.Pipeline("sums", TRADES, join=[lookup(lateness=None)], key="ccy", how=hr.accumulating("1h"), **how)  # type: ignore[arg-type]
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 2)])
    trades.run(pipeline, trades=[trade("b", 30), trade("c", 300)], rates=[rate(0, 3)])
    assert [(row["sum"], row["ccy"]) for row in trades.view(pipeline, "current")] == [(50, "usd")]


def test_no_left_row_is_kept_and_of_each_key_the_newest_version(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup(lateness=None), name="kept", rows=["id", "rate"])
    for number in range(FANOUT.value + 2):
        trades.run(pipeline, trades=[trade("a", number)], rates=[rate(0, number), rate(0, number, ccy="eur")])
    catalog = Catalog(open_store(trades.root), pipeline.name)
    tables = catalog.manifest(catalog.head().refs[MAIN]).tables
    rows = {name: sum(layer.rows for layer in tables.get(name, ())) for name in ("joinleft", "joinright")}
    assert rows["joinleft"] == 0
    assert rows["joinright"] <= 6


def test_it_says_what_it_does(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup(order="seq", outer=True), id="id")
    (lines,) = (section.lines for section in pipeline_sections(pipeline) if section.heading == "join of rates")
    assert lines[0] == (
        "each row meets the version of rates that came last, in the same epoch or before, of several in one epoch "
        "that with the greatest seq, where ccy = ccy of rates"
    )
    assert (
        lines[-1]
        == "a row that comes late is still joined, until 1h behind the watermark; what left is never corrected"
    )
    assert not any("input rates" in note for note in pipeline_notes(pipeline))  # whose clock goes on by itself
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 1)])
    text = str(trades.handle(pipeline).explain("a"))
    assert "  keeps no rows: what each met when it was read stands for good" in text
    assert trades.handle(pipeline).explain("a").to_json()["joins"][0]["rows"] == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lookup(right=RATES), "write .arrival_time() in place of .event_time(...)"),
        (lambda: lookup(right="rates"), "as_of(...) joins them by their times"),
        (lambda: rated_pipeline(as_of(right=ARRIVING)), "or take lookup(...)"),
        (lambda: rated_pipeline(lookup(), input=CHANGES), "records of input source can be withdrawn"),
        (
            lambda: rated_pipeline(as_of(right=RATES.named("other"), columns={"other": "rate"}), lookup()),
            "rows of as_of of other can be withdrawn, and lookup of rates keeps no row",
        ),
        (
            lambda: rated_pipeline(
                hr.within(
                    SIGNED_RATES.named("other"), "ccy", between=("0s", "1h"), columns={"other": "rate"}, lateness="0s"
                ),
                lookup(),
            ),
            "rows of within of other can be withdrawn",
        ),
        (
            lambda: rated_pipeline(lookup(right=SIGNED_RATES.source.arrival_time().named("rates"))),
            "records of rates can be withdrawn, and go by the time of arrival",
        ),
    ],
)
def test_what_cannot_be_looked_up_is_refused_with_what_to_write(make: Any, says: str) -> None:
    with pytest.raises(PipelineError) as error:
        make()
    assert says in str(error.value)


def test_a_batch_and_a_clock_of_its_own_are_refused_before_anything_moves(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup())
    trades.land("trades", trade("a", 5))
    trades.land("rates", rate(0, 1))
    handle = trades.handle(pipeline)
    for options in ({"mode": "batch"}, {"mode": "batch", "branch": "other"}):
        with pytest.raises(RunOptionsError, match="rated looks up rates: each row meets what had come when main read"):
            handle.run(**options)
    with pytest.raises(RunOptionsError, match="a clock of its own"):
        handle.run(mode="replay", branch="other", clock="2026-05-01T00:00:00Z", clock_step="1h")
    assert handle.catalog.head().entry < 0


def test_it_can_stand_before_other_joins_and_behind_those_that_withdraw_nothing(trades: Trades) -> None:
    more = hr.json("landing/more", RATE).event_time("at", bound="0s").named("more")
    near_rows = hr.within(more, "ccy", between=("0s", "1h"), columns={"near": "rate"}, lateness="1h")
    held_versions = hr.as_of(
        more.source.event_time("at", bound="0s").named("held"), "ccy", columns={"held": "rate"}, outer=True
    )
    pipeline = rated_pipeline(near_rows, lookup(), held_versions)
    trades.run(pipeline, trades=[trade("a", 5)], rates=[rate(0, 1)], held=[])
    trades.land("more", rate(10, 7))
    trades.run(pipeline, rates=[rate(0, 2)])  # the row of the first join comes to the lookup now
    trades.land("more", rate(20, 8), rate(3, 9))
    trades.run(pipeline, rates=[rate(0, 3)])
    assert trades.current(pipeline) == Counter({("a", 7, 2, 9): 1, ("a", 8, 3, 9): 1})


@dataclass
class History:
    """What has come by random runs of two pipelines, and what each row has met by then."""

    trades: Trades
    dice: random.Random
    pipeline: hr.Pipeline
    known_prices: dict[str, int | None] = field(default_factory=dict)
    met_counts: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    epochs: int = 0

    def land(self) -> None:
        """One file of each side, or of one, which are read in one epoch."""
        rates = [rate(self.dice.randrange(90), self.dice.randrange(5), self.dice.choice("xyz"), seq=number,
                      gone=self.dice.random() < 0.2) for number in range(self.dice.randrange(4))]  # fmt: skip
        for version in rates:
            self.known_prices[version["ccy"]] = None if version["gone"] else version["rate"]
        ids = [(f"{self.epochs}-{number}", self.dice.choice("xyz")) for number in range(self.dice.randrange(4))]
        for name, ccy in ids:
            self.met_counts[name, self.known_prices.get(ccy)] += 1
        self.trades.land("rates", *rates)
        self.trades.land("trades", *(trade(name, self.dice.randrange(90), ccy) for name, ccy in ids))
        self.epochs += 1

    def run(self) -> None:
        """In epochs of one file of each side."""
        self.trades.handle(self.pipeline).run(files_per_epoch=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_a_backfill_and_a_range_repeat_what_each_row_met(trades: Trades, seed: int) -> None:
    looked_up = lookup(order="seq", deleted=col("gone"), outer=True, lateness="30d", spread=1 + 2 * (seed % 2))
    history = History(trades, random.Random(seed), rated_pipeline(looked_up))
    for folder in ("rates", "trades"):
        (trades.folder / "landing" / folder).mkdir(parents=True)
    for _ in range(6):
        for _ in range(history.dice.randrange(1, 3)):
            history.land()
        history.run()
        assert trades.current(history.pipeline) == history.met_counts
    handle = trades.handle(history.pipeline)
    handle.run(mode="replay", branch="again")
    handle.backfill(branch="whole")
    handle.backfill(branch="range", start=minute(60))
    for branch in ("again", "whole", "range"):
        difference = handle.diff(MAIN, branch).output.rows.to_json()
        assert [difference[what] for what in ("added", "removed", "changed")] == [0, 0, 0], branch
    handle.backfill(promote=True)
    assert trades.current(history.pipeline) == history.met_counts


def test_a_range_goes_on_from_the_versions_that_main_held_then(trades: Trades) -> None:
    pipeline, now = rated_pipeline(lookup(outer=True, lateness="30d")), datetime.now(UTC)
    for number in range(4):
        when = (now + timedelta(hours=number)).isoformat()
        rates = [rate(0, number, ccy="usd")] if number < 2 else []
        trades.run(pipeline, trades=[{**trade(str(number), 0), "at": when}], rates=rates)
    handle, stands = trades.handle(pipeline), trades.current(pipeline)
    handle.backfill(branch="range", start=(now + timedelta(minutes=90)).isoformat())
    refs = handle.catalog.head().refs
    fork = handle.catalog.common_ancestor(refs[MAIN], refs["range"])
    assert fork is not None
    assert fork.epoch == 1
    handle.promote("range")
    assert trades.current(pipeline) == stands == Counter({("0", 0): 1, ("1", 1): 1, ("2", 1): 1, ("3", 1): 1})


def test_a_parked_output_that_catches_up_meets_what_was_known_then(trades: Trades) -> None:
    outputs = {"rated": hr.Rows(["id", "rate"], join=[lookup(outer=True)]), "plain": hr.Rows(["id"])}
    pipeline = hr.Pipeline("rated", TRADES, outputs=outputs, executor="local")
    for folder in ("rates", "trades"):
        (trades.folder / "landing" / folder).mkdir(parents=True)
    for number in range(4):
        trades.land("rates", rate(0, 9 - number))
        trades.land("trades", trade(str(number), number))
        trades.handle(pipeline).run(without=["rated"] if number in (1, 2) else [])
    assert trades.current(pipeline, "rated") == Counter({(str(number), 9 - number): 1 for number in range(4)})


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_users_tests_give_rows_that_are_looked_up(executor: str) -> None:
    steps = [
        rows(trade("a", 5)),
        processing_time("2026-05-01T12:00:00Z"),
        together(rows(trade("b", 5)), rows(rate(0, 1), of="rates")),
        processing_time("2026-05-01T13:00:00Z"),
        rows(rate(3, 2), of="rates"),
        rows(trade("c", 5)),
    ]
    result = run(rated_pipeline(lookup(outer=True)), steps, executor=executor)
    assert [(row["id"], row["rate"]) for row in result.panes] == [("a", None), ("b", 1), ("c", 2)]


def test_a_mended_file_is_read_again_in_the_epoch_that_read_it(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup())
    for number in range(3):
        trades.run(pipeline, trades=[trade(str(number), number)], rates=[rate(0, number)])
    version: Mapping[str, Any] = rate(0, 7)
    (trades.folder / "landing" / "rates" / "0001.json").write_text(json.dumps(version) + "\n")
    trades.handle(pipeline).backfill(promote=True)
    assert trades.current(pipeline) == Counter({("0", 0): 1, ("1", 7): 1, ("2", 2): 1})


def test_where_epochs_have_expired_a_backfill_repeats_them_by_their_files(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup())
    for number in range(5):
        trades.run(pipeline, trades=[trade(str(number), number)], rates=[rate(0, 9 - number)])
    stands, handle = trades.current(pipeline), trades.handle(pipeline)
    for _ in range(2):  # what the first one marks the second one deletes
        expire(handle.catalog, Keep(2), datetime.max.replace(tzinfo=UTC))
    catalog = Catalog(open_store(trades.root), pipeline.name)
    assert len([*catalog.ancestry(catalog.head().refs[MAIN], until=None)]) < 5
    handle.backfill(promote=True)
    assert trades.current(pipeline) == stands == Counter({(str(number), 9 - number): 1 for number in range(5)})


def test_where_the_clock_stands_still_the_version_of_the_last_epoch_counts(trades: Trades) -> None:
    steps = [together(rows(trade(str(number), 5)), rows(rate(0, 9 - number), of="rates")) for number in range(3)]
    for executor in ("local", "reference"):
        result = run(rated_pipeline(lookup()), [*steps, rows(trade("last", 5))], executor=executor)
        assert [(row["id"], row["rate"]) for row in result.panes] == [("0", 9), ("1", 8), ("2", 7), ("last", 7)]


def test_what_a_snapshot_that_is_broken_had_read_meets_what_it_had_met(trades: Trades) -> None:
    pipeline = rated_pipeline(lookup())
    for folder in ("rates", "trades"):
        (trades.folder / "landing" / folder).mkdir(parents=True)
    for number in range(3):
        trades.land("rates", rate(0, 9 - number))
        trades.land("trades", trade(str(number), number))
        trades.handle(pipeline).run(publish=False)
    catalog = trades.handle(pipeline).catalog
    head = catalog.manifest(catalog.head().refs[MAIN])
    for layer in head.tables["joinright"][-2:]:
        for file in layer.files:
            (broken_path,) = trades.folder.rglob(file.path.rpartition("/")[2])
            broken_path.unlink()
    (warning,) = trades.run(pipeline, trades=[trade("new", 4)], rates=[rate(0, 5)]).warnings
    assert "what came after is read again" in warning
    assert trades.current(pipeline) == Counter({("0", 9): 1, ("1", 8): 1, ("2", 7): 1, ("new", 5): 1})
