"""Reading files: what is a record in each format, what is a dead letter, and that Spark opens exactly these files."""

import gzip
import json
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from headrace.engine.errors import (
    spark_errors,
)
from headrace.engine.plan import Plan
from headrace.engine.side_outputs import rejected_rows
from headrace.engine.source_reading import numbered_records, open_batch, read_batches
from headrace.engine.types import SparkSession
from headrace.model.expr import DataType, coalesce, col, concat, lit
from headrace.pipeline import FileFormat, OnUnreadable, Pipeline
from headrace.sources.errors import FileColumnsError, UnreadableFileError
from headrace.sources.planning import VanishedFileError
from tests.corpus import SCHEMA, T_MICROS, BrokenFile, Line, T, csv_lines, json_lines
from tests.corpus.files import OPENED, not_utf8, parquet, table
from tests.engine.source_fixtures import Landing, pipeline

pytestmark = pytest.mark.spark

JSON, CSV, PARQUET = FileFormat.JSON, FileFormat.CSV, FileFormat.PARQUET
ODD_NAMES = [
    "a[1]", "b{2}", "sp ace", "p%41", "q?", "st*", "back\\slash", "co:lon", "co:l[1]", "plus+", "ü", "hash#", "x,y",
    "=k", "quo'te", 'quo"te', "day=1/x",
]  # fmt: skip


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path / "odd [root] %41")


def record(**values: Any) -> str:
    return json_lines.record(**values) + "\n"


def land_parquet(landing: Landing, name: str, content: pa.Table) -> None:
    pq.write_table(content, landing.folder / name)


# --- names


def content_of(kind: FileFormat, number: int) -> bytes:
    if kind is JSON:
        return record(n=number).encode()
    if kind is CSV:
        return f"time,user,n\n{T},u,{number}\n".encode()
    return parquet(table(n=[number]))


@pytest.mark.parametrize("kind", [JSON, CSV, PARQUET])
def test_spark_opens_exactly_the_files_of_the_batch(landing: Landing, kind: FileFormat) -> None:
    for number, name in enumerate(ODD_NAMES):
        landing.write(f"{name}.x", content_of(kind, number))
    tested = pipeline(kind)
    batch = landing.open(tested)
    landing.write("a1.x", content_of(kind, 100))  # what a[1].x would match as a pattern
    landing.write("pA.x", content_of(kind, 100))  # what p%41.x would be, decoded
    found = {row["_file"]: row["_in_0"] for row in landing.read(tested, batch)}
    assert found == {f"landing/{name}.x": number for number, name in enumerate(ODD_NAMES)}


def test_empty_files_have_no_records(landing: Landing) -> None:
    landing.write("a.json", b"")
    assert landing.read(pipeline(JSON)) == []
    assert landing.read(pipeline(CSV)) == []
    assert landing.read(pipeline(PARQUET)) == []
    rowless = pa.table({"time": pa.array([], pa.timestamp("us", "UTC")), "user": pa.array([], pa.string())})
    land_parquet(landing, "b.parquet", rowless)
    assert landing.open(pipeline(PARQUET)).groups == {}
    assert landing.read(pipeline(PARQUET)) == []


# --- JSON lines


def test_json_records_are_judged(landing: Landing) -> None:
    landing.write("a.json", record(n=1, x=2, ok=True, other=[1]) + "\n  \t\r\n" + record(n=None))
    tested = pipeline(JSON, filter=col("ok"), split=col("user"))
    first, second = landing.read(tested)
    assert first == {
        "_input": "source",
        "_file": "landing/a.json",
        "_reject": None,
        "_raw": record(n=1, x=2, ok=True, other=[1]).strip(),
        "_event_time": T_MICROS,
        "_mark": T_MICROS,
        "_split": "u",
        "_admitted": True,
        "user": "u",
        "_in_0": 1,
        "_in_1": 2.0,
    }
    assert (second["_reject"], second["_admitted"], second["_in_0"], second["_in_1"]) == (None, False, None, None)


def test_json_lines_are_judged_as_the_corpus_says(landing: Landing) -> None:
    landing.write("a.json", b"".join(line.text + b"\n" for line in json_lines.LINES))
    check_lines(landing, pipeline(JSON), json_lines.LINES)


