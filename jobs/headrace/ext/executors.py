"""Executors: where the epochs of a run are computed.

What belongs here: the port of executors, and what a run tells one. Some types that cross it (``ComputedEpoch``,
``AuditedFiles``, ``ViewColumns``, ``Landing``) still lie in rooms of Headrace's own; they become values of this module
before the port is promised. Until then an executor of yours wraps one of Headrace's, as the example does, or computes
with them on other machines.

To bring an executor, write a function that gives the ``Execution`` of a run, and an ``Executor`` that names it::

    [project.entry-points."headrace.executors"]
    announced = "my_package.announced:ANNOUNCED"

**Order of calls.** ``check_installed`` before anything moves. ``open`` once for each run, when it has something to do.
``Execution.begin`` if there will be epochs: start what takes time, and return. ``verify`` for stored files while the
run restores. ``engine``, then ``Engine.restore`` unless the run begins with nothing, then ``compute`` for one epoch
after another, from one thread. ``compact_current`` comes beside the epochs, in threads of ``in_background``.
``Engine.close`` when no further epoch comes; where a run needs another engine, ``engine`` again. ``audit_frame`` for
each view that has expectations, inside of ``errors``. ``Execution.close`` at the end, also after an error.

**What is guaranteed.** Epochs come in order, each with the files that it reads, its processing time and its signals.
Nobody else commits to the branch while the run holds it.

**What an executor guarantees.** Epochs of one plan have the same rows and the same state on every executor: a branch
may change its executor between two runs. Files of an epoch are stored when ``compute`` returns. A task may run twice,
in two places at once; what it stores has a name of its own each time. The cases of the model (``headrace conformance
FILE``) hold an executor to that.

Example::

    from headrace.ext.executors import Executor, executor


    def _announced(run, given_session):
        run.note(f"Acme computes {run.run_id}")
        return executor("local").open(run, given_session)


    ANNOUNCED = Executor("a process on Acme's computers", _announced)
    assert not ANNOUNCED.is_submitted
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from headrace.installed import EntryPointGroup
from headrace.pipeline import scheduling

if TYPE_CHECKING:  # naming an executor imports nothing of what computes
    from headrace.audit.range import AuditedFiles, Frame, ReleasedPanes
    from headrace.distribute.epoch import Attempts, ComputedEpoch, RecomputedEpoch
    from headrace.distribute.process import Stop
    from headrace.ext.stores import ObjectInfo, ObjectStore
    from headrace.kernel.columns import Names
    from headrace.model.time import Instant
    from headrace.model.triggers import Signal
    from headrace.pipeline.identity import Formerly
    from headrace.pipeline.pipeline import Pipeline
    from headrace.pipeline.quality import ExpectationView
    from headrace.pipeline.scheduling import LevelProgress
    from headrace.read.views.columns import ViewColumns
    from headrace.sources.landing import ByInput, Landing
    from headrace.sources.progress import PipelineProgress, WatermarkHold
    from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge

__all__ = ["Engine", "Execution", "Executor", "ExecutorRun", "executor"]

P = ParamSpec("P")
R = TypeVar("R")


class OpenPipeline(Protocol):
    """A pipeline with what it reads and where it stores."""

    @property
    def pipeline(self) -> "Pipeline":
        """The pipeline. It raises nothing.

        :returns: its definition.
        """

    @property
    def store(self) -> "ObjectStore":
        """Where its files are stored. It raises nothing.

        :returns: the store of the root.
        """

    @property
    def landing(self) -> "Landing":
        """What it reads. It raises nothing.

        :returns: the inputs of the pipeline, opened.
        """


class ExecutorRun(OpenPipeline, Protocol):
    """What a run tells its executor."""

    @property
    def run_id(self) -> str:
        """The name of the run. It raises nothing.

        :returns: a text that no other run of the pipeline has.
        """

    def note(self, text: str) -> None:
        """Tell a person who watches the run. It raises nothing.

        :param text: a line.
        """


class Execution(Protocol):
    """The executor resources that one run holds."""

    def begin(self) -> None:
        """Start what takes time, beside what the run does before the first epoch.

        :raises HeadraceError: it cannot be started.
        """

    def engine(self, attempts: "Attempts") -> "Engine":
        """Make a fresh engine.

        :param attempts: gives each epoch the name of its snapshot and the folder of its files.
        :returns: an engine before the first epoch.
        :raises HeadraceError: what ``begin`` has started did not start.
        """

    def verify(self, table: str, file: "DataFile", info: "ObjectInfo | None" = None) -> None:
        """Hold a stored file to its checksum; several threads may call.

        :param table: the table of state that it belongs to.
        :param file: what the manifest says of it.
        :param info: what a listing of the store has said of it just now; None where nobody has looked.
        :raises BrokenObjectError: it is not what was written.
        """

    def audit_frame(
        self,
        view: "ExpectationView",
        audited: "AuditedFiles",
        columns: "ViewColumns",
        released: "Sequence[ReleasedPanes]" = (),
    ) -> "Frame":
        """Give the rows that an audit looks at.

        :param view: the view that has expectations.
        :param audited: the files of the epochs that are audited.
        :param columns: the columns of the view.
        :param released: panes that a person has released, which are left out.
        :returns: a frame that Great Expectations reads.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    def errors(self) -> AbstractContextManager[None]:
        """Translate what the executor's libraries raise.

        :returns: a context, in which it becomes an error of Headrace.
        :raises HeadraceError: from inside.
        """

    def close(self, error: BaseException | None) -> None:
        """Let go of all.

        :param error: what ends the run; None: it ends well.
        :raises HeadraceError: something cannot be ended, and there was no ``error``.
        """


