"""Time from submit to first commit, cold: a new process and JVM restores a pipeline with so many live keys, reads one
small file and commits one epoch. ``python -m benchmarks.cold_start --keys 0 1000000 --format text|json``; seconds,
not a timed test.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    accumulating,
    col,
    count,
    sum_of,
)
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CHUNK = 1_000_000

PIPELINE = Pipeline(
    name="cold_start",
    source=FileSource(
        "landing",
        FileFormat.PARQUET,
        {"user": DataType.INT, "at": DataType.TIMESTAMP, "amount": DataType.INT},
        max_files=100,
        max_bytes=2**40,
    ),
    event_time=EventTime(col("at"), BoundedOutOfOrderness(DAY)),
    key={"user": col("user")},
    where=FixedWindows(DAY),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=accumulating(allowed_lateness=DAY),
    what={"payments": count(), "amount": sum_of(col("amount"))},
)


def land(root: Path, name: str, first: int, keys: int) -> None:
    """One file with one payment of each of ``keys`` users."""
    folder = root / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    users = pa.array(range(first, first + keys), pa.int64())
    times = pa.array([START] * keys, pa.timestamp("us", tz="UTC"))
    table = pa.table({"user": users, "at": times, "amount": users})
    pq.write_table(table, folder / f"{name}.parquet")


def prepare(root: Path, keys: int) -> None:
    """A pipeline with ``keys`` live windows."""
    for number, first in enumerate(range(0, keys, CHUNK)):
        land(root, f"a{number:05d}", first, min(CHUNK, keys - first))
    if keys:
        process(PIPELINE, root.as_uri(), RunOptions("prepare"))


def measure(root: Path, attempt: int) -> float:
    """Seconds from the start of a new process to its first commit."""
    land(root, f"b{attempt:05d}", 0, 1000)
    catalog = Catalog(open_store(root.as_uri()), PIPELINE.name)
    before = catalog.head().refs.get("main")
    started = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "benchmarks.cold_start", "--run", root.as_uri()])
    committed: float | None = None
    while child.poll() is None:
        if committed is None and catalog.head().refs.get("main") != before:
            committed = time.monotonic() - started
        time.sleep(0.02)
    if child.returncode or committed is None:
        raise SystemExit(f"the measured run failed with exit code {child.returncode}")
    return committed


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[0, 1_000_000, 10_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        process(PIPELINE, given.run, RunOptions(f"measured-{time.time_ns()}"))
        return
    results = []
    for keys in given.keys:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            prepare(root, keys)
            seconds = [measure(root, attempt) for attempt in range(given.repeat)]
        results.append({"live_keys": keys, "median_seconds": statistics.median(seconds), "seconds": seconds})
        if given.format == "text":
            print(f"{keys:>12,} live keys: {statistics.median(seconds):6.1f} s from submit to first commit")
    if given.format == "json":
        print(json.dumps(results))


if __name__ == "__main__":
    main()
