"""Reading again: what main has read, in its order, or any input under a clock of its own.

``MainsReading`` is what a backfill reads again: in the order of main, at the recorded processing times, with the same
signals. Several of main's epochs may become one. A recovery reads in this way what its branch had read. So does a run
that falls back to an older snapshot, with what the broken one had read.

Records are judged under watermarks that main had for them, or older ones:

* No epoch of main is ever divided, however small epochs are to be: its records were judged together.
* An epoch is *held to* the watermarks that main had after the last epoch that is in it. Records alone do not say that:
  where several epochs are one, nobody has been silent for as long as for main; files may have other content by now. An
  epoch whose snapshot has expired is unknown, unless a patch came next. Such an epoch is held to what was known before.
* One with records too far ahead of the clock (12.14) is the last of its own, at its own processing time.
* The clock of a machine may have been ahead when main ran. Then an epoch runs at the present time, unless event time is
  the time of arrival. Clocks never go back, so the branch would do nothing by processing time until then.
* On another branch what main has not read is held to where main is, and so is time that passes. Main may read it yet,
  beside other files.

So a record that main accepted is not dropped as late, whatever the names of files are. The watermark goes on with the
first epoch that is held to nothing: the next one of main, once the branch has become main. If the event times of the
inputs have changed, main's watermarks say nothing of the new ones, and nothing is held.

Epochs stay as they are, those without input too, where the watermark decides more than that: which duplicates are
remembered (12.10); and where event time is the time of arrival. Where the order of arrival counts, epochs become one
only if records arrive in the same order.

``Replay`` is a run that has a clock of its own and fills a branch of its own, beside everything else.

There are two kinds. **What a branch recorded**: epoch by epoch the same files in the same cut, at the same processing
times, with the same signals. The pipeline that recorded them gives the same panes, late drops and watermarks again; a
changed one (its state begins empty here, so any change is allowed) shows what it would have given. **What has landed**,
under a clock that somebody sets: an epoch at each tick. When the input is drained the clock goes on until nothing is
pending; a tick at which nothing is due is no epoch.

Neither reads the wall clock, and neither publishes. A stopped one goes on, if its branch has the first epochs of the
same replay.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from headrace.ext.executors import Engine
from headrace.ext.sources import SourceSplit
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.identity import fingerprint, recorded_definition
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import RecordedEpoch, recorded_epochs, what_was_read
from headrace.read.snapshots.progress import StoredProgress, watermarks_of, without_copies
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.epochs import PlannedEpoch
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.replay_clock import ReplayClock
from headrace.runs.restore import InputGoneError, name_some
from headrace.sources.landing import ByInput, Landing, count_files
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN, ref_of

FileChoice = Callable[[ByInput], ByInput]
"""Takes files in that make an epoch."""


@dataclass(frozen=True)
class Rereading:
    """``epochs``, each computed as one, and the ``rest``: files that main has not read."""

    epochs: tuple[RecordedEpoch, ...]
    rest: ByInput

    def plan_epochs(self, take: FileChoice, limit: int | None) -> Iterator[PlannedEpoch]:
        """The epochs, up to ``limit`` of them."""
        for number, epoch in enumerate(self.epochs[:limit], start=1):
            is_last = number == limit or (number == len(self.epochs) and not self.rest)
            yield PlannedEpoch(replace(epoch, files=take(epoch.files)), wait_for_merges=is_last)


@dataclass(frozen=True)
class ReplayProgress:
    """How far a branch has come that reads again. It stands at ``processing_time``, with the watermarks of
    ``watermark_hold`` (None: nothing is held). It has heard ``signals`` since it parted from main.
    """

    processing_time: Instant = MIN_INSTANT
    watermark_hold: WatermarkHold | None = None
    signals: tuple[tuple[Signal, ...], ...] = ()


@dataclass(frozen=True)
class MainsReading:
    """What main has read up to its newest readable snapshot ``head``, for ``pipeline`` to read again."""

    catalog: Catalog
    pipeline: Pipeline
    head: Manifest

    @classmethod
    def from_snapshot(cls, catalog: Catalog, pipeline: Pipeline, snapshot_id: str) -> Self | None:
        """Reads the history of the line of ``snapshot_id``; None if nothing of it can be read."""
        for manifest in catalog.readable_manifests(snapshot_id):
            with suppress(BrokenObjectError):
                watermarks_of(manifest)
                return cls(catalog, pipeline, manifest)
        return None

    @property
    def hold(self) -> WatermarkHold | None:
        """Where main is: what is not to be passed by who has read what it has."""
        return self._held_to(watermarks_of(self.head))

    def epochs_since(self, begin: Manifest | None) -> list[RecordedEpoch]:
        """Its epochs after those that it has in common with ``begin``, as far as that can still be told."""
        common_id = self._common_snapshot(begin)
        for link in self.catalog.lineage(self.head.snapshot_id):
            if link.snapshot_id == common_id:
                break
            with suppress(BrokenObjectError, MissingSnapshotError):
                epochs = what_was_read(self.catalog, link.snapshot_id, common_id)
                return [replace(epoch, reached=self._held_to(epoch.reached)) for epoch in epochs]
        return []

    def branch_progress(self, begin: Manifest | None) -> ReplayProgress:
        """How far a branch with the head ``begin`` has come since it parted from main."""
        if begin is None:
            return ReplayProgress(watermark_hold=self._held_to(WatermarkHold()))
        progress = StoredProgress.from_manifest(begin)
        since_fork = self.catalog.whole_ancestry(begin.snapshot_id, self._common_snapshot(begin))
        signals_given = [
            signals for manifest in reversed(since_fork) if (signals := StoredProgress.from_manifest(manifest).signals)
        ]
        return ReplayProgress(progress.processing_time, self._held_to(watermarks_of(begin)), tuple(signals_given))

    def _common_snapshot(self, begin: Manifest | None) -> str | None:
        if begin is None:
            return None
        common = self.catalog.common_ancestor(self.head.snapshot_id, begin.snapshot_id)
        return common.snapshot_id if common is not None and self.catalog.is_kept(common.snapshot_id) else None

    def _held_to(self, hold: WatermarkHold | None) -> WatermarkHold | None:
        """``hold`` of main, as far as it says anything of the watermarks of ``pipeline``."""
        if hold is None or self.head.fingerprint == fingerprint(self.pipeline):
            return hold
        definition = self.head.definition
        if definition is None or _event_times(definition) != _event_times(recorded_definition(self.pipeline)):
            return None
        # the stages may have been others; what was given to them decided which records were late
        return WatermarkHold(hold.watermark, inputs=hold.inputs, given=hold.given)


def plan_rereading(
    pipeline: Pipeline,
    recorded_epochs: Iterable[RecordedEpoch],
    unread: ByInput,
    progress: ReplayProgress = ReplayProgress(),
    *,
    now: Instant = MAX_INSTANT,
    max_files: int | None = None,
    max_bytes: int | None = None,
    counts_again: Callable[[ByInput], object] = lambda files: None,
    repeats: Callable[[str], bool] = lambda name: True,
) -> Rereading:
    """How a branch with this ``progress`` reads those of the ``unread`` files again that are in ``recorded_epochs``. An
    epoch has at most so many files and bytes of an input, where main's are not larger. None: as its source says. None
    runs later than ``now``, unless event time is the time of arrival. An epoch stays as it is where ``counts_again``
    says so of what it has read. Where an input does not ``repeats``, each split follows the one before it. Its record
    holds only up to the first split that is not the next one now.
    """
    waiting = {name: {file.path: file for file in files} for name, files in unread.items()}
    is_exact = _is_exact(pipeline)
    epochs = [
        *_left_of(
            _hold_to_watermarks(recorded_epochs, progress.watermark_hold), waiting, progress, repeats, is_exact=is_exact
        )
    ]
    if not is_exact:
        room = {
            input_.name: _EpochRoom(max_files or input_.source.max_files, max_bytes or input_.source.max_bytes)
            for input_ in pipeline.inputs
        }
        epochs = [*_group_epochs(epochs, room, _Order.from_pipeline(pipeline), counts_again)]
    if not _arrives(pipeline):
        epochs = [replace(epoch, processing_time=min(epoch.processing_time, now)) for epoch in epochs]
    return Rereading(tuple(epochs), {name: [*files.values()] for name, files in waiting.items() if files})


def _event_times(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The event time of each input in a definition."""
    return {input_["name"]: input_["event_time"] for input_ in definition["inputs"]}


