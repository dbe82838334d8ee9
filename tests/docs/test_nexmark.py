"""NEXMark's queries as the example says them: after each run ``current`` is what DuckDB answers over all events so far,
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
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.arrow_types import zoneless_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.docs.pages import DOCS, ROOT

NEXMARK = ROOT / "examples" / "nexmark"
SQL = {file.stem: file.read_text() for file in sorted((NEXMARK / "sql").iterdir())}
GENERATOR = runpy.run_path(str(NEXMARK / "generator.py"))
QUERIES = runpy.run_path(str(NEXMARK / "queries.py"))
TYPES = {int: "BIGINT", str: "VARCHAR", datetime: "TIMESTAMP"}
TABLES = {
    stream: {name: TYPES[kind] for name, kind in QUERIES[record].items()}
    for stream, record in (("bids", "BID"), ("auctions", "AUCTION"), ("persons", "PERSON"))
}
PIPELINES = {
    "nexmark": (),
    "q12": ("q12",),
    "q3": ("q3",),
    "q8": ("q8",),
    "sold": ("q4", "q6", "q9", "q20"),
    "q13": ("q13",),
}
"""In the order in which they run, each with the queries that no other one has."""
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
        """The names of its micro-batches: 250 events each, and the last has events that no chance makes."""
        return [f"{number:09}.json" for number in (*self.events[::250], self.events.stop - 1)]

    def land(self, root: Path) -> None:
        GENERATOR["land"](root, self.events, self.start, rate=20, per_file=250)
        for stream, events in self.edges().items():
            lines = [json.dumps(event) for event in events]
            (root / "landing" / stream / self.files[-1]).write_text("\n".join(lines))

    def edges(self) -> dict[str, list[dict[str, Any]]]:
        """Bids that tie, stand at a border of ranks, a gap apart, or have other channels and URLs; auctions that open
        and expire at the moment of a bid; persons who register at the end of a window, or after their auction.
        """
        first = 123_000 * self.events.start
        return {
            "bids": [
                {
                    "auction": first + number % 3, "bidder": 1, "price": price, "channel": channel,
                    "extra": "c" * number, "url": f"https://auctions.example/{place}", **self._time(number // 2 * GAP),
                }
                for number, (price, place, channel) in enumerate(BIDS)
            ],
            "auctions": [
                {
                    "id": first + number, "item_name": "edge", "description": "", "initial_bid": 1, "reserve": 2,
                    "expires": self._time(expires)["date_time"], "seller": first + number, "category": 10,
                    "extra": "", **self._time(opens),
                }
                for number, (opens, expires) in enumerate(AUCTIONS)
            ],
            "persons": [
                {"id": first + number, "name": f"Edge {number}", "state": "OR", **self._time(registers)}
                for number, registers in enumerate(PERSONS)
            ],
        }  # fmt: skip

    def _time(self, offset: timedelta) -> dict[str, str]:
        return {"date_time": (self.start + offset).isoformat(timespec="milliseconds")}


BIDS = (
    (9_999, "", "APPLE"),
    (10_000, "?channel_id=7", "google"),
    (999_999, "a?x=1&channel_id=", "channel-1"),
    (1_000_000, "a/b/c/d?channel_id=x&y=2", ""),
    (10**9, "a//c", "bing"),
    (10**9, "?nochannel_id=3", "baidu.com"),
    (5, "", ""),
    (2 * 10**9, "", ""),
    (10**9, "", ""),
)
"""Prices, places and channels: bids on three auctions in turn, two at a moment."""

_MOMENT = timedelta(milliseconds=1)
AUCTIONS = (
    (0 * GAP, GAP - _MOMENT),  # opens with the first bid; expires right before the second one
    (GAP / 2, 2 * GAP),  # opens behind the first bid; expires with the second one
    (0.6 * GAP, 4 * GAP),  # of two bids as high as each other the first wins
)
PERSONS = (0 * GAP, GAP / 2 - _MOMENT, 3 * GAP)
"""With the auction; in the window before it; behind it."""

PARTS = (
    Part(range(1000), datetime(2026, 5, 1, 23, 59, 35, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 4, tzinfo=UTC)),
    Part(range(1000, 2000), datetime(2026, 5, 2, 7, 59, 35, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 8, tzinfo=UTC)),
    Part(range(2000, 3000), datetime(2026, 5, 2, 8, 0, 25, tzinfo=UTC), datetime(2026, 5, 3, 12, 0, 12, tzinfo=UTC)),
)


def pipeline(name: str) -> Pipeline:
    return resolve_pipeline(f"{NEXMARK / 'queries.py'}:{name}")


def run(pipeline: Pipeline, root: Path, part: Part, spark: SparkSession | None = None) -> str:
    """Run when ``part`` has arrived; the snapshot that the run ends with."""
    options = RunOptions(f"run-{part.events.start}", publish=True, executor="spark" if spark else "local")
    process(pipeline, root.as_uri(), options, now=lambda: part.arrived, spark=spark)
    return hr.open(root.as_uri())[pipeline.name].catalog.head().refs["main"]


def load_parts(root: Path, parts: Sequence[Part]) -> duckdb.DuckDBPyConnection:
    """DuckDB with the events of ``parts``, when bids were read, and the table of reference."""
    connection = duckdb.connect()
    for stream, types in TABLES.items():
        for number, part in enumerate(parts):
            files = [str(file) for name in part.files if (file := root / "landing" / stream / name).exists()]
            read = "SELECT *, ?::TIMESTAMP AS arrived_at FROM read_json(?, columns=?)"
            make = f"INSERT INTO {stream} {read}" if number else f"CREATE TABLE {stream} AS {read}"
            connection.execute(make, [part.arrived.replace(tzinfo=None), files, types])
    connection.execute("CREATE TABLE side_input AS FROM read_csv(?)", [str(root / "landing/side_input/values.csv")])
    return connection


def answer(events: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Rows]:
    """The columns of DuckDB's answer, and its rows."""
    result = events.execute(SQL[query])
    return [column for column, *_ in result.description], Counter(result.fetchall())


