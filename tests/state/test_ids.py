"""Remembered ids say the same of new records however their layers are merged, stored and opened again."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Deduplicate
from headrace.distribute.tasks.tables import expired_prefix
from headrace.kernel.delta import Disposition
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col
from headrace.model.time import Duration, Instant
from headrace.program import columns as c
from headrace.state.chunks import key_group_ranges
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import RememberedIds, open_rows
from headrace.state.migration import merge_ids
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge, plan_merge
from headrace_snapshots.store.local import MemoryStore
from tests.reference.strategies import examples

HORIZON = 10
EMPTY = RememberedIds(Deduplicate(col("id"), Duration(HORIZON)), {"id": DataType.STRING})
RECORDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40)), max_size=6)
EPOCHS = st.lists(st.tuples(RECORDS, st.integers(0, 6), st.booleans()), min_size=1, max_size=20)
"""Of each epoch its records (id, event time), how far the watermark goes, whether layers are merged."""


def judged_columns(records: list[tuple[str, int]]) -> dict[str, pa.Array]:
    count = len(records)
    return {
        c.REJECT: pa.nulls(count, pa.string()),
        c.IS_ADMITTED: pa.array([True] * count, pa.bool_()),
        c.EVENT_TIME: pa.array([time for _, time in records], pa.int64()),
        c.ID: pa.array([name for name, _ in records], pa.string()),
    }


def expected(first: dict[str, list[int]], records: list[tuple[str, int]], watermark: int) -> list[Disposition | None]:
    """By the event times of each id that were the first of theirs, of all epochs so far."""
    fates: list[Disposition | None] = []
    for name, time in records:
        if watermark > time + HORIZON:
            fates.append(Disposition.FORGOTTEN)
        elif any(watermark <= earlier_time + HORIZON for earlier_time in first.get(name, ())):
            fates.append(Disposition.DUPLICATE)
        else:
            fates.append(None)
            first.setdefault(name, []).append(time)
    return fates


@given(EPOCHS, st.integers(2, 4), st.integers(1, 3))
@settings(examples(60))
def test_fates_are_those_of_the_first_of_each_id(
    epochs: list[tuple[list[tuple[str, int]], int, bool]], fanout: int, number: int
) -> None:
    with set_sizes(fanout=fanout), tempfile.TemporaryDirectory() as folder:
        store, cache = MemoryStore(), LayerCache(Path(folder), 10**9)
        stored_layers: tuple[Layer, ...] = ()
        first: dict[str, list[int]] = {}
        watermark = 0

        def put(name: str, rows: Iterable[pa.RecordBatch]) -> tuple[DataFile, ...]:
            return tuple(each.file for each in put_runs(store, cache, name, rows))

        for epoch, (records, step, is_merged) in enumerate(epochs):
            layers = tuple(open_rows(cache, store, EMPTY.schema, layer) for layer in stored_layers)
            ids = replace(EMPTY, layers=layers, watermark=Instant(watermark))
            if is_merged and (start := plan_merge([layer.rows for layer in stored_layers])) is not None:
                merge = UnfinishedMerge.from_layers(stored_layers[start:], 1, is_lowest=start == 0)
                merged_run = put(f"merged-{epoch}", merge_ids(EMPTY.schema, layers[start:], ids.unexpired_mask))
                stored_layers = merge.with_next((merged_run,)).apply_to(stored_layers)
            columns = judged_columns(records)
            columns[c.ID_FATE] = ids.find_duplicates(columns)
            assert columns[c.ID_FATE].to_pylist() == expected(first, records, watermark)
            watermark += step
            new = ids.new_rows(columns, epoch)
            stored_layers = stored_layers[expired_prefix(stored_layers, Instant(watermark)) :]
            if new.num_rows:
                top = Layer(put(f"ids-{epoch}", [new]), new.num_rows, epoch, epoch, int(ids.expiry_watermark(new)))
                stored_layers = (*stored_layers, top)
            cut = [
                [open_rows(cache, store, ids.schema, each, part) for part in key_group_ranges(number)]
                for each in stored_layers
            ]
            assert [sum(part.row_count for part in each) for each in cut] == [each.rows for each in stored_layers]
