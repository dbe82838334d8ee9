"""What a run asks of the executor that computes its epochs (``headrace.engine``, ``headrace.distribute.local``)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar

from headrace.entrypoints.audit_frames import Frame
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Pipeline
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import Progress
from headrace.state.written import Written
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.store import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


class TableChange(Protocol):
    """What an epoch does to a table of layers: the ``expired`` oldest go; if it ``adds`` one, be it without rows, that
    comes in place of the ``replaces`` newest and holds the rows of ``epochs``.
    """

    @property
    def adds(self) -> bool: ...
    @property
    def replaces(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def epochs(self) -> tuple[int, int]: ...
    @property
    def expires(self) -> Instant: ...


class ComputedStage(Protocol):
    """What an epoch did to a stage."""

    @property
    def state(self) -> TableChange: ...


class Computed(Protocol):
    """One epoch, computed and held in memory: what it found, and where it has come."""

    @property
    def epoch(self) -> int: ...
    @property
    def files(self) -> ByInput: ...
    @property
    def stages(self) -> Sequence[ComputedStage]: ...
    @property
    def remembered(self) -> TableChange: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def timings(self) -> Mapping[str, float]: ...
    @property
    def signals(self) -> Sequence[Signal]: ...


class ScanRequests(Protocol):
    """Requests to stores that are not made through the store port."""

    def snapshot(self) -> Mapping[str, int]:
        """Every kind and its count so far."""

    def since(self, previous: Mapping[str, int]) -> Mapping[str, int]:
        """Every kind and how many were made after ``previous``."""


class ExecutorSide(Protocol):
    """What a run has of its executor, while it lasts."""

    def engine(self) -> "Engine":
        """A fresh engine."""

    def verify(self, table: str, file: DataFile) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written."""

    def audit_frames(self, panes: Sequence[DataFile], current: Sequence[DataFile], since: int) -> tuple[Frame, Frame]:
        """The panes of a range, and the rows of ``current`` that epochs after ``since`` wrote."""

    def errors(self) -> AbstractContextManager[None]:
        """What the executor's libraries raise inside becomes a typed error."""

    def close(self, error: BaseException | None) -> None:
        """Let go of what it holds; ``error`` ends the run."""


class Engine(Protocol):
    """The state of one pipeline between epochs. ``compute`` is called from one thread, ``write`` may run beside it."""

    @property
    def epoch(self) -> int:
        """The last epoch, -1 before the first."""

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
    def progress(self) -> Progress: ...
    @property
    def scan_requests(self) -> ScanRequests: ...

    def restore(self, epoch: int, progress: Progress, tables: Mapping[str, Sequence[Layer]]) -> None:
        """Go on from a snapshot: its epoch, its progress, the layers of its tables."""

    def has_due(self, processing_time: Instant) -> bool:
        """Whether some window may want an activation at ``processing_time`` without new input."""

    def compute(
        self,
        files: ByInput,
        processing_time: Instant,
        *,
        is_last: bool = False,
        signals: Sequence[Signal] = (),
    ) -> Any:
        """The next epoch (a ``Computed``)."""

    def write(self, computed: Any, prefix: str) -> Written:
        """Store what an epoch that it computed changed under ``prefix``."""

    def fold_current(self, layers: Sequence[Layer], prefix: str, bottom: bool) -> tuple[DataFile, ...]:
        """Merge layers of ``current``; retractions go when nothing is below."""

    def unseen_puts(self, written: Any) -> int:
        """How many of the puts of an epoch were not made through this process's store."""

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own, beside the epoch being computed."""
