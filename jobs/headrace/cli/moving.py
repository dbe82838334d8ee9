"""The commands that compare snapshots and move in their history: diff."""

from typing import Annotated

import typer

from headrace.cli.app import Output, PipelineArgument, Root, command
from headrace.cli.completion import complete_snapshot
from headrace.cli.output import Format, print_json

_NAMED = "An id, a branch, a tag, or a time (what readers saw then)."


@command("headrace diff delays.py published main --root file:///tmp/hr")
def diff(
    pipeline: PipelineArgument,
    before: Annotated[
        str, typer.Argument(metavar="A", help=_NAMED, show_default=False, autocompletion=complete_snapshot)
    ],
    after: Annotated[
        str, typer.Argument(metavar="B", help="The other one.", show_default=False, autocompletion=complete_snapshot)
    ],
    *,
    root: Root,
    limit: Annotated[int, typer.Option(min=0, help="Rows to print; all are counted.")] = 20,
    output: Output = Format.TEXT,
) -> None:
    """Compare two snapshots: what readers would see change, input, watermarks, state, late rows and dead letters."""
    from headrace.cli.diffs import print_diff
    from headrace.cli.named import catalog_of
    from headrace.read.deployment import PipelineReader

    found = PipelineReader(catalog_of(pipeline, root)).diff(before, after, limit=limit)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_diff(found)
