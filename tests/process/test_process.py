"""The main job on a real session and local files: overlap, failures on the way, lost blocks, audit and publish."""

import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.epochs import Computed, EpochEngine
from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.entrypoints import on_spark
from headrace.entrypoints import process as processing
from headrace.entrypoints.audit_store import AuditFailedError, read_audit
from headrace.entrypoints.backfill import BranchBehindError, backfill, cut_over
from headrace.entrypoints.commits import Committer
from headrace.entrypoints.options import Mode, RunOptions
from headrace.entrypoints.process import ChangedPipelineError, audit, process
from headrace.entrypoints.publish import publish_audited
from headrace.entrypoints.reading import read
from headrace.entrypoints.recover import recover
from headrace.entrypoints.report import Silent
from headrace.errors import RetryError
from headrace.model.time import Instant
from headrace.pipeline import FixedWindows, Pipeline, retracting
from headrace.pipeline.inputs import OWN
from headrace.sources.landing import ByInput, Landing
from headrace.state.written import Written
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore, Operation, check_catalog
from tests.process.clicks import CLICKS, FILES, MODEST, SESSIONS, USERS, clicks, land, records, truth

pytestmark = pytest.mark.spark
SECONDS = 120.0


def current(pipeline: Pipeline, root: Path, branch: str = "main") -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = read(pipeline, root.as_uri(), "current", branch).to_pylist()
    return {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows}


def panes_twice(pipeline: Pipeline, root: Path) -> list[Any]:
    rows = read(pipeline, root.as_uri(), "panes", "main").to_pylist()
    seen = [(r["user"], r["window_start"], r["window_end"], r["pane_index"], r["is_retraction"]) for r in rows]
    return [place for place in set(seen) if seen.count(place) > 1]


class Started:
    """An engine and a committer on an empty pipeline, one file an epoch."""

    def __init__(self, engine: EpochEngine, root: Path) -> None:
        self.engine = engine
        self.catalog = Catalog(open_store(root.as_uri()), engine.pipeline.name)
        claim = self.catalog.claim("main", "test")
        self.committed: list[Manifest] = []
        self.committer = Committer(engine, self.catalog, claim, None, self.committed.append)
        self.files = engine.landing.new_files({})[OWN]

    def run(self) -> None:
        try:
            for file in self.files:
                self.committer.submit(self.engine.compute({OWN: [file]}, Instant(0)))
            self.committer.drain()
        finally:
            self.committer.close()


def test_the_next_epoch_computes_while_one_is_written(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    computed_next = threading.Event()

    class Overlapping(EpochEngine):
        def compute(self, files: ByInput, processing_time: Instant, **rest: Any) -> Computed:
            computed = super().compute(files, processing_time, **rest)
            if computed.epoch == 1:
                computed_next.set()
            return computed

        def write(self, computed: Computed, prefix: str) -> Written:
            if computed.epoch == 0:
                assert computed_next.wait(SECONDS), "epoch 1 was not computed while epoch 0 was being written"
            return super().write(computed, prefix)

    store = open_store(tmp_path.as_uri())
    started = Started(Overlapping(spark, CLICKS, store, Landing(CLICKS, store)), tmp_path)
    started.run()
    assert [m.epoch for m in started.committed] == [0, 1]
    check_catalog(store, CLICKS.name)


def test_a_failed_write_discards_later_epochs_and_fails_the_run(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)

    class Failing(EpochEngine):
        def write(self, computed: Computed, prefix: str) -> Written:
            if computed.epoch == 1:
                raise RetryError("the store is away")
            return super().write(computed, prefix)

    store = open_store(tmp_path.as_uri())
    started = Started(Failing(spark, CLICKS, store, Landing(CLICKS, store)), tmp_path)
    with pytest.raises(RetryError, match="the store is away"):
        started.run()
    assert [m.epoch for m in started.committed] == [0]
    assert started.catalog.manifest(started.catalog.head().refs["main"]).epoch == 0
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("again"), spark=spark)
    assert result.epochs == (1, 2)
    assert current(CLICKS, tmp_path) == truth(3)


