"""Pipelines of each kind that a fault may hit, over a few files with duplicates, late records and dead letters."""

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.model.combiners import Accumulator
from headrace.model.time import to_instant
from headrace_snapshots.store import open_store
from tests.reading import read

FILES = 4
OUTBOX = "outbox/rows"
"""Where final rows are kept that were handed over."""
USERS = 6
_START = datetime(2026, 1, 1, tzinfo=UTC)
_EARLY_AND_LATE = hr.AfterWatermark(early=hr.AfterCount(3), late=hr.AfterCount(1))
_SCHEMA = {"id": str, "user": str, "at": datetime, "price": int, "cents": int}


def _clicks() -> hr.Input:
    return hr.json("landing/clicks", _SCHEMA, max_files=1).event_time("at", bound="10m")


def pipeline(name: str, **parts: Any) -> hr.Pipeline:
    """Of clicks per user and hour, but for what ``parts`` says."""
    common: dict[str, Any] = {
        "key": "user",
        "what": {"clicks": hr.count(), "spent": col("price").sum()},
        "where": hr.FixedWindows("1h"),
        "when": _EARLY_AND_LATE,
        "how": hr.retracting("30m"),
    }
    return hr.Pipeline(name, _clicks(), **{**common, **parts})


def with_outputs(name: str, deduplicate: hr.Deduplicate | None = None, **visits: hr.Aggregate) -> hr.Pipeline:
    """Three outputs, of which one reads another; "visits" has further aggregates."""
    how = hr.retracting("30m")
    what = {"clicks": hr.count(), "spent": col("price").sum()}
    return hr.Pipeline(
        name,
        _clicks(),
        deduplicate=deduplicate,
        outputs={
            "daily": hr.Output(
                of="hourly",
                what={"spent": col("spent").sum()},
                where=hr.CalendarWindows("day"),
                when=_EARLY_AND_LATE,
                how=how,
            ),
            "hourly": hr.Output(key="user", what=what, where=hr.FixedWindows("1h"), when=_EARLY_AND_LATE, how=how),
            "visits": hr.Output(
                key="user", what={**what, **visits}, where=hr.Sessions("20m"), when=_EARLY_AND_LATE, how=how
            ),
        },
    )


_failures: list[bool] = []


@contextmanager
def break_brittle() -> Iterator[None]:
    """Meanwhile ``Brittle`` fails in this process."""
    _failures.append(True)
    try:
        yield
    finally:
        _failures.pop()


@dataclass(frozen=True)
class Brittle(hr.CustomCombiner):
    """The latest of some times. Inside ``break_brittle`` it fails at one of the second hour, or later."""

    accumulator_types = {"at": hr.DataType.INT}
    result_type = hr.DataType.INT

    def create(self) -> Accumulator:
        return {"at": 0}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        if _failures and value >= to_instant(_START + timedelta(hours=1)):
            raise ValueError("it is too late")
        return self.merge(accumulator, {"at": value})

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        return {"at": max(left["at"], right["at"])}

    def extract(self, accumulator: Accumulator) -> Any:
        return accumulator["at"]


FAILING_OUTPUT = with_outputs("failing_output", hr.Deduplicate("id", "2h"), latest=col("at").combine(Brittle()))