def pipeline_of(query: str) -> str:
    """The name of the pipeline that answers ``query``."""
    return next((name for name, queries in PIPELINES.items() if query in queries), "nexmark")


def current(root: Path, query: str, columns: Sequence[str], snapshot: str) -> Rows:
    """What stands of a query at ``snapshot``."""
    name = pipeline_of(query)
    handle = hr.open(root.as_uri())[name]
    reader = handle[query] if pipeline(name).outputs else handle
    return Counter(
        tuple(row.values()) for row in zoneless_rows(reader.current(at=snapshot, columns=columns).to_arrow())
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]]]:
    """A root, and the snapshots of all pipelines after each part."""
    root, snapshots = tmp_path_factory.mktemp("nexmark"), []
    GENERATOR["land_side_input"](root)
    for part in PARTS:
        part.land(root)
        snapshots.append({name: run(pipeline(name), root, part) for name in PIPELINES})
    return root, snapshots


@pytest.fixture(scope="module")
def events(runs: tuple[Path, list[dict[str, str]]]) -> list[duckdb.DuckDBPyConnection]:
    """What DuckDB has after each part."""
    return [load_parts(runs[0], PARTS[:number]) for number, _ in enumerate(PARTS, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("query", SQL)
def test_after_each_run_stands_what_duckdb_answers(
    query: str, runs: tuple[Path, list[dict[str, str]]], events: list[duckdb.DuckDBPyConnection]
) -> None:
    root, snapshots = runs
    for snapshot, connection in zip(snapshots, events, strict=True):
        columns, expected = answer(connection, query)
        assert expected
        assert current(root, query, columns, snapshot[pipeline_of(query)]) == expected


@pytest.mark.slow
def test_events_came_late_and_none_too_late(runs: tuple[Path, list[dict[str, str]]]) -> None:
    root, _ = runs
    pipelines = {name: hr.open(root.as_uri())[name] for name in PIPELINES}
    assert pipelines["nexmark"]["q0"].current(where="timing = 'LATE'").count() > 10
    for name, query in (("nexmark", "q15"), ("sold", "q9"), ("sold", "q4"), ("sold", "q6")):
        assert pipelines[name][query].panes(where="is_retraction").count() > 4, query
    for name, handle in pipelines.items():
        for reader in [handle[query] for query in pipeline(name).outputs] or [handle]:
            assert reader.late().count() == reader.rejected().count() == 0


@pytest.mark.spark
@pytest.mark.parametrize(("name", "queries"), [("nexmark", ("q5", "q11", "q14", "q19")), ("sold", ("q9", "q4", "q20"))])
def test_some_queries_on_spark(spark: SparkSession, tmp_path: Path, name: str, queries: Sequence[str]) -> None:
    whole = pipeline(name)
    few = replace(whole, outputs={name: whole.outputs[name] for name in queries}, executor="spark")
    part, *_ = PARTS
    part.land(tmp_path)
    GENERATOR["land_side_input"](tmp_path)
    snapshot = run(few, tmp_path, part, spark)
    for query in queries:
        columns, expected = answer(load_parts(tmp_path, [part]), query)
        assert current(tmp_path, query, columns, snapshot) == expected


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    events = [*GENERATOR["arriving"](range(5000), PARTS[0].start)]
    assert Counter(stream for stream, _ in events) == {"persons": 100, "auctions": 300, "bids": 4600}
    known_by_stream = {
        stream: {event["id"] for kind, event in events if kind == stream} for stream in ("persons", "auctions")
    }
    assert {event["bidder"] for stream, event in events if stream == "bids"} <= known_by_stream["persons"]
    assert {event["auction"] for stream, event in events if stream == "bids"} <= known_by_stream["auctions"]
    assert {event["seller"] for stream, event in events if stream == "auctions"} <= known_by_stream["persons"]


def test_bids_go_to_hot_auctions_and_come_from_hot_bidders() -> None:
    events = [
        event for stream, event in GENERATOR["arriving"](range(50_000, 60_000), PARTS[0].start) if stream == "bids"
    ]
    hot = {column: sum(event[column] % 100 == 0 for event in events) / len(events) for column in ("auction", "bidder")}
    assert 0.45 < hot["auction"] < 0.55
    assert 0.7 < hot["bidder"] < 0.8
    assert 0.45 < sum(event["channel"].isalpha() for event in events) / len(events) < 0.55


def test_a_seed_gives_the_same_files(tmp_path: Path) -> None:
    def texts_of_seed(name: str, seed: int) -> list[str]:
        GENERATOR["land"](tmp_path / name, range(300), PARTS[0].start, seed=seed)
        return [file.read_text() for file in sorted((tmp_path / name / "landing").rglob("*.json"))]

    assert texts_of_seed("one", 1) == texts_of_seed("again", 1)
    assert texts_of_seed("one", 1) != texts_of_seed("other", 2)


def test_the_page_says_of_each_query_whether_it_is_compared() -> None:
    table = re.findall(r"^\| (q\d+) \|.*\| ([^|]+) \|$", (DOCS / "nexmark.md").read_text(), re.MULTILINE)
    assert [query for query, _ in table] == [f"q{number}" for number in range(23)]
    assert {query for query, is_equal in table if is_equal.startswith("yes")} == {*SQL}
