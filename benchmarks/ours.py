"""Headrace's side of a comparison: the public entry over a local root, one epoch per file."""

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.landing import land
from benchmarks.pipelines import pipeline
from benchmarks.runs import Measured, Results, Run, Stopwatch, timed
from benchmarks.workloads import LIVE, RESULTS, Workload
from headrace.model.time import MAX_INSTANT, parse_instant
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import Silent
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectStore, open_store

if TYPE_CHECKING:
    from headrace.distribute.spark.application import SparkSession


def options(run: Run) -> RunOptions:
    """So many files an epoch; batch mode against a query over all files."""
    executor = run.executor
    if run.against.is_batch:
        return RunOptions("measured", executor=executor, mode=Mode.BATCH)
    return RunOptions("measured", executor=executor, files_per_epoch=run.files_per_epoch)


@dataclass
class Commits(Silent):
    """Listens to a run: manifests and when they came, the first one also by the clock on the wall, as well as when the
    run had restored its state and knew what to read.
    """

    manifests: list[Manifest] = field(default_factory=list)
    restored: float = 0.0
    first: float = 0.0
    times: list[float] = field(default_factory=list)
    watch: Stopwatch = field(default_factory=Stopwatch)
    last: tuple[float, float] = (0.0, 0.0)

    def planned(self, files: int) -> None:
        """Note when the state is restored."""
        self.restored = time.time()

    def committed(self, manifest: Manifest) -> None:
        """Keep it."""
        self.manifests.append(manifest)
        self.passed()

    def passed(self) -> None:
        """Note when an epoch is done."""
        self.first = self.first or time.time()
        self.times.append(time.monotonic())
        self.last = self.watch.read()


def measure(run: Run) -> Measured:
    """Drain the source, each epoch with state, panes and commit; the audit (of no expectations) comes after."""
    made = pipeline(run.workload, run.against, run.landing)
    root = run.root or (run.work / "root").as_uri()
    run.work.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    spark = _session(run) if run.executor == "spark" else None
    start_seconds = time.monotonic() - started
    if run.prepare is not None:
        land(run.prepare, run.landing, "a")
        process(made, root, replace(options(run), run_id="prepare"), spark=spark)
        land(run.source, run.landing, "b")
    listener = Commits()
    result = process(made, root, options(run), listener=listener, spark=spark)
    extra = _restore_seconds(run, Catalog(open_store(root), made.name), listener.restored) if listener.restored else {}
    if run.workload in LIVE:
        # what a scheduler's call costs that finds nothing new
        idle = timed(lambda: process(made, root, replace(options(run), run_id="idle"), spark=spark))
        extra["idle_run_seconds"] = idle
    if spark is not None:
        spark.stop()
    wall, cpu = listener.last
    commits = [listener.watch.wall, *listener.times]
    end = parse_instant(result.watermark or "-inf")
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=run.first_commit(listener.first),
        epoch_seconds=[after - before for before, after in itertools.pairwise(commits)],
        rows_sql=_results(run, made, root) if run.root is None else "",
        cut=int(end) if run.against.is_batch and end < MAX_INSTANT else None,
        details=[
            {**manifest.timings, **manifest.counts, "requests": manifest.requests} for manifest in listener.manifests
        ],
        extra=extra,
    )


def _restore_seconds(run: Run, catalog: Catalog, restored: float) -> dict[str, float]:
    """Until epochs could be computed: since the process began, and since the run claimed the branch."""
    claimed = next(entry.at for entry in catalog.entries() if entry.kind is Kind.CLAIM)
    return {
        "start_to_restored_seconds": restored - run.launched,
        "claim_to_restored_seconds": restored - datetime.fromisoformat(claimed).timestamp(),
    }


def _session(run: Run) -> "SparkSession":
    from headrace.distribute.spark.session import spark_session  # the processes of local runs need none of Spark

    conf = {"spark.driver.memory": run.memory, "spark.local.dir": str(run.work / "spark")}
    if run.event_log is not None:
        conf |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": run.event_log.as_uri()}
    return spark_session("headrace benchmark", cores=run.cores, conf=conf)


def _results(run: Run, made: Pipeline, root: str) -> str:
    from headrace.runs.client.handle import open as open_root  # with DuckDB, which a run does not need

    return folded(made, run.workload, open_root(root)[made.name].current(at=MAIN).files())


def fetched(run: Run) -> Results:
    """What a run left in its root elsewhere, copied to its folder. Its process does not copy it, so that what storage
    counts of that is the run's own.
    """
    assert run.root is not None
    from headrace.runs.client.handle import open as open_root

    made = pipeline(run.workload, run.against, run.landing)
    manifest = open_root(run.root)[made.name].current(at=MAIN).manifest
    assert manifest is not None
    files = [file for layer in manifest.tables[UNNAMED.current] for file in layer.files]
    return Results(folded(made, run.workload, copied(open_store(run.root), files, run.work / "results")))


def copied(store: ObjectStore, files: Iterable[DataFile], folder: Path) -> list[str]:
    """Data files, copied to a new ``folder``."""
    folder.mkdir(parents=True)
    copies = []
    for number, file in enumerate(files):
        copy = folder / f"{number:05d}.parquet"
        copy.write_bytes(store.read(file.path))
        copies.append(str(copy))
    return copies


def folded(made: Pipeline, workload: Workload, files: Sequence[str]) -> str:
    """A query that folds ``current`` from its files, as readers do."""
    from headrace.read.views.columns import ViewColumns
    from headrace.read.views.row_files import standing_of

    return standing_of(f"read_parquet({list(files)})", RESULTS[workload], ViewColumns.from_pipeline(made))
