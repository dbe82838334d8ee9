"""An epoch of a stage is a function that gives its results slice by slice, and a writer is given them."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.kernel.delta import aggregate_rows, judge_rows
from headrace.kernel.step import Counts, StageResult, step_stage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state import layers
from headrace.state.file_cache import RowsInMemory, RunWriter
from headrace.state.layers import Layers, StageEpoch
from headrace.state.sorted_file import SortedFile, StateLayer
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store.local import MemoryStore
from tests.state.rows import HOUR, STAGE, many

KEYS = 500
BEGIN = FiringClocks(MIN_INSTANT, Instant(0), Instant(0), Instant(0))
PASSED_CLOCKS = FiringClocks(Instant(0), Instant(2 * HOUR), Instant(0), Instant(0))
"""The watermark passes the ends of all windows."""


def delta(keys: Sequence[int], time: int) -> pa.RecordBatch:
    """An element of each of ``keys``."""
    rows = {
        "user": pa.array([f"user {key}" for key in keys]),
        "at": pa.array([time] * len(keys), pa.timestamp("us", "UTC")),
        "price": pa.array(keys, pa.int64()),
        c.EVENT_TIME: pa.array([time] * len(keys), pa.int64()),
    }
    made_delta = aggregate_rows(STAGE, judge_rows(STAGE, rows), MIN_INSTANT).delta
    assert made_delta is not None
    return made_delta


@pytest.fixture
def epoch() -> StageEpoch:
    """The second of two epochs: it changes every second window, and fires all of them."""
    first = StageEpoch(0, Layers(STAGE), [delta(range(KEYS), HOUR // 2)], BEGIN)
    runs = tuple(SortedFile(result.changes) for result in first.compute_results())
    layers = Layers(STAGE, (StateLayer(runs, 0, 0),))
    return StageEpoch(
        1, layers, [delta(range(0, KEYS, 4), HOUR // 3), delta(range(0, KEYS, 2), HOUR // 4)], PASSED_CLOCKS
    )


@pytest.fixture
def in_slices() -> Iterator[None]:
    with set_sizes(slice_rows=50):
        yield


def content(results: Sequence[StageResult]) -> tuple[pa.RecordBatch, pa.Table, Counts | None]:
    """All rows of state in their order, all panes in one, and all counts."""
    panes = pa.Table.from_batches([result.pane_rows() for result in results])
    return (
        pa.concat_batches([result.changes for result in results]),
        panes.sort_by([(name, "ascending") for name in ("user", "window_end", "sequence")]),
        Counts.of_all(result.counts for result in results),
    )


def test_an_epoch_computed_again_or_in_slices_is_the_same(epoch: StageEpoch) -> None:
    (whole,), (result_again,) = epoch.compute_results(), epoch.compute_results()
    assert content([whole]) == content([result_again])
    with set_sizes(slice_rows=50):
        slices = [*epoch.compute_results()]
        assert len(slices) > 5
        assert content(slices) == content([whole])
        assert whole.counts.on_time == KEYS


def test_parts_of_the_keys_are_the_whole(epoch: StageEpoch) -> None:
    (whole,) = epoch.compute_results()
    parts = [result for keys in epoch.keys.split_evenly(3) for result in _of_part(epoch, keys.first, keys.last)]
    assert content(parts) == content([whole])


def _of_part(epoch: StageEpoch, first: int, last: int) -> Iterator[StageResult]:
    keys = replace(epoch.keys, first=first, last=last)
    spans = [keys.row_slice(piece.column(c.HASH).to_numpy()) for piece in epoch.deltas]
    pieces = [piece[span] for piece, span in zip(epoch.deltas, spans, strict=True)]
    return replace(epoch, keys=keys, layers=epoch.layers.slice_keys(keys), deltas=pieces).compute_results()


@pytest.mark.usefixtures("in_slices")
def test_a_result_that_is_let_go_is_gone_before_the_next_one_is_computed(
    epoch: StageEpoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: list[weakref.ref[StageResult]] = []
    were_gone = []

    def watch_call(*arguments: object, **more: object) -> StageResult | None:
        were_gone.extend(one() is None for one in last[-1:])
        return step_stage(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(layers, "step_stage", watch_call)
    for result in epoch.compute_results():
        last.append(weakref.ref(result))
        del result
    assert len(were_gone) > 5
    assert all(were_gone)


def test_a_writer_stores_files_while_rows_come() -> None:
    rows = many(0, 1000)
    with set_sizes(run_bytes=rows.nbytes // 4):
        store = MemoryStore()
        run_writer = RunWriter(store, RowsInMemory(), "p/state")
        counts = []
        for begin in range(0, 1000, 100):
            run_writer.add(rows[begin : begin + 100])
            counts.append(len([*store.list("p/")]))
        files = run_writer.finish()
        assert (counts[0], counts[-1] + 1) == (0, len(files))
        assert pa.concat_batches([one.run.rows for one in files]) == rows
        assert RunWriter(store, RowsInMemory(), "p/none").finish() == ()
