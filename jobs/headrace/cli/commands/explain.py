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
        Option(help="The key: one --key for each of its columns, in their order."),
    ] = None,
    window: Annotated[
        str | None,
        Option(help="A time in the window, such as its start; by default all known windows of the key."),
    ] = None,
    at: At = MAIN,
    stage: StageOption = None,
    epochs: Annotated[
        int | None,
        Option(help="Look at panes and late records of so many newest epochs alone; by default at all."),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Say why the windows of a key have fired or not, and what they wait for."""
    from headrace.cli.catalog_names import reader_of

    explanation = reader_of(pipeline, root).explain(key, window=window, stage=stage, at=at, epochs=epochs)
    if output is Format.JSON:
        print_json(explanation.to_json())
    else:
        print_lines(explanation.lines())


@command("headrace plan delays.py --root file:///tmp/hr")
def plan(pipeline: PipelineArgument, *, root: Root, at: At = MAIN, output: Output = Format.TEXT) -> None:
    """Say what a run would do with the pipeline as it is written now: keep or migrate its state, or refuse; and why.

    It changes nothing. A run keeps the state of an aggregation if neither the aggregation nor its input has changed;
    schedules, executors, descriptions and expectations do not count. It migrates the state if only columns have
    changed: renamed, gone, or new and empty (run --allow-new-aggregates). Any other change needs a replay, by a
    backfill. Where outputs have names, one that has changed is parked, and the others go on.
    """
    from headrace.cli.catalog_names import handle_and_output

    handle, named = handle_and_output(pipeline, root)
    plans = handle.plans(at=at)
    if named is not None or not plans:
        of_one = handle if named is None else handle[named] if named not in plans else None
        planned = plans[named or ""] if of_one is None else of_one.plan(at=at)
        if output is Format.JSON:
            print_json(planned.to_json())
        else:
            print_lines(map(as_typed, planned.lines()))
    elif output is Format.JSON:
        print_json({name: planned.to_json() for name, planned in plans.items()})
    else:
        for planned in plans.values():
            print_lines(map(as_typed, planned.lines()))
