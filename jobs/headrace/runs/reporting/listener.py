"""A run as those see it who watch it: what its listener is told, and where it is, noted in the summary of its pipeline.

``LineListener`` gives the run as lines of text, the same in a terminal and in Airflow's task log. ``ProgressNotes`` are
for people who look at pages while it goes on.
"""

import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar, runtime_checkable

import msgspec

from headrace.errors import HeadraceError
from headrace.model.time import render, whole_seconds
from headrace.pipeline.scheduling import FindLevel, LevelProgress
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.reporting.results import RunResult, now, redact_secrets
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, UnderWay, read_summary, write_summary
from headrace.this_process import escape_invisible, speak_utf8
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore

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


def write_log_line(line: str) -> None:
    """Say a line for the log of the task whose process this is."""
    speak_utf8()
    print(escape_invisible(redact_secrets(line)), flush=True)  # noqa: T201  # the log is what a process says


class LineListener:
    """A listener that gives each thing it is told to ``tell`` as one line."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def noted(self, what: str) -> None:
        self._tell(what)

    def planned(self, files: int) -> None:
        self._tell(number_of(files, "new file"))

    def committed(self, manifest: Manifest) -> None:
        self._tell(epoch_line(manifest))

    def warned(self, warning: str) -> None:
        self._tell(f"warning: {warning}")


class GuardedListener:
    """What a run tells ``listener``. Its first ``failure`` does not end the run, but the telling."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.failure: Exception | None = None

    def noted(self, what: str) -> None:
        self._tell(self._listener.noted, what)

    def planned(self, files: int) -> None:
        self._tell(self._listener.planned, files)

    def committed(self, manifest: Manifest) -> None:
        self._tell(self._listener.committed, manifest)

    def warned(self, warning: str) -> None:
        self._tell(self._listener.warned, warning)

    def following(self, find_level: FindLevel) -> AbstractContextManager[None]:
        """Lets a listener that wants to follow epochs ask where the one under way is, while inside."""
        if self.failure is None and isinstance(self._listener, LevelFollower):
            return self._listener.following(find_level)
        return nullcontext()

    def warnings(self) -> Iterator[str]:
        """Says that the listener failed, if it did."""
        if self.failure is not None:
            yield redact_secrets(
                f"the listener failed ({type(self.failure).__name__}: {self.failure}) and got no more messages; the "
                "run went on"
            )

    def _tell(self, tell: Callable[[T], None], what: T) -> None:
        if self.failure is None:
            try:
                tell(what)
            except Exception as error:
                self.failure = error


def wrap_listener(listener: Listener | None) -> GuardedListener:
    """``listener`` (None: a silent one) as a run calls it."""
    return listener if isinstance(listener, GuardedListener) else GuardedListener(listener or Silent())


class Where(msgspec.Struct, frozen=True):
    """How a person asks for what a run made: ``reference`` names the pipeline as the command line takes it."""

    reference: str
    root: str

    def command(self, name: str, *options: str) -> str:
        """The command ``headrace name`` about this pipeline, for a shell."""
        return shlex.join(["headrace", name, self.reference, "--root", self.root, *options])


def epoch_line(manifest: Manifest) -> str:
    """One epoch: what it read, what became of it, the watermark after it, how long it took, its snapshot."""
    seconds, watermark = sum(manifest.timings.values()), render(StoredProgress.from_manifest(manifest).watermark)
    return (
        f"epoch {manifest.epoch}: {_figures_text(manifest.counts)}, watermark {watermark}, "
        f"{seconds:.1f} s, snapshot {manifest.snapshot_id}"
    )


def result_lines(result: RunResult, where: Where) -> Iterator[str]:
    """What a successful run did: figures, where branch and readers are, where dropped rows are shown; warnings last."""
    epochs = number_of(len(result.epochs), "epoch")
    nothing = (
        "nothing differs where windows have expired" if result.action == "patch" else "there was nothing new to process"
    )
    yield f"{epochs}: {_figures_text(result.counts) if result.epochs else nothing}"
    if result.snapshot is None:
        yield f"branch {result.branch} has no snapshot yet"
    else:
        yield f"branch {result.branch}: snapshot {result.snapshot} (epoch {result.epoch}), watermark {result.watermark}"
    yield _published_text(result)
    if result.epochs:
        yield from _dropped_lines(result, where)
    yield from (f"warning: {warning}" for warning in result.warnings)


def _published_text(result: RunResult) -> str:
    if result.published is None:
        return "published: nothing yet"
    if result.published == result.snapshot:
        return f"published: snapshot {result.published}, all of branch {result.branch}"
    return f"published: snapshot {result.published}, not what branch {result.branch} has"


