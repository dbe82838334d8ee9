"""Landed files as an epoch reads them: judged records, stored dead letters, and files that cannot be read."""

import gzip
import json
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import DataType, Pipeline, coalesce, col, concat, lit
from headrace.errors import FileColumnsError, UnreadableFileError, VanishedFileError
from tests.corpus import SCHEMA, T_MICROS, BrokenFile, Line, T, csv_lines, json_lines, positions
from tests.corpus.files import FAILING_ON_OPEN, TORN_FILES, not_utf8, parquet, table
from tests.sources.landed import LandedFiles, pipeline

JSON, CSV, PARQUET = "json", "csv", "parquet"
ODD_NAMES = [
    "a[1]", "b{2}", "sp ace", "p%41", "q?", "st*", "back\\slash", "co:lon", "co:l[1]", "plus+", "ü", "hash#", "x,y",
    "=k", "quo'te", 'quo"te', "day=1/x",
]  # fmt: skip


@pytest.fixture
def landed_files(tmp_path: Path) -> LandedFiles:
    return LandedFiles(tmp_path / "odd [root] %41")


def record(**values: object) -> str:
    return json_lines.record(**values) + "\n"


def land_parquet(landed_files: LandedFiles, name: str, content: pa.Table) -> None:
    pq.write_table(content, landed_files.folder / name)


# --- names


def content_of(kind: str, number: int) -> bytes:
    if kind is JSON:
        return record(n=number).encode()
    if kind is CSV:
        return f"time,user,n\n{T},u,{number}\n".encode()
    return parquet(table(n=[number]))


@pytest.mark.parametrize("kind", [JSON, CSV, PARQUET])
def test_an_epoch_reads_exactly_its_files(landed_files: LandedFiles, kind: str) -> None:
    for number, name in enumerate(ODD_NAMES):
        landed_files.write(f"{name}.x", content_of(kind, number))
    tested_pipeline = pipeline(kind)
    files = landed_files.files(tested_pipeline)
    landed_files.write("a1.x", content_of(kind, 100))  # what a[1].x would match as a pattern
    landed_files.write("pA.x", content_of(kind, 100))  # what p%41.x would be, decoded
    number_by_file = {row["file"]: row["_in_0"] for row in landed_files.read(tested_pipeline, files)}
    assert number_by_file == {f"landing/{name}.x": number for number, name in enumerate(ODD_NAMES)}


def test_empty_files_have_no_records(landed_files: LandedFiles) -> None:
    landed_files.write("a.json", b"")
    for kind in (JSON, CSV, PARQUET):
        assert landed_files.read(pipeline(kind)) == []
    rowless = pa.table({"time": pa.array([], pa.timestamp("us", "UTC")), "user": pa.array([], pa.string())})
    land_parquet(landed_files, "b.parquet", rowless)
    assert landed_files.read(pipeline(PARQUET)) == []


# --- records and dead letters


def test_records_are_judged(landed_files: LandedFiles) -> None:
    landed_files.write("a.json", record(n=1, x=2, ok=True, other=[1]) + "\n  \t\r\n" + record(n=None))
    tested_pipeline = pipeline(JSON, filter=col("ok"), split=col("user"))
    first, second = landed_files.read(tested_pipeline)
    assert first == {
        "file": "landing/a.json",
        "_reject": None,
        "_event_time": T_MICROS,
        "_mark": T_MICROS,
        "_split": "u",
        "_admitted": True,
        "user": "u",
        "_in_0": 1,
        "_in_1": 2.0,
    }
    assert (second["_reject"], second["_admitted"], second["_in_0"], second["_in_1"]) == (None, False, None, None)


CORPUS = {JSON: ("", json_lines.LINES), CSV: (csv_lines.HEADER + "\n", csv_lines.LINES)}


@pytest.mark.parametrize("kind", CORPUS)
def test_dead_letters_are_stored_as_the_corpus_says(landed_files: LandedFiles, kind: str) -> None:
    header, lines = CORPUS[kind]
    landed_files.write("a.x", header.encode() + b"".join(line.text + b"\n" for line in lines))
    dead = [
        (position, line) for position, line in zip(positions(lines, bool(header)), lines, strict=True) if line.reason
    ]
    assert landed_files.dead_letters(pipeline(kind)) == [
        {
            "input": "source",
            "file": "landing/a.x",
            "position": number,
            "reason": line.reason,
            "raw": line.text.removesuffix(b"\r").decode(errors="replace"),
            "raw_bytes": line.text if line.reason == json_lines.NOT_UTF8 else None,
            "epoch": 0,
        }
        for number, line in dead
    ]
    check_accepted(landed_files, pipeline(kind), lines)


def check_accepted(landed_files: LandedFiles, tested_pipeline: Pipeline, lines: Sequence[Line]) -> None:
    """What no reason speaks against is accepted, with its values."""
    names = {"time": "_event_time", "user": "user", "n": "_in_0", "x": "_in_1"}
    rows = [row for row in landed_files.read(tested_pipeline) if row["_reject"] is None]
    for line, row in zip([line for line in lines if line.reason is None], rows, strict=True):
        assert {name: row[names[name]] for name in line.values} == line.values, line.name


