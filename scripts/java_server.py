"""A server that is one Java process, while it is entered: for tests."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import tenacity

from scripts.airflow_env import free_port

START_SECONDS = 60.0
STOP_SECONDS = 10.0
QUICK_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""Options of a JVM that lives for seconds. To verify the classes of published jars takes a quarter of its start."""
_OPTIONS = (*QUICK_START, "-Xmx256m")


class JavaServer(ABC):
    """What it stores and logs is below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where it listens."""

    @property
    @abstractmethod
    def _words(self) -> Sequence[str]:
        """What Java runs."""

    @property
    @abstractmethod
    def _settings(self) -> Mapping[str, str]:
        """Variables of its environment."""

    @property
    @abstractmethod
    def _answers(self) -> str:
        """Below ``uri``, what it answers once it can be used."""

    def __enter__(self) -> Self:
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [java, *_OPTIONS, *self._words],
                env={**os.environ, **self._settings},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            for attempt in tenacity.Retrying(
                stop=tenacity.stop_after_delay(START_SECONDS), wait=tenacity.wait_fixed(0.05), reraise=True
            ):
                with attempt:
                    assert self._process.poll() is None, log.read_text()
                    httpx.get(f"{self.uri}/{self._answers}").raise_for_status()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
