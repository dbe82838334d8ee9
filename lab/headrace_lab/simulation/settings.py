"""What a simulated run is made of. Lengths of time are in microseconds of simulated time."""

from dataclasses import dataclass
from enum import StrEnum

from headrace_lab.simulation.graphs import Graph
from headrace_snapshots.protocol.barriers import Protocol


class Assumption(StrEnum):
    """What the protocols stand on; a run without one of them shows what it is good for."""

    FIFO = "fifo"
    BARRIERS_ARRIVE = "barriers-arrive"
    FIXED_GRAPH = "fixed-graph"
    BACK_EDGES = "back-edges"


@dataclass(frozen=True)
class Settings:
    """A run, which is the same for the same settings.

    Sources emit ``records`` each, one every ``rate``; records take about ``delay`` in a channel and ``cost`` in a
    task. A snapshot is due every ``interval`` (0: never), stops a task for ``snapshot_cost`` and is stored
    ``store_delay`` later. Orders, acknowledgements, what else tasks and coordinator say, and confirmations that it has
    come, are lost with the probability ``lost_messages``; what is not confirmed is sent again, ``tries`` times in all.
    """

    graph: Graph
    protocol: Protocol = Protocol.ALIGNED
    seed: int = 0
    records: int = 100
    rate: int = 1_000
    delay: int = 2_000
    cost: int = 10
    interval: int = 20_000
    snapshot_cost: int = 100
    store_delay: int = 5_000
    timeout: int = 2_000_000
    most_in_flight: int = 2
    task_losses: int = 0
    coordinator_losses: int = 0
    lost_messages: float = 0.0
    tries: int = 10
    without: Assumption | None = None
