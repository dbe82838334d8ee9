"""Data files as tasks read them: every type that a snapshot stores comes back; what was not written so is named."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import types as t

from headrace.engine.errors import spark_errors
from headrace.engine.reader import read_files
from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.engine.writer import write_files
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.store import open_store

pytestmark = pytest.mark.spark
PAIR = t.StructType([t.StructField("left", t.LongType()), t.StructField("right", t.StringType(), nullable=False)])
SCHEMA = t.StructType(
    [
        t.StructField("é b", t.StringType()),
        t.StructField("a", t.LongType(), nullable=False),
        t.StructField("at", t.TimestampType()),
        t.StructField("times", t.ArrayType(t.TimestampType())),
        t.StructField("pairs", t.ArrayType(PAIR, containsNull=False)),
        t.StructField("bag", t.MapType(t.DoubleType(), t.LongType(), valueContainsNull=False)),
        t.StructField("nested", t.MapType(PAIR, t.ArrayType(t.BooleanType()))),
        t.StructField("sketch", t.BinaryType()),
        t.StructField("status", t.IntegerType()),
    ]
)
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = [
    (
        "é\0",
        1,
        AT,
        [AT, None],
        [(1, "x"), (None, "y")],
        {0.5: 2, float("inf"): 1},
        {(1, "k"): [True, None]},
        b"\xff",
        7,
    ),
    (None, 2, None, None, None, None, None, None, None),
    ("", 3, AT, [], [], {}, {}, b"", -1),
]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def test_what_is_written_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    quick, root = interpreting(spark), tmp_path.as_uri()
    parts = [quick.createDataFrame([row], SCHEMA).coalesce(1) for row in ROWS]
    files = [file for n, rows in enumerate(parts) for file in write_files(rows, root, f"p/data/{n}", "state")]
    store = open_store(root)
    read = read_files(quick, store, files, SCHEMA)
    assert read.schema == SCHEMA
    expected = quick.createDataFrame(ROWS, SCHEMA).orderBy("a").collect()
    assert read.orderBy("a").collect() == expected
    assert store.requests.snapshot()["get"] == len(ROWS)
    assert read_files(quick, store, [], SCHEMA).collect() == []


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_file_that_is_not_what_was_written_is_named(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    quick, root = interpreting(spark), (tmp_path / "a b").as_uri()
    (file,) = write_files(quick.createDataFrame(ROWS, SCHEMA).coalesce(1), root, "p/data/0", "state")
    damage(tmp_path / "a b" / file.path)
    with pytest.raises(BrokenObjectError, match=f"{root}/{file.path} "), spark_errors():
        read_files(quick, open_store(root), [file], SCHEMA).collect()
