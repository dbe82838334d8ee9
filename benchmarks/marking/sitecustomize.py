"""Marks when functions of Airflow and of Headrace begin and end in a process, one JSON line each.

Python imports this at the start of every process whose PYTHONPATH has this folder. HEADRACE_MARKS names the file; if it
is not set, nothing happens. Times are those of ``time.time()``.
"""

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = os.environ.get("HEADRACE_MARKS")
IS_APPLICATION = any(argument.endswith("submit.py") for argument in sys.orig_argv)
MARKED = {
    "airflow.sdk.execution_time.task_runner": ("startup", "parse", "run", "finalize"),
    "headrace_airflow.operators": (
        "HeadraceOperator.execute",
        "HeadraceOperator._choose_executor",
        "HeadraceOperator._on_spark",
    ),
    "headrace_airflow.publishing": ("PreconditionsOperator.execute", "PublishOperator.execute"),
    "headrace_airflow.processes": ("OwnProcess.run",),
    "headrace.pipeline.loading.registry": ("resolve_pipeline",),
    "headrace.runs.plan": ("plan_run",),
    "headrace.runs.restore": ("restore_head",),
    "headrace.runs.epochs": ("commit_epochs",),
    "headrace.runs.reporting.results": ("write_run_result",),
    "headrace.distribute.spark.session": ("spark_session",),
    "headrace.audit.run": ("_check", "run_audit"),
    "headrace.audit.gx_runner": ("evaluate_expectations", "_render_page"),
    "headrace.runs.publishing.publish": ("PlannedPublish.publish",),
}
IMPORTS = ("headrace.audit.gx_runner", "great_expectations", "pyspark")


class Mark:
    """Begins when it is made; ``end`` appends its line."""

    def __init__(self, name: str, began: float | None = None) -> None:
        self._name = name
        self._line = {"name": name, "pid": os.getpid(), "thread": threading.current_thread().name}
        self._line |= {f"{key}_began": value for key, value in _cpu().items()}
        self._thread = time.thread_time()
        self._began = time.time() if began is None else began

    def end(self) -> None:
        """Append it."""
        ended = time.time()
        line = {**self._line, "began": self._began, "ended": ended, "thread_cpu": time.thread_time() - self._thread}
        line |= {f"{key}_ended": value for key, value in _cpu().items()}
        file = os.open(str(FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())
        finally:
            os.close(file)


def marked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function``, each call of which is marked."""

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        mark = Mark(name)
        try:
            return function(*args, **kwargs)
        finally:
            mark.end()

    return measured


def _cpu() -> dict[str, float]:
    """CPU seconds until now: of this process, of those that it has waited for, of the JVM that has started it with all
    that is below that.
    """
    used = os.times()
    return {
        "cpu": used.user + used.system,
        "children_cpu": used.children_user + used.children_system,
        "jvm_cpu": _jvm_cpu() if IS_APPLICATION else 0.0,
    }


def _jvm_cpu() -> float:
    jvm = os.getppid()
    try:
        if not Path(f"/proc/{jvm}/comm").read_text().startswith("java"):
            return 0.0
    except OSError:
        return 0.0
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    stats = {int(pid): fields for pid in pids if (fields := _stat(pid))}
    total, found = 0, {jvm}
    for pid in sorted(stats):  # a process has a higher number than its parent, unless numbers begin again
        if pid in found or int(stats[pid][1]) in found - {os.getpid()}:
            found.add(pid)
            if pid != os.getpid():
                total += sum(map(int, stats[pid][11:15]))
    return total / float(os.sysconf("SC_CLK_TCK"))


def _stat(pid: str) -> list[str]:
    """What the kernel says of a process after its name: its state, its parent ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


class _Marking(Loader):
    """Loads a module as its own loader does, and has functions of it marked."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute it, and mark its functions, and itself if it takes long."""
        mark = Mark(f"import {module.__name__}")
        self._loader.exec_module(module)
        if module.__name__ in IMPORTS:
            mark.end()
        for name in MARKED.get(module.__name__, ()):
            owner, _, function = name.rpartition(".")
            place = getattr(module, owner) if owner else module
            setattr(place, function, marked(getattr(place, function), name))


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where another finder finds it, with a loader that marks."""
        if name not in MARKED and name not in IMPORTS:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Marking(spec.loader)
                return spec
        return None


def _process_began() -> float:
    """When this process was made, by the kernel's clock."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - up + ticks / float(os.sysconf("SC_CLK_TCK"))


if FILE:
    sys.meta_path.insert(0, _Finder())
    if IS_APPLICATION:
        Mark("application starts", _process_began()).end()
    os.register_at_fork(after_in_child=lambda: Mark("fork").end())
