"""Processes with a stable property: a computation that terminates, waits that close a circle, a token that is lost."""

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from headrace_lab.simulation.graphs import Graph
from headrace_lab.simulation.processes import GlobalState, ProcessStep

_NONE: Final = frozenset[int]()


@dataclass(frozen=True)
class DiffusingComputation:
    """Work spreads from the first process. An active process does some of what it has and sends others a share; a
    message makes its receiver active. The computation has *terminated* when all are idle and nothing is on its way.

    A state is the work that a process has left, a message the work that it brings; ``work`` is there at the beginning.
    """

    graph: Graph
    work: int

    def first(self, process: int) -> int:
        """All work is the first process's."""
        return self.work if process == 0 else 0

    def act(self, process: int, state: int, random: Random) -> ProcessStep | None:
        """Do one unit, and send a share of the rest."""
        if not state:
            return None
        outputs = self.graph.outputs[process]
        share = random.randint(0, state - 1) if outputs else 0
        return ProcessStep(state - 1 - share, ((random.choice(outputs), share),) if share else ())

    def receive(self, process: int, state: int, channel: int, message: int) -> ProcessStep:
        """There is more to do."""
        return ProcessStep(state + message)

    def holds_of(self, state: GlobalState) -> frozenset[int]:
        """All processes if the computation has terminated, else none."""
        has_ended = not any(state.states) and not any(state.channels)
        return frozenset(range(self.graph.tasks)) if has_ended else _NONE


class Say(StrEnum):
    """What processes that wait for each other say."""

    REQUEST = "request"
    GRANT = "grant"


class Waiting(NamedTuple):
    """``on``: the channel of the request that a process waits for, None if it runs; ``asked``: those of the requests
    that wait for it; ``left``: how many requests it will still make.
    """

    on: int | None
    asked: tuple[int, ...]
    left: int


def both_ways(graph: Graph) -> Graph:
    """``graph`` and, behind its channels and in their order, one back for each of them."""
    pairs_back = tuple((end, start) for start, end in graph.channels)
    return Graph(graph.tasks, graph.channels + pairs_back, graph.starts)


@dataclass(frozen=True)
class WaitForGraph:
    """A process requests something of a neighbour and does nothing before that has granted it; one that waits itself
    grants what was asked of it when it goes on. Processes are *deadlocked* if they wait in a circle, or for such ones.

    ``graph`` goes both ways (``both_ways``): a grant comes back on the counterpart of the request's channel.
    ``requests``: of each process. ``is_ordered``: only of processes with greater numbers, so that no circle can close.
    """

    graph: Graph
    requests: int
    is_ordered: bool = False

    def first(self, process: int) -> Waiting:
        """All run."""
        return Waiting(None, (), self.requests)

    def act(self, process: int, state: Waiting, random: Random) -> ProcessStep | None:
        """Request something of a neighbour, and wait."""
        if state.on is not None or not state.left:
            return None
        ways = self.graph.outputs[process]
        if self.is_ordered:
            ways = tuple(channel for channel in ways if self.graph.channels[channel][1] > process)
        if not ways:
            return None
        way = random.choice(ways)
        return ProcessStep(state._replace(on=way, left=state.left - 1), ((way, Say.REQUEST),))

    def receive(self, process: int, state: Waiting, channel: int, message: Say) -> ProcessStep:
        """Go on and grant what was asked meanwhile; or grant a request, or keep it while waiting."""
        if message is Say.GRANT:
            grants = tuple((self._reverse_channel(channel), Say.GRANT) for channel in state.asked)
            return ProcessStep(state._replace(on=None, asked=()), grants)
        if state.on is None:
            return ProcessStep(state, ((self._reverse_channel(channel), Say.GRANT),))
        return ProcessStep(state._replace(asked=(*state.asked, channel)))

    def holds_of(self, state: GlobalState) -> frozenset[int]:
        """The processes that are deadlocked: all but those that run, and those that wait for one that is not."""
        waits_for = self._waits(state)
        waiters: dict[int, list[int]] = defaultdict(list)
        for process, other in waits_for.items():
            waiters[other].append(process)
        everybody = frozenset(range(self.graph.tasks))
        to_visit, free = [*everybody - {*waits_for}], set[int]()
        while to_visit:
            process = to_visit.pop()
            free.add(process)
            to_visit += waiters[process]
        return everybody - free

    def _waits(self, state: GlobalState) -> dict[int, int]:
        """Who waits for whom, without those whose grant is on its way."""
        return {
            process: self.graph.channels[waiting.on][1]
            for process, waiting in enumerate(state.states)
            if waiting.on is not None and Say.GRANT not in state.channels[self._reverse_channel(waiting.on)]
        }

    def _reverse_channel(self, channel: int) -> int:
        channels = len(self.graph.channels)
        return (channel + channels // 2) % channels


@dataclass(frozen=True)
class TokenPassing:
    """One token goes from process to process, ``passes`` times, unless the process that has it then loses it
    ``after`` so many. It is *lost* when no process has it and no channel.

    A state, and the message that is the token: how often it may still be passed on; None: a process without it.
    """

    graph: Graph
    passes: int
    after: int | None

    def first(self, process: int) -> int | None:
        """The first process has it."""
        return self.passes if process == 0 else None

    def act(self, process: int, state: int | None, random: Random) -> ProcessStep | None:
        """Pass it on, or lose it."""
        outputs = self.graph.outputs[process]
        if state is None or not state or not outputs:
            return None
        if self.passes - state == self.after:
            return ProcessStep(None)
        return ProcessStep(None, ((random.choice(outputs), state - 1),))

    def receive(self, process: int, state: int | None, channel: int, message: int) -> ProcessStep:
        """Take it."""
        return ProcessStep(message)

    def holds_of(self, state: GlobalState) -> frozenset[int]:
        """All processes if the token is lost, else none."""
        is_lost = all(state_of is None for state_of in state.states) and not any(state.channels)
        return frozenset(range(self.graph.tasks)) if is_lost else _NONE
