"""The barrier protocol: its messages, its tables of transitions, and the role of a task. No I/O, no clock.

A task is told *events*, and its driver then does *effects*. A table is rows of (state, event, condition) and (next
state, actions), read from the top.

Theory of operation
-------------------
Tasks send each other records over channels that are reliable and first in, first out. A snapshot divides all that
happens into *before* and *after*, at each task at a moment of its own. The parts fit together: what one task has
received before its moment, another has sent before its own. A *barrier* marks the moment in every channel: what is sent
ahead of it is before, what follows is after. A task sends barrier n on all outputs at the moment at which it takes part
n of its state, between two records. So a part fits under two conditions. The task has processed nothing from after a
barrier n when it takes its part. What it gets later from ahead of one is kept beside the part. Protocols differ in two
choices:

===================  ======================  =========================  ==========================================
protocol             takes its part          holds back meanwhile       channel contents in the snapshot
===================  ======================  =========================  ==========================================
aligned              with barrier n on all   regular inputs that have   of back-edges only
                     regular inputs          barrier n
unaligned            with the first          nothing                    of every input
                     barrier n
chandy-lamport       with the first          nothing                    of every input
                     barrier n, or by order
synchronous          by order                everything, until the      of every input
                                             coordinator resumes it
at-least-once        with barrier n on all   nothing                    of back-edges only
                     regular inputs
===================  ======================  =========================  ==========================================

*What is recorded* follows from that. When a task takes its part, something from before is still to come on the inputs
without barrier n. It is logged until barrier n comes, and the task acknowledges its part when none is left.

* *Aligned* on a graph without loops is algorithm 1 of Carbone et al. (arXiv:1506.08603): no input is left, so a
  snapshot has no channel contents. With loops it is algorithm 2: a barrier can only come round a loop after the task
  has sent it. So the task does not wait for its *back-edges* (one channel in each loop, found by depth-first search),
  but logs them.
* *Unaligned* never waits: it is the algorithm of Chandy and Lamport (1985), begun at the sources. Under the name
  *chandy-lamport* it begins at any tasks of any graph from which all others can be reached.
* *Synchronous* stops the world. All tasks are ordered to stop, what is under way is logged, and nothing is processed
  before the coordinator has the whole snapshot. Carbone et al. compare with it, with Naiad as their example.
* *At-least-once* does not hold back what follows a barrier: it is counted before, and comes again after a restore. A
  snapshot loses nothing, but may count twice.

Snapshots are numbered upwards, and barriers keep that order in each channel. Several may be in flight: a part that logs
does not hinder the next. So if barrier m comes on an input that still misses barrier n < m, a task upstream has given n
up. The task then gives n up as well and declines it (*overtaken*). Where the world is stopped every newer barrier says
so, since a new one begins only when the old one has ended. The task goes on with what it held, and comes to the barrier
after that. The coordinator's own order (*abandon*) does the same and may be lost. A task ignores what still comes of a
closed snapshot. A number has the coordinator's generation in front, so that of two coordinators the newer one's
snapshots overtake the other's.

To the protocol a record is nothing but its channel: effects say what the driver does with the one at hand. The driver
keeps what is held back in the order of each channel, and gives nothing from a blocked channel to the task.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from headrace.errors import GiveUpError

ORDER: Final = -1
"""The input on which the coordinator's orders come."""


class SnapshotId(NamedTuple):
    """Snapshots in their order: those of a newer generation of coordinators come later."""

    generation: int
    number: int


# Events: what a task is told.


class Barrier(NamedTuple):
    """``snapshot``'s barrier came on ``channel``; from the coordinator (its order to begin) on ORDER."""

    channel: int
    snapshot: SnapshotId


class Record(NamedTuple):
    """A record came on ``channel``."""

    channel: int


class Abandon(NamedTuple):
    """The coordinator gave ``snapshot`` up."""

    snapshot: SnapshotId


class Resume(NamedTuple):
    """The coordinator has ``snapshot``: a task that stopped for it goes on."""

    snapshot: SnapshotId


TaskEvent = Barrier | Record | Abandon | Resume


# Effects: what its driver does, in this order.


class TakeState(NamedTuple):
    """Keep the task's state as it is now as its part of ``snapshot``."""

    snapshot: SnapshotId


class Forward(NamedTuple):
    """Send ``snapshot``'s barrier on all outputs, after all that was sent."""

    snapshot: SnapshotId


class Block(NamedTuple):
    """Give the task nothing more from ``channel``."""

    channel: int


class Unblock(NamedTuple):
    """Go on with ``channel``, first with what waited."""

    channel: int


class Log(NamedTuple):
    """Keep the record at hand with the part of ``snapshot``."""

    snapshot: SnapshotId


