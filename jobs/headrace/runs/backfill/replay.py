"""Replay: a run of a pipeline that has a clock of its own and fills a branch of its own, beside everything else.

Two kinds. **What a branch recorded**: epoch by epoch the same files in the same cut, at the same processing times, with
the same signals. The pipeline that recorded them gives the same panes, late drops and watermarks again; a changed one
(its state begins empty here, so any change is allowed) shows what it would have given. **What has landed**, under a
clock that somebody sets: an epoch at each tick, and when the input is drained the clock goes on until nothing is
pending; a tick at which nothing is due is no epoch.

Neither reads the wall clock, and neither publishes. One that was stopped goes on, if its branch has the first epochs
of the very same replay.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.ext.executors import Engine
from headrace.model.time import NEVER
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import RecordedEpoch, recorded_epochs
from headrace.read.snapshots.progress import without_copies
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.epochs import PlannedEpoch
from headrace.runs.executors.choice import input_bytes
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.replay_clock import ReplayClock
from headrace.runs.restore import InputGoneError
from headrace.sources.landing import Landing, counted
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN, ref_of

_NAMED = 3


@dataclass(frozen=True)
class Replay:
    """The epochs with input, by number; after them ``clock`` goes on, if there is one."""

    epochs: tuple[RecordedEpoch, ...]
    clock: ReplayClock | None = None

    def files_left(self, head: Manifest | None) -> int:
        """How many files it reads after ``head``."""
        return sum(counted(epoch.files) for epoch in self.epochs[next_number(head) :])

    def bytes_left(self, head: Manifest | None) -> int:
        """Their bytes."""
        return sum(input_bytes(epoch.files) for epoch in self.epochs[next_number(head) :])

    def made(self, number: int, epoch: RecordedEpoch) -> bool:
        """Whether ``epoch`` may be its epoch ``number``."""
        if number < len(self.epochs):
            return _told(epoch) == _told(self.epochs[number])
        on_a_tick = self.clock is not None and self.clock.ticks_at(epoch.processing_time)
        return on_a_tick and not counted(epoch.files)

    def epoch(self, number: int, progress: PipelineProgress) -> RecordedEpoch | None:
        """Epoch ``number``, which continues from ``progress``; None if the replay is over."""
        if number < len(self.epochs):
            return self.epochs[number]
        if self.clock is None or progress.due_time >= NEVER:
            return None
        tick = max(self.clock.tick(progress.processing_time) + 1, self.clock.tick(progress.due_time))
        return RecordedEpoch({}, self.clock.at(tick))

    def planned(self, engine: Engine, limit: int | None) -> Iterator[PlannedEpoch]:
        """The epochs after the last one of ``engine``, until there are ``limit`` of them in all."""
        while limit is None or engine.epoch + 1 < limit:
            epoch = self.epoch(engine.epoch + 1, engine.progress)
            if epoch is None:
                return
            is_last = engine.epoch + 2 >= min(len(self.epochs), limit or len(self.epochs))
            yield PlannedEpoch(epoch, wait_for_merges=is_last, is_recorded=self.clock is None)


def open_replay(catalog: Catalog, options: RunOptions, landing: Landing) -> Replay:
    """The replay that ``options`` ask for, of files in ``landing``. No Spark.

    Raises UnknownBranchError if there is nothing to replay, InputGoneError if files that were read are not there as
    they were.
    """
    head = catalog.head()
    if options.clock is not None:
        return Replay(tuple(_cut(catalog, landing, options)), options.clock)
    of = options.from_branch or MAIN
    ref = ref_of(of, head.refs, head.generations)
    snapshot = None if ref is None else head.refs.get(ref)
    if snapshot is None:
        raise UnknownBranchError(
            f"no branch or tag {of!r} of {catalog.pipeline} has a snapshot to replay; there are "
            f"{', '.join(sorted(head.refs)) or 'none'}. A clock of its own (--clock) replays input that was never run"
        )
    epochs = recorded_epochs(catalog, snapshot)
    _check_input(f"{catalog.pipeline}: replay of {of}", epochs, landing)
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
    difference = next((f"epoch {at}" for at, epoch in enumerate(epochs) if not replay.made(at, epoch)), None)
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


def _told(epoch: RecordedEpoch) -> tuple[object, ...]:
    """What tells ``epoch`` from others. Its files by path and size: where they were not read yet there is no more."""
    files = {name: [(file.path, file.size) for file in files] for name, files in epoch.files.items() if files}
    return files, epoch.processing_time, epoch.signals, epoch.is_last, epoch.held_to


def _cut(catalog: Catalog, landing: Landing, options: RunOptions) -> Iterable[RecordedEpoch]:
    """What has landed as epochs of bounded size, one at each tick."""
    assert options.clock is not None
    tick, files = 0, without_copies(catalog, None, landing.new_files({}))
    while files:
        batch, files = landing.next_epoch(files, options.files_per_epoch, options.bytes_per_epoch)
        yield RecordedEpoch(batch, options.clock.at(tick))
        tick += 1


def _check_input(what: str, epochs: Sequence[RecordedEpoch], landing: Landing) -> None:
    """Raise InputGoneError unless every file is there as it was when it was read."""
    missing: list[str] = []
    for name in dict.fromkeys(name for epoch in epochs for name in epoch.files):
        if name not in landing.enumerators:
            raise InputGoneError(f"{what} reads an input {name}, which the pipeline does not have any more")
        files = [file for epoch in epochs for file in epoch.files.get(name, ())]
        missing += [f"{split.path} {how}" for split, how in landing.missing(name, files)]
    if missing:
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InputGoneError(
            f"{what} reads the recorded files again, and {len(missing)} of them are gone or changed: "
            f"{'; '.join(missing[:_NAMED])}{more}. Put them back as they were, or replay what has landed with --clock"
        )
