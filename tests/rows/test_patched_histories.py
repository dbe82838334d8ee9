"""Patches of rows in the middle of things: stopped, read by others, between all else that moves what readers see."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.runs.client.recording import make_change
from headrace.runs.plan import CutOver
from headrace.runs.publishing.promotion import PatchedSinceError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore
from tests.process.test_patch_faults import StoppedError, Stopping
from tests.rows.orders import CHANGES, Orders, order, rows, signed_rows
from tests.rows.test_patched_rows import Row, check, patch, row, top
from tests.rows.test_waiting_rows import waiting

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def reader(**schema: Any) -> hr.Pipeline:
    """How many rows there are of each id, and of what else is read of them, counted by another pipeline."""
    return hr.Pipeline(
        "below",
        hr.published("orders", schema),
        key={f"of_{name}": col(name) for name in schema},
        what={"n": hr.count()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        how=hr.retracting(),
        executor="local",
    )


READ = reader(id=str)
HOW = reader(id=str, timing=str, epoch=int)
"""Of rows that stay for good it may be read how they came."""


def count_rows(orders: Orders, reader: hr.Pipeline) -> Counter[Row]:
    """What a reader of rows has of each once it has read what is published."""
    orders.run(reader)
    table = orders.handle(reader).current(columns=[*reader.key_types, "n"]).to_json()
    return Counter({tuple(row.values())[:-1]: row["n"] for row in table})


@pytest.mark.parametrize(
    ("pipeline", "pipeline_below"),
    [(rows(), READ), (rows(), HOW), (signed_rows(), READ), (top(), READ)],
    ids=["appended", "how they came", "signed", "groups"],
)
def test_a_pipeline_that_reads_rows_hears_of_a_patch(
    orders: Orders, pipeline: hr.Pipeline, pipeline_below: hr.Pipeline
) -> None:
    orders.run(pipeline, order("a", 3, sign=1), order("a", 3, 1, sign=1), order("b", 2, 2, sign=1))
    orders.run(pipeline, order("end", 1, 900, sign=1))
    begun_pipeline = count_rows(orders, pipeline_below)
    orders.backfill_corrected(pipeline, {"0000": [order("a", 3, sign=1), order("c", 5, 3, sign=1)]})
    snapshot_before = orders.handle(pipeline).catalog.head().refs["main"]
    patch(orders, pipeline)
    how = {"a": ("ON_TIME", 0), "c": ("LATE", 2), "end": ("ON_TIME", 1)}
    assert count_rows(orders, pipeline_below) == Counter(
        {(id_, *(definition if pipeline_below is HOW else ())): 1 for id_, definition in how.items()}
    )
    orders.run(pipeline, order("a", 9, 905, sign=1))
    assert sum(n for (id_, *_), n in count_rows(orders, pipeline_below).items() if id_ == "a") == 2
    orders.handle(pipeline).rollback(to=snapshot_before)
    assert count_rows(orders, pipeline_below) == begun_pipeline


def test_a_patch_between_two_readings_is_read_with_what_came_beside_it(orders: Orders) -> None:
    orders.run(rows(), order("a"), order("b"))
    count_rows(orders, HOW)
    orders.run(rows(), order("c", 1, 5))
    orders.backfill_corrected(rows(), {"0000": [order("b")]})
    patch(orders, rows())
    orders.run(rows(), order("d", 1, 6))
    expected_counts = Counter([("b", "ON_TIME", 0), ("c", "ON_TIME", 1), ("d", "ON_TIME", 3)])
    assert count_rows(orders, HOW) == expected_counts


@pytest.mark.parametrize("happens", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_a_patch_that_is_stopped_at_any_put_is_whole_or_not_there(
    tmp_path: Path, pipeline: hr.Pipeline, happens: bool
) -> None:
    first = Orders(tmp_path / "first")
    first.run(pipeline, order("a", sign=1), order("b", sign=1))
    first.backfill_corrected(pipeline, {"0000": [order("a", 2, sign=1), order("b", sign=1)]})
    unpatched_rows, expected_rows = first.current(pipeline), first.current(pipeline, at="fix")
    puts = commits = 0
    while True:
        orders = Orders(Path(shutil.copytree(first.folder, tmp_path / str(puts))))
        store = FaultyStore(open_store(orders.root), Stopping(puts, happens).plan)
        refs_before = dict(orders.handle(pipeline).catalog.head().refs)
        try:
            make_change(Catalog(store, pipeline.name), CutOver("fix", patches=True), run_id="stopped")
            break
        except StoppedError:
            puts += 1
        refs = orders.handle(pipeline).catalog.head().refs
        assert orders.current(pipeline) == (
            unpatched_rows if refs["published"] == refs_before["published"] else expected_rows
        )
        assert orders.current(pipeline, at="main") == (
            unpatched_rows if refs["main"] == refs_before["main"] else expected_rows
        )
        if refs["main"] != refs["published"]:
            commits += 1
            orders.run(pipeline, order("c", 1, 1, sign=1))  # the next run publishes it as well
            assert orders.current(pipeline) == expected_rows + Counter({row("c", 1, 1): 1})
            orders.backfill_corrected(pipeline, {"0000": [order("a", 2, sign=1), order("b", sign=1)]})
        patch(orders, pipeline)
        assert expected_rows <= orders.current(pipeline)
        check(orders, pipeline)
    assert puts >= 5, "the claim, panes, an audit, the manifest, entries"
    assert commits


def test_a_patch_of_many_files_leaves_those_as_they_are_that_it_does_not_touch(orders: Orders) -> None:
    for number in range(6):
        orders.run(rows(), order(f"{number}"), order(f"{number}", 2))
    handle = orders.handle(rows())
    snapshot_before = handle.catalog.manifest(handle.catalog.head().refs["main"]).tables["current"]
    orders.backfill_corrected(rows(), {"0002": [order("2", 2)], "0004": []})
    patch(orders, rows())
    snapshot_after = handle.catalog.manifest(handle.catalog.head().refs["main"]).tables["current"]
    assert [layer.first_epoch for layer in snapshot_after] == [0, 1, 2, 3, 5], (
        "nothing was given, and one has no row any more"
    )
    assert [layer.rows for layer in snapshot_after] == [2, 2, 1, 2, 2]
    assert [layer.files for layer in snapshot_after if layer.first_epoch != 2] == [
        layer.files for layer in snapshot_before if layer.first_epoch not in (2, 4)
    ]
    check(orders, rows())


STEPS = ("run", "run", "run", "patch", "patch", "rollback", "replay", "expire", "read")


@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "1"))))
@pytest.mark.parametrize("kind", ["appended", "signed", "groups", "waiting"])
def test_after_random_steps_rows_are_those_of_the_files_and_so_are_their_readers(
    orders: Orders, kind: str, seed: int
) -> None:
    History(orders, kind, random.Random(f"{kind} {seed}")).turn(14)


class History:
    """What is done to one root. ``read``: what main, or a patch, has made of each file that main has read."""

    def __init__(self, orders: Orders, kind: str, dice: random.Random) -> None:
        self.orders, self.dice = orders, dice
        kinds = {"appended": rows(), "signed": signed_rows(), "groups": top(), "waiting": waiting(CHANGES)}
        self.pipeline = kinds[kind]
        self.lower_output = HOW if kind in ("appended", "waiting") else READ
        self.minute = 0

    def turn(self, steps: int) -> None:
        steps_taken: list[str] = []
        self.run()
        for _ in range(steps):
            steps_taken.append(self.dice.choice(STEPS))
            try:
                getattr(self, steps_taken[-1])()
            except (RefusedError, PatchedSinceError) as error:
                steps_taken[-1] += f": {error}"
            check(self.orders, self.pipeline)
        self.read()

    def records(self) -> list[dict[str, Any]]:
        return [
            order(self.dice.choice("abc"), self.dice.randint(1, 3), max(0, self.minute - late), sign=1)
            for late in (0, 0, self.dice.choice([0, 30, 200]))
        ]

    def run(self) -> None:
        self.minute += self.dice.choice([10, 60, 300])
        self.orders.run(self.pipeline, *self.records())

    def patch(self) -> None:
        """Some file is corrected: afterwards rows that are over are those of the branch, and others those of main."""
        landed_names = sorted(path.stem for path in (self.orders.folder / "landing/orders").iterdir())
        branch = f"fix-{self.dice.random()}"
        self.orders.backfill_corrected(self.pipeline, {self.dice.choice(landed_names): self.records()}, branch=branch)
        rehearsal = self.orders.handle(self.pipeline).promote(branch, patch=True, dry_run=True)
        patch(self.orders, self.pipeline, branch)
        counts = rehearsal.output.rows
        assert self.orders.handle(self.pipeline).current().count() == counts.after
        second_dry_run = self.orders.handle(self.pipeline).promote(branch, patch=True, dry_run=True)
        assert (second_dry_run.output.rows.differing, second_dry_run.left) == (0, rehearsal.left)
        if not rehearsal.left and not self.pipeline.key:
            assert self.orders.current(self.pipeline) == self.orders.current(self.pipeline, at=branch)

    def rollback(self) -> None:
        catalog = self.orders.handle(self.pipeline).catalog
        line = [manifest.snapshot_id for manifest in catalog.ancestry(catalog.head().refs["main"])]
        self.orders.handle(self.pipeline).rollback(to=self.dice.choice(line))
        self.orders.run(self.pipeline)

    def replay(self) -> None:
        self.orders.handle(self.pipeline).backfill(promote=True)

    def expire(self) -> None:
        self.orders.handle(self.pipeline).expire(keep_last=self.dice.randint(1, 2))

    def read(self) -> None:
        """The reader has what it would have if it began now."""
        names = ["id", "timing", "epoch"] if self.lower_output is HOW else ["id"]
        stands = self.orders.handle(self.pipeline).current(columns=names).to_json()
        assert count_rows(self.orders, self.lower_output) == Counter(tuple(row.values()) for row in stands)