def _is_exact(pipeline: Pipeline) -> bool:
    """Whether epochs are to stay as main had them."""
    return _arrives(pipeline) or pipeline.deduplicate is not None


def _arrives(pipeline: Pipeline) -> bool:
    """Whether event time is the time of arrival in some input."""
    return any(input_.event_time.expr is None for input_ in pipeline.inputs)


def _hold_to_watermarks(epochs: Iterable[RecordedEpoch], hold: WatermarkHold | None) -> Iterator[RecordedEpoch]:
    """``epochs``, each held to the watermarks that it left, or what is known of those before it."""
    for epoch in epochs:
        hold = epoch.reached or hold
        yield replace(epoch, held_to=hold)


def _left_of(
    epochs: Iterable[RecordedEpoch],
    waiting: Mapping[str, dict[str, SourceSplit]],
    progress: ReplayProgress,
    repeats: Callable[[str], bool],
    *,
    is_exact: bool,
) -> Iterator[RecordedEpoch]:
    """What is left of recorded ``epochs``: with those of their files that are ``waiting``, as they are now, which wait
    no longer; with their signals, if those were not given yet. Epochs that have neither only where it ``is_exact``.
    """
    given_signals = [*progress.signals]

    def take_file(name: str, path: str) -> SourceSplit | None:
        own = waiting.get(name)
        if not own:  # nothing is left of it, or the definition has no such input any more
            return None
        return own.pop(path, None) if repeats(name) or path == next(iter(own)) else None

    for epoch in epochs:
        files = {
            name: [file_now for file in recorded_files if (file_now := take_file(name, file.path)) is not None]
            for name, recorded_files in epoch.files.items()
        }
        left = {name: recorded_files for name, recorded_files in files.items() if recorded_files}
        signals = epoch.signals
        if signals in given_signals:
            given_signals.remove(signals)
            signals = ()
        if left or signals or (is_exact and not epoch.files and epoch.processing_time > progress.processing_time):
            yield replace(epoch, files=left, signals=signals, is_last=False)


