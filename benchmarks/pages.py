"""Seconds that pages take beside Airflow's own list of DAGs: ``python -m benchmarks.pages``.

A root in memory's file system with many pipelines of many snapshots each, and Airflow's API server in this process,
whose database has the DAGs of all of them. One pipeline has run in earnest, epoch by epoch, and has rows of every kind:
what pages ask about one pipeline is asked about that. Medians of answers as the page asks for them, warm and cold.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FileLog
from headrace_snapshots.format.manifest import INPUTS, REJECTED, UNNAMED, Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import ObjectStore, open_store

MEMORY = Path("/dev/shm")
_FAMILIES = ("process", "recover", "backfill")
_USER = "ada"
_REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    """Build the root, ask, print a table, and keep the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=1_000)
    parser.add_argument("--snapshots", type=int, default=100, help="of each pipeline")
    parser.add_argument("--epochs", type=int, default=200, help="of the pipeline that is asked about")
    parser.add_argument("--asked", type=int, default=21, help="how often each is asked")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        begun = time.monotonic()
        root = (folder / "root").as_uri()
        build(open_store(root), given.pipelines, given.snapshots)
        run_for_real(folder, root, given.epochs)
        print(f"{given.pipelines * given.snapshots:,} snapshots in {time.monotonic() - begun:.0f} s")
        figures = measured(folder, given.pipelines, given.asked)
    finally:
        shutil.rmtree(folder)
    for name, seconds in figures.items():
        print(f"{name:34} {seconds * 1000:8.1f} ms  {seconds / figures['Airflow: list of DAGs']:6.2f}")
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1))


def build(store: ObjectStore, pipelines: int, snapshots: int) -> None:
    """Many pipelines with a line of snapshots each, published, and their summaries."""
    from headrace.runs.reporting.summary import renew_summary

    for number in range(pipelines):
        catalog = Catalog(store, f"p{number:04}")
        claim = catalog.claim(MAIN, "benchmark")
        parent: str | None = None
        for epoch in range(snapshots):
            snapshot = catalog.new_snapshot_id()
            catalog.commit(claim, _manifest(catalog.pipeline, snapshot, parent, epoch, claim.generation))
            parent = snapshot
        assert parent is not None
        catalog.publish(parent, None)
        renew_summary(catalog)


_PIPELINE = """
from datetime import datetime
import headrace as hr

asked = hr.Pipeline(
    "asked",
    hr.json("landing/asked", {"user": str, "at": datetime, "n": int}).event_time("at", bound="10m"),
    key="user",
    what={"n": hr.col("n").sum()},
    where=hr.FixedWindows("10m"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1h"),
    executor="local",
)
"""


def run_for_real(folder: Path, root: str, epochs: int) -> None:
    """The pipeline ``asked``: in each epoch records of 50 users, a late one and one that cannot be read; a branch of a
    backfill. The last epoch is not published.
    """
    import headrace as hr
    from headrace.pipeline.loading.registry import in_file

    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / "asked.py").write_text(_PIPELINE)
    (registered,) = in_file(pipelines / "asked.py")
    store, start = open_store(root), datetime(2026, 11, 1, tzinfo=UTC)
    for epoch in range(epochs):
        at = (start + timedelta(minutes=5 * epoch)).isoformat()
        lines = [json.dumps({"user": f"u{number}", "at": at, "n": number}) for number in range(50)]
        late = json.dumps({"user": "u0", "at": (start - timedelta(days=1)).isoformat(), "n": 1})
        store.write(f"landing/asked/{epoch:06}.jsonl", "\n".join([*lines, late, "oops", ""]).encode())
    pipeline = hr.open(root, create=True)[registered.pipeline]
    pipeline.run(files_per_epoch=1, max_epochs=epochs - 1)
    pipeline.backfill(start="2026-11-01", end="2026-11-02", branch="again")
    pipeline.run(files_per_epoch=1, publish=False)


