"""``headrace simulate``: a seeded run of the barrier protocol over a graph of simulated tasks, and what held of it; or
stable properties of processes, detected on Chandy and Lamport's snapshots.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

from click.exceptions import Exit

from headrace.cli.app import EXIT_DONE, FAILED_CASES, FormatOption, Option, separate_command
from headrace.cli.output import Format, print_fields, print_json, print_lines
from headrace.errors import FixConfigError

if TYPE_CHECKING:
    from headrace_lab.simulation import Detection, Processes, Property, StableProperty
    from headrace_lab.simulation.graphs import Graph
    from headrace_snapshots.protocol.barriers import Protocol

PROTOCOLS = "aligned|unaligned|chandy-lamport|synchronous|at-least-once"
ASSUMPTIONS = "fifo|barriers-arrive|fixed-graph|back-edges"
STABLE = "termination|deadlock|token-loss"
EVENTS_OF_A_PROCESS = 2
"""A snapshot of processes is due after so many events for each of them."""

_Choice = TypeVar("_Choice", bound=StrEnum)


class SimulationOptionError(FixConfigError, code="config.simulation"):
    """An option of ``headrace simulate`` has a value that it cannot have."""


@separate_command("headrace simulate --tasks 100 --seed 7 --protocol aligned --task-losses 2")
def simulate(
    *,
    tasks: Annotated[int, Option(min=1, max=100_000, help="Tasks of a random graph.")] = 20,
    seed: Annotated[int, Option(help="Seed of everything random.")] = 0,
    graph: Annotated[Path | None, Option(help='A graph: {"tasks": ["a", "b"], "channels": [["a", "b"]]}.')] = None,
    protocol: Annotated[
        str | None, Option(metavar=f"[{PROTOCOLS}]", help="How snapshots are taken.", default_text="aligned")
    ] = None,
    loops: Annotated[int, Option(min=0, help="Channels of a random graph that lead back.")] = 0,
    records: Annotated[int, Option(min=0, help="Records from each source.")] = 20,
    rate_ms: Annotated[float, Option(min=0.001, help="Milliseconds between two records of a source.")] = 1,
    delay_ms: Annotated[float, Option(min=0, help="Milliseconds in a channel, on average.")] = 2,
    interval_ms: Annotated[float, Option(min=0.001, help="Milliseconds between snapshots.")] = 5,
    snapshot_cost_ms: Annotated[float, Option(min=0, help="Milliseconds that a task stops for its part.")] = 0.1,
    most_in_flight: Annotated[int, Option(min=1, help="Snapshots that may be in flight.")] = 2,
    task_losses: Annotated[int, Option(min=0, help="Tasks that are lost.")] = 0,
    coordinator_losses: Annotated[int, Option(min=0, help="Coordinators that are lost.")] = 0,
    lost_messages: Annotated[
        float,
        Option(
            min=0, max=0.5, help="Share of the messages between tasks and coordinator that is lost, and is sent again."
        ),
    ] = 0.0,
    without: Annotated[
        str | None,
        Option(metavar=f"[{ASSUMPTIONS}]", help="Take an assumption of the protocols away: what fails then?"),
    ] = None,
    detect: Annotated[
        str | None,
        Option(
            metavar=f"[{STABLE}]",
            help="Detect a stable property of processes instead, on Chandy and Lamport's snapshots. Their events come "
            "in any order, at no time; --records is what each process has to do.",
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Simulate the barrier protocol: snapshots, losses and recoveries of many tasks, every property checked.

    The last line sums up; the exit code is 1 if a property failed.
    """
    from headrace_lab.simulation import Assumption, Processes, Settings, StableProperty, behaviour
    from headrace_lab.simulation import simulate as run
    from headrace_snapshots.protocol.barriers import Protocol

    assumption = None if without is None else _one_of(Assumption, "without", without)
    if detect is not None:
        if protocol not in {None, Protocol.CHANDY_LAMPORT} or task_losses or coordinator_losses or lost_messages:
            raise SimulationOptionError("--detect needs --protocol chandy-lamport and no losses")
        if assumption not in {None, Assumption.FIFO}:
            raise SimulationOptionError(f"--detect goes only with --without fifo, not with --without {assumption}")
        kind = _one_of(StableProperty, "detect", detect)
        processes = behaviour(kind, _graph(graph, tasks, loops, seed, Protocol.CHANDY_LAMPORT), records)
        every = EVENTS_OF_A_PROCESS * processes.graph.tasks
        _detect(kind, seed, Processes(processes, seed, every, is_fifo=assumption is None), output)
    snapshot_protocol = _one_of(Protocol, "protocol", protocol or Protocol.ALIGNED)
    report = run(
        Settings(
            _graph(graph, tasks, loops, seed, snapshot_protocol),
            snapshot_protocol,
            seed,
            records=records,
            rate=_microseconds(rate_ms),
            delay=_microseconds(delay_ms),
            interval=_microseconds(interval_ms),
            snapshot_cost=_microseconds(snapshot_cost_ms),
            most_in_flight=most_in_flight,
            task_losses=task_losses,
            coordinator_losses=coordinator_losses,
            lost_messages=lost_messages,
            without=assumption,
        )
    )
    if output is Format.JSON:
        print_json(_in_json(report.totals, report.properties))
    else:
        totals = report.totals
        outcome = f"{totals['complete']} of {totals['begun']} snapshots complete, {totals['restores']} restores"
        _print(totals, report.properties, f"{snapshot_protocol}, {totals['tasks']:,} tasks, seed {seed}", outcome)
    raise Exit(EXIT_DONE if report.holds else FAILED_CASES)


