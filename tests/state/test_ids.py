"""Remembered ids say the same of new records however their layers are merged, stored and opened again."""

import tempfile
from pathlib import Path
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.delta import Fate
from headrace.model.expr import DataType, col
from headrace.model.time import Duration, Instant
from headrace.pipeline import Deduplicate
from headrace.program import columns as c
from headrace.state.cache import LayerCache
from headrace.state.groups import parts
from headrace.state.ids import RememberedIds
from headrace.state.stored import open_rows
from headrace.state.storing import put_layer
from headrace_snapshots.format import layers as planning
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store import MemoryStore
from tests.reference.strategies import examples

HORIZON = 10
EMPTY = RememberedIds(Deduplicate(col("id"), Duration(HORIZON)), {"id": DataType.STRING})
RECORDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40)), max_size=6)
EPOCHS = st.lists(st.tuples(RECORDS, st.integers(0, 6), st.booleans()), min_size=1, max_size=20)
"""Of each epoch its records (id, event time), how far the watermark goes, whether its state is stored and opened."""


def judged(records: list[tuple[str, int]]) -> dict[str, pa.Array]:
    count = len(records)
    return {
        c.REJECT: pa.nulls(count, pa.string()),
        c.ADMITTED: pa.array([True] * count, pa.bool_()),
        c.EVENT_TIME: pa.array([at for _, at in records], pa.int64()),
        c.ID: pa.array([name for name, _ in records], pa.string()),
    }


def expected(first: dict[str, list[int]], records: list[tuple[str, int]], watermark: int) -> list[Fate | None]:
    """By the event times of each id that were the first of theirs, of all epochs so far."""
    fates: list[Fate | None] = []
    for name, at in records:
        if watermark > at + HORIZON:
            fates.append(Fate.FORGOTTEN)
        elif any(watermark <= known + HORIZON for known in first.get(name, ())):
            fates.append(Fate.DUPLICATE)
        else:
            fates.append(None)
            first.setdefault(name, []).append(at)
    return fates


@given(EPOCHS, st.integers(2, 4), st.integers(1, 3))
@settings(examples(60))
def test_fates_are_those_of_the_first_of_each_id(
    epochs: list[tuple[list[tuple[str, int]], int, bool]], fanout: int, number: int
) -> None:
    with mock.patch.object(planning, "FANOUT", fanout), tempfile.TemporaryDirectory() as folder:
        store, cache = MemoryStore(), LayerCache(Path(folder), 10**9)
        ids, stored, first, watermark = EMPTY, (), {}, 0
        for epoch, (records, moved, is_reopened) in enumerate(epochs):
            columns = judged(records)
            columns[c.SEEN] = ids.seen(columns)
            assert columns[c.SEEN].to_pylist() == expected(first, records, watermark)
            watermark += moved
            ids, change = ids.after(epoch, columns if records else None, Instant(watermark))
            files, top = put_layer(store, cache, f"ids-{epoch}", change)
            kept = stored[change.expired : len(stored) - change.replaces]
            layer = Layer(files, sum(file.rows for file in files), *change.epochs, int(change.expires))
            stored = (*kept, layer) if change.adds else kept
            if top is not None:
                ids = ids.with_stored(top)
            assert [(each.first_epoch, each.last_epoch) for each in ids.layers] == [
                (each.first_epoch, each.last_epoch) for each in stored
            ]
            cut = [[open_rows(cache, store, ids.schema, each, part) for part in parts(number)] for each in stored]
            assert [sum(part.row_count for part in each) for each in cut] == [each.rows for each in stored]
            if is_reopened:
                opened = tuple(open_rows(cache, store, ids.schema, each) for each in stored)
                ids = RememberedIds(ids.deduplicate, ids.columns, opened, Instant(watermark))
