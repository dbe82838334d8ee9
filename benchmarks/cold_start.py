"""``headrace run`` on few rows, from the start of the command to its commit.

``python -m benchmarks.cold_start --executors local spark --rows 1000``: each run has a root of its own with one file.
The peer of ``spark`` is a process that only starts Structured Streaming on that file. ``--keys 10000000``: the root has
so many live keys, which other processes took in, and the cache of state is empty: all of it comes from the store; there
is no peer. ``--store minio``: the root is on a MinIO server that is started for it, which also counts requests and
bytes of the whole command, with its audit and publish. Results are compared with a query over the files that landed.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.command import Deployment, commit_seconds
from benchmarks.comparison import agree, machine, measured, ratios, told, workplace
from benchmarks.floor import query
from benchmarks.landing import land_file, paths
from benchmarks.runs import Results, Run
from benchmarks.throughput import common_arguments
from benchmarks.traffic import BUCKET, Traffic, minio, traffic
from benchmarks.workloads import Side, Workload
from scripts.minio_server import Server


@dataclass(frozen=True)
class Start:
    """One run of the command. ``requests``: of its epoch, as its manifest says; ``traffic``: of the whole command, as
    the server says; ``peer_seconds``: of the peer beside it.
    """

    executor: str
    seconds: float
    requests: Mapping[str, int]
    traffic: Traffic | None
    peer_seconds: float | None


@dataclass(frozen=True)
class Place:
    """Where roots are, and a local folder for what else runs need. ``server`` holds them, or None if they are local."""

    uri: str
    work: Path
    server: Server | None


def main() -> None:
    """Command line."""
    given = _arguments()
    with workplace(given.folder) as work, _place(given.store, work) as place:
        starts, agrees = _starts(given, place)
    results = [_figures([start for start in starts if start.executor is each]) for each in given.executors]
    shape = {"rows": given.rows, "live_keys": given.keys, "store": given.store}
    if given.format == "json":
        about = {"agrees": agrees, "machine": machine(given.cores, given.memory)}
        print(json.dumps({**shape, "results": results, **about}))
    else:
        _show(f"{given.rows:,} rows, {given.keys:,} live keys, {given.store} store", results)
    if not agrees:
        raise SystemExit("the results differ")


def _starts(given: argparse.Namespace, place: Place) -> tuple[list[Start], bool]:
    """Runs of the executors in turn, each with a file of its own; whether all results are right."""
    kept = given.folder / "data"
    runs = given.repeats * len(given.executors)
    new = paths(data.touches(kept, data.Touches(given.keys or given.rows, given.rows, runs)))
    deployments: list[Deployment] = []
    starts, agrees = [], True
    for number, (file, executor) in enumerate(zip(new, itertools.cycle(given.executors), strict=False)):
        if not deployments or not given.keys:
            deployments.append(Deployment(f"{place.uri}/root-{number}"))
            _prepare(given, place, deployments[-1])
        deployments[-1].land([file])
        start, agreed = _start(given, place, deployments[-1], executor, number)
        starts.append(start)
        agrees = agrees and agreed
        print(f"{executor} {number + 1}/{runs}: {start.seconds:.2f} s", file=sys.stderr, flush=True)
    for number, deployment in enumerate(deployments):
        results = deployment.results(place.work / f"results-{number}")
        agrees = agrees and _are_right(results, deployment.landed)
    return starts, agrees


def _prepare(given: argparse.Namespace, place: Place, deployment: Deployment) -> None:
    """Give the root its live keys."""
    if given.keys:
        print(f"taking in {given.keys:,} keys", file=sys.stderr, flush=True)
        deployment.land(paths(data.everyone(given.folder / "data", given.keys)))
        commit_seconds("local", deployment.root, _settings(given, place.work / "prepare"))


def _start(
    given: argparse.Namespace, place: Place, deployment: Deployment, executor: str, number: int
) -> tuple[Start, bool]:
    """One measured run, then its peer, and whether the peer's results are right."""
    before = None if place.server is None else traffic(place.server)
    settings = _settings(given, place.work / f"run-{number}")
    seconds = commit_seconds(executor, deployment.root, settings)
    moved = None if place.server is None or before is None else traffic(place.server).since(before)
    peer, agreed = None, True
    if executor == "spark" and not given.keys and place.server is None:
        peer, agreed = _peer(given, place.work / f"peer-{number}", deployment.landed)
    return Start(executor, seconds, deployment.head().requests, moved, peer), agreed


