"""What a task of Airflow runs, by spark-submit or in a process of its own: one action of one pipeline.

Its result object is written whatever happens. It tells what it does on its standard output, line by line, for the log
of the task.
"""

import argparse
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from headrace.application.fast_exit import exit_with
from headrace.application.task_process import end_with_input, tell
from headrace.audit.gx_library import leave_out_spark
from headrace.errors import HeadraceError
from headrace.pipeline.executors import EXECUTORS, LOCAL, SPARK
from headrace.pipeline.loading.registry import resolve
from headrace.read.roots import MissingRootError
from headrace.runs.actions import ACTIONS
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions, parse_clock, parse_signal, parse_span
from headrace.runs.reporting.listener import LineListener, Listener, Where, ending, watched
from headrace.runs.reporting.results import RunError, RunResult, now, write
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace.terminal import flush_output
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import open_store


def main(arguments: list[str]) -> int:
    """Run the action that ``arguments`` name; the exit code is 0 or that of the error's branch (headrace.errors)."""
    given = _parser().parse_args(arguments)
    if given.end_with_input:
        end_with_input()
    started_at, listener = now(), watched(LineListener(tell))
    executor = EXECUTORS.get(given.executor or SPARK)
    if given.executor == LOCAL:
        leave_out_spark()
    if executor is None or executor.is_submitted:
        listener.noted("::endgroup::")  # the task folds what Spark says while it starts
    failure: Exception | None = None
    try:
        perform = ACTIONS[given.action]
        result = perform(resolve(given.pipeline), given.root, _options(given), listener=listener)
        for line in ending(replace(result, warnings=()), Where(given.pipeline, given.root)):
            listener.noted(line)  # and the task logs the warnings as such
    except MissingRootError as error:
        return _report(error, listener)  # the result object would make the root
    except Exception as error:
        failure = error
        result = RunResult(
            run_id=given.run_id,
            pipeline=_name(given.pipeline),
            action=given.action,
            status="failed",
            error=RunError.of(error),
            branch=given.branch,
            started_at=started_at,
            finished_at=now(),
        )
    try:
        store = open_store(given.root)
        write(store, result)
        renew_summary(Catalog(store, result.pipeline), result)
    except HeadraceError as error:
        failure = failure or error
    code = 0 if failure is None else _report(failure, listener)
    flush_output()
    return code


def _report(error: Exception, listener: Listener) -> int:
    """Say what went wrong in one message, its details folded above it; the exit code of ``error``."""
    listener.noted(f"::group::Details of the error\n{''.join(traceback.format_exception(error))}\n::endgroup::")
    run_error = RunError.of(error)
    listener.noted(f"{run_error.code}: {run_error.message}")
    return error.exit_code if isinstance(error, HeadraceError) else HeadraceError.exit_code


def _options(given: argparse.Namespace) -> RunOptions:
    return RunOptions(
        run_id=given.run_id,
        request=given.request,
        max_epochs=given.max_epochs,
        files_per_epoch=given.files_per_epoch,
        bytes_per_epoch=given.bytes_per_epoch,
        branch=given.branch,
        snapshot=given.snapshot,
        span=parse_span(given.start, given.end),
        full_sweep=given.full_sweep,
        mode=Mode(given.mode),
        signals=tuple(map(parse_signal, given.signal)),
        from_branch=given.from_branch,
        clock=parse_clock(given.clock, given.clock_step),
        strict=given.strict,
        allow_new_aggregates=given.allow_new_aggregates,
        executor=given.executor,
        reason=given.reason,
        message=given.message,
        create=given.create,
        promotes=given.promotes,
    )


def _name(reference: str) -> str:
    """The pipeline's name, or the best guess when the pipeline itself is what is broken."""
    path, _, name = reference.partition(":")
    try:
        return resolve(reference).name
    except Exception:  # its own error is the one that the run reports
        return name or Path(path).stem


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--pipeline", required=True, help="a registered name, or path/to/file.py[:name]")
    parser.add_argument("--root", required=True, help="URI of the deployment's root")
    parser.add_argument("--run-id", required=True, help="names the result object; new for every attempt")
    parser.add_argument("--request", help="names the purpose of the run; the same in every attempt")
    parser.add_argument("--max-epochs", type=int)
    parser.add_argument("--files-per-epoch", type=int)
    parser.add_argument("--bytes-per-epoch", type=int)
    parser.add_argument("--branch", default=MAIN)
    parser.add_argument("--snapshot", help="recover: the snapshot to which main moves back")
    parser.add_argument("--message", default="", help="recover: who decided it and why, for the log of the pipeline")
    parser.add_argument("--from", dest="start", help="backfill: compute windows again from this event time on")
    parser.add_argument("--to", dest="end", help="backfill: compute only windows before this event time")
    parser.add_argument("--signal", action="append", default=[], help='NAME, or NAME=["key"]; repeatable')
    parser.add_argument("--mode", choices=list(Mode), default=Mode.MICRO_BATCH, help="batch: all input, to the end")
    parser.add_argument("--executor", help="by default the pipeline's own")
    parser.add_argument("--reason", default="", help="why this executor was chosen, for the result object")
    parser.add_argument("--from-branch", help="replay: the branch or tag whose epochs run again")
    parser.add_argument("--clock", help="replay: when the first epoch runs, like 2026-01-01T00:00:00Z")
    parser.add_argument("--clock-step", help="replay: time from epoch to epoch, like 5m")
    parser.add_argument("--full-sweep", action="store_true", help="list the whole landing prefix")
    parser.add_argument("--create", action="store_true", help="make the root even if there is no input")
    parser.add_argument("--promotes", action="store_true", help="backfill: say first what is against a promotion")
    parser.add_argument("--end-with-input", action="store_true", help="end the process group when stdin ends")
    parser.add_argument("--strict", action="store_true", help="refuse to run if code of your own has changed")
    parser.add_argument(
        "--allow-new-aggregates", action="store_true", help="aggregates that a snapshot lacks start empty"
    )
    return parser


if __name__ == "__main__":
    exit_with(main(sys.argv[1:]))
