"""The main job on local files: overlap, failures on the way, audit and publish."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import FixedWindows, Pipeline, retracting
from headrace.audit.store import AuditFailedError, read_audit
from headrace.distribute.epoch import ComputedEpoch
from headrace.distribute.local import LocalEngine
from headrace.ext.stores import StoreUnavailableError
from headrace.model.time import Instant
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.sources import NameOrder
from headrace.runs.commits import Committer, IncompleteEpochError, attempts_of
from headrace.runs.options import Mode, RunOptions
from headrace.runs.publishing.promotion import BranchBehindError
from headrace.runs.publishing.publish import publish_audited
from headrace.runs.restore import ChangedPipelineError
from headrace.sources.landing import ByInput, Landing
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import Fault, FaultyStore, HoldRequest, Operation, disturb_stores
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, FILES, MODEST, SESSIONS, USERS, clicks, land, records, truth
from tests.process.executors import ExecutorUnderTest, no_executor, on_both
from tests.reading import read

SECONDS = 120.0

Befalls = Callable[[], Fault | HoldRequest | None]


def current(pipeline: Pipeline, root: Path, branch: str = "main") -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = read(pipeline, root.as_uri(), "current", branch).to_pylist()
    return {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows}


def panes_twice(pipeline: Pipeline, root: Path) -> list[Any]:
    rows = read(pipeline, root.as_uri(), "panes", "main").to_pylist()
    seen_rows = [(r["user"], r["window_start"], r["window_end"], r["pane_index"], r["is_retraction"]) for r in rows]
    return [place for place in set(seen_rows) if seen_rows.count(place) > 1]


class StartedEpoch:
    """An engine and a committer on an empty pipeline, one file an epoch; ``befalls``: what each put of a manifest."""

    def __init__(self, engine: LocalEngine, root: Path, befalls: Befalls = lambda: None) -> None:
        def of_manifests(operation: Operation) -> Fault | HoldRequest | None:
            return befalls() if operation.kind == "put" and "/manifests/" in operation.path else None

        self.engine = engine
        self.catalog = Catalog(FaultyStore(open_store(root.as_uri()), of_manifests), engine.pipeline.name)
        claim = self.catalog.claim("main", "test")
        self.committed_manifests: list[Manifest] = []
        self.committer = Committer(engine, self.catalog, claim, None, self.committed_manifests.append)
        self.files = engine.landing.new_files({})[OWN]

    def run(self) -> None:
        try:
            for file in self.files:
                self.committer.submit(self.engine.compute({OWN: [file]}, Instant(0)))
            self.committer.drain()
        finally:
            self.committer.close()


def test_the_next_epoch_computes_while_one_is_written(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    computed_next = threading.Event()
    in_time: list[bool] = []

    class Overlapping(LocalEngine):
        def compute(self, files: ByInput, processing_time: Instant, **rest: Any) -> ComputedEpoch:
            computed_epoch = super().compute(files, processing_time, **rest)
            if computed_epoch.epoch == 1:
                computed_next.set()
            return computed_epoch

    store = open_store(tmp_path.as_uri())
    engine = Overlapping(CLICKS, store, Landing(CLICKS, store), attempts_of(Catalog(store, CLICKS.name)))
    started_epoch = StartedEpoch(
        engine, tmp_path, lambda: HoldRequest(lambda: in_time.append(computed_next.wait(SECONDS)))
    )
    started_epoch.run()
    assert in_time == [True, True], "epoch 1 was not computed while epoch 0 was being written"
    assert [m.epoch for m in started_epoch.committed_manifests] == [0, 1]
    check_catalog(store, CLICKS.name)


def test_a_failed_write_discards_later_epochs_and_fails_the_run(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)
    faults = iter([None, Fault.FAIL])
    store = open_store(tmp_path.as_uri())
    engine = LocalEngine(CLICKS, store, Landing(CLICKS, store), attempts_of(Catalog(store, CLICKS.name)))
    started_epoch = StartedEpoch(engine, tmp_path, lambda: next(faults))
    with pytest.raises(StoreUnavailableError, match="failed on purpose"):
        started_epoch.run()
    assert [m.epoch for m in started_epoch.committed_manifests] == [0]
    assert started_epoch.catalog.manifest(started_epoch.catalog.head().refs["main"]).epoch == 0
    result = executor.process(CLICKS, tmp_path.as_uri(), RunOptions("again"))
    assert result.epochs == (1, 2)
    assert current(CLICKS, tmp_path) == truth(3)


def test_every_epoch_behind_a_failed_one_is_refused_however_many_are_tried(tmp_path: Path) -> None:
    """A slot that nobody gives back would let the third wait for ever."""
    land(tmp_path, 0, 7)
    faults = iter([Fault.FAIL])
    store = open_store(tmp_path.as_uri())
    engine = LocalEngine(CLICKS, store, Landing(CLICKS, store), attempts_of(Catalog(store, CLICKS.name)))
    started_epoch = StartedEpoch(engine, tmp_path, lambda: next(faults))
    computed_epochs = [engine.compute({OWN: [file]}, Instant(0)) for file in started_epoch.files]
    refused_lines = list[str]()

    def submit() -> None:
        for each in computed_epochs:
            try:
                started_epoch.committer.submit(each)
                started_epoch.committer.drain()
            except StoreUnavailableError as error:
                refused_lines.append(str(error))

    trying = threading.Thread(target=submit, daemon=True)
    trying.start()
    trying.join(SECONDS)
    started_epoch.committer.close()
    assert len(refused_lines) == 7
    assert len(set(refused_lines)) == 1, "all are told why the first was not committed"


class Incomplete(LocalEngine):
    """Not all levels acknowledge epoch 1; or it says that it is another one."""

    number = 1

    def compute(self, files: ByInput, processing_time: Instant, **rest: Any) -> ComputedEpoch:
        computed_epoch = super().compute(files, processing_time, **rest)
        assert computed_epoch.acknowledged_levels == frozenset(range(self.levels))
        if computed_epoch.epoch != 1:
            return computed_epoch
        levels = computed_epoch.acknowledged_levels if self.number != 1 else frozenset({0})
        return replace(computed_epoch, epoch=self.number, acknowledged_levels=levels)


@pytest.mark.parametrize(
    ("number", "reason"),
    [(1, "epoch 1 is not committed: level 1"), (3, "epoch 3 is not committed: it is not the next")],
)
def test_an_epoch_that_not_all_tasks_acknowledged_is_never_committed(number: int, reason: str, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)
    store = open_store(tmp_path.as_uri())
    catalog = Catalog(store, CLICKS.name)
    engine = Incomplete(CLICKS, store, Landing(CLICKS, store), attempts_of(catalog))
    engine.number = number
    started_epoch = StartedEpoch(engine, tmp_path)
    with pytest.raises(IncompleteEpochError, match=reason):
        started_epoch.run()
    assert [m.epoch for m in started_epoch.committed_manifests] == [0], (
        "epoch 2 is whole, and nothing comes after what is missing"
    )
    check_catalog(store, CLICKS.name)


@on_both
def test_applications_hand_state_to_each_other(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    for last in range(1, FILES + 1):
        land(tmp_path, last - 1, last)
        assert executor.process(SESSIONS, tmp_path.as_uri(), RunOptions(f"run-{last}")).epochs == (last - 1,)
    land(tmp_path / "whole")
    whole = executor.process(SESSIONS, (tmp_path / "whole").as_uri(), RunOptions("all", files_per_epoch=FILES))
    assert whole.epochs == (0,)
    assert current(SESSIONS, tmp_path) == current(SESSIONS, tmp_path / "whole")


def test_nothing_to_do_starts_no_executor(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    prefixes: list[str] = []

    def remember(operation: Operation) -> None:
        if operation.kind == "list":
            prefixes.append(operation.path)

    with disturb_stores(remember):
        executor.process(CLICKS, tmp_path.as_uri(), RunOptions("first", publish=True))
    assert prefixes.count("landing/clicks/") == 1, "a run looks once at what has landed"
    places = {"clicks/", "landing/log/0000"}  # whether input lies where pipelines store; the first only once
    assert set(prefixes) == {"landing/clicks/", "clicks/log/", *places}

    log = Catalog(open_store(tmp_path.as_uri()), CLICKS.name).head().entry
    with no_executor(executor.executor):
        result = executor.process(CLICKS, tmp_path.as_uri(), RunOptions("second", publish=True))
    assert result.epochs == ()
    assert result.status == "succeeded"
    assert Catalog(open_store(tmp_path.as_uri()), CLICKS.name).head().entry == log


def test_a_failed_audit_is_a_quarantine_that_a_correction_ends(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline, root = clicks(expectations=MODEST), tmp_path.as_uri()
    land(tmp_path, 0, 2)
    published_snapshot = executor.process(pipeline, root, RunOptions("good", publish=True)).published
    folder = tmp_path / "landing" / "clicks"
    bad = {**records(1)[0], "price": 5000}
    (folder / "part-00002.jsonl").write_text(str(bad).replace("'", '"') + "\n")
    with pytest.raises(AuditFailedError, match="spent"):
        executor.process(pipeline, root, RunOptions("bad", publish=True))
    catalog = Catalog(open_store(root), pipeline.name)
    assert catalog.head().refs["published"] == published_snapshot
    assert catalog.manifest(catalog.head().refs["main"]).epoch == 2
    assert current(pipeline, tmp_path, "published") == truth(2)

    (folder / "part-00003.jsonl").write_text(str({**bad, "price": -5000}).replace("'", '"') + "\n")
    result = executor.process(pipeline, root, RunOptions("corrected", publish=True))
    assert result.audit is not None
    assert (result.audit.success, result.audit.from_snapshot) == (True, published_snapshot)
    assert result.published == result.snapshot == catalog.head().refs["main"]


def test_an_audit_of_its_own_when_none_is_stored(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 1)
    executor.process(CLICKS, root, RunOptions("unaudited"))
    audited_pipeline = clicks(expectations=MODEST)
    result = executor.audit(audited_pipeline, root, RunOptions("audit"))
    assert (result.action, result.epochs) == ("audit", ())
    assert result.audit is not None
    assert result.audit.success
    stored_audit = read_audit(open_store(root), CLICKS.name, None, str(result.snapshot))
    assert stored_audit is not None
    assert stored_audit.covers(MODEST)


def test_a_changed_pipeline_needs_a_backfill(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 3)
    executor.process(CLICKS, root, RunOptions("old", publish=True))
    changed_pipeline = clicks(FixedWindows("2h"))
    land(tmp_path, 3, 4)
    with pytest.raises(ChangedPipelineError, match="backfill"):
        executor.process(changed_pipeline, root, RunOptions("refused"))
    executor.backfill(changed_pipeline, root, RunOptions("replay", branch="next"))
    assert current(CLICKS, tmp_path, "published") == truth(3)
    hr.open(root)[changed_pipeline.name].promote("next")
    hours = current(changed_pipeline, tmp_path, "published")
    assert sum(number for number, _ in hours.values()) == sum(number for number, _ in truth(4).values())
    assert all(start.hour % 2 == 0 for _, start in hours)
    result = executor.process(changed_pipeline, root, RunOptions("on"))
    assert (len(result.epochs), result.counts["records"]) == (1, 0), "the watermark continues from where main was"
    assert executor.process(changed_pipeline, root, RunOptions("done")).epochs == ()


def test_a_backfill_catches_up_with_a_straggler_that_main_found_meanwhile(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    pipeline = change_pipeline(CLICKS, source=replace(CLICKS.source, names=NameOrder.ORDERED, look_back=0))
    land(tmp_path, 1, 3)
    executor.process(pipeline, root, RunOptions("main"))
    executor.backfill(pipeline, root, RunOptions("replay", branch="next"))
    land(tmp_path, 0, 1)
    executor.process(pipeline, root, RunOptions("sweep", full_sweep=True))
    with pytest.raises(BranchBehindError, match="part-00000"):
        hr.open(root)[pipeline.name].promote("next")
    executor.backfill(pipeline, root, RunOptions("again", branch="next"))
    hr.open(root)[pipeline.name].promote("next")
    assert current(pipeline, tmp_path, "published") == truth(3)


def test_recovery_moves_back_and_replays(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 1)
    executor.process(CLICKS, root, RunOptions("first", publish=True))
    catalog = Catalog(open_store(root), CLICKS.name)
    first = catalog.head().refs["published"]
    land(tmp_path, 1, 3)
    executor.process(CLICKS, root, RunOptions("second", publish=True))
    result = executor.recover(CLICKS, root, RunOptions("recovery", snapshot=first))
    assert result.action == "recover"
    assert result.epochs == (1, 2)
    assert catalog.head().refs["published"] == first
    assert publish_audited(CLICKS.name, root, last_announced=None).published == result.snapshot
    assert current(CLICKS, tmp_path, "published") == truth(3)
    assert panes_twice(CLICKS, tmp_path) == []
    check_catalog(catalog.store, CLICKS.name)


def test_a_batch_leaves_no_state_behind(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    options = RunOptions("batch", mode=Mode.BATCH)
    executor.process(CLICKS, tmp_path.as_uri(), options)
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    manifest = catalog.manifest(catalog.head().refs["main"])
    assert manifest.counts["state_rows"] == 0
    assert manifest.tables["state"] == ()
    assert current(CLICKS, tmp_path) == truth(2)


def test_a_batch_gives_one_pane_a_window(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Also where the trigger asks for early panes; a replay of it gives the same (semantics 12.1)."""
    land(tmp_path, 0, 2)
    executor.process(CLICKS, tmp_path.as_uri(), RunOptions("batch", mode=Mode.BATCH))
    replay = RunOptions("replay", mode=Mode.REPLAY, branch="again")
    executor.process(CLICKS, tmp_path.as_uri(), replay)
    for branch in ("main", "again"):
        rows = read(CLICKS, tmp_path.as_uri(), "panes", branch).to_pylist()
        assert {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows} == truth(2)
        assert len(rows) == len(truth(2))
        reported_rows = {(row["timing"], row["pane_index"], row["is_last"], row["is_retraction"]) for row in rows}
        assert reported_rows == {("ON_TIME", 0, True, False)}


@pytest.mark.parametrize("runs", [1, FILES], ids=["one run", "a run for each file"])
def test_expired_windows_leave_the_state(executor: ExecutorUnderTest, tmp_path: Path, runs: int) -> None:
    """Of every file one window of each user can still change behind it; what came before is neither kept nor stored."""
    pipeline = replace(CLICKS, how=retracting())
    for run in range(runs):
        land(tmp_path, run * FILES // runs, (run + 1) * FILES // runs)
        executor.process(pipeline, tmp_path.as_uri(), RunOptions(f"run-{run}"))
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = [manifest.tables["state"] for manifest in catalog.ancestry(catalog.head().refs["main"])]
    assert [[layer.rows for layer in each] for each in layers] == [[USERS]] * FILES
    assert current(CLICKS, tmp_path) == truth()
