"""Where a run is, noted in the summary of its pipeline while it goes on, for people who look at pages."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.runs.reporting.listener import Listener
from headrace.runs.reporting.results import now, redacted
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, UnderWay, read_summary, write_summary
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore

NOTED_EVERY: Final = 5.0
"""Seconds from one note to the next, at least: each is a get and a put."""

_log = logging.getLogger(__name__)


class ProgressNotes:
    """Passes on to ``listener`` what a run tells, and notes in ``store`` how far it has come. If the store refuses, it
    notes nothing more: the run and its result say whether that matters.
    """

    def __init__(
        self,
        listener: Listener,
        store: ObjectStore,
        pipeline: str,
        under_way: UnderWay,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener, self._store, self._pipeline, self._clock = listener, store, pipeline, clock
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

    def warned(self, warning: str) -> None:
        """Passes the warning on."""
        self._listener.warned(warning)

    def _changed(self, **fields: int) -> None:
        self._under_way = msgspec.structs.replace(self._under_way, at=now(), **fields)
        at = self._clock()
        if self._refused or (self._noted is not None and at - self._noted < NOTED_EVERY):
            return
        self._noted = at
        try:
            before = read_summary(self._store, self._pipeline) or _empty(self._pipeline)
            write_summary(self._store, msgspec.structs.replace(before, under_way=self._under_way))
        except HeadraceError as error:
            self._refused = True
            _log.warning("where the run is cannot be noted (%s: %s)", error.code, redacted(str(error)))


def _empty(pipeline: str) -> PipelineSummary:
    made_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return PipelineSummary(pipeline, made_at, -1, PipelineState.EMPTY)
