"""The commands of ``headrace``, and those that show results: read, files, plot.

Results go to stdout, everything else to stderr; the exit code is that of the error's branch (headrace.errors). A
command imports what it needs when it is called, so that every one of them starts at once.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headrace.cli.app import (
    AtOption,
    FormatOption,
    Option,
    PipelineArgument,
    RootOption,
    StageOption,
    ViewOption,
    app,
    command,
)
from headrace.cli.commands import history, pipelines, run, snapshots
from headrace.cli.output import (
    Format,
    print_fields,
    print_if_json,
    print_json,
    print_json_rows,
    print_names,
    print_notice,
    print_table,
)
from headrace.this_process import collect_seldom, exit_with, speak_utf8
from headrace_snapshots.names import MAIN, PUBLISHED

if TYPE_CHECKING:
    from headrace.read.pipeline_reader import PipelineReader
    from headrace.read.views.lazy_view import LazyView

__all__ = [
    "app",
    "history",
    "main",
    "pipelines",
    "run",
    "snapshots",
]

SHOWN_ROWS = 20
SHOWN_OF_A_PANE = ("window_start", "window_end", "timing", "pane_index", "is_retraction", "epoch")
"""The columns common to all panes that a table for people shows."""


@command("headrace read delays.py --root file:///tmp/hr --where 'flights > 20' --order 'max_delay desc'")
def read(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    view: ViewOption = "current",
    at: AtOption = PUBLISHED,
    where: Annotated[str | None, Option(help="A condition over the columns (SQL), such as 'flights > 20'.")] = None,
    order: Annotated[str | None, Option(help="What to order by (SQL), such as 'max_delay desc'.")] = None,
    limit: Annotated[
        int | None, Option(min=0, help=f"How many rows; by default {SHOWN_ROWS} in a table, all in JSON.")
    ] = None,
    stage: StageOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the rows of a view: the results of a pipeline."""
    from headrace.cli.deployments import reader_of
    from headrace.model.accumulation import PANE_COLUMNS, WINDOW_END, WINDOW_START

    handle = reader_of(pipeline, root)
    rows = handle.read(view, at=at, where=where, stage=stage)
    _notice_what_it_is(handle, rows, view)
    if output is Format.JSON:
        print_json_rows(rows.batches(order=order, limit=limit))
        return
    rows_shown, number = rows.first(SHOWN_ROWS if limit is None else limit, order=order)
    first = [*rows.keys, WINDOW_START, WINDOW_END]
    quiet = {*PANE_COLUMNS} - {*SHOWN_OF_A_PANE}
    columns = sorted((n for n in rows.columns if n not in quiet), key=lambda n: n not in first)
    print_table(columns, ([row[name] for name in columns] for row in rows_shown))
    print_notice(f"{len(rows_shown):,} of {number:,} rows of {view} at {at}")


@command("headrace files delays.py --root file:///tmp/hr --view panes")
def files(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    view: ViewOption = "current",
    at: AtOption = PUBLISHED,
    verify: Annotated[bool, Option(help="Read the files and compare their checksums first.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the paths of a view's Parquet files, for engines of your own."""
    from headrace.cli.deployments import reader_of

    handle = reader_of(pipeline, root)
    rows = handle.read(view, at=at)
    _notice_what_it_is(handle, rows, view)
    paths = rows.files(verify=verify)
    if output is Format.JSON:
        print_json(paths)
    else:
        print_names(paths)


@command("headrace plot delays.py --root file:///tmp/hr --out lateness.png")
def plot(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    out: Annotated[Path | None, Option(help="Draw event time against processing time into this file.")] = None,
    at: AtOption = MAIN,
    epochs: Annotated[int, Option(min=1, help="How many epochs, counted from the newest.")] = 200,
    output: FormatOption = Format.TEXT,
) -> None:
    """Sum up how late the data was, with quantiles for choosing bound and allowed lateness; draw it with --out."""
    from headrace.cli.deployments import handle_of
    from headrace.observe.lateness import quantile_texts
    from headrace.pipeline.loading.registry import output_named
    from headrace.read.snapshots.epoch_history import SUMMARY

    reference, of_output = output_named(pipeline)
    summary = handle_of(reference, root).plot(out=out, at=at, epochs=epochs, output=of_output or None)
    if print_if_json(summary, output):
        return
    print_fields(
        {words: summary.counts.get(name, 0) for name, words in SUMMARY}, f"{summary.pipeline}: {summary.epochs} epochs"
    )
    print_fields(quantile_texts(summary.lateness), "how late")
    if out is not None:
        print_notice(f"drawn: {out}")


def _notice_what_it_is(handle: "PipelineReader", rows: "LazyView", view: str) -> None:
    """Say what may surprise about the rows: they are no results, or another definition made them."""
    from headrace.read.definition_plan import changed_since
    from headrace.read.views.columns import STATE

    if view == STATE:
        print_notice("state: windows that are still open. None of it is a result; all of it may still change")
        return
    definition = None if rows.manifest is None else handle.definition()
    if (
        rows.manifest is not None
        and definition is not None
        and (change_text := changed_since(definition, rows.manifest))
    ):
        print_notice(f"{change_text}. `headrace plan {handle.name}` says what a run would do with it")


def main() -> None:
    """The entry point of the command ``headrace``. Its process ends as that of a task does, which for a short run is a
    third of its CPU.
    """
    _begin_in_utf8()
    collect_seldom()
    try:
        app()
    except SystemExit as end:
        if isinstance(end.code, int):
            exit_with(end.code)
        raise


def _begin_in_utf8() -> None:
    """Start this process again in UTF-8 where the locale has another encoding. Otherwise arguments, names of files, and
    what child processes print would be other texts.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    speak_utf8()
