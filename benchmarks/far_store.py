"""What commands wait for on a store that is far away: requests, and how many of them one after the other.

``python -m benchmarks.far_store --delay 30 --pipelines 30``: a MinIO server of its own, whose every request waits so
many milliseconds in the client. For each command a process of its own, with the delay and without: its requests, its
rounds (the most requests of which each began when the one before had ended), and seconds that the delay cost.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from rich.console import Console
from rich.table import Table

from benchmarks.comparison import machine, workplace
from benchmarks.throughput import common_arguments
from benchmarks.traffic import BUCKET, minio
from headrace_snapshots.store import open_store

RECORDS = 1000
PIPELINE = '''"""A pipeline of the benchmark of far stores."""

from datetime import datetime

import headrace as hr

pipeline = hr.Pipeline(
    "{name}",
    {source},
    key="shop",
    what={{"amount": hr.col("amount").sum()}},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
'''
LANDED = 'hr.json("landing/{name}", {{"at": datetime, "shop": str, "amount": int}}).event_time("at", bound="1h")'
PUBLISHED = 'hr.published("{name}", {{"shop": str, "window_end": datetime, "amount": int}})'


@dataclass(frozen=True)
class Waited:
    """What a command asked for, and the seconds that it took."""

    requests: int
    rounds: int
    seconds: float


def main() -> None:
    """Command line."""
    given = _arguments()
    if given.child is not None:
        _run_child(given)
        return
    with workplace(given.folder) as work, minio(work / "minio"), _registered(work, given.pipelines) as names:
        root = f"s3://{BUCKET}/far"
        environment = {**os.environ, "HEADRACE_PIPELINES": str(work / "pipelines"), "HEADRACE_CACHE": str(work / "c")}
        environment |= {"HEADRACE_ROOT": root}
        for name in names:
            _land(root, name, 0)
            _headrace(["run", name], environment, 0.0)
        commands = {
            "run of 1,000 rows": ["run", names[0]],
            "read of a key": ["read", names[0], "--where", "shop='shop 1'"],
            "explain of a key": ["explain", names[0], "--key", "shop 1"],
            "log": ["log", names[0]],
            "show": ["show", names[0], "main"],
            f"pipelines, {len(names)} of them": ["pipelines"],
            f"lineage, {len(names)} of them": ["lineage"],
        }
        found = {title: _compared(root, names[0], command, environment, given) for title, command in commands.items()}
    if given.format == "json":
        print(json.dumps({"far_store": found, "machine": machine(given.cores, given.memory)}))
        return
    table = Table(title=f"a store with {given.delay} ms a request", title_justify="left")
    for column in ("command", "requests", "rounds", "seconds", "without the delay"):
        table.add_column(column, justify="left" if column == "command" else "right")
    for title, entry in found.items():
        table.add_row(title, *(str(entry[name]) for name in ("requests", "rounds", "seconds", "near_seconds")))
    Console(width=120).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=30.0, help="milliseconds")
    parser.add_argument("--pipelines", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    common_arguments(parser)
    return parser.parse_args()


@contextlib.contextmanager
def _registered(work: Path, count: int) -> Iterator[list[str]]:
    """The names of pipelines that are written to a folder: two of three read files, one of three another pipeline."""
    folder, first = work / "pipelines", max(1, count * 2 // 3)
    folder.mkdir()
    names = [f"far_{number}" for number in range(count)]
    for number, name in enumerate(names):
        source = LANDED.format(name=name) if number < first else PUBLISHED.format(name=names[number - first])
        (folder / f"{name}.py").write_text(PIPELINE.format(name=name, source=source))
    yield names


def _land(root: str, name: str, number: int) -> None:
    """Put a file of records where the pipeline reads."""
    records = (
        {"at": f"2026-01-01T{number % 24:02d}:{i % 60:02d}:00Z", "shop": f"shop {i % 97}", "amount": i}
        for i in range(RECORDS)
    )
    data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    open_store(root).write(f"landing/{name}/{number:04d}.jsonl", data)


def _compared(
    root: str, name: str, command: Sequence[str], environment: dict[str, str], given: argparse.Namespace
) -> dict[str, Any]:
    """A command with the delay and without it, in turn; the one that took least of each."""
    far, near = [], []
    for repeat in range(given.repeats):
        for waited, delay in ((far, given.delay), (near, 0.0)):
            if command[0] == "run":
                _land(root, name, 1 + 2 * repeat + (delay == 0))
            waited.append(_headrace(command, environment, delay))
    best = min(far, key=lambda one: one.seconds)
    return {
        "requests": best.requests,
        "rounds": min(one.rounds for one in far),
        "seconds": round(best.seconds, 2),
        "near_seconds": round(min(one.seconds for one in near), 2),
    }


def _headrace(command: Sequence[str], environment: dict[str, str], delay: float) -> Waited:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        call = [sys.executable, "-m", "benchmarks.far_store", "--child", str(answer), "--delay", str(delay), "--"]
        done = subprocess.run([*call, *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not answer.is_file():
            raise SystemExit(f"headrace {' '.join(command)}: {done.stdout}{done.stderr}")
        return Waited(**json.loads(answer.read_text()))


def _run_child(given: argparse.Namespace) -> None:
    """Run a command of ``headrace`` in this process, whose requests wait."""
    from headrace.cli.main import main as headrace

    intervals: list[tuple[float, float]] = []
    urlopen = urllib3.PoolManager.urlopen

    def wait_and_ask(pool: urllib3.PoolManager, *args: Any, **named: Any) -> Any:
        begun = time.monotonic()
        time.sleep(given.delay / 1000)
        try:
            return urlopen(pool, *args, **named)
        finally:
            intervals.append((begun, time.monotonic()))

    urllib3.PoolManager.urlopen = wait_and_ask  # type: ignore[method-assign]
    sys.argv = ["headrace", *given.command]
    begun = time.monotonic()
    try:
        headrace()
    except SystemExit as ended:
        if ended.code:
            raise
    waited = Waited(len(intervals), _rounds(intervals), time.monotonic() - begun)
    given.child.write_text(json.dumps(vars(waited)))


def _rounds(intervals: Sequence[tuple[float, float]]) -> int:
    rounds, last = 0, float("-inf")
    for begun, ended in sorted(intervals, key=lambda interval: interval[1]):
        if begun >= last:
            rounds, last = rounds + 1, ended
    return rounds


if __name__ == "__main__":
    main()
