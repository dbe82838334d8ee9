"""What a million rows cost in a bucket: requests, bytes, CPU seconds, and money, beside a cluster that is always on.

``python -m benchmarks.cost --rows 1000 100000 1000000 --runs 6``: each run finds a new Parquet file of so many rows, in
a process of its own (``headrace run`` on ``local``), on a MinIO server that counts. Figures are medians of all runs but
the first; CPU is user and system of the whole process. Money is by ``PRICES``, in US dollars.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.command import Deployment, commit_seconds
from benchmarks.comparison import machine, workplace
from benchmarks.landing import paths
from benchmarks.throughput import common_arguments
from benchmarks.traffic import BUCKET, Traffic, minio, traffic
from scripts.minio_server import Server

MILLION: Final = 1_000_000
MONTH_HOURS: Final = 730


@dataclass(frozen=True)
class Prices:
    """US dollars, of AWS's public list for us-east-1 as its authors knew it on 29 November 2026, not looked up that
    day: S3 Standard, Fargate (on Linux, x86), m6i.large on demand, Managed Service for Apache Flink.
    """

    put: float = 0.005 / 1000
    """A PUT, COPY, POST or LIST."""

    get: float = 0.0004 / 1000
    """Any other request; a DELETE is free."""

    stored_gb_month: float = 0.023
    cpu_hour: float = 0.04048
    memory_gb_hour: float = 0.004445
    least_seconds: float = 60.0
    """What a task is billed for at least."""

    node_hour: float = 0.096
    nodes: int = 3
    """A cluster that is always on: the least that survives a node."""

    kpu_hour: float = 0.11
    kpus: int = 2
    """One that computes, and the one that each application has for itself."""


PRICES: Final = Prices()
TASK_CPUS, TASK_GB = 1.0, 2.0
"""What a run is given."""


@dataclass(frozen=True)
class Cost:
    """What one run took, and what the server counted of it."""

    rows: int
    requests: Mapping[str, float]
    read_bytes: float
    written_bytes: float
    cpu_seconds: float
    wall_seconds: float

    def dollars(self, prices: Prices) -> dict[str, float]:
        """Of this run: its requests, its task by the second and as it is billed, and a month of what it wrote."""
        dear = sum(count for kind, count in self.requests.items() if kind.startswith(("Put", "List", "Copy", "Post")))
        free = sum(count for kind, count in self.requests.items() if kind.startswith("Delete"))
        rest = sum(self.requests.values()) - dear - free
        hour = TASK_CPUS * prices.cpu_hour + TASK_GB * prices.memory_gb_hour
        return {
            "requests": dear * prices.put + rest * prices.get,
            "task_by_the_second": self.wall_seconds * hour / 3600,
            "task_billed": max(self.wall_seconds, prices.least_seconds) * hour / 3600,
            "stored_a_month": self.written_bytes / 1e9 * prices.stored_gb_month,
        }


def always_on(prices: Prices) -> dict[str, float]:
    """Dollars a month of a cluster, whatever it does."""
    return {
        "nodes": prices.nodes * prices.node_hour * MONTH_HOURS,
        "managed_flink": prices.kpus * prices.kpu_hour * MONTH_HOURS,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, MILLION], help="of a run")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--minutes", type=int, default=10, help="between two runs, for the month")
    common_arguments(parser)
    given = parser.parse_args()
    costs = [_measured(given, rows) for rows in given.rows]
    results = [_result(cost, given.minutes) for cost in costs]
    if given.format == "json":
        whole = {"costs": results, "always_on": always_on(PRICES), "prices": asdict(PRICES)}
        print(json.dumps({**whole, "machine": machine(given.cores, given.memory)}, indent=1))
    else:
        _show(results, given.minutes)


def _measured(given: argparse.Namespace, rows: int) -> Cost:
    source = data.events(given.folder / "data", data.Events(rows * given.runs, given.keys, given.runs))
    with workplace(given.folder) as work, minio(work / "minio") as server:
        made = Deployment(f"s3://{BUCKET}/cost")
        runs = [_run(made, file, server, work) for file in paths(source)][1:]
    kinds = sorted({kind for moved, _, _ in runs for kind in moved.requests})
    return Cost(
        rows,
        {kind: statistics.median(moved.requests.get(kind, 0) for moved, _, _ in runs) for kind in kinds},
        statistics.median(moved.read_bytes for moved, _, _ in runs),
        statistics.median(moved.written_bytes for moved, _, _ in runs),
        round(statistics.median(cpu for _, cpu, _ in runs), 3),
        round(statistics.median(wall for _, _, wall in runs), 3),
    )


def _run(made: Deployment, file: Path, server: Server, work: Path) -> tuple[Traffic, float, float]:
    """One file more: what the server counted, CPU and wall seconds of the command."""
    made.land([file])
    before, cpu, begun = traffic(server), _children_cpu(), time.monotonic()
    commit_seconds("local", made.root, {"HEADRACE_CACHE": str(work / "cache")})
    wall, cpu = time.monotonic() - begun, _children_cpu() - cpu
    return traffic(server).since(before), cpu, wall


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _result(cost: Cost, minutes: int) -> dict[str, Any]:
    """A run's figures, those of a million rows, and of a month with a run each so many minutes."""
    dollars = cost.dollars(PRICES)
    run = dollars["requests"] + dollars["task_billed"] + dollars["stored_a_month"]
    month = run * MONTH_HOURS * 60 / minutes
    return {
        **asdict(cost),
        "cpu_seconds_a_million": cost.cpu_seconds * MILLION / cost.rows,
        "requests_a_million": sum(cost.requests.values()) * MILLION / cost.rows,
        "dollars": dollars,
        "dollars_a_million": run * MILLION / cost.rows,
        "dollars_a_month": month,
        "always_on_over_ours": {name: dear / month for name, dear in always_on(PRICES).items()},
    }


def _show(results: Sequence[Mapping[str, Any]], minutes: int) -> None:
    table = Table(title=f"a run each {minutes} minutes", title_justify="left")
    for name in ("rows a run", "requests", "read KB", "written KB", "CPU s", "wall s", "$ a million", "$ a month"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            f"{result['rows']:,}",
            f"{sum(result['requests'].values()):g}",
            f"{result['read_bytes'] / 1e3:,.0f}",
            f"{result['written_bytes'] / 1e3:,.0f}",
            f"{result['cpu_seconds']:.2f}",
            f"{result['wall_seconds']:.2f}",
            f"{result['dollars_a_million']:.5f}",
            f"{result['dollars_a_month']:.2f}",
        )
    Console(width=120).print(table)
    print(*(f"always on, {name}: {dollars:.0f} $ a month" for name, dollars in always_on(PRICES).items()), sep="\n")


if __name__ == "__main__":
    main()
