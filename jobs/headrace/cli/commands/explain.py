"""What helps to understand a pipeline's snapshots: their graph, and the commands explain and plan."""

from typing import TYPE_CHECKING, Annotated

from headrace.cli.app import At, Output, PipelineArgument, Root, StageOption, command
from headrace.cli.display.output import Format, as_typed, print_json, print_lines
from headrace.cli.parameters import Option
from headrace_snapshots.refs import MAIN

if TYPE_CHECKING:
    from headrace_snapshots.catalog import Catalog


@command("headrace explain delays.py --key JFK --window 2026-01-01T13:00:00Z --root file:///tmp/hr")
def explain(
    pipeline: PipelineArgument,
    *,
    root: Root,
    key: Annotated[
        list[str] | None,
        Option(help="The key; once for each of its columns, in their order."),
    ] = None,
    window: Annotated[
        str | None,
        Option(help="A time in the window, such as its start; by default all windows that are known."),
    ] = None,
    at: At = MAIN,
    stage: StageOption = None,
    output: Output = Format.TEXT,
) -> None:
    """Say why the windows of a key have fired or not, and what they wait for."""
    from headrace.cli.catalog_names import catalog_of
    from headrace.pipeline.loading.registry import resolve
    from headrace.read.deployment import PipelineReader

    reader = PipelineReader(catalog_of(pipeline, root))
    found = reader.explain(key, window=window, pipeline=resolve(pipeline), stage=stage, at=at)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(found.lines())


@command("headrace plan delays.py --root file:///tmp/hr")
def plan(pipeline: PipelineArgument, *, root: Root, at: At = MAIN, output: Output = Format.TEXT) -> None:
    """Say what a run would do with the pipeline as it is written now: keep or migrate its state, or refuse; and why.

    It changes nothing. State of an aggregation is kept if neither it nor what it reads has changed in a way that
    counts; schedules, executors, descriptions and expectations do not. It is migrated where only its columns are
    others: renamed, gone, or new and empty (run --added-empty). All else is a replay, by a backfill.
    """
    from headrace.cli.catalog_names import catalog_of
    from headrace.pipeline.loading.registry import resolve
    from headrace.read.definition_plan import plan as plan_of
    from headrace.read.snapshots.snapshot_refs import snapshot_at

    found = plan_of(resolve(pipeline), snapshot_at(catalog_of(pipeline, root), at).manifest)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(map(as_typed, found.lines()))


def print_graph(catalog: "Catalog", limit: int, before: int | None, output: Format) -> None:
    """The snapshots of the log as a graph."""
    from headrace.read.snapshots.graph import snapshot_graph

    found = snapshot_graph(catalog, limit=limit, before=before)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(found.lines())