def test_lost_blocks_are_restored_inside_the_application(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path)

    class Dropping(Silent):
        """Loses every block that Spark holds, once, after the second epoch."""

        def __init__(self) -> None:
            self.plans: list[int] = []

        def planned(self, files: int) -> None:
            self.plans.append(files)

        def committed(self, manifest: Manifest) -> None:
            if manifest.epoch == 1 and len(self.plans) == 1:
                persistent: Any = spark.sparkContext._jsc.getPersistentRDDs()  # type: ignore[attr-defined]
                for rdd in persistent.values():
                    if rdd.isCheckpointed():  # one that the next epoch is only about to compute has no blocks yet
                        rdd.unpersist(True)

    listener = Dropping()
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("lossy"), spark=spark, listener=listener)
    assert len(listener.plans) > 1, "the blocks were lost and nobody noticed"
    assert result.epochs == tuple(range(FILES))
    assert current(CLICKS, tmp_path) == truth()
    assert panes_twice(CLICKS, tmp_path) == []


def test_applications_hand_state_to_each_other(spark: SparkSession, tmp_path: Path) -> None:
    for last in range(1, FILES + 1):
        land(tmp_path, last - 1, last)
        assert process(SESSIONS, tmp_path.as_uri(), RunOptions(f"run-{last}"), spark=spark).epochs == (last - 1,)
    land(tmp_path / "whole")
    whole = process(SESSIONS, (tmp_path / "whole").as_uri(), RunOptions("all", files_per_epoch=FILES), spark=spark)
    assert whole.epochs == (0,)
    assert current(SESSIONS, tmp_path) == current(SESSIONS, tmp_path / "whole")


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every prefix that runs list from now on."""
    prefixes: list[str] = []

    def remember(operation: Operation) -> None:
        if operation.kind == "list":
            prefixes.append(operation.path)

    monkeypatch.setattr(processing, "open_store", lambda uri: FaultyStore(open_store(uri), remember))
    return prefixes


def test_nothing_to_do_starts_no_session(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, 0, 1)
    prefixes = looked_at(monkeypatch)
    process(CLICKS, tmp_path.as_uri(), RunOptions("first", publish=True), spark=spark)
    assert prefixes.count("landing/clicks/") == 1, "a run looks once at what has landed"
    assert set(prefixes) == {"landing/clicks/", "clicks/log/"}

    def refuse(*_: object, **__: object) -> SparkSession:
        raise AssertionError("a run with nothing to do started a session")

    monkeypatch.setattr(on_spark, "spark_session", refuse)
    log = Catalog(open_store(tmp_path.as_uri()), CLICKS.name).head().entry
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("second", publish=True))
    assert result.epochs == ()
    assert result.status == "succeeded"
    assert Catalog(open_store(tmp_path.as_uri()), CLICKS.name).head().entry == log


def test_a_failed_audit_is_a_quarantine_that_a_correction_ends(spark: SparkSession, tmp_path: Path) -> None:
    pipeline, root = clicks(expectations=MODEST), tmp_path.as_uri()
    land(tmp_path, 0, 2)
    published = process(pipeline, root, RunOptions("good", publish=True), spark=spark).published
    folder = tmp_path / "landing" / "clicks"
    bad = {**records(1)[0], "price": 5000}
    (folder / "part-00002.jsonl").write_text(str(bad).replace("'", '"') + "\n")
    with pytest.raises(AuditFailedError, match="spent"):
        process(pipeline, root, RunOptions("bad", publish=True), spark=spark)
    catalog = Catalog(open_store(root), pipeline.name)
    assert catalog.head().refs["published"] == published
    assert catalog.manifest(catalog.head().refs["main"]).epoch == 2
    assert current(pipeline, tmp_path, "published") == truth(2)

    (folder / "part-00003.jsonl").write_text(str({**bad, "price": -5000}).replace("'", '"') + "\n")
    result = process(pipeline, root, RunOptions("corrected", publish=True), spark=spark)
    assert result.audit is not None
    assert (result.audit.success, result.audit.from_snapshot) == (True, published)
    assert result.published == result.snapshot == catalog.head().refs["main"]


def test_an_audit_of_its_own_when_none_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 1)
    process(CLICKS, root, RunOptions("unaudited"), spark=spark)
    audited = clicks(expectations=MODEST)
    result = audit(audited, root, RunOptions("audit"), spark=spark)
    assert (result.action, result.epochs) == ("audit", ())
    assert result.audit is not None
    assert result.audit.success
    stored = read_audit(open_store(root), CLICKS.name, None, str(result.snapshot))
    assert stored is not None
    assert stored.covers(MODEST)


def test_a_changed_pipeline_needs_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 3)
    process(CLICKS, root, RunOptions("old", publish=True), spark=spark)
    changed = clicks(FixedWindows(2 * 3_600_000_000))
    land(tmp_path, 3, 4)
    with pytest.raises(ChangedPipelineError, match="backfill"):
        process(changed, root, RunOptions("refused"), spark=spark)
    backfill(changed, root, RunOptions("replay", branch="next"), spark=spark)
    assert current(CLICKS, tmp_path, "published") == truth(3)
    cut_over(changed.name, root, "next")
    hours = current(changed, tmp_path, "published")
    assert sum(number for number, _ in hours.values()) == sum(number for number, _ in truth(4).values())
    assert all(start.hour % 2 == 0 for _, start in hours)
    assert process(changed, root, RunOptions("on"), spark=spark).epochs == ()


def test_a_backfill_catches_up_with_a_straggler_that_main_found_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    pipeline = replace(CLICKS, source=replace(CLICKS.source, look_back=0))
    land(tmp_path, 1, 3)
    process(pipeline, root, RunOptions("main"), spark=spark)
    backfill(pipeline, root, RunOptions("replay", branch="next"), spark=spark)
    land(tmp_path, 0, 1)
    process(pipeline, root, RunOptions("sweep", full_sweep=True), spark=spark)
    with pytest.raises(BranchBehindError, match="part-00000"):
        cut_over(pipeline.name, root, "next")
    backfill(pipeline, root, RunOptions("again", branch="next"), spark=spark)
    cut_over(pipeline.name, root, "next")
    assert current(pipeline, tmp_path, "published") == truth(3)


def test_recovery_moves_back_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 3)
    process(CLICKS, root, RunOptions("first", publish=True), spark=spark)
    catalog = Catalog(open_store(root), CLICKS.name)
    first = [m.snapshot_id for m in catalog.ancestry(catalog.head().refs["main"])][-1]
    result = recover(CLICKS, root, RunOptions("recovery", snapshot=first), spark=spark)
    assert result.action == "recover"
    assert result.epochs == (1, 2)
    assert catalog.head().refs["published"] == first
    assert publish_audited(CLICKS.name, root, told=None).published == result.snapshot
    assert current(CLICKS, tmp_path, "published") == truth(3)
    assert panes_twice(CLICKS, tmp_path) == []
    check_catalog(catalog.store, CLICKS.name)


def test_a_batch_leaves_no_state_behind(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    options = RunOptions("batch", mode=Mode.BATCH)
    process(CLICKS, tmp_path.as_uri(), options, spark=interpreting(spark))
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    manifest = catalog.manifest(catalog.head().refs["main"])
    assert manifest.counts["state_rows"] == 0
    assert manifest.tables["state"] == ()
    assert current(CLICKS, tmp_path) == truth(2)


def test_a_batch_gives_one_pane_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the trigger asks for early panes; a replay of it gives the same (semantics 12.1)."""
    land(tmp_path, 0, 2)
    process(CLICKS, tmp_path.as_uri(), RunOptions("batch", mode=Mode.BATCH), spark=interpreting(spark))
    replay = RunOptions("replay", mode=Mode.REPLAY, branch="again")
    process(CLICKS, tmp_path.as_uri(), replay, spark=interpreting(spark))
    for branch in ("main", "again"):
        rows = read(CLICKS, tmp_path.as_uri(), "panes", branch).to_pylist()
        assert {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows} == truth(2)
        assert len(rows) == len(truth(2))
        told = {(row["timing"], row["pane_index"], row["is_last"], row["is_retraction"]) for row in rows}
        assert told == {("ON_TIME", 0, True, False)}


@pytest.mark.parametrize("runs", [1, FILES], ids=["one run", "a run for each file"])
def test_expired_windows_leave_the_state(spark: SparkSession, tmp_path: Path, runs: int) -> None:
    """Of every file one window of each user can still change behind it; what came before is neither kept nor stored."""
    pipeline = replace(CLICKS, how=retracting())
    for run in range(runs):
        land(tmp_path, run * FILES // runs, (run + 1) * FILES // runs)
        process(pipeline, tmp_path.as_uri(), RunOptions(f"run-{run}"), spark=interpreting(spark))
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = [manifest.tables["state"] for manifest in catalog.ancestry(catalog.head().refs["main"])]
    assert [[layer.rows for layer in each] for each in layers] == [[USERS]] * FILES
    assert current(CLICKS, tmp_path) == truth()
