"""NEXMark's queries as the example says them: after each run ``current`` is what DuckDB answers over all bids so far,
which came late and out of order.
"""

import json
import re
import runpy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headrace as hr
from headrace.distribute.spark.application import SparkSession
from headrace.pipeline.loading.registry import resolve
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.arrow_types import zoneless_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.docs.pages import DOCS, ROOT

NEXMARK = ROOT / "examples" / "nexmark"
SQL = {file.stem: file.read_text() for file in sorted((NEXMARK / "sql").iterdir())}
GENERATOR = runpy.run_path(str(NEXMARK / "generator.py"))
GAP = timedelta(seconds=10)
Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Part:
    """Events that happen from ``start`` on, 20 in a second, and are read by a run at ``arrived``."""

    events: range
    start: datetime
    arrived: datetime

    @property
    def files(self) -> list[str]:
        """The names of its micro-batches: 250 events each, and the last has bids that no chance makes."""
        return [f"{number:09}.json" for number in (*self.events[::250], self.events.stop - 1)]

    def land(self, root: Path) -> None:
        GENERATOR["land"](root, self.events, self.start, rate=20, per_file=250)
        lines = [json.dumps(bid) for bid in edges(self.start)]
        (root / "landing/bids" / self.files[-1]).write_text("\n".join(lines))


def edges(start: datetime) -> list[dict[str, Any]]:
    """Bids that tie, stand at a border of ranks, a gap apart, or have other channels and URLs."""
    borders = [9_999, 10_000, 999_999, 1_000_000, 10**9, 10**9]
    places = ["", "?channel_id=7", "a?x=1&channel_id=", "a/b/c/d?channel_id=x&y=2", "a//c", "?nochannel_id=3"]
    channels = ["APPLE", "google", "channel-1", "", "bing", "baidu.com"]
    return [
        {
            "auction": number % 3, "bidder": 1, "price": price, "channel": channel, "extra": "c" * number,
            "url": f"https://auctions.example/{place}",
            "date_time": (start + number // 2 * GAP).isoformat(),
        }
        for number, (price, place, channel) in enumerate(zip(borders, places, channels, strict=True))
    ]  # fmt: skip


PARTS = (
    Part(range(1000), datetime(2026, 5, 1, 23, 59, 35, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 4, tzinfo=UTC)),
    Part(range(1000, 2000), datetime(2026, 5, 2, 7, 59, 35, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 8, tzinfo=UTC)),
    Part(range(2000, 3000), datetime(2026, 5, 2, 8, 0, 25, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 12, tzinfo=UTC)),
)


def pipeline(name: str) -> Pipeline:
    return resolve(f"{NEXMARK / 'queries.py'}:{name}")


def run(pipeline: Pipeline, root: Path, part: Part, spark: SparkSession | None = None) -> str:
    """Run when ``part`` has arrived; the snapshot that the run ends with."""
    options = RunOptions(f"run-{part.events.start}", publish=True, executor="spark" if spark else "local")
    process(pipeline, root.as_uri(), options, now=lambda: part.arrived, spark=spark)
    return hr.open(root.as_uri())[pipeline.name].catalog.head().refs["main"]


def bids(root: Path, parts: Sequence[Part]) -> duckdb.DuckDBPyConnection:
    """DuckDB with the bids of ``parts`` and when they were read."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE bids (
            auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP,
            extra VARCHAR, arrived_at TIMESTAMP
        )
    """)
    for part in parts:
        files = [str(root / "landing/bids" / name) for name in part.files]
        read = "INSERT INTO bids BY NAME SELECT *, ? AS arrived_at FROM read_json(?)"
        connection.execute(read, [part.arrived.replace(tzinfo=None), files])
    return connection


def answer(bids: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Rows]:
    """The columns of DuckDB's answer, and its rows."""
    result = bids.execute(SQL[query])
    return [column for column, *_ in result.description], Counter(result.fetchall())


