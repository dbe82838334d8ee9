"""Columns that have one value in all rows of a file: what the cache gives is what was stored, and takes less room."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.time import NEVER
from headrace.program import columns as c
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.sorted_file import SortedFile
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store.local import MemoryStore
from tests.reference.strategies import examples

LARGE = 10**9
TIMES = st.sampled_from([None, 0, 5, 7, int(NEVER) - 1, int(NEVER)])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "count": (pa.int64(), st.one_of(st.none(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]))),
    "small": (pa.int32(), st.sampled_from([0, 1])),
    "done": (pa.bool_(), st.sampled_from([None, True, False])),
    "large": (pa.uint64(), st.sampled_from([0, 2**64 - 1])),
    "share": (pa.float64(), st.sampled_from([0.0, -0.0, float("nan"), 1.5])),
    "name": (pa.string(), st.sampled_from([None, "", "a"])),
    "sum": (pa.decimal128(38, 0), st.sampled_from([Decimal(0), Decimal(10) ** 37])),
    "at": (pa.timestamp("us", "UTC"), st.sampled_from([None, datetime(2026, 1, 1, tzinfo=UTC)])),
    "nanos": (pa.timestamp("ns"), st.sampled_from([1, 2])),
    "panes": (pa.list_(pa.struct([("n", pa.int64())])), st.sampled_from([None, [], [{"n": 1}]])),
    c.DUE_EVENT: (pa.int64(), TIMES),
    c.DUE_TIME: (pa.int64(), TIMES),
    c.HOLD: (pa.int64(), TIMES),
}


@st.composite
def stored_rows(draw: st.DrawFn) -> pa.RecordBatch:
    length = draw(st.integers(1, 12))
    hashes = sorted(draw(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=length, max_size=length)))
    columns = {c.HASH: pa.array(hashes, pa.uint64())}
    for name, (kind, values) in KINDS.items():
        column_values = [draw(values)] * length if draw(st.booleans()) else [draw(values) for _ in range(length)]
        columns[name] = pa.array(column_values, kind)
    return pa.RecordBatch.from_pydict(columns)


def put(store: MemoryStore, cache: LayerCache, rows: pa.RecordBatch) -> DataFile:
    (stored_run,) = put_runs(store, cache, "state", [rows])
    assert has_rows(stored_run.run, rows)
    return stored_run.file


def has_rows(run: SortedFile, rows: pa.RecordBatch) -> bool:
    """Whether these are its rows, bit by bit, and what they want."""
    run_deadlines, row_deadlines = run.deadlines, SortedFile(rows).deadlines
    indexes = [
        (run_deadlines.event, row_deadlines.event),
        (run_deadlines.time, row_deadlines.time),
        (run_deadlines.hold, row_deadlines.hold),
    ]
    return (
        run.rows.schema == rows.schema
        and [repr(row) for row in run.rows.to_pylist()] == [repr(row) for row in rows.to_pylist()]
        and all(a.times.tolist() == b.times.tolist() and a.rows.tolist() == b.rows.tolist() for a, b in indexes)
        and all(len(set(map(repr, run.rows.column(name).to_pylist()))) == 1 for name in run.constant)
    )


@given(rows=stored_rows(), chunk=st.integers(1, 5))
@examples(150)
def test_rows_are_what_was_stored(tmp_path_factory: pytest.TempPathFactory, rows: pa.RecordBatch, chunk: int) -> None:
    folder, store = tmp_path_factory.mktemp("cache"), MemoryStore()
    with set_sizes(chunk_rows=chunk):
        file = put(store, LayerCache(folder / "a", LARGE), rows)
        for folder_name in ("a", "b", "b"):  # as it was written, read from the store, and as that was written
            run = LayerCache(folder / folder_name, LARGE).load_file(store, file, rows.schema)
            assert has_rows(run, rows)
            for begin in range(rows.num_rows):
                assert has_rows(SortedFile(run.rows.slice(begin)), rows.slice(begin))
        content = LayerCache(folder / "b", LARGE).object_content(file)
    assert content == store.read(file.path), "a lost object can be stored again"


def test_a_column_of_one_value_takes_no_room(tmp_path: Path) -> None:
    hashes = pa.array(range(10_000), pa.uint64())
    rows = pa.RecordBatch.from_pydict(
        {c.HASH: hashes, **{f"n{number}": pa.repeat(number, 10_000) for number in range(50)}}
    )
    store, cache = MemoryStore(), LayerCache(tmp_path, LARGE)
    put_runs(store, cache, "state", [rows])
    (path,) = tmp_path.glob("*.arrow")
    assert path.stat().st_size < rows.nbytes / 10


def test_a_field_of_a_struct_is_not_the_column_that_is_called_as_it_is(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            c.HASH: pa.array([1, 2, 3], pa.uint64()),
            "user.id": pa.array([1, 2, 3]),
            "user": pa.array([{"id": 5}] * 3),
            "same": pa.array([7, 7, 7]),
        }
    )
    store = MemoryStore()
    (stored_run,) = put_runs(store, LayerCache(tmp_path / "a", LARGE), "state", [rows])
    run = LayerCache(tmp_path / "b", LARGE).load_file(store, stored_run.file, rows.schema)
    assert run.rows == rows
    assert {*run.constant} == {"same"}
