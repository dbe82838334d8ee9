"""``headrace test``: the tests beside pipelines, a line each, and what is not as expected."""

from collections import Counter
from dataclasses import asdict
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
        Option(metavar="[local|reference]", help="What computes tests in YAML: what runs do, or the definition."),
    ] = "local",
    output: Output = Format.TEXT,
) -> None:
    """Run the unit tests beside pipelines: given these rows, expect these panes. No files, no JVM."""
    from headrace.testing.pipeline_run import checked_executor
    from headrace.testing.yaml.suite import find, run_tests

    chosen, found = checked_executor(executor), find(path)
    for file in found.others:
        notice(f"{file} is left out: it has no key `tests`")
    done: list[Tested] = []
    for tested in run_tests(found, chosen):
        done.append(tested)
        if output is Format.TEXT:
            print_lines(_lines(tested))
    counts = Counter(tested.verdict.value for tested in done)
    if output is Format.JSON:
        print_json({"tests": [asdict(tested) for tested in done], "counts": dict(counts)})
    else:
        notice(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())) or "no tests")
    raise Exit(_exit_code(counts))


def _exit_code(counts: Counter[str]) -> int:
    if counts["error"]:
        return FixConfigError.exit_code
    return FAILED_CASES if counts["failed"] else DONE


def _lines(tested: "Tested") -> list[str]:
    place = tested.file if tested.line is None else f"{tested.file}:{tested.line}"
    head = f"{tested.verdict:<7} {place} {tested.name} ({tested.seconds:.2f} s)"
    return [head, *(f"    {line}" for line in tested.message.splitlines())]