class Deliver(NamedTuple):
    """Process the record at hand."""


class Hold(NamedTuple):
    """Keep the record or barrier at hand until Release; then the task receives it again, in its channel's order."""


class Release(NamedTuple):
    """Go on with what was held."""


class Acknowledge(NamedTuple):
    """The part of ``snapshot`` is whole: store it, then tell the coordinator."""

    snapshot: SnapshotId


class Decline(NamedTuple):
    """Tell the coordinator that this task will never have its part of ``snapshot``."""

    snapshot: SnapshotId


class Discard(NamedTuple):
    """Forget the part of ``snapshot``."""

    snapshot: SnapshotId


TaskEffect = TakeState | Forward | Block | Unblock | Log | Deliver | Hold | Release | Acknowledge | Decline | Discard


Context = TypeVar("Context")
Effect = TypeVar("Effect")


class ProtocolError(GiveUpError, code="give_up.protocol"):
    """The driver of a role told it something that cannot happen: a mistake in the driver."""


@dataclass(frozen=True)
class Row(Generic[Context, Effect]):
    """In one of ``states``, on ``event``, ``when`` (None: always): go to ``then`` (None: stay) and do what ``do`` says.

    Conditions and actions are called by the names of their functions wherever the table is shown.
    """

    states: tuple[StrEnum, ...]
    event: StrEnum
    when: Callable[[Context], bool] | None
    then: StrEnum | None
    do: tuple[Callable[[Context], Sequence[Effect]], ...] = ()


class Table(Generic[Context, Effect]):
    """Rows by state and event. The first whose condition holds decides."""

    def __init__(self, rows: Sequence[Row[Context, Effect]]) -> None:
        self.rows = tuple(rows)
        self._rows_by_case: Mapping[tuple[StrEnum, StrEnum], list[Row[Context, Effect]]] = {
            (state, event): [row for row in rows if state in row.states and row.event == event]
            for state in {state for row in rows for state in row.states}
            for event in {row.event for row in rows}
        }

    def step(self, state: StrEnum, event: StrEnum, context: Context) -> tuple[StrEnum, list[Effect]]:
        """The next state, and the effects in order. Raises ProtocolError where no row fits."""
        for row in self._rows_by_case.get((state, event), ()):
            if row.when is None or row.when(context):
                effects: list[Effect] = []
                for action in row.do:
                    effects += action(context)
                return row.then or state, effects
        raise ProtocolError(f"nothing is said about {event.value!r} in state {state.value!r}")


# The two choices that make a protocol.


class TakesAt(StrEnum):
    """When a task takes its part."""

    FIRST_BARRIER = "first barrier"
    ALIGNMENT = "alignment"


class Holds(StrEnum):
    """What a task does not process meanwhile."""

    NOTHING = "nothing"
    MARKED_INPUTS = "marked inputs"
    EVERYTHING = "everything"


class Rules(msgspec.Struct, frozen=True):
    """A protocol."""

    takes_at: TakesAt
    holds: Holds


