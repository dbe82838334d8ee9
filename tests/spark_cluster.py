"""A real Spark standalone cluster on this machine: a master and workers as processes of their own, on loopback.

    with SparkCluster(tmp_path, environment=minio.environment()) as cluster:
        cluster.add_workers(2, cores=1)
        command = [*cluster.submit, "--conf", "spark.executor.memory=512m", ".../submit.py", "process", ...]
        driver = subprocess.Popen(command, env=cluster.environment())
        ...
        cluster.kill(cluster.workers[0])    # as if its machine had lost power

A driver is a process of its own (one JVM belongs to a process, and the suite's has its own session). All that it needs
stands in ``FOLDER/conf/spark-defaults.conf``, which ``submit`` names and ``environment()`` too, for
``SparkSession.builder.getOrCreate()``; ``--conf`` and ``builder.config`` come on top. SPARK_CONF_DIR could name it as
well, but a folder that is there comes on the class path, which the class-data archive's is not: a JVM then takes twice
as long to start.

- ``spark.master``, ``spark.driver.host`` and ``bindAddress`` (loopback), ``spark.authenticate`` with the secret of this
  cluster. The file is for this user only: options would show in the list of processes.
- ``PYSPARK_PYTHON`` is this Python, and PYTHONPATH goes on, so that executors import what the tests import.
- Executors inherit the environment of their worker: that of the cluster (``environment=``: S3 keys, say), and of the
  worker, in which ``SPARK_LOCAL_DIRS`` and ``XDG_CACHE_HOME`` lie in the worker's own folder. What an application sets
  by ``spark.executorEnv.NAME`` wins.
- ``spark.executor.memory`` is the JVM's alone, and what a worker's ``memory_mb`` is counted against; Spark's standalone
  mode does not count what Python takes beside it (YARN and Kubernetes do: ``spark.executor.memoryOverhead``).
- An application takes all cores unless ``spark.cores.max`` says otherwise; one executor a worker, unless
  ``spark.executor.cores`` makes them smaller.

Each node is a session of processes, executors and their Python included: it ends as a whole, and nothing is left.
Logs: ``FOLDER/master/log``, ``FOLDER/worker-N/log``, and of executors ``FOLDER/worker-N/work/app-*/*/stderr``.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
import pyspark
import tenacity

from headrace.distribute.spark.jvm import driver_java_options
from scripts import sessions

LOOPBACK = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
_WAIT_SECONDS = 180.0
_STOP_SECONDS = 20.0
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER_UI = re.compile(r"Bound MasterWebUI to \S+ and started at (http://\S+)")


class ClusterError(Exception):
    """A node is not in the state that was asked for; the message has the end of its log."""


class _NotYetError(Exception):
    """What is waited for has not happened."""


@dataclass(frozen=True)
class Node:
    """A master or a worker: the first process of a session of its own, and the folder with all that it writes."""

    folder: Path
    process: "subprocess.Popen[bytes]"

    @property
    def log(self) -> str:
        """What it said until now."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def family(self) -> list[psutil.Process]:
        """Its living processes: itself, executors, their Python."""
        return sessions.family(self.process)


