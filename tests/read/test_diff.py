"""What two snapshots do not have in common: rows that readers see, state, clocks and input; nothing else."""

import json
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.read.diff.comparison import SnapshotDiff
from headrace.read.diff.layered_tables import ChangeKind, RowCounts
from headrace.read.pipeline_reader import PipelineReader
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_lab.actions import backfill
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.store import open_store
from tests.cli.deployments import Deployment, hour, pane


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A deployment in a folder whose name DuckDB would take for a pattern."""
    folder = tmp_path / "a [1] *?%41 'é'"
    folder.mkdir()
    return Deployment(folder)


def reader(deployment: Deployment) -> PipelineReader:
    return hr.open(deployment.root)["clicks"]


def replacement_panes(user: str, window: int, old_count: int, new_count: int) -> list[dict[str, Any]]:
    """What an epoch emits that changes a row."""
    return [pane(user, window, old_count, retraction=True), pane(user, window, new_count, index=1)]


def changes(diff: SnapshotDiff) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (row.kind, row.key["user"], *(None if side is None else side["clicks"] for side in (row.before, row.after)))
        for row in diff.output.first
    ]


def test_rows_are_added_removed_and_changed(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 3), pane("cid", 2, 4), pane("dan", 1, 5)])
    second = deployment.commit(
        panes=[*replacement_panes("ann", 1, 2, 7), pane("bob", 1, 3, retraction=True), pane("eve", 3, 1)],
        late=[{"user": "ann", "event_time": hour(1), "reason": "r", "input": "source", "file": "f", "raw": "{}"}],
    )
    diff = reader(deployment).diff(first, second)
    assert diff.output.rows == RowCounts(4, 4, added=1, removed=1, changed=1)
    assert changes(diff) == [("changed", "ann", 2, 7), ("removed", "bob", 3, None), ("added", "eve", None, 1)]
    assert diff.logs["late"].rows.after == 1
    assert diff.logs["panes"].only_after == 4
    difference_back = reader(deployment).diff("main", first, limit=1)
    assert difference_back.output.rows == RowCounts(4, 4, added=1, removed=1, changed=1)
    assert changes(difference_back) == [("changed", "ann", 7, 2)]
    same = reader(deployment).diff(second, "main")
    assert same.output.rows == RowCounts(4, 4)
    assert not [name for name, pair in same.clocks.items() if pair.differs]


def test_a_row_whose_pane_alone_is_another_is_reissued(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 1, 2)])
    second = deployment.commit(panes=replacement_panes("ann", 1, 2, 2))
    diff = reader(deployment).diff(first, second)
    assert diff.output.rows == RowCounts(1, 1, reissued=1)
    assert diff.output.first == ()


def test_no_snapshot_yet_is_a_side_without_anything(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    diff = reader(deployment).diff("published", "main")
    assert diff.snapshots.before is None
    assert diff.ancestor is None
    assert diff.output.rows == RowCounts(0, 1, added=1)
    assert diff.clocks["watermark"].before is None
    assert reader(deployment).diff("main", "published").output.rows == RowCounts(1, 0, removed=1)
    assert reader(deployment).diff("published", "published").output.rows == RowCounts()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_comparison_row_by_row(deployment: Deployment, seed: int) -> None:
    rng = random.Random(seed)
    users = [None, "", "ann", "kind", "é'\"%"]
    live: dict[tuple[Any, int], int] = {}
    ids = []
    for epoch in range(8):
        panes: list[dict[str, Any]] = []
        for user, window in rng.sample([(user, window) for user in users for window in range(3)], rng.randint(0, 6)):
            old = live.pop((user, window), None)
            if old is not None:
                panes.append(pane(user, window, old, retraction=True, sequence=2 * len(panes)))
            if old is None or rng.random() < 0.7:
                live[user, window] = rng.randint(1, 3)
                panes.append(pane(user, window, live[user, window], index=epoch, sequence=2 * len(panes) + 1))
        ids.append(deployment.commit(panes=panes) if panes else deployment.commit())
    deployment_reader = reader(deployment)
    tables = [deployment_reader.current(at=each).to_arrow().to_pylist() for each in ids]
    rows = [{(row["user"], row["window_start"]): row for row in table} for table in tables]
    for _ in range(8):
        one, other = rng.randrange(8), rng.randrange(8)
        row_before, row_after = rows[one], rows[other]
        both = row_before.keys() & row_after.keys()
        changed_keys = [key for key in both if row_before[key]["clicks"] != row_after[key]["clicks"]]
        reissued_keys = [key for key in both if row_before[key] != row_after[key] and key not in changed_keys]
        diff = deployment_reader.diff(ids[one], ids[other], limit=100).output
        assert diff.rows == RowCounts(
            len(row_before),
            len(row_after),
            len(row_after.keys() - both),
            len(row_before.keys() - both),
            len(changed_keys),
            len(reissued_keys),
        )
        kinds = {(row.key["user"], row.key["window_start"]): row.kind for row in diff.first}
        assert {key for key, kind in kinds.items() if kind is ChangeKind.CHANGED} == {*changed_keys}
        assert {key for key, kind in kinds.items() if kind is ChangeKind.ADDED} == row_after.keys() - both


def test_a_broken_file_is_named(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 1, 2)])
    second = deployment.commit(panes=[pane("bob", 1, 2)])
    path = next(info.path for info in deployment.store.list(f"clicks/data/00000001-{second}"))
    deployment.store.write(path, deployment.store.read(path)[:-1])
    with pytest.raises(BrokenObjectError, match=path):
        reader(deployment).diff(first, second)


VISITS = hr.Pipeline(
    "visits",
    hr.json("landing/visits", {"id": str, "shop": str, "user": str, "at": datetime, "amount": int}).event_time(
        "at", bound="10m"
    ),
    key=["shop", "user"],
    what={"visits": hr.count(), "least": col("amount").min()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1d"),
    deduplicate=hr.Deduplicate("id", "1d"),
    then=[
        hr.Aggregation(
            key="shop",
            what={"users": hr.count(), "least": col("least").min()},
            where=hr.FixedWindows("1d"),
            how=hr.retracting(allowed_lateness="2d"),
        )
    ],
    executor="local",
)


class Visits:
    """Runs of a pipeline of two stages that remembers ids."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalog = Catalog(open_store(root.as_uri()), "visits")
        (root / "landing" / "visits").mkdir(parents=True)

    def land(self, name: str, *rows: tuple[str, str, str, int]) -> None:
        lines = [
            json.dumps(
                {"id": f"{name} {n}", "shop": shop, "user": user, "at": f"2026-01-01T{time}:00Z", "amount": amount}
            )
            for n, (shop, user, time, amount) in enumerate(rows)
        ]
        (self.root / "landing" / "visits" / name).write_text("\n".join(lines) + "\n")

    def run(self, pipeline: Pipeline = VISITS) -> str:
        process(pipeline, self.root.as_uri(), RunOptions(f"run-{random.getrandbits(40)}", publish=True))
        return self.catalog.head().refs["main"]

    def diff(self, old_snapshot: str, new_snapshot: str) -> SnapshotDiff:
        return hr.open(self.root.as_uri())["visits"].diff(old_snapshot, new_snapshot)


