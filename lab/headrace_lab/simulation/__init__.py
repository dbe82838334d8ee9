"""Seeded runs of the barrier protocol in a simulated world, from 5 to 10,000 tasks, and of processes whose stable
properties are detected on snapshots; for tests of one's own too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace_lab.simulation.detection import Detection, StableProperty, behaviour, detect
from headrace_lab.simulation.graphs import graph_in, random_dataflow, random_processes, shuffled_operators
from headrace_lab.simulation.processes import Processes
from headrace_lab.simulation.properties import Property, properties, totals
from headrace_lab.simulation.settings import Assumption, Settings
from headrace_lab.simulation.world import World

__all__ = [
    "Assumption",
    "Detection",
    "Processes",
    "Property",
    "Settings",
    "SimulationReport",
    "StableProperty",
    "behaviour",
    "detect",
    "graph_in",
    "random_dataflow",
    "random_processes",
    "run_totals",
    "shuffled_operators",
    "simulate",
]


@dataclass(frozen=True)
class SimulationReport:
    """What happened, in numbers, and which properties held."""

    totals: Mapping[str, int]
    properties: Sequence[Property]

    @property
    def holds(self) -> bool:
        """Whether every property held."""
        return all(outcome.holds for outcome in self.properties)


def run_totals(settings: Settings) -> Mapping[str, int]:
    """What happened in a run, in numbers, without a look at the properties, which takes longer than the run."""
    world = World(settings)
    world.run()
    return totals(world)


def simulate(settings: Settings) -> SimulationReport:
    """One run, checked. The same settings give the same report."""
    world = World(settings)
    world.run()
    return SimulationReport(totals(world), properties(world))
