"""Layers hold what was written, whenever what is merged beside them takes their place."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.distribute.tasks import background
from headrace.distribute.tasks.background import MergeStep, TableMerges
from headrace.distribute.tasks.tables import expired_prefix
from headrace.kernel.keys import hash_keys
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.chunks import key_group_ranges
from headrace.state.file_cache import LayerCache, put_runs
from headrace.state.layers import Layers, open_rows
from headrace.state.migration import merge_layers
from headrace.state.sorted_file import SortedFile, StateLayer
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge
from headrace_snapshots.store.local import MemoryStore
from tests.reference.strategies import examples
from tests.state.rows import BATCHES, HOUR, STAGE, Row, batch

DAY = 24 * HOUR
NO_CLOCKS = FiringClocks(Instant(0), Instant(0), Instant(0), Instant(0))
KEYS = np.unique(hash_keys([pa.array([f"key {number}" for number in range(12)])]))

EPOCHS = st.lists(
    st.tuples(BATCHES, st.sampled_from([0, 0, 0, 1, 2, 5]), st.sampled_from(["", "adopts", "adopts", "restores"])),
    min_size=1,
    max_size=40,
)
"""Of each epoch what it changes, how far the watermark goes (hours), and what becomes of what is merged."""


def parts_of(layers: Sequence[Layer]) -> int:
    return max(1, sum(layer.rows for layer in layers) // background.STEP_ROWS.value)


@dataclass
class Table:
    """A table of a snapshot; of ``merges`` the ``steps`` are done beside the epochs."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    layers: tuple[Layer, ...] = ()
    merges: TableMerges = field(default_factory=TableMerges)
    steps: dict[MergeStep, list[tuple[DataFile, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = LayerCache(self.folder, 10**9)

    def grow(self, changes: pa.RecordBatch, epoch: int, watermark: Instant) -> None:
        if not self.steps:
            self.merges = self.merges.with_next(self.layers, parts_of)
            self.steps = {step: self._merge_files(step, epoch) for step in self.merges.next_steps(self.layers)}
        left = self.layers[expired_prefix(self.layers, watermark) :]
        layers = Layers(STAGE, self._open_layers(left))
        grown_layer = layers.with_layer([SortedFile(layers.changes_to_keep(changes))], epoch)
        if len(grown_layer.layers) > len(layers.layers):
            top = grown_layer.layers[-1]
            files = self._put(f"state-{epoch}", [run.rows for run in top.runs])
            left = (*left, Layer(files, top.row_count, epoch, epoch, int(top.expires)))
        self.layers = left

    def adopt(self) -> None:
        self.merges, self.layers = self.merges.with_finished_steps(self.steps).apply_finished(self.layers)
        self.steps = {}

    def restore(self) -> None:
        """Another run goes on from what is stored; what was beside the last one is lost."""
        merges = (UnfinishedMerge.from_json(merge.to_json()) for merge in self.merges.unfinished_merges)
        self.merges, self.steps = TableMerges(tuple(merges)), {}

    def _merge_files(self, step: MergeStep, epoch: int) -> list[tuple[DataFile, ...]]:
        merge, files = step.merge, []
        for part in step.parts:
            keys = key_group_ranges(merge.parts)[part]
            layers = [open_rows(self.cache, self.store, STAGE.state_schema, layer, keys) for layer in step.layers]
            pieces = merge_layers(STAGE, layers, is_lowest=merge.is_lowest)
            files.append(self._put(f"merged-{epoch}-{merge.first_epoch}-{part}", pieces))
        return files

    def _put(self, name: str, rows: Iterable[pa.RecordBatch]) -> tuple[DataFile, ...]:
        return tuple(sorted_file.file for sorted_file in put_runs(self.store, self.cache, name, rows))

    def _open_layers(self, layers: Sequence[Layer]) -> tuple[StateLayer, ...]:
        return tuple(open_rows(self.cache, self.store, STAGE.state_schema, layer) for layer in layers)

    def content(self) -> dict[tuple[str, int], int]:
        """The epoch that wrote each row that is there."""
        rows = Layers(STAGE, self._open_layers(self.layers)).affected_rows(KEYS, NO_CLOCKS).to_pylist()
        return {(row["user"], row[c.WINDOW_START] // HOUR): row[c.EPOCH] for row in rows}


@pytest.mark.slow
@given(EPOCHS, st.integers(2, 5), st.sampled_from([1, 3, 1000]))
@settings(examples(60))
def test_layers_hold_the_newest_rows_whenever_they_are_merged(
    epochs: list[tuple[list[Row], int, str]], fanout: int, step_rows: int
) -> None:
    with (
        set_sizes(fanout=fanout, merge_step_rows=step_rows, merge_pace=1, prefix_rows=1),
        tempfile.TemporaryDirectory() as folder,
    ):
        table = Table(Path(folder))
        expected: dict[tuple[str, int], int] = {}
        watermark = 0
        for epoch, (rows, hours, action) in enumerate(epochs):
            watermark += hours * HOUR
            table.grow(batch(rows, epoch), epoch, Instant(watermark))
            expected |= {(row.key, row.start): epoch for row in rows}
            for row in rows:
                if row.status == c.STATUS_GONE:
                    del expected[row.key, row.start]
            if action == "adopts":
                table.adopt()
            elif action == "restores":
                table.restore()
            spans = [epoch for layer in table.layers for epoch in (layer.first_epoch, layer.last_epoch)]
            assert spans == sorted(spans)
            expired_windows = {window for window in expected if watermark > (window[1] + 1) * HOUR + DAY - 1}
            content = table.content()
            assert {
                key: value for key, value in expected.items() if key not in expired_windows
            }.items() <= content.items()
            assert content.keys() <= expected.keys()


def test_a_merge_that_leaves_nothing_leaves_no_layer(tmp_path: Path) -> None:
    rows = [Row("key 1", 0), Row("key 2", 0)]
    gone_rows = [Row("key 1", 0, status=c.STATUS_GONE), Row("key 2", 0, status=c.STATUS_GONE)]
    with set_sizes(fanout=2):
        table = Table(tmp_path)
        table.grow(batch(rows, 0), 0, Instant(0))
        table.grow(batch(gone_rows, 1), 1, Instant(0))
        table.grow(batch(rows, 2), 2, Instant(0))
        table.adopt()
    assert [(layer.first_epoch, layer.rows) for layer in table.layers] == [(2, 2)]
    assert table.content() == {("key 1", 0): 2, ("key 2", 0): 2}


def test_layers_that_expired_while_they_were_merged_stay_away(tmp_path: Path) -> None:
    with set_sizes(fanout=2):
        table = Table(tmp_path)
        for epoch in range(3):
            table.grow(batch([Row("key 1", epoch)], epoch), epoch, Instant(0))
        table.grow(batch([Row("key 1", 90)], 3), 3, Instant(60 * HOUR))
        table.adopt()
    assert [(layer.first_epoch, layer.last_epoch) for layer in table.layers] == [(3, 3)]
