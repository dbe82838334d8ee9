"""A file that is read in pieces gives the records that it gives as a whole, each with its place."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import FileSource
from headrace.distribute.records import Piece
from headrace.distribute.tasks.plan import LEAST_OF_A_FILE, MOST_OF_A_SHARE, TaskShare, divide_into_shares
from headrace.ext.sources import SourceSplit
from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span, UnreadableFileError, read_file
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.endpoints import OWN, OnUnreadable
from headrace.sources.landing import Landing
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store.local import MemoryStore
from tests.process.clicks import CLICKS
from tests.sources.landed import NOW, LandedFiles, pipeline

SCHEMA = {"n": DataType.INT, "s": DataType.STRING}
LINES = [
    b'{"n": 1, "s": "one"}',
    b'{"n": 2}',
    b"",
    b"  \t",
    b"nothing",
    b'{"n": "no"}',
    b"\xff",
    b"3,three",
    b"\xef\xbb\xbf7,seven",
    b'4,"fo,ur"',
    b"n,s",
    b"5",
    '{"s": "\u00e4\u00f6"}'.encode(),
]
TEXTS = st.builds(
    lambda lines, mark, last: mark + b"".join(line + end for line, end in lines) + last,
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])), max_size=30),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.sampled_from([b"", *LINES]),
)
"""Some text behind a byte order mark, or none, whose last line has no end."""


def pieces(part_count: int, stride: int) -> list[Span]:
    """All pieces, in runs of so many."""
    return [Span(first, min(first + stride, part_count), part_count) for first in range(0, part_count, stride)]


def rows(scans: Sequence[ScannedRecords]) -> list[tuple[object, ...]]:
    """The records with all that is known of them."""
    return [
        row
        for each in scans
        for row in zip(
            each.position.tolist(),
            each.unparsed.to_pylist(),
            each.raw(np.arange(len(each))).to_pylist(),
            *(values.to_pylist() for values in each.columns.values()),
            strict=True,
        )
    ]


@given(TEXTS, st.sampled_from(["json", "csv"]), st.integers(2, 6), st.integers(1, 3))
def test_text_in_pieces_is_the_whole_text(data: bytes, kind: str, part_count: int, stride: int) -> None:
    if kind == "csv":
        data = b"n,s\n" + data.removeprefix(b"\xef\xbb\xbf")
    source = FileSource("landing", kind, SCHEMA)
    whole = read_file(data, source, RequiredColumns(), "x")
    cut = [read_file(data, source, RequiredColumns(), "x", span) for span in pieces(part_count, stride)]
    assert rows(cut) == rows([whole])


@pytest.mark.parametrize("part_count", [2, 3, 5])
@pytest.mark.parametrize("group", [1, 7, 40, 100, 1000])
def test_parquet_in_pieces_is_the_whole_file(group: int, part_count: int) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": range(100), "s": [f"text {n}" for n in range(100)]}), sink, row_group_size=group)
    source = FileSource("landing", "parquet", SCHEMA)
    cut = [read_file(sink.getvalue(), source, RequiredColumns(), "x", span) for span in pieces(part_count, 1)]
    assert rows(cut) == rows([read_file(sink.getvalue(), source, RequiredColumns(), "x")])
    assert max(len(piece) for piece in cut) <= max(
        100 // part_count + 1, min(group, 100 // part_count) + 100 // part_count
    )


SIZES = st.lists(
    st.sampled_from(
        [0, 1, LEAST_OF_A_FILE.value, 3 * LEAST_OF_A_FILE.value + 1, 10 * LEAST_OF_A_FILE.value, 3 * 2**30]
    ),
    max_size=40,
)


@given(SIZES, st.integers(1, 5))
def test_shares_hold_every_piece_once_in_the_order_of_arrival(sizes: list[int], number: int) -> None:
    files = [SourceSplit(f"landing/{place:03}", size, "e") for place, size in enumerate(sizes)]
    shares = divide_into_shares(CLICKS, Landing(CLICKS, MemoryStore()), {OWN: files}, number)
    total = sum(sizes)
    assert 1 <= len(shares) <= max(number, total // MOST_OF_A_SHARE.value)
    left: list[Piece] = [piece for share in shares for piece in share]
    for file in files:
        own = [left.pop(0)]
        while own[-1].span.after < own[-1].span.of:
            own.append(left.pop(0))
            assert own[-1].span.first == own[-2].span.after
        assert {piece.file for piece in own} == {file}
        assert own[0].span.first == 0
        assert all(span_bytes(piece) <= 2**30 for piece in own)
    assert not left
    largest = max((span_bytes(piece) for share in shares for piece in share), default=0)
    if total >= number * MOST_OF_A_SHARE.value:  # a piece belongs where its middle is
        assert max(size_of(share) for share in shares) <= 2 * MOST_OF_A_SHARE.value + largest
    elif max(sizes, default=0) > LEAST_OF_A_FILE.value:
        assert max(size_of(share) for share in shares) <= total / number + max(
            LEAST_OF_A_FILE.value * 5, total / number
        )


def span_bytes(piece: Piece) -> int:
    begin, end = piece.span.bounds(piece.file.size)
    return end - begin


def size_of(share: TaskShare) -> int:
    return sum(map(span_bytes, share))


@set_sizes(least_of_a_file=100)
def test_a_torn_file_is_one_dead_letter_however_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first row groups are sound, and count no more than in a file that is read as a whole."""
    monkeypatch.setenv("HEADRACE_TASKS", "3")
    landed_files = LandedFiles(tmp_path)
    tested_pipeline = pipeline("parquet", on_unreadable=OnUnreadable.DEAD_LETTER)
    times = pa.array([NOW] * 90).cast(pa.timestamp("us", "UTC"))
    content = pa.table({"user": ["a"] * 90, "time": times, "n": range(90), "x": [0.5] * 90})
    sink = io.BytesIO()
    pq.write_table(content, sink, row_group_size=10, use_dictionary=False)
    data = bytearray(sink.getvalue())
    landed_files.write("sound.parquet", bytes(data))
    place = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(8).column(0).data_page_offset
    data[place : place + 20] = bytes(20)
    landed_files.write("torn.parquet", bytes(data))
    with set_sizes(task_bytes=100):
        assert landed_files.compute(tested_pipeline).counts["accepted"] == 90
        (dead,) = landed_files.dead_letters(tested_pipeline)
        assert (dead["file"], dead["position"], dead["raw"]) == ("landing/torn.parquet", None, None)
        with pytest.raises(UnreadableFileError, match="torn"):
            landed_files.compute(pipeline("parquet"))