def check_lines(landing: Landing, tested: Pipeline, lines: Sequence[Line], first: int = 0) -> None:
    """The only file of ``landing`` holds ``lines``, behind ``first`` others, and each is judged as it says."""
    batch = landing.open(tested)
    numbered = list(enumerate(lines, first))
    dead = {position: (reason, raw) for _, position, reason, raw in landing.rejected(tested, batch)}
    expected = {n: (line.reason, line.text.decode(errors="replace")) for n, line in numbered if line.reason}
    assert {n: reason for n, (reason, _) in dead.items()} == {n: reason for n, (reason, _) in expected.items()}
    bytes_of = {n: line.text for n, line in numbered if line.reason == json_lines.NOT_UTF8}
    assert landing.rejected_bytes(tested, batch) == bytes_of
    assert {n: found for n, found in dead.items() if n not in bytes_of} == {
        n: wanted for n, wanted in expected.items() if n not in bytes_of
    }
    names = {"time": "_event_time", "user": "user", "n": "_in_0", "x": "_in_1"}
    found = [row for row in landing.read(tested, batch) if row["_reject"] is None]
    for line, row in zip([line for line in lines if line.reason is None], found, strict=True):
        assert {name: row[names[name]] for name in line.values} == line.values, line.name


def test_what_is_no_text_merges_with_nothing(landing: Landing) -> None:
    """Two bytes that are no UTF-8 looked like one character, and so did all halves of characters."""
    keys = ["a", "\ufffd", "?"]
    landing.write("a.json", b"".join(line.text + b"\n" for line in json_lines.STRINGS))
    landing.write("b.json", "".join(json_lines.record(user=key) + "\n" for key in keys))
    found = [row["user"] for row in landing.read(pipeline(JSON)) if row["_reject"] is None]
    assert found == [*(line.values["user"] for line in json_lines.STRINGS if line.reason is None), *keys]


def test_column_names_may_hold_anything(landing: Landing) -> None:
    schema = {"time": DataType.TIMESTAMP, "a.b": DataType.STRING, "c`d": DataType.INT, 'q"': DataType.STRING}
    values = {"a.b": "1", "c`d": 2, 'q"': "3"}
    landing.write("a.json", json.dumps({"time": T, **values}))
    keys = {name: f"key_{number}" for number, name in enumerate(values)}
    tested = pipeline(JSON, schema={**SCHEMA, **schema}, key={key: col(name) for name, key in keys.items()})
    (row,) = landing.read(tested)
    assert row["_reject"] is None
    assert {name: row[key] for name, key in keys.items()} == values


# --- positions


def test_positions_are_exact_in_split_and_packed_files(landing: Landing) -> None:
    spark = landing.spark
    bad = {"a.json": [0, 1234, 2999], "b.json": [5], "c.json": [], "d.json": [0, 1, 2]}
    lines = {"a.json": 3000, "b.json": 40, "c.json": 50, "d.json": 3}
    for name, count in lines.items():
        landing.write(name, "".join("bad\n" if i in bad[name] else record(n=i) for i in range(count)))
    landing.write("e.json.gz", gzip.compress((record() * 7 + "bad\n").encode()))
    before = spark.conf.get("spark.sql.files.maxPartitionBytes"), spark.conf.get("spark.sql.files.openCostInBytes")
    try:
        spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
        spark.conf.set("spark.sql.files.openCostInBytes", "100")
        tested = pipeline(JSON)
        batch = landing.open(tested)
        partitions = read_batches(spark, tested, Plan(tested.stages[0]), [batch]).rdd.getNumPartitions()
        found = [(file, position) for file, position, _, _ in landing.rejected(tested, batch)]
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before[0]))
        spark.conf.set("spark.sql.files.openCostInBytes", str(before[1]))
    assert partitions > 3  # a.json alone is split
    expected = [(f"landing/{name}", position) for name, positions in bad.items() for position in positions]
    assert found == [*expected, ("landing/e.json.gz", 7)]


# --- CSV


def test_csv_headers_give_the_order_of_each_file(landing: Landing) -> None:
    landing.write("a.csv", f"time,user,n,x,ok\r\n{T},u,1,2.5,true\r\n\r\n{T},v,,,\r\n")
    landing.write("b.csv", '\ufeffother,ok,user,time\n"a, ""b""",false,"w ""q""",2013-01-01\n')
    landing.write("c.csv", "user,time\n")
    landing.write("d.csv.gz", gzip.compress(f"user,time\nz,{T}\nuser,time\ny,{T}\n".encode()))
    found = [(r["_reject"], r["user"], r["_event_time"], r["_in_0"], r["_in_1"]) for r in landing.read(pipeline(CSV))]
    assert found == [
        (None, "u", T_MICROS, 1, 2.5),
        (None, "v", T_MICROS, None, None),
        (None, 'w "q"', T_MICROS - 5 * 3_600_000_000, None, None),
        (None, "z", T_MICROS, None, None),
        (None, "y", T_MICROS, None, None),
    ]


