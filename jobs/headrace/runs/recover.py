"""Recover: move main back to a snapshot by a catalog entry, replay what came after it, audit and (if asked)
publish.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import under_new_names
from headrace.runs.epochs import RunContext
from headrace.runs.executors.choice import check_installed
from headrace.runs.options import RunOptions
from headrace.runs.plan import MoveBack, PreparedRun, RunStage, TakeReadersBack, plan_from
from headrace.runs.recovery_target import check_can_follow, given_up_by, moved_back_before, recovery_of
from headrace.runs.restore import InputGoneError, check_continues, gone_since, name_some
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError


class RecoverOptionsError(FixConfigError, code="config.recover_options"):
    """A recovery that does not say where to go back to."""


def prepared_recovery(run: RunContext) -> PreparedRun:
    """A recovery, before it is planned. It moves ``options.branch`` back to ``options.snapshot``, fences its writer,
    and processes from there. What the branch had read is read as it was then (``backfill_plan``).

    If ``published`` is newer than the snapshot it moves back too, in the same entry: to what readers could see, which
    may be older. Output patches that came after it
    are given up, with a warning each: replaying does not make them again. Another attempt of the same request finds
    that entry in the log and only goes on replaying. Nothing moves for a pipeline that could not continue from there.

    ``options.with_readers``: pipelines that have read what is given up go back as well (``recovery_target``),
    before anything is replayed. Raises ReadersCannotFollowError, before anything moves: another attempt takes those
    back that can go, and warns of others.
    """
    options = run.options
    if options.snapshot is None:
        raise RecoverOptionsError("a recovery needs the snapshot to go back to; `headrace log` lists their ids")
    check_installed(run.pipeline, options.executor or run.pipeline.executor)  # before anything moves
    begin = _plan_beginning(run, options.snapshot)
    given_up = begin.given_up
    # What full sweeps had found since is below the mark of the snapshot.
    run = replace(run, options=replace(options, full_sweep=True, as_read_by=given_up))
    return PreparedRun(run, begin.plan_stages, "recover")


@dataclass(frozen=True)
class _Beginning:
    """Where a recovery begins: at ``snapshot``, to which it is still to ``move``, unless an attempt before it has moved
    there. ``given_up``: what the branch was at.
    """

    snapshot: str
    given_up: str | None
    move: MoveBack | None = None

    def plan_stages(self, run: RunContext) -> tuple[RunStage, ...]:
        """The stages of the recovery. Raises what stands against it."""
        stages: list[RunStage] = [] if self.move is None else [self.move]
        if run.options.with_readers:
            stages.append(TakeReadersBack(run.options.left_readers))
        where = run.catalog.head().refs.get(run.options.branch) if self.move is None else self.snapshot
        return (*stages, *plan_from(run, where))


def _plan_beginning(run: RunContext, snapshot: str) -> _Beginning:
    """What is to be moved where. Raises what stands against that."""
    catalog, pipeline, options = run.catalog, run.pipeline, run.options
    request = options.request or options.run_id
    head = catalog.head().refs.get(options.branch)
    if head == snapshot:
        given_up = given_up_by(catalog, catalog.head().entry, options.branch, snapshot, request)
        if given_up is None:
            _check_readers(catalog, snapshot, options)
        return _Beginning(snapshot, given_up)
    target = under_new_names(pipeline, catalog.manifest(snapshot))
    check_continues(pipeline, target, allow_new_aggregates=options.allow_new_aggregates)
    given_up = moved_back_before(catalog, options.branch, snapshot, request)
    if given_up is not None:
        return _Beginning(snapshot, given_up)
    _check_readers(catalog, snapshot, options)
    _check_input(catalog, pipeline, head, snapshot)
    catalog.would_roll_back(options.branch, snapshot, give_up_delivered=options.give_up_delivered)
    message = f"{recovery_of(request)}: {options.message}" if options.message else recovery_of(request)
    return _Beginning(snapshot, head, MoveBack(options.branch, snapshot, head, message))


def _check_readers(catalog: Catalog, snapshot: str, options: RunOptions) -> None:
    """Raise ReadersCannotFollowError if readers are to go back, too, and one cannot."""
    if options.with_readers:
        check_can_follow(catalog, snapshot, options)


def _check_input(catalog: Catalog, pipeline: Pipeline, head: str | None, snapshot: str) -> None:
    """Raise InputGoneError if input that was read up to ``head``, after ``snapshot``, is gone. What cannot be read any
    more says nothing of its input, and is what people recover from.
    """
    lost_paths: list[str] = []
    with suppress(BrokenObjectError, MissingSnapshotError):
        if head is not None and catalog.is_ancestor(snapshot, head):
            lost_paths = gone_since(catalog, pipeline, catalog.manifest(head), catalog.manifest(snapshot))
    if lost_paths:
        raise InputGoneError(
            f"{catalog.pipeline}: a recovery to snapshot {snapshot} reads again what came after it, and "
            f"{len(lost_paths)} of these files are gone: {name_some(lost_paths)}. Put them back; "
            f"choose a newer snapshot; or give their records up with `headrace rollback {catalog.pipeline} --to "
            f"{snapshot}`, and run. Nothing has moved"
        )