@dataclass(frozen=True)
class _EpochRoom:
    """How much of an input there is place for in an epoch, or is in it."""

    files: int = 0
    bytes: int = 0

    def with_more(self, files: Sequence[SourceSplit]) -> "_EpochRoom":
        return _EpochRoom(self.files + len(files), self.bytes + sum(file.size for file in files))

    def has_room_for(self, other: "_EpochRoom") -> bool:
        return other.files <= self.files and other.bytes <= self.bytes


@dataclass(frozen=True)
class _Order:
    """The order in which files of one epoch arrive (semantics 12.3): ``inputs`` by name. None: it does not count."""

    inputs: Sequence[str] | None

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> Self:
        stages = (stage for output_pipeline in pipeline.by_output.values() for stage in output_pipeline.stages)
        is_ordered = any(CompiledStage(stage).is_ordered for stage in stages)
        return cls([input_.name for input_ in pipeline.inputs] if is_ordered else None)

    def keeps_order(self, earlier_epochs: Sequence[RecordedEpoch], next_epoch: RecordedEpoch) -> bool:
        """Whether ``next_epoch`` comes last if it joins ``earlier_epochs``, which arrive in their order."""
        last = next((epoch for epoch in reversed(earlier_epochs) if epoch.files), None)
        if self.inputs is None or last is None or not next_epoch.files:
            return True
        return max(self._file_places(last)) < min(self._file_places(next_epoch))

    def _file_places(self, epoch: RecordedEpoch) -> list[tuple[int, str]]:
        assert self.inputs is not None
        return [(self.inputs.index(name), file.path) for name, files in epoch.files.items() for file in files]


