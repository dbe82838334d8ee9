"""Figures of columns, against plain Python, of random tables in this process and as frames of Spark's."""

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.store import ColumnMeasure, ViewMeasure
from headrace.audit.usual import measure_columns, rows_to_blame
from headrace.distribute.column_figures import BlamedRows
from tests.process.executors import ExecutorUnderTest, on_both

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "text": pa.string(),
        "flag": pa.bool_(),
        "whole": pa.int64(),
        "real": pa.float64(),
        "exact": pa.decimal128(38, 9),
        "a `name`.": pa.int64(),
    }
)
TEXTS = ["a", "B", "é", "z" * 250, "z" * 249 + "y", "", "\U0001d4b3", *(f"t{number:03}" for number in range(60))]
REALS = [0.0, -0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf]
CHECKS = [hr.usual_nulls("id", points=1)] + [
    hr.usual_distribution(name, distance=0.5) for name in SCHEMA.names if name not in ("id", "at")
]


def random_rows(seed: int, number: int) -> list[dict[str, Any]]:
    """Rows with NULLs, ties, long texts, numbers that are not finite."""
    random = Random(seed)

    def value(kind: pa.DataType) -> Any:
        if random.random() < 0.2:
            return None
        if pa.types.is_string(kind):
            return random.choice(TEXTS)
        if pa.types.is_boolean(kind):
            return random.random() < 0.3
        if pa.types.is_decimal(kind):
            return Decimal(random.randint(-5000, 5000)).scaleb(-random.randint(0, 9))
        if pa.types.is_floating(kind):
            return random.choice(REALS) if random.random() < 0.4 else random.gauss(0, 10)
        return random.randint(-9, 9) if random.random() < 0.8 else random.choice([2**63 - 1, -(2**63), 2**53 + 1])

    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{name: value(SCHEMA.field(name).type) for name in SCHEMA.names} for _ in range(number)]
    return [{**row, "id": number if number % 7 else None, "at": moment} for number, row in enumerate(rows)]


def expected(rows: list[dict[str, Any]]) -> ViewMeasure:
    """The same, said in Python."""

    def column(name: str) -> ColumnMeasure:
        values = [row[name] for row in rows]
        present_values = [
            one for one in values if one is not None and (not isinstance(one, float) or math.isfinite(one))
        ]
        missing = len(values) - len(present_values)
        if name == "id":
            return ColumnMeasure(missing)
        if name in ("text", "flag"):
            texts = Counter(str(one).lower() if isinstance(one, bool) else one[:200] for one in present_values)
            most = sorted(texts.items(), key=lambda pair: (-pair[1], pair[0].encode()))[:50]
            return ColumnMeasure(missing, frequent=tuple(most))
        ascending_values = sorted(present_values)
        ranks = [math.ceil(Decimal(number) * len(ascending_values) / 20) for number in range(1, 20)]
        return ColumnMeasure(
            missing, quantiles=tuple(float(ascending_values[rank - 1]) for rank in ranks) if ascending_values else ()
        )

    return ViewMeasure(len(rows), {name: column(name) for name in SCHEMA.names if name != "at"})


def frame(executor: ExecutorUnderTest, rows: list[dict[str, Any]]) -> Any:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return ArrowFrame(table) if executor.spark is None else executor.spark.createDataFrame(table)


@on_both
def test_measures_are_those_of_plain_python(executor: ExecutorUnderTest) -> None:
    sizes = [0, 1, 19, 20, 21, 400] if executor.spark is None else [0, 150]  # each takes Spark 20 jobs
    for seed, number in enumerate(sizes):
        rows = random_rows(seed, number)
        assert measure_columns(frame(executor, rows), number, CHECKS) == expected(rows), f"seed {seed}"


@on_both
@pytest.mark.parametrize(
    ("blame", "holds"),
    [
        (BlamedRows("real", "missing"), lambda row: row["real"] is None or not math.isfinite(row["real"])),
        (BlamedRows("text", "text", "z" * 200), lambda row: (row["text"] or "").startswith("zz")),
        (BlamedRows("flag", "text", "true"), lambda row: row["flag"] is True),
        (BlamedRows("exact", "above", 0.5), lambda row: row["exact"] is not None and row["exact"] > 0.5),
        (
            BlamedRows("real", "below", 0.0),
            lambda row: row["real"] is not None and -math.inf < row["real"] < 0,
        ),
    ],
    ids=lambda value: f"{value.column}-{value.blamed}" if isinstance(value, BlamedRows) else "",
)
def test_the_first_rows_to_blame_are_named_by_what_identifies_them(
    executor: ExecutorUnderTest, blame: BlamedRows, holds: Any
) -> None:
    rows = [{**row, "id": place} for place, row in enumerate(random_rows(7, 200))]
    blamed_rows = rows_to_blame(frame(executor, rows[::-1]), blame, ["at", "id"])
    first = [row["id"] for row in rows if holds(row)][:5]
    assert [row["id"] for row in blamed_rows] == first
    assert all(row["at"] == "2026-01-01T00:00:00Z" for row in blamed_rows)
    assert all({*row} == {"at", "id", blame.column} for row in blamed_rows)
