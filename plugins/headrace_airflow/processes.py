"""Processes of a task's own: what they may take and see, and their end with that of all they have started.

``install_confinement`` keeps code of users (tasks, their callbacks, DAG files being parsed) from Airflow's own secrets.
Airflow runs such code in a fork of its own process, which has the secrets in its memory and environment. After
``install_confinement`` the fork starts over as a new program, without them. It is confined before that: the kernel
(Landlock) refuses it the memory and the environment of all processes outside of what it starts itself. So a secret that
reaches a component by its environment alone stays there. It costs a task the time in which Python imports Airflow.
``docker/airflow_local_settings.py`` installs it; Airflow imports that before it does anything.
"""

import ctypes
import os
import pickle
import platform
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from socket import socket
from types import CellType, CodeType, FunctionType
from typing import Any, Final, NoReturn, Self

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from headrace.errors import FixConfigError, RetryError
from headrace.this_process import collect_seldom, shown_size, without_collection
from headrace_airflow.roots import LOCAL_MEMORY

_LOOK_SECONDS: Final = 0.1
_READ_BYTES: Final = 2**16
_GONE_SECONDS: Final = 4.0
"""Airflow kills a task that takes longer than five to end."""
_PROC: Final = Path("/proc")
_OWN_MEMORY: Final = ("RssAnon:", "RssShmem:")
_KIB: Final = 1024
_LESS_INPUT: Final = (
    "let an epoch take less input (bytes per epoch at most), or choose the executor spark, whose state spills to disk. "
    "What the run committed stays"
)
_ORPHAN_MESSAGE: Final = "the process that supervises this task was killed: the run is ended with it"


class MemoryLimitError(FixConfigError, code="config.local_memory"):
    """A run of the executor ``local`` takes more memory than the deployment allows."""


class OrphanedError(RetryError, code="retry.orphaned"):
    """The supervisor of this task is gone, so nobody reads its log, and nobody can end it."""


@dataclass(frozen=True)
class ProcessEnd:
    """How an application ended: well or not, with which exit code, and the last that it said."""

    well: bool
    exit_code: int
    last_line: str


class OwnProcess:
    """One process, the first of a group; ``memory`` is what the group may take, in bytes, and ``advice`` what people
    can do about it beside allowing more.

    Its standard input ends when this process does, however hard that is killed.
    """

    def __init__(self, memory: int, advice: str = _LESS_INPUT) -> None:
        self._memory, self._advice = memory, advice
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._took: int | None = None
        self._supervisor = os.getppid()

    def run(
        self, command: Sequence[str], tell: Callable[[str], None], more: Mapping[str, str] | None = None
    ) -> ProcessEnd:
        """Run ``command`` to its end, with ``more`` in its environment, and ``tell`` each line that it says.

        Raises MemoryLimitError, and OrphanedError once the parent of this process is gone. Whatever is raised inside,
        by a timeout for one, ends it too.
        """
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(more or {})},
            # a group of its own, which can be killed with all that it starts
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if self._is_stopped:  # while it started
                self.stop()
            last_line = self._follow_output(process.pid, process.stdout.fileno(), tell)
        finally:
            self.stop()
            process.stdin.close()
            process.stdout.close()
            process.wait()
        if self._took is not None:
            raise MemoryLimitError(
                f"the run took {shown_size(self._took)} of memory, and {LOCAL_MEMORY} allows "
                f"{shown_size(self._memory)}: raise it, or {self._advice}"
            )
        return ProcessEnd(process.returncode == 0, process.returncode, last_line)

    def stop(self) -> None:
        """Kill the group, and wait until nothing of it runs. May be called by a signal's handler at any moment.

        Nothing is asked to end by itself: a commit is one request, and what a killed run leaves is nobody's.
        """
        self._is_stopped = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        _kill_group(process.pid)
        Retrying(stop=stop_after_delay(_GONE_SECONDS), wait=wait_fixed(0.02), retry=retry_if_result(bool))(
            _running_processes, process.pid
        )

    def _follow_output(self, pid: int, output: int, tell: Callable[[str], None]) -> str:
        """Tell each line until the process has ended and said all; the last. Kill the group once it takes too much.

        It never waits for long: a signal that comes just before a call that waits is seen after it. (A limit of the
        kernel's for a process counts what is reserved and never used, and native code that gets no more may hang.)
        """
        last_line, rest, is_open = "", b"", True
        while True:
            if os.getppid() != self._supervisor:
                raise OrphanedError(_ORPHAN_MESSAGE)
            has_ended = _has_ended(pid)  # what it has said until then is there to be read
            is_ready = bool(select.select([output] if is_open else [], [], [], _LOOK_SECONDS)[0])
            if self._took is None and (memory_taken := memory_of(pid)) > self._memory:
                self._took = memory_taken
                _kill_group(pid)
            new_bytes = os.read(output, _READ_BYTES) if is_ready else b""
            is_open = is_open and (bool(new_bytes) or not is_ready)
            *lines, rest = (rest + new_bytes).split(b"\n")
            for line in lines:
                last_line = line.decode(errors="backslashreplace")
                tell(last_line)
            if has_ended and not new_bytes:
                break
        if rest:
            last_line = rest.decode(errors="backslashreplace")
            tell(last_line)
        return last_line


