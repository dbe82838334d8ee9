"""From the landing of a file to published, where a pipeline runs all the time without Spark.

``python -m benchmarks.low_latency --files 20``: a real Airflow of its own with one pipeline over flights on ``local``,
which runs by ``--schedule``. Files land one after the other, each at a random moment after the one before it is
published. The time of a publication is that of its entry in the log of the pipeline.
"""

import argparse
import random
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from benchmarks.start_to_published import airflow_cpu
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.log import Entry
from headrace_snapshots.names import PUBLISHED
from headrace_snapshots.store import ObjectStore, open_store
from scripts.airflow_env import REPOSITORY, LocalAirflow
from scripts.land_flights import flights, json_lines, split

_NAME = "quick"
_PIPELINE = """
from dataclasses import replace
from datetime import timedelta

import headrace as hr
from pipelines import flights_departures as demo

pipeline = replace(
    demo.departures,
    name="{name}",
    input=replace(demo.flights, source=replace(demo.flights.source, path="landing/{name}")),
    executor="local",
    schedule={schedule},
    expectations=(),
)
"""
_SECONDS = 600
_SEED = 1


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", default='"@continuous"', help="as a pipeline's file says it")
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--flights", type=int, default=1_000, help="in each file")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="low-latency-"))
    try:
        seconds, cpu = measured(folder, given.schedule, given.files, given.flights)
    finally:
        shutil.rmtree(folder)
    Console(width=120).print(
        f"schedule={given.schedule}: {len(seconds)} files of {given.flights:,} flights, from landing to published: "
        f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s, best {min(seconds):.2f} s; "
        f"Airflow and its tasks took {cpu:.2f} CPU seconds a second"
    )


def measured(folder: Path, schedule: str, files: int, size: int) -> tuple[Sequence[float], float]:
    """Seconds from landing to published of each file, and the CPU that all of Airflow took meanwhile, a second."""
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / f"{_NAME}.py").write_text(_PIPELINE.format(name=_NAME, schedule=schedule))
    root = (folder / "root").as_uri()
    store, table, dice = open_store(root), flights(), random.Random(_SEED)
    parts = split(table.iloc[: size * (files + 1)], files + 1)
    catalog = Catalog(store, _NAME)
    store.write(f"landing/{_NAME}/{0:04}.jsonl", json_lines(parts[0]))
    environment = {"HEADRACE_PIPELINES": str(folder / "pipelines"), "PYTHONPATH": str(REPOSITORY / "jobs")}
    airflow = LocalAirflow(folder / "airflow", root, environment)
    try:
        airflow.start()
        last = published_after(catalog, -1)
        begun, cpu = datetime.now(UTC), airflow_cpu(airflow)
        seconds = []
        for number, part in enumerate(parts[1:], 1):
            wait_a_while(dice)
            landed_at = land(store, number, json_lines(part))
            last = published_after(catalog, last.number)
            seconds.append((datetime.fromisoformat(last.at) - landed_at).total_seconds())
        passed = (datetime.now(UTC) - begun).total_seconds()
        return seconds, (airflow_cpu(airflow) - cpu) / passed
    finally:
        airflow.stop()


def wait_a_while(dice: random.Random) -> None:
    """Up to five seconds, about as long as a run takes: files land at any moment of one."""
    until = datetime.now(UTC).timestamp() + dice.uniform(0, 5)
    Retrying(wait=wait_fixed(0.02), retry=retry_if_result(lambda is_over: not is_over))(
        lambda: datetime.now(UTC).timestamp() > until
    )


def land(store: ObjectStore, number: int, content: bytes) -> datetime:
    """Land a file; when it was there."""
    store.write(f"landing/{_NAME}/{number:04}.jsonl", content)
    return datetime.now(UTC)


def published_after(catalog: Catalog, entry: int) -> Entry:
    """The first entry after number ``entry`` that moved what readers see, as soon as it is there."""

    def newer() -> Entry | None:
        last = catalog.last_move(PUBLISHED, limit=5)
        return last if last is not None and last.number > entry else None

    patient = Retrying(stop=stop_after_delay(_SECONDS), wait=wait_fixed(0.05), retry=retry_if_result(lambda e: not e))
    entry_found = patient(newer)
    assert entry_found is not None
    return entry_found


if __name__ == "__main__":
    main()
