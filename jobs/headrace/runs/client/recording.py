"""What a run can be for, and runs that somebody starts by hand: each leaves its result object, of a failure too.

What a run can be for goes by the names that ``headrace.application`` takes.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.model.arguments import Arguments
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import MissingRootError
from headrace.runs.epochs import RunContext
from headrace.runs.options import RunOptions
from headrace.runs.plan import CutOver, DryRun, PreparedRun, look_ahead
from headrace.runs.process import open_run, perform_run, prepared_audit, prepared_process
from headrace.runs.reporting.listener import GuardedListener, LineListener, Listener, wrap_listener
from headrace.runs.reporting.results import RunAction, RunError, RunResult, now
from headrace.runs.reporting.summary import keep_result
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace.runs.publishing.adoption import AdoptOutput
    from headrace.runs.publishing.patch import PatchOutput, PatchRehearsal
    from headrace.runs.publishing.promotion import PromoteBranch, Rehearsal

_logger = logging.getLogger(__name__)


def _prepared_recovery(run: RunContext) -> PreparedRun:
    from headrace.runs.recover import prepared_recovery  # here and below: what a plain run does without

    return prepared_recovery(run)


def _prepared_backfill(run: RunContext) -> PreparedRun:
    from headrace.runs.backfill.backfill import prepared_backfill

    return prepared_backfill(run)


PREPARERS: Final[Mapping[RunAction, Callable[[RunContext], PreparedRun]]] = {
    "process": prepared_process,
    "audit": prepared_audit,
    "recover": _prepared_recovery,
    "backfill": _prepared_backfill,
}
"""How each action is prepared, to be performed or looked at. Each raises what stands against it."""


def new_run_id(started_by: str) -> str:
    """A name for a run that was started by hand: on the command line ("cli"), or in Python."""
    return f"{started_by}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def told_to(listener: Listener | Callable[[str], None] | None) -> GuardedListener:
    """A listener as a run calls it; a function is wrapped in one that gives it each thing as a line."""
    if listener is None or isinstance(listener, Listener):
        return wrap_listener(listener)
    if not callable(listener):
        raise Arguments("run").refusal("listener", listener, "give a function that takes a line, such as print")
    return wrap_listener(LineListener(listener))


def run_recorded(
    action: RunAction, pipeline: Pipeline, root: str, options: RunOptions, listener: GuardedListener
) -> RunResult:
    """Run ``action`` and keep the result object, of a failure too. Raises what the action raises."""
    store, started_at = open_store(root), now()
    try:
        prepared_run = PREPARERS[action](open_run(pipeline, root, options, wrap_listener(listener)))
        result = perform_run(prepared_run)
    except MissingRootError:
        raise  # the result object would make it
    except HeadraceError as error:
        failure = RunResult(
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
            keep_result(Catalog(store, pipeline.name), failure)
        except HeadraceError as unwritten:
            error.add_note(f"and the result object could not be written: {unwritten}")
        raise
    keep_result(prepared_run.context.catalog, result)
    return result


def look_ahead_of(action: RunAction, pipeline: Pipeline, root: str, options: RunOptions) -> DryRun:
    """What ``action`` would do, and what follows a backfill. Raises what stands against it, if that can be seen."""
    cut_over = None
    if action == "backfill":
        from headrace.runs.backfill.backfill import branch_of

        options = replace(options, branch=branch_of(options))
        cut_over = _cut_over_of(options)
    dry_run = look_ahead(PREPARERS[action](open_run(pipeline, root, options, wrap_listener(None))))
    return dry_run if cut_over is None else replace(dry_run, stages=(*dry_run.stages, cut_over))


def backfill_recorded(
    pipeline: Pipeline, root: str, options: RunOptions, listener: GuardedListener, *, started_by: str
) -> RunResult:
    """Backfill a branch and, if the options say that it ``promotes``, make that main and published. With one
    ``output``, let main adopt it, audit that, and publish it; or, if it ``patches``, make its rows of expired windows a
    patch. If main went on meanwhile, the branch catches up once. Where there is no input so far, nothing moves.

    Raises what the backfill raises, and the promotion.
    """
    from headrace.runs.backfill.backfill import branch_of
    from headrace.runs.publishing.promotion import BranchBehindError

    options = replace(options, branch=branch_of(options))
    result = run_recorded("backfill", pipeline, root, options, listener)
    cut_over = _cut_over_of(options)
    if cut_over is None or result.snapshot is None:  # nothing has landed
        return result
    if cut_over.output is not None and not cut_over.patches:
        return _adopt_output(pipeline, root, options, listener, result.epoch)
    catalog = Catalog(open_store(root), pipeline.name)
    try:
        return make_change(catalog, cut_over, run_id=options.run_id, message=options.message)
    except BranchBehindError as error:
        listener.noted(f"{error}: catching up")
        run_recorded("backfill", pipeline, root, replace(options, run_id=new_run_id(started_by)), listener)
        return make_change(catalog, cut_over, run_id=options.run_id, message=options.message)


def _cut_over_of(options: RunOptions) -> CutOver | None:
    """What follows a backfill."""
    if not (options.promotes or options.patches):
        return None
    return CutOver(options.branch, options.output, options.patches)


def _adopt_output(
    pipeline: Pipeline, root: str, options: RunOptions, listener: GuardedListener, epoch: int | None
) -> RunResult:
    """What became of main once it has adopted the output from its branch, which has come to ``epoch``."""
    from headrace.runs.publishing.adoption import publish_adopted

    assert options.output is not None
    catalog = Catalog(open_store(root), pipeline.name)
    main = catalog.head().refs.get(MAIN)
    if main is not None and catalog.link(main).epoch != epoch:
        listener.noted(f"main has gone on since: branch {options.branch} catches up")
        run_recorded("backfill", pipeline, root, replace(options, run_id=f"{options.run_id}-2"), listener)
    adopts = CutOver(options.branch, options.output)
    result = make_change(catalog, adopts, run_id=options.run_id, message=options.message)
    audit_options = replace(options, run_id=f"{options.run_id}-audit", branch=MAIN, output=None, promotes=False)
    run_recorded("audit", pipeline, root, audit_options, listener)
    return publish_adopted(catalog, result, options.output, options.run_id)


def make_change(catalog: Catalog, cut_over: CutOver, *, run_id: str, message: str = "") -> RunResult:
    """Let main have what ``cut_over`` asks for, unless something stands against it. ``message`` says in the log who
    decided it, and why. If an attempt made it and died before it could tell, the result is of that attempt.

    ``epochs`` and ``counts`` of the result are those of which readers had not seen something: none where a patch
    changes nothing. Raises what its checks say; then PublishConflictError or FencedError if somebody else moves main
    meanwhile.
    """
    from headrace.runs.publishing.audits import making_change, raise_first_refusal
    from headrace.runs.publishing.publish import output_results, published_result

    started_at, kind = now(), _kind_of(cut_over)
    if (earlier_change := kind.made_before(catalog, cut_over)) is not None:
        result_of_change = earlier_change.change
        with making_change(catalog):
            earlier_change.finish(run_id)
    else:
        change = kind.from_branch(catalog, cut_over)
        raise_first_refusal(change.checks())
        _logger.info("%s", change)
        result_of_change = change.make(run_id, message)
    result = published_result(
        result_of_change.head,
        result_of_change.visible,
        result_of_change.audit,
        action=result_of_change.action,
        run_id=run_id,
        started_at=started_at,
        outputs=output_results(catalog, result_of_change.audits) if outputs_of(result_of_change.head) else None,
    )
    return replace(result, published=result_of_change.published, warnings=result_of_change.warnings)


def rehearse_change(catalog: Catalog, cut_over: CutOver, limit: int = 20) -> "Rehearsal | PatchRehearsal":
    """What ``make_change`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are
    given. Raises UnknownBranchError, UnknownOutputError, and what a reader of ``current`` does.
    """
    return _kind_of(cut_over).from_branch(catalog, cut_over).rehearse(limit)


def _kind_of(change: CutOver) -> "type[PromoteBranch | AdoptOutput | PatchOutput]":
    """Which change is asked for. Each is imported with what it reads alone."""
    if change.patches:
        from headrace.runs.publishing.patch import PatchOutput

        return PatchOutput
    if change.output is not None:
        from headrace.runs.publishing.adoption import AdoptOutput

        return AdoptOutput
    from headrace.runs.publishing.promotion import PromoteBranch

    return PromoteBranch
