"""Reading files: what is a record in each format, what is a dead letter, and that Spark opens exactly these files."""

import gzip
import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from headrace.engine.errors import FileColumnsError, UnreadableFileError, spark_errors
from headrace.engine.plan import Plan
from headrace.engine.side_outputs import rejected_rows
from headrace.engine.source_planning import VanishedFileError
from headrace.engine.source_reading import numbered_records, open_batch, read_batches
from headrace.engine.types import SparkSession
from headrace.model.expr import DataType, coalesce, col, concat, lit
from headrace.pipeline import FileFormat, OnUnreadable
from tests.engine.source_fixtures import SCHEMA, T_MICROS, Landing, T, pipeline

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
    return json.dumps({"time": T, "user": "u", **values}) + "\n"


def table(**columns: Any) -> pa.Table:
    return pa.table({"time": pa.array([datetime(2013, 1, 1, 5)], pa.timestamp("us")), "user": ["u"]} | columns)


def land_parquet(landing: Landing, name: str, content: pa.Table) -> None:
    pq.write_table(content, landing.folder / name)


# --- names


def content_of(kind: FileFormat, number: int) -> bytes:
    if kind is JSON:
        return record(n=number).encode()
    if kind is CSV:
        return f"time,user,n\n{T},u,{number}\n".encode()
    sink = pa.BufferOutputStream()
    pq.write_table(table(n=[number]), sink)
    return bytes(sink.getvalue())


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


ACCEPTED_JSON = {
    "string that looks like a number": (record(user="5"), "5"),
    "string that looks like an object": (record(user='{"a":1}'), '{"a":1}'),
    "string that looks like a bool": (record(user="true"), "true"),
    "braces inside a string": (record(user="}{"), "}{"),
    "nested values that nobody asked for": (record(user="v", other={"a": {"b": [{}]}}), "v"),
    "the last of a repeated name": (record().replace('"user": "u"', '"user": "u", "user": "v"'), "v"),
    "the last of a repeated name, looked at twice": (record().replace('"user": "u"', '"user": "u", "user": "7"'), "7"),
    "blanks around it": ("  " + record(user="v").strip() + " \t\r\n", "v"),
}


def test_json_that_looks_odd_and_is_right(landing: Landing) -> None:
    landing.write("a.json", "".join(line.rstrip("\n") + "\n" for line, _ in ACCEPTED_JSON.values()))
    found = [(row["_reject"], row["user"]) for row in landing.read(pipeline(JSON))]
    assert found == [(None, user) for _, user in ACCEPTED_JSON.values()]


NOT_AN_OBJECT = "not a JSON object"
REJECTED_JSON = [
    ("torn", record()[:-5], NOT_AN_OBJECT),
    ("two on a line", record().strip() + record(), NOT_AN_OBJECT),
    ("two with a comma", record().strip() + "," + record(), NOT_AN_OBJECT),
    ("two with a blank", record().strip() + " " + record(), NOT_AN_OBJECT),
    ("something after it", record().strip() + " x", NOT_AN_OBJECT),
    ("null after it", record().strip() + ",null", NOT_AN_OBJECT),
    ("array", f"[{record().strip()}]", NOT_AN_OBJECT),
    ("null", "null", NOT_AN_OBJECT),
    ("number", "17", NOT_AN_OBJECT),
    ("string", '"x"', NOT_AN_OBJECT),
    ("single quotes", record().replace('"', "'"), NOT_AN_OBJECT),
    ("trailing comma", record().replace('"u"', '"u",'), NOT_AN_OBJECT),
    ("bare NaN", record(x=0).replace('"x": 0', '"x": NaN'), NOT_AN_OBJECT),
    ("not UTF-8 garbage", "\x00\x01", NOT_AN_OBJECT),
    ("fraction in int", record(n=3.5), "column n: not an int"),
    ("3.0 in int", record(n=3.0), "column n: not an int"),
    ("exponent in int", record(n=0).replace('"n": 0', '"n": 1e3'), "column n: not an int"),
    ("more than 64 bits", record(n=2**63), "column n: not an int"),
    ("string in int", record(n="3"), "column n: not an int"),
    ("bool in int", record(n=True), "column n: not an int"),
    ("string in float", record(x="2.5"), "column x: not a float"),
    ("NaN string in float", record(x="NaN"), "column x: not a float"),
    ("empty string in float", record(x=""), "column x: not a float"),
    ("string in bool", record(ok="true"), "column ok: not a bool"),
    ("number in bool", record(ok=1), "column ok: not a bool"),
    ("number in string", record(user=5), "column user: not a string"),
    ("bool in string", record(user=True), "column user: not a string"),
    ("object in string", record(user={"a": 1}), "column user: not a string"),
    ("array in string", record(user=["a"]), "column user: not a string"),
    ("number in timestamp", record(time=1357016400), "column time: not a timestamp"),
    ("year in timestamp", record(time="2013"), "column time: not a timestamp"),
    ("time of day in timestamp", record(time="05:00"), "column time: not a timestamp"),
    ("no such day", record(time="2013-02-30T05:00:00Z"), "column time: not a timestamp"),
    ("two wrong columns: the first declared", record(n="1", x="1"), "column n: not an int"),
    ("no event time", json.dumps({"user": "u"}), "event time is null"),
    ("null event time", record(time=None), "event time is null"),
    ("no key", json.dumps({"time": T}), "key is null: user"),
    ("before 1900", record(time="1899-12-31T23:59:59.999999Z"), "event time is outside the years 1900 to 9998"),
    ("for never", record(time="9999-12-31T00:00:00Z"), "event time is outside the years 1900 to 9998"),
    ("after 9999", record(time="+10000-01-01T00:00:00Z"), "column time: not a timestamp"),
]


