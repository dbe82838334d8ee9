"""What a run can be for, by the names that ``headrace.application`` takes."""

from collections.abc import Mapping
from typing import Final, Protocol

from headrace.pipeline.pipeline import Pipeline
from headrace.runs.backfill.backfill import backfill, prepared_backfill
from headrace.runs.options import RunOptions
from headrace.runs.plan import PreparedRun
from headrace.runs.process import audit, prepared_process, process
from headrace.runs.recover import prepared_recovery, recover
from headrace.runs.reporting.listener import Listener, Watched
from headrace.runs.reporting.results import Action, RunResult


class Perform(Protocol):
    """An action of one pipeline under one root. Raises typed errors."""

    def __call__(
        self, pipeline: Pipeline, root: str, options: RunOptions, *, listener: Listener | None = None
    ) -> RunResult: ...


ACTIONS: Final[Mapping[Action, Perform]] = {
    "process": process,
    "audit": audit,
    "recover": recover,
    "backfill": backfill,
}


class Prepare(Protocol):
    """A run of an action, before it is planned. Raises typed errors."""

    def __call__(self, pipeline: Pipeline, root: str, options: RunOptions, listener: Watched) -> PreparedRun: ...


PREPARED: Final[Mapping[Action, Prepare]] = {
    "process": prepared_process,
    "recover": prepared_recovery,
    "backfill": prepared_backfill,
}
"""What a dry run can look at."""
