"""Reading again what main has read, as a backfill does: in the order in which main read it, at the processing times of
then, with the same signals; only that several of its epochs become one.

So records are judged as they were: no watermark is ahead of the one that main had where it read the same file, what was
too far ahead of the clock is so again, and nobody falls idle who had not. A record that main accepted is not dropped,
whatever the names of files are. Where event time is the time of arrival epochs stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from headrace.pipeline.graph import Pipeline
from headrace.read.recorded import RecordedEpoch, what_was_read
from headrace.runs.commits import Committer
from headrace.sources.landing import ByInput
from headrace.sources.planning import InputFile
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError

Cut = Callable[[ByInput], tuple[ByInput, ByInput]]
"""Takes the first of some files that make an epoch, and gives them and the rest."""


@dataclass(frozen=True)
class Rereading:
    """``epochs``, each computed as one if it is not too large, and the ``rest``: files that main has not read."""

    epochs: tuple[RecordedEpoch, ...]
    rest: ByInput

    def run(self, committer: Committer, cut: Cut, limit: int | None) -> int:
        """Compute and submit the epochs, up to ``limit`` of them; how many there were."""
        done = 0
        for number, epoch in enumerate(self.epochs, start=1):
            left, is_whole = epoch.files, False
            while not is_whole and done != limit:
                batch, left = cut(left)
                is_whole, done = not left, done + 1
                settles = done == limit or (is_whole and number == len(self.epochs) and not self.rest)
                signals = epoch.signals if is_whole else ()
                committer.submit(
                    committer.engine.compute(batch, epoch.processing_time, signals=signals, settles=settles)
                )
        return done


def reread(
    pipeline: Pipeline,
    recorded: Iterable[RecordedEpoch],
    unread: ByInput,
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> Rereading:
    """How to read those of the ``unread`` files again that are ``recorded``, in epochs of at most so many files and
    bytes of an input; None: as its source says.
    """
    waiting = {name: {file.path: file for file in files} for name, files in unread.items()}
    epochs = [found for epoch in recorded if (found := _left_of(epoch, waiting)) is not None]
    if all(each.event_time.expr is not None for each in pipeline.inputs):
        room = {
            each.name: _Room(max_files or each.source.max_files, max_bytes or each.source.max_bytes)
            for each in pipeline.inputs
        }
        epochs = [*_together(epochs, room)]
    return Rereading(tuple(epochs), {name: [*files.values()] for name, files in waiting.items() if files})


def recorded_since(catalog: Catalog, snapshot_id: str, begin: str | None) -> list[RecordedEpoch]:
    """What ``snapshot_id`` has recorded of epochs after those that it has in common with ``begin``, as far as that can
    still be told: broken snapshots are what a backfill replaces.
    """
    common = None if begin is None else catalog.common_ancestor(snapshot_id, begin)
    until = None if common is None else common.snapshot_id
    for link in catalog.lineage(snapshot_id):
        if link.snapshot_id == until:
            break
        with suppress(BrokenObjectError, MissingSnapshotError):
            return what_was_read(catalog, link.snapshot_id, until)
    return []


def _left_of(epoch: RecordedEpoch, waiting: Mapping[str, dict[str, InputFile]]) -> RecordedEpoch | None:
    """``epoch`` with those of its files that are ``waiting``, as they are now, which wait no longer. None if nothing is
    left.
    """
    files = {
        name: [there for file in some if (there := waiting.get(name, {}).pop(file.path, None)) is not None]
        for name, some in epoch.files.items()
    }
    left = {name: some for name, some in files.items() if some}
    return RecordedEpoch(left, epoch.processing_time, epoch.signals) if left or epoch.signals else None


@dataclass(frozen=True)
class _Room:
    """How much of an input there is place for in an epoch, or is in it."""

    files: int = 0
    bytes: int = 0

    def with_more(self, files: Sequence[InputFile]) -> "_Room":
        return _Room(self.files + len(files), self.bytes + sum(file.size for file in files))

    def holds(self, other: "_Room") -> bool:
        return other.files <= self.files and other.bytes <= self.bytes


def _together(epochs: Iterable[RecordedEpoch], room: Mapping[str, _Room]) -> Iterator[RecordedEpoch]:
    """``epochs``, as many as there is ``room`` for in one, at the processing time of the last. One with signals is the
    last of its own: they were given after what had been read.
    """
    gathered: list[RecordedEpoch] = []
    taken: dict[str, _Room] = {}
    for epoch in epochs:
        more = {name: taken.get(name, _Room()).with_more(files) for name, files in epoch.files.items()}
        if gathered and not all(room[name].holds(some) for name, some in more.items()):
            yield _one(gathered)
            gathered, more = [], {name: _Room().with_more(files) for name, files in epoch.files.items()}
            taken = {}
        gathered.append(epoch)
        taken |= more
        if epoch.signals:
            yield _one(gathered)
            gathered, taken = [], {}
    if gathered:
        yield _one(gathered)


def _one(epochs: Sequence[RecordedEpoch]) -> RecordedEpoch:
    files: dict[str, list[InputFile]] = {}
    for epoch in epochs:
        for name, some in epoch.files.items():
            files.setdefault(name, []).extend(some)
    return RecordedEpoch(files, epochs[-1].processing_time, epochs[-1].signals)