def measured(folder: Path, pipelines: int, asked: int) -> dict[str, float]:
    """Median seconds of each question; the first that is asked of a new server, where it is cold."""
    root = (folder / "root").as_uri()
    (folder / "passwords.json").write_text(json.dumps({_USER: _USER}))
    os.environ.update(
        AIRFLOW_HOME=str(folder / "home"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS=f"{_USER}:admin",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=str(folder / "passwords.json"),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(_REPOSITORY / "plugins"),
        HEADRACE_ROOT=root,
        HEADRACE_PIPELINES=str(folder / "pipelines"),
    )
    with _server(pipelines) as ask:
        dag, key = "headrace/api/dags/headrace_asked_process", quote('{"user": "u7"}')
        questions = {
            "Airflow: list of DAGs": "ui/dags?limit=50",
            "pipelines": "headrace/api/pipelines",
            "one pipeline": dag,
            "history": f"{dag}/history?limit=50",
            "epochs": f"{dag}/epochs?limit=50",
            "runs of epochs": f"{dag}/epochs/runs?limit=50",
            "graph": f"{dag}/graph",
            "lateness": f"{dag}/lateness?limit=50",
            "audits": f"{dag}/audits",
            "snapshot": f"{dag}/snapshots/main",
            "results of a run": f"{dag}/runs/manual__1",
            "rows: dead letters": f"{dag}/rows/rejected?at=main&limit=50",
            "rows: current": f"{dag}/rows/current?at=main&limit=50",
            "keys of panes": f"{dag}/panes/keys",
            "panes of a key": f"{dag}/panes?key={key}",
            "compare": f"{dag}/diff?before=published&after=main&limit=50",
            "before a rollback": f"{dag}/rehearsals/rollback?to=beginning",
            "where to recover": f"{dag}/recovery-targets",
            "before a recovery": f"{dag}/rehearsals/recover?to=published",
            "before a promotion": f"{dag}/rehearsals/promote?branch=again",
            "explain": f"{dag}/explain?key={key}",
        }
        cold = {f"{name}, cold": ask(path) for name, path in questions.items()}
        # in turn: whatever else the machine does meets all of them, Airflow's own list among them
        rounds = [{name: ask(path) for name, path in questions.items()} for _ in range(asked)]
        return {name: statistics.median(seconds[name] for seconds in rounds) for name in questions} | cold


@contextmanager
def _server(pipelines: int) -> Iterator[Callable[[str], float]]:
    """Airflow's API server with the DAGs of all pipelines; a function that asks it and says how long that took."""
    import logging

    from airflow.utils.db import initdb

    logging.disable(logging.CRITICAL)
    initdb()
    from airflow.api_fastapi.app import create_app
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session
    from fastapi.testclient import TestClient

    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        for pipeline in ("asked", *(f"p{number:04}" for number in range(pipelines))):
            for family in _FAMILIES:
                name = f"headrace_{pipeline}_{family}"
                session.add(
                    DagModel(dag_id=name, bundle_name="dags-folder", is_paused=False, is_stale=False, fileloc="x")
                )
    with TestClient(create_app(apps="core")) as client:
        token = client.post("/auth/token", json={"username": _USER, "password": _USER}).json()["access_token"]

        def ask(path: str) -> float:
            begun = time.perf_counter()
            answer = client.get(f"/{path}", headers={"Authorization": f"Bearer {token}"})
            taken = time.perf_counter() - begun
            answer.raise_for_status()
            return taken

        yield ask


def _manifest(pipeline: str, snapshot: str, parent: str | None, epoch: int, generation: int) -> Manifest:
    at = f"2026-11-{epoch // 1440 % 28 + 1:02}T{epoch // 60 % 24:02}:{epoch % 60:02}:00Z"
    progress: dict[str, Any] = {
        "inputs": {},
        "watermark": at,
        "held_back_by": None,
        "processing_time": at,
        "output_watermarks": [at],
        "next_event_time_deadline": None,
        "next_processing_time_deadline": None,
        "min_event_time": at,
        "max_event_time": at,
        "ahead": [],
        "newest_event_time": at,
        "newest_event_time_read": at,
        "behind": {"0": 1000},
        "signals": [],
        "signals_of": None,
        "executor": "local",
    }
    return Manifest(
        snapshot_id=snapshot,
        pipeline=pipeline,
        fingerprint="0" * 64,
        branch=MAIN,
        epoch=epoch,
        parent=parent,
        generation=generation,
        created_at=at,
        progress=progress,
        schema={},
        tables={UNNAMED.state_table(0): (), UNNAMED.current: ()},
        logs={name: FileLog.empty() for name in (UNNAMED.panes, UNNAMED.late, REJECTED, INPUTS)},
        counts={"records": 1000, "accepted": 990, "rejected": 10},
        timings={"compute_seconds": 1.5},
        requests={"get": 5, "put": 5},
        code={},
    )


if __name__ == "__main__":
    main()