@pytest.fixture
def visits(tmp_path: Path) -> Visits:
    return Visits(tmp_path / "root")


@pytest.mark.slow
def test_every_stage_has_its_watermarks_and_rows_of_state(visits: Visits) -> None:
    visits.land("a", ("Oslo", "ann", "09:05", 5), ("Oslo", "bob", "09:06", 7))
    first = visits.run()
    visits.land("b", ("Oslo", "ann", "09:20", 3), ("Bern", "eve", "09:30", 1))
    second = visits.run()
    diff = visits.diff(first, second)
    one, two = diff.stages
    assert (one.table, one.state) == ("state", RowCounts(2, 3, added=1, changed=1))
    assert (two.table, two.state) == ("state_1", RowCounts(1, 2, added=1, changed=1))
    assert diff.ids == RowCounts(2, 4, added=2)
    assert (one.input_watermark.before, one.input_watermark.after) == ("2026-01-01T08:56:00Z", "2026-01-01T09:20:00Z")
    assert two.input_watermark == one.output_watermark
    assert diff.clocks["watermark"] == one.input_watermark
    source = diff.inputs["source"]
    assert (source.only_before, source.only_after) == ((), ("landing/visits/b",))
    assert (source.read.before, source.read.after) != (None, None)
    assert diff.output.rows == RowCounts(1, 2, added=1, changed=1)
    assert diff.ancestor is not None
    assert diff.ancestor.snapshot == first


@pytest.mark.slow
def test_after_a_rollback_a_file_may_have_other_content(visits: Visits) -> None:
    visits.land("a", ("Oslo", "ann", "09:05", 5))
    first = visits.run()
    visits.land("b", ("Oslo", "ann", "09:10", 3500))
    wrong = visits.run()
    visits.catalog.rollback("main", first, "a wrong file")
    visits.land("b", ("Oslo", "ann", "09:10", 2))
    diff = visits.diff(wrong, visits.run())
    assert diff.inputs["source"].other_content == ("landing/visits/b",)
    assert (diff.inputs["source"].only_before, diff.inputs["source"].only_after) == ((), ())
    assert diff.output.rows == RowCounts(1, 1, changed=1)
    (row,) = diff.output.first
    assert row.before is not None
    assert row.after is not None
    assert (row.before["least"], row.after["least"]) == (5, 2)
    assert diff.ancestor is not None
    assert diff.ancestor.snapshot == first


@pytest.mark.slow
def test_a_definition_that_changed_is_compared_by_what_both_have(visits: Visits) -> None:
    visits.land("a", ("Oslo", "ann", "09:05", 5), ("Oslo", "bob", "10:06", 7))
    first = visits.run()
    (last,) = VISITS.then
    wider = replace_what(VISITS, {**last.what, "most": col("least").max()})
    backfill(wider, visits.root.as_uri(), RunOptions("b", branch="wider"))
    diff = visits.diff(first, "wider")
    assert diff.ancestor is None
    assert diff.definition.differs
    assert (diff.output.columns.only_before, diff.output.columns.only_after) == ({}, {"most": "int64"})
    assert (diff.output.rows.before, diff.output.rows.added, diff.output.rows.changed) == (1, 0, 0)
    assert [stage.is_comparable for stage in diff.stages] == [True, False]
    assert diff.stages[1].state == RowCounts(1, 1, added=1, removed=1)
    assert json.loads(json.dumps(diff.to_json(), default=str))["definition"]["before"] == diff.definition.before


def replace_what(pipeline: Pipeline, what: dict[str, Any]) -> Pipeline:
    """``pipeline`` with other aggregates in its last stage."""
    (last,) = pipeline.then
    return replace(pipeline, then=(replace(last, what=what),))
