"""Which executor a run takes: the one that it is asked for, else the pipeline's own. AUTO takes what fits the work.

How much work there is is known without reading data: files of input by their listing, state by the manifest.

Under AUTO a run begins on ``local`` where its first epoch fits, and asks again before each: the first that needs Spark
starts it. State and layers are the same files on both, so the engine of the next executor restores what the one before
has come to. From then on the run stays on Spark, whose start was what is dear.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import msgspec

from headrace.audit.range import AuditedFiles, Frame, ReleasedPanes, audited_files, unpublished_range
from headrace.ext.executors import EXECUTORS, Engine, ExecutorRun
from headrace.installed import require_extra
from headrace.model.time import Instant
from headrace.pipeline.identity import Formerly
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import ExpectationView
from headrace.pipeline.scheduling import AUTO, LOCAL, SPARK, ExecutorDecision, LevelProgress
from headrace.read.snapshots.progress import progress_of, unread_files
from headrace.read.views.columns import ViewColumns
from headrace.runs.reporting.results import RunAction
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import PipelineProgress
from headrace.this_process import shown_size, size_in
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge
from headrace_snapshots.format.manifest import Manifest, is_current
from headrace_snapshots.store import ObjectInfo, ObjectStore, open_store

if TYPE_CHECKING:  # a task of Airflow chooses without what computes
    from headrace.distribute.epoch import Attempts, ComputedEpoch

P = ParamSpec("P")
R = TypeVar("R")

INPUT_VARIABLE: Final = "HEADRACE_AUTO_INPUT"
STATE_VARIABLE: Final = "HEADRACE_AUTO_STATE"


class Bounds(msgspec.Struct, frozen=True):
    """Up to how many bytes of an epoch's input, and of stored state, AUTO does without Spark."""

    input: int = 256 * 2**20
    state: int = 2**30

    @classmethod
    def from_environment(cls) -> "Bounds":
        """Reads the bounds from the environment. Raises SizeError."""
        sizes = {"input": size_in(INPUT_VARIABLE), "state": size_in(STATE_VARIABLE)}
        return cls(**{name: size for name, size in sizes.items() if size is not None})


class WorkEstimate(msgspec.Struct, frozen=True):
    """What an epoch, an audit or a run has before it, in bytes: files to read, state to continue from."""

    input: int
    state: int = 0

    @classmethod
    def from_head(cls, head: Manifest | None, input_bytes: int) -> "WorkEstimate":
        """The work of continuing from ``head``."""
        if head is None:
            return cls(input_bytes)
        return cls.from_state(
            {name: layers for name, layers in head.tables.items() if not is_current(name)}, input_bytes
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Sequence[Layer]], input_bytes: int) -> "WorkEstimate":
        """The work of continuing from the layers of ``state``."""
        layers = [layer for table_layers in state.values() for layer in table_layers]
        return cls(input_bytes, sum(layer.bytes for layer in layers))


def choose(
    pipeline: Pipeline, executor_name: str | None, work: Callable[[], WorkEstimate], reason: str = ""
) -> ExecutorDecision:
    """The executor called ``executor_name``, with the caller's ``reason``, else (None) the pipeline's.

    ``work`` is called only if it counts. Raises SizeError.
    """
    executor = executor_name or pipeline.executor
    if executor == AUTO:
        return fitting_executor(pipeline, work(), Bounds.from_environment())
    return ExecutorDecision(executor, reason or ("the pipeline's own" if executor_name is None else "asked for"))


def check_installed(pipeline: Pipeline, executor: str) -> None:
    """Raise NotInstalledError unless what ``executor`` needs for ``pipeline`` is there. AUTO needs nothing yet."""
    if executor != AUTO:
        EXECUTORS[executor].check_installed()
    if count := sum(map(len, pipeline.expected.values())):
        require_extra("quality", f"the audit of pipeline {pipeline.name} (expectations: {count})")