def _group_epochs(
    epochs: Iterable[RecordedEpoch],
    room: Mapping[str, _EpochRoom],
    order: _Order,
    counts_again: Callable[[ByInput], object],
) -> Iterator[RecordedEpoch]:
    """``epochs``, as many as there is ``room`` for in one, at the processing time of the last. One with signals is the
    last of its own: they were given after what had been read. So is one with records ahead of its clock. One that takes
    back or repeats what was counted is alone: nothing of it may be dropped, and of others something may.
    """
    group: list[RecordedEpoch] = []
    used: dict[str, _EpochRoom] = {}
    for epoch in epochs:
        used_with_epoch = {name: used.get(name, _EpochRoom()).with_more(files) for name, files in epoch.files.items()}
        fits = all(room[name].has_room_for(size) for name, size in used_with_epoch.items())
        is_alone = bool(counts_again(epoch.files))
        if group and (is_alone or not (fits and order.keeps_order(group, epoch))):
            yield _merge_epochs(group)
            group, used_with_epoch = [], {name: _EpochRoom().with_more(files) for name, files in epoch.files.items()}
            used = {}
        group.append(epoch)
        used |= used_with_epoch
        if epoch.signals or epoch.is_ahead or is_alone:
            yield _merge_epochs(group)
            group, used = [], {}
    if group:
        yield _merge_epochs(group)


def _merge_epochs(epochs: Sequence[RecordedEpoch]) -> RecordedEpoch:
    files: dict[str, list[SourceSplit]] = {}
    for epoch in epochs:
        for name, more_files in epoch.files.items():
            files.setdefault(name, []).extend(more_files)
    return replace(epochs[-1], files=files)


@dataclass(frozen=True)
class Replay:
    """The epochs with input, by number; after them ``clock`` goes on, if there is one."""

    epochs: tuple[RecordedEpoch, ...]
    clock: ReplayClock | None = None

    def files_left(self, head: Manifest | None) -> int:
        """How many files it reads after ``head``."""
        return sum(count_files(epoch.files) for epoch in self.epochs[next_number(head) :])

    def matches_epoch(self, number: int, epoch: RecordedEpoch) -> bool:
        """Whether ``epoch`` may be its epoch ``number``."""
        if number < len(self.epochs):
            return _epoch_identity(epoch) == _epoch_identity(self.epochs[number])
        on_a_tick = self.clock is not None and self.clock.ticks_at(epoch.processing_time)
        return on_a_tick and not count_files(epoch.files)

    def epoch(self, number: int, progress: PipelineProgress) -> RecordedEpoch | None:
        """Epoch ``number``, which continues from ``progress``; None if the replay is over."""
        if number < len(self.epochs):
            return self.epochs[number]
        if self.clock is None or progress.due_time >= NEVER:
            return None
        # at least one tick after the epoch before, and no sooner than something is due
        tick = max(
            self.clock.first_tick_from(progress.processing_time) + 1, self.clock.first_tick_from(progress.due_time)
        )
        return RecordedEpoch({}, self.clock.time_at(tick))

    def plan_epochs(self, engine: Engine, limit: int | None) -> Iterator[PlannedEpoch]:
        """The epochs after the last one of ``engine``, until there are ``limit`` of them in all."""
        while limit is None or engine.epoch + 1 < limit:
            epoch = self.epoch(engine.epoch + 1, engine.progress)
            if epoch is None:
                return
            is_last = engine.epoch + 2 >= min(len(self.epochs), limit or len(self.epochs))
            yield PlannedEpoch(epoch, wait_for_merges=is_last, is_recorded=self.clock is None)