PIPELINES: Mapping[str, hr.Pipeline] = {
    "one_stage": pipeline("one_stage"),
    "two_stages": pipeline(
        "two_stages",
        then=[
            hr.Aggregation(
                key="clicks",
                what={"users": hr.count(), "spent": col("spent").sum()},
                where=hr.FixedWindows("2h"),
                how=hr.retracting("1h"),
            )
        ],
    ),
    "looping": pipeline(
        "looping",
        key={"user": col("user"), "price": hr.concat("p", col("price").cast(str))},
        loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True, rounds=1),
        what={},
        where=hr.FixedWindows("2h"),
    ),
    "deduplicating": pipeline("deduplicating", deduplicate=hr.Deduplicate("id", "2h")),
    "joining": pipeline(
        "joining",
        what={"pairs": col("price").pairs(col("cents"), "both")},
        union=[
            hr.json("landing/orders", {"who": str, "at": datetime, "cents": int}, max_files=1)
            .event_time("at", bound="10m")
            .named("orders", {"user": col("who")})
        ],
    ),
    "joined_rows": pipeline(
        "joined_rows",
        what={"spent": (col("price") * col("cost")).sum(), "met": col("cost").count()},
        join=[
            hr.as_of(
                hr.json("landing/orders", {"who": str, "at": datetime, "cents": int}, max_files=1)
                .event_time("at", bound="10m")
                .named("orders"),
                {"user": "who"},
                columns={"cost": "cents"},
                outer=True,
            )
        ],
        how=hr.retracting("30m"),
    ),
    "looked_up": pipeline(
        "looked_up",
        what={"spent": (col("price") * col("cost")).sum(), "met": col("cost").count()},
        join=[
            hr.lookup(
                hr.json("landing/orders", {"who": str, "at": datetime, "cents": int}, max_files=1)
                .arrival_time()
                .named("orders"),
                {"user": "who"},
                columns={"cost": "cents"},
                order="at",
                outer=True,
            )
        ],
    ),
    "several_outputs": with_outputs("several_outputs"),
    "waiting_rows": hr.Pipeline(
        "waiting_rows",
        _clicks(),
        rows={"user": col("user"), "spent": col("price") * 2},
        when=hr.on_window_close(),
        how=hr.retracting("30m"),
        deduplicate=hr.Deduplicate("id", "2h"),
    ),
    "rows": hr.Pipeline(
        "rows",
        _clicks(),
        outputs={
            "cleaned": hr.Rows(
                {"id": col("id"), "user": col("user"), "spent": col("price") * 2}, filter=col("price") > 1
            ),
            "dearest": hr.Rows(
                ["id", "spent"],
                of="cleaned",
                key="user",
                take=hr.top(2, by="spent"),
                where=hr.FixedWindows("1h"),
                when=_EARLY_AND_LATE,
                how=hr.retracting("30m"),
            ),
            "matched": hr.Rows(
                ["id", "spent", "most"],
                of="cleaned",
                join=[hr.as_of("dearest", "user", columns={"most": "spent"}, outer=True, lateness="30m")],
            ),
            "running": hr.Rows(
                ["id", "spent"],
                of="cleaned",
                key="user",
                take=hr.query("select *, sum(spent) over (order by event_time) as total from rows"),
                where=hr.FixedWindows("1h"),
                when=_EARLY_AND_LATE,
                how=hr.retracting("30m"),
            ),
        },
        deduplicate=hr.Deduplicate("id", "2h"),
    ),
}


def land(root: Path) -> None:
    """The files of all inputs."""
    for name in ("clicks", "orders"):
        for file in range(FILES):
            land_file(root, name, file)


def land_file(root: Path, name: str, file: int) -> None:
    """One file of an input."""
    folder = root / "landing" / name
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record) for record in _records(name, file)]
    (folder / f"{file:03}.jsonl").write_text("\n".join([*lines, "no record"]) + "\n")


def _records(name: str, file: int) -> list[dict[str, object]]:
    """Some of a file, an hour after those of the file before: a quarter is late, a quarter of the ids come again."""
    dice = random.Random(f"{name} {file}")
    records_made: list[dict[str, object]] = []
    for number in range(40):
        late = 180 if dice.random() < 0.25 else 0
        moment = (_START + timedelta(minutes=60 * file + dice.randrange(60) - late)).isoformat()
        user, amount = f"u{dice.randrange(USERS)}", dice.randrange(100)
        if name == "orders":
            records_made.append({"who": user, "at": moment, "cents": amount})
        else:
            comes_again = file and dice.random() < 0.25
            records_made.append(
                {"id": f"{file - 1 if comes_again else file}-{number}", "user": user, "at": moment, "price": amount}
            )
    return records_made


def results(pipeline: hr.Pipeline, root: str) -> dict[str, list[str]]:
    """All rows that readers of each output can see, but for when they were made, and those that were handed over."""
    store = open_store(root)
    handed_over = [store.read(info.path).decode() for info in store.list(f"{OUTBOX}/")]
    return {"handed over": sorted(handed_over)} | {
        f"{output} {view}".strip(): sorted(
            str({name: value for name, value in row.items() if name not in _of_a_run(pipeline, output)})
            for row in read(pipeline, root, view, "published", output).to_pylist()
        )
        for output in pipeline.by_output
        for view in ("current", "panes", "late", "rejected")
    }


def _of_a_run(pipeline: hr.Pipeline, output: str) -> set[str]:
    """Columns that another run may give otherwise: of rows their number goes by how many tasks there were."""
    own = {"sequence"} if pipeline.by_output[output].first.rows else set[str]()
    return {"processing_time", "snapshot_id", *own}