def _detect(kind: "StableProperty", seed: int, processes: "Processes", output: Format) -> NoReturn:
    """Run them, say what came out, and exit."""
    from headrace_lab.simulation import detect

    detection: Detection = detect(processes)
    if output is Format.JSON:
        print_json({"detected": [*detection.detected], **_in_json(detection.totals, detection.properties)})
    else:
        totals = detection.totals
        outcome = f"detected by {totals['detected']} of {totals['complete']} snapshots"
        if totals["detected"]:
            outcome += f", at last of {totals['processes_at_last']:,} processes"
        _print(totals, detection.properties, f"{kind}, {totals['processes']:,} processes, seed {seed}", outcome)
    raise Exit(EXIT_DONE if detection.holds else FAILED_CASES)


def _graph(file: Path | None, tasks: int, loops: int, seed: int, protocol: "Protocol") -> "Graph":
    from random import Random

    from headrace_lab.simulation import graph_in, random_dataflow, random_processes
    from headrace_snapshots.protocol.barriers import Protocol

    if file is not None:
        return graph_in(file)
    random = Random(seed)  # noqa: S311
    return (
        random_processes(tasks, random)
        if protocol is Protocol.CHANDY_LAMPORT
        else random_dataflow(tasks, loops, random)
    )


def _one_of(kind: type[_Choice], option: str, value: str) -> _Choice:
    try:
        return kind(value)
    except ValueError as error:
        raise SimulationOptionError(
            f"--{option} is {value!r}: it is one of {', '.join(member.value for member in kind)}"
        ) from error


def _microseconds(milliseconds: float) -> int:
    return round(milliseconds * 1000)


def _in_json(totals: Mapping[str, int], properties: Sequence["Property"]) -> dict[str, Any]:
    in_json = [
        {"name": property_.name, "holds": property_.holds, "problems": [*property_.problems]}
        for property_ in properties
    ]
    return {"totals": dict(totals), "properties": in_json, "holds": all(property_.holds for property_ in properties)}


def _print(totals: Mapping[str, int], properties: Sequence["Property"], title: str, outcome: str) -> None:
    print_fields({name.replace("_", " "): number for name, number in totals.items()}, title)
    for property_ in properties:
        print_lines(
            [
                f"{'holds ' if property_.holds else 'FAILED'} {property_.name}",
                *(f"    {problem}" for problem in property_.problems),
            ]
        )
    failed_names = [property_.name for property_ in properties if not property_.holds]
    verdict = f"FAILED: {', '.join(failed_names)}" if failed_names else "all properties hold"
    print_lines([f"{title}: {outcome}; {verdict}"])
