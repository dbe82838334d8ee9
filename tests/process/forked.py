"""Programs in processes of their own, forked from one that has imported what a run on ``local`` needs."""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PRELOAD_MODULES = ("headrace.runs.process", "headrace.runs.executors.on_local", "headrace_snapshots.testing")
_SECONDS = 300.0


def exit_code(program: str, root: Path, *arguments: str) -> int:
    """How ``program`` ended, whose arguments are the URI of ``root`` and these. What it said is in ``driver.log``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOAD_MODULES])
    process = context.Process(target=_live, args=(program, root, arguments, dict(os.environ)))
    process.start()
    process.join(_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"it has not ended after {_SECONDS:.0f} s; its log is {root / 'driver.log'}")
    return process.exitcode


def _live(program: str, root: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    sys.argv = ["-c", root.as_uri(), *arguments]
    with (
        (root / "driver.log").open("w", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
