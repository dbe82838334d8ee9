"""Processes that signal themselves at a fault point."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pytest

from headrace.errors import HeadraceError
from tests.faults.points import Moment, Point, in_the_middle, watch
from tests.faults.works import SCENARIOS

EXIT_REFUSED = 3
"""How a victim exits that ends with an error of Headrace's."""
_PRELOAD_MODULES = (__name__, "headrace.runs.executors.on_local")
"""What victims need, imported once for all of them."""


class Victim:
    """A process that runs scenario ``name`` under ``root``, and sends itself signal ``number`` at ``point``.

    ``code_file``: the file for the code of an error that it ends with. Nothing of it is left after a ``with``: one that
    stands still would be waited for at the end of the tests.
    """

    def __init__(self, name: str, root: str, code_file: Path, point: Point | None, number: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*_PRELOAD_MODULES])
        self._code_file = code_file
        fault = {"point": point, "number": number}
        self._process = context.Process(target=_live, args=(name, root, code_file, dict(os.environ)), kwargs=fault)
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.join()

    @property
    def error_code(self) -> str:
        """The code of the error that it ended with."""
        return self._code_file.read_text()

    def kill(self) -> None:
        """Kill it, if it is still there."""
        self._process.kill()

    def ends(self, seconds: float) -> int | None:
        """Its exit code, once it has ended; None after so many seconds."""
        self._process.join(seconds)
        return self._process.exitcode

    def waits_until_stopped(self, seconds: float) -> None:
        """Wait until the kernel says that it stands still."""
        deadline = time.monotonic() + seconds
        status = Path(f"/proc/{self._process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, "it does not stop"
            assert self._process.is_alive(), "it has ended"
            time.sleep(0.01)  # polls a condition with a deadline

    def goes_on(self) -> None:
        """Let it go on."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)


def _live(
    name: str, root: str, code_file: Path, environment: Mapping[str, str], *, point: Point | None, number: int
) -> None:
    os.environ.update(environment)  # the process that all victims are forked from is older than their store

    def strike() -> None:
        signal.pthread_kill(threading.get_ident(), number)  # this thread does nothing more, whatever others do

    with pytest.MonkeyPatch.context() as patch:

        def act_at_point(reached_point: Point) -> None:
            if reached_point != point:
                return
            if reached_point.moment is Moment.MIDDLE:
                in_the_middle(patch, strike)
            else:
                strike()

        watch(patch, act_at_point)
        try:
            SCENARIOS[name].run(root)
        except HeadraceError as error:
            code_file.write_text(error.code)
            os._exit(EXIT_REFUSED)