def fitting_executor(pipeline: Pipeline, work: WorkEstimate, bounds: Bounds) -> ExecutorDecision:
    """What AUTO takes for ``work`` of ``pipeline``."""
    if functions := pipeline.spark_functions:
        return ExecutorDecision(SPARK, f"auto: the pipeline names Spark code, {functions[0].name}")
    for size, bound, kind_of_bytes, variable in (
        (work.input, bounds.input, "new input", INPUT_VARIABLE),
        (work.state, bounds.state, "state", STATE_VARIABLE),
    ):
        if size > bound:
            return ExecutorDecision(
                SPARK, f"auto: {shown_size(size)} of {kind_of_bytes} are more than {shown_size(bound)} ({variable})"
            )
    return ExecutorDecision(
        LOCAL,
        f"auto: {shown_size(work.input)} of new input and {shown_size(work.state)} of state need no Spark. It is "
        f"for epochs of more than {shown_size(bounds.input)}, or state of more than {shown_size(bounds.state)}",
    )


def work_of(
    action: RunAction, pipeline: Pipeline, root: str, *, branch: str, snapshot: str | None, full_sweep: bool
) -> WorkEstimate:
    """What a run of ``action`` has before it now. ``snapshot``: where a recovery or a new branch begins."""
    store = open_store(root)
    catalog = Catalog(store, pipeline.name)
    head = catalog.head().refs.get(branch)
    match action:
        case "audit" if (epochs := unpublished_range(catalog, branch)) is not None:
            return work_of_audit(catalog, epochs.after, epochs.until)
        case "recover" | "backfill":  # which sweep whatever was asked for
            return work_of_run(catalog, Landing(pipeline, store), snapshot or head, full_sweep=True)
        case _:
            return work_of_run(catalog, Landing(pipeline, store), head, full_sweep=full_sweep)


def work_of_run(catalog: Catalog, landing: Landing, head: str | None, *, full_sweep: bool) -> WorkEstimate:
    """What a run from snapshot ``head``, or from the newest readable one below it, has before it."""
    manifest, progress = (None, PipelineProgress()) if head is None else _newest_readable(catalog, head)
    landed_bytes = input_bytes(unread_files(catalog, landing, manifest, progress, full_sweep=full_sweep))
    return WorkEstimate.from_head(manifest, landed_bytes + input_bytes(landing.to_land(progress.offsets)))


def work_of_audit(catalog: Catalog, published_id: str | None, head: str) -> WorkEstimate:
    """What an audit of (``published_id``, ``head``] has before it: no state, but rows to look at."""
    manifest = catalog.manifest(head)
    files = audited_files(catalog, published_id, manifest).files
    return WorkEstimate(stored_bytes(file for view_files in files.values() for file in view_files))


def input_bytes(files: ByInput) -> int:
    """Their sizes, as they are stored."""
    return sum(file.size for splits in files.values() for file in splits)


def stored_bytes(files: Iterable[DataFile]) -> int:
    """Their sizes, as they are stored."""
    return sum(file.bytes for file in files)


def _newest_readable(catalog: Catalog, snapshot: str) -> tuple[Manifest | None, PipelineProgress]:
    for manifest in catalog.readable_manifests(snapshot):
        with suppress(BrokenObjectError):
            return manifest, progress_of(catalog, manifest)
    return None, PipelineProgress()


class FittingExecution:
    """A run's side under AUTO: ``local`` until an epoch needs Spark, then ``spark``, of which ``on_turn`` is told."""

    def __init__(self, run: ExecutorRun, given_session: Any, on_turn: Callable[[ExecutorDecision], None]) -> None:
        self._run, self._given_session, self._on_turn = run, given_session, on_turn
        self._bounds = Bounds.from_environment()
        self._sides = [EXECUTORS[LOCAL].open(run, given_session)]

    def switch_if_needed(self, epoch: int, work: WorkEstimate) -> bool:
        """Whether the side goes on with Spark from ``epoch`` on, for its ``work``; it does so once. Raises
        NotInstalledError, and what starting Spark raises.
        """
        if len(self._sides) > 1:
            return False
        fit = fitting_executor(self._run.pipeline, work, self._bounds)
        if fit.name == LOCAL:
            return False
        decision = replace(fit, reason=f"{fit.reason}, from epoch {epoch} on")
        check_installed(self._run.pipeline, decision.name)
        self._run.note(f"executor {decision.name}: {decision.reason}")
        self._sides.append(EXECUTORS[decision.name].open(self._run, self._given_session))
        self._on_turn(decision)
        self.begin()
        return True

    def begin(self) -> None:
        """Start what its executor needs."""
        self._sides[-1].begin()

    def engine(self, attempts: "Attempts") -> Engine:
        """A fresh engine, whose epochs get their names from ``attempts``."""
        return FittingEngine(self, attempts)

    def new_engine(self, attempts: "Attempts") -> Engine:
        """A fresh engine of the executor that the side is on."""
        return self._sides[-1].engine(attempts)

    def verify(self, table: str, file: DataFile, info: ObjectInfo | None = None) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written."""
        self._sides[-1].verify(table, file, info)

    def audit_frame(
        self, view: ExpectationView, audited: AuditedFiles, columns: ViewColumns, released: Sequence[ReleasedPanes] = ()
    ) -> Frame:
        """The rows of ``view`` that an audit looks at. Raises BrokenObjectError."""
        return self._sides[-1].audit_frame(view, audited, columns, released)

    def errors(self) -> AbstractContextManager[None]:
        """What the executor's libraries raise inside becomes a typed error."""
        return self._sides[-1].errors()

    def close(self, error: BaseException | None) -> None:
        """Let go of all; ``local``, which raises nothing, comes first."""
        for side in self._sides:
            side.close(error)


