"""Commits in the background: epoch n is written and committed while epoch n+1 computes, strictly in order, few in
flight. What may be committed is decided by the coordinator of the barrier protocol.

Its snapshots are epochs, in the generation of the claim. Its tasks are the levels of an epoch's tasks: the barrier goes
through them with the input that the epoch takes in, and a level acknowledges it when all of its tasks have stored what
they made of that.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.distribute.epoch import Attempt, Attempts, ComputedEpoch
from headrace.errors import RetryError
from headrace.pipeline.identity.fingerprint import definition, fingerprint
from headrace.pipeline.loading.code_digests import code_of
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import columns_after
from headrace.read.snapshots.progress import StoredProgress, progress_to_json
from headrace.read.views.columns import ViewColumns, schema_of
from headrace.runs.compaction import Folds
from headrace.runs.executors.interface import Engine
from headrace.sources.landing import ByInput
from headrace.state.datafiles.epoch_files import Written
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format.filelog import FileLog, FileRecord
from headrace_snapshots.format.files import InputFile, Layer, LoggedFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.format.table_names import INPUTS, REJECTED, OutputTables
from headrace_snapshots.protocol.coordinator import (
    Acknowledged,
    CommitFenced,
    CommitSnapshot,
    Committed,
    Coordinator,
    CoordinatorEvent,
    Due,
)
from headrace_snapshots.protocol.messages import SnapshotId

MAX_IN_FLIGHT = 2


class IncompleteEpochError(RetryError):
    """Not all tasks of an epoch have acknowledged it, or it is not the next one: it is not committed."""

    code = "retry.incomplete_epoch"


def attempts_of(catalog: Catalog) -> Attempts:
    """Names for epochs that become snapshots of ``catalog``."""

    def attempt(epoch: int) -> Attempt:
        snapshot_id = catalog.new_snapshot_id()
        return Attempt(snapshot_id, catalog.data_prefix(epoch, snapshot_id))

    return attempt


class Committer:
    """Writes and commits computed epochs on one thread of its own.

    ``submit`` blocks while MAX_IN_FLIGHT epochs wait. After a failure every later epoch is discarded and the error is
    raised by the next ``submit`` or ``drain``: nothing is ever committed on top of something that is missing.
    ``allowed`` raises if nothing may be committed, and is asked once. ``request``: whose signals the epochs are given.
    ``counted``: requests of the store that the first epoch is not charged for.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        claim: Claim,
        base: Manifest | None,
        on_commit: Callable[[Manifest], None],
        *,
        request: str | None = None,
        counted: Mapping[str, int] | None = None,
        allowed: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine, self.catalog, self.claim = engine, catalog, claim
        self.head, self._floor = base, claim.floor
        self.fingerprint, self.definition = fingerprint(engine.pipeline), definition(engine.pipeline)
        self._fingerprints = {output: fingerprint(alone) for output, alone in engine.pipeline.by_output.items()}
        self.code = code_of(engine.pipeline)
        self.outputs = {
            output: _OutputResults.of(engine, OutputTables(output), alone, base)
            for output, alone in engine.pipeline.by_output.items()
        }
        self.on_commit = on_commit
        self.request = request
        self.allowed = allowed
        self._is_allowed = False
        self._coordinator = Coordinator(
            range(engine.levels),
            generation=claim.generation,
            most_in_flight=MAX_IN_FLIGHT,
            first=0 if base is None else base.epoch + 1,
        )
        self._to_commit: set[SnapshotId] = set()
        self._events = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_IN_FLIGHT)
        self._failure: BaseException | None = None
        self._counted = engine.store.requests.snapshot() if counted is None else counted
        self._pending: list[Future[None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._begin_fold()

    def submit(self, computed: ComputedEpoch) -> None:
        """Queue an epoch. Raises the failure of an earlier one."""
        self._slots.acquire()
        try:
            self._queue(computed)
        except BaseException:
            self._slots.release()  # nobody else will
            raise

    def _queue(self, computed: ComputedEpoch) -> None:
        self._raise_failure()
        snapshot = SnapshotId(self.claim.generation, computed.epoch)
        self._tell(Due())
        for level in computed.acknowledged:
            self._tell(Acknowledged(level, snapshot))
        queued = self._thread.submit(self.engine.in_background(self._run), snapshot, computed)
        self._pending = [*(future for future in self._pending if not future.done()), queued]

    def drain(self) -> None:
        """Wait until every submitted epoch is committed. Raises the first failure."""
        for future in self._pending:
            future.result()
        self._pending.clear()
        self._raise_failure()

    def close(self) -> None:
        """Stop the thread once what it is doing is done, and end what is being folded; raises nothing."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        for results in self.outputs.values():
            results.folds.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell(self, event: CoordinatorEvent) -> None:
        """Only one of its effects is left to do: the tasks of an epoch have ended when it is told of them."""
        with self._events:
            effects = self._coordinator.receive(event)
            self._to_commit |= {effect.snapshot for effect in effects if isinstance(effect, CommitSnapshot)}

    def _run(self, snapshot: SnapshotId, computed: ComputedEpoch) -> None:
        try:
            if self._failure is None:
                self._commit_if_whole(snapshot, computed)
        except BaseException as error:
            self._failure = error
            self._tell(CommitFenced(snapshot))
        finally:
            self._slots.release()

    def _commit_if_whole(self, snapshot: SnapshotId, computed: ComputedEpoch) -> None:
        if snapshot not in self._to_commit:
            missing = sorted({*range(self.engine.levels)} - computed.acknowledged)
            reason = f"level {missing[0]} of its tasks is not complete" if missing else "it is not the next one"
            raise IncompleteEpochError(f"epoch {computed.epoch} is not committed: {reason}. Run again")
        self._to_commit.remove(snapshot)
        self._commit(computed)
        self._tell(Committed(snapshot))

    def _commit(self, computed: ComputedEpoch) -> None:
        catalog = self.catalog
        started = time.monotonic()
        parent = self.head
        if not self._is_allowed:
            self.allowed()
            self._is_allowed = True
        written = computed.written
        current = {results.names.current: results.current_layers(parent, computed) for results in self._results()}
        logs = self._logs(parent, computed.epoch, {**written.logs, INPUTS: _input_files(computed.files)})
        manifest = Manifest(
            snapshot_id=computed.attempt.snapshot_id,
            pipeline=self.engine.pipeline.name,
            fingerprint=self.fingerprint,
            branch=self.claim.branch,
            epoch=computed.epoch,
            parent=None if parent is None else parent.snapshot_id,
            generation=self.claim.generation,
            created_at=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            schema=schema_of({output: results.columns for output, results in self.outputs.items()}, self._fingerprints),
            progress=progress_to_json(
                computed.progress,
                signals=computed.signals,
                signals_of=self._signals_of(parent, computed),
                executor=self.engine.executor,
            ),
            tables={**written.tables, **current},
            logs=logs,
            counts=computed.counts,
            timings={**computed.timings, "write_seconds": time.monotonic() - started},
            requests=self._requests(written),
            code=self.code,
            definition=self.definition,
            patch=None if parent is None else parent.patch,
        )
        self._floor = catalog.commit(self.claim, manifest).floor(self.claim.branch)
        self.head = manifest
        if not computed.wait_for_merges:
            self._begin_fold()
        self.on_commit(manifest)

    def _signals_of(self, parent: Manifest | None, computed: ComputedEpoch) -> str | None:
        """Whose signals any epoch was given last."""
        if computed.signals:
            return self.request
        return None if parent is None else StoredProgress.of(parent).signals_of

    def _requests(self, written: Written) -> dict[str, int]:
        """Requests since the manifest before (so with that one's commit), those of tasks elsewhere among them."""
        requests = self.engine.store.requests.since(self._counted)
        self._counted = self.engine.store.requests.snapshot()
        return {kind: count + written.requests.get(kind, 0) for kind, count in requests.items()}

    def _results(self) -> Iterable["_OutputResults"]:
        return self.outputs.values()

    def _begin_fold(self) -> None:
        if self.head is not None:
            prefix = self.catalog.data_prefix(self.head.epoch, self.head.snapshot_id)
            for results in self._results():
                results.folds.begin(self.head.tables[results.names.current], prefix)

    def _logs(
        self, parent: Manifest | None, epoch: int, added: Mapping[str, Sequence[LoggedFile]]
    ) -> Mapping[str, FileLog]:
        """The logs of ``parent`` with the files that ``epoch`` ``added``, by log."""
        # those of what came out, which readers see, are cut where snapshots have expired, and that of inputs is not
        names = [results.names for results in self._results()]
        results = [*(log for of_output in names for log in (of_output.panes, of_output.late)), REJECTED]
        logs = dict(parent.logs) if parent is not None else {name: FileLog.empty() for name in (*results, INPUTS)}
        logs |= {name: self.catalog.cut(logs[name], self._floor) for name in results}
        for name, files in added.items():
            if files:
                logs[name] = self.catalog.append_record(logs[name], FileRecord(epoch, tuple(files)))
        return logs


@dataclass(frozen=True)
class _OutputResults:
    """What readers see of an output while its branch is written: its columns, and its ``current``, which is folded."""

    names: OutputTables
    columns: ViewColumns
    folds: Folds

    @classmethod
    def of(cls, engine: Engine, names: OutputTables, alone: Pipeline, base: Manifest | None) -> "_OutputResults":
        """Continues from ``base`` with the pipeline that has the output ``alone``."""
        columns = columns_after(alone, None if base is None else seen_by(base, names.output))
        return cls(names, columns, Folds(engine, columns, names.output))

    def current_layers(self, parent: Manifest | None, computed: ComputedEpoch) -> tuple[Layer, ...]:
        """The layers of ``current`` after an epoch, with what was folded meanwhile."""
        layers = () if parent is None else parent.tables[self.names.current]
        layers = self.folds.adopted(layers, wait=computed.wait_for_merges)
        panes = computed.written.logs[self.names.panes]
        return (*layers, Layer.of(panes, computed.epoch, computed.epoch)) if panes else layers


def _input_files(files: ByInput) -> tuple[InputFile, ...]:
    return tuple(
        InputFile(file.path, file.size, file.etag, name, file.digest)
        for name, landed in files.items()
        for file in landed
    )
