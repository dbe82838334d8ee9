"""The coordinator's role in the barrier protocol: begin snapshots, count acknowledgements, decide what is whole.

Theory of operation
-------------------
A snapshot is *begun* by ordering the starting tasks to send its barrier. It is *whole* when every task has acknowledged
its part. It is *complete* when the log of snapshots names it (*commit*: one conditional put, which a newer
coordinator's claim makes fail). Only a complete snapshot is ever restored. Everything else may be lost at any time:
orders, acknowledgements, tasks, this coordinator.

* Several snapshots may be in flight, up to a limit; one that falls due beyond the limit is left out. They are committed
  one at a time and in order. A snapshot that is whole makes older ones that are not yet whole useless: they are given
  up.
* A snapshot that takes too long is given up. The driver keeps the time: it was told to start a timer, and says when
  that ends. Drivers repeat a message until it is confirmed, up to a number of tries, so any message may come twice. If
  all tries of an order or an acknowledgement are lost, it costs one snapshot, never more. So does a task that declines.
* When a task is lost, everything that is in flight goes, and all tasks go back to the newest complete snapshot. A part
  of the graph alone would not fit the rest. A commit that is under way is waited for first, since nobody knows yet
  which snapshot is the newest. Tasks that are lost meanwhile only mean going back again, as another *attempt*.
* A coordinator that is lost leaves nothing behind but the log. The next one has a greater generation, which goes in
  front of its snapshots' numbers. Barriers of its own overtake those of the other, and acknowledgements of the other's
  snapshots mean nothing to it. The other's commits fail, as must its restores. One whose commit fails so is *fenced*,
  and does nothing more.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from headrace_snapshots.protocol.barriers import Row, SnapshotId, Table

# Events: what the coordinator is told.


class Due(NamedTuple):
    """A snapshot is due."""


class Acknowledged(NamedTuple):
    """``task`` has stored its part of ``snapshot``."""

    task: int
    snapshot: SnapshotId


class Declined(NamedTuple):
    """A task will never have its part of ``snapshot``."""

    snapshot: SnapshotId


class TimedOut(NamedTuple):
    """The timer of ``snapshot`` ended."""

    snapshot: SnapshotId


class Committed(NamedTuple):
    """The log names ``snapshot``."""

    snapshot: SnapshotId


class CommitFenced(NamedTuple):
    """The commit of ``snapshot`` failed: a newer coordinator has the log, or this one cannot write to it any more."""

    snapshot: SnapshotId


class TaskLost(NamedTuple):
    """A task is gone."""


class Restored(NamedTuple):
    """All tasks have gone back, as told by ``attempt``."""

    attempt: int


CoordinatorEvent = Due | Acknowledged | Declined | TimedOut | Committed | CommitFenced | TaskLost | Restored


# Effects: what its driver does, in this order.


class Order(NamedTuple):
    """Tell the starting tasks to begin ``snapshot``; where the world is to stop, all tasks."""

    snapshot: SnapshotId


class StartTimer(NamedTuple):
    """Say TimedOut when ``snapshot`` has taken too long."""

    snapshot: SnapshotId


class CommitSnapshot(NamedTuple):
    """Append ``snapshot`` to the log, if this generation still has it; then say Committed or CommitFenced."""

    snapshot: SnapshotId


class Announce(NamedTuple):
    """Tell all tasks that ``snapshot`` is complete."""

    snapshot: SnapshotId


class GiveUp(NamedTuple):
    """Tell all tasks that ``snapshot`` is abandoned."""

    snapshot: SnapshotId


class Restore(NamedTuple):
    """Bring all tasks back to ``snapshot`` (None: to the beginning), channels emptied; then say Restored."""

    snapshot: SnapshotId | None
    attempt: int


CoordinatorEffect = Order | StartTimer | CommitSnapshot | Announce | GiveUp | Restore


# The table.


class RunState(StrEnum):
    """What the coordinator does as a whole."""

    RUNNING = "running"
    SETTLING = "settling"
    RESTORING = "restoring"
    FENCED = "fenced"


class RunEvent(StrEnum):
    """What the coordinator as a whole hears."""

    DUE = "due"
    TASK_LOST = "task lost"
    SETTLED = "settled"
    RESTORED = "restored"
    FENCED = "fenced"


class SnapshotState(StrEnum):
    """How far a snapshot has come."""

    BEGUN = "begun"
    WHOLE = "whole"
    COMMITTING = "committing"
    COMPLETE = "complete"
    ABANDONED = "abandoned"


class SnapshotEvent(StrEnum):
    """What a snapshot hears."""

    ACKNOWLEDGED = "acknowledged"
    NEXT = "next"
    COMMITTED = "committed"
    FAILED = "failed"


@dataclass
class _Snapshot:
    id: SnapshotId
    waiting: set[int]
    state: StrEnum = SnapshotState.BEGUN


class _CoordinatorFacts(NamedTuple):
    """What conditions and actions look at: ``snapshot`` only where the row is one of a snapshot's states."""

    coordinator: "Coordinator"
    snapshot: _Snapshot | None = None


