"""Dates, bytes and decimals from landed files of every format to what readers see, exactly; late ones land again."""

import base64
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import DecimalOverflowError
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

Row = dict[str, Any]
SCHEMA = {"user": str, "at": datetime, "day": date, "key": bytes, "price": Decimal}
START = datetime(2026, 1, 1, tzinfo=UTC)
A = b"\xff\x00"
D1, D2 = date(2025, 12, 31), date(2026, 1, 1)
LARGE = Decimal("12345678901234567890.123456789")


def row(user: str, minutes: int, day: date | None, key: bytes, price: str | None) -> Row:
    moment = START + timedelta(minutes=minutes)
    return {"user": user, "at": moment, "day": day, "key": key, "price": None if price is None else Decimal(price)}


FILES = [
    [row("ann", 1, D1, A, "0.1"), row("ann", 2, D2, A, "0.2"), row("bob", 3, None, A, None), row("bob", 4, D2, A, "7")],
    [row("ann", 5, D2, A, str(LARGE)), row("ann", 6, D1, A, f"-{LARGE}"), row("cid", 300, D2, b"x", "1")],
    [row("ann", 7, D2, A, "19.99"), row("cid", 301, D2, b"x", "-0.000000001")],
]
"""The first record of the last file is late."""


def as_json(rows: list[Row]) -> bytes:
    reported_rows = [{**row, "day": _iso(row["day"]), "key": _base64(row["key"])} for row in rows]
    lines = [json.dumps({**row, "at": row["at"].isoformat()}, default=str) for row in reported_rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _iso(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def as_csv(rows: list[Row]) -> bytes:
    lines = [
        f"{row['user']},{row['at'].isoformat()},{_iso(row['day']) or ''},{_base64(row['key'])},"
        f"{'' if row['price'] is None else row['price']}\n"
        for row in rows
    ]
    return ("user,at,day,key,price\n" + "".join(lines)).encode()


def as_parquet(rows: list[Row]) -> bytes:
    kinds = [pa.string(), pa.timestamp("ms", "UTC"), pa.date32(), pa.large_binary(), pa.decimal128(35, 9)]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(zip(SCHEMA, kinds, strict=True)))), buffer)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[list[Row]], bytes]] = {"json": as_json, "csv": as_csv, "parquet": as_parquet}


def build(kind: str, **changes: Any) -> hr.Pipeline:
    parts: dict[str, Any] = {
        "key": {"user": col("user"), "key": col("key")},
        "where": hr.FixedWindows("1h"),
        "when": hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
        "how": hr.retracting(),
        "what": {
            "total": col("price").sum(),
            "mean": col("price").mean(),
            "last_day": col("day").max(),
            "prices": col("price").collect(),
            "days": col("day").plus(days=1).distinct(),
            "best": (col("price") * Decimal("1.19")).top(1),
            "keys": col("key").pairs(col("day"), "left"),
        },
    }
    source = {"json": hr.json, "csv": hr.csv, "parquet": hr.parquet}[kind]("landing", SCHEMA, max_files=1)
    return hr.Pipeline("typed", source.event_time("at", bound="10m"), **{**parts, **changes})


def land(root: Path, kind: str) -> None:
    (root / "landing").mkdir()
    for number, rows in enumerate(FILES):
        (root / "landing" / f"part-{number}.{kind}").write_bytes(FORMATS[kind](rows))


LOWER_STAGE = hr.Aggregation(
    key={"day": col("last_day")},
    where=hr.FixedWindows("1h"),
    how=hr.retracting(),
    what={"all": col("total").sum(), "keys": col("key").max()},
)


@on_both
@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_what_readers_see(executor: ExecutorUnderTest, tmp_path: Path, kind: str) -> None:
    land(tmp_path, kind)
    pipeline = build(kind)
    result = executor.run(pipeline, tmp_path.as_uri(), publish=False)
    assert (result.counts["accepted"], result.counts["rejected"], result.counts["late_dropped"]) == (8, 0, 1)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    names = ("user", "key", "total", "mean", "last_day", "prices", "days", "best")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (
            "ann",
            A,
            Decimal("0.3"),
            Decimal("0.075"),
            D2,
            [LARGE.copy_negate(), Decimal("0.1"), Decimal("0.2"), LARGE],
            2,
            [Decimal("14691357892469135789.246913579")],
        ),
        ("bob", A, Decimal(7), Decimal(7), D2, [Decimal(7)], 1, [Decimal("8.33")]),
        ("cid", b"x", Decimal("0.999999999"), Decimal("0.5"), D2, [Decimal("-1e-9"), Decimal(1)], 1, [Decimal("1.19")]),
    ]
    assert rows[1]["keys"] == [{"left": A, "right": D2}] * 2
    late = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    assert [(row["user"], row["key"], "19.99" in row["raw"]) for row in late] == [("ann", A, True)]


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_late_ones_land_again(executor: ExecutorUnderTest, tmp_path: Path, kind: str) -> None:
    land(tmp_path, kind)
    root, pipeline = tmp_path.as_uri(), build(kind)
    executor.run(pipeline, root, publish=False)
    assert hr.open(root)[pipeline].replay_late(at="main").records == 1
    late = executor.run(pipeline, f"{root}/late", mode="batch", publish=False)
    assert (late.counts["accepted"], late.counts["rejected"]) == (1, 0)
    (row,) = read(pipeline, f"{root}/late", "current", "main").to_pylist()
    assert (row["key"], row["total"], row["last_day"]) == (A, Decimal("19.99"), D2)


@on_both
def test_a_later_aggregation_takes_panes_back_exactly(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, "json")
    pipeline = build("json", then=[LOWER_STAGE])
    executor.run(pipeline, tmp_path.as_uri(), publish=False)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert [(row["day"], row["all"], row["keys"]) for row in rows] == [
        (D2, Decimal("7.3"), A),
        (D2, Decimal("0.999999999"), b"x"),
    ]


def test_a_sum_that_leaves_38_digits_is_an_error(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    rows = [row("ann", 1, D1, A, "60000000000000000000000000000") for _ in range(2)]
    (tmp_path / "landing" / "a.json").write_bytes(as_json(rows))
    with pytest.raises(DecimalOverflowError, match="a sum leaves 38 digits, 9 of them after the point"):
        executor.run(build("json"), tmp_path.as_uri(), publish=False)
