"""Layers opened for parts of the keys: however they are cut, together they are the whole."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.time import MAX_INSTANT, NEVER, Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state import file_cache
from headrace.state.chunks import key_group_ranges
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import Layers, open_rows
from headrace.state.sorted_file import StateLayer
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store.local import MemoryStore
from tests.reference.strategies import examples
from tests.state.rows import BATCHES, STAGE, Row, batch, concat_pieces

NOBODY = np.zeros(0, np.uint64)
INSTANTS = st.integers(0, 10)


def store_rows(store: MemoryStore, cache: LayerCache, rows: pa.RecordBatch, run_bytes: int) -> Layer:
    with set_sizes(run_bytes=run_bytes):
        files = tuple(each.file for each in put_runs(store, cache, "state", [rows]))
    return Layer(files, rows.num_rows, 3, 5, 77)


def rows_of(layer: StateLayer) -> list[pa.RecordBatch]:
    return [run.rows for run in layer.runs]


@given(BATCHES, st.integers(1, 7), st.sampled_from([1, 2000, 10**9]), st.sampled_from([2, 64]), st.data())
@settings(examples(100))
def test_parts_are_the_whole(rows: list[Row], number: int, run_bytes: int, bits: int, data: st.DataObject) -> None:
    written_batch = batch(rows, bits=bits)
    old_instant, new_instant = sorted(data.draw(st.tuples(INSTANTS, INSTANTS)))
    clocks = FiringClocks(Instant(old_instant), Instant(new_instant), Instant(old_instant), Instant(new_instant))
    with tempfile.TemporaryDirectory() as folder:
        store, cache = MemoryStore(), LayerCache(Path(folder), 10**9)
        layer = store_rows(store, cache, written_batch, run_bytes)
        opened_rows = [open_rows(cache, store, STAGE.state_schema, layer, part) for part in key_group_ranges(number)]
        assert concat_pieces([piece for each in opened_rows for piece in rows_of(each)]).equals(written_batch)
        assert sum(each.row_count for each in opened_rows) == written_batch.num_rows
        assert {(each.first_epoch, each.last_epoch, each.expires) for each in opened_rows} == {(3, 5, 77)}

        whole = Layers(STAGE, (open_rows(cache, store, STAGE.state_schema, layer),))
        layers_alone = [Layers(STAGE, (each,)) for each in opened_rows]
        due = concat_pieces([each.affected_rows(NOBODY, clocks) for each in layers_alone])
        assert due.equals(whole.affected_rows(NOBODY, clocks))
        assert min(each.earliest_hold(Instant(new_instant)) for each in layers_alone) == whole.earliest_hold(
            Instant(new_instant)
        )
        nexts = [each.next_due(Instant(old_instant), Instant(new_instant)) for each in layers_alone]
        assert tuple(map(min, zip(*nexts, strict=True))) == whole.next_due(Instant(old_instant), Instant(new_instant))


@given(BATCHES, st.tuples(INSTANTS, INSTANTS), st.tuples(INSTANTS, INSTANTS))
@settings(examples(200))
def test_due_rows_are_those_whose_time_has_come(rows: list[Row], event: tuple[int, int], time: tuple[int, int]) -> None:
    event_before, event_after = sorted(event)
    previous, now = sorted(time)
    clocks = FiringClocks(Instant(event_before), Instant(event_after), Instant(previous), Instant(now))
    layers = Layers(STAGE, (StateLayer((file_cache.SortedFile(batch(rows)),), 0, 0),))
    users = affected_users(layers, clocks)
    due = {row.key for row in rows if event_before <= row.due_event < event_after or previous < row.due_time <= now}
    assert users == {row.key for row in rows if row.key in due and row.status != 2}
    waiting = [row.due_event for row in rows if row.due_event >= event_before]
    assert layers.next_due(Instant(event_before), Instant(now))[0] == min(waiting, default=NEVER)


def test_plus_infinity_asks_windows_whose_stored_due_is_beyond_it() -> None:
    """Version 0.2.0 stored the end of a window that ends beyond the end of time."""
    rows = [Row("beyond", 0, due_event=int(MAX_INSTANT) + 1), Row("never", 0)]
    layers = Layers(STAGE, (StateLayer((file_cache.SortedFile(batch(rows)),), 0, 0),))
    now = Instant(0)
    assert affected_users(layers, FiringClocks(now, MAX_INSTANT, now, now)) == {"beyond"}
    assert affected_users(layers, FiringClocks(MAX_INSTANT, MAX_INSTANT, now, now)) == set()


def affected_users(layers: Layers, clocks: FiringClocks) -> set[str]:
    return {key["user"] for key in layers.affected_rows(NOBODY, clocks).to_pylist()}


@given(st.lists(BATCHES, max_size=5), st.integers(0, 11), st.sampled_from([1, 3, 64]), st.sampled_from([2, 64]))
@settings(examples(200))
def test_the_earliest_hold_is_that_of_an_open_window(
    batches: list[list[Row]], watermark: int, few: int, bits: int
) -> None:
    runs = (file_cache.SortedFile(batch(rows, epoch, bits)) for epoch, rows in enumerate(batches))
    layers = Layers(STAGE, tuple(StateLayer((run,), epoch, epoch) for epoch, run in enumerate(runs)))
    newest = {(row.key, row.start): row for rows in batches for row in rows}
    holds = [row.hold for row in newest.values() if row.status == c.STATUS_OPEN and row.hold is not None]
    with set_sizes(hold_rows=few):
        assert layers.earliest_hold(Instant(watermark)) == min([watermark, *holds])


@pytest.mark.slow
def test_a_part_looks_only_at_its_own_files(tmp_path: Path) -> None:
    store, cache = MemoryStore(), LayerCache(tmp_path / "written", 10**9)
    layer = store_rows(store, cache, batch([Row(f"key {number}", 0) for number in range(4000)]), 10_000)
    assert len(layer.files) > 20
    requests_before = store.requests.snapshot()
    opened_rows = open_rows(
        LayerCache(tmp_path / "empty", 10**9), store, STAGE.state_schema, layer, key_group_ranges(8)[3]
    )
    assert len(opened_rows.runs) <= len(layer.files) // 8 + 2
    assert store.requests.since(requests_before)["get"] == len(opened_rows.runs)


@pytest.mark.parametrize("number", [1, 3])
def test_files_of_unknown_groups_are_cut_by_their_rows(tmp_path: Path, number: int) -> None:
    store, cache = MemoryStore(), LayerCache(tmp_path, 10**9)
    rows = batch([Row(f"key {number}", 0) for number in range(100)])
    layer = store_rows(store, cache, rows, 10**9)
    old = Layer(tuple(file_cache.DataFile(f.path, f.rows, f.bytes, f.sha256) for f in layer.files), 100, 0, 0, None)
    opened_rows = [open_rows(cache, store, STAGE.state_schema, old, part) for part in key_group_ranges(number)]
    assert concat_pieces([piece for each in opened_rows for piece in rows_of(each)]).equals(rows)
    assert opened_rows[0].expires == NEVER