def test_what_is_no_text_merges_with_nothing(landed_files: LandedFiles) -> None:
    """Two bytes that are no UTF-8 looked like one character, and so did all halves of characters."""
    keys = ["a", "\ufffd", "?"]
    landed_files.write("a.json", b"".join(line.text + b"\n" for line in json_lines.STRINGS))
    landed_files.write("b.json", "".join(json_lines.record(user=key) + "\n" for key in keys))
    users = [row["user"] for row in landed_files.read(pipeline(JSON)) if row["_reject"] is None]
    assert users == [*(line.values["user"] for line in json_lines.STRINGS if line.reason is None), *keys]


def test_column_names_may_hold_anything(landed_files: LandedFiles) -> None:
    schema = {"time": DataType.TIMESTAMP, "a.b": DataType.STRING, "c`d": DataType.INT, 'q"': DataType.STRING}
    values = {"a.b": "1", "c`d": 2, 'q"': "3"}
    landed_files.write("a.json", json.dumps({"time": T, **values}))
    keys = {name: f"key_{number}" for number, name in enumerate(values)}
    tested_pipeline = pipeline(JSON, schema={**SCHEMA, **schema}, key={key: col(name) for name, key in keys.items()})
    (row,) = landed_files.read(tested_pipeline)
    assert row["_reject"] is None
    assert {name: row[key] for name, key in keys.items()} == values


def test_positions_count_the_lines_of_each_file(landed_files: LandedFiles) -> None:
    bad = {"a.json": [0, 1234, 2999], "b.json": [5], "c.json": [], "d.json": [0, 1, 2]}
    lines = {"a.json": 3000, "b.json": 40, "c.json": 50, "d.json": 3}
    for name, count in lines.items():
        landed_files.write(name, "".join("bad\n" if i in bad[name] else record(n=i) for i in range(count)))
    landed_files.write("e.json.gz", gzip.compress((record() * 7 + "bad\n").encode()))
    pairs = [(row["file"], row["position"]) for row in landed_files.dead_letters(pipeline(JSON))]
    expected = [(f"landing/{name}", position) for name, positions in bad.items() for position in positions]
    assert pairs == [*expected, ("landing/e.json.gz", 7)]


@pytest.mark.parametrize("kind", [JSON, PARQUET])
def test_records_arrive_by_file_and_row(landed_files: LandedFiles, kind: str) -> None:
    for number, name in enumerate(["a-1", "a", "b"]):
        values = range(number * 100, number * 100 + 100)
        if kind is JSON:
            landed_files.write(f"{name}.x", "".join(record(n=n) + "\n" for n in values))
        else:
            rows = pa.concat_tables([table(n=[n]) for n in values])
            pq.write_table(rows, landed_files.folder / f"{name}.x", row_group_size=10)
    assert [row["_in_0"] for row in landed_files.read(pipeline(kind))] == list(range(300))


# --- CSV


def test_csv_headers_give_the_order_of_each_file(landed_files: LandedFiles) -> None:
    landed_files.write("a.csv", f"time,user,n,x,ok\r\n{T},u,1,2.5,true\r\n\r\n{T},v,,,\r\n")
    landed_files.write("b.csv", '\ufeffother,ok,user,time\n"a, ""b""",false,"w ""q""",2013-01-01\n')
    landed_files.write("c.csv", "user,time\n")
    landed_files.write("d.csv.gz", gzip.compress(f"user,time\nz,{T}\nuser,time\ny,{T}\n".encode()))
    rows = [
        (r["_reject"], r["user"], r["_event_time"], r["_in_0"], r["_in_1"]) for r in landed_files.read(pipeline(CSV))
    ]
    assert rows == [
        (None, "u", T_MICROS, 1, 2.5),
        (None, "v", T_MICROS, None, None),
        (None, 'w "q"', T_MICROS - 5 * 3_600_000_000, None, None),
        (None, "z", T_MICROS, None, None),
        (None, "y", T_MICROS, None, None),
    ]


# --- Parquet


