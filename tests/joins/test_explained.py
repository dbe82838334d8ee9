"""What is said of joined rows: what they met, for what they wait, and who holds them back."""

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.read import joined_rows
from headrace.read.open_windows import StateDefinitionError
from headrace.read.views.arrow_types import ExplainError
from headrace.state.chunks import KeyGroupRange
from headrace.state.layers import some_of
from headrace_lab.sizes import set_sizes
from tests.joins.trades import RATE, RATES, TRADE, TRADES, Trades, as_of, rate, rated_pipeline, trade
from tests.joins.trades import time_at as minute

pytestmark = pytest.mark.slow  # whole runs

NEWS = hr.json("landing/news", RATE).event_time("at", bound="0s").named("news")
NEXT_NEWS = hr.within(NEWS, "ccy", between=("0s", "30m"), columns={"next": "rate"}, outer=True, lateness="1h")


def test_joined_rows_say_what_they_met_and_until_when_that_may_change(tmp_path: Path) -> None:
    trades, pipeline = Trades(tmp_path), rated_pipeline(as_of(max_age="20m"), NEXT_NEWS, id="id")
    trades.run(pipeline, trades=[trade("a", 5), trade("c", 40)], rates=[rate(0, 1), rate(30, 2)])
    explanation = str(trades.handle(pipeline).explain("a")).splitlines()
    row = f"id = a, ccy = usd, amount = 10, at = {'2026-05-01 00:05:00+00:00'}"
    assert explanation[0].endswith("(epoch 0), joined rows: id = a")
    assert explanation[1] == "the watermark stands at -inf, held back by input 'news'"
    assert explanation[4:] == [
        "as_of rates: its watermark stands at -inf, held back by input 'news'",
        f"  row of {minute(5)}: {row}",
        f"    meets the row of rates of {minute(0)}: rate = 1",
        f"    waits for rates until the watermark is above {minute(5)}: what comes on time may still change what it "
        f"meets; rates is at {minute(30)}",
        "",
        "within news: its watermark stands at -inf, held back by input 'news'",
        "  news has given no event time yet. All that waits for the watermark waits for it, until it does or is idle "
        "(idle= of its event_time)",
        f"  row of {minute(5)}: {row}, rate = 1",
        "    meets nothing, so it leaves with NULLs",
        f"    waits for news until the watermark is above {minute(35)}: what comes on time may still change what it "
        "meets; news has given no event time yet",
    ]
    trades.run(pipeline, news=[rate(41, 7), rate(80, 1)], rates=[rate(200, 1)], trades=[trade("e", 210)])
    rates, news = trades.handle(pipeline).explain({"ccy": "usd"}).joins
    assert [(row.values["id"], [partner.values for partner in row.partners]) for row in rates.rows or ()] == [
        ("c", [{"rate": 2}]),
        ("e", [{"rate": 1}]),
    ]  # fmt: skip - a stands for good
    (of_c,) = trades.handle(pipeline).explain(window=minute(40)).to_json()["joins"][1]["rows"]
    assert of_c["partners"] == [{"event_time": minute(41), "values": {"next": 7}}]
    words = [[*row.lines(news)][-1] for row in news.rows or ()]
    assert [word.split(":")[0].strip() for word in words[1:]] == [
        "waits for nothing on time; what comes late still changes what it meets, until the watermark is above "
        "2026-05-01T02",
        "waits for news until the watermark is above 2026-05-01T04",
    ]
    with pytest.raises(ExplainError, match="they have id, ccy, amount, at"):
        trades.handle(pipeline).explain({"rate": 1})
    with pytest.raises(StateDefinitionError, match="headrace explain"):
        trades.handle(pipeline).state()


