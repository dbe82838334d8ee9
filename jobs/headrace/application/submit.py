"""What a task of Airflow runs, by spark-submit or in a process of its own: one action of one pipeline.

It tells what it does on its standard output, line by line, for the log of the task. This module imports little: where
there is input, Spark starts beside all other imports.
"""

import argparse
import sys

from headrace.runs.options import declared_options
from headrace.this_process import collect_seldom, end_with_input, exit_with

_ACTIONS = ("process", "audit", "recover", "backfill")


def main(arguments: list[str]) -> int:
    """Run the action that ``arguments`` name; the exit code is 0 or that of the error's branch (headrace.errors)."""
    options = _argument_parser().parse_args(arguments)
    if options.end_with_input:
        end_with_input()
    if options.start_spark:
        from headrace.distribute.spark.session import begin_session

        begin_session(f"headrace {options.pipeline.rpartition(':')[2]}")
    from headrace.application.action import perform_action

    return perform_action(options)


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--pipeline", required=True, help="a registered name, or path/to/file.py[:name]")
    parser.add_argument("--root", required=True, help="URI of the deployment's root")
    parser.add_argument("--run-id", required=True, help="names the result object; new for every attempt")
    parser.add_argument("--warning", action="append", default=[], help="what who starts it has to say in its result")
    parser.add_argument("--start-spark", action="store_true", help="start Spark at once, beside all imports")
    parser.add_argument("--end-with-input", action="store_true", help="end the process group when stdin ends")
    for name, option in declared_options().items():
        text = option.help.replace("%", "%%")
        parser.add_argument(
            option.argument, dest=name, **{"default": option.default, "help": text, **option.kind.argument}
        )
    return parser


if __name__ == "__main__":
    collect_seldom()
    exit_with(main(sys.argv[1:]))
