"""What snapshots cost a drain: the same rows cut into more and more epochs, each of which ends in one.

``python -m benchmarks.abs --rows 100000000 --keys 1000000 --files 100 --epochs 1 5 20 50 100 --executor local|spark
--out FILE.json --format text|json``. The job is as near as a pipeline comes to that of the paper on asynchronous
barrier snapshots (arXiv:1506.08603, figure 5): it reads, sums by user, by group and by region, with a shuffle before
each sum. The first number of epochs is what the others are held against; 1 is a single snapshot at the end. Results
must be the same however the rows are cut. Wall seconds are from the first listing to the last commit. Needs disk for
the rows (24 bytes each, once) and for state; ``--rows 1000000000`` is the paper's number: give it ``--epochs 10 20 50
100``, since one epoch of a billion rows wants all of them in memory. ``--spans 10`` draws a tenth of the rows, and
repeats them in later event times, which takes minutes less.
"""

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.comparison import agree, machine, measured, workplace
from benchmarks.runs import Measured, Run
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import Side, Workload


def main() -> None:
    """Command line."""
    given = _arguments()
    print("generating data", file=sys.stderr, flush=True)
    drawn = data.Events(given.rows // given.spans, given.keys, given.files // given.spans, given.seed)
    source = data.repeated(given.folder / "data", drawn, given.spans)
    with workplace(given.folder) as work:
        run = Run(Side.OURS, Side.OURS, Workload.SHUFFLES, source, work, given.cores, given.memory, given.executor)
        runs = _measured(run, given)
    result = {
        "rows": given.rows,
        "keys": given.keys,
        "executor": given.executor,
        "runs": runs,
        "agrees": all(each["agrees"] for each in runs),
        "machine": machine(given.cores, given.memory),
    }
    if given.out is not None and result["agrees"]:
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if given.format == "json":
        print(json.dumps(result))
    else:
        _show(f"{given.rows:,} rows, {given.keys:,} keys, {given.executor}", runs)
    if not result["agrees"]:
        raise SystemExit("the results differ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 5, 20, 50, 100], help="divisors of --files")
    parser.add_argument(
        "--spans", type=int, default=1, help="draw rows for one of so many spans of time, and repeat it"
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="where the result is kept, too, as JSON")
    executor_argument(parser)
    common_arguments(parser)
    parser.set_defaults(executor="local")
    given = parser.parse_args()
    if given.files % given.spans or given.rows % given.spans:
        parser.error(f"{given.files} files of {given.rows} rows cannot be cut into {given.spans} spans of one size")
    if wrong := [epochs for epochs in given.epochs if epochs < 1 or given.files % epochs]:
        parser.error(f"{given.files} files cannot be cut into {wrong[0]} epochs of one size")
    return given


def _measured(run: Run, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The runs by their number of epochs, in turns; the first one's results are kept for comparison."""
    found: dict[int, list[Measured]] = {epochs: [] for epochs in given.epochs}
    agrees = dict.fromkeys(given.epochs, True)
    first = None
    for repeat in range(given.repeats):
        for epochs, some in found.items():
            folder = run.work / f"{epochs}-{repeat}"
            one = measured(replace(run, files_per_epoch=given.files // epochs, work=folder))
            print(f"{epochs} epochs: {one.wall_seconds:.1f} s", file=sys.stderr, flush=True)
            some.append(one)
            first = first or one
            agrees[epochs] &= len(one.epoch_seconds) == epochs and _agrees(first, one)
            if one is not first:
                shutil.rmtree(folder)
    base = _seconds(found[given.epochs[0]])
    return [{**_figures(epochs, some, base), "agrees": agrees[epochs]} for epochs, some in found.items()]


def _agrees(first: Measured, other: Measured) -> bool:
    return bool(agree(Workload.SHUFFLES, first.results, other.results)["agrees"])


def _figures(epochs: int, runs: Sequence[Measured], base: float) -> dict[str, Any]:
    seconds = _seconds(runs)
    return {
        "epochs": epochs,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(statistics.median(run.cpu_seconds for run in runs), 3),
        "epoch_seconds": round(statistics.median(each for run in runs for each in run.epoch_seconds), 3),
        "peak_memory_bytes": max(run.peak_memory_bytes for run in runs),
        "overhead": round(seconds / base - 1, 4),
    }


def _seconds(runs: Sequence[Measured]) -> float:
    return statistics.median(run.wall_seconds for run in runs)


def _show(title: str, runs: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("epochs", "wall s", "cpu s", "an epoch s", "over the first", "peak MB", "results"):
        table.add_column(name, justify="right")
    for run in runs:
        table.add_row(
            str(run["epochs"]),
            f"{run['seconds']:.2f}",
            f"{run['cpu_seconds']:.2f}",
            f"{run['epoch_seconds']:.2f}",
            f"{run['overhead']:+.1%}",
            f"{run['peak_memory_bytes'] / 1e6:,.0f}",
            "agree" if run["agrees"] else "DIFFER",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