def test_a_row_that_is_withdrawn_in_the_epoch_in_which_it_comes_to_stand_for_good_is_not_shown(tmp_path: Path) -> None:
    trades, changes = Trades(tmp_path), {**TRADE, "sign": int}
    trade_changes = hr.json("landing/trades", changes, changelog=col("sign")).event_time("at", bound="0s")
    pipeline = rated_pipeline(as_of(max_age="20m", lateness="10m"), input=trade_changes, id="id")
    trades.run(pipeline, trades=[trade("a", 5, sign=1), trade("b", 90, sign=1)], rates=[rate(0, 1)])
    (row,) = trades.handle(pipeline).explain("a").joins[0].rows or ()
    assert row.values["id"] == "a"
    trades.run(pipeline, trades=[trade("a", 5, sign=-1)], rates=[rate(90, 2)])
    assert trades.current(pipeline) == {("b", 2): 1}
    (join,) = trades.handle(pipeline).explain("a").joins
    assert not join.rows
    assert [*join.lines()][-1] == "  keeps no such row: none came in time, or what it met stands for good"


def test_windows_behind_a_join_say_which_rows_it_keeps_of_their_key(tmp_path: Path) -> None:
    trades = Trades(tmp_path)
    what = {"where": hr.FixedWindows("1h"), "what": {"n": hr.count()}, "how": hr.retracting("1h"), "executor": "local"}
    pipeline = hr.Pipeline("sums", TRADES, join=[as_of(lateness=None)], key="ccy", **what)  # type: ignore[arg-type]
    landed_trades = [trade("a", 5), trade("b", 65), trade("e", 65, "eur")]
    trades.run(pipeline, trades=landed_trades, rates=[rate(0, 1), rate(0, 1, "eur")])
    (join,) = trades.handle(pipeline).explain("usd", window=minute(70)).joins
    assert [row.values["id"] for row in join.rows or ()] == ["b"]
    explanation = str(trades.handle(pipeline).explain("usd"))
    assert "waits for rates until the watermark is above 2026-05-01T00:05:00Z" in explanation
    assert "held back by input 'rates'" in explanation
    by_rate = hr.Pipeline("by_rate", TRADES, join=[as_of(lateness=None)], key="rate", **what)  # type: ignore[arg-type]
    trades.run(by_rate)
    assert trades.handle(by_rate).explain(1).joins[0].rows is None


def test_rows_are_looked_for_where_those_of_their_key_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spread key is at some places, and what is computed of columns that are asked for is known."""
    parts: list[KeyGroupRange] = []

    def record_part(store: Any, schema: Any, layers: Any, part: KeyGroupRange) -> Any:
        parts.append(part)
        return some_of(store, schema, layers, part)

    monkeypatch.setattr(joined_rows, "some_of", record_part)
    with set_sizes(open_part_rows=1):
        trades, rates = Trades(tmp_path), [rate(0, 1), rate(0, 2, "eur"), rate(0, 3, ccy="USD")]
        pipeline = rated_pipeline(
            as_of(spread=5, outer=True),
            hr.as_of(RATES.named("upper"), {col("ccy").upper(): "ccy"}, columns={"second": "rate"}, lateness="1h"),
        )
        landed_trades = [trade(str(number), 5 + number, ccy) for number in range(8) for ccy in ("usd", "eur", None)]
        trades.run(pipeline, trades=landed_trades, rates=rates)
        for ccy, partners in (("usd", [[1], [3]]), ("eur", [[2], []]), (None, [[], []])):
            parts.clear()
            for join, values in zip(trades.handle(pipeline).explain({"ccy": ccy}).joins, partners, strict=True):
                rows = join.rows or ()
                numbers = range(8) if ccy is not None or join.is_outer else ()
                assert sorted(row.values["id"] for row in rows) == [str(number) for number in numbers]
                assert all([value for one in row.partners for value in one.values.values()] == values for row in rows)
            assert all(part.first == part.last for part in parts), ccy


def test_a_pipeline_that_gets_a_join_says_that_it_is_to_be_replayed(tmp_path: Path) -> None:
    trades = Trades(tmp_path)
    trades.run(hr.Pipeline("rated", TRADES, rows=["id"], executor="local"), trades=[trade("a", 5)])
    assert "input of the join with rates is new" in str(trades.handle(rated_pipeline(as_of(), rows=["id"])).plan())
