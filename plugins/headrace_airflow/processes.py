"""A process of a task's own: what it says, what it may take, and its end, with that of all that it has started."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from headrace.entrypoints.sizes import shown
from headrace.errors import FixConfigError
from headrace_airflow.settings import LOCAL_MEMORY

_LOOK_SECONDS: Final = 0.1
_GONE_SECONDS: Final = 4.0
"""Airflow kills a task that takes longer than five to end."""
_PROC: Final = Path("/proc")
_OWN_MEMORY: Final = ("RssAnon:", "RssShmem:")
_KIB: Final = 1024


class MemoryLimitError(FixConfigError):
    """A run of the executor ``local`` takes more memory than the deployment allows."""

    code = "config.local_memory"


@dataclass(frozen=True)
class Ended:
    """How an application ended: well or not, with which exit code, and the last that it said."""

    well: bool
    exit_code: int
    said: str


class OwnProcess:
    """One process, the first of a group; ``memory`` is what the group may take, in bytes.

    Its standard input ends when this process does, however hard that is killed.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self._took: int | None = None

    def run(self, command: Sequence[str], tell: Callable[[str], None]) -> Ended:
        """Run ``command`` to its end and ``tell`` each line that it says. Raises MemoryLimitError; whatever is raised
        inside, by a timeout for one, ends it too.
        """
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        said = ""
        try:
            if self._stopped:  # while it started
                self.stop()
            with self._memory_watched(process.pid):
                for line in process.stdout:
                    said = line.rstrip("\n")
                    tell(said)
                _wait_for(process.pid)
        finally:
            self.stop()
            process.stdin.close()
            process.stdout.close()
            process.wait()
        if self._took is not None:
            raise MemoryLimitError(
                f"the run took {shown(self._took)} of memory, and {LOCAL_MEMORY} allows {shown(self._memory)}: raise "
                "it, or let an epoch take less input (bytes per epoch at most), or choose the executor spark, whose "
                "state spills to disk. What the run committed stays"
            )
        return Ended(process.returncode == 0, process.returncode, said)

    def stop(self) -> None:
        """Kill the group, and wait until nothing of it runs. May be called by a signal's handler at any moment.

        Nothing is asked to end by itself: a commit is one request, and what a killed run leaves is nobody's.
        """
        self._stopped = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        _kill(process.pid)
        _wait_for(process.pid)
        Retrying(stop=stop_after_delay(_GONE_SECONDS), wait=wait_fixed(0.02), retry=retry_if_result(bool))(
            _running, process.pid
        )

    @contextmanager
    def _memory_watched(self, group: int) -> Iterator[None]:
        """Kill the group as soon as it takes too much. (A limit of the kernel's for a process counts what is reserved
        and never used, and native code that gets no more memory may hang.)
        """
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_LOOK_SECONDS):
                if (taken := memory_of(group)) > self._memory:
                    self._took = taken
                    _kill(group)
                    return

        thread = threading.Thread(target=watch, name="memory of the run", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


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
    """The processes of ``group`` that have not ended (Linux; elsewhere none)."""
    if not _PROC.is_dir():
        return []
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


def _wait_for(pid: int) -> None:
    """Until ``pid`` has ended; its group's number stays taken."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
