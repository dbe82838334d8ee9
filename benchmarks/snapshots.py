"""Run time with a snapshot every epoch against none, with the same engine on the same files.

``python -m benchmarks.snapshots --stores local minio --workload tumbling --rows 20000000 --keys 200000 --epochs 10``:
every epoch is a file. Runs without snapshots, with snapshots committed beside the next epoch, and with awaited ones
take turns, each in a process of its own (``benchmarks.driven`` says what each leaves out). On MinIO the input is on
local files, too: only panes and what snapshots need are on the server. The overhead is seconds with snapshots over
those without, less one.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.comparison import agree, machine, measured, workplace
from benchmarks.runs import Measured, Run
from benchmarks.throughput import common_arguments
from benchmarks.traffic import BUCKET, minio
from benchmarks.workloads import COMPARED, Side, Workload

SIDES = (Side.NONE, Side.BESIDE, Side.AWAITED)


def main() -> None:
    """Command line."""
    given = _arguments()
    print("generating data", file=sys.stderr, flush=True)
    source = data.events(given.folder / "data", data.Events(given.rows, given.keys, given.epochs))
    with workplace(given.folder) as work:
        run = Run(Side.NONE, Side.NONE, given.workload, source, work, given.cores, given.memory, "local")
        results = [_on_store(run, store, given.repeats) for store in given.stores]
    agrees = all(each["agrees"] for each in results)
    shape = {name: getattr(given, name) for name in ("workload", "rows", "keys", "epochs")}
    if given.format == "json":
        print(json.dumps({**shape, "results": results, "machine": machine(given.cores, given.memory)}))
    else:
        _show(f"{given.workload}: {given.rows:,} rows, {given.keys:,} keys, {given.epochs} epochs on local", results)
    if not agrees:
        raise SystemExit("the results differ")


def _on_store(run: Run, store: str, repeats: int) -> dict[str, Any]:
    found: dict[Side, list[Measured]] = {side: [] for side in SIDES}
    loads = []
    agrees = True
    with _place(store, run.work) as place:
        for repeat in range(repeats):
            for side, some in found.items():
                folder = run.work / f"{store}-{side}-{repeat}"
                root = None if place is None else f"{place}/{folder.name}"
                loads.append(os.getloadavg()[0])
                one = measured(replace(run, side=side, work=folder, root=root))
                print(f"{store}, {side} {repeat + 1}/{repeats}: {one.wall_seconds:.1f} s", file=sys.stderr, flush=True)
                some.append(one)
            last = [some[-1].results for some in found.values()]
            agrees = agrees and all(agree(run.workload, last[0], other)["agrees"] for other in last[1:])
            for side in found:
                shutil.rmtree(run.work / f"{store}-{side}-{repeat}")
    sides = {side: _figures(some, found[Side.NONE]) for side, some in found.items()}
    return {"store": store, "sides": sides, "agrees": agrees, "load_averages": [round(load, 2) for load in loads]}


@contextlib.contextmanager
def _place(store: str, work: Path) -> Iterator[str | None]:
    """Where roots are; None: in the folders of the runs."""
    if store == "local":
        yield None
        return
    with minio(work / "minio"):
        yield f"s3://{BUCKET}"


def _figures(runs: Sequence[Measured], without: Sequence[Measured]) -> dict[str, Any]:
    pairs = list(zip(runs, without, strict=True))
    overheads = [run.wall_seconds / base.wall_seconds - 1 for run, base in pairs]
    in_cpu = [run.cpu_seconds / base.cpu_seconds - 1 for run, base in pairs]
    return {
        "wall_seconds": [round(run.wall_seconds, 3) for run in runs],
        "cpu_seconds": [round(run.cpu_seconds, 3) for run in runs],
        "epochs": [[round(seconds, 3) for seconds in run.epoch_seconds] for run in runs],
        "peak_memory_bytes": [run.peak_memory_bytes for run in runs],
        "overhead": _spread(overheads),
        "cpu_overhead": _spread(in_cpu),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def _show(title: str, results: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("store", "snapshots", "wall s", "cpu s", "peak MB", "over none", "cpu over none", "results"):
        table.add_column(name, justify="right")
    for result in results:
        for side, figures in result["sides"].items():
            table.add_row(
                result["store"],
                side,
                f"{statistics.median(figures['wall_seconds']):.2f}",
                f"{statistics.median(figures['cpu_seconds']):.2f}",
                f"{max(figures['peak_memory_bytes']) / 1e6:,.0f}",
                *(_told(figures[name]) if side != Side.NONE else "-" for name in ("overhead", "cpu_overhead")),
                "agree" if result["agrees"] else "DIFFER",
            )
    Console(width=140).print(table)


def _told(spread: dict[str, float]) -> str:
    return f"{spread['median']:+.1%} ({spread['min']:+.1%} to {spread['max']:+.1%})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=["local", "minio"], default=["local", "minio"])
    parser.add_argument("--workload", type=Workload, choices=[*COMPARED, Workload.SHUFFLES], default=Workload.TUMBLING)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=10, help="files, and so epochs")
    parser.add_argument("--repeats", type=int, default=3)
    common_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