def _peer(given: argparse.Namespace, work: Path, landed: Sequence[Path]) -> tuple[float, bool]:
    """Seconds of Structured Streaming on the same files, and whether its results are right."""
    side = Side.STRUCTURED_STREAMING
    run = Run(side, side, Workload.LIVE_KEYS, work / "landing", work, given.cores, given.memory)
    for file in landed:
        land_file(file, run.source, "a")
    found = measured(run)
    assert found.first_commit_seconds is not None
    return found.first_commit_seconds, _are_right(found.results, landed)


def _are_right(results: Results, landed: Sequence[Path]) -> bool:
    expected = Results(query(Workload.LIVE_KEYS, landed))
    return bool(agree(Workload.LIVE_KEYS, results, expected)["agrees"])


def _settings(given: argparse.Namespace, work: Path) -> dict[str, str]:
    """Of the command: an empty cache of its own, and what the peer gets too."""
    return {
        "HEADRACE_CACHE": str(work / "cache"),
        "HEADRACE_LOGS": str(work / "logs"),
        "HEADRACE_DRIVER_MEMORY": given.memory,
        "HEADRACE_TASKS": str(given.cores),
    }


@contextlib.contextmanager
def _place(store: str, work: Path) -> Iterator[Place]:
    if store == "local":
        yield Place(work.as_uri(), work, None)
        return
    with minio(work / "minio") as server:
        yield Place(f"s3://{BUCKET}", work, server)


def _figures(starts: Sequence[Start]) -> dict[str, Any]:
    """Of one executor."""
    seconds = [start.seconds for start in starts]
    return {
        "executor": starts[0].executor,
        "seconds": [round(each, 3) for each in seconds],
        "median_seconds": round(statistics.median(seconds), 3),
        "peer_seconds": [round(start.peer_seconds, 3) for start in starts if start.peer_seconds is not None],
        "ratio": ratios([(start.seconds, start.peer_seconds) for start in starts]),
        "requests_of_epoch": [dict(start.requests) for start in starts],
        "traffic": [asdict(start.traffic) for start in starts if start.traffic is not None],
    }


def _show(title: str, results: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("executor", "s to commit", "peer s", "peer / ours", "read MB", "written MB", "requests (last run)"):
        table.add_column(name, justify="left" if name in ("executor", "requests (last run)") else "right")
    for entry in results:
        moved, peer = entry["traffic"], entry["peer_seconds"]
        requests = moved[-1]["requests"] if moved else entry["requests_of_epoch"][-1]
        table.add_row(
            entry["executor"],
            f"{entry['median_seconds']:.2f} ({min(entry['seconds']):.2f} to {max(entry['seconds']):.2f})",
            f"{statistics.median(peer):.2f}" if peer else "-",
            told(entry["ratio"]),
            *(
                f"{statistics.median(each[name] for each in moved) / 1e6:,.2f}" if moved else "-"
                for name in ("read_bytes", "written_bytes")
            ),
            ", ".join(f"{count} {name}" for name, count in sorted(requests.items()) if count),
        )
    Console(width=180).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    both = ["local", "spark"]
    parser.add_argument("--executors", nargs="+", choices=both, default=both)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=0, help="live keys before")
    parser.add_argument("--store", choices=["local", "minio"], default="local")
    parser.add_argument("--repeats", type=int, default=3)
    common_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
