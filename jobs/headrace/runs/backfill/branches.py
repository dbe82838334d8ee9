"""Branches of backfills: where one begins, and those that were left behind.

``needed_event_times`` says which event times a range of results depends on: those of the elements in windows that touch
the range. ``fork_point`` is the newest published snapshot taken before any data of these windows was read, so that all
of their input is read again; or nothing.

``drop_abandoned`` drops branches that failed, were rejected or were never promoted. The next scheduled backfill
computes its windows itself, so nobody continues these branches; but each keeps its snapshots from expiring. The newest
few stay for people to look at. What people have started may be continued: it stays for weeks, and for ever if they gave
the branch a name. What somebody is asked about stays until there is an answer.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from headrace.model.time import Instant, render
from headrace.model.windows import ShiftedOutputTime, Window, WindowFn, shift_instant, touching
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.joins import Join
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.source_clock import newest_read
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import Link
from headrace_snapshots.errors import MissingSnapshotError, PublishConflictError, RefusedError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.holds import DeletionList
from headrace_snapshots.names import manifest_path
from headrace_snapshots.protocol.moves import Head


def needed_event_times(pipeline: Pipeline, span: Window, outputs: Collection[str] = ()) -> Window | None:
    """Event times of records, without which no window of a last stage that touches ``span`` is whole; None if nobody
    can say how far windows reach (a window function of a user's own). For a pipeline with several outputs, all of them
    count, or those that are named.

    A session that touches the span reaches back by one gap; what it had before that belongs to it as well.
    """
    by_output = pipeline.by_output
    return _enclosing_window(_of_records(by_output[name], span) for name in outputs or by_output)


def _of_records(output_pipeline: Pipeline, span: Window) -> Window | None:
    """For one output: the times of records, also where it reads panes of others."""
    times: Window | None = span
    for number, where in enumerate(stage.aggregation.where for stage in reversed(output_pipeline.stages)):
        if times is None:
            return None
        times = touching(where, _with_panes(where, times) if number else times)
    for join in reversed(output_pipeline.join if times is not None else ()):
        times = _with_right(join, times)
    if times is None or not output_pipeline.upstream:
        return times
    return _enclosing_window(
        _of_records(one.pipeline, _with_panes(one.stage.aggregation.where, times)) for one in output_pipeline.upstream
    )


def _with_right(join: Join, left: Window | None) -> Window | None:
    """The times of left rows, and of the right ones that these may meet. A version that held is as old as it likes: the
    one that is known where the branch begins counts.
    """
    if left is None or join.window is not None:
        return left if left is None or join.window is None else touching(join.window, left)
    begin = 0 if join.begin is None else min(0, join.begin)
    return Window(shift_instant(left.start, begin), shift_instant(left.end, max(0, join.end)))


def _enclosing_window(windows: Iterable[Window | None]) -> Window | None:
    """From the first beginning to the last end; None where one is not known."""
    starts, ends = [], []
    for window in windows:
        if window is None:
            return None
        starts.append(window.start)
        ends.append(window.end)
    return Window(min(starts), max(ends))


def _with_panes(where: WindowFn, elements: Window) -> Window:
    """Where windows may be whose panes are ``elements`` of the next stage, in their window or, if shifted, later."""
    return Window(shift_instant(elements.start, -_output_time_shift(where)), elements.end)


def _output_time_shift(where: WindowFn) -> int:
    return where.shift + _output_time_shift(where.inner) if isinstance(where, ShiftedOutputTime) else 0


@dataclass(frozen=True)
class ForkPoint:
    """The snapshot of ``manifest`` (None: nothing), and why that one, for people."""

    manifest: Manifest | None
    reason: str

    @property
    def snapshot(self) -> str | None:
        """Its id."""
        return None if self.manifest is None else self.manifest.snapshot_id

    @property
    def begin(self) -> str:
        """The snapshot, for people."""
        manifest = self.manifest
        return "nothing" if manifest is None else f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch})"

    def __str__(self) -> str:
        return f"the backfill begins with {self.begin}: {self.reason}"


def fork_point(
    catalog: Catalog, pipeline: Pipeline, span: Window | None, skipped_outputs: Collection[str] = ()
) -> ForkPoint:
    """The newest snapshot, not newer than ``published``, whose epochs had read nothing as new as the range needs. The
    range needs the event times on which windows touching ``span`` depend. Nothing if there is none, or no span, or if
    the pipeline has changed since.

    Takes few requests, however many epochs there are: the newest event time that was read never goes back. Records that
    no window has count too, those that were filtered out, say: they may be others now. One that lay too far ahead of
    the clock (12.14) does not; its window keeps it. ``skipped_outputs``, which the branch is without, need nothing.
    """
    if span is None:
        return ForkPoint(None, "all input is read again")
    outputs = [name for name in pipeline.by_output if name not in skipped_outputs]
    needed_times, published_id = (
        needed_event_times(pipeline, span, outputs),
        catalog.published_by_all(catalog.head().refs),
    )
    if published_id is None:
        return ForkPoint(None, "nothing is published yet")
    if needed_times is None:
        return ForkPoint(None, "a window function of the pipeline's own does not say how far its windows reach")
    try:
        begin = _newest_before(catalog, pipeline, published_id, needed_times.start)
    except (BrokenObjectError, MissingSnapshotError) as error:
        return ForkPoint(None, f"an older snapshot that it might begin with cannot be read ({error})")
    return _fork_point(pipeline, needed_times.start, begin)


def fork_branch(catalog: Catalog, branch: str, point: ForkPoint) -> bool:
    """Make ``branch`` at ``point``; no if an expiry has marked that snapshot meanwhile. Raises RefusedError."""
    try:
        catalog.fork(branch, point.snapshot)
    except RefusedError:
        if point.snapshot is None or catalog.is_kept(point.snapshot):
            raise
        return False
    return True


def _fork_point(pipeline: Pipeline, start: Instant, begin: Manifest | None) -> ForkPoint:
    """``begin``, the newest snapshot without anything as new as ``start``, if ``pipeline`` can continue from it."""
    first = f"any data of the first affected window (from {render(start)}) was read"
    if begin is None:
        return ForkPoint(None, f"no kept snapshot is old enough for this range, which needs one taken before {first}")
    if begin.fingerprint != fingerprint(pipeline):
        return ForkPoint(
            None, f"the pipeline has changed since snapshot {begin.snapshot_id}, whose state means something else"
        )
    return ForkPoint(begin, f"it is the newest published snapshot taken before {first}")


def _newest_before(catalog: Catalog, pipeline: Pipeline, published_id: str, start: Instant) -> Manifest | None:
    """The newest kept snapshot up to ``published_id`` that has read nothing as new as ``start``; None: no such."""
    snapshots = _UnmarkedSnapshots.from_catalog(catalog)
    snapshot_id: str | None = published_id
    while snapshot_id is not None:
        newer = snapshots.link(snapshot_id)
        if _is_before(pipeline, newer, start):
            return newer.manifest
        oldest, newest = _first_with_new_data(snapshots, pipeline, newer, start)
        if newest is not None:
            return newest.manifest
        snapshot_id = snapshots.grafts.get(oldest.snapshot_id)  # tags keep what is older than others that are not kept
    return None


def _first_with_new_data(
    snapshots: "_UnmarkedSnapshots", pipeline: Pipeline, newer: Link, start: Instant
) -> tuple[Link, Link | None]:
    """The oldest snapshot that has read something as new as ``start``, among ``newer`` and its ancestors that are kept
    without a gap; and the snapshot before it, if that is kept.
    """
    newest: Link | None = None
    oldest_epoch = -1
    while ancestors := _ancestors_since(newer, oldest_epoch):
        for epoch, snapshot_id in ancestors:
            try:
                link = snapshots.link(snapshot_id)
            except MissingSnapshotError:  # it has expired, and so has what came before it
                oldest_epoch = epoch
                break
            if _is_before(pipeline, link, start):
                newest, oldest_epoch = link, epoch
                break
            newer = link
    return newer, newest


def _ancestors_since(newer: Link, since_epoch: int) -> list[tuple[int, str]]:
    """The ancestors that ``newer`` names of epochs after ``since_epoch``, newest first."""
    return [
        (epoch, snapshot) for epoch, snapshot in sorted(newer.ancestors.items(), reverse=True) if epoch > since_epoch
    ]


@dataclass(frozen=True)
class _UnmarkedSnapshots:
    """Snapshots but for those that an expiry has marked: they may be there still, and a branch cannot begin there."""

    catalog: Catalog
    mark: DeletionList | None
    grafts: Mapping[str, str | None]

    @classmethod
    def from_catalog(cls, catalog: Catalog) -> Self:
        """Reads which snapshots are kept now. Raises BrokenObjectError."""
        horizon = catalog.head().horizon
        if horizon is None:
            return cls(catalog, None, {})
        return cls(catalog, catalog.marks.read(horizon.mark), horizon.grafts)

    def link(self, snapshot_id: str) -> Link:
        """Raises BrokenObjectError if its manifest cannot be read, MissingSnapshotError if it is not kept."""
        if self.mark is not None and manifest_path(self.catalog.pipeline, snapshot_id) in self.mark:
            raise MissingSnapshotError(f"snapshot {snapshot_id} of {self.catalog.pipeline} has expired")
        link = self.catalog.link(snapshot_id)
        if link.problem is not None:
            raise link.problem
        return link


def _is_before(pipeline: Pipeline, link: Link, start: Instant) -> bool:
    assert link.manifest is not None
    newest = newest_read(pipeline, StoredProgress.from_manifest(link.manifest))
    return newest is None or newest < start


SCHEDULED_PREFIX = "backfill-scheduled__"
"""How the branches of runs of the schedule begin; their times follow, so their names sort by age."""

KEPT_BRANCHES = 3
"""How many of the newest stay."""

STILL_TIME = timedelta(days=1)
"""Somebody may still work on a branch that has moved since: a run that hangs, or a person."""

UNUSED_TIME = timedelta(days=14)
"""So long a branch stays that is called by the run of Airflow which somebody has started."""

_OF_A_RUN = re.compile(r"backfill-(?:manual|operator_triggered|asset_triggered)__.*-[0-9a-f]{8}")
"""How a branch is called by such a run (``headrace_airflow/run_ids``)."""

_DROP_ATTEMPTS = 5


@dataclass(frozen=True)
class DroppedBranch:
    """A branch that was dropped, the snapshot that it was at (None: it had none), and when it last moved."""

    name: str
    snapshot: str | None
    moved_at: datetime | None

    def __str__(self) -> str:
        moved_text = "" if self.moved_at is None else f", unchanged since {self.moved_at:%Y-%m-%dT%H:%MZ}"
        return f"{self.name} (at {self.snapshot or 'no snapshot'}{moved_text})"


def drop_abandoned(
    catalog: Catalog, own: str, now: datetime, find_awaited: Callable[[], Set[str]]
) -> list[DroppedBranch]:
    """Drop the branches of the schedule's runs before that of ``own``, but not the newest, nor those that changed
    shortly (STILL_TIME) before ``now``. Drop also unused branches of runs that people have started. Branches stay that
    are awaited, as ``find_awaited`` says: a run is not done with them, and may wait for a person.

    Whether anything was done is decided on the very head of the log that the drop follows. A run that is at work all
    the same is fenced by it. What cannot be dropped because others write all the time is left to the next run.
    """
    dropped_branches: list[DroppedBranch] = []
    head = catalog.head()
    old_branches = dict.fromkeys(_old_branches(head, own), STILL_TIME) | dict.fromkeys(
        _of_people(head, own), UNUSED_TIME
    )
    staying = find_awaited() if old_branches else frozenset()
    for name, idle_time in old_branches.items():
        if name in staying:
            continue
        for _ in range(_DROP_ATTEMPTS):
            head = catalog.head()
            branch = DroppedBranch(name, head.refs.get(name), max(_times_of_moves(catalog, head, name), default=None))
            if name not in head.generations or (branch.moved_at is not None and branch.moved_at > now - idle_time):
                break
            with suppress(PublishConflictError):  # somebody did something meanwhile
                catalog.drop(name, f"dropped {name}, which was never promoted", expected=head.entry)
                dropped_branches.append(branch)
                break
    return dropped_branches


def how_long(name: str) -> str:
    """How long a branch of that name stays that nobody promotes, in words."""
    if name.startswith(SCHEDULED_PREFIX):
        return f"until the schedule has {KEPT_BRANCHES} newer ones"
    return (
        f"until it has not changed for {UNUSED_TIME.days} days" if _OF_A_RUN.fullmatch(name) else "until it is dropped"
    )


def _old_branches(head: Head, own: str) -> list[str]:
    names = sorted(name for name in head.generations if name.startswith(SCHEDULED_PREFIX) and name < own)
    return names[:-KEPT_BRANCHES]


def _of_people(head: Head, own: str) -> list[str]:
    return sorted(name for name in head.generations if _OF_A_RUN.fullmatch(name) and name != own)


def _times_of_moves(catalog: Catalog, head: Head, name: str) -> Iterator[datetime]:
    """When the branch was made, claimed or committed to, as far as that can still be told."""
    generation = head.generations.get(name)
    if generation is not None:
        for entry in catalog.list_entries(generation + 1, 1):  # that of the generation, or one before it
            yield datetime.fromisoformat(entry.at).astimezone(UTC)
    if name in head.refs:
        with suppress(BrokenObjectError, MissingSnapshotError):
            yield datetime.fromisoformat(catalog.manifest(head.refs[name]).created_at).astimezone(UTC)
