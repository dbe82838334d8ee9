"""Small files that are read together give what each gives alone: records, dead letters, what they lack, and where each
element lies behind; a file that cannot be read costs only itself.
"""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace import FileSource
from headrace.distribute import watermark_inputs
from headrace.distribute.records import FileRecords, in_arrival_order, read_records, together
from headrace.ext.sources import SourceSplit
from headrace.formats.csv_lines import CsvLines
from headrace.formats.file_format import RequiredColumns, UnreadableFileError
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN, OnMissing, OnUnreadable
from headrace.pipeline.pipeline import Pipeline
from headrace.sources import file_planning
from headrace.sources.landing import Landing
from headrace_snapshots.store import ObjectStore
from tests.sources.landed import NOW, Landed, pipeline

TESTED = pipeline("json", on_unreadable=OnUnreadable.DEAD_LETTER, missing=OnMissing.FAIL)


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
PACKS: list[Callable[[bytes], bytes]] = [
    bytes,
    bytes,
    bytes,
    gzip.compress,
    lambda body: gzip.compress(body)[:-9],
    lambda _: ZIP,
]


def bodies(lines: list[bytes], begins: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda begin, lines, end, pack: pack(begin + b"".join(a + b for a, b in lines)[: -1 if end else None]),
        st.sampled_from([*begins, *begins, b"\xef\xbb\xbf", b"\n"]),
        st.lists(st.tuples(st.sampled_from(lines), st.sampled_from(BREAKS)), max_size=6),
        st.booleans(),
        st.sampled_from(PACKS),
    )


def found(tested: Pipeline, landed: Landed, names: list[str]) -> list[dict[str, Any]]:
    """What is read of these files: judged, and where it is from."""
    files = [file for file in landed.files(tested) if file.path.rpartition("/")[2] in names]
    landing = Landing(tested, landed.store)
    pieces = in_arrival_order(tested, {OWN: files})
    records = read_records(tested, [CompiledStage(tested.stages[0])], landing, pieces, NOW).records
    return [] if records is None else said(records)


def said(records: FileRecords) -> list[dict[str, Any]]:
    rows = np.arange(len(records.positions))
    columns = {**records.columns, **records.of(rows)}
    judged = {name: values.to_pylist() for name, values in columns.items() if not name.startswith("_in_")}
    files = [(path, rows[part].tolist()) for _, path, part in records.by_file(rows)]
    by_row = {row: path for path, own in files for row in own}
    lacks = records.lacks.get(OWN, {})
    assert by_row == dict(enumerate(judged["file"]))
    return [
        {**{name: values[row] for name, values in judged.items()}, "lacks": lacks.get(judged["file"][row])}
        for row in rows.tolist()
    ]


def give_what_each_gives(tested: Pipeline, suffix: str, folder: Path, contents: list[bytes]) -> None:
    landed = Landed(folder)
    names = [f"{number}{suffix}" for number in range(len(contents))]
    for name, body in zip(names, contents, strict=True):
        landed.write(name, body)
    alone = [row for name in names for row in found(tested, landed, [name])]
    assert found(tested, landed, names) == alone


@settings(max_examples=150, deadline=None)
@example([b"{", LINES[0], b""])
@example([LINES[0] + b"\r", b"\n" + LINES[1]])
@example([LINES[0], LINES[7], LINES[8], LINES[1]])
@given(st.lists(bodies(LINES, [b""]), min_size=2, max_size=6))
def test_small_json_files_read_together_give_what_each_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    give_what_each_gives(TESTED, ".jsonl", tmp_path_factory.mktemp("small"), contents)


@settings(max_examples=150, deadline=None)
@example([HEAD + CSV_LINES[2], HEAD + CSV_LINES[3], HEAD])
@example([HEAD + CSV_LINES[2], HEAD + b"\xe9,2025-12-31T23:00:00Z,1,1\n" * 20, HEAD + CSV_LINES[3]])
@example([HEAD + CSV_LINES[2] + b"\n" + HEAD + CSV_LINES[6], HEAD + CSV_LINES[4] + b"\r"])
@given(st.lists(bodies(CSV_LINES, [HEAD]), min_size=2, max_size=4))
def test_small_csv_files_read_together_give_what_each_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    tested = pipeline("csv", on_unreadable=OnUnreadable.DEAD_LETTER, missing=OnMissing.FAIL)
    give_what_each_gives(tested, ".csv", tmp_path_factory.mktemp("small"), contents)


