"""The summary of a pipeline is written again after each run, and after each decision of a person."""

import logging

from headrace.errors import HeadraceError
from headrace.runs.reporting.results import RunResult, redacted
from headrace.runs.reporting.summarize import summarize
from headrace.runs.reporting.summary import RunLine, read_summary, write_summary
from headrace_snapshots.catalog import Catalog

_log = logging.getLogger(__name__)


def renew_summary(catalog: Catalog, result: RunResult | None = None) -> None:
    """Write the summary of a pipeline as its catalog is now; ``result`` is that of the run that has just ended.

    A get, a put, and a get for each new epoch that this ``catalog`` has not in memory. What has been done is done: if
    the store refuses, a warning says so, and the next run writes it.
    """
    try:
        before = read_summary(catalog.store, catalog.pipeline)
        write_summary(catalog.store, summarize(catalog, before, None if result is None else run_line(result)))
    except HeadraceError as error:
        why = f"{error.code}: {redacted(str(error))}"
        _log.warning(
            "the summary of %s is not renewed (%s): Airflow's pages lag until its next run", catalog.pipeline, why
        )


def run_line(result: RunResult) -> RunLine:
    """What a summary says of a run."""
    error = result.error
    return RunLine(
        run_id=result.run_id,
        action=result.action,
        status=result.status,
        finished_at=result.finished_at,
        error_code=None if error is None else error.code,
        error=None if error is None else error.message,
        warnings=tuple(result.warnings),
        limits=tuple(result.limits),
    )
