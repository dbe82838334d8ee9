"""A range of joined rows that is computed again gives what a backfill of everything gives."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from tests.joins.trades import RATES, SIGNED_RATES, TRADES, Trades, as_of, rate, rated_pipeline, trade
from tests.joins.trades import time_at as minute

_LATE: dict[str, Any] = {"lateness": "30d", "columns": ["rate"]}
_HOURS: dict[str, Any] = {"where": hr.FixedWindows("2h"), "when": hr.on_update(), "how": hr.retracting("30d")}
PIPELINES = {
    "as_of": rated_pipeline(as_of(lateness="30d", outer=True)),
    "withdrawn": rated_pipeline(as_of(right=SIGNED_RATES, lateness="30d")),
    "of an age": rated_pipeline(as_of(max_age="2h", lateness="30d")),
    "within": rated_pipeline(hr.within(RATES, "ccy", between=("-90m", "1h"), outer=True, **_LATE)),
    "window": rated_pipeline(hr.same_window(RATES, "ccy", window=hr.FixedWindows("2h"), **_LATE)),
    "summed": hr.Pipeline(
        "rated",
        TRADES,
        join=[hr.next_event(RATES, "ccy", within="2h", outer=True, **_LATE)],
        key="rate",
        what={"sum": col("amount").sum()},
        executor="local",
        **_HOURS,
    ),
}


@pytest.mark.slow
@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "1"))))
@pytest.mark.parametrize("kind", PIPELINES)
def test_a_range_is_what_everything_gives(tmp_path: Path, kind: str, seed: int) -> None:
    trades, dice, pipeline = Trades(tmp_path), random.Random(f"{kind} {seed}"), PIPELINES[kind]
    landed_records: dict[str, list[list[dict[str, Any]]]] = {"trades": [], "rates": []}
    times = [90 * number + dice.choice([0, 0, -60]) for number in range(7)]

    def past_time(number: int) -> int:
        return max(0, times[number] - dice.choice([0, 0, 30, 200]))

    for number in range(7):
        given_records = {
            # one is not late: a range that begins with it reads the file anew
            "trades": [
                trade(dice.choice("abc"), time, dice.choice(["usd", "eur"]))
                for time in (times[number], past_time(number), past_time(number))
            ],
            "rates": [
                rate(past_time(number), dice.randrange(4), dice.choice(["usd", "eur"]), sign=1) for _ in range(2)
            ],
        }
        if kind == "withdrawn" and number and dice.random() < 0.5:
            given_records["rates"].append({**dice.choice(landed_records["rates"][dice.randrange(number)]), "sign": -1})
        for name, records in given_records.items():
            landed_records[name].append(records)
        trades.run(pipeline, **given_records)
    number = dice.randrange(1, 7)
    mended_records = {
        "trades": [*landed_records["trades"][number], trade("x", times[number])],
        "rates": [*landed_records["rates"][number], rate(times[number], 9, sign=1)],
    }
    for name, records in mended_records.items():
        file = trades.folder / "landing" / name / f"{number:04}.json"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    handle = trades.handle(pipeline)
    handle.backfill(branch="range", start=minute(times[number]))
    handle.backfill(branch="whole")
    difference = handle.diff("range", "whole").output.rows.to_json()
    assert [difference[what] for what in ("added", "removed", "changed")] == [0, 0, 0]
    refs = handle.catalog.head().refs
    assert handle.catalog.common_ancestor(refs["main"], refs["whole"]) is None
