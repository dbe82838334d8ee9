"""What the API server asks of the process that stays (``server``)."""

import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import RetryError
from headrace_airflow.pages.forking.server import ENDED

_GRACE_SECONDS: Final = 60.0
"""So much later than its server a client gives a question up: then the server itself hangs, or cannot start."""

_MOST: Final = 2**26
"""Bytes that a fork may say."""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A fork has none but the thread that forks."""


class NoAnswerError(RetryError, code="retry.no_answer"):
    """A process of its own has not answered: it took too much, or ended without an answer."""


@dataclass(frozen=True)
class _Running:
    """The server as it runs, and the end of the socket that it listens to."""

    process: "subprocess.Popen[bytes]"
    control: socket.socket

    def end(self) -> None:
        """End it, and with it all forks."""
        self.control.close()
        self.process.kill()
        self.process.wait()


class ForkServer:
    """Answers of ``module``, each from a process that may take ``seconds`` and ``memory`` (bytes). Usable from many
    threads. The server starts with the first question, and again if it has ended.

    Forks have ``environment`` until an answer sets its own.
    """

    def __init__(self, module: str, environment: Mapping[str, str], *, seconds: float, memory: int) -> None:
        self._arguments = (str(seconds), str(memory), module)
        self._seconds, self._environment = seconds, {**environment, **_ONE_THREAD}
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._pid = 0

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. Raises NoAnswerError."""
        text = f"{json.dumps(question)}\n".encode()
        output = self._said(text) or self._said(text)  # a server that has ended is started again
        answer = _last_object(output)
        if answer is None:
            raise NoAnswerError("the process that answers ended without an answer")
        if ENDED in answer:
            last = output.strip().rpartition(b"\n")[0].strip().rpartition(b"\n")[2].decode(errors="replace")
            raise NoAnswerError(f"the process that answers {answer[ENDED]}{last and f': {last}'}")
        return answer

    def _said(self, question: bytes) -> bytes:
        """All that a fork says; nothing if the server has ended."""
        running = self._server()
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(self._seconds + _GRACE_SECONDS)
            try:
                with theirs:
                    socket.send_fds(running.control, [b"?"], [theirs.fileno()])
                with suppress(ConnectionError):  # a fork may end before it reads
                    ours.sendall(question)
                if output := _all(ours):
                    return output
            except TimeoutError as error:
                self._forget(running)
                raise NoAnswerError("the process that starts others for answers hung, and was ended") from error
            except OSError:  # nobody is at the other end
                pass
        self._forget(running)
        return b""

    def _server(self) -> _Running:
        with self._lock:
            if self._running is None or self._pid != os.getpid():
                ours, theirs = socket.socketpair()
                with theirs:
                    command = [sys.executable, "-m", "headrace_airflow.pages.forking.server", str(theirs.fileno())]
                    process = subprocess.Popen(
                        [*command, *self._arguments],
                        env=self._environment,
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
                self._running, self._pid = _Running(process, ours), os.getpid()
                weakref.finalize(self, self._running.end)
            return self._running

    def _forget(self, running: _Running) -> None:
        with self._lock:
            if self._running is running:
                self._running = None
        running.end()


def _all(ours: socket.socket) -> bytes:
    output = bytearray()
    while chunk := ours.recv(2**16):
        output += chunk
        if len(output) > _MOST:
            raise NoAnswerError(f"the process that answers says more than {_MOST:,} bytes")
    return bytes(output)


def _last_object(output: bytes) -> dict[str, Any] | None:
    """The object on the last line: files of users may print before that."""
    try:
        answer = json.loads(output.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
