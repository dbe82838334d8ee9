"""Small files that are read together give what each gives alone: records, dead letters, what they lack, and where each
element lies behind; a file that cannot be read costs only itself.
"""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import FileSource
from headrace.distribute import watermark_inputs
from headrace.distribute.records import FileRecords, group_small_files, in_arrival_order, read_records
from headrace.ext.sources import SourceSplit
from headrace.formats.csv_lines import CsvLines
from headrace.formats.file_format import RequiredColumns, UnreadableFileError
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN, OnMissing, OnUnreadable
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import CsvDialect
from headrace.sources import file_planning
from headrace.sources.landing import Landing
from headrace_snapshots.store import ObjectStore
from tests.reference.strategies import examples
from tests.sources.landed import NOW, LandedFiles, pipeline


def line(user: object, minute: int, **more: object) -> bytes:
    return json.dumps({"user": user, "time": f"2025-12-31T23:{minute:02d}:00Z", **more}).encode()


LINES = [
    line("ann", 0, n=1, x=1.5),
    line("bob", 59),
    line("ann", 30, n=2**62),
    line(None, 1),
    line("eve", 2, n="no number"),
    b'  {"user": "cy", "time": "2025-12-31T23:10:00Z"} \t',
    b'{"user": "\xff", "time": "2025-12-31T23:10:00Z"}',
    b'{"user": "dan", "time": "2025-12-31T23:10:00Z"} {"user": "eva"}',
    b'[{"user": "a", "time": "2025-12-31T23:10:00Z"}, {"user": "b", "time": "2025-12-31T23:11:00Z"}]',
    b"[1, 2]",
    b"{",
    b"",
    b" ",
    b"no record",
    b'{\x00"',
    "{\N{SNOWMAN}}".encode(),
]
ZIP = b"PK\x03\x04"
BREAKS = [b"\n", b"\r\n", b"\r"]
CSV_LINES = [
    b"user,time,n,x",
    b"user,time,n,x",
    b"ann,2025-12-31T23:00:00Z,1,1.5",
    b"bob,2025-12-31T23:59:00Z,,",
    b"eve,2025-12-31T23:02:00Z,no number,",
    b"\xff,2025-12-31T23:10:00Z,1,1",
    b"cy,2025-12-31T23:10:00Z,1",
    b'"dan",2025-12-31T23:10:00Z,1,1',
    b'"open,2025-12-31T23:10:00Z,1,1',
    b"",
    b" ",
    b"time,n,user,x",
    b"a;b;c",
]
HEAD = b"user,time,n,x\n"
OTHER = b'"time",user,n,x'
ESCAPED_LINE = b'"a\\",\nb",2025-12-31T23:10:00Z,1,\\\n'
PACKS: list[Callable[[bytes], bytes]] = [
    bytes,
    bytes,
    bytes,
    gzip.compress,
    lambda body: gzip.compress(body)[:-9],
    lambda _: ZIP,
]


ENVELOPES = [
    *LINES[5:],
    *(
        json.dumps({"before": old_row, "after": new_row, "op": op, "ts_ms": ts_ms, "source": {"lsn": ts_ms}}).encode()
        for old_row, new_row, op, ts_ms in [
            (None, {"user": "ann", "time": "2025-12-31T23:00:00Z", "n": 1, "x": 1.5}, "c", 1767225000001),
            ({"user": "ann", "time": "2025-12-31T23:00:00Z", "n": 1}, {"user": "bob", "n": 2}, "u", 1767225000002),
            ({"user": "ann", "time": "2025-12-31T23:00:00Z"}, {"user": "ann", "time": 5}, "u", 1767225000003),
            ({"user": "eve", "time": "2025-12-31T23:10:00Z"}, None, "d", 1767225000004),
            (None, {"user": "cy", "time": "2025-12-31T23:59:00Z"}, "r", None),
            (None, None, "u", 1767225000005),
            (None, {}, "t", 1767225000006),
        ]
    ),
]


def bodies(lines: list[bytes], begins: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda begin, lines, end, pack: pack(begin + b"".join(a + b for a, b in lines)[: -1 if end else None]),
        st.sampled_from([*begins, *begins, b"\xef\xbb\xbf", b"\n"]),
        st.lists(st.tuples(st.sampled_from(lines), st.sampled_from(BREAKS)), max_size=6),
        st.booleans(),
        st.sampled_from(PACKS),
    )


