"""The evaluation of asynchronous barrier snapshots (Carbone et al., arXiv:1506.08603, section 7), simulated.

Every number is in simulated time, so the same code gives the same numbers on every machine.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

from headrace_lab.simulation import Settings, run_totals, shuffled_operators
from headrace_snapshots.protocol.barriers import Protocol

MS, SECOND = 1_000, 1_000_000


@dataclass(frozen=True)
class Costs:
    """What things take, in microseconds; a simulated record is a batch of ``batch`` records.

    A source reads a batch every ``read``, a task has ``work`` with it. The mean way through a channel is ``channel``.
    A task stops for ``copy`` to take its part of a snapshot, which is stored ``store`` later.
    """

    batch: int = 20_000
    read: int = 20 * MS
    work: int = 18 * MS
    channel: int = 2 * MS
    copy: int = 20 * MS
    store: int = SECOND

    def coarser(self, times: int) -> "Costs":
        """The same with batches so many times as large."""
        return replace(self, batch=self.batch * times, read=self.read * times, work=self.work * times)


COSTS = Costs()
LARGE = replace(COSTS.coarser(10), work=100 * MS)
"""For many nodes: batches are so few that some tasks get many more than others, so they have time to spare."""
RECORDS = 1_000_000_000
"""Records of figures 6 and 7, as in the paper."""

INTERVALS = (1, 2, 3, 5, 10, 20)
"""Seconds between snapshots, in figure 6."""

INTERVAL = 3
"""That of figure 7."""

NODES_OF_INTERVALS = 10
NODES = (5, 10, 20, 40)
MORE_NODES = (40, 100, 1_000, 10_000)
RECORDS_OF_A_NODE = 9_000_000
FAN_OUT = 4
"""On more nodes than the paper's, a task sends to so many in a shuffle: a full one has a hundred million channels."""


@dataclass(frozen=True)
class Run:
    """One run: ``interval`` 0 is one without snapshots, whose protocol is no matter."""

    nodes: int
    protocol: Protocol
    interval: int
    records: int
    costs: Costs = COSTS
    fan_out: int | None = None

    def settings(self) -> Settings:
        """Settings for the simulator."""
        costs = self.costs
        return Settings(
            shuffled_operators(self.nodes, self.fan_out),
            self.protocol,
            seed=1,
            records=self.records // (self.nodes * costs.batch),
            rate=costs.read,
            delay=costs.channel,
            cost=costs.work,
            interval=self.interval * SECOND,
            snapshot_cost=costs.copy,
            store_delay=costs.store,
            timeout=60 * SECOND,
            most_in_flight=4,
        )


@dataclass(frozen=True)
class RunMeasure:
    """``seconds`` until the last record was processed, and how many snapshots became complete."""

    nodes: int
    protocol: str
    interval: int
    seconds: float
    snapshots: int

    @classmethod
    def from_run(cls, run: Run) -> "RunMeasure":
        """Simulate it."""
        gc.disable()  # a run makes millions of small objects and no circle of any size
        totals = run_totals(run.settings())
        return cls(
            run.nodes,
            run.protocol.value if run.interval else "none",
            run.interval,
            round(totals["processed_us"] / SECOND, 3),
            totals["complete"],
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def runs(records: int = RECORDS, more: Sequence[int] = MORE_NODES) -> Mapping[str, Sequence[Run]]:
    """The runs of each figure."""
    both = (Protocol.ALIGNED, Protocol.SYNCHRONOUS)
    intervals = [Run(NODES_OF_INTERVALS, protocol, interval, records) for interval in INTERVALS for protocol in both]
    return {
        "intervals": [Run(NODES_OF_INTERVALS, Protocol.ALIGNED, 0, records), *intervals],
        "nodes": [Run(nodes, Protocol.ALIGNED, interval, records) for nodes in NODES for interval in (0, INTERVAL)],
        "more_nodes": [
            Run(nodes, Protocol.ALIGNED, interval, RECORDS_OF_A_NODE * nodes, LARGE, FAN_OUT)
            for nodes in more
            for interval in (0, INTERVAL)
        ],
    }


def evaluate_runs(runs_by_figure: Mapping[str, Sequence[Run]], processes: int) -> Iterator[tuple[str, RunMeasure]]:
    """What the runs of each figure give, in their order, on so many processes."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        names = [name for name, some in runs_by_figure.items() for _ in some]
        yield from zip(
            names, pool.map(RunMeasure.from_run, [run for some in runs_by_figure.values() for run in some]), strict=True
        )
