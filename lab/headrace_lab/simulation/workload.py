"""What the simulated tasks compute: a dataflow whose outcome does not depend on the order in which things happen.

A record's way through the graph is a function of the record alone. A task's state is a sum over the records that came
to it. So the state at the end is the same however a run goes, and a record that is lost or counted twice shows in it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from headrace_lab.simulation.graphs import Graph

_MASK = (1 << 64) - 1


class SentRecord(NamedTuple):
    """A record in a channel: its number there, which record it is, and how often it went over a back-edge."""

    number: int
    record: int
    laps: int


@dataclass
class TaskState:
    """Records that came to the task, their sum, and how many it has emitted itself."""

    count: int = 0
    total: int = 0
    emitted: int = 0


@dataclass
class SnapshotPart:
    """A task's part of a snapshot: its state, the records received and sent by channel, and the logged ones."""

    state: TaskState
    received: Mapping[int, int]
    sent: Mapping[int, int]
    log: dict[int, list[SentRecord]] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """Emitters each emit ``records``, which go over at most ``laps`` back-edges.

    Where every task has inputs, a way without back-edges may be as long as the graph is large: every channel counts,
    and ``steps`` end it.
    """

    graph: Graph
    back_edges: frozenset[int]
    records: int
    laps: int = 2
    steps: int = 20

    @property
    def emitters(self) -> Sequence[int]:
        """The tasks without inputs, or all if there is none."""
        return [t for t in range(self.graph.tasks) if not self.graph.inputs[t]] or range(self.graph.tasks)

    @cached_property
    def _limit(self) -> tuple[frozenset[int], int]:
        """The channels that count, and how many of them a record may go over."""
        if all(self.graph.inputs):
            return frozenset(range(len(self.graph.channels))), self.steps
        return self.back_edges, self.laps

    def emit(self, task: int, number: int) -> int:
        """The name of the record that ``task`` emits after ``number`` others."""
        return task * self.records + number

    def process(self, task: int, state: TaskState, record: int, laps: int) -> tuple[int, int] | None:
        """Count a record, and say over which channel it goes on, and its laps then; None: it ends here."""
        mixed_record = (record * 0x9E3779B97F4A7C15 + task * 0xBF58476D1CE4E5B9 + laps * 0x94D049BB133111EB) & _MASK
        mixed_record = (
            (mixed_record ^ (mixed_record >> 30)) * 0xBF58476D1CE4E5B9
        ) & _MASK  # else low bits, which choose, are uneven
        mixed_record ^= mixed_record >> 31
        state.count += 1
        state.total = (state.total + mixed_record) & _MASK
        outputs: Sequence[int] = self.graph.outputs[task]
        if not outputs:
            return None
        channel = outputs[mixed_record % len(outputs)]
        counting, most = self._limit
        if channel not in counting:
            return channel, laps
        if laps < most:
            return channel, laps + 1
        outputs = [channel for channel in outputs if channel not in counting]
        return (outputs[mixed_record % len(outputs)], laps) if outputs else None

    def finish(self, parts: Sequence[SnapshotPart] | None = None) -> list[tuple[int, int]]:
        """Counts and sums of all tasks when the work is done from ``parts`` (None: from the beginning) on.

        Done one record after the other, without channels, time or snapshots.
        """
        states = [TaskState() if parts is None else TaskState(**vars(parts[t].state)) for t in range(self.graph.tasks)]
        waiting: deque[tuple[int, int, int]] = deque()
        for part in parts or ():
            waiting.extend(self._arriving(part))
        for task in self.emitters:
            waiting.extend((task, self.emit(task, n), 0) for n in range(states[task].emitted, self.records))
        while waiting:
            task, record, laps = waiting.popleft()
            if way := self.process(task, states[task], record, laps):
                channel, laps = way
                waiting.append((self.graph.channels[channel][1], record, laps))
        return [(state.count, state.total) for state in states]

    def _arriving(self, part: SnapshotPart) -> Iterable[tuple[int, int, int]]:
        for channel, records in part.log.items():
            yield from ((self.graph.channels[channel][1], message.record, message.laps) for message in records)
