"""``python -m scripts.demo [--store s3]``: the whole thing at work on a year of real flights, in a few minutes.

A real Airflow and, with ``--store s3``, a real MinIO are started on loopback. The year lands in instalments; after
each, the process DAG of each pipeline is triggered and waited for: of one on Spark, of the other without it. Then the
``headrace`` command prints the results, the snapshot log and the lateness, and one picture is drawn. Everything that
was started is stopped, also after Ctrl-C.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.errors import HeadraceError
from scripts import land_flights, minio_server
from scripts.airflow_api import NotReadyError
from scripts.airflow_env import ADMIN, REPOSITORY, LocalAirflow, LocalAirflowError, stop

FOLDER = REPOSITORY / ".headrace" / "demo"
PIPELINES = ("flights_departures", "aircraft_sessions")
BUCKET = "headrace"
INSTALMENTS = 3
_DAG_SECONDS = 120
_RUN_SECONDS = 1_200
_LOG_LINES = 40
_WORKS = "process"
"""The task that computes."""
_BEST = {"flights_departures": "mean_delay desc", "aircraft_sessions": "legs desc, air_minutes desc"}


class DemoError(Exception):
    """A step of the demo did not go as it must; the message shows why."""


class Stopwatch:
    """Where the time went, step by step."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        try:
            yield
        finally:
            self._steps.append((name, time.monotonic() - start))

    def table(self) -> str:
        """One line per step, and the sum."""
        total = sum(seconds for _, seconds in self._steps)
        lines = [f"{seconds:7.1f} s  {seconds / total:4.0%}  {name}" for name, seconds in self._steps]
        return "\n".join([*lines, f"{total:7.1f} s        in all"])


def main(arguments: list[str]) -> int:
    """Exit code 0 when every DAG run was green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["local", "s3"], default=os.environ.get("STORE") or "local")
    parser.add_argument("--instalments", type=int, default=INSTALMENTS, help="default: %(default)s")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that kill cleans up like Ctrl-C
    clock = Stopwatch()
    try:
        with ExitStack() as stack:
            demonstrate(options.store, options.instalments, clock, stack)
    except (DemoError, LocalAirflowError, NotReadyError, HeadraceError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started is stopped.", file=sys.stderr)
        return 130
    print(f"\nWhere the time went\n{clock.table()}")
    print(f"\nKept for you to look at: {FOLDER}")
    return 0


def demonstrate(store: str, instalments: int, clock: Stopwatch, stack: ExitStack) -> None:
    """The story of the module's docstring; what it starts is stopped when ``stack`` closes."""
    stop(FOLDER / "airflow")  # of a demo that was killed too hard to do so itself
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    root = (FOLDER / "root").as_uri()
    if store == "s3":
        with clock.step("MinIO: start on loopback"):
            root = start_minio(stack)
    with clock.step("Airflow: migrate, start, wait until healthy"), ThreadPoolExecutor(1) as pool:
        year = pool.submit(land_flights.flights)
        airflow = LocalAirflow(FOLDER / "airflow", root)
        stack.callback(airflow.stop)
        airflow.start()
        for pipeline in PIPELINES:
            airflow.api.wait_for_dag(f"headrace_{pipeline}_process", _DAG_SECONDS)
        print(f"Airflow runs at {airflow.url} (login {ADMIN}, password {airflow.passwords[ADMIN]}); the root is {root}")
    for number in range(1, instalments + 1):
        with clock.step(f"instalment {number} of {instalments}: land"):
            print(f"landed {len(land_flights.land(root, number, instalments, table=year.result()))} files")
        with clock.step(f"instalment {number} of {instalments}: process, audit, publish"):
            run_dags(airflow)
    with clock.step("results, snapshot log, lateness, picture"):
        show(airflow.environment())
    with clock.step("stop"):
        stack.close()


def start_minio(stack: ExitStack) -> str:
    """A MinIO with one bucket whose keys are in this process's environment from now on; the root in it."""
    server = minio_server.start(FOLDER / "minio")
    stack.callback(minio_server.stop, server)
    os.environ.update(server.environment())
    minio_server.client(server).make_bucket(BUCKET)
    print(f"MinIO runs at {server.endpoint}")
    return f"s3://{BUCKET}/demo"


def run_dags(airflow: LocalAirflow) -> None:
    """Trigger the process DAG of each pipeline, wait for all, and raise DemoError with a log's end when one failed."""
    dag_ids = [f"headrace_{pipeline}_process" for pipeline in PIPELINES]
    for dag_id, run_id in [(dag_id, airflow.api.trigger(dag_id)) for dag_id in dag_ids]:
        ended_run = airflow.api.wait_for_run(dag_id, run_id, _RUN_SECONDS)
        if ended_run.state != "success":
            task = next((task for task, state in ended_run.tasks.items() if state == "failed"), "")
            tail = "\n".join(airflow.api.log(dag_id, run_id, task)[-_LOG_LINES:]) if task else str(ended_run.tasks)
            raise DemoError(f"{dag_id} {run_id}: task {task} failed. The end of its log:\n{tail}")
        print(f"{dag_id}: {', '.join(f'{task} {state}' for task, state in ended_run.tasks.items())}")
        for line in airflow.api.log(dag_id, run_id, _WORKS):
            if line.startswith("executor "):
                print(f"  {line}")
        for extra in airflow.api.asset_events(dag_id, run_id):
            print(f"  asset event {extra}")


def show(environment: Mapping[str, str]) -> None:
    """What a user would ask the command line, and what it says."""
    for pipeline in PIPELINES:
        headrace(environment, "read", pipeline, "--order", _BEST[pipeline], "--limit", "8")
        headrace(environment, "log", pipeline)
    headrace(environment, "plot", PIPELINES[1])
    picture = FOLDER / "flights_departures.png"
    headrace(environment, "plot", PIPELINES[0], "--out", str(picture))


def headrace(environment: Mapping[str, str], *arguments: str) -> None:
    """Run one command of ``headrace`` and show it. Raises DemoError."""
    print(f"\n$ headrace {' '.join(arguments)}", flush=True)
    binary = Path(sys.executable).with_name("headrace")
    process = subprocess.run([binary, *arguments], env=environment, stdin=subprocess.DEVNULL, check=False)
    if process.returncode != 0:
        raise DemoError(f"`headrace {' '.join(arguments)}` ended with {process.returncode}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
