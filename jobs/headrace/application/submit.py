"""What a task of Airflow runs, by spark-submit or in a process of its own: one action of one pipeline.

It tells what it does on its standard output, line by line, for the log of the task. This module imports little: where
there is input, Spark starts beside all other imports.
"""

import argparse
import sys

from headrace.application.fast_exit import exit_with
from headrace.application.task_process import end_with_input
from headrace.garbage import collect_seldom
from headrace.runs.modes import Mode
from headrace_snapshots.refs import MAIN

_ACTIONS = ("process", "audit", "recover", "backfill")


def main(arguments: list[str]) -> int:
    """Run the action that ``arguments`` name; the exit code is 0 or that of the error's branch (headrace.errors)."""
    given = _parser().parse_args(arguments)
    if given.end_with_input:
        end_with_input()
    if given.start_spark:
        from headrace.distribute.spark.session import begin_session

        begin_session(f"headrace {given.pipeline.rpartition(':')[2]}")
    from headrace.application.action import perform

    return perform(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=_ACTIONS)
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
    parser.add_argument("--warning", action="append", default=[], help="what who starts it has to say in its result")
    parser.add_argument(
        "--give-up-delivered", action="store_true", help="recover: also below what a sink that cannot take back has got"
    )
    parser.add_argument("--with-readers", action="store_true", help="recover: take pipelines back that have read it")
    parser.add_argument("--from", dest="start", help="backfill: compute windows again from this event time on")
    parser.add_argument("--to", dest="end", help="backfill: compute only windows before this event time")
    parser.add_argument("--without", action="append", default=[], help="an output that stays as it is; repeatable")
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
    parser.add_argument("--patches", action="store_true", help="backfill: the same of a patch")
    parser.add_argument("--output", help="backfill: which one of several outputs is computed")
    parser.add_argument("--publish", action="store_true", help="process: publish at once what the audit finds good")
    parser.add_argument("--start-spark", action="store_true", help="start Spark at once, beside all imports")
    parser.add_argument("--end-with-input", action="store_true", help="end the process group when stdin ends")
    parser.add_argument("--strict", action="store_true", help="refuse to run if code of your own has changed")
    parser.add_argument(
        "--allow-new-aggregates", action="store_true", help="aggregates that a snapshot lacks start empty"
    )
    return parser


if __name__ == "__main__":
    collect_seldom()
    exit_with(main(sys.argv[1:]))
