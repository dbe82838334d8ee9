"""The Airflow in which processes are killed, those of runs and its own, and one in which none is: each for two files,
since it takes most of a minute of a core before anything is asked of it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import SELDOM
from tests.airflow.subprocesses import write_pipeline

_DAG_SECONDS = 300
_ROLES = {"admin": "admin", "runs": "user", "looks": "viewer"}
_WAITS = """
import os, signal, subprocess, sys
if sys.argv[0].endswith("submit.py"):
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    with open("{file}.new", "w") as file:
        file.write(f"{{os.getpid()}} {{child.pid}}")
    os.rename("{file}.new", "{file}")
    signal.pause()
"""


@dataclass(frozen=True)
class DisturbedAirflow:
    """An Airflow that is up, and the folder of its pipelines."""

    airflow: LocalAirflow
    pipelines: Path


class QuietAirflow:
    """An Airflow that is up once somebody has pipelines, and folders of what is its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipelines, self.tills, self.dags = (folder / name for name in ("pipelines", "tills", "dags"))
        for part in (self.pipelines, self.tills, self.dags):
            part.mkdir()
        self.root = folder / ".headrace" / "root"
        self.reports = folder / "reports"
        local = "airflow.dag_processing.bundles.local.LocalDagBundle"
        bundles = [
            {"name": "dags-folder", "classpath": local, "kwargs": {}},
            {"name": "own", "classpath": local, "kwargs": {"path": str(self.dags)}},
        ]
        environment = {
            **SELDOM,
            "HEADRACE_PIPELINES": f"{self.pipelines}{os.pathsep}{self.tills}",
            "PYTHONPATH": str(self.tills),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            "REPORTS": str(self.reports),
        }
        self.airflow = LocalAirflow(folder / "home", self.root.as_uri(), environment)
        self._seen_dag = ""

    def see_pipelines(self, dag_id: str) -> None:
        """Start it, or have it look at its files again; ``dag_id`` is one of theirs."""
        if self._seen_dag:
            self.airflow.api.parse(self._seen_dag)
        else:
            self.airflow.start()
        self.airflow.api.wait_for_dag(dag_id, _DAG_SECONDS)
        self._seen_dag = dag_id


@pytest.fixture(scope="package")
def quiet_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuietAirflow]:
    """An Airflow without pipelines, not started yet."""
    quiet = QuietAirflow(tmp_path_factory.mktemp("quiet"))
    yield quiet
    quiet.airflow.stop()


@pytest.fixture(scope="package")
def disturbed_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DisturbedAirflow]:
    """An Airflow that looks for killed workers often, with a user of each role."""
    folder = tmp_path_factory.mktemp("disturbed")
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    _write_pipelines(pipelines)
    environment = {
        **SELDOM,
        "HEADRACE_PIPELINES": str(pipelines),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        # of a task whose supervisor is killed before it has begun
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
        "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    }
    local = LocalAirflow(folder / "home", (folder / "root").as_uri(), environment, users=_ROLES)
    try:
        local.start()
        yield DisturbedAirflow(local, pipelines)
    finally:
        local.stop()


def _write_pipelines(folder: Path) -> None:
    """One that works, one that kills strike, one whose state is damaged later, one without a budget for dead letters,
    one that expects less, and one whose runs (not its DAGs) say who they are and then wait for ever.
    """
    write_pipeline(folder, "clicks", most=None)
    write_pipeline(folder, "struck", options='executor="local", airflow=hr.airflow(retry_delay="1s")', most=None)
    write_pipeline(folder, "strict", source="max_rejected=0,", options='executor="local"', most=None)
    write_pipeline(folder, "damaged", options='executor="local"', most=None)
    write_pipeline(folder, "modest", most=1, options='executor="auto"')
    waiting = write_pipeline(folder, "waiting", options='executor="local"', most=None)
    waiting.write_text(waiting.read_text() + _WAITS.format(file=str(folder / "pids")))