def test_json_rejects_name_file_position_reason_and_text(landing: Landing) -> None:
    lines = [line.rstrip("\n") + "\n" for _, line, _ in REJECTED_JSON]
    landing.write("a.json", "\n" + "".join(line + record() for line in lines))
    tested = pipeline(JSON)
    batch = landing.open(tested)
    expected = [
        ("landing/a.json", 1 + 2 * number, reason, line.rstrip("\n"))
        for number, (line, (_, _, reason)) in enumerate(zip(lines, REJECTED_JSON, strict=True))
    ]
    assert landing.rejected(tested, batch) == expected
    accepted = [row for row in landing.read(tested, batch) if row["_reject"] is None]
    assert len(accepted) == len(REJECTED_JSON)


def test_bytes_that_are_no_text_are_a_dead_letter_that_any_reader_can_read(landing: Landing) -> None:
    landing.write("a.json", b'{"time": \xff\xfe}\n')
    assert landing.rejected(pipeline(JSON)) == [("landing/a.json", 0, NOT_AN_OBJECT, '{"time": ��}')]


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


def test_csv_rejects(landing: Landing) -> None:
    lines = {
        f"{T},u,1": "not 5 fields, as the header has",
        f"{T},u,1,2,true,x": "not 5 fields, as the header has",
        f"{T},u,1,2,\"true": "a quote is not closed on its line",
        f"{T},u,3.0,2,true": "column n: not an int",
        f"{T},u,1,2d,true": "column x: not a float",
        f"{T},u,1,2,maybe": "column ok: not a bool",
        "05:00,u,1,2,true": "column time: not a timestamp",
        ",u,1,2,true": "event time is null",
        f"{T},,1,2,true": "key is null: user",
    }  # fmt: skip
    landing.write("a.csv", "time,user,n,x,ok\n" + "\n".join([*lines, f"{T},u,1,2,true"]) + "\n")
    expected = [("landing/a.csv", n, reason, line) for n, (line, reason) in enumerate(lines.items(), 1)]
    assert landing.rejected(pipeline(CSV)) == expected


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


# --- files that cannot be read

BROKEN: dict[str, tuple[FileFormat, Callable[[Landing], object], type[UnreadableFileError], str]] = {
    "torn footer": (
        PARQUET,
        lambda at: _cut(at, table(), 5),
        UnreadableFileError,
        "it has no Parquet footer",
    ),
    "no Parquet at all": (
        PARQUET,
        lambda at: at.write("bad.x", b"not parquet, but long enough to hold a footer"),
        UnreadableFileError,
        "it has no Parquet footer",
    ),
    "a lying footer": (
        PARQUET,
        lambda at: at.write("bad.x", b"PAR1" + b"\0" * 20 + b"\xff\xff\xff\x7fPAR1"),
        UnreadableFileError,
        "its Parquet footer is longer than the file",
    ),
    "garbage in the footer": (
        PARQUET,
        lambda at: at.write("bad.x", b"PAR1" + b"\xff" * 20 + b"\x14\x00\x00\x00PAR1"),
        UnreadableFileError,
        "its Parquet footer is broken",
    ),
    "another type": (
        PARQUET,
        lambda at: land_parquet(at, "bad.x", table(n=pa.array([1.0]))),
        FileColumnsError,
        "its column n is double, and the source says int",
    ),
    "no event time": (
        PARQUET,
        lambda at: land_parquet(at, "bad.x", pa.table({"user": ["u"]})),
        FileColumnsError,
        "its schema lacks column time, without which every record has no event time",
    ),
    "no key in the header": (
        CSV,
        lambda at: at.write("bad.x", f"time,n\n{T},1\n"),
        FileColumnsError,
        "its header lacks column user, without which every record has no key user",
    ),
    "a column twice": (
        CSV,
        lambda at: at.write("bad.x", f"time,user,user\n{T},1,2\n"),
        FileColumnsError,
        "its header names column user 2 times",
    ),
    "a column twice in a schema": (
        PARQUET,
        lambda at: land_parquet(at, "bad.x", pa.table([*table().columns, ["v"]], names=["time", "user", "user"])),
        FileColumnsError,
        "its schema names column user 2 times",
    ),
    "torn gzip header": (
        CSV,
        lambda at: at.write("bad.csv.gz", gzip.compress(b"time,user\n")[:12]),
        UnreadableFileError,
        "EOFException",
    ),
}


def _cut(landing: Landing, content: pa.Table, count: int) -> None:
    land_parquet(landing, "bad.x", content)
    file = landing.folder / "bad.x"
    file.write_bytes(file.read_bytes()[:-count])


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_read_fails_the_run_or_is_a_dead_letter(landing: Landing, case: str) -> None:
    kind, land, error, reason = BROKEN[case]
    land(landing)
    (bad,) = landing.folder.iterdir()
    landing.write("good.x", content_of(kind, 4))
    with pytest.raises(error, match=f"landing/{bad.name}") as caught:
        landing.open(pipeline(kind))
    assert reason in str(caught.value)
    tolerant = pipeline(kind, on_unreadable=OnUnreadable.DEAD_LETTER)
    ((file, position, found, raw),) = landing.rejected(tolerant)
    assert (file, position, raw) == (f"landing/{bad.name}", None, None)
    assert reason in found
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
