"""Windows of arrival time close when their time has passed, whether or not a record comes (semantics 9.9, 12.1)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.testing import TemporaryDeployment
from tests.reading import read

NINE = datetime(2026, 1, 1, 9, 5, tzinfo=UTC)
CLICKS = hr.json("landing/clicks", {"user": str}).arrival_time()
VISITS = hr.json("landing/visits", {"user": str, "at": datetime}).event_time("at", bound="0s")
HOURLY = hr.Pipeline(
    "hourly", CLICKS, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"), executor="local"
)


def land(root: Path, source: str, number: int, **record: str) -> None:
    folder = root / "landing" / source
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.json").write_text(json.dumps({"user": "ann", **record}) + "\n")


def run(pipeline: hr.Pipeline, root: Path, time: datetime) -> int:
    """Run at ``time``; the number of its epochs."""
    return len(TemporaryDeployment(root).run(pipeline, at=time).epochs)


def panes(pipeline: hr.Pipeline, root: Path) -> list[tuple[str, int]]:
    return [(row["timing"], row["n"]) for row in read(pipeline, root.as_uri(), view="panes").to_pylist()]


@pytest.mark.slow
def test_an_hour_of_arrivals_is_out_once_it_is_over(tmp_path: Path) -> None:
    land(tmp_path, "clicks", 1)
    assert run(HOURLY, tmp_path, NINE) == 1
    assert run(HOURLY, tmp_path, NINE + timedelta(minutes=50)) == 0, "it is 09:55"
    assert panes(HOURLY, tmp_path) == []
    assert run(HOURLY, tmp_path, NINE + timedelta(minutes=55)) == 1, "nothing has landed, and it is 10:00"
    assert panes(HOURLY, tmp_path) == [("ON_TIME", 1)]
    assert run(HOURLY, tmp_path, NINE + timedelta(days=9)) == 0, "nothing is left to wait for"


def test_another_input_that_says_less_holds_it_back(tmp_path: Path) -> None:
    both = hr.Pipeline(
        "both", CLICKS, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"),
        union=[VISITS.named("visits")], executor="local",
    )  # fmt: skip
    land(tmp_path, "clicks", 1)
    land(tmp_path, "visits", 1, at="2026-01-01T09:01:00Z")
    assert run(both, tmp_path, NINE) == 1
    assert run(both, tmp_path, NINE + timedelta(hours=5)) == 0, "a visit of nine o'clock may still come"
    land(tmp_path, "visits", 2, at="2026-01-01T11:00:00Z")
    assert run(both, tmp_path, NINE + timedelta(hours=6)) == 1
    assert panes(both, tmp_path) == [("ON_TIME", 2)]


def test_later_aggregations_follow(tmp_path: Path) -> None:
    daily = hr.Aggregation(what={"n": hr.count()}, where=hr.FixedWindows("1d"))
    chain = hr.Pipeline(
        "chain", CLICKS, key="user", what={"clicks": hr.count()}, where=hr.FixedWindows("1h"),
        how=hr.retracting("30m"), then=[daily], executor="local",
    )  # fmt: skip
    land(tmp_path, "clicks", 1)
    assert run(chain, tmp_path, NINE) == 1
    for hours in (1, 2, 30):
        run(chain, tmp_path, NINE + timedelta(hours=hours))
    assert ("ON_TIME", 1) in panes(chain, tmp_path)