def _dropped_lines(result: RunResult, where: Where) -> Iterator[str]:
    """Where to look for rows that became no part of a result."""
    at_options = () if result.published == result.snapshot else ("--at", result.branch)
    condition = f"epoch between {min(result.epochs)} and {max(result.epochs)}"

    def read_command(view: str) -> str:
        return where.command("read", "--view", view, *at_options, "--where", condition)

    if late := result.counts.get("late_dropped", 0):
        yield f"{number_of(late, 'record')} came too late: {read_command('late')}"
        yield f"late records land once more with: {where.command('replay-late', *at_options)}"
    if number_rejected := result.counts.get("rejected", 0) + result.counts.get("rejected_panes", 0):
        yield f"{number_of(number_rejected, 'record')} rejected: {read_command('rejected')}"
        yield f"once they can be read they land once more with: {where.command('replay-rejected', *at_options)}"


def _figures_text(counts: Mapping[str, int]) -> str:
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


NOTED_EVERY: Final = 5.0
"""Seconds from one note to the next, at least: each is a get and a put."""

_log = logging.getLogger(__name__)


class ProgressNotes:
    """Passes on to ``listener`` what a run tells, and notes in ``store`` how far it has come. It notes when the run
    tells something. While an epoch is computed, it notes when that is at another level, or more tasks are done.
    ``every``: seconds from one note to the next, at least. If the store refuses, it notes nothing more: the run and its
    result say whether that matters.
    """

    def __init__(
        self,
        listener: Listener,
        store: ObjectStore,
        pipeline: str,
        under_way: UnderWay,
        clock: Callable[[], float] = time.monotonic,
        *,
        every: float = NOTED_EVERY,
    ) -> None:
        self._listener, self._store, self._pipeline, self._clock = listener, store, pipeline, clock
        self._every = every
        self._find_level: FindLevel = _no_level
        self._lock = threading.Lock()
        self._under_way = under_way
        self._noted_at: float | None = None
        self._gave_up = False

    def noted(self, what: str) -> None:
        self._listener.noted(what)

    def planned(self, files: int) -> None:
        """``files`` more than those that were read so far were found."""
        self._listener.planned(files)
        if files:
            self._update_progress(files_found=self._under_way.files + files)

    def committed(self, manifest: Manifest) -> None:
        self._listener.committed(manifest)
        progress, counts = self._under_way, manifest.counts
        self._update_progress(
            files=progress.files + counts.get("input_files", 0),
            records=progress.records + counts.get("records", 0),
            epochs=progress.epochs + 1,
            epoch=manifest.epoch,
        )

    @contextmanager
    def following(self, find_level: FindLevel) -> Iterator[None]:
        """While inside, notes say where the epoch under way is, and a thread looks for that."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch_level, args=(is_over,), name="progress", daemon=True)
        self._find_level = find_level
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()  # else its last note could come after the result
            self._find_level = _no_level

    def _watch_level(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._every):
            with self._lock:
                if self._is_due() and (level := self._current_level()) is not None and level != self._under_way.level:
                    self._write_note(level)

    def warned(self, warning: str) -> None:
        self._listener.warned(warning)

    def _update_progress(self, **fields: int) -> None:
        with self._lock:
            self._under_way = msgspec.structs.replace(self._under_way, **fields)
            if self._is_due():
                self._write_note(self._current_level())

    def _is_due(self) -> bool:
        return not self._gave_up and (self._noted_at is None or self._clock() - self._noted_at >= self._every)

    def _current_level(self) -> LevelProgress | None:
        """Where the epoch under way is; None where that cannot be told, which matters to nothing else."""
        try:
            return self._find_level()
        except HeadraceError as error:
            _log.info("at which level the epoch is cannot be told (%s: %s)", error.code, redact_secrets(str(error)))
            return None

    def _write_note(self, level: LevelProgress | None) -> None:
        self._noted_at = self._clock()
        self._under_way = msgspec.structs.replace(self._under_way, at=now(), level=level)
        try:
            old_summary = read_summary(self._store, self._pipeline) or _empty_summary(self._pipeline)
            write_summary(self._store, msgspec.structs.replace(old_summary, under_way=self._under_way))
        except HeadraceError as error:
            self._gave_up = True
            _log.warning("where the run is cannot be noted (%s: %s)", error.code, redact_secrets(str(error)))


def _no_level() -> None:
    """No epoch is computed."""


def _empty_summary(pipeline: str) -> PipelineSummary:
    made_at = whole_seconds(datetime.now(UTC))
    return PipelineSummary(pipeline, made_at, -1, PipelineState.EMPTY)
