"""The plan of a run: what it would continue from, on which executor, with which files. Planning reads and reports; it
claims no branch, starts nothing, and writes nothing but records that their source could not give again
(``sources.landed``), for whichever run reads them.

A run claims its branch after that, and restores it. ``restored_plan`` is what still holds of the plan then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from headrace.model.time import instant
from headrace.pipeline.executors import ExecutorDecision
from headrace.read.roots import check_root
from headrace.runs.backfill.backfill_plan import MainsReading, reread
from headrace.runs.backfill.replay import Replay, next_number, open_replay, replay_head
from headrace.runs.context import RunContext
from headrace.runs.epochs import PlannedEpoch, batch, micro_batches
from headrace.runs.executors.choice import WorkEstimate, input_bytes, work_of_run
from headrace.runs.executors.interface import Engine
from headrace.runs.following.circles import check_circles
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions, RunOptionsError
from headrace.runs.parking.left_out import left_out
from headrace.runs.restore import RestoredRun
from headrace.sources.connector import Offsets, SourceSplit
from headrace.sources.landed.portions import LandedPortions
from headrace.sources.landing import ByInput, counted
from headrace.sources.landing_places import check_places
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.refs import MAIN


@dataclass(frozen=True)
class RunPlan:
    """What a run is to do after ``snapshot``, the head of its branch (None: the branch is empty).

    ``has_epochs``: there is something to compute. ``files``: what is new after the snapshot; None for a replay, which
    has its own, and if the snapshot is broken. ``history``: what was read before and is to be read again as it was.
    ``portions``: what is landed while it goes on. ``sweeps``: it looked everywhere for files.
    """

    snapshot: str | None
    executor: ExecutorDecision
    has_epochs: bool
    files: ByInput | None = None
    replay: Replay | None = None
    history: MainsReading | None = None
    portions: LandedPortions | None = None
    sweeps: bool = False

    @property
    def reads(self) -> ByInput:
        """All that it may read."""
        if self.replay is None:
            return self.files or {}
        reads: dict[str, list[SourceSplit]] = {}
        for epoch in self.replay.epochs:
            for name, files in epoch.files.items():
                reads.setdefault(name, []).extend(files)
        return reads


def plan_run(run: RunContext) -> RunPlan:
    """What ``run`` finds to do. Raises what stands against it, as far as that can be seen now."""
    head = run.catalog.head()
    check_places(run.pipeline, run.store, is_first=head.entry < 0)
    snapshot = head.refs.get(run.options.branch)
    return _replay_plan(run, snapshot) if run.options.mode is Mode.REPLAY else _input_plan(run, snapshot)


def _replay_plan(run: RunContext, snapshot: str | None) -> RunPlan:
    if run.options.clock is not None:
        run.land(PipelineProgress())
    replay = open_replay(run.catalog, run.options, run.landing)
    if run.options.clock is not None and replay.epochs:
        run.warn_of_expired(replay.epochs[0].files, PipelineProgress())
    head = replay_head(run.catalog, run.pipeline, run.options.branch, snapshot, replay)
    executor = run.decide(lambda: WorkEstimate.after(head, replay.bytes_left(head)))
    has_epochs = replay.epoch(next_number(head), run.progress(head)) is not None
    return RunPlan(snapshot, executor, has_epochs, replay=replay)


def _input_plan(run: RunContext, snapshot: str | None) -> RunPlan:
    history = _history(run, run.options.as_read_by)
    try:
        manifest = None if snapshot is None else run.checked(run.catalog.manifest(snapshot))
        progress = run.progress(manifest)
    except (BrokenObjectError, MissingSnapshotError):  # restoring names what is broken, and falls back
        executor = run.decide(lambda: work_of_run(run.catalog, run.landing, snapshot, full_sweep=True))
        return RunPlan(snapshot, executor, has_epochs=True, history=history)
    check_circles(run, manifest)
    portions = None
    if run.options.mode is Mode.BATCH:
        run.land(progress)
    else:
        portions = run.land_first(progress)
    sweeps = run.options.full_sweep or run.sweep_is_due(manifest)
    files = run.new_files(manifest, full_sweep=sweeps)
    left = 0 if portions is None else sum(portions.left.values())
    executor = run.decide(lambda: WorkEstimate.after(manifest, input_bytes(files) + left))
    _warn_of_empty_inputs(run, files, progress)
    has_news = bool(files or run.new_signals(manifest))
    new = set() if manifest is None else {*run.pipeline.outputs} - {*outputs_of(manifest)}
    is_behind = run.options.mode is Mode.MICRO_BATCH and not {*progress.parked, *new} <= left_out(run)
    has_epochs = has_news or is_behind or progress.is_due(instant(run.now()), _hold(run.options, history))
    if has_epochs and run.options.mode is Mode.BATCH:
        _check_batch(run.options, manifest)
    return RunPlan(snapshot, executor, has_epochs, files, history=history, portions=portions, sweeps=sweeps)


def restored_plan(run: RunContext, plan: RunPlan, claimed: str | None, restored: RestoredRun) -> RunPlan:
    """``plan`` once the branch, claimed at snapshot ``claimed``, is restored: its files are listed again unless it
    continues from where it was planned. After a fall-back, input is read again as ``claimed`` had read it.
    """
    if plan.replay is not None:
        return plan
    has_fallen = restored.warning is not None
    # what such sweeps had found is below the mark of older snapshots
    full_sweep = run.options.full_sweep or plan.sweeps or has_fallen
    history = plan.history
    if has_fallen and history is None and run.options.mode is Mode.MICRO_BATCH:
        history = _history(run, claimed)
    snapshot = None if restored.head is None else restored.head.snapshot_id
    files = plan.files
    if files is None or (snapshot, full_sweep) != (plan.snapshot, plan.sweeps):
        files = run.new_files(restored.head, full_sweep=full_sweep)
    return replace(plan, snapshot=snapshot, files=files, history=history)


def planned_epochs(
    run: RunContext, plan: RunPlan, engine: Engine, head: Manifest | None, *, is_due: bool = False
) -> Iterable[PlannedEpoch]:
    """The epochs of ``plan`` after ``head``, which ``engine`` has restored. Tells how many files they will read.
    ``is_due``: there is one even if nothing is new.
    """
    options = run.options
    if plan.replay is not None:
        run.listener.planned(plan.replay.files_left(head))
        return plan.replay.planned(engine, options.max_epochs)
    files, history = plan.files or {}, plan.history
    if options.mode is Mode.BATCH:
        _check_batch(options, head)  # somebody may have been here since it was planned
        return batch(engine, files, run.now, options.signals)
    run.listener.planned(counted(files))
    behind = partial(
        micro_batches,
        engine,
        options=options,
        now=run.now,
        signals=run.new_signals(head if history is None else history.head),
        hold=_hold(options, history),
        portions=plan.portions,
        planned=run.listener.planned,
    )
    if history is None:
        return behind(files, is_due=is_due)
    again = reread(
        run.pipeline,
        history.since(head),
        files,
        history.begun(head),
        max_files=options.files_per_epoch,
        max_bytes=options.bytes_per_epoch,
        counts_again=run.landing.counting_again,
        repeats=run.landing.repeats,
    )
    first = again.planned(run.landing.taken, options.max_epochs)
    count = len(again.epochs)
    return chain(first, behind(again.rest, before=count, is_due=is_due and not count))


def _history(run: RunContext, snapshot: str | None) -> MainsReading | None:
    """What ``snapshot`` and those before it have read; None if there is nothing, or nothing of it can be read."""
    return None if snapshot is None else MainsReading.of(run.catalog, run.pipeline, snapshot)


def _hold(options: RunOptions, history: MainsReading | None) -> WatermarkHold | None:
    """What input is held to that was never read: where main is, if main goes on beside this branch."""
    is_beside = options.as_read_by is not None and options.branch != MAIN
    return history.hold if is_beside and history is not None else None


def _warn_of_empty_inputs(run: RunContext, files: ByInput, progress: PipelineProgress) -> None:
    """Name inputs that never had a file. Raises MissingRootError if there is neither input nor a root."""
    if not files and not run.options.create:
        check_root(run.store)
    for name, enumerator in run.landing.enumerators.items():
        if name not in files and not progress.offsets.get(name, Offsets()).files:
            run.warn(f"input {name}: {enumerator.explain()}")


def _check_batch(options: RunOptions, head: Manifest | None) -> None:
    """Raise RunOptionsError unless the branch is empty."""
    if head is not None:
        raise RunOptionsError(
            f"mode batch takes all input at once, and branch {options.branch} is at snapshot {head.snapshot_id} "
            "already: name a new branch, or an empty root"
        )
