"""``headrace conformance``: run a file of conformance cases on an executor and say what passed."""

from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from headrace.cli.app import Argument, FormatOption, Option, separate_command
from headrace.cli.output import Format


@separate_command("headrace conformance tests/conformance/cases/bundling.json --executor local")
def conformance(
    file: Annotated[Path, Argument(metavar="FILE", help="A file of conformance cases.")],
    executor: Annotated[str, Option(metavar="[reference|local|spark]", help="Which executor runs them.")] = "reference",
    only: Annotated[str | None, Option(help="Only cases whose name matches this glob.")] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Run conformance cases of the Dataflow Model on an executor."""
    from headrace_lab.conformance.runner import conformance as run_cases

    raise Exit(run_cases(file, executor, only, output.value))
