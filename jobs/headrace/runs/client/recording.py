"""What a run can be for, and runs that somebody starts by hand: each leaves its result object.

What a run can be for, by the names that ``headrace.application`` takes.

Runs that somebody starts by hand: each leaves its result object, of a failure too.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

from headrace.errors import HeadraceError
from headrace.model.arguments import Arguments
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import MissingRootError
from headrace.runs.options import RunOptions
from headrace.runs.plan import DryRun, PreparedRun, look_ahead
from headrace.runs.process import perform, prepared_audit, prepared_process
from headrace.runs.reporting.listener import LineListener, Listener, Watched, watched
from headrace.runs.reporting.results import Action, RunError, RunResult, now
from headrace.runs.reporting.summary import keep_result
from headrace.runs.stages import CutOver
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store


class Prepare(Protocol):
    """A run of an action, before it is planned. Raises typed errors."""

    def __call__(self, pipeline: Pipeline, root: str, options: RunOptions, listener: Watched) -> PreparedRun: ...


def _prepared_recovery(pipeline: Pipeline, root: str, options: RunOptions, listener: Watched) -> PreparedRun:
    from headrace.runs.recover import prepared_recovery  # here and below: what a plain run does without

    return prepared_recovery(pipeline, root, options, listener)


def _prepared_backfill(pipeline: Pipeline, root: str, options: RunOptions, listener: Watched) -> PreparedRun:
    from headrace.runs.backfill.backfill import prepared_backfill

    return prepared_backfill(pipeline, root, options, listener)


PREPARED: Final[Mapping[Action, Prepare]] = {
    "process": prepared_process,
    "audit": prepared_audit,
    "recover": _prepared_recovery,
    "backfill": _prepared_backfill,
}
"""How each action is prepared, to be performed or looked at."""


def new_run_id(started_by: str) -> str:
    """A name for a run that was started by hand: on the command line ("cli"), or in Python."""
    return f"{started_by}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def told_to(listener: Listener | Callable[[str], None] | None) -> Watched:
    """A listener as a run calls it; of a function, one that gives it each thing as a line."""
    if listener is None or isinstance(listener, Listener):
        return watched(listener)
    if not callable(listener):
        raise Arguments("run").wrong("listener", listener, "give a function that takes a line, such as print")
    return watched(LineListener(listener))


def run_recorded(action: Action, pipeline: Pipeline, root: str, options: RunOptions, listener: Watched) -> RunResult:
    """Run ``action`` and keep the result object, of a failure too. Raises what the action raises."""
    store, started_at = open_store(root), now()
    try:
        prepared = PREPARED[action](pipeline, root, options, watched(listener))
        result = perform(prepared)
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
            keep_result(Catalog(store, pipeline.name), failed)
        except HeadraceError as unwritten:
            error.add_note(f"and the result object could not be written: {unwritten}")
        raise
    keep_result(prepared.context.catalog, result)
    return result


def look_ahead_of(action: Action, pipeline: Pipeline, root: str, options: RunOptions) -> DryRun:
    """What ``action`` would do, and what follows a backfill. Raises what stands against it, as far as that can be
    seen.
    """
    if action != "backfill":
        return look_ahead(PREPARED[action](pipeline, root, options, watched(None)))
    from headrace.runs.backfill.backfill import branch_of

    options = replace(options, branch=branch_of(options))
    looked, then = look_ahead(PREPARED[action](pipeline, root, options, watched(None))), _cut_over_of(options)
    return looked if then is None else replace(looked, stages=(*looked.stages, then))


def backfill_recorded(
    pipeline: Pipeline, root: str, options: RunOptions, listener: Watched, *, started_by: str
) -> RunResult:
    """Backfill a branch and, if the options say that it ``promotes``, make that main and published; of one ``output``
    let main adopt it, audit that, and publish it; or, if it ``patches``, make its rows of expired windows a patch. If
    main went on meanwhile, the branch catches up once. Where there is no input so far, nothing moves.

    Raises what the backfill raises, and the promotion.
    """
    from headrace.runs.backfill.backfill import branch_of
    from headrace.runs.publishing.promotion import BranchBehindError

    options = replace(options, branch=branch_of(options))
    result = run_recorded("backfill", pipeline, root, options, listener)
    then = _cut_over_of(options)
    if then is None or result.snapshot is None:  # nothing has landed
        return result
    if then.output is not None and not then.patches:
        return _adopted(pipeline, root, options, listener, result.epoch)
    try:
        return _cut_over(then, pipeline, root, options)
    except BranchBehindError as error:
        listener.noted(f"{error}: catching up")
        run_recorded("backfill", pipeline, root, replace(options, run_id=new_run_id(started_by)), listener)
        return _cut_over(then, pipeline, root, options)


def _cut_over_of(options: RunOptions) -> CutOver | None:
    """What follows a backfill."""
    if not (options.promotes or options.patches):
        return None
    return CutOver(options.branch, options.output, options.patches)


def _cut_over(stage: CutOver, pipeline: Pipeline, root: str, options: RunOptions) -> RunResult:
    if not stage.patches:
        from headrace.runs.publishing.promotion import cut_over

        return cut_over(pipeline.name, root, stage.branch, run_id=options.run_id)
    from headrace.runs.publishing.patch import patch  # with what reads rows

    catalog = Catalog(open_store(root), pipeline.name)
    return patch(catalog, stage.branch, run_id=options.run_id, output=stage.output or "", message=options.message)


def _adopted(pipeline: Pipeline, root: str, options: RunOptions, listener: Watched, epoch: int | None) -> RunResult:
    """What became of main once it has adopted the output from its branch, which has come to ``epoch``."""
    from headrace.runs.publishing.adoption import adopt, published

    assert options.output is not None
    catalog = Catalog(open_store(root), pipeline.name)
    main = catalog.head().refs.get(MAIN)
    if main is not None and catalog.link(main).epoch != epoch:
        listener.noted(f"main has gone on since: branch {options.branch} catches up")
        run_recorded("backfill", pipeline, root, replace(options, run_id=f"{options.run_id}-2"), listener)
    result = adopt(catalog, options.branch, options.output, run_id=options.run_id, message=options.message)
    audited = replace(options, run_id=f"{options.run_id}-audit", branch=MAIN, output=None, promotes=False)
    run_recorded("audit", pipeline, root, audited, listener)
    return published(catalog, result, options.output, options.run_id)
