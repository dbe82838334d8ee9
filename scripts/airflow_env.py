"""A local Airflow for the demo, for ``make up`` and for tests: its environment, its processes, its health.

SQLite, LocalExecutor, loopback: for one person's machine. Every start makes new passwords, and requests under another
host name than those of loopback are refused. What is started carries a mark in its environment (``up.json`` in
AIRFLOW_HOME has it), and hands it on to what it starts. So all of it can be stopped, also behind a parent that died.
"""

import base64
import contextlib
import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

import psutil
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headrace.distribute.spark.jvm import cache_folder
from scripts.airflow_api import AirflowApi, NotReadyError

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = REPOSITORY / ".headrace" / "airflow"
COMPONENTS = {
    "api-server": (),
    "scheduler": ("--skip-serve-logs",),  # it would serve them on all addresses; the API server reads the files
    "dag-processor": (),
}
"""What runs, and with which options."""
TRIGGERER = {"triggerer": ("--skip-serve-logs",)}
"""Watchers of schedules by files run in it. No task waits in it; without it the UI shows a component that is red."""
ADMIN = "admin"
ADMIN_ONLY = {ADMIN: "admin"}
_TASKS = "headrace"
"""The user as whom tasks ask for pools and make them."""
_DATABASE = "AIRFLOW__DATABASE__"
_MARK = "HEADRACE_LOCAL_AIRFLOW"
_LOCAL_SETTINGS = """import atexit
import gc
import sys

__all__ = []
gc.set_threshold(50_000, 50, 100)
atexit.register(lambda: "_duckdb" in sys.modules or gc.freeze())  # it would call leaked what is not collected
"""
"""What every process of Airflow does first. An API server makes routes for seconds, all of which stay. For a fifth of
that time the collector looked for garbage, and at its end for three seconds more, though it ends.
"""
_START_SECONDS = 420
_STOP_SECONDS = 20
_LOCK_SECONDS = 30
_TAIL_BYTES = 4_000


class LocalAirflowError(Exception):
    """The local Airflow is not in the state that was asked for; the message has the end of the log that tells why."""


@dataclass(frozen=True)
class Running:
    """What ``up.json`` holds: ``mark`` is the value that the variable of that name has in every process; the pid of the
    ``scheduler``, 0 if it has not been started yet.
    """

    url: str
    root: str
    mark: str
    scheduler: int = 0


