"""The plan of a run, its stages one after the other as values; and a dry run, which says what they would do.

Each stage says in a sentence what it will do: dry runs and the log print the same one.

Planning reads and reports. It claims no branch, starts nothing, lands nothing, and writes nothing. Only effects can
tell which records have landed (``stages_after_landing``), and from which snapshot the claimed branch goes on
(``stages_after_restoring``). Either ends a plan, and what follows is planned from its result. ``process`` performs the
stages.

``DryRun`` tells what a run would do, as far as that can be told without doing it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from headrace.ext.executors import Engine
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.time import to_instant
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.read.pipeline_reader import check_root
from headrace.read.snapshots.snapshot_refs import ways_out
from headrace.runs.epochs import PlannedEpoch, RunContext, check_circles, micro_batches, plan_batch
from headrace.runs.executors.choice import WorkEstimate, input_bytes, work_of_run
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.parking import waiting_outputs
from headrace.runs.reporting.listener import number_of
from headrace.runs.reporting.results import RunAction
from headrace.runs.restore import RestoredRun, input_given_up
from headrace.sources.landing import ByInput, check_places, count_files
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import do_both

if TYPE_CHECKING:  # which few runs need
    from headrace.runs.backfill.branches import ForkPoint
    from headrace.runs.backfill.replay import MainsReading, Replay
    from headrace.sources.landed.files import LandedPortions


MOST_NAMED = 3
"""So many splits of an input a sentence names; with more, it names the first and the last."""


@dataclass(frozen=True)
class FoundBranch:
    """Where a run finds its branch: at ``snapshot`` (None: it is empty), with that one's ``manifest`` and ``progress``;
    a branch that ``is_broken`` has neither, and restoring says what is wrong. ``history``: what was read before and is
    to be read again as it was.
    """

    snapshot: str | None
    manifest: Manifest | None = None
    progress: PipelineProgress = field(default_factory=PipelineProgress)
    history: "MainsReading | None" = None
    is_broken: bool = False


@dataclass(frozen=True)
class LandRecords:
    """Land what sources of ``inputs`` have behind ``offsets`` and cannot give again: ``all_at_once``, or enough for an
    epoch, and the rest beside epochs. It ends a plan. ``waiting``: what that is, where somebody has looked.
    """

    word: ClassVar[str] = "land"
    inputs: tuple[str, ...]
    offsets: Mapping[str, SourcePosition]
    all_at_once: bool
    begin: FoundBranch = field(repr=False)
    waiting: ByInput | None = None

    def __str__(self) -> str:
        if self.waiting is None:
            return f"land what is new of {', '.join(self.inputs)}; what follows is planned from that"
        if not self.waiting:
            return f"land nothing: all that {', '.join(self.inputs)} has was landed"
        what = "; ".join(f"{_split_names(splits)} of {name}" for name, splits in self.waiting.items())
        return f"land {what}{'' if self.all_at_once else ', in portions as large as epochs'}; what follows reads it"


@dataclass(frozen=True)
class TakeBranch:
    """Claim ``branch``, which is at ``snapshot``. ``replay``: what fills it must be what has filled it so far."""

    word: ClassVar[str] = "claim"
    branch: str
    snapshot: str | None
    replay: "Replay | None" = field(default=None, repr=False)

    def __str__(self) -> str:
        place = "which is empty" if self.snapshot is None else f"at snapshot {self.snapshot}"
        return f"claim branch {self.branch}, {place}: nobody else writes it then"


@dataclass(frozen=True)
class RestoreState:
    """Hold ``snapshot`` against what was written, fall back if it is broken, start ``executor``. It ends a plan."""

    word: ClassVar[str] = "restore"
    snapshot: str | None
    executor: ExecutorDecision

    def __str__(self) -> str:
        what = "begin with nothing" if self.snapshot is None else f"restore snapshot {self.snapshot}"
        return f"{what}, on executor {self.executor.name}: {self.executor.reason}"


@dataclass(frozen=True)
class CatchUpOutputs:
    """Compute for ``outputs``, which are parked or new, what they have missed."""

    word: ClassVar[str] = "catch_up"
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"compute again for {', '.join(self.outputs)} what was missed"


@dataclass(frozen=True)
class ComputeEpochs:
    """Compute and commit epochs after ``snapshot``: of ``files`` that are new; None for a ``replay``, which has its
    own, and where the snapshot is broken. ``history``: what is read again as it was. ``left``: about how many bytes of
    inputs land meanwhile. ``sweeps``: it looked everywhere for files.
    """

    word: ClassVar[str] = "compute"
    snapshot: str | None
    files: ByInput | None = None
    replay: "Replay | None" = None
    history: "MainsReading | None" = None
    left: Mapping[str, int] = field(default_factory=dict)
    sweeps: bool = False

    def __str__(self) -> str:
        if self.files is None and self.replay is None:
            return "compute epochs of what is new after the newest whole snapshot"
        history_text = " again what was read before, and" if self.history is not None else ""
        what = "; ".join(f"{_split_names(splits)} of {name}" for name, splits in self.reads.items() if splits)
        if not what and self.left:
            return f"compute epochs:{history_text} what lands of {', '.join(self.left)}"
        more = f"; more of {', '.join(self.left)} lands meanwhile" if self.left else ""
        return f"compute epochs:{history_text} {what or 'what is due'}{more}"

    @property
    def reads(self) -> ByInput:
        """All that they may read."""
        if self.replay is None:
            return self.files or {}
        reads: dict[str, list[SourceSplit]] = {}
        for epoch in self.replay.epochs:
            for name, files in epoch.files.items():
                reads.setdefault(name, []).extend(files)
        return reads


@dataclass(frozen=True)
class AuditBranch:
    """Audit what ``branch`` has and readers have not. ``executor``: None where the amount to audit decides."""

    word: ClassVar[str] = "audit"
    branch: str
    executor: ExecutorDecision | None = None

    def __str__(self) -> str:
        return f"audit what branch {self.branch} has and readers have not seen"


@dataclass(frozen=True)
class PublishAudited:
    """Let readers see what audits of ``branch`` found good."""

    word: ClassVar[str] = "publish"
    branch: str

    def __str__(self) -> str:
        return f"let readers see what the audit of branch {self.branch} finds good"


@dataclass(frozen=True)
class ForkBranch:
    """Make ``branch`` at ``point``."""

    word: ClassVar[str] = "fork"
    branch: str
    point: "ForkPoint"

    def __str__(self) -> str:
        return f"begin branch {self.branch} with {self.point.begin}: {self.point.reason}"


@dataclass(frozen=True)
class ContinueBranch:
    """Go on with ``branch``, which has begun with a snapshot (``begun``), or with nothing."""

    word: ClassVar[str] = "continue"
    branch: str
    begun: str | None

    def __str__(self) -> str:
        fork_text = "nothing" if self.begun is None else f"snapshot {self.begun}"
        return f"go on with branch {self.branch}, which has begun with {fork_text}"


@dataclass(frozen=True)
class MoveBack:
    """Move ``branch`` back from snapshot ``given_up`` to ``snapshot``; ``message`` is what the log says of it."""

    word: ClassVar[str] = "move_back"
    branch: str
    snapshot: str
    given_up: str | None
    message: str = field(repr=False)

    def __str__(self) -> str:
        return (
            f"move branch {self.branch} back from snapshot {self.given_up} to {self.snapshot}, and readers to what "
            "they could see then; what came after it is read again"
        )


@dataclass(frozen=True)
class TakeReadersBack:
    """Take back the pipelines that have read what is given up, but for those that are ``left``."""

    word: ClassVar[str] = "take_readers_back"
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = f", but for {', '.join(self.left)}" if self.left else ""
        return f"take back the pipelines that have read what is given up{left}, to one consistent cut"


BeginStage = ForkBranch | ContinueBranch | MoveBack | TakeReadersBack
"""What a backfill or a recovery begins with."""


@dataclass(frozen=True)
class CutOver:
    """Let main have what ``branch`` has computed: all; an ``output`` that main adopts; or as a patch of it.
    ``give_up_delivered``: what sinks have got that cannot take back is not against it.
    """

    word: ClassVar[str] = "cut_over"
    branch: str
    output: str | None = None
    patches: bool = False
    give_up_delivered: bool = False

    def __str__(self) -> str:
        if self.patches:
            output_text = f" of output {self.output}" if self.output else ""
            return (
                f"replace rows{output_text} by those of branch {self.branch} where windows have expired on both; "
                "publish that"
            )
        if self.output is not None:
            output_text = f"output {self.output} of branch {self.branch}, with what is computed of it"
            return f"let main adopt {output_text}; audit that, and publish it"
        return f"make branch {self.branch} main, and publish it, if its audit is good"


RunStage = (
    BeginStage | LandRecords | TakeBranch | RestoreState | CatchUpOutputs | ComputeEpochs | AuditBranch | PublishAudited
)


@dataclass(frozen=True)
class DeliverOutput:
    """Make a ``sink`` hold what readers see of ``output`` ("": the one without a name), now ``snapshot``.

    ``take_over``: also what another root or pipeline has delivered there; ``refill``: whatever others have done to it.
    """

    word: ClassVar[str] = "deliver"
    output: str
    sink: Sink = field(repr=False)
    snapshot: str | None
    take_over: bool = False
    refill: bool = False

    def __str__(self) -> str:
        output_text = f" of output {self.output}" if self.output else ""
        seen_text, unseen = (
            f"snapshot {self.snapshot}, which readers see{output_text}",
            f"nothing{output_text}: none is published",
        )
        content_text = unseen if self.snapshot is None else seen_text
        how = ", all of it again" if self.refill else ""
        take_over_text = ", in place of what others have delivered there" if self.take_over else ""
        return f"make sink {self.sink.name} hold {content_text}{how}{take_over_text}"


PlannedStage = RunStage | CutOver | DeliverOutput
"""With what follows a backfill, and what follows a publish."""


def _split_names(splits: Sequence[SourceSplit]) -> str:
    """Some of ``splits`` by name; with more than a few, the first and the last."""
    names = [split.path for split in splits]
    if len(names) > MOST_NAMED:
        return f"{number_of(len(names), 'split')} from {names[0]} to {names[-1]}"
    return ", ".join(names)


class PreparedRun(msgspec.Struct, frozen=True):
    """A run that may be performed or looked at: its ``context``, how it is planned, and what it is called."""

    context: RunContext
    plan: Callable[[RunContext], tuple[RunStage, ...]]
    action: RunAction


def plan_run(run: RunContext) -> tuple[RunStage, ...]:
    """The stages of ``run``, as far as can be told before anything is done: all of them, or up to what it lands.
    Raises what stands against it, as far as that can be seen now.
    """
    return plan_from(run, run.catalog.head().refs.get(run.options.branch))


def plan_from(run: RunContext, snapshot: str | None) -> tuple[RunStage, ...]:
    """The stages of ``run``, whose branch will be at ``snapshot`` by then."""
    _check_lookups(run)
    is_first = run.catalog.head().entry < 0
    begin, _ = do_both(
        run.store, lambda: _find_branch(run, snapshot), lambda: check_places(run.pipeline, run.store, is_first=is_first)
    )
    if not begin.is_broken and (inputs := _inputs_to_land(run)):
        run.check_landed()
        all_at_once = run.options.mode is not Mode.MICRO_BATCH
        return (LandRecords(inputs, begin.progress.offsets, all_at_once, begin),)
    return _remaining_stages(run, begin, {})


def stages_after_landing(run: RunContext, landing_stage: LandRecords, left: Mapping[str, int]) -> tuple[RunStage, ...]:
    """The stages after ``landing_stage``, of whose records about so many bytes are ``left``, by input."""
    return _remaining_stages(run, landing_stage.begin, left)


def looked_ahead(run: RunContext, stages: tuple[RunStage, ...]) -> tuple[RunStage, ...]:
    """``stages``, where one that lands says what, and what follows is planned as if that had landed: sources are asked,
    and nothing lands. What follows a replay's landing stays untold: its epochs are cut from what has landed.
    """
    match stages:
        case (*earlier_stages, LandRecords() as stage):
            waiting = run.landing.to_land(stage.offsets)
            landing = replace(stage, waiting=waiting)
            if waiting and run.options.mode is Mode.REPLAY:
                return (*earlier_stages, landing)
            left = {name: sum(split.size for split in splits) for name, splits in waiting.items()}
            return (*earlier_stages, landing, *stages_after_landing(run, landing, left))
    return stages


def _find_branch(run: RunContext, snapshot: str | None) -> FoundBranch:
    if run.options.mode is Mode.REPLAY:
        return FoundBranch(snapshot)
    history = _read_history(run, run.options.as_read_by)
    try:
        manifest = None if snapshot is None else run.checked_manifest(run.catalog.manifest(snapshot))
        progress = run.progress(manifest)
    except (BrokenObjectError, MissingSnapshotError):  # restoring names what is broken, and falls back
        return FoundBranch(snapshot, history=history, is_broken=True)
    check_circles(run, manifest)
    return FoundBranch(snapshot, manifest, progress, history)


def _inputs_to_land(run: RunContext) -> tuple[str, ...]:
    """The inputs that are landed first; a replay of what was recorded lands none."""
    is_recorded = run.options.mode is Mode.REPLAY and run.options.clock is None
    return () if is_recorded else tuple(run.landing.landers)


_ToCompute = tuple[ExecutorDecision, tuple[CatchUpOutputs, ...], ComputeEpochs | None]


def _remaining_stages(run: RunContext, begin: FoundBranch, left: Mapping[str, int]) -> tuple[RunStage, ...]:
    options = run.options
    executor, waiting, epochs = (_plan_replay if options.mode is Mode.REPLAY else _new_input)(run, begin, left)
    compute: tuple[RunStage, ...] = ()
    if epochs is not None:
        take_branch = TakeBranch(options.branch, begin.snapshot, epochs.replay)
        compute = (take_branch, RestoreState(begin.snapshot, executor), *waiting, epochs)
    publish = (PublishAudited(options.branch),) if options.publish else ()
    return (*compute, AuditBranch(options.branch, executor), *publish)


def _plan_replay(run: RunContext, begin: FoundBranch, left: Mapping[str, int]) -> _ToCompute:
    from headrace.runs.backfill.replay import next_number, open_replay, replay_head

    replay = open_replay(run.catalog, run.options, run.landing)
    if run.options.clock is not None and replay.epochs:
        run.warn_of_expired(replay.epochs[0].files, PipelineProgress())
    head = replay_head(run.catalog, run.pipeline, run.options.branch, begin.snapshot, replay)
    first = replay.epoch(next_number(head), run.progress(head))
    executor = run.choose_executor(
        lambda: WorkEstimate.from_head(head, input_bytes({} if first is None else first.files))
    )
    epochs = None if first is None else ComputeEpochs(begin.snapshot, replay=replay, left=left)
    return executor, (), epochs


def _new_input(run: RunContext, begin: FoundBranch, left: Mapping[str, int]) -> _ToCompute:
    if begin.is_broken:
        executor = run.choose_executor(lambda: work_of_run(run.catalog, run.landing, begin.snapshot, full_sweep=True))
        return executor, (), ComputeEpochs(begin.snapshot, history=begin.history)
    manifest, progress, history = begin.manifest, begin.progress, begin.history
    sweeps = run.options.full_sweep or run.sweep_is_due(manifest)
    files = run.new_files(manifest, full_sweep=sweeps)
    executor = run.choose_executor(lambda: WorkEstimate.from_head(manifest, input_bytes(_first_epoch(run, files))))
    _warn_of_empty_inputs(run, {*files, *left}, progress)
    if history is None:
        _warn_of_input_given_up(run, manifest)
    waiting = _catching_up(run, manifest)
    has_news = bool(files or left or waiting or run.new_signals(manifest))
    if not has_news and not progress.is_due(to_instant(run.now()), _watermark_hold(run.options, history)):
        return executor, (), None
    if run.options.mode is Mode.BATCH:
        _check_batch(run.options, manifest)
    return (
        executor,
        waiting,
        ComputeEpochs(begin.snapshot, files, history=history, left=left, sweeps=sweeps),
    )


def _warn_of_input_given_up(run: RunContext, head: Manifest | None) -> None:
    """Warn where the branch was moved back, and input is gone that is to be read again. Nobody has moved it if the last
    to claim it has committed its ``head``.
    """
    generation = run.catalog.known_head().generations.get(run.options.branch)
    if generation is None or (head is not None and head.generation == generation):
        return
    if (warning := input_given_up(run.catalog, run.pipeline, run.options.branch, head)) is not None:
        run.warn(warning)


def _first_epoch(run: RunContext, files: ByInput) -> ByInput:
    """What of new ``files`` the first epoch reads; one that reads again as it was read before may differ."""
    options = run.options
    is_whole = options.mode is Mode.BATCH or not files
    return files if is_whole else run.landing.first_epoch(files, options.files_per_epoch, options.bytes_per_epoch)


def _catching_up(run: RunContext, head: Manifest | None) -> tuple[CatchUpOutputs, ...]:
    """The stage in which outputs catch up that are parked or new at ``head``, if there are any."""
    if head is None or run.options.mode is not Mode.MICRO_BATCH:
        return ()
    waiting = waiting_outputs(run, head)
    return (CatchUpOutputs(waiting),) if waiting else ()


def stages_after_restoring(
    run: RunContext, next_stages: tuple[RunStage, ...], claimed_id: str | None, restored_run: RestoredRun
) -> tuple[RunStage, ...]:
    """The ``next_stages`` once the branch, claimed at snapshot ``claimed_id``, is restored: files are listed again
    unless it continues from where it was planned. After a fall-back, input is read again as ``claimed_id`` had read it.
    """
    (epochs,) = (stage for stage in next_stages if isinstance(stage, ComputeEpochs))
    later_stages = next_stages[next_stages.index(epochs) + 1 :]
    if epochs.replay is not None:
        return (epochs, *later_stages)
    has_fallen = restored_run.warning is not None
    # what such sweeps had found is below the mark of older snapshots
    full_sweep = run.options.full_sweep or epochs.sweeps or has_fallen
    history = epochs.history
    if has_fallen and history is None and run.options.mode is Mode.MICRO_BATCH:
        history = _read_history(run, claimed_id)
    snapshot = None if restored_run.head is None else restored_run.head.snapshot_id
    files = epochs.files
    if files is None or (snapshot, full_sweep) != (epochs.snapshot, epochs.sweeps):
        files = run.new_files(restored_run.head, full_sweep=full_sweep)
    epochs = replace(epochs, snapshot=snapshot, files=files, history=history)
    return (*_catching_up(run, restored_run.head), epochs, *later_stages)


def planned_epochs(
    run: RunContext,
    plan: ComputeEpochs,
    engine: Engine,
    head: Manifest | None,
    *,
    portions: "LandedPortions | None" = None,
    is_due: bool = False,
) -> Iterable[PlannedEpoch]:
    """The epochs of ``plan`` after ``head``, which ``engine`` has restored. Tells how many files they will read.
    What is left of ``portions`` lands meanwhile. ``is_due``: there is one even if nothing is new.
    """
    options = run.options
    if plan.replay is not None:
        run.listener.planned(plan.replay.files_left(head))
        return plan.replay.plan_epochs(engine, options.max_epochs)
    files, history = plan.files or {}, plan.history
    if options.mode is Mode.BATCH:
        _check_batch(options, head)  # somebody may have been here since it was planned
        return plan_batch(engine, files, run.now, options.signals)
    run.listener.planned(count_files(files))
    plan_new_files = partial(
        micro_batches,
        engine,
        options=options,
        now=run.now,
        signals=run.new_signals(head if history is None else history.head),
        hold=_watermark_hold(options, history),
        portions=portions,
        on_planned=run.listener.planned,
    )
    if history is None:
        run.warn_of_clock(head)
        return plan_new_files(files, is_due=is_due)
    from headrace.runs.backfill.replay import plan_rereading

    rereading = plan_rereading(
        run.pipeline,
        history.epochs_since(head),
        files,
        history.branch_progress(head),
        now=to_instant(run.now()),
        max_files=options.files_per_epoch,
        max_bytes=options.bytes_per_epoch,
        counts_again=run.landing.counting_again,
        repeats=run.landing.is_repeatable,
    )
    first = rereading.plan_epochs(run.landing.take_files, options.max_epochs)
    count = len(rereading.epochs)
    return chain(first, plan_new_files(rereading.rest, epochs_done=count, is_due=is_due and not count))


def _read_history(run: RunContext, snapshot: str | None) -> "MainsReading | None":
    """What ``snapshot`` and those before it have read; None if there is nothing, or nothing of it can be read."""
    if snapshot is None:
        return None
    from headrace.runs.backfill.replay import MainsReading

    return MainsReading.from_snapshot(run.catalog, run.pipeline, snapshot)


def _watermark_hold(options: RunOptions, history: "MainsReading | None") -> WatermarkHold | None:
    """What input is held to that was never read: where main is, if main goes on beside this branch."""
    is_beside = options.as_read_by is not None and options.branch != MAIN
    return history.hold if is_beside and history is not None else None


def _warn_of_empty_inputs(run: RunContext, with_news: Set[str], progress: PipelineProgress) -> None:
    """Name inputs not ``with_news`` that never had a file. Raises MissingRootError if there is no root either."""
    if not with_news and not run.options.create:
        check_root(run.store)
    for name, enumerator in run.landing.enumerators.items():
        if name not in with_news and not progress.offsets.get(name, SourcePosition()).files:
            run.warn(f"input {name}: {enumerator.explain()}")


def _check_lookups(run: RunContext) -> None:
    """Raise RunOptionsError for a lookup where input is read in another cut than it came in."""
    options = run.options
    how = (
        "mode batch reads all input at once"
        if options.mode is Mode.BATCH
        else "a clock of its own (--clock) reads what has landed in a cut of its own"
    )
    join = next((join for join in run.pipeline.joins_of_inputs if join.by_arrival), None)
    if join is not None and (options.mode is Mode.BATCH or options.clock is not None):
        raise RunOptionsError(
            f"{how}, and {run.pipeline.name} looks up {join.name}: each row meets what had come when main read it, so "
            "other rows would come out. Run it in micro-batches, without --mode; a backfill, and a replay without "
            "--clock, repeat the epochs of main. Or join by event time: as_of(...)"
        )


def _check_batch(options: RunOptions, head: Manifest | None) -> None:
    """Raise RunOptionsError unless the branch is empty."""
    if head is not None:
        raise RunOptionsError(
            f"mode batch takes all input at once, and branch {options.branch} is at snapshot {head.snapshot_id} "
            "already: name a new branch, or an empty root"
        )


_MOST_LISTED = 20
"""Splits of an input that are listed; JSON has all."""


@dataclass(frozen=True)
class DryRun:
    """The ``stages`` that a run of ``pipeline`` would perform, and what it would warn of. They are all there are, but
    where only records that have landed can tell more: then the last one says so.
    """

    pipeline: str
    stages: tuple[PlannedStage, ...]
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """For people: a sentence for each stage, below it what it reads where that is more than the sentence names."""
        for stage in self.stages:
            yield str(stage)
            for name, splits in reads_of(stage).items():
                yield from _path_lines(name, [split.path for split in splits])

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "pipeline": self.pipeline,
            "stages": [_as_json(stage) for stage in self.stages],
            "warnings": [*self.warnings],
        }


def look_ahead(prepared_run: PreparedRun) -> DryRun:
    """What a run would do; nothing is done or written. Raises what stands against it, as far as that can be seen."""
    run = prepared_run.context
    with run.landing.keep_connected(), ways_out(run.catalog, run.options.branch):
        stages = looked_ahead(run, prepared_run.plan(run))
    return DryRun(run.pipeline.name, stages, tuple(run.warnings))


def reads_of(stage: PlannedStage) -> ByInput:
    """What ``stage`` lands or reads, by input."""
    match stage:
        case LandRecords():
            return stage.waiting or {}
        case ComputeEpochs():
            return {name: splits for name, splits in stage.reads.items() if splits}
    return {}


def _as_json(stage: PlannedStage) -> dict[str, Any]:
    reads = {name: [split.path for split in splits] for name, splits in reads_of(stage).items()}
    return {"stage": stage.word, "does": str(stage), **({"reads": reads} if reads else {})}


def _path_lines(name: str, paths: list[str]) -> Iterator[str]:
    if len(paths) <= MOST_NAMED:
        return
    for path in paths[:_MOST_LISTED]:
        yield f"  {name}: {path}"
    if len(paths) > _MOST_LISTED:
        yield f"  {name}: and {len(paths) - _MOST_LISTED:,} more"
