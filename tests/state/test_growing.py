"""Layers in memory and in the manifest stay side by side, whenever merges are stored, and hold what was written."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.keys import hashes
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.program.firing import Clocks
from headrace.state.cache import LayerCache
from headrace.state.layering import LayerChange, StateLayer
from headrace.state.layers import Layers
from headrace.state.stored import open_layer
from headrace.state.storing import put_layer
from headrace_snapshots.format import layers as planning
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store import MemoryStore
from tests.reference.strategies import examples
from tests.state.rows import BATCHES, HOUR, STAGE, Row, batch

DAY = 24 * HOUR
NO_CLOCKS = Clocks(Instant(0), Instant(0), Instant(0), Instant(0))
KEYS = np.unique(hashes([pa.array([f"key {number}" for number in range(12)])]))

EPOCHS = st.lists(
    st.tuples(BATCHES, st.sampled_from([0, 0, 0, 1, 2, 5]), st.booleans()),
    min_size=1,
    max_size=25,
)
"""Of each epoch what it changes, how far the watermark goes (hours), and whether what waits is stored behind it."""


@dataclass
class Table:
    """A table of a snapshot, and what an engine has of it."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    stored: tuple[Layer, ...] = ()
    layers: Layers = field(default_factory=lambda: Layers(STAGE))
    waiting: list[tuple[LayerChange, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = LayerCache(self.folder, 10**9)

    def grow(self, changes: pa.RecordBatch, epoch: int, watermark: Instant) -> None:
        self.layers, change = self.layers.grown(changes, epoch, watermark)
        self.waiting.append((change, epoch))

    def commit(self) -> None:
        for change, epoch in self.waiting:
            files, top = put_layer(self.store, self.cache, f"state-{epoch}", change)
            kept = self.stored[change.expired : len(self.stored) - change.replaces]
            new = Layer(files, sum(file.rows for file in files), *change.epochs, int(change.expires))
            self.stored = (*kept, new) if change.adds else kept
            if top is not None:
                self.layers = self.layers.with_stored(top)
        self.waiting.clear()

    def reopened(self) -> Layers:
        opened = (open_layer(self.cache, self.store, STAGE, layer) for layer in self.stored)
        return Layers(STAGE, tuple(opened))


def content(layers: Layers) -> dict[tuple[str, int], int]:
    """The epoch that wrote each row that is there."""
    rows = layers.lookup(KEYS, NO_CLOCKS).to_pylist()
    return {(row["user"], row[c.WINDOW_START] // HOUR): row[c.EPOCH] for row in rows}


def epochs_of(layers: "tuple[Layer, ...] | tuple[StateLayer, ...]") -> list[tuple[int, int]]:
    return [(layer.first_epoch, layer.last_epoch) for layer in layers]


@given(EPOCHS, st.integers(2, 5))
@settings(examples(60))
def test_layers_are_those_of_the_manifest_and_hold_the_newest_rows(
    epochs: list[tuple[list[Row], int, bool]], fanout: int
) -> None:
    with mock.patch.object(planning, "FANOUT", fanout), tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        expected: dict[tuple[str, int], int] = {}
        watermark = 0
        for epoch, (rows, hours, is_stored) in enumerate(epochs):
            watermark += hours * HOUR
            table.grow(batch(rows, epoch), epoch, Instant(watermark))
            expected |= {(row.key, row.start): epoch for row in rows}
            for row in rows:
                if row.status == c.DELETED:
                    del expected[row.key, row.start]
            if is_stored:
                table.commit()
                assert epochs_of(table.layers.layers) == epochs_of(table.stored)
                assert content(table.reopened()) == content(table.layers)
            expired = {window for window in expected if watermark > (window[1] + 1) * HOUR + DAY - 1}
            found = content(table.layers)
            assert {key: value for key, value in expected.items() if key not in expired}.items() <= found.items()
            assert found.keys() <= expected.keys()
        table.commit()
        assert epochs_of(table.layers.layers) == epochs_of(table.stored)


def test_a_merge_that_leaves_nothing_is_a_layer_without_files(tmp_path: Path) -> None:
    rows = [Row("key 1", 0), Row("key 2", 0)]
    gone = [Row("key 1", 0, status=c.DELETED), Row("key 2", 0, status=c.DELETED)]
    with mock.patch.object(planning, "FANOUT", 2):
        table = Table(tmp_path)
        for epoch, changes in enumerate([rows, gone, rows]):
            table.grow(batch(changes, epoch), epoch, Instant(0))
            table.commit()
            assert epochs_of(table.layers.layers) == epochs_of(table.stored)
            if epoch == 1:
                assert [layer.files for layer in table.stored] == [()]
                assert content(table.reopened()) == {}
    assert content(table.layers) == content(table.reopened()) == {("key 1", 0): 2, ("key 2", 0): 2}


def test_what_is_stored_is_no_longer_held_in_memory(tmp_path: Path) -> None:
    table = Table(tmp_path)
    changes = batch([Row(f"key {number}", 0) for number in range(1000)])
    table.grow(changes, 0, Instant(0))
    before = table.layers.runs[0].rows
    table.commit()
    after = table.layers.runs[0].rows
    assert after.equals(before)
    assert after.column(0).buffers()[1].address != before.column(0).buffers()[1].address
    assert pa.default_memory_pool().backend_name  # what is mapped is in no pool
    held = pa.total_allocated_bytes()
    del before, changes
    assert pa.total_allocated_bytes() < held