ROW = {"user": "ann", "time": datetime(2025, 12, 31, 23, tzinfo=UTC), "n": 1, "x": 1.5}
COLUMNS: dict[str, list[tuple[pa.DataType, list[Any]]]] = {
    "user": [
        (pa.string(), ["ann", None, "bob"]),
        (pa.large_string(), ["eve", "", "bob"]),
        (pa.dictionary(pa.int32(), pa.string()), ["ann", "bob", None]),
    ],
    "time": [
        (pa.timestamp("us", "UTC"), [ROW["time"], None]),
        (pa.timestamp("ns"), [datetime(2025, 12, 31, 23, 59)]),
        (pa.timestamp("ms"), [2**60, 1767225540000]),
        (pa.date32(), [date(2025, 12, 31)]),
    ],
    "n": [(pa.int64(), [1, -1, 2**62, None]), (pa.int8(), [1, 2]), (pa.string(), ["1"]), (pa.null(), [None])],
    "x": [(pa.float64(), [1.5, None, float("nan")]), (pa.float32(), [0.5]), (pa.int32(), [7])],
    "more": [(pa.list_(pa.int64()), [[1], None])],
}


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Parquet files of a few schemas, with none to six rows, some of them damaged."""
    rows = draw(st.integers(0, 6))
    names_there = [name for name in COLUMNS if draw(st.integers(0, 9)) or name == "more"]
    columns = {}
    for name in draw(st.sampled_from([names_there, [*reversed(names_there)]])):
        kind, values = draw(st.sampled_from([*COLUMNS[name][:1] * 4, *COLUMNS[name]]))
        columns[name] = pa.array([draw(st.sampled_from(values)) for _ in range(rows)], kind)
    stream = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), stream, row_group_size=draw(st.sampled_from([2, 100])))
    body: bytes = stream.getvalue().to_pybytes()
    cut = draw(st.integers(0, len(body)))
    content = bytearray(body)
    content[cut % len(body)] ^= 255
    return draw(st.sampled_from([body, body, body, body, b"", body[:cut], bytes(content), gzip.compress(body)]))


def read_rows(tested_pipeline: Pipeline, landed_files: LandedFiles, names: list[str]) -> list[dict[str, Any]]:
    """What is read of these files: judged, and where it is from."""
    files = [file for file in landed_files.files(tested_pipeline) if file.path.rpartition("/")[2] in names]
    landing = Landing(tested_pipeline, landed_files.store)
    pieces = in_arrival_order(tested_pipeline, {OWN: files})
    stages = [CompiledStage(value_alone.stages[0]) for value_alone in tested_pipeline.of_records.values()]
    records = read_records(tested_pipeline, stages, landing, pieces, NOW).records
    return [] if records is None else rows_of(records)


def rows_of(records: FileRecords) -> list[dict[str, Any]]:
    rows = np.arange(len(records.positions))
    columns = {**records.columns, **records.origins(rows)}
    judged_values_by_name = {
        name: values.to_pylist() for name, values in columns.items() if not name.startswith("_in_")
    }
    files = [(path, rows[part].tolist()) for _, path, part in records.by_file(rows)]
    by_row = {row: path for path, own in files for row in own}
    lacks = records.lacks.get(OWN, {})
    assert by_row == dict(enumerate(judged_values_by_name["file"]))
    return [
        {
            **{name: values[row] for name, values in judged_values_by_name.items()},
            "lacks": lacks.get(judged_values_by_name["file"][row]),
        }
        for row in rows.tolist()
    ]


def give_what_each_gives(tested_pipeline: Pipeline, folder: Path, contents: list[bytes]) -> None:
    landed_files = LandedFiles(folder)
    names = [f"{number}.part" for number in range(len(contents))]
    for name, body in zip(names, contents, strict=True):
        landed_files.write(name, body)
    rows_alone = [row for name in names for row in read_rows(tested_pipeline, landed_files, [name])]
    assert read_rows(tested_pipeline, landed_files, names) == rows_alone


def tolerant(kind: str, **reading: Any) -> Pipeline:
    return pipeline(kind, on_unreadable=OnUnreadable.DEAD_LETTER, missing=OnMissing.FAIL, **reading)


SIGN_OPTIONS = {
    "key": "user",
    "what": {"records": hr.count()},
    "where": hr.FixedWindows("1h"),
    "when": hr.on_update(),
    "how": hr.retracting(None),
}
SIGN = {"changelog": hr.if_else(hr.col("n") > 1, -1, hr.col("n")), **SIGN_OPTIONS}
ROWS = {"outputs": {"rows": hr.Rows(key="user", take=hr.newest())}}
Contents = st.SearchStrategy[bytes]
KINDS: dict[str, tuple[Pipeline, Contents]] = {
    "json": (tolerant("json"), bodies(LINES, [b""])),
    "signed": (tolerant("json", **SIGN), bodies(LINES, [b""])),
    "upserts": (tolerant("json", versions=hr.upserts("user", order="n"), **ROWS), bodies(LINES, [b""])),
    "debezium": (tolerant("json", changelog=hr.debezium_envelope(), **SIGN_OPTIONS), bodies(ENVELOPES, [b""])),
    "versions": (
        tolerant("json", versions=hr.debezium_versions("ts_ms", key="user"), time="changed_at", **ROWS),
        bodies(ENVELOPES, [b""]),
    ),
    "csv": (tolerant("csv"), bodies(CSV_LINES, [HEAD])),
    "signed csv": (tolerant("csv", **SIGN), bodies(CSV_LINES, [HEAD])),
    "escaped csv": (tolerant("csv", dialect=CsvDialect(escape="\\")), bodies([*CSV_LINES, ESCAPED_LINE], [HEAD])),
    "csv behind lines": (
        tolerant("csv", dialect=CsvDialect(encoding="cp1252", skip_lines=2)),
        bodies(CSV_LINES, [b'"\r\n\n' + HEAD, b"\n" + HEAD]),
    ),
    "utf-16 csv": (
        tolerant("csv", dialect=CsvDialect(encoding="utf-16")),
        bodies(CSV_LINES, [HEAD]).map(lambda body: body.decode("latin-1").encode("utf-16")),
    ),
    "parquet": (tolerant("parquet"), tables()),
    "signed parquet": (tolerant("parquet", **SIGN), tables()),
}


@examples(200, 20)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_small_files_read_together_give_what_each_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    tested_pipeline, body = KINDS[kind]
    give_what_each_gives(
        tested_pipeline, tmp_path_factory.mktemp("small"), data.draw(st.lists(body, min_size=2, max_size=6))
    )


@pytest.mark.parametrize(
    ("kind", "contents"),
    [
        ("json", [b"{", LINES[0], b""]),
        ("json", [LINES[0] + b"\r", b"\n" + LINES[1]]),
        ("json", [LINES[0], LINES[7], LINES[8], LINES[1]]),
        ("csv", [HEAD + CSV_LINES[2], HEAD + CSV_LINES[3], HEAD]),
        ("csv", [HEAD + CSV_LINES[2], HEAD + b"\xe9,2025-12-31T23:00:00Z,1,1\n" * 20, HEAD + CSV_LINES[3]]),
        ("csv", [HEAD + CSV_LINES[2] + b"\n" + HEAD + CSV_LINES[6], HEAD + CSV_LINES[4] + b"\r"]),
        ("csv", [HEAD + CSV_LINES[7] + b"\r", OTHER + b'\r"x\ny"', HEAD + b'"', OTHER, HEAD + CSV_LINES[7], b"a\n"]),
    ],
)
def test_these_files_too(kind: str, contents: list[bytes], tmp_path: Path) -> None:
    give_what_each_gives(KINDS[kind][0], tmp_path, contents)


def test_files_are_read_alone_that_cannot_be_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        (f"{number}.csv", HEAD + row + b"\n") for number, row in enumerate([CSV_LINES[2], CSV_LINES[7], CSV_LINES[3]])
    ]
    source = pipeline("csv").input.source
    assert isinstance(source, FileSource)
    texts_alone: list[str] = []
    read = CsvLines.read
    monkeypatch.setattr(
        CsvLines, "read", lambda own, *arguments: texts_alone.append(arguments[3]) or read(own, *arguments)
    )

    def lengths(*more: tuple[str, bytes]) -> list[int]:
        texts_alone.clear()
        scanned_together = source.file_format.read_together([*more, *files], source.fields, RequiredColumns())
        return list(scanned_together.lengths.tolist())

    assert (lengths(), texts_alone) == ([1, 1, 1], [])
    others = [(name, OTHER + b"\n2025-12-31T23:00:00Z,a,1,1\n") for name in ("a.csv", "b.csv")]
    assert (lengths(*others), texts_alone) == ([1, 1, 1, 1, 1], [])
    assert (lengths(others[0]), texts_alone) == ([1, 1, 1, 1], ["a.csv"])
    assert (lengths(("open.csv", HEAD + CSV_LINES[8])), texts_alone) == ([1, 1, 1, 1], ["open.csv"])


@pytest.mark.parametrize("kind", ["json", "csv", "quoted", "parquet"])
def test_a_small_file_is_fetched_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landed_files, tested_pipeline = LandedFiles(tmp_path), pipeline(kind.replace("quoted", "csv"))
    source = tested_pipeline.input.source
    assert isinstance(source, FileSource)
    fetched_paths: list[str] = []
    content = file_planning.read_content

    def count_call(store: ObjectStore, file: SourceSplit) -> bytes:
        fetched_paths.append(file.path)
        return content(store, file)

    body = source.file_format.written([ROW], source.fields)
    names = [f"{number}{source.suffixes[0] if source.suffixes else source.file_format.suffix}" for number in range(3)]
    for name in names:
        landed_files.write(name, HEAD + CSV_LINES[7] if kind == "quoted" else body)
    monkeypatch.setattr(file_planning, "read_content", count_call)
    rows = read_rows(tested_pipeline, landed_files, names)
    assert [row["file"] for row in rows] == fetched_paths == [f"landing/{name}" for name in names]
    assert [row["position"] for row in rows] == [0 if kind in ("json", "parquet") else 1] * 3
    assert [row["_reject"] for row in rows] == [None] * 3


def test_the_first_file_that_cannot_be_read_is_named_where_that_is_an_error(tmp_path: Path) -> None:
    landed_files, tested_pipeline = LandedFiles(tmp_path), pipeline("json")
    for number, body in enumerate([LINES[0], ZIP, b"[\n" + LINES[0] + b"\n]"]):
        landed_files.write(f"{number}.jsonl", body)
    with pytest.raises(UnreadableFileError, match=r"1\.jsonl cannot be read: it is not a whole zip file"):
        read_rows(tested_pipeline, landed_files, ["0.jsonl", "1.jsonl", "2.jsonl"])


def test_a_file_that_is_read_together_has_at_most_a_quarter_of_a_megabyte(tmp_path: Path) -> None:
    landed_files = LandedFiles(tmp_path)
    for number, copies in enumerate([1, 1, 5000, 1, 1]):
        landed_files.write(f"{number}.jsonl", (LINES[0] + b"\n") * copies)
    tested_pipeline = tolerant("json")
    pieces = in_arrival_order(tested_pipeline, {OWN: landed_files.files(tested_pipeline)})
    inputs = {input_.name: input_ for input_ in tested_pipeline.inputs}
    assert [len(group) for group in group_small_files(pieces, inputs)] == [2, 1, 2]


TIMES = st.lists(st.lists(st.integers(-50, 50) | st.integers(-(2**50), 2**50), min_size=1, max_size=40), max_size=8)


@settings(max_examples=300, deadline=None)
@given(TIMES, st.integers(-60, 60))
def test_times_of_files_are_told_as_of_each(files: list[list[int]], latest: int) -> None:
    ends = np.cumsum([len(times) for times in files]).tolist()
    parts = [
        (OWN, str(number), slice(end - len(times), end))
        for number, (times, end) in enumerate(zip(files, ends, strict=True))
    ]
    every = np.array([time for times in files for time in times], np.int64)
    told_times = watermark_inputs.times_of_parts(every, parts, {OWN: Instant(latest)})
    assert [*told_times] == [
        watermark_inputs.FileTimes.from_times(np.array(own, np.int64), Instant(latest)) for own in files
    ]
    assert int(MIN_INSTANT) < -(2**50)
