"""Layers merged range by range give what they give as a whole."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.state import newest_rows
from headrace.program import columns as c
from headrace.state import migration
from headrace.state.migration import merge_ids, merge_layers
from headrace.state.sorted_file import SortedFile, StateLayer
from headrace_lab.sizes import set_sizes
from tests.reference.strategies import examples
from tests.state.rows import BATCHES, STAGE, Row, batch, concat_pieces, layer

ORDER = [(c.HASH, "ascending"), (c.WINDOW_START, "ascending"), ("user", "ascending")]
"""That of rows, and of keys of one hash, which stand in any order."""


def merge_pieces(layers: list[StateLayer], range_bytes: int, *, is_lowest: bool) -> list[pa.RecordBatch]:
    with set_sizes(merge_range_bytes=range_bytes):
        return list(merge_layers(STAGE, layers, is_lowest=is_lowest))


@given(
    st.lists(BATCHES, min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([1, 5, 64]),
    st.sampled_from([1, 3000, 20_000, 10**9]),
    st.booleans(),
)
@settings(examples(200))
def test_ranges_give_the_newest_rows_of_all(
    layers: list[list[Row]], files: int, bits: int, range_bytes: int, is_lowest: bool
) -> None:
    batches = [batch(rows, epoch, bits) for epoch, rows in enumerate(layers)]
    expected = newest_rows(STAGE, batches)
    if is_lowest:
        expected = expected.filter(pc.not_equal(expected.column(c.STATUS), c.STATUS_GONE))
    pieces = merge_pieces(
        [layer(rows, epoch, files) for epoch, rows in enumerate(batches)], range_bytes, is_lowest=is_lowest
    )
    all_rows = concat_pieces(pieces)
    assert all_rows.sort_by(ORDER).equals(expected.sort_by(ORDER))
    assert all_rows.select([c.HASH, c.WINDOW_START]).equals(all_rows.sort_by(ORDER).select([c.HASH, c.WINDOW_START]))
    assert all(piece.num_rows for piece in pieces)


@pytest.mark.slow
def test_a_range_is_bounded_whatever_the_layers() -> None:
    rows = [Row(f"key {number}", 0) for number in range(40_000)]
    layers = [layer(batch(rows[epoch * 2000 :: epoch + 1], epoch), epoch, files=epoch + 1) for epoch in range(8)]
    most = sum(run.rows.nbytes for each in layers for run in each.runs) // 20
    with mock.patch.object(migration, "newest_rows", side_effect=newest_rows) as spy:
        pieces = merge_pieces(layers, most, is_lowest=True)
    assert sum(piece.num_rows for piece in pieces) == len(rows)
    assert max(sum(piece.nbytes for piece in call.args[1]) for call in spy.call_args_list) <= 1.5 * most


def test_windows_of_one_key_are_cut_too() -> None:
    layers = [layer(batch([Row("one", start) for start in range(5000)], epoch), epoch) for epoch in range(3)]
    pieces = merge_pieces(layers, 100_000, is_lowest=False)
    assert len(pieces) > 5
    assert concat_pieces(pieces).equals(newest_rows(STAGE, [each.runs[0].rows for each in layers]))


@pytest.mark.parametrize("range_bytes", [1, 2000, 10**9])
def test_ids_that_still_count_are_put_in_order(range_bytes: int) -> None:
    rng = np.random.default_rng(1)
    schema = pa.schema([(c.HASH, pa.uint64()), ("at", pa.int64())])

    def ids(epoch: int) -> StateLayer:
        hashes = np.sort(rng.integers(0, 2**64, 300, np.uint64) >> np.uint64(56) << np.uint64(56))
        rows = pa.RecordBatch.from_arrays([pa.array(hashes), pa.array(rng.integers(0, 100, 300))], schema=schema)
        return StateLayer((SortedFile(rows),), epoch, epoch)

    layers = [ids(epoch) for epoch in range(4)]
    whole = concat_pieces([each.runs[0].rows for each in layers])
    whole = whole.filter(pc.greater(whole.column("at"), 50))
    order = np.argsort(whole.column(c.HASH).to_numpy(), kind="stable")
    with set_sizes(merge_range_bytes=range_bytes):
        pieces = list(merge_ids(schema, layers, lambda rows: rows.column("at").to_numpy() > 50))
    assert concat_pieces(pieces, schema).equals(whole.take(pa.array(order)))
