"""Where a run is, noted in the summary of its pipeline while it goes on, for people who look at pages."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.model.time import whole_seconds
from headrace.pipeline.executors import FindLevel, LevelProgress
from headrace.runs.reporting.listener import Listener
from headrace.runs.reporting.results import now, redacted
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, UnderWay, read_summary, write_summary
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore

NOTED_EVERY: Final = 5.0
"""Seconds from one note to the next, at least: each is a get and a put."""

_log = logging.getLogger(__name__)


class ProgressNotes:
    """Passes on to ``listener`` what a run tells, and notes in ``store`` how far it has come: when it tells something,
    and while an epoch is computed whenever that is at another level, or more tasks are done. ``every``: seconds from
    one note to the next, at least. If the store refuses, it notes nothing more: the run and its result say whether that
    matters.
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
        self._find_level: FindLevel = _nowhere
        self._lock = threading.Lock()
        self._under_way = under_way
        self._noted: float | None = None
        self._refused = False

    def noted(self, what: str) -> None:
        """Passes the note on."""
        self._listener.noted(what)

    def planned(self, files: int) -> None:
        """``files`` more than those that were read so far were found."""
        self._listener.planned(files)
        if files:
            self._changed(files_found=self._under_way.files + files)

    def committed(self, manifest: Manifest) -> None:
        """An epoch more."""
        self._listener.committed(manifest)
        before, counts = self._under_way, manifest.counts
        self._changed(
            files=before.files + counts.get("input_files", 0),
            records=before.records + counts.get("records", 0),
            epochs=before.epochs + 1,
            epoch=manifest.epoch,
        )

    @contextmanager
    def following(self, find_level: FindLevel) -> Iterator[None]:
        """While inside, notes say where the epoch under way is, and a thread looks for that."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._look, args=(is_over,), name="progress", daemon=True)
        self._find_level = find_level
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()  # else its last note could come after the result
            self._find_level = _nowhere

    def _look(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._every):
            with self._lock:
                if self._is_due() and (level := self._level()) is not None and level != self._under_way.level:
                    self._note(level)

    def warned(self, warning: str) -> None:
        """Passes the warning on."""
        self._listener.warned(warning)

    def _changed(self, **fields: int) -> None:
        with self._lock:
            self._under_way = msgspec.structs.replace(self._under_way, **fields)
            if self._is_due():
                self._note(self._level())

    def _is_due(self) -> bool:
        return not self._refused and (self._noted is None or self._clock() - self._noted >= self._every)

    def _level(self) -> LevelProgress | None:
        """Where the epoch under way is; None where that cannot be told, which matters to nothing else."""
        try:
            return self._find_level()
        except HeadraceError as error:
            _log.info("at which level the epoch is cannot be told (%s: %s)", error.code, redacted(str(error)))
            return None

    def _note(self, level: LevelProgress | None) -> None:
        self._noted = self._clock()
        self._under_way = msgspec.structs.replace(self._under_way, at=now(), level=level)
        try:
            before = read_summary(self._store, self._pipeline) or _empty(self._pipeline)
            write_summary(self._store, msgspec.structs.replace(before, under_way=self._under_way))
        except HeadraceError as error:
            self._refused = True
            _log.warning("where the run is cannot be noted (%s: %s)", error.code, redacted(str(error)))


def _nowhere() -> None:
    """No epoch is computed."""


def _empty(pipeline: str) -> PipelineSummary:
    made_at = whole_seconds(datetime.now(UTC))
    return PipelineSummary(pipeline, made_at, -1, PipelineState.EMPTY)
