"""One action of one pipeline, as the command line of ``submit.py`` has it: its result object is always written."""

import argparse
import traceback
from dataclasses import replace
from pathlib import Path

from headrace.audit.gx_library import leave_out_spark
from headrace.errors import HeadraceError
from headrace.ext.executors import EXECUTORS
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.pipeline.scheduling import LOCAL, SPARK
from headrace.read.pipeline_reader import MissingRootError
from headrace.runs.client.recording import PREPARERS
from headrace.runs.option_values import fields_of_texts
from headrace.runs.options import RunOptions
from headrace.runs.process import open_run
from headrace.runs.process import perform_run as run_prepared
from headrace.runs.reporting.listener import (
    GuardedListener,
    LineListener,
    ProgressNotes,
    Where,
    result_lines,
    wrap_listener,
    write_log_line,
)
from headrace.runs.reporting.results import RunError, RunResult, now
from headrace.runs.reporting.summary import UnderWay, keep_result
from headrace.this_process import flush_output
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


def perform_action(arguments: argparse.Namespace) -> int:
    """Do it; the exit code is 0 or that of the error's branch (headrace.errors)."""
    started_at, listener = now(), wrap_listener(LineListener(write_log_line))
    executor = EXECUTORS.get(arguments.executor or SPARK)
    if arguments.executor == LOCAL:
        leave_out_spark()
    if executor is None or executor.is_submitted:
        listener.noted("::endgroup::")  # the task folds what Spark says while it starts
    failure: Exception | None = None
    catalog: Catalog | None = None
    try:
        prepare, pipeline = PREPARERS[arguments.action], resolve_pipeline(arguments.pipeline)
        noting = _with_progress_notes(listener, pipeline.name, arguments, started_at)
        options = RunOptions(arguments.run_id, **fields_of_texts(vars(arguments)), defer_verdict=True)
        prepared_run = prepare(open_run(pipeline, arguments.root, options, noting))
        result = run_prepared(prepared_run)
        catalog = prepared_run.context.catalog
        result = replace(result, warnings=(*arguments.warning, *result.warnings))
        for line in result_lines(replace(result, warnings=()), Where(arguments.pipeline, arguments.root)):
            listener.noted(line)  # and the task logs the warnings as such
    except MissingRootError as error:
        return _report_error(error, listener)  # the result object would make the root
    except Exception as error:
        failure = error
        result = RunResult(
            run_id=arguments.run_id,
            pipeline=_pipeline_name(arguments.pipeline),
            action=arguments.action,
            status="failed",
            error=RunError.of(error),
            branch=arguments.branch,
            started_at=started_at,
            finished_at=now(),
            warnings=tuple(arguments.warning),
        )
    try:
        keep_result(catalog or Catalog(open_store(arguments.root), result.pipeline), result)
    except HeadraceError as error:
        failure = failure or error
    code = 0 if failure is None else _report_error(failure, listener)
    flush_output()
    return code


def _with_progress_notes(
    listener: GuardedListener, pipeline: str, arguments: argparse.Namespace, started_at: str
) -> GuardedListener:
    """``listener``, and the summary of the pipeline, which pages show."""
    under_way = UnderWay(arguments.run_id, arguments.action, arguments.branch, started_at, started_at)
    return wrap_listener(ProgressNotes(listener, open_store(arguments.root), pipeline, under_way))


def _report_error(error: Exception, listener: GuardedListener) -> int:
    """Say what went wrong in one message, its details folded above it; the exit code of ``error``."""
    listener.noted(f"::group::Details of the error\n{''.join(traceback.format_exception(error))}\n::endgroup::")
    run_error = RunError.of(error)
    listener.noted(f"{run_error.code}: {run_error.message}")
    return error.exit_code if isinstance(error, HeadraceError) else HeadraceError.exit_code


def _pipeline_name(reference: str) -> str:
    """The pipeline's name, or the best guess when the pipeline itself is what is broken."""
    path, _, name = reference.partition(":")
    try:
        return resolve_pipeline(reference).name
    except Exception:  # its own error is the one that the run reports
        return name or Path(path).stem
