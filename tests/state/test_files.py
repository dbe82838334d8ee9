"""Data files: every type that a snapshot stores comes back; what was not written so is named."""

import io
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.state.files import encode_parquet, put_rows, read_rows
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.store import open_store
from headrace_snapshots.store.local import MemoryStore

PAIR = pa.struct([("left", pa.int64()), pa.field("right", pa.string(), nullable=False)])
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("é b", pa.string()),
        pa.field("a", pa.int64(), nullable=False),
        ("at", TIME),
        ("times", pa.list_(TIME)),
        ("pairs", pa.list_(PAIR)),
        ("bag", pa.map_(pa.float64(), pa.int64())),
        ("nested", pa.map_(PAIR, pa.list_(pa.bool_()))),
        ("sketch", pa.binary()),
        ("status", pa.int32()),
    ]
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAIRS = [{"left": 1, "right": "x"}, {"left": None, "right": "y"}]
NESTED_VALUE = [({"left": 1, "right": "k"}, [True, None])]
ROWS = [
    ("é\0", 1, NOON, [NOON, None], PAIRS, [(0.5, 2), (float("inf"), 1)], NESTED_VALUE, b"\xff", 7),
    (None, 2, None, None, None, None, None, None, None),
    ("", 3, NOON, [], [], [], [], b"", -1),
]


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@set_sizes(file_bytes=1, file_batch_rows=2)
def test_what_is_written_is_read_back() -> None:
    store = MemoryStore()
    written_files = put_rows(store, "p/data/0/state", [batch()])
    assert [file.rows for file in written_files] == [2, 1]
    assert read_rows(store, written_files, SCHEMA).equals(batch())
    assert store.requests.snapshot()["get"] == len(written_files)
    assert read_rows(store, [], SCHEMA).num_rows == 0
    assert put_rows(store, "p/data/0/none", [batch().slice(0, 0)]) == ()


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_file_that_is_not_what_was_written_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = open_store((tmp_path / "a b").as_uri())
    (file,) = put_rows(store, "p/data/0/state", [batch()])
    damage(tmp_path / "a b" / file.path)
    with pytest.raises(BrokenObjectError, match=f"{store.uri}/{file.path} "):
        read_rows(store, [file], SCHEMA)


@pytest.mark.slow
def test_pages_have_checksums_for_readers_that_do_not_ask_the_manifest() -> None:
    rolled_generator = random.Random(1)
    numbers = pa.array([rolled_generator.randrange(10**9) for _ in range(1000)], pa.int64())
    content = bytearray(encode_parquet(pa.RecordBatch.from_pydict({"n": numbers})).data)
    whole = pq.read_table(io.BytesIO(content))
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
    end, silent_changes = chunk.data_page_offset + chunk.total_compressed_size, 0
    for place in range(end - 200, end):
        content[place] ^= 1
        with suppress(pa.ArrowException, OSError):
            silent_changes += pq.read_table(io.BytesIO(content)) != whole
        with pytest.raises(OSError, match="CRC"):
            pq.read_table(io.BytesIO(content), page_checksum_verification=True)
        content[place] ^= 1
    assert silent_changes


def test_a_file_is_written_while_a_profiler_holds_frames() -> None:
    held_frames: list[FrameType] = []
    sys.setprofile(lambda frame, event, argument: held_frames.append(frame))
    try:
        encoded_file = encode_parquet(pa.RecordBatch.from_pydict({"n": list(range(40_000))}))
    finally:
        sys.setprofile(None)
    assert held_frames
    assert pq.read_table(io.BytesIO(encoded_file.data)).num_rows == encoded_file.rows == 40_000


def test_times_of_which_few_differ_have_a_dictionary() -> None:
    hours, moments = np.random.default_rng(1).integers(0, 40, 2000) * 3_600_000_000, np.arange(2000) * 1_234_567
    rows = pa.RecordBatch.from_arrays(
        [pa.array(hours).cast(TIME), pa.array(moments).cast(TIME), pa.array(hours)], ["end", "at", "number"]
    )
    few, many = encode_parquet(rows[:1000]), encode_parquet(rows)
    for content, dictionary_columns in ((few, set()), (many, {"end"})):
        opened_parquet_file = pq.ParquetFile(pa.BufferReader(content.data))
        chunks = [opened_parquet_file.metadata.row_group(0).column(number) for number in range(3)]
        assert {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page} == dictionary_columns
        assert opened_parquet_file.read().equals(pa.Table.from_batches([rows[: content.rows]]))
    assert len(encode_parquet(rows.select(["end"])).data) < len(encode_parquet(rows.select(["number"])).data)
    store = MemoryStore()
    path = put_rows(store, "rows", [rows])
    assert read_rows(store, path, rows.schema).equals(rows)
