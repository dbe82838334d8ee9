"""The commands of ``headrace``, and those that show results: read, files, plot, conformance.

Results go to stdout, everything else to stderr; the exit code is that of the error's branch (headrace.errors). A
command imports what it needs when it is called, so that every one of them starts at once.
"""

from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from headrace.cli.app import At, Output, PipelineArgument, Root, StageOption, ViewOption, app, command
from headrace.cli.commands import explain, history, maintenance, pipelines, run, simulate, snapshots, test
from headrace.cli.display.output import (
    Format,
    notice,
    print_fields,
    print_json,
    print_json_rows,
    print_names,
    print_table,
)
from headrace.cli.parameters import Argument, Option
from headrace_snapshots.refs import MAIN, PUBLISHED

__all__ = [
    "app",
    "explain",
    "history",
    "main",
    "maintenance",
    "pipelines",
    "run",
    "simulate",
    "snapshots",
    "test",
]

SHOWN_ROWS = 20
SHOWN_OF_A_PANE = ("window_start", "window_end", "timing", "pane_index", "is_retraction", "epoch")
"""Of the columns that every pane has, those that a table for people shows."""


@command("headrace read delays.py --root file:///tmp/hr --where 'flights > 20' --order 'max_delay desc'")
def read(
    pipeline: PipelineArgument,
    *,
    root: Root,
    view: ViewOption = "current",
    at: At = PUBLISHED,
    where: Annotated[str | None, Option(help="A condition over the columns (SQL), such as 'flights > 20'.")] = None,
    order: Annotated[str | None, Option(help="What to order by (SQL), such as 'max_delay desc'.")] = None,
    limit: Annotated[
        int | None, Option(min=0, help=f"How many rows; by default {SHOWN_ROWS} in a table, all in JSON.")
    ] = None,
    stage: StageOption = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the rows of a view: what a pipeline has found."""
    from headrace.cli.catalog_names import existing
    from headrace.cli.view_names import viewed
    from headrace.model.panes import PANE_COLUMNS, WINDOW_END, WINDOW_START
    from headrace.pipeline.loading.registry import resolve

    found = resolve(pipeline)
    rows = viewed(found, existing(root), view, at, where=where, stage=stage, tell=notice)
    if output is Format.JSON:
        print_json_rows(rows.batches(order=order, limit=limit))
        return
    shown, number = rows.first(SHOWN_ROWS if limit is None else limit, order=order)
    first = [*found.stages[-1 if stage is None else stage - 1].key_types, WINDOW_START, WINDOW_END]
    quiet = {*PANE_COLUMNS} - {*SHOWN_OF_A_PANE}
    columns = sorted((n for n in rows.columns if n not in quiet), key=lambda n: n not in first)
    print_table(columns, ([row[name] for name in columns] for row in shown))
    notice(f"{len(shown):,} of {number:,} rows of {view} at {at}")


@command("headrace files delays.py --root file:///tmp/hr --view panes")
def files(
    pipeline: PipelineArgument,
    *,
    root: Root,
    view: ViewOption = "current",
    at: At = PUBLISHED,
    verify: Annotated[bool, Option(help="Read the files and compare their checksums first.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print the Parquet files of a view, for readers of your own."""
    from headrace.cli.catalog_names import existing
    from headrace.cli.view_names import viewed
    from headrace.pipeline.loading.registry import resolve
    from headrace.read.views.columns import STATE
    from headrace.read.views.sql import QueryError

    if view == STATE:
        raise QueryError(
            f"the files of {STATE} are the engine's own; `headrace read --view {STATE}` shows what they hold"
        )
    paths = viewed(resolve(pipeline), existing(root), view, at, tell=notice).files(verify=verify)
    if output is Format.JSON:
        print_json(paths)
    else:
        print_names(paths)


@command("headrace plot delays.py --root file:///tmp/hr --out lateness.png")
def plot(
    pipeline: PipelineArgument,
    *,
    root: Root,
    out: Annotated[Path | None, Option(help="Draw event time against processing time into this file.")] = None,
    at: At = MAIN,
    epochs: Annotated[int, Option(min=1, help="How many epochs, counted from the newest.")] = 200,
    output: Output = Format.TEXT,
) -> None:
    """Sum up how late the data was, with quantiles for choosing bound and allowed lateness; draw it with --out."""
    from headrace.cli.catalog_names import catalog_of
    from headrace.extras import require
    from headrace.observe.history import SUMMARY, history, totals
    from headrace.observe.lateness import lateness, seconds, told
    from headrace.read.snapshots.snapshot_refs import snapshot_at

    if out is not None:
        require("plots", "a picture")
    catalog = catalog_of(pipeline, root)
    head = snapshot_at(catalog, at).manifest
    found = [] if head is None else history(catalog, head.snapshot_id, epochs)
    if out is not None:
        from headrace.observe.picture import draw

        draw(found, f"{catalog.pipeline} at {at}: event time, processing time, watermark", out)
    sums, late = totals(found), lateness(catalog, head, found)
    if output is Format.JSON:
        picture = None if out is None else str(out)
        print_json({"epochs": len(found), "counts": sums, "lateness_seconds": seconds(late), "picture": picture})
        return
    print_fields({words: sums.get(name, 0) for name, words in SUMMARY}, f"{catalog.pipeline}: {len(found)} epochs")
    print_fields(told(late), "how late")
    if out is not None:
        notice(f"drawn: {out}")


@command("headrace conformance tests/conformance/cases/bundling.json --executor local")
def conformance(
    file: Annotated[Path, Argument(metavar="FILE", help="A file of conformance cases.")],
    executor: Annotated[str, Option(metavar="[reference|local|spark]", help="Which executor runs them.")] = "reference",
    only: Annotated[str | None, Option(help="Only cases whose name matches this glob.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Run conformance cases of the Dataflow Model on an executor."""
    from headrace.conformance.command import conformance as run_cases

    raise Exit(run_cases(file, executor, only, output.value))


def main() -> None:
    """The entry point of the command ``headrace``."""
    app()
