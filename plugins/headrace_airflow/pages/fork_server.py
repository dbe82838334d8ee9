"""The process that stays: it has imported what an answer needs, and forks a process for each question.

It never runs code of users itself, and reads no question. A fork does both, in a process group of its own, confined
where the kernel can do that. The group is killed once it takes longer or more memory than it may. All ends with the API
server, however hard that is killed: then nobody holds the other end of ``control``.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

from headrace.this_process import exit_with, shown_size
from headrace_airflow.processes import can_confine, confine_process, memory_of

_LOOK_SECONDS: Final = 0.1
_PARENT_DEATH_SIGNAL: Final = 1
END_KEY: Final = "ended"
"""What the last line is an object of, if the fork ended without an answer: how it ended."""


class Answering(Protocol):
    """A module that answers questions."""

    @property
    def PRELOADED_MODULES(self) -> tuple[str, ...]:  # noqa: N802  # a constant of the module
        """Modules that answers need."""

    @property
    def answer(self) -> Callable[[str], str]:
        """The answer to a question, each on one line."""


@dataclass(frozen=True)
class _Fork:
    """A forked process, the first of its group, and where it answers."""

    pid: int
    connection: socket.socket
    started_at: float

    def kill_group(self) -> None:
        """Kill the group. Its number stays taken: nobody has waited for the first of it yet."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self, how: str | None) -> None:
        """Wait for the process, kill what it has started, and say ``how`` it ended, if not well."""
        self.kill_group()
        os.waitpid(self.pid, 0)
        with suppress(OSError):
            if how is not None:
                self.connection.send(f"\n{json.dumps({END_KEY: how})}\n".encode(), socket.MSG_DONTWAIT)
            self.connection.shutdown(socket.SHUT_RDWR)  # what it started may hold the other copy of this end
        self.connection.close()


@dataclass(frozen=True)
class ForkLimits:
    """What the group of a fork may take: seconds, and bytes of memory."""

    seconds: float
    memory: int

    def describe_excess(self, fork: _Fork) -> str | None:
        """What becomes of a group that has taken more; None: it has not."""
        if time.monotonic() - fork.started_at > self.seconds:
            return f"was ended after {self.seconds:g} s"
        if (memory_taken := memory_of(fork.pid)) > self.memory:
            return f"was ended when it took {shown_size(memory_taken)} of memory, of {shown_size(self.memory)}"
        return None


def serve_questions(control: socket.socket, limits: ForkLimits) -> socket.socket | None:
    """Fork for each question until ``control`` has ended. Returns in each fork, with the question, and at the end."""
    forks: list[_Fork] = []
    while True:
        if select.select([control], [], [], _LOOK_SECONDS if forks else None)[0]:
            message, files, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                break
            question_socket = socket.socket(fileno=files[0])
            if (pid := os.fork()) == 0:
                os.setpgid(0, 0)
                # as long as a copy is open here, who reads at the other end sees no end
                for other in (control, *(fork.connection for fork in forks)):
                    other.close()
                return question_socket
            # the fork does it, too: whichever of the two comes first, the group is there
            with suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            forks.append(_Fork(pid, question_socket, time.monotonic()))
        forks = [fork for fork in forks if not _has_ended(fork, limits)]
    for fork in forks:
        fork.kill_group()
    return None


def _has_ended(fork: _Fork, limits: ForkLimits) -> bool:
    """Whether the process has ended, by itself or since it took too much; then it is waited for."""
    status = os.waitid(os.P_PID, fork.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is not None:
        is_well = (status.si_code, status.si_status) == (os.CLD_EXITED, 0)
        kind = "exit code" if status.si_code == os.CLD_EXITED else "signal"
        fork.end(None if is_well else f"ended with {kind} {status.si_status}")
    elif (excess := limits.describe_excess(fork)) is not None:
        fork.end(excess)
    else:
        return False
    return True


def answer_in_fork(connection: socket.socket, answering: Answering, server: int) -> None:
    """In a fork of ``server``: take the place of a program that reads the question and writes the answer."""
    _end_with(server)
    if can_confine():
        confine_process()
    for stream in (0, 1, 2):
        os.dup2(connection.fileno(), stream)
    with connection:
        text = answering.answer(sys.stdin.readline())
        sys.stdout.flush()
        connection.sendall(f"\n{text}\n".encode())
        connection.shutdown(socket.SHUT_RDWR)


def _end_with(server: int) -> None:
    """Have this process end with its parent, which nobody else would hold to limits."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    # the server may have ended before the kernel knew what to do then
    if os.getppid() != server:
        exit_with(1)


def main(control: int, seconds: str, memory: str, module: str) -> None:
    """Import what the answers of ``module`` need, and serve."""
    answering: Answering = import_module(module)
    for name in answering.PRELOADED_MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # what is looked at in a fork is copied
    server = os.getpid()
    question_socket = serve_questions(socket.socket(fileno=control), ForkLimits(float(seconds), int(memory)))
    if question_socket is not None:
        answer_in_fork(question_socket, answering, server)
        exit_with(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
