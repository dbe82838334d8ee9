"""What helps to understand a pipeline's snapshots: their graph."""

from typing import TYPE_CHECKING

from headrace.cli.output import Format, print_json, print_lines

if TYPE_CHECKING:
    from headrace_snapshots.catalog import Catalog


def print_graph(catalog: "Catalog", limit: int, before: int | None, output: Format) -> None:
    """The snapshots of the log as a graph."""
    from headrace.read.graph import snapshot_graph

    found = snapshot_graph(catalog, limit=limit, before=before)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(found.lines())