def current(root: Path, query: str, columns: Sequence[str], snapshot: str) -> Rows:
    """What stands of a query at ``snapshot``."""
    handle = hr.open(root.as_uri())["q12" if query == "q12" else "nexmark"]
    reader = handle if query == "q12" else handle[query]
    return Counter(
        tuple(row.values()) for row in zoneless_rows(reader.current(at=snapshot, columns=columns).to_arrow())
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]]]:
    """A root, and the snapshots of both pipelines after each part."""
    root, snapshots = tmp_path_factory.mktemp("nexmark"), []
    for part in PARTS:
        part.land(root)
        snapshots.append({name: run(pipeline(name), root, part) for name in ("nexmark", "q12")})
    return root, snapshots


@pytest.mark.slow
@pytest.mark.parametrize("query", SQL)
def test_after_each_run_stands_what_duckdb_answers(query: str, runs: tuple[Path, list[dict[str, str]]]) -> None:
    root, snapshots = runs
    for number, snapshot in enumerate(snapshots, 1):
        columns, expected = answer(bids(root, PARTS[:number]), query)
        assert expected
        assert current(root, query, columns, snapshot["q12" if query == "q12" else "nexmark"]) == expected


@pytest.mark.slow
def test_bids_came_late_and_none_too_late(runs: tuple[Path, list[dict[str, str]]]) -> None:
    root, _ = runs
    nexmark = hr.open(root.as_uri())["nexmark"]
    assert nexmark["q0"].current(where="timing = 'LATE'").count() > 10
    assert nexmark["q15"].panes(where="is_retraction").count() > 4
    assert nexmark["q11"].late().count() == 0


@pytest.mark.spark
def test_some_queries_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    whole, queries = pipeline("nexmark"), ("q5", "q11", "q14", "q19")
    few = replace(whole, outputs={name: whole.outputs[name] for name in queries}, executor="spark")
    part, *_ = PARTS
    part.land(tmp_path)
    snapshot = run(few, tmp_path, part, spark)
    for query in queries:
        columns, expected = answer(bids(tmp_path, [part]), query)
        assert current(tmp_path, query, columns, snapshot) == expected


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    events = [*GENERATOR["arriving"](range(5000), PARTS[0].start)]
    assert Counter(stream for stream, _ in events) == {"persons": 100, "auctions": 300, "bids": 4600}
    known = {stream: {event["id"] for of, event in events if of == stream} for stream in ("persons", "auctions")}
    assert {event["bidder"] for stream, event in events if stream == "bids"} <= known["persons"]
    assert {event["auction"] for stream, event in events if stream == "bids"} <= known["auctions"]
    assert {event["seller"] for stream, event in events if stream == "auctions"} <= known["persons"]


def test_bids_go_to_hot_auctions_and_come_from_hot_bidders() -> None:
    events = [
        event for stream, event in GENERATOR["arriving"](range(50_000, 60_000), PARTS[0].start) if stream == "bids"
    ]
    hot = {column: sum(event[column] % 100 == 0 for event in events) / len(events) for column in ("auction", "bidder")}
    assert 0.45 < hot["auction"] < 0.55
    assert 0.7 < hot["bidder"] < 0.8
    assert 0.45 < sum(event["channel"].isalpha() for event in events) / len(events) < 0.55


def test_a_seed_gives_the_same_files(tmp_path: Path) -> None:
    def landed(name: str, seed: int) -> list[str]:
        GENERATOR["land"](tmp_path / name, range(300), PARTS[0].start, seed=seed)
        return [file.read_text() for file in sorted((tmp_path / name / "landing").rglob("*.json"))]

    assert landed("one", 1) == landed("again", 1)
    assert landed("one", 1) != landed("other", 2)


def test_the_page_says_of_each_query_whether_it_is_compared() -> None:
    table = re.findall(r"^\| (q\d+) \|.*\| ([^|]+) \|$", (DOCS / "nexmark.md").read_text(), re.MULTILINE)
    assert [query for query, _ in table] == [f"q{number}" for number in range(23)]
    assert {query for query, is_equal in table if is_equal.startswith("yes")} == {*SQL}