class SparkCluster:
    """A master, once entered, and the workers that were added. ``environment`` is that of all its processes."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.workers: list[Node] = []
        self.url = ""
        """``spark://host:port`` of the master."""
        self._environment = dict(environment or {})
        self._secret = secrets.token_hex(32)
        self._master: Node | None = None
        self._ui = ""
        self._made_count = 0

    def __enter__(self) -> Self:
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", {})
        try:
            self.url = self._wait_for_line(self._master, _MASTER_URL)
            self._ui = self._wait_for_line(self._master, _MASTER_UI)
            self._write_defaults()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def add_workers(self, number: int = 1, *, cores: int = 1, memory_mb: int = 1024) -> list[Node]:
        """So many more workers, alive in the eyes of the master. Raises ClusterError."""
        for _ in range(number):
            self.workers.append(self._start_worker(cores, memory_mb))
        self._wait_for_workers()
        return self.workers[-number:]

    def kill(self, worker: Node) -> None:
        """End a worker, its executors and their Python by SIGKILL, and wait until the master counts it as dead."""
        self._remove(worker, politely=0)

    def stop(self, worker: Node) -> None:
        """End a worker politely, as an administrator would, and wait until the master counts it as dead."""
        self._remove(worker, politely=_STOP_SECONDS)

    def executors(self, worker: Node) -> list[psutil.Process]:
        """The JVMs of the executors that run on ``worker``."""
        processes = []
        for process in worker.family:
            with suppress(psutil.NoSuchProcess):
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    processes.append(process)
        return processes

    def kill_executors(self, worker: Node) -> None:
        """End the executors of ``worker`` by SIGKILL; the worker starts others if an application still needs them."""
        for executor in self.executors(worker):
            executor.kill()

    def state(self) -> dict[str, Any]:
        """What the master says of itself (``workers``, ``aliveworkers``, ``activeapps``, ...)."""
        answer = httpx.get(f"{self._ui}/json/", timeout=5.0)
        answer.raise_for_status()
        state: dict[str, Any] = answer.json()
        return state

    @property
    def defaults(self) -> Path:
        """The file with all that a driver needs."""
        return self.folder / "conf" / "spark-defaults.conf"

    @property
    def submit(self) -> list[str]:
        """The beginning of a command that submits an application to this cluster."""
        return [str(Path(sys.executable).with_name("spark-submit")), "--properties-file", str(self.defaults)]

    def environment(self) -> dict[str, str]:
        """The environment of a driver: this process's, the cluster's, and where Spark's settings are."""
        binaries = Path(sys.executable).parent
        return {
            **os.environ,
            **self._environment,
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {self.defaults} pyspark-shell",
            "SPARK_CONF_DIR": str(self.folder / "none"),
            "SPARK_LOCAL_IP": LOOPBACK,
        }

    def _start_worker(self, cores: int, memory_mb: int) -> Node:
        self._made_count += 1
        name = f"worker-{self._made_count}"
        folder = self.folder / name
        own = {"SPARK_LOCAL_DIRS": str(folder / "local"), "XDG_CACHE_HOME": str(folder / "cache")}
        limits = ["--cores", str(cores), "--memory", f"{memory_mb}m", "--work-dir", str(folder / "work")]
        return self._start(name, "org.apache.spark.deploy.worker.Worker", own, *limits, self.url)

    def _start(self, name: str, main_class: str, own: Mapping[str, str], *arguments: str) -> Node:
        folder = self.folder / name
        folder.mkdir(parents=True)
        address = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
        environment = {
            **os.environ,
            **self._environment,
            **own,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(folder / "none"),  # nothing of this machine's
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(
                [driver_java_options(), "-Dspark.authenticate=true", "-Dspark.master.rest.enabled=false"]
            ),
            "_SPARK_AUTH_SECRET": self._secret,
        }
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", main_class, *address, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Node(folder, process)

    def _write_defaults(self) -> None:
        settings = {
            "spark.master": self.url,
            "spark.authenticate": "true",
            "spark.authenticate.secret": self._secret,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            # all JVMs of tests live for seconds: with the archive they need half the time to start
            "spark.driver.extraJavaOptions": driver_java_options(),
            "spark.executor.extraJavaOptions": driver_java_options(),
        }
        self.defaults.parent.mkdir()
        with os.fdopen(os.open(self.defaults, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.writelines(f"{name} {value}\n" for name, value in settings.items())

    def _remove(self, worker: Node, politely: float) -> None:
        self.workers.remove(worker)
        sessions.end(worker.process, politely=politely)
        self._wait_for_workers()

    def _wait_for_workers(self) -> None:
        for attempt in _patiently():
            with attempt:
                self._check_running()
                alive = self.state()["aliveworkers"]
                if alive != len(self.workers):
                    raise _NotYetError(f"the master counts {alive} workers alive, not {len(self.workers)}")

    def _wait_for_line(self, node: Node, pattern: re.Pattern[str]) -> str:
        for attempt in _patiently():
            with attempt:
                self._check_running()
                match = pattern.search(node.log)
                if match is None:
                    raise _NotYetError(f"{node.folder.name} has not said {pattern.pattern!r}")
                return match.group(1)
        raise AssertionError("unreachable")

    def _check_running(self) -> None:
        for node in self._nodes():
            if node.process.poll() is not None:
                raise ClusterError(f"{node.folder.name} ended ({node.process.returncode}):\n{node.log[-4000:]}")

    def _nodes(self) -> list[Node]:
        return [*self.workers, *([self._master] if self._master else [])]

    def _end(self) -> None:
        with ExitStack() as all_of_them:
            for node in self._nodes():
                all_of_them.callback(sessions.end, node.process)


def _patiently() -> tenacity.Retrying:
    return tenacity.Retrying(
        stop=tenacity.stop_after_delay(_WAIT_SECONDS),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_exception_type((_NotYetError, httpx.HTTPError, ValueError)),  # no JSON while it starts
        reraise=True,
    )
