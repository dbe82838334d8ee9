"""Audits, recoveries and backfills as tests run them: with a listener, a session of Spark and a clock of their own.

Nothing is recorded of them. Users and Airflow come by ``hr.open`` and ``runs.client.recording``, which do the same.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from headrace.pipeline.pipeline import Pipeline
from headrace.runs.backfill.backfill import prepared_backfill
from headrace.runs.epochs import RunContext
from headrace.runs.options import RunOptions
from headrace.runs.plan import PreparedRun
from headrace.runs.process import open_run, perform_run, prepared_audit
from headrace.runs.recover import prepared_recovery
from headrace.runs.reporting.listener import Listener, wrap_listener
from headrace.runs.reporting.results import RunResult


class Act:
    """An action that ``prepare`` prepares. ``listener`` is told of it, and ``now`` is its clock. ``spark`` is a
    session to use instead of one of its own.
    """

    def __init__(self, prepare: Callable[[RunContext], PreparedRun]) -> None:
        self._prepare = prepare

    def __call__(
        self,
        pipeline: Pipeline,
        root: str,
        options: RunOptions,
        *,
        listener: Listener | None = None,
        spark: Any = None,
        now: Callable[[], datetime] | None = None,
    ) -> RunResult:
        return perform_run(self._prepare(open_run(pipeline, root, options, wrap_listener(listener), now)), spark)


audit, recover, backfill = Act(prepared_audit), Act(prepared_recovery), Act(prepared_backfill)
