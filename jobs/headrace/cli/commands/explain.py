"""The commands that explain what windows wait for and what a run would do: explain, plan."""

from typing import Annotated

from headrace.cli.app import At, Output, PipelineArgument, Root, StageOption, command
from headrace.cli.display.output import Format, as_typed, print_json, print_lines
from headrace.cli.parameters import Option
from headrace_snapshots.refs import MAIN


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
    from headrace.cli.catalog_names import handle_of

    found = handle_of(pipeline, root).explain(key, window=window, stage=stage, at=at)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(found.lines())


@command("headrace plan delays.py --root file:///tmp/hr")
def plan(pipeline: PipelineArgument, *, root: Root, at: At = MAIN, output: Output = Format.TEXT) -> None:
    """Say what a run would do with the pipeline as it is written now: keep or migrate its state, or refuse; and why.

    It changes nothing. State of an aggregation is kept if neither it nor what it reads has changed in a way that
    counts; schedules, executors, descriptions and expectations do not. It is migrated where only its columns are
    others: renamed, gone, or new and empty (run --allow-new-aggregates). All else is a replay, by a backfill.
    """
    from headrace.cli.catalog_names import handle_of

    found = handle_of(pipeline, root).plan(at=at)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        print_lines(map(as_typed, found.lines()))