class LocalAirflow:
    """One Airflow under ``home`` whose pipelines work under ``root`` (a URI).

    ``users`` are the roles of people, by name; ``passwords`` are theirs. ``triggerer``: with one, for watchers.
    """

    def __init__(
        self,
        home: Path,
        root: str,
        extra_environment: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] = ADMIN_ONLY,
        triggerer: bool = False,
    ) -> None:
        self.home = home.resolve()
        self.root = root
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._users = {**users, _TASKS: "op"}
        self.passwords = {user: secrets.token_urlsafe(18) for user in self._users}
        self.api = self.api_as(ADMIN)
        self._mark = secrets.token_hex(16)
        self._components = {**COMPONENTS, **(TRIGGERER if triggerer else {})}
        self._extra = dict(extra_environment or {})
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def api_as(self, user: str) -> AirflowApi:
        """The REST API as one of the users."""
        return AirflowApi(self.url, user, self.passwords[user])

    def environment(self) -> dict[str, str]:
        """The environment of every Airflow process: this one's, Airflow's settings, Headrace's."""
        binaries = Path(sys.executable).parent
        settings = {
            # SQLite lets one write at a time; the DAG processor's transactions take long on a busy machine
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home / 'airflow.db'}?timeout={_LOCK_SECONDS}",
            "DATABASE__CHECK_MIGRATIONS": False,  # each component would import all of them; start() has migrated
            "CORE__DAGS_FOLDER": REPOSITORY / "dags",
            "CORE__PLUGINS_FOLDER": REPOSITORY / "plugins",
            "CORE__LOAD_EXAMPLES": False,
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "CORE__PARALLELISM": 4,
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": False,
            "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in self._users.items()),
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": self._passwords_file,
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__HOST": "127.0.0.1",
            "API__PORT": self.port,
            "API__BASE_URL": self.url,
            "API__WORKERS": 1,
            "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 60,  # of a task whose worker was killed; beats come every 5 s
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.5,  # for one person who waits, not for a thousand DAGs
            # a new pipeline is seen so many seconds later; each look at all of them is half a second of a core
            "DAG_PROCESSOR__REFRESH_INTERVAL": 30,
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 30,
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
            "HEADRACE_ALLOWED_HOSTS": "127.0.0.1,localhost",
            "AIRFLOW_CONN_HEADRACE_API": json.dumps(
                {"conn_type": "http", "login": _TASKS, "password": self.passwords[_TASKS]}
            ),
            "GX_ANALYTICS_ENABLED": "false",
            _MARK: self._mark,
            "SPT_NOENV": "1",  # processes that change their title keep the mark
            **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
            **self._extra,
        }

    def start(self) -> Running:
        """Migrate, start the components, wait until all are healthy. Raises LocalAirflowError."""
        if running(self.home) is not None:
            raise LocalAirflowError(f"an Airflow of {self.home} is running already; stop it first (make down)")
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(self._passwords_file, json.dumps(self.passwords))
        state = Running(self.url, self.root, self._mark)
        _write_private(_state_file(self.home), json.dumps(asdict(state)))
        (self.home / "config").mkdir(exist_ok=True)
        (self.home / "config" / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)
        try:
            is_first = not (self.home / "logs" / "scheduler.log").exists()
            self._make_database()
            for component, options in self._components.items():
                if component == "scheduler" and not is_first:
                    # tasks that wait for it would begin, find no API server, and use up their retries
                    self._wait_until(self.api.health)
                self._spawn(component, options)
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return state

    def run(self, name: str, *command: str) -> None:
        """Run a command to its end, output to ``name``.log. Raises LocalAirflowError when it fails."""
        with self._log(name) as log:
            process = subprocess.run(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
        if process.returncode != 0:
            raise LocalAirflowError(f"{name} failed ({process.returncode}):\n{self.log_tail(name)}")

    def stop(self) -> None:
        """Stop what this object started, with everything that those processes started."""
        self.api.close()
        stop(self.home)
        for _, process in self._processes:
            process.wait()

    def pid(self, component: str) -> int:
        """The process id of a component."""
        return next(process.pid for name, process in self._processes if name == component)

    def kill(self, component: str) -> None:
        """Kill a component as the operating system does: what it has started stays."""
        (process,) = (process for name, process in self._processes if name == component)
        process.kill()
        process.wait()
        self._processes = [pair for pair in self._processes if pair[1] is not process]

    def revive(self, component: str) -> None:
        """Start a component that was killed, and wait until all are healthy. Raises LocalAirflowError."""
        self._spawn(component, self._components[component])
        self._wait_until_healthy()

    def log_tail(self, name: str) -> str:
        """The end of the log of a component or command."""
        data = (self.home / "logs" / f"{name}.log").read_bytes()
        return data[-_TAIL_BYTES:].decode(errors="replace")

    @property
    def _passwords_file(self) -> Path:
        return self.home / "passwords.json"

    def _make_database(self) -> None:
        """Migrate the database. An empty one takes seconds: it is kept, and other homes begin with a copy of it."""
        own, cached_file = self.home / "airflow.db", cache_folder() / "airflow" / f"{version('apache-airflow-core')}.db"
        is_new = not own.exists() and self._has_database_at(own)
        if is_new and cached_file.exists():
            self._write_keys()
            _copy_database(cached_file, own)
            return
        self.run("db-migrate", "airflow", "db", "migrate")
        if is_new:
            cached_file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cached_file.parent) as folder:
                _copy_database(own, Path(folder) / "copy")
                (Path(folder) / "copy").replace(cached_file)

    def _has_database_at(self, own: Path) -> bool:
        """Whether the database is in the file ``own``, by whatever path, and nothing else is set of it."""
        address = f"{_DATABASE}SQL_ALCHEMY_CONN"
        kind, _, path = self.environment()[address].partition(":///")
        is_there = kind == "sqlite" and Path(path.partition("?")[0]).resolve() == own
        return is_there and not any(_DATABASE in name and name != address for name in {*os.environ, *self._extra})

    def _write_keys(self) -> None:
        """Write this Airflow's keys, unless it has some: its components start at once, and each would make others."""
        file = self.home / "airflow.cfg"
        if not file.exists():
            lines = (
                f"[{section}]\n{name} = {base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}\n"
                for section, name in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret"))
            )
            _write_private(file, "".join(lines))

    def _spawn(self, component: str, options: Sequence[str]) -> None:
        with self._log(component) as log:
            process = subprocess.Popen(
                ["airflow", component, *options],
                executable=str(Path(sys.executable).parent / "airflow"),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append((component, process))
        if component == "scheduler":
            state = Running(self.url, self.root, self._mark, process.pid)
            _write_private(_state_file(self.home), json.dumps(asdict(state)))

    def _wait_until_healthy(self) -> None:
        self._wait_until(lambda: self.api.check_health(*(TRIGGERER.keys() & self._components.keys())))

    def _wait_until(self, check: Callable[[], object]) -> None:
        """Until ``check`` raises no NotReadyError. Raises LocalAirflowError if a component ends meanwhile."""
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
                check()

    def _log(self, name: str) -> IO[bytes]:
        folder = self.home / "logs"
        folder.mkdir(exist_ok=True)
        return (folder / f"{name}.log").open("ab")


def running(home: Path) -> Running | None:
    """What was started under ``home`` and has a process left."""
    file = _state_file(home)
    if not file.is_file():
        return None
    running_airflow = Running(**json.loads(file.read_text()))
    return running_airflow if _find_processes(running_airflow.mark) else None


def end_orphans(home: Path) -> bool:
    """Stop what was started under ``home`` if its scheduler is gone, which a kill ends alone. Tasks that it has started
    go on without anybody, and keep the locks of its database. Whether there was anything. Raises as ``stop`` does.
    """
    airflow = running(home)
    if airflow is None or not airflow.scheduler:
        return False
    has_scheduler = any(one.pid == airflow.scheduler and _is_alive(one) for one in _find_processes(airflow.mark))
    return not has_scheduler and stop(home)


def stop(home: Path) -> bool:
    """Stop whatever carries the mark of ``home``, by pid: SIGTERM, then SIGKILL. Whether anything did.

    Raises LocalAirflowError when a process does not end at all.
    """
    airflow = running(home)
    if airflow is not None:
        family = _find_processes(airflow.mark)
        pids = {process.pid for process in family}
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.ppid() not in pids:  # it ends those that it has started; of a dead parent it is one itself
                    process.terminate()
        _wait_until_gone(airflow.mark, family)
    _state_file(home).unlink(missing_ok=True)
    return airflow is not None


def _wait_until_gone(mark: str, family: Iterable[psutil.Process]) -> None:
    """Until no process that had ``mark`` is left; processes that take too long are killed."""
    processes = set(family)  # one that is being ended shows its environment no more
    patient = time.monotonic() + _STOP_SECONDS
    for attempt in Retrying(
        stop=stop_after_delay(2 * _STOP_SECONDS),
        wait=wait_fixed(0.1),
        retry=retry_if_exception_type(LocalAirflowError),
        reraise=True,
    ):
        with attempt:
            processes.update(_find_processes(mark))
            if left := [process for process in processes if _is_alive(process)]:
                if time.monotonic() > patient:
                    for process in left:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            process.kill()
                raise LocalAirflowError(f"these processes do not end: {', '.join(str(one.pid) for one in left)}")


def _is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: not gone, and not only waiting for its parent to look."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _find_processes(mark: str) -> list[psutil.Process]:
    """The processes of this user that were started with ``mark`` in their environment, by us or by one another."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # gone, or another user's
            if process.environ().get(_MARK) == mark:
                processes.append(process)
    return processes


def _copy_database(source: Path, target: Path) -> None:
    """What SQLite has in ``source``, its journal included."""
    with (
        contextlib.closing(sqlite3.connect(source)) as source_connection,
        contextlib.closing(sqlite3.connect(target)) as target_connection,
    ):
        source_connection.backup(target_connection)


def _state_file(home: Path) -> Path:
    return home.resolve() / "up.json"


def _write_private(file: Path, text: str) -> None:
    """Write what only this user may read."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)


def free_port() -> int:
    """A port of loopback that nobody has, for now."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """So many ports of loopback, each another one, that nobody has for now."""
    with contextlib.ExitStack() as stack:  # all at once: a port that is let go may be given again
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
