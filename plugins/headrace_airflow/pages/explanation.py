"""Why windows fired or not, for pages, from processes that fork for each question (``ForkServer``).

An explanation needs the definition of a pipeline, which is code of users: a process of its own imports it, never the
API server. It gets no settings of Airflow, whose secrets are among them, and no values on its command line. The process
that stays, and forks, is ``fork_server``.
"""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.ext.stores import SCHEMES
from headrace.pipeline.loading.registry import PipelineFolders, find_registered
from headrace.read.shown_values import as_json
from headrace.runs.reporting.results import RunError
from headrace_airflow.markdown import text_for_page
from headrace_airflow.pages.fork_server import END_KEY
from headrace_airflow.roots import local_memory
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace_airflow.pages.opened_roots import OpenedRoot


_GRACE_SECONDS: Final = 60.0
"""So much later than its server a client gives a question up: then the server itself hangs, or cannot start."""

_MOST_ANSWER_BYTES: Final = 2**26
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
        output = self._ask_fork(text) or self._ask_fork(text)  # a server that has ended is started again
        answer = _last_object(output)
        if answer is None:
            raise NoAnswerError("the process that answers ended without an answer")
        if END_KEY in answer:
            last = output.strip().rpartition(b"\n")[0].strip().rpartition(b"\n")[2].decode(errors="replace")
            raise NoAnswerError(f"the process that answers {answer[END_KEY]}{last and f': {last}'}")
        return answer

    def _ask_fork(self, question: bytes) -> bytes:
        """All that a fork says; nothing if the server has ended."""
        running = self._running_server()
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(self._seconds + _GRACE_SECONDS)
            try:
                with theirs:
                    socket.send_fds(running.control, [b"?"], [theirs.fileno()])
                with suppress(ConnectionError):  # a fork may end before it reads
                    ours.sendall(question)
                if output := _receive_all(ours):
                    return output
            except TimeoutError as error:
                self._forget_server(running)
                raise NoAnswerError("the process that starts others for answers hung, and was ended") from error
            except OSError:  # nobody is at the other end
                pass
        self._forget_server(running)
        return b""

    def _running_server(self) -> _Running:
        with self._lock:
            if self._running is None or self._pid != os.getpid():
                ours, theirs = socket.socketpair()
                with theirs:
                    command = [sys.executable, "-m", "headrace_airflow.pages.fork_server", str(theirs.fileno())]
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

    def _forget_server(self, running: _Running) -> None:
        with self._lock:
            if self._running is running:
                self._running = None
        running.end()


def _receive_all(ours: socket.socket) -> bytes:
    output = bytearray()
    while more_output := ours.recv(2**16):
        output += more_output
        if len(output) > _MOST_ANSWER_BYTES:
            raise NoAnswerError(f"the process that answers says more than {_MOST_ANSWER_BYTES:,} bytes")
    return bytes(output)


def _last_object(output: bytes) -> dict[str, Any] | None:
    """The object on the last line: files of users may print before that."""
    try:
        answer = json.loads(output.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


PRELOADED_MODULES: Final = (
    *("pandas", "pyarrow.pandas_compat", "pyarrow.vendored.version", "pyarrow.compute", "pyarrow.parquet"),
    "headrace_snapshots.store",
    *("headrace.read.explanation", "headrace.read.pipeline_reader", "headrace.distribute.views"),
    *("headrace.pipeline.pipeline", "headrace.connectors.files.definition", "headrace.pipeline.deployment"),
)
"""What an explanation imports, but for the pipeline's own modules."""

_ANSWER_SECONDS: Final = 60.0
_EPOCHS: Final = 25
"""The number of newest epochs whose panes and late records are looked at, where no window is named."""


class UnexplainedError(FixConfigError, code="config.unexplained"):
    """What that process found wrong with what was asked."""


def explanation_server(variables: Mapping[str, str] = os.environ) -> ForkServer:
    """Who explains. Raises SizeError, BrokenEntryPointError."""
    return ForkServer(__name__, variables_of_users(variables), seconds=_ANSWER_SECONDS, memory=local_memory())


def variables_of_users(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without Airflow's and those of stores, which the root says. Raises BrokenEntryPointError."""
    of_stores = tuple(prefix for name in SCHEMES.names() for prefix in SCHEMES[name].prefixes)
    return {name: value for name, value in variables.items() if not name.startswith(("AIRFLOW", *of_stores))}


def ask_for_explanation(
    forks: ForkServer, opened_root: "OpenedRoot", pipeline_and_output: tuple[str, str], key: str, window: str
) -> dict[str, Any]:
    """Why windows of a key have fired or not, in ``lines`` and as values. ``pipeline_and_output``: a pipeline and one
    of its outputs, "" for the one without a name. ``key`` is JSON, or plain text; ``window`` a time, empty for all
    windows. Raises NoAnswerError, UnexplainedError.
    """
    (pipeline, output), root, variables = pipeline_and_output, opened_root.root, opened_root.environment
    question = {
        "uri": root.uri,
        "folders": [str(folder) for folder in root.folders.folders],
        "environment": {name: value for name, value in variables.items() if not name.startswith("AIRFLOW")},
        **{"pipeline": pipeline, "output": output, "key": key, "window": window},
    }
    explanation = forks.ask(question)
    if "error" in explanation:
        raise UnexplainedError(explanation["error"]["message"])
    return explanation


def answer(question: str) -> str:
    """In a fork: what ``ask_for_explanation`` gives, or what is wrong."""
    question_fields = json.loads(question)
    os.environ.clear()
    os.environ.update(question_fields["environment"])
    try:
        explanation = _explain_question(question_fields)
    except HeadraceError as error:
        explanation = {"error": vars(RunError.of(error))}
    return json.dumps(explanation, default=as_json)


def _explain_question(question: Mapping[str, Any]) -> dict[str, Any]:
    from headrace.read.pipeline_reader import PipelineReader

    definition = find_registered(question["pipeline"], PipelineFolders(tuple(map(Path, question["folders"])))).pipeline
    whole = PipelineReader(Catalog(open_store(question["uri"]), definition.name))
    reader = whole[question["output"]] if question["output"] else whole
    key, window = written_key(question["key"]), question["window"] or None
    epochs = None if window else _EPOCHS
    explanation = reader.explain(key, window=window, pipeline=definition, epochs=epochs)
    return {"lines": [*map(text_for_page, explanation.lines())], **explanation.to_json()}


def written_key(text: str) -> Any:
    """A key as people type it: JSON where it is that, else the text itself."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
