"""A run in this terminal: what it tells while it lasts, how it ended, and how to go on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.cli.catalog_names import STARTED_BY, handle_to_run
from headrace.cli.display.due import say_what_is_due
from headrace.cli.display.output import Format, despite_closed_output, notice, print_json, print_lines
from headrace.cli.display.progress import Bar
from headrace.cli.parameters import given_options
from headrace.errors import HeadraceError
from headrace.pipeline.loading.registry import output_named
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.client.recording import new_run_id
from headrace.runs.reporting.listener import LineListener, Listener, Where, ending, watched
from headrace.runs.reporting.results import RunResult, to_json
from headrace_snapshots.catalog import Catalog

if TYPE_CHECKING:
    from headrace.runs.dry_run import DryRun


def run_backfill(
    reference: str,
    root: str,
    output: Format,
    *,
    branch: str | None,
    promote: bool,
    patch: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Backfill ``branch`` (None: a new one), print how it ended, and say how to go on where it was stopped. Or print
    what would be done.
    """
    whole, of_output = output_named(reference)
    handle = handle_to_run(whole, root)
    named = f"backfill-{new_run_id(STARTED_BY)}" if branch is None else branch
    asked = {"output": of_output or None, "branch": named, "promote": promote, "patch": patch, **given_options(options)}
    if dry_run:
        print_dry_run(handle.backfill(**asked, dry_run=True), output)
        return
    where, executor = Where(reference, root), options["executor"]
    on = ("--branch", named, *(() if executor is None else ("--executor", str(executor))))
    try:
        with watching() as listener:
            result = handle.backfill(**asked, listener=listener)
    except HeadraceError as error:
        if _has_begun(handle.catalog, named):
            again = (*on, *(("--promote",) if promote else ()), *(("--patch",) if patch else ()))
            error.add_note(f"to go on where it stopped: {where.command('backfill', *again)}")
        raise
    print_ending(result, whole, root, output, handle if promote else None)
    if result.snapshot is None:
        return
    if patch:
        with despite_closed_output():
            notice(f"branch {named} stays: `headrace drop {handle.name} {named}` drops it")
    elif not promote:
        with despite_closed_output():
            notice(f"to compare it with what readers see: {where.command('diff', 'published', named)}")
            notice(f"to make it main and published: {where.command('backfill', *on, '--promote')}")


def _has_begun(catalog: Catalog, branch: str) -> bool:
    """Whether there is such a branch; where nobody can tell, as storage fails, there may be."""
    try:
        return branch in catalog.known_head().generations
    except HeadraceError:
        return True


@contextmanager
def watching() -> Iterator[Listener]:
    """A listener that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield watched(LineListener(notice))
        return
    with Bar.shown() as bar:
        yield watched(bar)


def print_ending(
    result: RunResult, reference: str, root: str, output: Format, handle: PipelineHandle | None = None
) -> None:
    """Print how a run of the pipeline that ``reference`` names ended, and what is due then if ``handle`` has it."""
    with despite_closed_output():
        where = Where(reference, root)
        print_lines([to_json(result).decode()] if output is Format.JSON else ending(result, where))
        if handle is not None and result.epochs and result.published is not None:
            say_what_is_due(handle, reference, root, output)


def print_dry_run(looked: "DryRun", output: Format) -> None:
    """Print what a run would do: each stage on its line."""
    if output is Format.JSON:
        print_json(looked.to_json())
        return
    print_lines(looked.lines())
    for warning in looked.warnings:
        notice(f"warning: {warning}")
