"""A process of a task's own: what it says, what it may take, and its end, with that of all that it has started."""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from headrace.errors import FixConfigError, RetryError
from headrace.sizes import shown
from headrace_airflow.settings import LOCAL_MEMORY

_LOOK_SECONDS: Final = 0.1
_CHUNK: Final = 2**16
_GONE_SECONDS: Final = 4.0
"""Airflow kills a task that takes longer than five to end."""
_PROC: Final = Path("/proc")
_OWN_MEMORY: Final = ("RssAnon:", "RssShmem:")
_KIB: Final = 1024
_LESS_INPUT: Final = (
    "let an epoch take less input (bytes per epoch at most), or choose the executor spark, whose state spills to disk. "
    "What the run committed stays"
)
_ORPHANED: Final = "the process that supervises this task was killed: the run is ended with it"


class MemoryLimitError(FixConfigError, code="config.local_memory"):
    """A run of the executor ``local`` takes more memory than the deployment allows."""


class OrphanedError(RetryError, code="retry.orphaned"):
    """The supervisor of this task is gone, so nobody reads its log, and nobody can end it."""


@dataclass(frozen=True)
class Ended:
    """How an application ended: well or not, with which exit code, and the last that it said."""

    well: bool
    exit_code: int
    said: str


class OwnProcess:
    """One process, the first of a group; ``memory`` is what the group may take, in bytes, and ``otherwise`` what people
    can do about it beside allowing more.

    Its standard input ends when this process does, however hard that is killed.
    """

    def __init__(self, memory: int, otherwise: str = _LESS_INPUT) -> None:
        self._memory, self._otherwise = memory, otherwise
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._took: int | None = None
        self._supervisor = os.getppid()

    def run(self, command: Sequence[str], tell: Callable[[str], None], more: Mapping[str, str] | None = None) -> Ended:
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
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if self._stopped:  # while it started
                self.stop()
            last_line = self._followed(process.pid, process.stdout.fileno(), tell)
        finally:
            self.stop()
            process.stdin.close()
            process.stdout.close()
            process.wait()
        if self._took is not None:
            raise MemoryLimitError(
                f"the run took {shown(self._took)} of memory, and {LOCAL_MEMORY} allows {shown(self._memory)}: raise "
                f"it, or {self._otherwise}"
            )
        return Ended(process.returncode == 0, process.returncode, last_line)

    def stop(self) -> None:
        """Kill the group, and wait until nothing of it runs. May be called by a signal's handler at any moment.

        Nothing is asked to end by itself: a commit is one request, and what a killed run leaves is nobody's.
        """
        self._stopped = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        _kill(process.pid)
        Retrying(stop=stop_after_delay(_GONE_SECONDS), wait=wait_fixed(0.02), retry=retry_if_result(bool))(
            _running, process.pid
        )

    def _followed(self, pid: int, output: int, tell: Callable[[str], None]) -> str:
        """Tell each line until the process has ended and said all; the last. Kill the group once it takes too much.

        It never waits for long: a signal that comes just before a call that waits is seen after it. (A limit of the
        kernel's for a process counts what is reserved and never used, and native code that gets no more may hang.)
        """
        last_line, rest, is_open = "", b"", True
        while True:
            if os.getppid() != self._supervisor:
                raise OrphanedError(_ORPHANED)
            has_ended = _has_ended(pid)  # what it has said until then is there to be read
            is_ready = bool(select.select([output] if is_open else [], [], [], _LOOK_SECONDS)[0])
            if self._took is None and (taken := memory_of(pid)) > self._memory:
                self._took = taken
                _kill(pid)
            chunk = os.read(output, _CHUNK) if is_ready else b""
            is_open = is_open and (bool(chunk) or not is_ready)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                last_line = line.decode(errors="backslashreplace")
                tell(last_line)
            if has_ended and not chunk:
                break
        if rest:
            last_line = rest.decode(errors="backslashreplace")
            tell(last_line)
        return last_line


class Supervised:
    """While inside, ``stop`` is called once the parent of this process is gone: who waits for an application that is
    not its own group has no other way to hear of it. Raises OrphanedError at its end then.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop, self._supervisor = stop, os.getppid()
        self._done, self._orphaned = threading.Event(), False
        self._watch = threading.Thread(target=self._look, name="supervised", daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watch.join()
        if self._orphaned:
            raise OrphanedError(_ORPHANED)

    def _look(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            if os.getppid() != self._supervisor:
                self._orphaned = True
                self._stop()
                return


def memory_of(group: int) -> int:
    """Bytes of memory that the processes of ``group`` take and that are no files' (Linux; elsewhere 0)."""
    total = 0
    for pid in _running(group):
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in (_PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith(_OWN_MEMORY):
                    total += int(line.split()[1]) * _KIB
    return total


def _running(group: int) -> list[int]:
    """The processes of ``group`` that have not ended (Linux; elsewhere the first of them alone)."""
    if not _PROC.is_dir():
        return [] if _has_ended(group) else [group]
    pids = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _is_of(pid, group)]


def _is_of(pid: int, group: int) -> bool:
    try:
        if os.getpgid(pid) != group:
            return False
        state = (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2][:1]
    except (ProcessLookupError, PermissionError, FileNotFoundError):
        return False
    return state not in "ZX"


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _has_ended(pid: int) -> bool:
    """Whether this child has ended; its number stays taken until somebody waits for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True
