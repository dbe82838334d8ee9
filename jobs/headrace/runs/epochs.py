"""The epochs of a run, each worked out once the one before it is computed; and the loop that computes and commits them.

New input comes in micro-batches, or in batch mode as one epoch. What was read before is read again as it was: by a
backfill (``backfill/backfill_plan``) or a replay (``backfill/replay``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.distribute.epoch import ComputedEpoch
from headrace.errors import HeadraceError
from headrace.ext.executors import Engine
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.time import instant
from headrace.model.triggers import Signal
from headrace.read.snapshots.epoch_history import RecordedEpoch
from headrace.runs.commits import Committer
from headrace.runs.options import RunOptions
from headrace.sources.landed.portions import LandedPortions
from headrace.sources.landing import ByInput, counted
from headrace.sources.progress import WatermarkHold


@dataclass(frozen=True)
class PlannedEpoch:
    """An epoch that a run is to compute. ``wait_for_merges``: no other may follow soon, so it leaves no merge running.
    ``is_recorded``: its files are to be as they were recorded; one that has changed is an error.
    """

    epoch: RecordedEpoch
    wait_for_merges: bool
    is_recorded: bool = False


def commit_epochs(
    committer: Committer,
    epochs: Iterable[PlannedEpoch],
    *,
    isolates: bool = False,
    check: Callable[[Engine], None] = lambda engine: None,
    accept: Callable[[ComputedEpoch], None] = lambda computed: None,
) -> None:
    """Compute ``epochs`` one after the other, and have each committed beside the next. Returns when all are.
    ``isolates``: an output that fails is parked. Before each epoch ``check`` raises if it may not be computed, and
    after it ``accept`` if it may not be committed; what was computed before is committed then.
    """
    for planned in epochs:
        try:
            check(committer.engine)
        except HeadraceError:
            committer.drain()
            raise
        epoch = planned.epoch
        computed = committer.engine.compute(
            epoch.files,
            epoch.processing_time,
            is_last=epoch.is_last,
            signals=epoch.signals,
            wait_for_merges=planned.wait_for_merges,
            hold=epoch.held_to,
            recorded=planned.is_recorded,
            isolates=isolates,
        )
        try:
            accept(computed)
        except HeadraceError:
            committer.drain()
            raise
        committer.submit(computed)
    committer.drain()


def micro_batches(
    engine: Engine,
    files: ByInput,
    options: RunOptions,
    now: Callable[[], datetime],
    *,
    before: int = 0,
    signals: tuple[Signal, ...] = (),
    hold: WatermarkHold | None = None,
    is_due: bool = False,
    portions: LandedPortions | None = None,
    planned: Callable[[int], None] = lambda files: None,
) -> Iterator[PlannedEpoch]:
    """``files`` in epochs of bounded size, under the clock ``now``, until nothing is new or due. ``before``: epochs
    that count towards the limit of the options already. The first epoch hears ``signals``; none passes ``hold``.
    ``is_due``: there is one in any case. What is left of ``portions`` lands once an input has nothing else to
    read; ``planned`` is told of how many files that are.
    """
    limit = options.max_epochs
    left = {} if portions is None else portions.left
    while limit is None or before < limit:
        if portions is not None:
            more = _more(engine, files, portions)
            files = {**files, **more}
            if more:
                planned(counted(more))
        clock = instant(now())
        batch, files = engine.landing.next_epoch(files, options.files_per_epoch, options.bytes_per_epoch)
        if not batch and not signals and not is_due and not engine.progress.is_due(clock, hold):
            return
        before += 1
        yield PlannedEpoch(RecordedEpoch(batch, clock, signals, held_to=hold), not (files or left) or before == limit)
        signals, is_due = (), False


def _more(engine: Engine, files: ByInput, portions: LandedPortions) -> ByInput:
    """The next portion of inputs of which no ``files`` are left."""
    more: dict[str, Sequence[SourceSplit]] = {}
    while read := [name for name in portions.left if name not in files and name not in more]:
        portions.land(read)
        for name in read:
            if splits := engine.landing.unread(name, engine.progress.offsets.get(name, SourcePosition())):
                more[name] = splits
    return more


def batch(
    engine: Engine, files: ByInput, now: Callable[[], datetime], signals: tuple[Signal, ...]
) -> Iterator[PlannedEpoch]:
    """All of ``files`` as one epoch that ends the input."""
    clock = instant(now())
    yield PlannedEpoch(RecordedEpoch(engine.landing.taken(files), clock, signals, is_last=True), wait_for_merges=True)