def may_begin(facts: _CoordinatorFacts) -> bool:
    """Fewer snapshots are in flight than are allowed."""
    return len(facts.coordinator.in_flight) < facts.coordinator.most_in_flight


def commits(facts: _CoordinatorFacts) -> bool:
    """A commit is under way."""
    return any(flight.state is SnapshotState.COMMITTING for flight in facts.coordinator.in_flight.values())


def is_whole(facts: _CoordinatorFacts) -> bool:
    """Every task has acknowledged."""
    return facts.snapshot is not None and not facts.snapshot.waiting


def begin(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """The next number goes out."""
    snapshot = facts.coordinator.new_snapshot()
    return (Order(snapshot), StartTimer(snapshot))


def give_up_others(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """What is in flight and is not being committed goes."""
    return facts.coordinator.give_up({SnapshotState.BEGUN, SnapshotState.WHOLE})


def give_up_older(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """Older snapshots that are not whole go."""
    return facts.coordinator.give_up({SnapshotState.BEGUN}, first_kept=_snapshot_id(facts))


def forget_all(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """What is in flight is the newer coordinator's to overtake."""
    facts.coordinator.in_flight.clear()
    return ()


def restore(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """All tasks go back to the newest complete snapshot."""
    facts.coordinator.attempt += 1
    return (Restore(facts.coordinator.complete, facts.coordinator.attempt),)


def commit(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """The log shall name it."""
    return (CommitSnapshot(_snapshot_id(facts)),)


def announce(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """Makes it the newest complete snapshot and tells all tasks."""
    facts.coordinator.complete = _snapshot_id(facts)
    return (Announce(_snapshot_id(facts)),)


def tell_all(facts: _CoordinatorFacts) -> tuple[CoordinatorEffect, ...]:
    """All tasks learn that it is abandoned."""
    return (GiveUp(_snapshot_id(facts)),)


def _snapshot_id(facts: _CoordinatorFacts) -> SnapshotId:
    assert facts.snapshot is not None
    return facts.snapshot.id


_R, _RE, _S, _SE = RunState, RunEvent, SnapshotState, SnapshotEvent
_CoordinatorRow = Row[_CoordinatorFacts, CoordinatorEffect]

COORDINATOR_TABLE: Final = Table[_CoordinatorFacts, CoordinatorEffect](
    [
        _CoordinatorRow((_R.RUNNING,), _RE.DUE, may_begin, None, (begin,)),
        _CoordinatorRow((_R.RUNNING, _R.SETTLING, _R.RESTORING), _RE.DUE, None, None),
        _CoordinatorRow((_R.RUNNING,), _RE.TASK_LOST, commits, _R.SETTLING, (give_up_others,)),
        _CoordinatorRow((_R.RUNNING, _R.RESTORING), _RE.TASK_LOST, None, _R.RESTORING, (give_up_others, restore)),
        _CoordinatorRow((_R.SETTLING,), _RE.TASK_LOST, None, None),
        _CoordinatorRow((_R.SETTLING,), _RE.SETTLED, None, _R.RESTORING, (restore,)),
        _CoordinatorRow((_R.RUNNING,), _RE.SETTLED, None, None),
        _CoordinatorRow((_R.RESTORING,), _RE.RESTORED, None, _R.RUNNING),
        _CoordinatorRow((_R.RUNNING, _R.SETTLING), _RE.FENCED, None, _R.FENCED, (forget_all,)),
        _CoordinatorRow((_R.FENCED,), _RE.DUE, None, None),
        _CoordinatorRow((_R.FENCED,), _RE.TASK_LOST, None, None),
        _CoordinatorRow((_S.BEGUN,), _SE.ACKNOWLEDGED, is_whole, _S.WHOLE, (give_up_older,)),
        _CoordinatorRow((_S.BEGUN,), _SE.ACKNOWLEDGED, None, None),
        _CoordinatorRow((_S.WHOLE, _S.COMMITTING), _SE.ACKNOWLEDGED, None, None),
        _CoordinatorRow((_S.BEGUN,), _SE.FAILED, None, _S.ABANDONED, (tell_all,)),
        _CoordinatorRow((_S.WHOLE,), _SE.NEXT, None, _S.COMMITTING, (commit,)),
        _CoordinatorRow((_S.COMMITTING,), _SE.COMMITTED, None, _S.COMPLETE, (announce,)),
        _CoordinatorRow((_S.WHOLE, _S.COMMITTING), _SE.FAILED, None, None),
    ]
)


class Coordinator:
    """The role of the coordinator: ``receive`` events, do the effects.

    ``complete``: the newest snapshot that the log names, when ``generation`` claimed it. ``first``: the number of the
    first snapshot that it begins.
    """

    def __init__(
        self,
        tasks: Collection[int],
        *,
        generation: int = 0,
        most_in_flight: int = 1,
        complete: SnapshotId | None = None,
        first: int = 0,
    ) -> None:
        self.generation = generation
        self.most_in_flight = most_in_flight
        self.complete = complete
        self.state: StrEnum = RunState.RUNNING
        self.attempt = 0
        self.in_flight: dict[SnapshotId, _Snapshot] = {}
        self._tasks = frozenset(tasks)
        self._next_number = first

    def receive(self, event: CoordinatorEvent) -> list[CoordinatorEffect]:
        """The effects of ``event``. What is said of snapshots that are not in flight means nothing."""
        match event:
            case Due():
                return self._step_run(RunEvent.DUE)
            case TaskLost() | CommitFenced():
                return self._step_run(RunEvent.TASK_LOST if isinstance(event, TaskLost) else RunEvent.FENCED)
            case Restored(attempt):
                return self._step_run(RunEvent.RESTORED) if attempt == self.attempt else []
            case Acknowledged(task, snapshot):
                if flight := self.in_flight.get(snapshot):
                    flight.waiting.discard(task)
                return self._step_snapshot(snapshot, SnapshotEvent.ACKNOWLEDGED) + self._commit_next()
            case Declined(snapshot) | TimedOut(snapshot):
                return self._step_snapshot(snapshot, SnapshotEvent.FAILED)
            case Committed(snapshot):
                effects = self._step_snapshot(snapshot, SnapshotEvent.COMMITTED)
                return effects + self._step_run(RunEvent.SETTLED) + self._commit_next()

    @property
    def next_snapshot(self) -> SnapshotId:
        """The one that is begun next."""
        return SnapshotId(self.generation, self._next_number)

    def new_snapshot(self) -> SnapshotId:
        """A new snapshot, of which nothing is acknowledged."""
        snapshot = self.next_snapshot
        self._next_number += 1
        self.in_flight[snapshot] = _Snapshot(snapshot, {*self._tasks})
        return snapshot

    def give_up(
        self, states: Collection[StrEnum], first_kept: SnapshotId | None = None
    ) -> tuple[CoordinatorEffect, ...]:
        """Abandon what is in flight in one of ``states``, if it is older than ``first_kept``."""
        abandoned_ids = [
            s.id for s in self.in_flight.values() if s.state in states and (first_kept is None or s.id < first_kept)
        ]
        for snapshot in abandoned_ids:
            del self.in_flight[snapshot]
        return tuple(map(GiveUp, abandoned_ids))

    def _step_run(self, event: RunEvent) -> list[CoordinatorEffect]:
        self.state, effects = COORDINATOR_TABLE.step(self.state, event, _CoordinatorFacts(self))
        return effects

    def _step_snapshot(self, snapshot: SnapshotId, event: SnapshotEvent) -> list[CoordinatorEffect]:
        flight = self.in_flight.get(snapshot)
        if flight is None:
            return []
        flight.state, effects = COORDINATOR_TABLE.step(flight.state, event, _CoordinatorFacts(self, flight))
        if flight.state in {SnapshotState.COMPLETE, SnapshotState.ABANDONED}:
            del self.in_flight[snapshot]
        return effects

    def _commit_next(self) -> list[CoordinatorEffect]:
        """The oldest whole snapshot is committed, if no other one is being committed."""
        if commits(_CoordinatorFacts(self)):
            return []
        whole = [flight for flight in self.in_flight.values() if flight.state is SnapshotState.WHOLE]
        return self._step_snapshot(min(whole, key=lambda flight: flight.id).id, SnapshotEvent.NEXT) if whole else []
