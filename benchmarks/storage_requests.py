"""Requests that an epoch makes of its storage, by kind, against Structured Streaming's checkpoint on the same server.

``python -m benchmarks.storage_requests --rows 200000 --keys 20000 --epochs 20 --executor spark|local``: one drain of
each side, with as many tasks, and what a MinIO server counted of it, from its start to its end, over its epochs. Input
is on local files on both sides. Of ours the output is on the server, too, of Structured Streaming the checkpoint alone:
its panes are on local files. It writes the checkpoint as an expert would have it on S3: each file with one put, as a
committer without renames does (``benchmarks.peers``); its client of S3 is fetched from Maven Central at the first run.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.comparison import agree, machine, measured, workplace
from benchmarks.ours import fetched
from benchmarks.runs import Measured, Run
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.traffic import BUCKET, Traffic, minio, traffic
from benchmarks.workloads import Side, Workload
from scripts.minio_server import Server

WORKLOADS = (Workload.TUMBLING, Workload.SLIDING)
"""Those that both sides give every epoch's results of."""


def main() -> None:
    """Command line."""
    given = _arguments()
    print("generating data", file=sys.stderr, flush=True)
    source = data.events(given.folder / "data", data.Events(given.rows, given.keys, given.epochs))
    sides = (Side.OURS, Side.STRUCTURED_STREAMING)
    found: dict[Side, list[Traffic]] = {side: [] for side in sides}
    last: dict[Side, Measured] = {}
    with workplace(given.folder) as work, minio(work / "minio") as server:
        run = Run(Side.OURS, sides[1], given.workload, source, work, given.cores, given.memory, given.executor)
        for repeat in range(given.repeats):
            for side, some in found.items():
                last[side], moved = _counted(_placed(run, side, f"{side}-{repeat}"), server)
                some.append(moved)
        ours = _placed(run, Side.OURS, f"{Side.OURS}-{given.repeats - 1}")
        agrees = bool(agree(given.workload, fetched(ours), last[sides[1]].results)["agrees"])
    figures = {side: _figures(moved, given.epochs) for side, moved in found.items()}
    figures[Side.OURS]["epoch_itself"] = _of_warm_epochs(last[Side.OURS])
    ratio = round(figures[sides[1]]["requests"] / figures[Side.OURS]["requests"], 3)
    if given.format == "json":
        shape = {name: getattr(given, name) for name in ("workload", "rows", "keys", "epochs", "executor")}
        result = {**shape, "sides": figures, "ratio": ratio, "agrees": agrees}
        print(json.dumps({**result, "machine": machine(given.cores, given.memory)}))
    else:
        _show(f"an epoch of {given.rows // given.epochs:,} rows, {given.executor}", figures)
        print(f"peer over ours: {ratio:.2f}; results {'agree' if agrees else 'DIFFER'}")
    if not agrees:
        raise SystemExit("the results differ")


def _placed(run: Run, side: Side, name: str) -> Run:
    scheme = "s3" if side is Side.OURS else "s3a"
    return replace(run, side=side, work=run.work / name, root=f"{scheme}://{BUCKET}/{name}")


def _counted(run: Run, server: Server) -> tuple[Measured, Traffic]:
    before = traffic(server)
    done = measured(run)
    moved = traffic(server).since(before)
    print(
        f"{run.side}: {sum(moved.requests.values())} requests, {done.wall_seconds:.1f} s", file=sys.stderr, flush=True
    )
    return done, moved


def _of_warm_epochs(ours: Measured) -> dict[str, float]:
    """Medians of what the manifests of epochs say, without the first."""
    warm = [epoch["requests"] for epoch in ours.details[1:] or ours.details]
    return {kind: statistics.median(each[kind] for each in warm) for kind in warm[0]}


def _figures(moved: Sequence[Traffic], epochs: int) -> dict[str, Any]:
    """Of one side, an epoch: medians over its runs."""

    def median(values: Sequence[float]) -> float:
        return round(statistics.median(values) / epochs, 2)

    kinds = sorted({kind for each in moved for kind in each.requests})
    return {
        "requests": median([sum(each.requests.values()) for each in moved]),
        "kinds": {kind: median([each.requests.get(kind, 0) for each in moved]) for kind in kinds},
        "read_bytes": median([each.read_bytes for each in moved]),
        "written_bytes": median([each.written_bytes for each in moved]),
    }


def _show(title: str, figures: Mapping[Side, Mapping[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("", "requests", "read KB", "written KB", "by kind"):
        table.add_column(name, justify="right" if name[:2] in ("re", "wr") else "left")
    for side, each in figures.items():
        kinds = ", ".join(f"{count:g} {kind}" for kind, count in each["kinds"].items())
        sizes = [f"{each[name] / 1e3:,.1f}" for name in ("read_bytes", "written_bytes")]
        table.add_row(str(side), f"{each['requests']:g}", *sizes, kinds)
    Console(width=160).print(table)
    itself = ", ".join(f"{count:g} {kind}" for kind, count in figures[Side.OURS]["epoch_itself"].items() if count)
    print(f"a warm epoch of ours by itself, with its commit: {itself}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", type=Workload, choices=WORKLOADS, default=Workload.TUMBLING)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=20, help="files, and so micro-batches")
    parser.add_argument("--repeats", type=int, default=3)
    executor_argument(parser)
    common_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