def test_small_csv_files_with_one_header_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(f"{at}.csv", HEAD + row + b"\n") for at, row in enumerate([CSV_LINES[2], CSV_LINES[3]])]
    source = pipeline("csv").input.source
    assert isinstance(source, FileSource)
    alone: list[str] = []
    read = CsvLines.read
    monkeypatch.setattr(CsvLines, "read", lambda own, *given: alone.append(given[3]) or read(own, *given))

    def lengths(*more: tuple[str, bytes]) -> list[int]:
        alone.clear()
        scanned = source.file_format.read_together([*files, *more], source.fields, RequiredColumns())
        return list(scanned.lengths.tolist())

    assert (lengths(), alone) == ([1, 1], [])
    other = ("other.csv", b"time,user,n,x\n2025-12-31T23:00:00Z,a,1,1\n")
    assert (lengths(other), alone) == ([1, 1, 1], ["0.csv", "1.csv", "other.csv"])
    quoted = ("quoted.csv", HEAD + CSV_LINES[7])
    assert (lengths(quoted), alone) == ([1, 1, 1], ["0.csv", "1.csv", "quoted.csv"])


@pytest.mark.parametrize("kind", ["json", "csv", "quoted", "parquet"])
def test_a_small_file_is_fetched_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landed, tested = Landed(tmp_path), pipeline(kind.replace("quoted", "csv"))
    source = tested.input.source
    assert isinstance(source, FileSource)
    fetched: list[str] = []
    content = file_planning.content

    def counted(store: ObjectStore, file: SourceSplit) -> bytes:
        fetched.append(file.path)
        return content(store, file)

    record = {"user": "ann", "time": datetime(2025, 12, 31, 23, tzinfo=UTC), "n": 1, "x": 1.5}
    body = source.file_format.written([record], source.fields)
    names = [f"{number}{source.suffixes[0] if source.suffixes else source.file_format.suffix}" for number in range(3)]
    for name in names:
        landed.write(name, HEAD + CSV_LINES[7] if kind == "quoted" else body)
    monkeypatch.setattr(file_planning, "content", counted)
    rows = found(tested, landed, names)
    assert [row["file"] for row in rows] == fetched == [f"landing/{name}" for name in names]
    assert [row["position"] for row in rows] == [0 if kind in ("json", "parquet") else 1] * 3
    assert [row["_reject"] for row in rows] == [None] * 3


def test_the_first_file_that_cannot_be_read_is_named_where_that_is_an_error(tmp_path: Path) -> None:
    landed, tested = Landed(tmp_path), pipeline("json")
    for number, body in enumerate([LINES[0], ZIP, b"[\n" + LINES[0] + b"\n]"]):
        landed.write(f"{number}.jsonl", body)
    with pytest.raises(UnreadableFileError, match=r"1\.jsonl cannot be read: it is not a whole zip file"):
        found(tested, landed, ["0.jsonl", "1.jsonl", "2.jsonl"])


def test_a_file_that_is_read_together_has_at_most_a_quarter_of_a_megabyte(tmp_path: Path) -> None:
    landed = Landed(tmp_path)
    for number, copies in enumerate([1, 1, 5000, 1, 1]):
        landed.write(f"{number}.jsonl", (LINES[0] + b"\n") * copies)
    pieces = in_arrival_order(TESTED, {OWN: landed.files(TESTED)})
    inputs = {input_.name: input_ for input_ in TESTED.inputs}
    assert [len(group) for group in together(pieces, inputs)] == [2, 1, 2]


TIMES = st.lists(st.lists(st.integers(-50, 50) | st.integers(-(2**50), 2**50), min_size=1, max_size=40), max_size=8)


@settings(max_examples=300, deadline=None)
@given(TIMES, st.integers(-60, 60))
def test_times_of_files_are_told_as_of_each(files: list[list[int]], latest: int) -> None:
    ends = np.cumsum([len(times) for times in files]).tolist()
    parts = [
        (OWN, str(at), slice(end - len(times), end)) for at, (times, end) in enumerate(zip(files, ends, strict=True))
    ]
    every = np.array([time for times in files for time in times], np.int64)
    told = watermark_inputs.times_of_parts(every, parts, {OWN: Instant(latest)})
    assert [*told] == [watermark_inputs.FileTimes.of(np.array(own, np.int64), Instant(latest)) for own in files]
    assert int(MIN_INSTANT) < -(2**50)
