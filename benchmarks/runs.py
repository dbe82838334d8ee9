"""What one measured run is asked for and what it hands back, and what both sides of a comparison share in a process."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.workloads import Side, Workload


@dataclass(frozen=True)
class Run:
    """One run of one side in a process of its own.

    ``source`` holds the files, of which ours takes ``files_per_epoch`` into an epoch; ``prepare`` files that are taken
    in before anything is measured (in the same application); ``work`` is a folder of the side's own, where a later run
    continues from what an earlier one left. ``root``: where it keeps snapshots or checkpoints, if not below ``work``
    (on S3). ``executor`` is ours, by its name. ``event_log``: a folder for Spark's event
    log. ``launched``: when the process was asked for, in seconds of ``time.time()``.
    """

    side: Side
    against: Side
    workload: Workload
    source: Path
    work: Path
    cores: int
    memory: str
    executor: str = "spark"
    files_per_epoch: int = 1
    prepare: Path | None = None
    event_log: Path | None = None
    root: str | None = None
    launched: float = 0.0

    @property
    def landing(self) -> Path:
        """Where its files are read from."""
        return self.source if self.prepare is None else self.work / "landing"

    @property
    def cache(self) -> Path:
        """Our cache of state."""
        return self.work / "cache"

    def first_commit(self, moment: float) -> float | None:
        """Seconds from the start of the process to ``moment``, its first commit; None if it had others to prepare."""
        return None if self.prepare is not None else moment - self.launched

    def to_json(self) -> str:
        """A JSON object."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """The inverse of ``to_json``."""
        fields = json.loads(text)
        for name in ("source", "work", "prepare", "event_log"):
            fields[name] = None if fields[name] is None else Path(fields[name])
        fields |= {"side": Side(fields["side"]), "against": Side(fields["against"])}
        return cls(**{**fields, "workload": Workload(fields["workload"])})


@dataclass(frozen=True)
class Results:
    """Where final results are: ``rows_sql`` is a DuckDB query for them. ``cut``: the ends of windows, in microseconds,
    up to which these are final, None if all are.
    """

    rows_sql: str
    cut: int | None = None


@dataclass(frozen=True)
class Measured:
    """Seconds of one run and where its results are.

    ``wall_seconds`` and ``cpu_seconds`` (of the process, its JVM and its Python workers) are from the first look at the
    input to the last commit, Spark's start excluded, which is ``start_seconds``. ``first_commit_seconds`` are from the
    start of the process, imports and Spark's start included; None if it took in other files before. ``epoch_seconds``:
    from commit to commit. ``rows_sql`` and ``cut``: see ``Results``. ``details``: per epoch, what the side itself tells
    of it. ``peak_memory_bytes``: of the process and all below it, as who started it saw (``benchmarks.memory``).
    ``process_seconds`` and ``process_cpu_seconds``: from the start of the process, imports, the start of a JVM and all.
    """

    wall_seconds: float
    cpu_seconds: float
    start_seconds: float
    first_commit_seconds: float | None
    epoch_seconds: Sequence[float]
    rows_sql: str
    cut: int | None
    details: Sequence[Mapping[str, Any]] = field(default_factory=list)
    extra: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    process_seconds: float = 0.0
    process_cpu_seconds: float = 0.0

    @property
    def results(self) -> Results:
        """Its results."""
        return Results(self.rows_sql, self.cut)

    def to_json(self) -> str:
        """A JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Measured":
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


def tree_cpu() -> float:
    """CPU seconds of this process and its descendants: the JVM, and Python workers, ended ones too."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Python workers that have ended are in the account of their daemon
        total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass
class Stopwatch:
    """Wall and CPU seconds since it was made; CPU of this process and all below it."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=tree_cpu)

    def read(self) -> tuple[float, float]:
        """Seconds so far: wall, CPU."""
        return time.monotonic() - self.wall, tree_cpu() - self.cpu


def timed(action: Callable[[], object]) -> float:
    """Seconds that ``action`` takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started
