"""Our engine on ``local`` driven through all files, with snapshots or without: the difference is what snapshots cost.

Each file is an epoch.

* ``beside``: as runs do it, a snapshot is committed while the next epoch computes.
* ``awaited``: the next epoch begins when the snapshot is committed.
* ``none``: nothing could be restored. Rows of state are kept as they are worked on (mapped files of the cache, merged
  as ever), and neither encoded nor stored; there are no manifests and no catalog. Panes are stored all the same: they
  are what the pipeline is for. No run can do so: the function that stores rows of state is replaced in this process.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from unittest.mock import patch

import pyarrow as pa

from benchmarks.ours import Commits, copied, folded
from benchmarks.pipelines import pipeline
from benchmarks.runs import Measured, Run
from benchmarks.workloads import Side
from headrace.distribute.epoch import ComputedEpoch
from headrace.distribute.local import LocalEngine
from headrace.model.time import to_instant
from headrace.program import columns as c
from headrace.runs.commits import Committer, attempts_of
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import PipelineProgress
from headrace.state.chunks import groups_of
from headrace.state.file_cache import RowCache, StoredRun
from headrace.state.sorted_file import SortedFile as Rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import ObjectInfo, ObjectStore, open_store


def measure(run: Run) -> Measured:
    """Drain the source; the results are copied to the run's folder afterwards."""
    made = pipeline(run.workload, run.against, run.landing)
    store = open_store(run.root or (run.work / "root").as_uri())
    landing, catalog = Landing(made, store), Catalog(store, made.name)
    engine = LocalEngine(made, store, landing, attempts_of(catalog))
    listener = Commits()
    engine.restore(-1, PipelineProgress(), {})
    files = landing.new_files({})
    if run.side is Side.NONE:
        with patch("headrace.distribute.tasks.tables.put_runs", _kept):
            panes = _without_snapshots(engine, files, listener)
    else:
        _with_snapshots(engine, catalog, files, listener, is_awaited=run.side is Side.AWAITED)
        panes = [file for layer in listener.manifests[-1].tables[UNNAMED.current] for file in layer.files]
    wall, cpu = listener.last
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=0.0,
        first_commit_seconds=run.first_commit(listener.first),
        epoch_seconds=[after - before for before, after in itertools.pairwise([listener.watch.wall, *listener.times])],
        rows_sql=folded(made, run.workload, copied(store, panes, run.work / "results")),
        cut=None,
        details=[dict(manifest.timings) for manifest in listener.manifests],
    )


def _with_snapshots(
    engine: LocalEngine, catalog: Catalog, files: ByInput, listener: Commits, *, is_awaited: bool
) -> None:
    claim = catalog.claim(MAIN, owner="measured")
    committer = Committer(engine, catalog, claim, None, listener.committed)
    with contextlib.closing(committer):
        for computed in _epochs(engine, files):
            committer.submit(computed)
            if is_awaited:
                committer.drain()
        committer.drain()


def _without_snapshots(engine: LocalEngine, files: ByInput, listener: Commits) -> Sequence[DataFile]:
    """The panes of all epochs."""
    panes: list[DataFile] = []
    for computed in _epochs(engine, files):
        panes.extend(computed.written.logs[UNNAMED.panes])
        listener.passed()
    return panes


def _epochs(engine: LocalEngine, files: ByInput) -> Iterator[ComputedEpoch]:
    while files:
        batch, files = engine.landing.next_epoch(files)
        yield engine.compute(batch, to_instant(datetime.now(UTC)), wait_for_merges=not files)


def _kept(store: ObjectStore, cache: RowCache, path: str, rows: pa.RecordBatch) -> StoredRun:
    """As ``put_run``, without a file."""
    groups = groups_of(rows.column(c.HASH).to_numpy())
    # the cache names its files by the content of what was stored; here a name of its own will do
    file = DataFile(path, rows.num_rows, rows.nbytes, hashlib.sha256(path.encode()).hexdigest(), groups)
    return StoredRun(file, cache.add_file(store, file, Rows(rows), ObjectInfo(path, 0, "")))
