"""Commits in the background: epoch n is written and committed while epoch n+1 computes.

``NamesFiles`` are written beside epochs, where an input has many names: a run then looks a name up without its log.
They are layers, as those of state are: each is four times as large as the next one, or both become one. So a name is
written again a few times, and few files have a million names. Their names are in the log anyway, so nothing of them is
waited for, and one that is lost is made again.

``Folds`` are layers of the view ``current``, folded beside the epochs: begun with a commit, taken over by a later one.

``SnapshotIdentity`` has what a snapshot says of the definitions of outputs: of a parked one, that of its state.

``Committer`` commits strictly in order, with few epochs in flight. The coordinator of the barrier protocol decides what
may be committed. Its snapshots are epochs, in the generation of the claim. Its tasks are the levels of an epoch's
tasks: the barrier goes through them with the input that the epoch takes in. A level acknowledges it when all of its
tasks have stored what they made of that.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Self

import msgspec

from headrace.distribute.epoch import Attempt, Attempts, ComputedEpoch, counts_with
from headrace.distribute.process import BackgroundThread, Stop
from headrace.distribute.tasks import background
from headrace.errors import RetryError
from headrace.ext.executors import Engine
from headrace.ext.sources import SourceSplit
from headrace.pipeline.identity import fingerprint, fingerprint_of, recorded_definition
from headrace.pipeline.loading.code_digests import code_of
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import columns_after, under_new_names
from headrace.read.snapshots.progress import StoredProgress, continuing_to_json, epoch_to_json
from headrace.read.snapshots.read_names import NO_NAMES, NamesSeen, logged_splits
from headrace.read.views.columns import Folding, View, ViewColumns, schema_of
from headrace.sources.landing import ByInput
from headrace.state.files import WrittenState
from headrace.this_process import Size
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import files as snapshot_files
from headrace_snapshots.format import manifest as format_manifest
from headrace_snapshots.format.codec import BrokenObjectError, checksum
from headrace_snapshots.format.output_view import all_names_before, outputs_of, seen_by
from headrace_snapshots.names import MAIN
from headrace_snapshots.protocol import coordinator
from headrace_snapshots.protocol.barriers import SnapshotId

AT_LEAST: Final = Size(512)
"""A names file is written once the log has so many files more: before that a few of its nodes say the same."""

_MERGE_RATIO = 4
_MOST_NAMES_ROWS = 16_000_000
"""Rows of one names file: Arrow holds two GB of names in one array."""


class NamesFiles(msgspec.Struct, frozen=True):
    """Writes those of the ``inputs`` that are files. ``names_seen``: what was seen of them replaces what was known."""

    catalog: Catalog
    inputs: Collection[str]
    names_seen: NamesSeen = msgspec.field(default_factory=NamesSeen)

    def update_log(self, log: snapshot_files.FileLog, folder: str) -> snapshot_files.FileLog:
        """``log`` with names files, put into a ``folder`` that nobody else has, of what it says by now."""
        if not self.inputs:
            return log
        names = log.names or NO_NAMES
        if any(one.file.path in self.names_seen.lost_paths for one in names.files):
            names = NO_NAMES
        # what was confirmed was read for it, which no run is to do again
        if log.files - names.of < AT_LEAST.value and not any(self.names_seen.confirmed_splits.values()):
            return log
        try:
            return self._write_names(log, names, folder)
        except BrokenObjectError:
            # names files only repeat what the log says, so a damaged one is made again from all of it
            return self._write_names(log, NO_NAMES, folder)

    def _write_names(
        self, log: snapshot_files.FileLog, names: snapshot_files.LoggedNames, folder: str
    ) -> snapshot_files.FileLog:
        new = logged_splits(self.catalog, log, names.of)
        files: list[snapshot_files.NamesFile] = []
        for number, name in enumerate(sorted({*new, *self.names_seen.confirmed_splits} & {*self.inputs})):
            earlier_files = [one for one in names.files if one.input == name]
            splits = [*new.get(name, ()), *self.names_seen.confirmed_splits.get(name, {}).values()]
            files += (
                self._with_new_file(earlier_files, splits, name, f"{folder}/names-{number}.parquet")
                if splits
                else earlier_files
            )
        files += [one for one in names.files if one.input not in {file.input for file in files}]
        self.names_seen.confirmed_splits.clear()
        return log.replace(names=snapshot_files.LoggedNames(log.files, tuple(files)))

    def _with_new_file(
        self, earlier_files: Sequence[snapshot_files.NamesFile], splits: Sequence[SourceSplit], name: str, path: str
    ) -> list[snapshot_files.NamesFile]:
        """The files of input ``name`` with one more, at ``path``, that has ``splits``, and what it is merged with."""
        from headrace.sources.names_file import merge_tables, names_table, table_of, to_bytes

        tables, kept_files = [names_table(splits)], [*earlier_files]
        # files are merged while they are small, so there are few of them, and each name is rarely written again
        while kept_files and kept_files[-1].file.rows < min(
            _MERGE_RATIO * (rows := sum(map(len, tables))), _MOST_NAMES_ROWS - rows
        ):
            tables.insert(0, table_of(read_verified(self.catalog.store, kept_files.pop().file)))
        table = merge_tables(tables)
        data = to_bytes(table)
        self.catalog.store.write(path, data)
        return [
            *kept_files,
            snapshot_files.NamesFile(name, snapshot_files.DataFile(path, table.num_rows, len(data), checksum(data))),
        ]


TableLayers = tuple[snapshot_files.Layer, ...]


class Folds:
    """What is folded of the ``current`` of an ``output`` of one branch while it is written, a step beside each epoch.
    ``unfinished_merges``: what was begun before.
    """

    def __init__(
        self,
        engine: Engine,
        columns: ViewColumns,
        output: str,
        unfinished_merges: Sequence[snapshot_files.UnfinishedMerge],
    ) -> None:
        self._engine, self._columns, self._output = engine, columns, output
        self._merges = background.TableMerges(tuple(unfinished_merges))
        self._fold_thread = BackgroundThread[
            Mapping[background.MergeStep, Sequence[tuple[snapshot_files.DataFile, ...]]]
        ]("fold")

    def begin_step(self, layers: TableLayers, prefix: str, growth: float | None) -> None:
        """Begin a step of the fold of committed ``layers``, into files below ``prefix``, unless one is under way.
        ``growth`` is that of ``TableMerges.next_steps``.

        A fold has the columns of today, and readers take a layer's for those of its last epoch. So layers that all have
        other columns are not folded.
        """
        if self._fold_thread.is_running or (
            layers and self._columns.names_in_epoch(View.CURRENT, layers[-1].last_epoch)
        ):
            return
        self._merges = self._merges.with_next(
            layers, lambda own: self._parts_of(own, background.rows_of_step(layers, growth))
        )
        if steps := self._merges.next_steps(layers, growth):
            self._fold_thread.begin(lambda stop: {step: self._fold(step, prefix, stop) for step in steps})

    def _parts_of(self, layers: Sequence[snapshot_files.Layer], step_rows: int) -> int:
        parts = self._engine.parts_of_fold(sum(layer.bytes for layer in layers))
        if self._columns.folding is Folding.NOTHING:  # parts are of whole files, and are to become fewer
            return parts
        # a step does one part at least: parts of the size of a load would make the first small epochs pay for it
        return max(parts, background.count_parts_of(layers, step_rows))

    def _fold(
        self, step: background.MergeStep, prefix: str, stop: Stop
    ) -> tuple[tuple[snapshot_files.DataFile, ...], ...]:
        names = {
            file.path: self._columns.names_in_epoch(View.CURRENT, layer.last_epoch)
            for layer in step.layers
            for file in layer.files
        }
        return self._engine.compact_current(
            step.layers,
            prefix,
            bottom=step.merge.is_lowest,
            names=names,
            stop=stop,
            output=self._output,
            parts=step.merge.parts,
            numbers=step.parts,
        )

    def adopt_folded(self, layers: TableLayers, *, wait: bool) -> TableLayers:
        """``layers`` with what was folded meanwhile; the step that is under way is waited for if the caller says so, or
        if there are very many layers. Raises the error that ended it.
        """
        wait = wait or len(layers) > background.most_layers()
        if not (self._fold_thread.is_done or (wait and self._fold_thread.is_running)):
            return layers
        self._merges, layers = self._merges.with_finished_steps(self._fold_thread.take_result()).apply_finished(layers)
        return layers

    @property
    def unfinished_merges(self) -> tuple[snapshot_files.UnfinishedMerge, ...]:
        """What goes on with the next epoch."""
        return self._merges.unfinished_merges

    def close(self) -> None:
        """End the step that is under way, if one is, and wait until it writes nothing more."""
        self._fold_thread.close()


class SnapshotIdentity(msgspec.Struct, frozen=True):
    """Fingerprint and definition of a snapshot, fingerprint of each output; ``standing``: schemas of parked outputs."""

    fingerprint: str
    definition: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    standing: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def from_base(cls, pipeline: Pipeline, base: format_manifest.Manifest | None, standing: Collection[str]) -> Self:
        """The identity of snapshots of ``pipeline`` after ``base``, at which outputs are ``standing``."""
        fingerprints = {output: fingerprint(output_pipeline) for output, output_pipeline in pipeline.by_output.items()}
        own = recorded_definition(pipeline)
        standing = [] if base is None else [name for name in standing if name in outputs_of(base)]
        if base is None or not standing:
            return cls(fingerprint(pipeline), own, fingerprints)
        standing_definitions = {name: base.definition[format_manifest.OUTPUTS][name] for name in standing}
        mixed_definition = {**own, format_manifest.OUTPUTS: {**own[format_manifest.OUTPUTS], **standing_definitions}}
        print_ = fingerprint(pipeline) if mixed_definition == own else fingerprint_of(mixed_definition)
        return cls(
            print_,
            mixed_definition,
            fingerprints,
            {name: base.schema[format_manifest.OUTPUTS][name] for name in standing},
        )


MAX_IN_FLIGHT = 2
NOTHING: Mapping[str, int] = {}


class IncompleteEpochError(RetryError, code="retry.incomplete_epoch"):
    """Not all tasks of an epoch have acknowledged it, or it is not the next one: it is not committed."""


def attempts_of(catalog: Catalog) -> Attempts:
    """Names for epochs that become snapshots of ``catalog``."""

    def new_attempt(epoch: int) -> Attempt:
        snapshot_id = catalog.new_snapshot_id()
        return Attempt(snapshot_id, catalog.data_prefix(epoch, snapshot_id))

    return new_attempt


class Committer:
    """Writes and commits computed epochs on one thread of its own.

    ``submit`` blocks while MAX_IN_FLIGHT epochs wait. After a failure every later epoch is discarded, and the next
    ``submit`` or ``drain`` raises the error. So nothing is ever committed on top of something that is missing.
    ``check_allowed`` raises if nothing may be committed, and is asked once. ``request``: whose signals the epochs are
    given. ``counted_requests``: requests of the store that the first epoch is not charged for. ``missed_epochs``:
    epochs computed again for outputs that were parked, each at the epoch that ``stood_at`` says; the first commit
    brings them. Other outputs that are ``standing`` stay what they are. ``names``: writes names of input files, where
    there are many. ``merges``: those of ``base`` that go on, by table.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        claim: Claim,
        base: format_manifest.Manifest | None,
        on_commit: Callable[[format_manifest.Manifest], None],
        *,
        request: str | None = None,
        counted_requests: Mapping[str, int] | None = None,
        check_allowed: Callable[[], None] = lambda: None,
        missed_epochs: Sequence[ComputedEpoch] = (),
        stood_at: Mapping[str, int] = NOTHING,
        standing: Collection[str] = (),
        names: NamesFiles | None = None,
        merges: Mapping[str, Sequence[snapshot_files.UnfinishedMerge]] = background.NO_MERGES,
    ) -> None:
        self.engine, self.catalog, self.claim = engine, catalog, claim
        self.head, self._floor = base, claim.floor
        self.code = code_of(engine.pipeline)
        self._missed_epochs = missed_epochs
        self._names = NamesFiles(catalog, ()) if names is None else names
        self.identity = SnapshotIdentity.from_base(engine.pipeline, base, standing)
        former_names = _called_on_main(catalog, engine.pipeline) if base is None else {}
        self.outputs: dict[str, _OutputResults] = {}
        for output, output_pipeline in engine.pipeline.by_output.items():
            if output in self.identity.standing:
                continue
            if base is None:
                columns = replace(columns_after(output_pipeline, None), formerly=former_names.get(output, ()))
            else:
                columns = _continued_columns(output_pipeline, output, base, stood_at.get(output))
            tables = format_manifest.OutputTables(output)
            folds = Folds(engine, columns, output, merges.get(tables.current, ()))
            self.outputs[output] = _OutputResults(tables, columns, folds)
        self.on_commit = on_commit
        self.request = request
        self.check_allowed = check_allowed
        self._is_allowed = False
        self._coordinator = coordinator.Coordinator(
            range(engine.levels),
            generation=claim.generation,
            most_in_flight=MAX_IN_FLIGHT,
            first=0 if base is None else base.epoch + 1,
        )
        self._to_commit: set[SnapshotId] = set()
        self._events = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_IN_FLIGHT)
        self._failure: BaseException | None = None
        self._counted_requests = engine.store.requests.snapshot() if counted_requests is None else counted_requests
        self._pending: list[Future[None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._expected_bytes: int | None = None

    def expect_epoch(self, input_bytes: int) -> None:
        """An epoch that reads so many bytes is computed next. What is folded beside it has a size that goes with it."""
        is_first, self._expected_bytes = self._expected_bytes is None, input_bytes
        if is_first:  # later ones begin with a commit
            self._begin_fold()

    def submit(self, computed_epoch: ComputedEpoch) -> None:
        """Queue an epoch. Raises the failure of an earlier one."""
        self._slots.acquire()
        try:
            self._queue_epoch(computed_epoch)
        except BaseException:
            self._slots.release()  # nobody else will
            raise

    def _queue_epoch(self, epoch_result: ComputedEpoch) -> None:
        self._raise_failure()
        snapshot = SnapshotId(self.claim.generation, epoch_result.epoch)
        self._tell(coordinator.Due())
        for level in epoch_result.acknowledged_levels:
            self._tell(coordinator.Acknowledged(level, snapshot))
        run = self.engine.in_background(self._run_commit)
        future = self._thread.submit(
            run, snapshot, epoch_result, self.engine.executor
        )  # the next epoch may have another
        self._pending = [*(future for future in self._pending if not future.done()), future]

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

    def _tell(self, event: coordinator.CoordinatorEvent) -> None:
        """Only one of its effects is left to do: the tasks of an epoch have ended when it is told of them."""
        with self._events:
            effects = self._coordinator.receive(event)
            self._to_commit |= {effect.snapshot for effect in effects if isinstance(effect, coordinator.CommitSnapshot)}

    def _run_commit(self, snapshot: SnapshotId, epoch_result: ComputedEpoch, executor: str) -> None:
        try:
            if self._failure is None:
                self._commit_if_whole(snapshot, epoch_result, executor)
        except BaseException as error:
            # nobody waits for this thread: who submits or drains next raises it
            self._failure = error
            self._tell(coordinator.CommitFenced(snapshot))
        finally:
            self._slots.release()

    def _commit_if_whole(self, snapshot: SnapshotId, epoch_result: ComputedEpoch, executor: str) -> None:
        if snapshot not in self._to_commit:
            missing = sorted({*range(self.engine.levels)} - epoch_result.acknowledged_levels)
            reason = f"level {missing[0]} of its tasks is not complete" if missing else "it is not the next one"
            raise IncompleteEpochError(f"epoch {epoch_result.epoch} is not committed: {reason}. Run again")
        self._to_commit.remove(snapshot)
        self._commit_epoch(epoch_result, executor)
        self._tell(coordinator.Committed(snapshot))

    def _commit_epoch(self, epoch_result: ComputedEpoch, executor: str) -> None:
        catalog = self.catalog
        start = time.monotonic()
        parent = self.head
        if not self._is_allowed:
            self.check_allowed()
            self._is_allowed = True
        written_state = epoch_result.written
        # before merges are named: what was folded meanwhile goes on no more
        current = self._current_layers(parent, epoch_result)
        logs = self._extended_logs(parent, epoch_result)
        counts = counts_with(epoch_result, self._missed_epochs)
        continuing = format_manifest.Continuing(
            pipeline=self.engine.pipeline.name,
            fingerprint=self.identity.fingerprint,
            definition=self.identity.definition,
            schema=self._manifest_schema(),
            code=self.code,
            progress=continuing_to_json(epoch_result.progress, signals_of=self._signals_of(parent, epoch_result)),
            tables={**written_state.tables, **current},
            merges={
                **written_state.merges,
                **{own.names.current: own.folds.unfinished_merges for own in self.outputs.values()},
            },
            logs=logs,
            patch=None if parent is None else parent.patch,
        )
        epoch = format_manifest.EpochFields(
            snapshot_id=epoch_result.attempt.snapshot_id,
            branch=self.claim.branch,
            generation=self.claim.generation,
            created_at=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            progress=epoch_to_json(epoch_result.progress, signals=epoch_result.signals, executor=executor),
            counts=counts,
            timings={**epoch_result.timings, "write_seconds": time.monotonic() - start},
            requests=self._count_requests(written_state),
        )
        manifest = format_manifest.Manifest.next_of(parent, continuing=continuing, epoch=epoch)
        self._floor = catalog.commit(self.claim, manifest).floor(self.claim.branch)
        self.head, self._missed_epochs = manifest, ()
        # where no epoch follows soon, the end of the run would wait for the fold
        if not epoch_result.wait_for_merges:
            self._begin_fold()
        self.on_commit(manifest)

    def _signals_of(self, parent: format_manifest.Manifest | None, epoch_result: ComputedEpoch) -> str | None:
        """The request whose signals any epoch was given last."""
        if epoch_result.signals:
            return self.request
        return None if parent is None else StoredProgress.from_manifest(parent).signals_of

    def _count_requests(self, written_state: WrittenState) -> dict[str, int]:
        """Requests since the manifest before (so with that one's commit), those of tasks elsewhere among them."""
        requests = self.engine.store.requests.since(self._counted_requests)
        self._counted_requests = self.engine.store.requests.snapshot()
        elsewhere = [written_state.requests, *(missed_epoch.written.requests for missed_epoch in self._missed_epochs)]
        return {kind: count + sum(own.get(kind, 0) for own in elsewhere) for kind, count in requests.items()}

    def _manifest_schema(self) -> dict[str, Any]:
        columns = {output: results.columns for output, results in self.outputs.items()}
        schema = schema_of(columns, self.identity.fingerprints)
        if self.identity.standing:
            schema[format_manifest.OUTPUTS] |= self.identity.standing
        return schema

    def _current_layers(
        self, parent: format_manifest.Manifest | None, epoch_result: ComputedEpoch
    ) -> dict[str, tuple[snapshot_files.Layer, ...]]:
        """``current`` of each output after an epoch; an output that stands still keeps its own."""
        names = [format_manifest.OutputTables(output).current for output in self.identity.standing]
        current = {name: () if parent is None else parent.tables[name] for name in names}
        own = {
            r.names.current: r.current_layers(parent, (*self._missed_epochs, epoch_result))
            for r in self.outputs.values()
        }
        return {**current, **own}

    def _begin_fold(self) -> None:
        if self.head is not None:
            prefix = self.catalog.data_prefix(self.head.epoch, self.head.snapshot_id)
            growth = background.growth_of_input(self._expected_bytes or 0, self.head.counts.get("input_bytes", 0))
            for results in self.outputs.values():
                layers = self.head.tables.get(results.names.current, ())
                own_growth = background.growth_of_table(layers, growth, self.head.epoch)
                results.folds.begin_step(layers, prefix, own_growth)

    def _extended_logs(
        self, parent: format_manifest.Manifest | None, epoch_result: ComputedEpoch
    ) -> Mapping[str, snapshot_files.FileLog]:
        """The logs of ``parent`` with what an epoch added, after what others have missed."""
        # those of what came out, which readers see, are cut where snapshots have expired, and that of inputs is not
        names = [format_manifest.OutputTables(output) for output in self.engine.pipeline.by_output]
        results = [*(log for of_output in names for log in (of_output.panes, of_output.late)), format_manifest.REJECTED]
        parent_logs = {} if parent is None else parent.logs  # which may have other outputs
        logs = {
            name: parent_logs.get(name, snapshot_files.FileLog.empty()) for name in (*results, format_manifest.INPUTS)
        }
        logs |= {name: self.catalog.cut(logs[name], self._floor) for name in results}
        letters = [
            file for missed_epoch in self._missed_epochs for file in missed_epoch.written.logs[format_manifest.REJECTED]
        ]
        for missed_epoch in self._missed_epochs:
            own = {
                log
                for name in missed_epoch.chains
                for log in (format_manifest.OutputTables(name).panes, format_manifest.OutputTables(name).late)
            }
            self._append_files(
                logs, missed_epoch.epoch, {log: files for log, files in missed_epoch.written.logs.items() if log in own}
            )
        # dead letters of epochs before stand beside those of this one, as the log of all outputs goes on
        own_letters = (*letters, *epoch_result.written.logs[format_manifest.REJECTED])
        inputs = _input_files(epoch_result.files)
        self._append_files(
            logs,
            epoch_result.epoch,
            {**epoch_result.written.logs, format_manifest.REJECTED: own_letters, format_manifest.INPUTS: inputs},
        )
        prefix = self.catalog.data_prefix(epoch_result.epoch, epoch_result.attempt.snapshot_id)
        logs[format_manifest.INPUTS] = self._names.update_log(logs[format_manifest.INPUTS], prefix)
        return logs

    def _append_files(
        self,
        logs: dict[str, snapshot_files.FileLog],
        epoch: int,
        new_files: Mapping[str, Sequence[snapshot_files.LoggedFile]],
    ) -> None:
        for name, files in new_files.items():
            if files:
                logs[name] = self.catalog.append_record(logs[name], snapshot_files.FileRecord(epoch, tuple(files)))


class _OutputResults(msgspec.Struct, frozen=True):
    """What readers see of an output while its branch is written: its columns, and its ``current``, which is folded."""

    names: format_manifest.OutputTables
    columns: ViewColumns
    folds: Folds

    def current_layers(
        self, parent: format_manifest.Manifest | None, epochs: Sequence[ComputedEpoch]
    ) -> tuple[snapshot_files.Layer, ...]:
        """The layers of ``current`` after ``epochs``, with what was folded meanwhile."""
        layers = () if parent is None else parent.tables.get(self.names.current, ())
        layers = self.folds.adopt_folded(layers, wait=epochs[-1].wait_for_merges)
        files = [(epoch_result.epoch, epoch_result.written.logs.get(self.names.panes, ())) for epoch_result in epochs]
        return (*layers, *(snapshot_files.Layer.from_files(panes, epoch, epoch) for epoch, panes in files if panes))


def _continued_columns(
    output_pipeline: Pipeline, output: str, base: format_manifest.Manifest, stood_at: int | None
) -> ViewColumns:
    """The columns of an ``output`` after ``base``, or after the epoch that it ``stood_at``, if it was parked."""
    if output != "" and output not in outputs_of(base):
        return replace(columns_after(output_pipeline, None), adopted=base.epoch + 1)
    return columns_after(output_pipeline, seen_by(base, output), stood_at)


def _called_on_main(catalog: Catalog, pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """What main says each output of ``pipeline`` was called before, for a branch that begins with nothing. Once
    promoted, readers, sinks and records that land again still look under those names. Nothing if main cannot be read.
    """
    with suppress(BrokenObjectError, MissingSnapshotError):
        if (main := catalog.known_head().refs.get(MAIN)) is not None:
            definition = under_new_names(pipeline, catalog.manifest(main))
            return {output: all_names_before(definition, output) for output in outputs_of(definition)}
    return {}


def _input_files(files: ByInput) -> tuple[snapshot_files.InputFile, ...]:
    return tuple(
        snapshot_files.InputFile(file.path, file.size, file.etag, name, file.digest, file.rules or 0)
        for name, splits in files.items()
        for file in splits
    )
