"""What a run asks of the executor that computes its epochs (``headrace.distribute``)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, Protocol, TypeVar

from headrace.audit.frames import Frame
from headrace.audit.range import AuditedFiles
from headrace.audit.releases import ReleasedPanes
from headrace.distribute.epoch import Again, Attempts, ComputedEpoch
from headrace.distribute.tasks.background.thread import Stop
from headrace.kernel.renamed_columns import Names
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.executors import LevelProgress
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.identity.renaming import Formerly
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.columns import ViewColumns
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.store import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


class ExecutorSide(Protocol):
    """What a run has of its executor, while it lasts."""

    def begin(self) -> None:
        """There will be epochs: start what takes time, beside what the run does before the first."""

    def engine(self, attempts: Attempts) -> "Engine":
        """A fresh engine, whose epochs get their names from ``attempts``."""

    def verify(self, table: str, file: DataFile) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written."""

    def audit_frame(
        self, view: ExpectationView, audited: AuditedFiles, columns: ViewColumns, released: Sequence[ReleasedPanes] = ()
    ) -> Frame:
        """The rows of ``view``, with ``columns``, that an audit looks at, without those that are ``released``. Raises
        BrokenObjectError.
        """

    def errors(self) -> AbstractContextManager[None]:
        """What the executor's libraries raise inside becomes a typed error."""

    def close(self, error: BaseException | None) -> None:
        """Let go of what it holds; ``error`` ends the run."""


class Engine(Protocol):
    """The state of one pipeline between epochs. ``compute`` is called from one thread."""

    @property
    def epoch(self) -> int:
        """The last epoch, -1 before the first."""

    @property
    def levels(self) -> int:
        """How many levels of tasks an epoch has, each of which acknowledges it."""

    @property
    def executor(self) -> str:
        """Whose state it reads and writes."""

    @property
    def pipeline(self) -> Pipeline: ...
    @property
    def store(self) -> ObjectStore: ...
    @property
    def landing(self) -> Landing: ...
    @property
    def progress(self) -> PipelineProgress: ...
    @property
    def tables(self) -> Mapping[str, tuple[Layer, ...]]:
        """The layers of all tables of state, by name."""

    def restore(
        self,
        epoch: int,
        progress: PipelineProgress,
        tables: Mapping[str, Sequence[Layer]],
        renamed: Mapping[str, Sequence[Formerly]],
        *,
        snapshot: str | None = None,
    ) -> None:
        """Continue from a ``snapshot``: its epoch, its progress, the layers of its tables. ``renamed``: what the
        columns of the stages of an output are called there, if another definition made it; the first epoch migrates
        their state.
        """

    def compute(
        self,
        files: ByInput,
        processing_time: Instant,
        *,
        is_last: bool = False,
        signals: Sequence[Signal] = (),
        wait_for_merges: bool = True,
        hold: WatermarkHold | None = None,
        recorded: bool = False,
        isolates: bool = False,
        again: Again | None = None,
    ) -> ComputedEpoch:
        """The next epoch, whose files are stored when it returns. ``wait_for_merges``: no other may come soon, so it
        leaves nothing to be done beside it. ``hold``: watermarks that it does not pass. Its files are to be as they
        were ``recorded``: it is an error if one has changed; else they are read as they have become. ``isolates``: an
        output that fails by itself is parked. ``again``: it is computed for some outputs only.
        """

    def find_level(self) -> LevelProgress | None:
        """Where the epoch under way is, as far as it can be told; None between epochs. Asked from other threads."""

    def fold_current(
        self,
        layers: Sequence[Layer],
        prefix: str,
        *,
        bottom: bool,
        names: Mapping[str, Names],
        stop: Stop,
        output: str = "",
    ) -> tuple[DataFile, ...]:
        """Merge layers of ``current`` of an ``output``, whose files call columns by ``names``, by path; retractions go
        when nothing is below. Beside the epochs, in a thread of its own; raises an error soon after ``stop`` was set.
        """

    def close(self) -> None:
        """End what runs beside the epochs, and wait until it writes nothing more."""

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own, beside the epoch being computed."""
