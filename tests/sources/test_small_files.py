"""Small files that are read together give what each gives alone: records, dead letters, what they lack, and where each
element lies behind; a file that cannot be read costs only itself.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.distribute import watermark_inputs
from headrace.distribute.records import FileRecords, in_arrival_order, read_records, together
from headrace.formats.file_format import UnreadableFileError
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN, OnMissing, OnUnreadable
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
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
BODIES = st.builds(
    lambda begin, lines, end, pack: pack(begin + b"".join(a + b for a, b in lines)[: -1 if end else None]),
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\n"]),
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(BREAKS)), max_size=6),
    st.booleans(),
    st.sampled_from([bytes, bytes, bytes, gzip.compress, lambda body: gzip.compress(body)[:-9], lambda _: ZIP]),
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


@settings(max_examples=150, deadline=None)
@example([b"{", LINES[0], b""])
@example([LINES[0] + b"\r", b"\n" + LINES[1]])
@example([LINES[0], LINES[7], LINES[8], LINES[1]])
@given(st.lists(BODIES, min_size=2, max_size=6))
def test_small_files_read_together_give_what_each_gives_alone(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes]
) -> None:
    landed = Landed(tmp_path_factory.mktemp("small"))
    names = [f"{number}.jsonl" for number in range(len(bodies))]
    for name, body in zip(names, bodies, strict=True):
        landed.write(name, body)
    alone = [row for name in names for row in found(TESTED, landed, [name])]
    assert found(TESTED, landed, names) == alone


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
