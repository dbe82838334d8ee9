"""A run in this terminal: an action of a pipeline, what it tells while it lasts, and its result object."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from headrace.cli.display.output import Format, notice, print_lines, whoever_reads
from headrace.cli.display.progress import Bar
from headrace.errors import HeadraceError
from headrace.pipeline.loading.registry import resolve
from headrace.pipeline.pipeline import Pipeline
from headrace.read.roots import MissingRootError
from headrace.runs.actions import ACTIONS
from headrace.runs.backfill.backfill import branch_of
from headrace.runs.options import RunOptions
from headrace.runs.publishing.promotion import BranchBehindError, cut_over, promote
from headrace.runs.reporting.listener import LineListener, Listener, Where, ending, watched
from headrace.runs.reporting.results import Action, RunError, RunResult, now, to_json, write
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


def new_run_id() -> str:
    """A name for a run that was started by hand."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def run_action(action: Action, reference: str, root: str, options: RunOptions, output: Format) -> None:
    """Run ``action`` of the pipeline that ``reference`` names, and print how it ended. Raises what it raises."""
    with watching() as watcher:
        result = run_recorded(action, resolve(reference), root, options, watcher)
    _print_ending(result, Where(reference, root), output)


def run_backfill(reference: str, root: str, options: RunOptions, output: Format, *, cuts_over: bool) -> None:
    """Backfill a branch and, if it ``cuts_over``, make that main and published.

    If main went on meanwhile, the branch catches up once.
    """
    pipeline = resolve(reference)
    options = replace(options, branch=branch_of(options), promotes=cuts_over)
    try:
        with watching() as watcher:
            result = run_recorded("backfill", pipeline, root, options, watcher)
            if cuts_over:
                try:
                    result = cut_over(pipeline.name, root, options.branch, run_id=options.run_id)
                except BranchBehindError as error:
                    watcher.noted(f"{error}: catching up")
                    run_recorded("backfill", pipeline, root, replace(options, run_id=new_run_id()), watcher)
                    result = cut_over(pipeline.name, root, options.branch, run_id=options.run_id)
    except HeadraceError as error:
        promote = ("--promote",) if cuts_over else ()
        if _has_begun(pipeline.name, root, options.branch):
            error.add_note(
                f"to go on where it stopped: {Where(reference, root).command('backfill', *_on(options), *promote)}"
            )
        raise
    _print_ending(result, Where(reference, root), output)
    if not cuts_over:
        where = Where(reference, root)
        with whoever_reads():
            notice(f"to compare it with what readers see: {where.command('diff', 'published', options.branch)}")
            notice(f"to make it main and published: {where.command('backfill', *_on(options), '--promote')}")


def _has_begun(pipeline: str, root: str, branch: str) -> bool:
    """Whether there is such a branch; where nobody can tell, as storage fails, there may be."""
    try:
        return branch in Catalog(open_store(root), pipeline).known_head().generations
    except HeadraceError:
        return True


def run_promotion(catalog: Catalog, reference: str, root: str, branch: str, output: Format) -> None:
    """Make ``branch`` of the pipeline main and published, and print how it ended. Raises what ``promote`` does."""
    _print_ending(promote(catalog, branch, run_id=new_run_id()), Where(reference, root), output)


def run_patch(catalog: Catalog, reference: str, root: str, branch: str, output: Format) -> None:
    """Patch main with rows of ``branch``, and print how it ended. Raises what ``patch`` does."""
    from headrace.runs.patching.patch import patch  # with what reads rows

    result = patch(catalog, branch, run_id=new_run_id())
    _print_ending(result, Where(reference, root), output)


def run_recorded(action: Action, pipeline: Pipeline, root: str, options: RunOptions, listener: Listener) -> RunResult:
    """Run ``action`` and keep the result object, of a failure too. Raises what the action raises."""
    store, started_at = open_store(root), now()
    try:
        result = ACTIONS[action](pipeline, root, options, listener=listener)
    except MissingRootError:
        raise  # the result object would make it
    except HeadraceError as error:
        failed = RunResult(
            options.run_id,
            pipeline.name,
            action,
            "failed",
            started_at,
            now(),
            error=RunError.of(error),
            branch=options.branch,
        )
        try:
            write(store, failed)
        except HeadraceError as unwritten:
            error.add_note(f"and the result object could not be written: {unwritten}")
        raise
    write(store, result)
    return result


@contextmanager
def watching() -> Iterator[Listener]:
    """A listener that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield watched(LineListener(notice))
        return
    with Bar.shown() as bar:
        yield watched(bar)


def _on(options: RunOptions) -> tuple[str, ...]:
    executor = () if options.executor is None else ("--executor", str(options.executor))
    return ("--branch", options.branch, *executor)


def _print_ending(result: RunResult, where: Where, output: Format) -> None:
    with whoever_reads():
        print_lines([to_json(result).decode()] if output is Format.JSON else ending(result, where))
