"""Late records of every format land again, and a batch run of the same pipeline gives their part of the results."""

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import DataType, Pipeline, accumulating
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, START
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

Row = dict[str, Any]

FILES: list[list[Row]] = [
    [{"user": user, "at": START + timedelta(minutes=7 * n), "price": n} for user in "ab" for n in range(3)],
    [{"user": "a", "at": START + timedelta(hours=5), "price": 1}],
    [{"user": 'b "c", d', "at": START + timedelta(minutes=1, microseconds=n), "price": 2**53 + n} for n in (1, 1, 2)]
    + [{"user": "a", "at": START + timedelta(hours=5), "price": 7}, {"user": "b", "at": START, "price": None}],
]
"""The last one is too late, but for one record."""


def as_json(rows: list[Row]) -> bytes:
    return "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows).encode()


def as_csv(rows: list[Row]) -> bytes:
    def line(row: Row) -> str:
        quoted_user = '"' + row["user"].replace('"', '""') + '"'
        return f"{row['at'].isoformat()},{quoted_user},{'' if row['price'] is None else row['price']}\n"

    return ("at,user,price\n" + "".join(map(line, rows))).encode()


def as_parquet(rows: list[Row]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[list[Row]], bytes]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
}


def current(pipeline: Pipeline, root: str, ref: str = "main") -> Counter[tuple[str, datetime, str]]:
    rows = read(pipeline, root, "current", ref).to_pylist()
    late_counts: Counter[tuple[str, datetime, str]] = Counter()
    for row in rows:
        late_counts[row["user"], row["window_start"], "clicks"] += row["clicks"]
        late_counts[row["user"], row["window_start"], "spent"] += row["spent"] or 0
    return late_counts


def truth() -> Counter[tuple[str, datetime, str]]:
    late_counts: Counter[tuple[str, datetime, str]] = Counter()
    for row in (row for rows in FILES for row in rows):
        hour = row["at"].replace(minute=0, microsecond=0)
        late_counts[row["user"], hour, "clicks"] += 1
        late_counts[row["user"], hour, "spent"] += row["price"] or 0
    return late_counts


@on_both
@pytest.mark.parametrize("kind", list(FORMATS))
def test_what_was_late_completes_the_rest(executor: ExecutorUnderTest, tmp_path: Path, kind: str) -> None:
    root = tmp_path.as_uri()
    pipeline = change_pipeline(CLICKS, source=replace(CLICKS.source, format=kind), how=accumulating("0s"))
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    for number, rows in enumerate(FILES):
        (folder / f"part-{number}").write_bytes(FORMATS[kind](rows))
    assert executor.run(pipeline, root).counts["late_dropped"] == 4

    assert hr.open(root)[pipeline].replay_late().records == 4
    assert hr.open(root)[pipeline].replay_late().records == 0
    late = executor.run(pipeline, f"{root}/late", mode="batch", publish=False)
    assert (late.counts["accepted"], late.counts["late_dropped"], late.counts["rejected"]) == (4, 0, 0)
    assert current(pipeline, f"{root}/late") + current(pipeline, root) == +truth()


def test_records_land_under_the_header_that_they_were_read_under_or_not_at_all(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    pipeline = change_pipeline(
        CLICKS,
        source=replace(CLICKS.source, format="csv", on_unreadable="dead_letter"),
        how=accumulating("0s"),
    )
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    for number, rows in enumerate(FILES):
        (folder / f"part-{number}").write_bytes(as_csv(rows) + b"2026-01-01T00:00:00Z,c,no price\n")
    executor.run(pipeline, tmp_path.as_uri())
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b"at,user,price", b"at,price,user"))
    handle = hr.open(tmp_path.as_uri())[pipeline]
    landed_late, landed_rejected = handle.replay_late(), handle.replay_rejected()
    assert (landed_late.records, landed_rejected.records) == (0, 0)
    assert (sum(landed_late.left.values()), sum(landed_rejected.left.values())) == (4, 3)
    assert all("has changed" in why for why in (*landed_late.left, *landed_rejected.left))
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b"at,price,user", b"at,user,price"))
    assert handle.replay_late().records == 4
    assert handle.replay_rejected().records == 3


def test_times_beyond_the_calendar_land_as_they_were(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root, source = tmp_path.as_uri(), replace(CLICKS.source, format="parquet")
    source = replace(source, schema={**source.schema, "until": DataType.TIMESTAMP})
    pipeline = change_pipeline(CLICKS, source=source, how=accumulating("0s"))
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    times = [2**62, -(2**62), 2**63 - 1, 1 - 2**63, 0, -1, -62_135_596_800_000_001, 253_402_300_800_000_000]
    for number, rows in enumerate(FILES[:2]):
        (folder / f"part-{number}").write_bytes(as_parquet(rows))
    late = pa.Table.from_pylist([{"user": "a", "at": START, "price": 1}] * len(times))
    pq.write_table(late.append_column("until", pa.array(times, pa.timestamp("us", "UTC"))), folder / "part-2")
    assert executor.run(pipeline, root).counts["late_dropped"] == len(times)
    assert hr.open(root)[pipeline].replay_late().records == len(times)
    (landed_file,) = (tmp_path / "late" / "landing" / "clicks").iterdir()
    assert sorted(pq.read_table(landed_file).column("until").cast(pa.int64()).to_pylist()) == sorted(times)


@pytest.mark.parametrize("executor", ["local"], indirect=True)
def test_late_records_that_land_where_the_pipeline_reads_are_not_read_twice(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    pipeline = change_pipeline(CLICKS, how=accumulating("0s"))
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    for number, rows in enumerate(FILES):
        (folder / f"part-{number}").write_bytes(as_json(rows))
    executor.run(pipeline, root)
    assert hr.open(root)[pipeline].replay_late(to=CLICKS.source.path).records == 4
    assert executor.run(pipeline, root, publish=False).counts["late_dropped"] == 4
    whole = executor.run(pipeline, root, mode="batch", branch="whole")
    assert whole.counts["accepted"] == sum(map(len, FILES))
    assert current(pipeline, root, "whole") == +truth()
