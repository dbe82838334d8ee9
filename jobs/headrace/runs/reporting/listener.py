"""What a run tells those who watch it: the listener that it calls, and the run as lines of text, the same in a terminal
and in Airflow's task log.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from headrace.model.time import render
from headrace.pipeline.executors import FindLevel
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.reporting.results import RunResult, redacted
from headrace_snapshots.format.manifest import Manifest

T = TypeVar("T")

_QUIET_DROPS = {
    "filtered": "filtered",
    "in_no_window": "in no window",
    "duplicates": "duplicates",
    "late_panes_dropped": "late for a later aggregation",
    "closed_dropped": "dropped by closed windows",
    "retractions_dropped": "retractions dropped",
}
"""Counts that are told only where there are any."""


@runtime_checkable
class Listener(Protocol):
    """Receives what a run has to tell, from any of the run's threads."""

    def noted(self, what: str) -> None:
        """The run begins something that takes a while, or has ended it."""

    def planned(self, files: int) -> None:
        """``files`` new files were found."""

    def committed(self, manifest: Manifest) -> None:
        """An epoch became a snapshot."""

    def warned(self, warning: str) -> None:
        """Something that a person should know, though the run goes on. It is told again when the run ends."""


@runtime_checkable
class LevelFollower(Protocol):
    """A listener that wants to know, while epochs are computed, where the one under way is."""

    def following(self, find_level: FindLevel) -> AbstractContextManager[None]:
        """While inside, epochs are computed, and ``find_level`` may be asked from any thread."""


class Silent:
    """A listener that does nothing."""

    def noted(self, what: str) -> None:
        """Nothing."""

    def planned(self, files: int) -> None:
        """Nothing."""

    def committed(self, manifest: Manifest) -> None:
        """Nothing."""

    def warned(self, warning: str) -> None:
        """Nothing."""


class LineListener:
    """A listener that gives each thing it is told to ``tell`` as one line."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def noted(self, what: str) -> None:
        """Tells the note as it is."""
        self._tell(what)

    def planned(self, files: int) -> None:
        """How many they are."""
        self._tell(number_of(files, "new file"))

    def committed(self, manifest: Manifest) -> None:
        """The epoch's figures."""
        self._tell(epoch_line(manifest))

    def warned(self, warning: str) -> None:
        """Tells a warning."""
        self._tell(f"warning: {warning}")


class Watched:
    """What a run tells ``listener``, none of whose failures ends the run: after the first, nothing is told any more.
    ``failure`` is that one.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.failure: Exception | None = None

    def noted(self, what: str) -> None:
        """Passes the note on."""
        self._tell(self._listener.noted, what)

    def planned(self, files: int) -> None:
        """Passes the number of files on."""
        self._tell(self._listener.planned, files)

    def committed(self, manifest: Manifest) -> None:
        """Passes the committed epoch on."""
        self._tell(self._listener.committed, manifest)

    def warned(self, warning: str) -> None:
        """Passes the warning on."""
        self._tell(self._listener.warned, warning)

    def following(self, find_level: FindLevel) -> AbstractContextManager[None]:
        """Lets a listener that wants to follow epochs ask where the one under way is, while inside."""
        if self.failure is None and isinstance(self._listener, LevelFollower):
            return self._listener.following(find_level)
        return nullcontext()

    def warnings(self) -> Iterator[str]:
        """Says that the listener failed, if it did."""
        if self.failure is not None:
            yield redacted(
                f"the listener failed ({type(self.failure).__name__}: {self.failure}) and got no more messages; the "
                "run went on"
            )

    def _tell(self, tell: Callable[[T], None], what: T) -> None:
        if self.failure is None:
            try:
                tell(what)
            except Exception as error:
                self.failure = error


def watched(listener: Listener | None) -> Watched:
    """``listener`` (None: a silent one) as a run calls it."""
    return listener if isinstance(listener, Watched) else Watched(listener or Silent())


@dataclass(frozen=True)
class Where:
    """How a person asks for what a run made: ``reference`` names the pipeline as the command line takes it."""

    reference: str
    root: str

    def command(self, name: str, *options: str) -> str:
        """The command ``headrace name`` about this pipeline, for a shell."""
        return shlex.join(["headrace", name, self.reference, "--root", self.root, *options])


def epoch_line(manifest: Manifest) -> str:
    """One epoch: what it read, what became of it, the watermark after it, how long it took, its snapshot."""
    seconds, watermark = sum(manifest.timings.values()), render(StoredProgress.of(manifest).watermark)
    return (
        f"epoch {manifest.epoch}: {_figures(manifest.counts)}, watermark {watermark}, "
        f"{seconds:.1f} s, snapshot {manifest.snapshot_id}"
    )


def ending(result: RunResult, where: Where) -> Iterator[str]:
    """What a run that succeeded did: its figures, where the branch and readers are now, what shows the rows that it
    dropped, and last the warnings.
    """
    epochs = number_of(len(result.epochs), "epoch")
    nothing = (
        "nothing differs where windows have expired" if result.action == "patch" else "there was nothing new to process"
    )
    yield f"{epochs}: {_figures(result.counts) if result.epochs else nothing}"
    if result.snapshot is None:
        yield f"branch {result.branch} has no snapshot yet"
    else:
        yield f"branch {result.branch}: snapshot {result.snapshot} (epoch {result.epoch}), watermark {result.watermark}"
    yield _published(result)
    if result.epochs:
        yield from _dropped(result, where)
    yield from (f"warning: {warning}" for warning in result.warnings)


def _published(result: RunResult) -> str:
    if result.published is None:
        return "published: nothing yet"
    if result.published == result.snapshot:
        return f"published: snapshot {result.published}, all of branch {result.branch}"
    return f"published: snapshot {result.published}, not what branch {result.branch} has"


def _dropped(result: RunResult, where: Where) -> Iterator[str]:
    """Where to look for rows that became no part of a result."""
    at = () if result.published == result.snapshot else ("--at", result.branch)
    condition = f"epoch between {min(result.epochs)} and {max(result.epochs)}"

    def shown(view: str) -> str:
        return where.command("read", "--view", view, *at, "--where", condition)

    if late := result.counts.get("late_dropped", 0):
        yield f"{number_of(late, 'record')} came too late: {shown('late')}"
        yield f"late records land once more with: {where.command('replay-late', *at)}"
    if rejected := result.counts.get("rejected", 0) + result.counts.get("rejected_panes", 0):
        yield f"{number_of(rejected, 'record')} rejected: {shown('rejected')}"
        yield f"once they can be read they land once more with: {where.command('replay-rejected', *at)}"


def _figures(counts: Mapping[str, int]) -> str:
    parts = [
        f"{number_of(counts.get('records', 0), 'record')} of {number_of(counts.get('input_files', 0), 'file')}",
        number_of(counts.get("panes", 0), "pane"),
        number_of(counts.get("retractions", 0), "retraction"),
        f"{counts.get('late_dropped', 0):,} late",
        f"{counts.get('rejected', 0) + counts.get('rejected_panes', 0):,} rejected",
        *(f"{counts[name]:,} {words}" for name, words in _QUIET_DROPS.items() if counts.get(name)),
    ]
    return ", ".join(parts)


def number_of(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
