"""A merge goes on over several epochs: none of them merges much, and layers stay few."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.distribute.tasks.background import (
    PACE,
    STEP_ROWS,
    Merges,
    MergeStep,
    TableMerges,
    growth_of_input,
    many_layers,
    most_layers,
    rows_of_step,
)
from headrace.state.chunks import GROUPS
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FANOUT, DataFile, Layer, UnfinishedMerge
from headrace_snapshots.store import open_store
from tests.reference.strategies import examples

NUMBERS = count()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def layer(rows: int, first: int, last: int | None = None, expires: int | None = None) -> Layer:
    files = (DataFile(f"p/data/{next(NUMBERS)}", rows, rows, "0"),) if rows else ()
    return Layer.from_files(files, first, first if last is None else last, expires)


def parts_of(layers: Sequence[Layer]) -> int:
    return max(2, sum(layer.rows for layer in layers) // STEP_ROWS.value)


@dataclass
class Table:
    """Layers of rows that nobody replaces; what is merged beside an epoch is taken over by it. ``knows_input``: an
    epoch reads a byte a row, and knows what the one before it read. ``is_current``: parts are as in its folds.
    """

    knows_input: bool = False
    is_current: bool = False
    layers: tuple[Layer, ...] = ()
    merges: TableMerges = field(default_factory=TableMerges)
    merged_rows: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    rows_before: int = 0
    steps: tuple[MergeStep, ...] = ()

    def epoch(self, rows: int, *, is_step_done: bool = True) -> None:
        """An epoch of so many ``rows``. A step that is not done goes on, and no other one begins."""
        number = len(self.merged_rows)
        growth = growth_of_input(rows, self.rows_before) if self.knows_input else None
        self.rows_before = rows
        merged_rows = 0
        if not self.steps:
            self.merges = self.merges.with_next(self.layers, lambda own: self._parts_of(own, growth))
            self.steps = self.merges.next_steps(self.layers, growth)
            merged_rows = sum(count_merged_rows(step) for step in self.steps)
        self.layers = (*self.layers, layer(rows, number))
        self.merged_rows.append(merged_rows)
        if is_step_done or len(self.layers) > most_layers():
            finished_steps, self.steps = {step: files(step) for step in self.steps}, ()
            self.merges, self.layers = self.merges.with_finished_steps(finished_steps).apply_finished(self.layers)
        self.counts.append(len(self.layers))

    def _parts_of(self, layers: Sequence[Layer], growth: float | None) -> int:
        if not self.is_current:
            return parts_of(layers)
        return max(1, sum(layer.rows for layer in layers) // rows_of_step(self.layers, growth))

    @property
    def rows(self) -> int:
        return sum(layer.rows for layer in self.layers)


def count_merged_rows(step: MergeStep) -> int:
    return sum(layer.rows for layer in step.layers) * len(step.parts) // step.merge.parts


def files(step: MergeStep) -> list[tuple[DataFile, ...]]:
    """The rows of each part; the last one has what is left over."""
    rows, parts = sum(layer.rows for layer in step.layers), step.merge.parts
    own = [rows // parts + (rows % parts if part == parts - 1 else 0) for part in step.parts]
    return [(DataFile(f"p/data/{next(NUMBERS)}", n, n, "0"),) if n else () for n in own]


def test_epochs_on_many_live_keys_merge_a_little_each() -> None:
    table, changed_keys = Table(), 200_000
    for _ in range(10):
        table.epoch(1_000_000)
    begun_number = len(table.merged_rows)
    for _ in range(600):
        table.epoch(changed_keys)
    assert table.rows == 10 * 1_000_000 + 600 * changed_keys
    most_of_a_part = 2 * STEP_ROWS.value
    longest = max(table.merged_rows[begun_number + 16 :])
    assert longest <= 2 * PACE.value * changed_keys + most_of_a_part, "no epoch waits for a merge of everything"
    assert max(table.counts) <= most_layers()
    assert sum(table.merged_rows) <= 4 * table.rows, "a row is written once for each tier"


@pytest.mark.parametrize(("knows_input", "is_current"), [(True, False), (False, False), (True, True)])
def test_small_epochs_behind_a_load_do_not_pay_for_it(knows_input: bool, is_current: bool) -> None:
    table, changed_keys = Table(knows_input, is_current), 200_000
    for _ in range(FANOUT.value):
        table.epoch(6_250_000)
    begun_number = len(table.merged_rows)
    for _ in range(400):
        table.epoch(changed_keys)
    small = table.merged_rows[begun_number:]
    # the first small one cannot tell that it is small, if nothing says what was read
    assert max(small[0 if knows_input else 1 :]) <= 2 * PACE.value * changed_keys
    assert max(table.counts) < most_layers()
    assert all(merge.first_epoch for merge in table.merges.unfinished_merges), "the merge of the load is done"


@set_sizes(merge_step_rows=500)
def test_a_small_run_behind_a_load_does_not_pay_for_it(tmp_path: Path) -> None:
    def land(number: int, users: range) -> None:
        rows = pa.table({"user": [*users], "at": pa.array([NOON] * len(users), pa.timestamp("us", "UTC"))})
        pq.write_table(rows, landing / f"{number:02}.parquet")

    landing = tmp_path / "landing"
    landing.mkdir()
    users = hr.parquet(landing.as_uri(), {"user": int, "at": datetime}).event_time("at", bound="1h")
    visits = hr.Pipeline(
        "visits",
        users,
        key="user",
        where=hr.FixedWindows("1d"),
        what={"visits": hr.count()},
        when=hr.on_update(),
        executor="local",
    )
    root, rows, parts_left = hr.open((tmp_path / "root").as_uri(), create=True), 5_000, []
    fold_parts_left: list[int] = []
    for number in range(FANOUT.value):
        land(number, range(number * rows, (number + 1) * rows))
        root[visits].run()
    for number in range(2):
        land(FANOUT.value + number, range(number, number + 5))
        root[visits].run()
        catalog = Catalog(open_store((tmp_path / "root").as_uri()), "visits")
        unfinished_merges = catalog.manifest(catalog.head().refs["main"]).merges
        [merge], [fold] = unfinished_merges["state"], unfinished_merges["current"]
        parts_left.append(len(merge.left))
        fold_parts_left.append(len(fold.left))
    assert merge.parts == FANOUT.value * rows // 500
    assert fold.parts >= merge.parts // 2, "a part of a fold is no larger than a step"
    assert fold_parts_left == [fold.parts - 1, fold.parts - 2]
    # a step has twice 500 rows at most, where one sized by the load had three times 5,000
    assert parts_left == [merge.parts - 1, merge.parts - 2]


@set_sizes(merge_step_rows=500)
def test_a_run_that_reads_more_than_one_that_gave_no_pane_does_not_pay_for_a_load(tmp_path: Path) -> None:
    def land(number: int, day: int, users: range) -> None:
        noon = f"2026-03-{1 + day:02}T12:00:00Z"
        lines = (json.dumps({"user": user, "at": noon}) + "\n" for user in users)
        (landing / f"{number:02}.json").write_text("".join(lines))

    landing = tmp_path / "landing"
    landing.mkdir()
    users = hr.json(landing.as_uri(), {"user": int, "at": datetime}).event_time("at", bound="1h")
    visits = hr.Pipeline(
        "visits", users, key="user", where=hr.FixedWindows("1d"), what={"visits": hr.count()}, executor="local"
    )
    handle, rows, parts_left = hr.open((tmp_path / "root").as_uri(), create=True)[visits], 1_000, []
    for day in range(FANOUT.value + 1):
        land(day, day, range(day * rows, (day + 1) * rows))
        handle.run()  # fires the windows of the day before
    for number, changed_keys in enumerate((1, 1_000)):
        land(FANOUT.value + 1 + number, FANOUT.value, range(changed_keys))
        handle.run()
        catalog = Catalog(open_store((tmp_path / "root").as_uri()), "visits")
        unfinished_merges = catalog.manifest(catalog.head().refs["main"]).merges.get("current", ())
        parts_left.append(sum(len(merge.left) for merge in unfinished_merges))
    most_parts = FANOUT.value * rows // 500
    assert parts_left == [most_parts - 1, most_parts - 1 - PACE.value * rows // 500]


@pytest.mark.parametrize(("knows_input", "is_current"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("small_epochs", [1, 2, 5])
def test_no_epoch_waits_for_a_whole_merge_where_some_are_large(
    knows_input: bool, is_current: bool, small_epochs: int
) -> None:
    table = Table(knows_input, is_current)
    for _ in range(300):
        table.epoch(4_000_000)
        for _ in range(small_epochs):
            table.epoch(40_000)
    assert max(table.counts) < most_layers()
    assert max(table.merged_rows) <= 2 * PACE.value * 4_000_000


def test_small_merges_are_done_at_once() -> None:
    table = Table()
    for _ in range(10 * FANOUT.value):
        table.epoch(12)
        assert table.merges.unfinished_merges == ()
    assert max(table.counts) <= 2 * FANOUT.value


@given(
    st.lists(st.sampled_from([0, 1, 50, 3_000, 40_000, 300_000, 2_000_000]), min_size=40, max_size=300), st.booleans()
)
@examples(100)
def test_layers_stay_few_and_no_row_is_lost_whatever_comes(arrivals: list[int], knows_input: bool) -> None:
    table = Table(knows_input)
    for rows in arrivals:
        table.epoch(rows)
        spans = [epoch for layer in table.layers for epoch in (layer.first_epoch, layer.last_epoch)]
        assert spans == sorted(spans)
    assert table.rows == sum(arrivals)
    assert max(table.counts) <= most_layers() + FANOUT.value


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 50, 3_000, 40_000, 300_000, 2_000_000, 20_000_000]), st.booleans()),
        min_size=40,
        max_size=300,
    )
)
@examples(100)
def test_folds_of_current_leave_few_layers_and_end_whatever_comes(arrivals: list[tuple[int, bool]]) -> None:
    table = Table(knows_input=True, is_current=True)
    for rows, is_step_done in arrivals:
        table.epoch(rows, is_step_done=is_step_done)
    assert table.rows == sum(rows for rows, _ in arrivals)
    assert max(table.counts) <= most_layers() + FANOUT.value
    begun_merges = table.merges.unfinished_merges
    # a step does a part at least, but for one in sixteen, which has a merge of one-row epochs to do first
    most_steps = sum(len(merge.left) for merge in begun_merges) * 2 + FANOUT.value
    for _ in range(most_steps):
        table.epoch(1)
    last_epochs = {merge.last_epoch for merge in begun_merges}
    assert not [merge for merge in table.merges.unfinished_merges if merge.last_epoch in last_epochs]


def test_a_smaller_merge_goes_before_a_larger_one() -> None:
    old = tuple(layer(2_000_000, number) for number in range(FANOUT.value))
    merges = TableMerges().with_next(old, parts_of)
    assert [len(merge.layers) for merge in merges.unfinished_merges] == [FANOUT.value]
    layers = (*old, *(layer(10_000, FANOUT.value + number) for number in range(FANOUT.value)))
    merges = merges.with_next(layers, parts_of)
    assert [(merge.first_epoch, merge.is_lowest) for merge in merges.unfinished_merges] == [
        (0, True),
        (FANOUT.value, False),
    ]
    steps = merges.next_steps(layers)
    assert steps[0].merge.first_epoch == FANOUT.value
    assert not steps[0].finish_step(files(steps[0])).left, "it is small, and done in a step"


@pytest.mark.parametrize("fanout", [FANOUT.value, 4])
def test_many_layers_make_steps_longer(fanout: int) -> None:
    def step_rows(more: int) -> int:
        layers = tuple(layer(2_000_000, number) for number in range(FANOUT.value))
        layers = (*layers, *(layer(1, FANOUT.value + number) for number in range(more)))
        merges = TableMerges((UnfinishedMerge.from_layers(layers[: FANOUT.value], 1000, is_lowest=True),))
        return sum(count_merged_rows(step) for step in merges.next_steps(layers) if step.merge.first_epoch == 0)

    with set_sizes(fanout=fanout):
        rows_with_few, rows_with_many, rows_with_most = (step_rows(more) for more in (1, many_layers(), most_layers()))
        assert rows_with_few < rows_with_many < rows_with_most == fanout * 2_000_000


def test_what_is_done_counts_only_for_the_layers_that_it_was_made_of() -> None:
    layers = tuple(layer(10, number, expires=number) for number in range(4))
    merge = UnfinishedMerge.from_layers(layers, 2, is_lowest=True).with_next(((),))
    assert merge.source_layers(layers) == layers
    assert merge.source_layers(layers[1:]) == layers[1:], "the oldest has expired"
    assert merge.source_layers(layers[:-1]) == (), "the newest never does alone"
    assert merge.source_layers((layer(10, 0), *layers[1:])) == (), "it was written again"
    assert merge.source_layers(()) == ()
    others = (*layers[:2], layer(10, 2, expires=9), layers[3])
    assert TableMerges((merge,)).with_next(others, parts_of).unfinished_merges == ()
    whole = merge.with_next(((DataFile("p/data/merged", 40, 40, "0"),),))
    new_layer = layer(5, 4)
    (merged_layer, newest) = whole.apply_to((*layers[1:], new_layer))
    assert (merged_layer.rows, merged_layer.first_epoch, merged_layer.last_epoch, merged_layer.expires, newest) == (
        40,
        0,
        3,
        3,
        new_layer,
    )
    assert whole.apply_to(others) == others


@set_sizes(merge_step_rows=10)
def test_layers_that_are_merged_are_one_for_the_plan_of_the_next() -> None:
    layers = tuple(layer(100, number) for number in range(FANOUT.value))
    merges = TableMerges().with_next(layers, parts_of)
    for number in range(FANOUT.value - 1):
        layers = (*layers, layer(100, FANOUT.value + number))
        merges = merges.with_next(layers, parts_of)
        assert len(merges.unfinished_merges) == 1
    layers = (*layers, layer(100, 2 * FANOUT.value))
    first, second = merges.with_next(layers, parts_of).unfinished_merges
    assert (first.first_epoch, first.last_epoch) == (0, FANOUT.value - 1)
    assert (second.first_epoch, second.last_epoch) == (FANOUT.value, 2 * FANOUT.value)


def test_there_are_no_more_parts_than_groups_of_keys() -> None:
    class Tasks:
        is_elsewhere = False

        def task_count(self, size: int) -> int:
            return 1

    most = Merges(Tasks())._parts_of([Layer.from_files((DataFile("p/data/a", 2**36, 1, "0"),), 0, 0)])  # type: ignore[arg-type]
    assert most == GROUPS
