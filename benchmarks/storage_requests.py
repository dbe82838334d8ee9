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
    found: dict[Side, list[tuple[Measured, Traffic]]] = {side: [] for side in sides}
    with workplace(given.folder) as work, minio(work / "minio") as server:
        run = Run(Side.OURS, sides[1], given.workload, source, work, given.cores, given.memory, given.executor)
        for repeat in range(given.repeats):
            for side, some in found.items():
                name = f"{side}-{repeat}"
                some.append(_counted(replace(run, side=side, work=work / name), name, server))
        ours, peer = ([one.results for one, _ in some][-1] for some in found.values())
        agrees = bool(agree(given.workload, ours, peer)["agrees"])
    figures = {side: _figures([moved for _, moved in some], given.epochs) for side, some in found.items()}
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


def _counted(run: Run, name: str, server: Server) -> tuple[Measured, Traffic]:
    scheme = "s3" if run.side is Side.OURS else "s3a"
    before = traffic(server)
    done = measured(replace(run, root=f"{scheme}://{BUCKET}/{name}"))
    moved = traffic(server).since(before)
    print(
        f"{run.side}: {sum(moved.requests.values())} requests, {done.wall_seconds:.1f} s", file=sys.stderr, flush=True
    )
    return done, moved


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
