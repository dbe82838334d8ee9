"""A local Airflow for the demo, for ``make up`` and for tests: its environment, its processes, its health.

SQLite, LocalExecutor, loopback, no login: for one person's machine. Each process leads a session of its own, so that it
can be stopped with everything it started; which ones were started is kept in ``up.json`` in AIRFLOW_HOME.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from scripts.airflow_api import AirflowApi, NotReadyError

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = REPOSITORY / ".headrace" / "airflow"
COMPONENTS = ("api-server", "scheduler", "dag-processor")
_START_SECONDS = 180
_STOP_SECONDS = 20
_TAIL_BYTES = 4_000


class LocalAirflowError(Exception):
    """The local Airflow is not in the state that was asked for; the message has the end of the log that tells why."""


@dataclass(frozen=True)
class Started:
    """A process that was started: ``created`` (seconds since 1970) tells it from a later one with the same pid."""

    name: str
    pid: int
    created: float


@dataclass(frozen=True)
class Running:
    """What ``up.json`` holds."""

    url: str
    root: str
    processes: tuple[Started, ...]


class LocalAirflow:
    """One Airflow under ``home`` whose pipelines work under ``root`` (a URI)."""

    def __init__(self, home: Path, root: str, extra_environment: Mapping[str, str] | None = None) -> None:
        self.home = home.resolve()
        self.root = root
        self.port, self._worker_log_port, self._trigger_log_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.api = AirflowApi(self.url)
        self._extra = dict(extra_environment or {})
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def environment(self) -> dict[str, str]:
        """The environment of every Airflow process: this one's, Airflow's settings, Headrace's."""
        binaries = Path(sys.executable).parent
        settings = {
            "CORE__DAGS_FOLDER": REPOSITORY / "dags",
            "CORE__PLUGINS_FOLDER": REPOSITORY / "plugins",
            "CORE__LOAD_EXAMPLES": False,
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "CORE__PARALLELISM": 4,
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__HOST": "127.0.0.1",
            "API__PORT": self.port,
            "API__BASE_URL": self.url,
            "API__WORKERS": 1,
            "LOGGING__WORKER_LOG_SERVER_PORT": self._worker_log_port,
            "LOGGING__TRIGGER_LOG_SERVER_PORT": self._trigger_log_port,
            "DAG_PROCESSOR__REFRESH_INTERVAL": 10,
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 10,
            "DAG_PROCESSOR__PARSING_PROCESSES": 1,
        }
        return {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            # small epochs: compiling well costs more than running
            "HEADRACE_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
            "AIRFLOW_HOME": str(self.home),
            "HEADRACE_ROOT": self.root,
            "GX_ANALYTICS_ENABLED": "false",
            **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
            **self._extra,
        }

    def start(self) -> Running:
        """Migrate, make pools, start the components, wait until all are healthy. Raises LocalAirflowError."""
        if running(self.home) is not None:
            raise LocalAirflowError(f"an Airflow of {self.home} is running already; stop it first (make down)")
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            self.run("db-migrate", "airflow", "db", "migrate")
            self.run("pools", sys.executable, "-m", "headrace_airflow.pools", "create")
            for component in COMPONENTS:
                self._spawn(component)
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self._running()

    def run(self, name: str, *command: str) -> None:
        """Run a command to its end, output to ``name``.log. Raises LocalAirflowError when it fails."""
        with self._log(name) as log:
            done = subprocess.run(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if done.returncode != 0:
            raise LocalAirflowError(f"{name} failed ({done.returncode}):\n{self.log_tail(name)}")

    def stop(self) -> None:
        """Stop what this object started, with everything that those processes started."""
        self.api.close()
        stop(self.home)
        for _, process in self._processes:
            process.wait()

    def log_tail(self, name: str) -> str:
        """The end of the log of a component or command."""
        data = (self.home / "logs" / f"{name}.log").read_bytes()
        return data[-_TAIL_BYTES:].decode(errors="replace")

    def _spawn(self, component: str) -> None:
        with self._log(component) as log:
            process = subprocess.Popen(
                ["airflow", component],
                executable=str(Path(sys.executable).parent / "airflow"),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append((component, process))
        _state_file(self.home).write_text(json.dumps(asdict(self._running())))

    def _running(self) -> Running:
        started = []
        for name, process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                started.append(Started(name, process.pid, psutil.Process(process.pid).create_time()))
        return Running(self.url, self.root, tuple(started))

    def _wait_until_healthy(self) -> None:
        for attempt in Retrying(
            stop=stop_after_delay(_START_SECONDS),
            wait=wait_fixed(0.5),
            retry=retry_if_exception_type(NotReadyError),
            reraise=True,
        ):
            with attempt:
                for name, process in self._processes:
                    if process.poll() is not None:
                        raise LocalAirflowError(f"{name} ended ({process.returncode}):\n{self.log_tail(name)}")
                self.api.check_health()

    def _log(self, name: str) -> IO[bytes]:
        folder = self.home / "logs"
        folder.mkdir(exist_ok=True)
        return (folder / f"{name}.log").open("ab")


def running(home: Path) -> Running | None:
    """What was started under ``home`` and has a process left."""
    file = _state_file(home)
    if not file.is_file():
        return None
    state = json.loads(file.read_text())
    processes = tuple(Started(**one) for one in state["processes"])
    found = Running(state["url"], state["root"], processes)
    return found if any(_process(one) for one in processes) else None


def stop(home: Path) -> list[str]:
    """Stop what was started under ``home``, by pid: SIGTERM, then SIGKILL. The names of what was stopped."""
    found = running(home)
    _state_file(home).unlink(missing_ok=True)
    if found is None:
        return []
    leaders = {one.name: process for one in found.processes if (process := _process(one))}
    family = [*leaders.values(), *_descendants(list(leaders.values()))]
    for leader in leaders.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            leader.terminate()
    _, left = psutil.wait_procs(family, timeout=_STOP_SECONDS)
    left = [*left, *_descendants(left)]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=_STOP_SECONDS)
    return [*leaders]


def _descendants(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.children(recursive=True)
    return found


def _process(started: Started) -> psutil.Process | None:
    try:
        process = psutil.Process(started.pid)
        alive = abs(process.create_time() - started.created) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if alive else None


def _state_file(home: Path) -> Path:
    return home.resolve() / "up.json"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