class ParentWatch:
    """While inside, ``stop`` is called once the parent of this process is gone. A process that waits for an application
    outside its own group has no other way to hear of it. Raises OrphanedError at its end then.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop, self._supervisor = stop, os.getppid()
        self._task_done, self._is_orphaned = threading.Event(), False
        self._watch = threading.Thread(target=self._watch_supervisor, name="supervised", daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._task_done.set()
        self._watch.join()
        if self._is_orphaned:
            raise OrphanedError(_ORPHAN_MESSAGE)

    def _watch_supervisor(self) -> None:
        while not self._task_done.wait(_LOOK_SECONDS):
            if os.getppid() != self._supervisor:
                self._is_orphaned = True
                self._stop()
                return


def memory_of(group: int) -> int:
    """Bytes of memory that the processes of ``group`` take and that are no files' (Linux; elsewhere 0)."""
    total = 0
    for pid in _running_processes(group):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in (_PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith(_OWN_MEMORY):
                    total += int(line.split()[1]) * _KIB
    return total


def _running_processes(group: int) -> list[int]:
    """The processes of ``group`` that have not ended (Linux; elsewhere the first of them alone)."""
    if not _PROC.is_dir():
        return [] if _has_ended(group) else [group]
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _is_of(pid, group)]


def _is_of(pid: int, group: int) -> bool:
    try:
        if os.getpgid(pid) != group:
            return False
        # the name of the program, before that, may have blanks and brackets itself
        state = (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2][:1]
    except (ProcessLookupError, PermissionError, FileNotFoundError):
        return False
    return state not in "ZX"


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _has_ended(pid: int) -> bool:
    """Whether this child has ended; its number stays taken until somebody waits for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


SECRETS = (
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__API__SECRET_KEY",
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW__API_AUTH__JWT_PRIVATE_KEY_PATH",
)
"""Beginnings of the variables that are Airflow's alone, whichever way they give their value (``_CMD``, ``_SECRET``)."""

_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_MAKE_BLOCK, _REFER = 1 << 11, 1 << 13
_OLDEST = 2
"""The first version of Landlock under which files can still be moved between folders."""

_STARTED_OVER = "_HEADRACE_ISOLATED"

ProcessEntry = Callable[[], None]


class NotConfinedError(Exception):
    """This kernel cannot keep a process from the secrets of others; the message says what to do."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    # as the kernel has it: without padding
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def install_confinement() -> None:
    """From now on, code of users that this process starts is confined, and without ``SECRETS``."""
    if _STARTED_OVER not in os.environ:
        from airflow.sdk.execution_time import supervisor  # which imports settings, and with them what calls this

        supervisor._fork_main = _start_over


def can_confine() -> bool:
    """Whether this kernel can confine a process."""
    return _landlock_version() >= _OLDEST


def confine_process() -> None:
    """Keep this process, and all that it starts, from the memory and the environment of any other. For good.

    Raises NotConfinedError.
    """
    if not can_confine():
        raise NotConfinedError(
            "this kernel has no Landlock (Linux 5.19 or newer), or the engine of containers forbids it: code of users "
            "could read Airflow's secrets. Use such a kernel; or, if you trust that code, take PYTHONPATH out of the "
            "scheduler and the DAG processor in docker/compose.yaml"
        )
    # a domain needs a right that it takes away: that of making block devices, which no task has anyway
    ruleset = _Ruleset(_MAKE_BLOCK | _REFER)
    rules = _system_call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    path_rule = _PathBeneath(_REFER, root)
    _system_call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(path_rule), 0)
    # Landlock asks for this of all who do not administer the system
    if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    _system_call(_RESTRICT_SELF, rules, 0)
    os.close(root)
    os.close(rules)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` as code of users may see it."""
    return {name: value for name, value in environment.items() if not name.startswith(SECRETS)}


def main(log: int, entry: int) -> NoReturn:
    """What the new program does: what Airflow's fork would have done, with the sockets that it has left.

    ``log`` and ``entry`` are open files: where messages go, and what names the function to call.
    """
    with without_collection():
        from airflow.sdk.execution_time.supervisor import _fork_main

    collect_seldom()
    with os.fdopen(entry, "rb") as file:
        module, name, closure_values = pickle.load(file)  # noqa: S301 - what _start_over has written
    _fork_main(socket(fileno=0), socket(fileno=1), socket(fileno=2), log, _entry_function(module, name, closure_values))


def _start_over(
    requests: socket, child_stdout: socket, child_stderr: socket, log_fd: int, target: ProcessEntry
) -> NoReturn:
    """In the fork: another program, confined and without secrets, with the same sockets."""
    for number, stream in enumerate((requests, child_stdout, child_stderr)):
        os.dup2(stream.fileno(), number)
    closure_values = [cell.cell_contents for cell in getattr(target, "__closure__", None) or ()]
    # without the flag that closes it when the new program begins
    entry = os.memfd_create("entry", 0)
    with os.fdopen(os.dup(entry), "wb") as file:
        pickle.dump((target.__module__, target.__qualname__, closure_values), file)
    os.lseek(entry, 0, os.SEEK_SET)
    os.set_inheritable(log_fd, True)
    confine_process()
    code = f"from headrace_airflow.processes import main; main({log_fd}, {entry})"
    os.execve(sys.executable, [sys.executable, "-c", code], {**without_secrets(os.environ), _STARTED_OVER: "1"})  # noqa: S606


def _entry_function(module: str, name: str, closure_values: Sequence[object]) -> ProcessEntry:
    """The function of that qualified name; an inner one has ``closure_values`` as its variables."""
    outer, _, inner = name.partition(".<locals>.")
    outermost: Any = reduce(getattr, outer.split("."), import_module(module))
    if not inner:
        entry: ProcessEntry = outermost
        return entry
    (code,) = (
        constant
        for constant in outermost.__code__.co_consts
        if isinstance(constant, CodeType) and constant.co_name == inner
    )
    return FunctionType(code, outermost.__globals__, inner, None, tuple(map(CellType, closure_values)))


def _landlock_version() -> int:
    if platform.system() != "Linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def _system_call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
