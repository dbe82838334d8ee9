"""``headrace test``: the tests beside pipelines, a line for each, and every difference from what they expect."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from headrace.cli.app import Output, command
from headrace.cli.display.output import Format, notice, print_json, print_lines
from headrace.cli.exit_codes import DONE, FAILED_CASES
from headrace.cli.parameters import Argument, Option
from headrace.errors import FixConfigError

if TYPE_CHECKING:
    from headrace.testing.yaml.suite import Tested


@command("headrace test pipelines/")
def test(
    path: Annotated[
        Path,
        Argument(
            metavar="PATH",
            help="A file of tests, or a folder with NAME.test.yaml, tests/NAME.yaml or test_NAME.py in it.",
        ),
    ] = Path(),
    executor: Annotated[
        str,
        Option(
            metavar="[local|reference]",
            help="What computes tests in YAML: the kernel of all runs, or the reference interpreter (of headrace-lab).",
        ),
    ] = "local",
    output: Output = Format.TEXT,
) -> None:
    """Run the unit tests beside pipelines: given these rows, expect these panes. No files, no JVM."""
    from headrace.testing.pipeline_run import WITHOUT_INTERPRETER, checked_executor, has_interpreter
    from headrace.testing.yaml.suite import find, run_suite

    chosen, tests = checked_executor(executor), find(path)
    if chosen == "reference" and not has_interpreter():
        notice(WITHOUT_INTERPRETER)
    for file in tests.others:
        notice(f"{file} is left out: it has no key `tests`")
    report = run_suite(tests, chosen, None if output is Format.JSON else lambda tested: print_lines(_lines(tested)))
    if output is Format.JSON:
        print_json(report.to_json())
    else:
        notice(", ".join(f"{number} {verdict}" for verdict, number in sorted(report.counts.items())) or "no tests")
    raise Exit(_exit_code(report.counts))


def _exit_code(counts: Mapping[str, int]) -> int:
    if "error" in counts:
        return FixConfigError.exit_code
    return FAILED_CASES if "failed" in counts else DONE


def _lines(tested: "Tested") -> list[str]:
    place = tested.file if tested.line is None else f"{tested.file}:{tested.line}"
    head = f"{tested.verdict:<7} {place} {tested.name} ({tested.seconds:.2f} s)"
    return [head, *(f"    {line}" for line in tested.message.splitlines())]