def test_parquet_files_of_different_schemas_are_read_together(landed_files: LandedFiles) -> None:
    day, moment = date(2013, 1, 1), datetime(2013, 1, 1, 5)
    nanoseconds = pa.array([T_MICROS * 1000 + 999], pa.timestamp("ns"))
    land_parquet(landed_files, "a.parquet", table(n=pa.array([1], pa.int64()), x=pa.array([1.5], pa.float64())))
    land_parquet(
        landed_files, "b.parquet", table(n=pa.array([2], pa.int8()), x=pa.array([0.5], pa.float32()), more=["x"])
    )
    land_parquet(landed_files, "c.parquet", table(time=nanoseconds, n=pa.array([2**32 - 1], pa.uint32())))
    land_parquet(landed_files, "d.parquet", table(time=pa.array([day]), x=pa.array([2**40], pa.int64()), n=pa.nulls(1)))
    land_parquet(landed_files, "e.parquet", table(time=pa.array([moment], pa.timestamp("ms", "UTC"))))
    land_parquet(landed_files, "f.parquet", table(user=pa.array(["w"]).dictionary_encode()))
    before_1970 = pa.array([-1_001], pa.timestamp("ns"))
    land_parquet(landed_files, "g.parquet", table(time=before_1970))
    rows = [
        (row["_reject"], row["user"], row["_event_time"], row["_in_0"], row["_in_1"])
        for row in landed_files.read(pipeline(PARQUET))
    ]
    assert rows == [
        (None, "u", T_MICROS, 1, 1.5),
        (None, "u", T_MICROS, 2, 0.5),
        (None, "u", T_MICROS, 2**32 - 1, None),
        (None, "u", T_MICROS - 5 * 3_600_000_000, None, float(2**40)),
        (None, "u", T_MICROS, None, None),
        (None, "w", T_MICROS, None, None),
        (None, "u", -2, None, None),
    ]


def test_parquet_rejects_have_the_row_number_and_the_row(landed_files: LandedFiles) -> None:
    times = pa.array([datetime(2013, 1, 1, 5), None, datetime(2013, 1, 1, 5, 0, 0, 123456)], pa.timestamp("us"))
    land_parquet(landed_files, "a.parquet", pa.table({"time": times, "user": ["u", "v", None]}))
    (first, second) = landed_files.dead_letters(pipeline(PARQUET))
    assert (first["file"], first["position"], first["reason"]) == ("landing/a.parquet", 1, "event time is null")
    assert json.loads(first["raw"]) == {"time": None, "user": "v", "n": None, "x": None, "ok": None}
    assert (second["position"], second["reason"]) == (2, "key is null: user")
    assert json.loads(second["raw"])["time"] == "2013-01-01T05:00:00.123456Z"


def test_parquet_strings_that_are_not_utf8_are_dead_letters(landed_files: LandedFiles) -> None:
    users = not_utf8(b"u", b"a\xffb", b"a\xfeb", b"\xef\xbf\xbd")
    land_parquet(landed_files, "a.parquet", pa.table({"time": [datetime(2013, 1, 1, 5)] * 4, "user": users}))
    tested_pipeline = pipeline(PARQUET)
    dead = [(row["position"], row["reason"]) for row in landed_files.dead_letters(tested_pipeline)]
    assert dead == [(1, "column user: not UTF-8"), (2, "column user: not UTF-8")]
    assert [row["user"] for row in landed_files.read(tested_pipeline) if row["_reject"] is None] == ["u", "\ufffd"]


# --- files that cannot be read

FILES = [
    pytest.param(kind, file, id=f"{kind}: {file.name}")
    for group in (FAILING_ON_OPEN, TORN_FILES)
    for kind, files in group.items()
    for file in files
]


@pytest.mark.parametrize(("kind", "bad_file"), FILES)
def test_a_file_that_cannot_be_read_fails_the_run_or_is_a_dead_letter(
    landed_files: LandedFiles, kind: str, bad_file: BrokenFile
) -> None:
    landed_files.write(bad_file.file, bad_file.content)
    landed_files.write("good.x", content_of(kind, 4))
    with pytest.raises(UnreadableFileError, match=f"landing/{bad_file.file}") as error:
        landed_files.compute(pipeline(kind))
    assert bad_file.reason in str(error.value)
    tolerant = pipeline(kind, on_unreadable="dead_letter")
    (dead,) = landed_files.dead_letters(tolerant)
    assert (dead["file"], dead["position"], dead["raw"]) == (f"landing/{bad_file.file}", None, None)
    assert dead["reason"].startswith("file: ")
    assert bad_file.reason in dead["reason"]
    assert [(r["file"], r["_in_0"]) for r in landed_files.read(tolerant) if r["_reject"] is None] == [
        ("landing/good.x", 4)
    ]


def test_a_column_that_the_key_can_do_without_may_be_missing(landed_files: LandedFiles) -> None:
    landed_files.write("a.csv", f"time,n\n{T},1\n")
    (row,) = landed_files.read(pipeline(CSV, key={"who": coalesce(col("user"), lit("nobody"))}))
    assert (row["_reject"], row["who"]) == (None, "nobody")
    with pytest.raises(FileColumnsError, match="lacks column user"):
        landed_files.compute(pipeline(CSV, key={"who": concat(col("user"), "!")}))


def test_a_file_that_vanishes_before_it_is_read_is_a_clear_error(landed_files: LandedFiles) -> None:
    file = landed_files.write("a%41.parquet", content_of(PARQUET, 1))
    tested_pipeline = pipeline(PARQUET)
    files = landed_files.files(tested_pipeline)
    file.unlink()
    with pytest.raises(VanishedFileError, match=r"a%41\.parquet was listed and is gone"):
        landed_files.compute(tested_pipeline, files)
