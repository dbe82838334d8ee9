"""Processes that send each other messages, one event after another, and Chandy and Lamport's snapshots of them.

Theory of operation
-------------------
A *process* has a state. In an *event* it receives a message, or acts by itself; then it may have another state, and
sends messages. Between two events there is the *global state*: the states of all processes and the contents of all
channels. Which of the events that are possible comes next is drawn by lot, so a run is one *interleaving* of many.

No process can see a global state. A snapshot puts one together of what processes record at different moments, and that
one may never have been there. But it could have been (Chandy and Lamport 1985, theorem 1). Take the events between the
beginning of a snapshot and its end. Let all that came before their process recorded its state be first, and the others
behind them, each part in its order. That is a run too: it begins and ends in the same global states, and between its
two parts is exactly what was recorded.

So *stable* properties, which hold for ever once they hold, can be read off a snapshot. One that holds of the recorded
state holds at the end of the snapshot; one that held at its beginning holds of the recorded state. What a property says
must be about states and channels together: an idle process does not mean that nothing is on its way to it.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from headrace_lab.simulation.graphs import Graph
from headrace_snapshots.protocol import barriers, coordinator
from headrace_snapshots.protocol.barriers import ORDER, RULES, Barrier, Record, SnapshotId, Task
from headrace_snapshots.protocol.coordinator import Coordinator, CoordinatorEvent

MOST_IN_FLIGHT = 2


class GlobalState(NamedTuple):
    """The state of every process, and the messages in every channel, in their order."""

    states: tuple[Any, ...]
    channels: tuple[tuple[Any, ...], ...]


class ProcessStep(NamedTuple):
    """What a process does in an event: its state behind it, and messages with the channels on which they go out."""

    state: Hashable
    sent: tuple[tuple[int, Hashable], ...] = ()


class ProcessBehaviour(Protocol):
    """What processes do, and a stable property of it. States and messages are immutable values."""

    @property
    def graph(self) -> Graph:
        """The processes and their channels."""

    def first(self, process: int) -> Hashable:
        """The state in which a process begins."""

    def act(self, process: int, state: Any, random: Random) -> ProcessStep | None:
        """What it does by itself; None: nothing, until it receives a message."""

    def receive(self, process: int, state: Any, channel: int, message: Any) -> ProcessStep:
        """What it does with a message."""

    def holds_of(self, state: GlobalState) -> frozenset[int]:
        """The processes of which the stable property holds."""


class Event(NamedTuple):
    """A process changed its state ``before`` for that of ``step``; ``received``: a channel and its message, if any."""

    process: int
    before: Any
    received: tuple[int, Any] | None
    step: ProcessStep


@dataclass(frozen=True)
class RecordedSnapshot:
    """``recorded``, and the global states at ``start`` and ``end``, which ``events`` lie between.

    ``recorded_at`` says of each process how many of these events came before it recorded its state. ``begun_at``: how
    many events of the run came before the start.
    """

    begun_at: int
    start: GlobalState
    recorded: GlobalState
    end: GlobalState
    events: Sequence[Event]
    recorded_at: Sequence[int]


@dataclass
class _Part:
    """What a process records: its state, after how many events of the run, and what was on its way to it."""

    state: Any
    at: int
    log: dict[int, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Beginning:
    at: int
    state: GlobalState
    parts: dict[int, _Part] = field(default_factory=dict)


class Processes:
    """A run of ``behaviour``: ``run`` it, then look at ``snapshots``.

    A snapshot is due every so many events, and at last when nothing happens any more. Channels that are not first in,
    first out (``is_fifo``) show why they must be.
    """

    def __init__(self, behaviour: ProcessBehaviour, seed: int, every: int, *, is_fifo: bool = True) -> None:
        self.behaviour, self.graph = behaviour, behaviour.graph
        self.events: list[Event] = []
        self.snapshots: list[RecordedSnapshot] = []
        self.begun = 0
        self._random, self._every, self._is_fifo = Random(seed), every, is_fifo
        self._states: list[Any] = [behaviour.first(process) for process in range(self.graph.tasks)]
        self._channels: list[deque[Any]] = [deque() for _ in self.graph.channels]
        rules = RULES[barriers.Protocol.CHANDY_LAMPORT]
        self._roles = [Task(rules, inputs) for inputs in self.graph.inputs]
        self._coordinator = Coordinator(range(self.graph.tasks), most_in_flight=MOST_IN_FLIGHT)
        self._beginnings: dict[SnapshotId, _Beginning] = {}
        self._possible: list[tuple[str, int, SnapshotId | None]] = []
        self._may_act = [False for _ in self._states]
        for process in range(self.graph.tasks):
            self._let_act(process)

    @property
    def state(self) -> GlobalState:
        """The global state now, without barriers."""
        channels = (tuple(m for m in queue if not isinstance(m, SnapshotId)) for queue in self._channels)
        return GlobalState(tuple(self._states), tuple(channels))

    def run(self) -> None:
        """Until nothing is possible any more, and a snapshot of that is complete."""
        due = self._every
        while self._next():
            if len(self.events) >= due:
                due += self._every
                self._tell(coordinator.Due())
        self._tell(coordinator.Due())
        while self._next():
            pass

    def _next(self) -> bool:
        """One of the possible events, or of the barriers and orders on their way; whether there was any."""
        if not self._possible:
            return False
        place = self._random.randrange(len(self._possible))
        self._possible[place], self._possible[-1] = self._possible[-1], self._possible[place]
        kind, number, snapshot = self._possible.pop()
        if snapshot is not None:
            self._perform(number, self._roles[number].receive(Barrier(ORDER, snapshot)))
        elif kind == "act":
            self._may_act[number] = False
            if step := self.behaviour.act(number, self._states[number], self._random):
                self._happen(number, None, step)
        else:
            self._arrive(number)
        return True

    # Events

    def _happen(self, process: int, arrival: tuple[int, Any] | None, step: ProcessStep) -> None:
        self.events.append(Event(process, self._states[process], arrival, step))
        self._states[process] = step.state
        for channel, message in step.sent:
            self._send(channel, message)
        self._let_act(process)

    def _let_act(self, process: int) -> None:
        if not self._may_act[process]:
            self._may_act[process] = True
            self._possible.append(("act", process, None))

    def _send(self, channel: int, message: Any) -> None:
        self._channels[channel].append(message)
        self._possible.append(("arrive", channel, None))

    def _arrive(self, channel: int) -> None:
        queue = self._channels[channel]
        if not self._is_fifo:
            queue.rotate(-self._random.randrange(len(queue)))
        message, process = queue.popleft(), self.graph.channels[channel][1]
        if isinstance(message, SnapshotId):
            self._perform(process, self._roles[process].receive(Barrier(channel, message)))
            return
        for effect in self._roles[process].receive(Record(channel)):
            if isinstance(effect, barriers.Log):
                self._beginnings[effect.snapshot].parts[process].log.setdefault(channel, []).append(message)
        step = self.behaviour.receive(process, self._states[process], channel, message)
        self._happen(process, (channel, message), step)

    # Snapshots

    def _perform(self, process: int, effects: Sequence[barriers.TaskEffect]) -> None:
        for effect in effects:
            match effect:
                case barriers.TakeState(snapshot):
                    part = _Part(self._states[process], len(self.events))
                    self._beginnings[snapshot].parts[process] = part
                case barriers.Forward(snapshot):
                    for channel in self.graph.outputs[process]:
                        self._send(channel, snapshot)
                case barriers.Acknowledge(snapshot):
                    self._tell(coordinator.Acknowledged(process, snapshot))
                case barriers.Decline(snapshot):
                    self._tell(coordinator.Declined(snapshot))

    def _tell(self, event: CoordinatorEvent) -> None:
        for effect in self._coordinator.receive(event):
            match effect:
                case coordinator.Order(snapshot):
                    self.begun += 1
                    self._beginnings[snapshot] = _Beginning(len(self.events), self.state)
                    self._possible += [("order", process, snapshot) for process in self.graph.starts]
                case coordinator.CommitSnapshot(snapshot):
                    self.snapshots.append(self._complete(self._beginnings[snapshot]))
                    self._tell(coordinator.Committed(snapshot))

    def _complete(self, beginning: _Beginning) -> RecordedSnapshot:
        parts: Mapping[int, _Part] = beginning.parts
        logs = (parts[task].log.get(channel, ()) for channel, (_, task) in enumerate(self.graph.channels))
        recorded_global_state = GlobalState(
            tuple(parts[p].state for p in range(self.graph.tasks)), tuple(map(tuple, logs))
        )
        return RecordedSnapshot(
            begun_at=beginning.at,
            start=beginning.state,
            recorded=recorded_global_state,
            end=self.state,
            events=self.events[beginning.at :],
            recorded_at=[parts[process].at - beginning.at for process in range(self.graph.tasks)],
        )