def open_replay(catalog: Catalog, options: RunOptions, landing: Landing) -> Replay:
    """The replay that ``options`` ask for, of files in ``landing``. No Spark.

    Raises UnknownBranchError if there is nothing to replay, InputGoneError if files have gone or changed.
    """
    head = catalog.head()
    if options.clock is not None:
        return Replay(tuple(_landed_epochs(catalog, landing, options)), options.clock)
    branch = options.from_branch or MAIN
    ref = ref_of(branch, head.refs, head.generations)
    snapshot = None if ref is None else head.refs.get(ref)
    if snapshot is None:
        raise UnknownBranchError(
            f"no branch or tag {branch!r} of {catalog.pipeline} has a snapshot to replay; there are "
            f"{', '.join(sorted(head.refs)) or 'none'}. A clock of its own (--clock) replays input that was never run"
        )
    epochs = recorded_epochs(catalog, snapshot)
    _check_input(f"{catalog.pipeline}: replay of {branch}", epochs, landing)
    return Replay(tuple(epochs))


def replay_head(
    catalog: Catalog, pipeline: Pipeline, branch: str, snapshot_id: str | None, replay: Replay
) -> Manifest | None:
    """The snapshot of ``branch`` after which ``replay`` of ``pipeline`` continues; None: it begins.

    Raises RunOptionsError if the branch holds anything else than the first epochs of the replay.
    """
    if snapshot_id is None:
        return None
    epochs = recorded_epochs(catalog, snapshot_id)
    difference = next(
        (
            f"epoch {epoch_number}"
            for epoch_number, epoch in enumerate(epochs)
            if not replay.matches_epoch(epoch_number, epoch)
        ),
        None,
    )
    head = catalog.manifest(snapshot_id)
    if difference is None and head.fingerprint != fingerprint(pipeline):
        difference = "the pipeline"
    if difference is None and head.patch is not None:
        difference = f"epoch {head.patch.epoch}"
    if difference is not None:
        raise RunOptionsError(
            f"a replay fills an empty branch, or continues its own. Branch {branch} of {catalog.pipeline} is at "
            f"snapshot {snapshot_id}, which this replay did not make: {difference} differs. Name another branch, or "
            f"empty it with `headrace rollback {catalog.pipeline} --to beginning --branch {branch}`"
        )
    return head


def next_number(head: Manifest | None) -> int:
    """The number of the epoch after ``head``."""
    return 0 if head is None else head.epoch + 1


def _epoch_identity(epoch: RecordedEpoch) -> tuple[object, ...]:
    """What tells ``epoch`` from others. Its files by path and size: where they were not read yet there is no more."""
    files = {name: [(file.path, file.size) for file in files] for name, files in epoch.files.items() if files}
    return files, epoch.processing_time, epoch.signals, epoch.is_last, epoch.held_to


def _landed_epochs(catalog: Catalog, landing: Landing, options: RunOptions) -> Iterable[RecordedEpoch]:
    """What has landed as epochs of bounded size, one at each tick."""
    assert options.clock is not None
    tick, files = 0, without_copies(catalog, None, landing.new_files({}))
    while files:
        batch, files = landing.next_epoch(files, options.files_per_epoch, options.bytes_per_epoch)
        yield RecordedEpoch(batch, options.clock.time_at(tick))
        tick += 1


def _check_input(what: str, epochs: Sequence[RecordedEpoch], landing: Landing) -> None:
    """Raise InputGoneError unless every file is there as it was when it was read."""
    missing: list[str] = []
    for name in dict.fromkeys(name for epoch in epochs for name in epoch.files):
        if name not in landing.enumerators:
            raise InputGoneError(f"{what} reads an input {name}, which the pipeline does not have any more")
        files = [file for epoch in epochs for file in epoch.files.get(name, ())]
        missing += [f"{split.path} {how}" for split, how in landing.missing_splits(name, files)]
    if missing:
        raise InputGoneError(
            f"{what} reads the recorded files again, and {len(missing)} of them are gone or changed: "
            f"{name_some(missing)}. Put them back as they were, or replay what has "
            "landed with --clock"
        )