def test_csv_lines_are_judged_as_the_corpus_says(landing: Landing) -> None:
    landing.write("a.csv", csv_lines.HEADER.encode() + b"\n" + b"".join(line.text + b"\n" for line in csv_lines.LINES))
    check_lines(landing, pipeline(CSV), csv_lines.LINES, first=1)


# --- Parquet


def test_parquet_files_of_different_schemas_are_read_together(landing: Landing) -> None:
    day, moment = date(2013, 1, 1), datetime(2013, 1, 1, 5)
    nanoseconds = pa.array([T_MICROS * 1000 + 999], pa.timestamp("ns"))
    land_parquet(landing, "a.parquet", table(n=pa.array([1], pa.int64()), x=pa.array([1.5], pa.float64())))
    land_parquet(landing, "b.parquet", table(n=pa.array([2], pa.int8()), x=pa.array([0.5], pa.float32()), more=["x"]))
    land_parquet(landing, "c.parquet", table(time=nanoseconds, n=pa.array([2**32 - 1], pa.uint32())))
    land_parquet(landing, "d.parquet", table(time=pa.array([day]), x=pa.array([2**40], pa.int64()), n=pa.nulls(1)))
    land_parquet(landing, "e.parquet", table(time=pa.array([moment], pa.timestamp("ms", "UTC"))))
    land_parquet(landing, "f.parquet", table(user=pa.array(["w"]).dictionary_encode()))
    before_1970 = pa.array([-1_001], pa.timestamp("ns"))
    land_parquet(landing, "g.parquet", table(time=before_1970))
    found = [
        (row["_reject"], row["user"], row["_event_time"], row["_in_0"], row["_in_1"])
        for row in landing.read(pipeline(PARQUET))
    ]
    assert found == [
        (None, "u", T_MICROS, 1, 1.5),
        (None, "u", T_MICROS, 2, 0.5),
        (None, "u", T_MICROS, 2**32 - 1, None),
        (None, "u", T_MICROS - 5 * 3_600_000_000, None, float(2**40)),
        (None, "u", T_MICROS, None, None),
        (None, "w", T_MICROS, None, None),
        (None, "u", -2, None, None),
    ]


def test_parquet_rejects_have_the_row_number_and_the_row(landing: Landing) -> None:
    times = pa.array([datetime(2013, 1, 1, 5), None, datetime(2013, 1, 1, 5, 0, 0, 123456)], pa.timestamp("us"))
    land_parquet(landing, "a.parquet", pa.table({"time": times, "user": ["u", "v", None]}))
    (first, second) = landing.rejected(pipeline(PARQUET))
    assert first[:3] == ("landing/a.parquet", 1, "event time is null")
    assert json.loads(first[3] or "") == {"time": None, "user": "v", "n": None, "x": None, "ok": None}
    assert second[:3] == ("landing/a.parquet", 2, "key is null: user")
    assert json.loads(second[3] or "")["time"] == "2013-01-01T05:00:00.123456Z"


def test_parquet_strings_that_are_not_utf8_are_dead_letters(landing: Landing) -> None:
    users = not_utf8(b"u", b"a\xffb", b"a\xfeb", b"\xef\xbf\xbd")
    land_parquet(landing, "a.parquet", pa.table({"time": [datetime(2013, 1, 1, 5)] * 4, "user": users}))
    tested = pipeline(PARQUET)
    dead = [(position, reason) for _, position, reason, _ in landing.rejected(tested)]
    assert dead == [(1, "column user: not UTF-8"), (2, "column user: not UTF-8")]
    assert [row["user"] for row in landing.read(tested) if row["_reject"] is None] == ["u", "\ufffd"]


# --- files that cannot be read

FILES = [pytest.param(kind, file, id=file.name) for kind, files in OPENED.items() for file in files]