class Engine(OpenPipeline, Protocol):
    """The state of one pipeline between epochs. ``compute`` is called from one thread."""

    @property
    def epoch(self) -> int:
        """The last epoch. It raises nothing.

        :returns: its number, -1 before the first.
        """

    @property
    def levels(self) -> int:
        """How many levels of tasks an epoch has, each of which acknowledges it. It raises nothing.

        :returns: their number.
        """

    @property
    def executor(self) -> str:
        """Name the executor whose state the engine reads and writes. It raises nothing.

        :returns: the executor's name, as manifests say it.
        """

    @property
    def progress(self) -> "PipelineProgress":
        """How far the last epoch has come. It raises nothing.

        :returns: positions, watermarks and clocks.
        """

    @property
    def tables(self) -> "Mapping[str, tuple[Layer, ...]]":
        """The state after the last epoch. It raises nothing.

        :returns: the layers of all tables, by name.
        """

    def restore(
        self,
        epoch: int,
        progress: "PipelineProgress",
        tables: "Mapping[str, Sequence[Layer]]",
        renamed: "Mapping[str, Sequence[Formerly]]",
        *,
        snapshot: str | None = None,
        merges: "Mapping[str, Sequence[UnfinishedMerge]]" = MappingProxyType({}),
    ) -> None:
        """Continue from a snapshot.

        :param epoch: its number.
        :param progress: how far it had come.
        :param tables: the layers of its tables, by name.
        :param renamed: what the columns of the stages of an output are called there, if another definition made it; the
            first epoch migrates their state.
        :param snapshot: its id.
        :param merges: what is being merged of its tables, by name, and goes on with the next epochs.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    def compute(
        self,
        files: "ByInput",
        processing_time: "Instant",
        *,
        is_last: bool = False,
        signals: "Sequence[Signal]" = (),
        wait_for_merges: bool = True,
        hold: "WatermarkHold | None" = None,
        recorded: bool = False,
        isolates: bool = False,
        again: "RecomputedEpoch | None" = None,
    ) -> "ComputedEpoch":
        """Compute the next epoch.

        :param files: the splits that it reads, by input.
        :param processing_time: its clock.
        :param is_last: the input has ended: watermarks go to the end of time.
        :param signals: what triggers are told.
        :param wait_for_merges: True for the last epoch of a run; the step of merges that runs beside it is then
            awaited, because no later epoch would adopt it.
        :param hold: watermarks that it does not pass.
        :param recorded: files are to be as they were recorded, and one that has changed is an error; else they are read
            as they have become.
        :param isolates: an output that fails by itself is parked, and the others go on.
        :param again: for which outputs alone an epoch is computed once more.
        :returns: the epoch, whose files are stored.
        :raises HeadraceError: nothing of it counts then, and it may be computed again.
        """

    def find_level(self) -> "LevelProgress | None":
        """Tell where the epoch under way is; asked from other threads. It raises nothing.

        :returns: its level of tasks, as far as it can be told; None between epochs.
        """

    def compact_current(
        self,
        layers: "Sequence[Layer]",
        prefix: str,
        *,
        bottom: bool,
        names: "Mapping[str, Names]",
        stop: "Stop",
        output: str = "",
        parts: int = 1,
        numbers: range = range(1),
    ) -> "tuple[tuple[DataFile, ...], ...]":
        """Make one layer of several of ``current``, some parts of the keys at a time, beside the epochs, in a thread of
        its own.

        :param layers: the layers, newest last.
        :param prefix: how the names of its files begin.
        :param bottom: nothing is below these layers, so retractions go.
        :param names: what files call columns, by path.
        :param stop: once it is set, an error is raised soon.
        :param output: the output whose layers these are.
        :param parts: in how many parts the keys are cut.
        :param numbers: which of them are done now.
        :returns: the files of each of them, in that order.
        :raises HeadraceError: it was stopped, or a stored file is damaged.
        """

    def parts_of_fold(self, size: int) -> int:
        """Tell in how many parts layers of ``current`` are made one at least. It raises nothing.

        :param size: the bytes of their files.
        :returns: the number of parts; beside small epochs there may be more.
        """

    def close(self) -> None:
        """End what runs beside the epochs, and wait until it writes nothing more. It raises nothing."""

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """Prepare a function for a thread of its own, beside the epoch being computed. It raises nothing.

        :param run: the function.
        :returns: the function, with what a thread of this executor needs around it.
        """


def _nothing() -> None:
    """Need nothing beside Headrace. It raises nothing."""


@dataclass(frozen=True)
class Executor:
    """One way to compute epochs. ``about`` says it to people, in a few words; ``open`` gives a run its ``Execution``.
    The second argument is a Spark session to use instead of one of the run's own, or None.

    ``check_installed`` raises NotInstalledError unless all that it needs is there. ``is_submitted``: Airflow starts it
    with spark-submit, and not in a process of the task's own.
    """

    about: str
    open: "Callable[[ExecutorRun, Any], Execution]"
    check_installed: Callable[[], None] = _nothing
    is_submitted: bool = False


EXECUTORS: Final[EntryPointGroup[Executor]] = scheduling.EXECUTORS
"""Executors by name, as pipelines name them."""


def executor(name: str) -> Executor:
    """Find an executor, to wrap it.

    :param name: ``local``, ``spark``, or one of another distribution.
    :returns: the executor.
    :raises NotRegisteredError: nobody has one of that name.
    """
    return EXECUTORS[name]
