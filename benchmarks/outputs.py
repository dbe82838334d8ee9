"""Three outputs of one pipeline against three pipelines with one output each, over the same JSON files.

``python -m benchmarks.outputs --weight light|heavy --executor local|spark --rows 300000 --epochs 4``. Light
outputs are sums per shop over three windows; of the heavy ones two are per user, sessions one of them. CPU and wall
seconds are from the first look at the input to the last commit, Spark's start left out. Both sides run in turn, each in
a new process, and their results are compared row by row before a figure is given. The ratio is ours (one pipeline) over
the peer (three): less than 1 is what sharing saves.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import headrace as hr
from benchmarks.comparison import FOLDER, machine, workplace
from benchmarks.runs import Stopwatch
from benchmarks.throughput import executor_argument
from headrace import col

LATENESS = timedelta(days=2)
SHOPS, USERS = 200, 20_000
KEYS, RESULTS = ("shop", "user"), ("orders", "sales")
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Side:
    """What one process runs: one pipeline with all outputs, or (``is_split``) a pipeline for each."""

    weight: str
    executor: str
    landing: Path
    work: Path
    is_split: bool


@dataclass(frozen=True)
class Measured:
    """Seconds, and by output how many rows ``current`` has, and a digest of them."""

    wall_seconds: float
    cpu_seconds: float
    results: Mapping[str, tuple[int, str]]


def outputs(weight: str) -> dict[str, hr.Output]:
    """The three outputs."""
    sums = {"orders": hr.count(), "sales": col("price").sum()}
    how = hr.retracting(allowed_lateness=LATENESS)
    per_shop = {
        name: hr.Output(key="shop", what=sums, where=hr.FixedWindows(size), when=hr.on_update(), how=how)
        for name, size in (("quarters", "15m"), ("hourly", "1h"), ("daily", "1d"))
    }
    if weight == "light":
        return per_shop
    per_user = {
        "visits": hr.Output(key="user", what=sums, where=hr.Sessions("30m"), when=hr.on_update(), how=how),
        "users": hr.Output(key="user", what=sums, where=hr.FixedWindows("1h"), when=hr.on_update(), how=how),
    }
    return {"hourly": per_shop["hourly"], **per_user}


def pipelines(side: Side) -> list[hr.Pipeline]:
    """The pipelines of a side, in the order in which they run."""
    schema = {"id": str, "shop": str, "user": str, "price": int, "at": datetime}
    orders = hr.json(side.landing.as_uri(), schema, max_files=1, max_bytes=2**40).event_time("at", bound="10m")
    shared: dict[str, Any] = {"filter": col("price") > 0, "executor": side.executor}
    if not side.is_split:
        return [hr.Pipeline("shop", orders, outputs=outputs(side.weight), **shared)]
    fields = ("key", "what", "where", "when", "how")
    return [
        hr.Pipeline(name, orders, **{field: getattr(output, field) for field in fields}, **shared)
        for name, output in outputs(side.weight).items()
    ]


def measure(side: Side) -> Measured:
    """Run one side in this process."""
    from headrace.runs.options import RunOptions
    from headrace.runs.process import process

    spark = None
    if side.executor == "spark":
        from headrace.distribute.spark.session import spark_session

        spark = spark_session("headrace benchmark", conf={"spark.local.dir": str(side.work / "spark")})
    os.environ["HEADRACE_CACHE"] = str(side.work / "cache")  # that of the user may hold thousands of files
    root = (side.work / "root").as_uri()
    made = pipelines(side)
    watch = Stopwatch()
    for pipeline in made:
        process(pipeline, root, RunOptions("measured", executor=side.executor), spark=spark)
    wall, cpu = watch.read()
    if spark is not None:
        spark.stop()
    return Measured(wall, cpu, {name: _digest(side, root, name) for name in outputs(side.weight)})


def _digest(side: Side, root: str, output: str) -> tuple[int, str]:
    deployment = hr.open(root)
    reader = deployment[output] if side.is_split else deployment["shop"][output]
    rows = reader.current(at="main").to_arrow()
    kept = [name for name in rows.column_names if name in (*KEYS, "window_start", "window_end", *RESULTS)]
    lines = sorted(str(tuple(row.values())) for row in rows.select(kept).to_pylist())
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()


def land(folder: Path, rows: int, files: int) -> Path:
    """JSON files of orders, in a folder that is made anew."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        # one order a second, those of the last ten minutes out of order
        seconds = part - random.integers(0, 600, len(part))
        columns = {
            "id": [f"o{order}" for order in part],
            "shop": [f"shop{shop}" for shop in random.integers(0, SHOPS, len(part))],
            "user": [f"user{user}" for user in random.integers(0, USERS, len(part))],
            "price": random.integers(0, 1000, len(part)).tolist(),
            "at": [(START + timedelta(seconds=int(second))).isoformat() for second in seconds],
        }
        lines = (json.dumps(row) for row in pa.table(columns).to_pylist())
        (folder / f"part-{number:05d}.json").write_text("\n".join(lines) + "\n")
    return folder


def compare(asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Pairs of both sides. Raises SystemExit if their results differ."""
    landing = land(work / "landing", asked.rows, asked.epochs)
    pairs = []
    for repeat in range(asked.repeats):
        pair = []
        for is_split in (False, True):
            side = Side(asked.weight, asked.executor, landing, work / f"{repeat}-{is_split}", is_split)
            side.work.mkdir()
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
                pair.append(processes.submit(measure, side).result())
            print(f"{repeat + 1}/{asked.repeats}: {pair[-1].cpu_seconds:.2f} s CPU", file=sys.stderr, flush=True)
        ours, peer = pair
        if ours.results != peer.results or not all(count for count, _ in ours.results.values()):
            raise SystemExit(f"the results differ: {ours.results} {peer.results}")
        pairs.append((ours, peer))
    return {
        "weight": asked.weight,
        "executor": asked.executor,
        "rows": asked.rows,
        "cpu_ratio": _ratio([ours.cpu_seconds / peer.cpu_seconds for ours, peer in pairs]),
        "wall_ratio": _ratio([ours.wall_seconds / peer.wall_seconds for ours, peer in pairs]),
        "pairs": [[asdict(ours), asdict(peer)] for ours, peer in pairs],
        "machine": machine(0, "-"),
    }


def _ratio(ratios: list[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def show(result: Mapping[str, Any]) -> None:
    """A small table on standard output."""
    table = Table("", "one pipeline", "three pipelines", "one / three", title=f"{result['weight']} outputs")
    for figure in ("cpu", "wall"):
        ours, peer = (statistics.median(pair[at][f"{figure}_seconds"] for pair in result["pairs"]) for at in (0, 1))
        ratio = result[f"{figure}_ratio"]
        told = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
        table.add_row(f"{figure} s", f"{ours:.2f}", f"{peer:.2f}", told)
    Console().print(table)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weight", choices=["light", "heavy"], default="light")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--epochs", type=int, default=4, help="files, and so micro-batches")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for data and runs (removed)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    executor_argument(parser)
    parser.set_defaults(executor="local")
    asked = parser.parse_args()
    with workplace(asked.folder) as work:
        result = compare(asked, work)
    if asked.format == "json":
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
