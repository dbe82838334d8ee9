"""Seconds that pages take beside Airflow's own list of DAGs: ``python -m benchmarks.pages``.

A root in memory's file system with many pipelines of many snapshots each, and Airflow's API server in this process,
whose database has the DAGs of all of them. Medians of answers as the page asks for them, warm and cold.
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
from pathlib import Path
from typing import Any

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.filelog import FileLog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS, REJECTED, UNNAMED
from headrace_snapshots.refs import MAIN
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
    parser.add_argument("--asked", type=int, default=21, help="how often each is asked")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        begun = time.monotonic()
        build(open_store((folder / "root").as_uri()), given.pipelines, given.snapshots)
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
    from headrace.runs.reporting.summary_renewal import renew_summary

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
    )
    with _server(pipelines) as ask:
        dag = (
            "headrace/api/dags/headrace_p0500_process"
            if pipelines > 500
            else "headrace/api/dags/headrace_p0000_process"
        )
        questions = {
            "Airflow: list of DAGs": "ui/dags?limit=50",
            "pipelines": "headrace/api/pipelines",
            "one pipeline": dag,
            "history": f"{dag}/history?limit=50",
            "epochs": f"{dag}/epochs?limit=50",
            "graph": f"{dag}/graph",
            "lateness": f"{dag}/lateness?limit=50",
            "audits": f"{dag}/audits",
            "snapshot": f"{dag}/snapshots/main",
        }
        cold = {f"{name}, cold": ask(path) for name, path in questions.items()}
        return {name: statistics.median(ask(path) for _ in range(asked)) for name, path in questions.items()} | cold


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
        for number in range(pipelines):
            for family in _FAMILIES:
                name = f"headrace_p{number:04}_{family}"
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
        tables={UNNAMED.state(0): (), UNNAMED.current: ()},
        logs={name: FileLog.empty() for name in (UNNAMED.panes, UNNAMED.late, REJECTED, INPUTS)},
        counts={"records": 1000, "accepted": 990, "rejected": 10},
        timings={"compute_seconds": 1.5},
        requests={"get": 5, "put": 5},
        code={},
    )


if __name__ == "__main__":
    main()
