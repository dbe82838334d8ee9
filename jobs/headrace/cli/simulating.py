"""``headrace simulate``: a seeded run of the barrier protocol over a graph of simulated tasks, and what held of it."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.cli.app import Output, command
from headrace.cli.exit_codes import DONE, FAILED_CASES
from headrace.cli.output import Format, print_fields, print_json, print_lines
from headrace.errors import FixConfigError

if TYPE_CHECKING:
    from headrace_snapshots.protocol.barriers import Protocol
    from headrace_snapshots.protocol.graph import Graph
    from headrace_snapshots.simulation import Report

PROTOCOLS = "aligned|unaligned|chandy-lamport|synchronous|at-least-once"
ASSUMPTIONS = "fifo|barriers-arrive|fixed-graph|back-edges"

_Choice = TypeVar("_Choice", bound=StrEnum)


class SimulationOptionError(FixConfigError):
    """An option of ``headrace simulate`` has a value that there is not."""

    code = "config.simulation"


@command("headrace simulate --tasks 100 --seed 7 --protocol aligned --task-losses 2")
def simulate(
    *,
    tasks: Annotated[int, typer.Option(min=1, max=100_000, help="Tasks of a random graph.")] = 20,
    seed: Annotated[int, typer.Option(help="All that is left to chance follows from it.")] = 0,
    graph: Annotated[
        Path | None, typer.Option(help='A graph: {"tasks": ["a", "b"], "channels": [["a", "b"]]}.', show_default=False)
    ] = None,
    protocol: Annotated[str, typer.Option(metavar=f"[{PROTOCOLS}]", help="How snapshots are taken.")] = "aligned",
    loops: Annotated[int, typer.Option(min=0, help="Channels of a random graph that lead back.")] = 0,
    records: Annotated[int, typer.Option(min=0, help="Records from each source.")] = 20,
    rate_ms: Annotated[float, typer.Option(min=0.001, help="Milliseconds between two records of a source.")] = 1,
    delay_ms: Annotated[float, typer.Option(min=0, help="Milliseconds in a channel, on average.")] = 2,
    interval_ms: Annotated[float, typer.Option(min=0.001, help="Milliseconds between snapshots.")] = 5,
    snapshot_cost_ms: Annotated[float, typer.Option(min=0, help="Milliseconds that a task stops for its part.")] = 0.1,
    most_in_flight: Annotated[int, typer.Option(min=1, help="Snapshots that may be in flight.")] = 2,
    task_losses: Annotated[int, typer.Option(min=0, help="Tasks that are lost.")] = 0,
    coordinator_losses: Annotated[int, typer.Option(min=0, help="Coordinators that are lost.")] = 0,
    lost_messages: Annotated[
        float, typer.Option(min=0, max=0.5, help="Part of what tasks and coordinator tell each other that is lost.")
    ] = 0.0,
    without: Annotated[
        str | None,
        typer.Option(metavar=f"[{ASSUMPTIONS}]", help="Take an assumption of the protocols away: what fails then?"),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Simulate the barrier protocol: snapshots, losses and recoveries of many tasks, every property checked.

    The last line sums up; the exit code is 1 if a property failed.
    """
    from headrace_snapshots.protocol.barriers import Protocol
    from headrace_snapshots.simulation import Assumption, Settings
    from headrace_snapshots.simulation import simulate as run

    chosen = _one_of(Protocol, "protocol", protocol)
    report = run(
        Settings(
            _graph(graph, tasks, loops, seed, chosen),
            chosen,
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
            without=None if without is None else _one_of(Assumption, "without", without),
        )
    )
    if output is Format.JSON:
        print_json(_in_json(report))
    else:
        _print(report, chosen, seed)
    raise typer.Exit(DONE if report.holds else FAILED_CASES)


def _graph(file: Path | None, tasks: int, loops: int, seed: int, protocol: "Protocol") -> "Graph":
    from random import Random

    from headrace_snapshots.protocol.barriers import Protocol
    from headrace_snapshots.simulation import graph_in, random_dataflow, random_processes

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
            f"--{option} is {value!r}: it is one of {', '.join(each.value for each in kind)}"
        ) from error


def _microseconds(milliseconds: float) -> int:
    return round(milliseconds * 1000)


def _in_json(report: "Report") -> dict[str, Any]:
    found = [{"name": each.name, "holds": each.holds, "problems": [*each.problems]} for each in report.properties]
    return {"totals": dict(report.totals), "properties": found, "holds": report.holds}


def _print(report: "Report", protocol: "Protocol", seed: int) -> None:
    totals = report.totals
    print_fields({name.replace("_", " "): number for name, number in totals.items()}, f"{protocol}, seed {seed}")
    for each in report.properties:
        print_lines([f"{'holds ' if each.holds else 'FAILED'} {each.name}", *(f"    {said}" for said in each.problems)])
    failed = [each.name for each in report.properties if not each.holds]
    outcome = f"FAILED: {', '.join(failed)}" if failed else "all properties hold"
    print_lines(
        [
            f"{protocol}, {totals['tasks']:,} tasks, seed {seed}: {totals['complete']} of {totals['begun']} snapshots "
            f"complete, {totals['restores']} restores; {outcome}"
        ]
    )