@pytest.mark.parametrize(("kind", "broken"), FILES)
def test_a_file_that_cannot_be_read_fails_the_run_or_is_a_dead_letter(
    landing: Landing, kind: FileFormat, broken: BrokenFile
) -> None:
    landing.write(broken.file, broken.content)
    landing.write("good.x", content_of(kind, 4))
    with pytest.raises(UnreadableFileError, match=f"landing/{broken.file}") as caught:
        landing.open(pipeline(kind))
    assert broken.reason in str(caught.value)
    tolerant = pipeline(kind, on_unreadable=OnUnreadable.DEAD_LETTER)
    ((file, position, found, raw),) = landing.rejected(tolerant)
    assert (file, position, raw) == (f"landing/{broken.file}", None, None)
    assert broken.reason in found
    assert [(r["_file"], r["_in_0"]) for r in landing.read(tolerant) if r["_reject"] is None] == [("landing/good.x", 4)]


def test_a_column_that_the_key_can_do_without_may_be_missing(landing: Landing) -> None:
    landing.write("a.csv", f"time,n\n{T},1\n")
    (row,) = landing.read(pipeline(CSV, key={"who": coalesce(col("user"), lit("nobody"))}))
    assert (row["_reject"], row["who"]) == (None, "nobody")
    with pytest.raises(FileColumnsError, match="lacks column user"):
        landing.open(pipeline(CSV, key={"who": concat(col("user"), "!")}))


def test_a_file_torn_inside_is_named_and_can_be_left_out(landing: Landing) -> None:
    landing.write("good.json", record(n=4))
    torn = gzip.compress("".join(record(n=i) for i in range(30_000)).encode())
    landing.write("to[r]n.json.gz", torn[: len(torn) // 2])
    tested = pipeline(JSON, on_unreadable=OnUnreadable.DEAD_LETTER)
    batch = landing.open(tested)
    with (
        pytest.raises(UnreadableFileError, match=r"to\[r\]n.json.gz cannot be read: EOFException") as caught,
        spark_errors(),
    ):
        read_batches(landing.spark, tested, Plan(tested.stages[0]), [batch]).collect()
    rest = batch.without(caught.value)
    assert rest is not None
    assert [(row["_file"], row["_in_0"]) for row in landing.read(tested, rest)] == [
        ("landing/good.json", 4),
        ("landing/to[r]n.json.gz", None),
    ]
    ((file, _, reason, _),) = landing.rejected(tested, rest)
    assert file == "landing/to[r]n.json.gz"
    assert "EOFException" in reason
    assert rest.without(caught.value) is None, "it is left out already"


@pytest.mark.parametrize("when", ["before it is opened", "before Spark lists it", "before Spark reads it"])
def test_a_file_that_vanishes_is_a_clear_error(landing: Landing, when: str) -> None:
    landing.write("a%41.parquet", content_of(PARQUET, 1))
    tested, spark = pipeline(PARQUET), landing.spark
    files = landing.files(tested)

    def vanish(now: str) -> None:
        if now == when:
            (landing.folder / "a%41.parquet").unlink()

    with pytest.raises(VanishedFileError, match=r"a%41\.parquet was listed and is gone"), spark_errors():
        vanish("before it is opened")
        batch = open_batch(spark, tested, tested.inputs[0], files, landing.store.uri)
        vanish("before Spark lists it")
        judged = read_batches(spark, tested, Plan(tested.stages[0]), [batch])
        vanish("before Spark reads it")
        judged.collect()


# --- plans


@pytest.mark.parametrize("kind", [JSON, CSV, PARQUET])
def test_a_read_is_one_scan_without_python_or_exchange(landing: Landing, kind: FileFormat) -> None:
    for number in range(3):
        landing.write(f"{number}.x", content_of(kind, number))
    tested = pipeline(kind, filter=col("n") > 0)
    batch = landing.open(tested)
    plan = plan_of(read_batches(landing.spark, tested, Plan(tested.stages[0]), [batch]))
    assert plan.count("FileScan") == 1
    for node in ("Exchange", "Join", "Union", "Python", "Pandas", "Arrow"):
        assert node not in plan
    dead = plan_of(rejected_rows(numbered_records(landing.spark, tested, Plan(tested.stages[0]), [batch]), 1))
    assert "Python" not in dead
    assert "SortMergeJoin" not in dead


def test_a_parquet_read_takes_only_the_columns_that_are_used(landing: Landing) -> None:
    landing.write("a.x", content_of(PARQUET, 1))
    tested = pipeline(PARQUET)
    judged = read_batches(landing.spark, tested, Plan(tested.stages[0]), [landing.open(tested)])
    plan = plan_of(judged.where(f.col("_reject").isNull()).groupBy("user").agg(f.max("_event_time")))
    assert "ReadSchema: struct<time:timestamp,user:string>" in plan


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