class _OfEngine(Generic[R]):
    """An attribute that the engine of the last epoch has."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, engine: "FittingEngine", owner: type) -> R:
        value: R = getattr(engine._engine, self._name)
        return value


class FittingEngine:
    """The engine of a ``FittingExecution``: that of one executor, then of the next, restored to where that one was."""

    def __init__(self, side: FittingExecution, attempts: "Attempts") -> None:
        self._side, self._attempts = side, attempts
        self._engine = side.new_engine(attempts)
        self._formerly_by_output: Mapping[str, Sequence[Formerly]] = {}
        self._merges: Mapping[str, Sequence[UnfinishedMerge]] = {}
        self._snapshot: str | None = None

    epoch = _OfEngine[int]()
    levels = _OfEngine[int]()
    executor = _OfEngine[str]()
    pipeline = _OfEngine[Pipeline]()
    store = _OfEngine[ObjectStore]()
    landing = _OfEngine[Landing]()
    progress = _OfEngine[PipelineProgress]()
    tables = _OfEngine[Mapping[str, tuple[Layer, ...]]]()

    def restore(
        self,
        epoch: int,
        progress: PipelineProgress,
        tables: Mapping[str, Sequence[Layer]],
        renamed: Mapping[str, Sequence[Formerly]],
        *,
        snapshot: str | None = None,
        merges: Mapping[str, Sequence[UnfinishedMerge]] = MappingProxyType({}),
    ) -> None:
        """Continue from a ``snapshot``."""
        self._engine.restore(epoch, progress, tables, renamed, snapshot=snapshot, merges=merges)
        self._formerly_by_output, self._snapshot, self._merges = renamed, snapshot, merges

    def compute(self, files: ByInput, processing_time: Instant, **how: Any) -> "ComputedEpoch":
        """The next epoch, on the executor that fits it. Raises what that raises, and what starting it raises."""
        if self._side.switch_if_needed(self.epoch + 1, WorkEstimate.from_state(self.tables, input_bytes(files))):
            self._switch_engine()
        epoch_result = self._engine.compute(files, processing_time, **how)
        self._formerly_by_output, self._snapshot, self._merges = (
            {},
            epoch_result.attempt.snapshot_id,
            epoch_result.written.merges,
        )
        return epoch_result

    def _switch_engine(self) -> None:
        old_engine, new_engine = self._engine, self._side.new_engine(self._attempts)
        old_engine.close()  # the next engine does that step of merges again
        new_engine.restore(
            old_engine.epoch,
            old_engine.progress,
            old_engine.tables,
            self._formerly_by_output,
            snapshot=self._snapshot,
            merges=self._merges,
        )
        self._engine = new_engine

    def find_level(self) -> LevelProgress | None:
        """Where the epoch under way is."""
        return self._engine.find_level()

    def compact_current(self, layers: Sequence[Layer], prefix: str, **how: Any) -> tuple[tuple[DataFile, ...], ...]:
        """Some parts of one layer of several of ``current``, on the executor of the last epoch."""
        return self._engine.compact_current(layers, prefix, **how)

    def parts_of_fold(self, size: int) -> int:
        """In how many parts layers of ``current`` of so many bytes are made one."""
        return self._engine.parts_of_fold(size)

    def close(self) -> None:
        """End what runs beside the epochs."""
        self._engine.close()

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own."""
        return self._engine.in_background(run)
