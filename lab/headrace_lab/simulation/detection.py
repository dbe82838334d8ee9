"""Stable properties, detected on the recorded states of snapshots, and what the theorem says of them, checked."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from headrace_lab.simulation.behaviours import DiffusingComputation, TokenPassing, WaitForGraph, both_ways
from headrace_lab.simulation.graphs import Graph
from headrace_lab.simulation.processes import Event, GlobalState, ProcessBehaviour, Processes, RecordedSnapshot
from headrace_lab.simulation.properties import MOST_SHOWN, Property


class StableProperty(StrEnum):
    """What is detected."""

    TERMINATION = "termination"
    DEADLOCK = "deadlock"
    TOKEN_LOSS = "token-loss"  # noqa: S105


BEHAVIOURS: Final[Mapping[StableProperty, type]] = {
    StableProperty.TERMINATION: DiffusingComputation,
    StableProperty.DEADLOCK: WaitForGraph,
    StableProperty.TOKEN_LOSS: TokenPassing,
}
"""The behaviour that each property is one of."""


def behaviour(kind: StableProperty, graph: Graph, work: int) -> ProcessBehaviour:
    """Processes over ``graph`` with that property, with about so much to do for each of them; the token is lost after
    half of its way.
    """
    match kind:
        case StableProperty.TERMINATION:
            return DiffusingComputation(graph, work * graph.tasks)
        case StableProperty.DEADLOCK:
            return WaitForGraph(both_ways(graph), work)
        case StableProperty.TOKEN_LOSS:
            return TokenPassing(graph, passes=work * graph.tasks, after=work * graph.tasks // 2)


@dataclass(frozen=True)
class Detection:
    """``detected``: of how many processes each snapshot found the property; ``properties``: what must be so."""

    detected: Sequence[int]
    totals: Mapping[str, int]
    properties: Sequence[Property]

    @property
    def holds(self) -> bool:
        """Whether everything was so."""
        return all(outcome.holds for outcome in self.properties)


def detect(processes: Processes) -> Detection:
    """Run, and judge what every snapshot recorded."""
    processes.run()
    judgements = [_judge_snapshot(processes.behaviour, snapshot) for snapshot in processes.snapshots]
    detected_numbers = [len(judgement.recorded) for judgement in judgements]
    return Detection(
        detected_numbers,
        {
            "processes": processes.graph.tasks,
            "channels": len(processes.graph.channels),
            "events": len(processes.events),
            "begun": processes.begun,
            "complete": len(judgements),
            "detected": sum(map(bool, detected_numbers)),
            "processes_at_last": detected_numbers[-1] if detected_numbers else 0,
            "logged": sum(len(log) for snapshot in processes.snapshots for log in snapshot.recorded.channels),
        },
        [
            _property("completion", [] if judgements else ["no snapshot became complete"]),
            _property(
                "reachability", (problem for judgement in judgements for problem in _unreachable(judgement.snapshot))
            ),
            _property("stability", (problem for judgement in judgements for problem in judgement.without_stability())),
            _property("detection", (problem for judgement in judgements for problem in judgement.missed_processes())),
        ],
    )


@dataclass(frozen=True)
class _Judgement:
    """A snapshot, and of which processes the property held."""

    snapshot: RecordedSnapshot
    start: frozenset[int]
    recorded: frozenset[int]
    end: frozenset[int]

    @property
    def _name(self) -> str:
        return f"the snapshot begun after event {self.snapshot.begun_at}"

    def without_stability(self) -> Iterator[str]:
        """What was found in the recorded state holds at the end."""
        if lost_processes := sorted(self.recorded - self.end):
            shown_processes = lost_processes[:MOST_SHOWN]
            yield f"{self._name} found it of processes {shown_processes}, of which it did not hold at its end"

    def missed_processes(self) -> Iterator[str]:
        """What held at the beginning is found in the recorded state."""
        if missed_start := sorted(self.start - self.recorded):
            shown_processes = missed_start[:MOST_SHOWN]
            yield f"{self._name} did not find it of processes {shown_processes}, of which it held at its beginning"


def _judge_snapshot(behaviour: ProcessBehaviour, snapshot: RecordedSnapshot) -> _Judgement:
    states = (snapshot.start, snapshot.recorded, snapshot.end)
    return _Judgement(snapshot, *map(behaviour.holds_of, states))


def _property(name: str, problems: Iterable[str]) -> Property:
    return Property(name, [*islice(problems, MOST_SHOWN)])


class _ImpossibleError(Exception):
    """An event does not fit where it is."""


def _unreachable(snapshot: RecordedSnapshot) -> Iterator[str]:
    """The events before their processes recorded, then the others: a run from start to end through the recorded state
    (Chandy and Lamport, theorem 1).
    """
    events_before = [
        event for number, event in enumerate(snapshot.events) if number < snapshot.recorded_at[event.process]
    ]
    events_behind = [
        event for number, event in enumerate(snapshot.events) if number >= snapshot.recorded_at[event.process]
    ]
    name = f"the snapshot begun after event {snapshot.begun_at}"
    try:
        if _state_after(snapshot.start, events_before) != snapshot.recorded:
            yield f"{name}: what it recorded is not what is there after the {len(events_before)} events before it"
        elif _state_after(snapshot.recorded, events_behind) != snapshot.end:
            yield f"{name}: the {len(events_behind)} events behind what it recorded do not lead to its end"
    except _ImpossibleError as problem:
        yield f"{name}: {problem}"


def _state_after(state: GlobalState, events: Iterable[Event]) -> GlobalState:
    """The global state behind ``events``. Raises _ImpossibleError."""
    states: list[Any] = [*state.states]
    channels = [*map(deque, state.channels)]
    for process, old_state, arrival, step in events:
        if states[process] != old_state:
            raise _ImpossibleError(
                f"process {process} is in state {states[process]}, and its event begins in {old_state}"
            )
        if arrival is not None:
            channel, message = arrival
            if not channels[channel] or channels[channel].popleft() != message:
                raise _ImpossibleError(
                    f"process {process} receives {message!r}, which is not next in channel {channel}"
                )
        states[process] = step.state
        for channel, message in step.sent:
            channels[channel].append(message)
    return GlobalState(tuple(states), tuple(map(tuple, channels)))