class Protocol(StrEnum):
    """The protocols by name."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    CHANDY_LAMPORT = "chandy-lamport"
    SYNCHRONOUS = "synchronous"
    AT_LEAST_ONCE = "at-least-once"


RULES: Final[Mapping[Protocol, Rules]] = {
    Protocol.ALIGNED: Rules(TakesAt.ALIGNMENT, Holds.MARKED_INPUTS),
    Protocol.UNALIGNED: Rules(TakesAt.FIRST_BARRIER, Holds.NOTHING),
    Protocol.CHANDY_LAMPORT: Rules(TakesAt.FIRST_BARRIER, Holds.NOTHING),
    Protocol.SYNCHRONOUS: Rules(TakesAt.FIRST_BARRIER, Holds.EVERYTHING),
    Protocol.AT_LEAST_ONCE: Rules(TakesAt.ALIGNMENT, Holds.NOTHING),
}


# The table.


class PartState(StrEnum):
    """How far a task is with its part of a snapshot."""

    EXPECTED = "expected"
    ALIGNING = "aligning"
    LOGGING = "logging"
    STOPPED = "stopped"
    CLOSED = "closed"


class PartEvent(StrEnum):
    """What a part of a snapshot hears."""

    BARRIER = "barrier"
    RECORD = "record"
    OVERTAKEN = "overtaken"
    ABANDON = "abandon"
    RESUME = "resume"


@dataclass
class _SnapshotPart:
    snapshot: SnapshotId
    waiting: set[int]
    """The inputs on which the barrier has not come."""
    state: StrEnum = PartState.EXPECTED
    blocked: list[int] = field(default_factory=list)


class _TaskFacts(NamedTuple):
    """What conditions and actions look at."""

    task: "Task"
    part: _SnapshotPart
    channel: int


def is_whole_and_stops(facts: _TaskFacts) -> bool:
    """The barrier is on all inputs, and the protocol stops the world."""
    return not facts.part.waiting and facts.task.rules.holds is Holds.EVERYTHING


def is_whole(facts: _TaskFacts) -> bool:
    """The barrier is on all inputs."""
    return not facts.part.waiting


def takes_its_part(facts: _TaskFacts) -> bool:
    """The moment has come; some inputs may still have to be logged."""
    return facts.task.rules.takes_at is TakesAt.FIRST_BARRIER or facts.part.waiting <= facts.task.back_edges


def is_before_the_barrier(facts: _TaskFacts) -> bool:
    """The record came ahead of the barrier."""
    return facts.channel in facts.part.waiting


def take(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """The part is the state as it is."""
    facts.task.taken = facts.part.snapshot
    return (TakeState(facts.part.snapshot),)


def forward(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """The barrier goes out."""
    return (Forward(facts.part.snapshot),)


def hold_back(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """What follows the barrier waits, if the protocol aligns."""
    task, part, channel = facts
    if task.rules.holds is not Holds.MARKED_INPUTS or channel == ORDER or channel in task.back_edges:
        return ()
    part.blocked.append(channel)
    task.blocked.add(channel)
    return (Block(channel),)


def unblock(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """Inputs that were held back go on."""
    blocked_channels, facts.part.blocked = facts.part.blocked, []
    facts.task.blocked.difference_update(blocked_channels)
    return tuple(Unblock(channel) for channel in blocked_channels)


def release(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """A task that was stopped goes on."""
    return (Release(),) if facts.task.rules.holds is Holds.EVERYTHING else ()


def log(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """The record is kept with the part."""
    return (Log(facts.part.snapshot),)


def acknowledge(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """The coordinator learns of the part once it is stored."""
    return (Acknowledge(facts.part.snapshot),)


def decline(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """The coordinator learns that there will be none."""
    return (Decline(facts.part.snapshot),)


def discard(facts: _TaskFacts) -> tuple[TaskEffect, ...]:
    """What was kept is forgotten."""
    return (Discard(facts.part.snapshot),)


_S, _E = PartState, PartEvent
_BEFORE_BARRIER = (_S.EXPECTED, _S.ALIGNING)
_TaskRow = Row[_TaskFacts, TaskEffect]

TASK_TABLE: Final = Table[_TaskFacts, TaskEffect](
    [
        _TaskRow(_BEFORE_BARRIER, _E.BARRIER, is_whole_and_stops, _S.STOPPED, (take, forward, acknowledge)),
        _TaskRow(_BEFORE_BARRIER, _E.BARRIER, is_whole, _S.CLOSED, (take, forward, unblock, acknowledge)),
        _TaskRow(_BEFORE_BARRIER, _E.BARRIER, takes_its_part, _S.LOGGING, (take, forward, unblock)),
        _TaskRow(_BEFORE_BARRIER, _E.BARRIER, None, _S.ALIGNING, (hold_back,)),
        _TaskRow((_S.LOGGING,), _E.BARRIER, is_whole_and_stops, _S.STOPPED, (acknowledge,)),
        _TaskRow((_S.LOGGING,), _E.BARRIER, is_whole, _S.CLOSED, (acknowledge,)),
        _TaskRow((_S.LOGGING,), _E.BARRIER, None, None),
        _TaskRow((_S.LOGGING,), _E.RECORD, is_before_the_barrier, None, (log,)),
        _TaskRow((_S.ALIGNING, _S.LOGGING, _S.STOPPED), _E.RECORD, None, None),
        _TaskRow((_S.ALIGNING, _S.LOGGING), _E.OVERTAKEN, None, _S.CLOSED, (discard, unblock, release, decline)),
        _TaskRow((_S.STOPPED,), _E.OVERTAKEN, None, _S.CLOSED, (release,)),
        _TaskRow((_S.ALIGNING, _S.LOGGING, _S.STOPPED), _E.ABANDON, None, _S.CLOSED, (discard, unblock, release)),
        _TaskRow((_S.EXPECTED, _S.CLOSED), _E.ABANDON, None, _S.CLOSED),
        _TaskRow((_S.STOPPED,), _E.RESUME, None, _S.CLOSED, (release,)),
        _TaskRow((_S.STOPPED, _S.CLOSED), _E.BARRIER, None, None),
        _TaskRow((_S.EXPECTED, _S.CLOSED), _E.RESUME, None, None),
    ]
)

_FIRST_SNAPSHOT: Final = SnapshotId(-1, -1)
ONLY_DELIVER: Final[Sequence[TaskEffect]] = (Deliver(),)
"""What becomes of a record while no snapshot is under way."""


class Task:
    """The role of a task: ``receive`` events, do the effects. All that it knows is its inputs and the rules.

    ``is_start``: the coordinator's orders come to it. ``restored_snapshot``: the snapshot that it starts from; what is
    left of that one and older ones is ignored.
    """

    def __init__(
        self,
        rules: Rules,
        inputs: Collection[int],
        back_edges: Collection[int] = (),
        *,
        is_start: bool = False,
        restored_snapshot: SnapshotId | None = None,
    ) -> None:
        self.rules = rules
        self.inputs = {*inputs}
        self.back_edges = frozenset(back_edges)
        self.blocked: set[int] = set()
        self.taken = restored_snapshot or _FIRST_SNAPSHOT
        self._waits_for_order = is_start and rules.takes_at is TakesAt.ALIGNMENT
        self._parts: dict[SnapshotId, _SnapshotPart] = {}
        self._given_up: set[SnapshotId] = set()

    @property
    def is_stopped(self) -> bool:
        """Whether it may process nothing, and (a source) send nothing."""
        return self.rules.holds is Holds.EVERYTHING and bool(self._parts)

    def connect(self, channel: int) -> None:
        """A new input. Only while no snapshot is in flight anywhere: of one that is, nobody knows what is before it."""
        self.inputs.add(channel)

    def receive(self, event: TaskEvent) -> Sequence[TaskEffect]:
        """The effects of ``event``. Raises ProtocolError for what comes on a blocked or unknown channel."""
        match event:
            case Record(channel):
                return self._receive_record(channel)
            case Barrier(channel, snapshot):
                return self._receive_barrier(channel, snapshot)
            case Abandon(snapshot):
                return self._step_part(self._part_of_snapshot(snapshot), PartEvent.ABANDON, ORDER)
            case Resume(snapshot):
                return self._step_part(self._part_of_snapshot(snapshot), PartEvent.RESUME, ORDER)

    def _receive_record(self, channel: int) -> Sequence[TaskEffect]:
        self._require_open(channel)
        if not self._parts:
            return ONLY_DELIVER
        effects: list[TaskEffect] = []
        for part in self._parts.values():
            effects += self._step_part(part, PartEvent.RECORD, channel)
        effects.append(Hold() if self.is_stopped else Deliver())
        return effects

    def _receive_barrier(self, channel: int, snapshot: SnapshotId) -> list[TaskEffect]:
        if channel != ORDER:
            self._require_open(channel)
        overtaken = [part for part in self._parts.values() if self._is_overtaken(part, snapshot, channel)]
        comes_again = bool(overtaken) and self.is_stopped and channel != ORDER
        effects: list[TaskEffect] = [Hold()] if comes_again else []
        for older in overtaken:
            effects += self._step_part(older, PartEvent.OVERTAKEN, channel)
        if comes_again:
            return effects
        part = self._part_of_snapshot(snapshot)
        part.waiting.discard(channel)
        return effects + self._step_part(part, PartEvent.BARRIER, channel)

    def _is_overtaken(self, part: _SnapshotPart, newer: SnapshotId, channel: int) -> bool:
        """Whether ``newer``'s barrier on ``channel`` says that nothing more comes of ``part``."""
        return part.snapshot < newer and (channel in part.waiting or self.rules.holds is Holds.EVERYTHING)

    def _part_of_snapshot(self, snapshot: SnapshotId) -> _SnapshotPart:
        if part := self._parts.get(snapshot):
            return part
        if snapshot <= self.taken or snapshot in self._given_up:
            return _SnapshotPart(snapshot, set(), PartState.CLOSED)
        return _SnapshotPart(snapshot, {*self.inputs, ORDER} if self._waits_for_order else {*self.inputs})

    def _step_part(self, part: _SnapshotPart, event: PartEvent, channel: int) -> list[TaskEffect]:
        part.state, effects = TASK_TABLE.step(part.state, event, _TaskFacts(self, part, channel))
        if part.state is PartState.CLOSED:
            self._parts.pop(part.snapshot, None)
            self._given_up = {snapshot for snapshot in (*self._given_up, part.snapshot) if snapshot > self.taken}
        elif part.state is not PartState.EXPECTED:
            self._parts[part.snapshot] = part
        return effects

    def _require_open(self, channel: int) -> None:
        if channel in self.blocked or channel not in self.inputs:
            raise ProtocolError(f"channel {channel} is {'blocked' if channel in self.blocked else 'no input'}")
