"""What must hold of every run: the properties that the protocols promise, checked on what a run has left behind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace_lab.simulation.workload import SnapshotPart
from headrace_lab.simulation.world import World
from headrace_snapshots.protocol.barriers import Protocol, SnapshotId, TakesAt


@dataclass(frozen=True)
class Property:
    """A property, and where it does not hold (at most some of the places)."""

    name: str
    problems: Sequence[str]

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.problems


MOST_SHOWN = 5


def properties(world: World) -> list[Property]:
    """All of them, of a run that has ended."""
    is_exactly_once = world.settings.protocol is not Protocol.AT_LEAST_ONCE
    expected = world.workload.finish()
    return [
        _property("termination", _check_termination(world)),
        _property("feasibility", _infeasible(world, is_exactly_once)),
        _property("empty channels", _contents(world)),
        _property(
            "final state",
            _differences("the run", expected, _final(world), is_exactly_once or not world.counts["restores"]),
        ),
        _property("restored state", _check_restored(world, expected, is_exactly_once)),
    ]


def _property(name: str, problems: Iterator[str]) -> Property:
    shown_problems = [problem for _, problem in zip(range(MOST_SHOWN), problems, strict=False)]
    return Property(name, shown_problems)


def _check_termination(world: World) -> Iterator[str]:
    """Every record is processed, and a snapshot begun after that is complete."""
    if not world.is_drained:
        yield f"records were left over after {world.timeline.now} µs"
    elif world.settings.interval and world.finished_at is None:
        yield "after the last record no snapshot became complete"


def _infeasible(world: World, is_exactly_once: bool) -> Iterator[str]:
    """What was sent before a snapshot was received before it or is logged, each record once; nothing else was received.

    At least once: nothing that was sent is missing.
    """
    for snapshot, parts in world.complete.items():
        for number, (start, end) in enumerate(world.graph.channels):
            sent_count, received_count = parts[start].sent[number], parts[end].received[number]
            logged_numbers = [record.number for record in parts[end].log.get(number, ())]
            missing = [*range(received_count, sent_count)]
            if logged_numbers != missing if is_exactly_once else not {*missing} <= {*logged_numbers}:
                yield (
                    f"snapshot {_name(snapshot)}, channel {number} from task {start} to {end}: sent {sent_count}, "
                    f"received {received_count}, logged {_some(logged_numbers)}"
                )


def _contents(world: World) -> Iterator[str]:
    """A snapshot by alignment has contents of back-edges only."""
    if world.rules.takes_at is not TakesAt.ALIGNMENT:
        return
    for snapshot, parts in world.complete.items():
        for task, part in enumerate(parts):
            for channel in sorted({*part.log} - world.graph.back_edges):
                yield f"snapshot {_name(snapshot)}, task {task}: {len(part.log[channel])} records of channel {channel}"


def _check_restored(world: World, expected: Sequence[tuple[int, int]], is_exactly_once: bool) -> Iterator[str]:
    """From every complete snapshot on, the work ends as it does without a failure."""
    for snapshot, parts in world.complete.items():
        yield from _differences(f"snapshot {_name(snapshot)}", expected, world.workload.finish(parts), is_exactly_once)


def _differences(
    what: str, expected: Sequence[tuple[int, int]], actual: Sequence[tuple[int, int]], is_exactly_once: bool
) -> Iterator[str]:
    for task, (right, ours) in enumerate(zip(expected, actual, strict=True)):
        if right != ours if is_exactly_once else ours[0] < right[0]:
            yield f"{what}, task {task}: {ours[0]} records (sum {ours[1]:x}) instead of {right[0]} (sum {right[1]:x})"


def _final(world: World) -> list[tuple[int, int]]:
    return [(state.count, state.total) for state in world.states]


def _name(snapshot: SnapshotId) -> str:
    return f"{snapshot.generation}.{snapshot.number}"


def _some(numbers: Sequence[int]) -> str:
    return f"{numbers[:MOST_SHOWN]}{' and more' if len(numbers) > MOST_SHOWN else ''}"


def count_logged(parts: Sequence[SnapshotPart]) -> int:
    """How many records a snapshot holds beside the states."""
    return sum(len(records) for part in parts for records in part.log.values())


def totals(world: World) -> Mapping[str, int]:
    """What happened in a run, in numbers."""
    own = ("begun", "abandoned", "fenced", "restores", "tasks lost", "coordinators lost", "resent", "barriers")
    return {
        "tasks": world.graph.tasks,
        "channels": len(world.graph.channels),
        "back_edges": len(world.graph.back_edges),
        "records": sum(state.count for state in world.states),
        "complete": len(world.complete),
        "logged": sum(map(count_logged, world.complete.values())),
        **{name.replace(" ", "_"): world.counts[name] for name in own},
        "processed_us": world.dataflow.progress_at,
        "simulated_us": world.timeline.now if world.finished_at is None else world.finished_at,
    }
