"""SIGKILL of a run in its middle: the next run ends where an undisturbed one would."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace as hr
from headrace_lab.catalog_checks import check_catalog
from tests.process.clicks import CLICKS, FILES, land, truth
from tests.process.executors import ExecutorUnderTest, on_both
from tests.process.forked import exit_code
from tests.process.test_process import current, panes_twice

pytestmark = pytest.mark.slow
SECONDS = 300.0

DRIVER = """
import sys, threading
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import Silent
from tests.process.clicks import CLICKS

class Waiting(Silent):
    def committed(self, manifest):
        threading.Event().wait()  # for the signal that ends it

process(CLICKS, sys.argv[1], RunOptions("killed", executor=sys.argv[2]), listener=Waiting())
"""

KILLS_ITSELF = """
import os, signal, sys
from headrace.runs import process as processing
from headrace.runs.options import RunOptions
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore
from tests.process.clicks import CLICKS

left = int(sys.argv[2])

def die(operation):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

processing.open_store = lambda uri: FaultyStore(open_store(uri), die)
processing.process(CLICKS, sys.argv[1], RunOptions("killed", executor="local"))
"""


def driver(program: str, root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of its own, and of what it starts."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(root / "spark")}
    with (root / "driver.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program, root.as_uri(), *arguments],
            cwd=root,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def check(executor: ExecutorUnderTest, root: Path) -> None:
    """Another run ends as if nothing had been."""
    catalog = hr.open(root.as_uri())[CLICKS].catalog
    main = catalog.head().refs.get("main")
    survived_epoch = -1 if main is None else catalog.manifest(main).epoch
    result = executor.run(CLICKS, root.as_uri(), publish=False)
    assert result.epochs == tuple(range(survived_epoch + 1, FILES))
    assert current(CLICKS, root) == truth()
    assert panes_twice(CLICKS, root) == []
    check_catalog(catalog.store, CLICKS.name)


@on_both
def test_killed_during_a_later_epoch(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path)
    catalog = hr.open(tmp_path.as_uri())[CLICKS].catalog
    running = driver(DRIVER, tmp_path, executor.executor)
    try:
        deadline = time.monotonic() + SECONDS
        while "main" not in catalog.head().refs:
            assert running.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "no epoch was committed in time"
            time.sleep(0.05)  # polls a condition with a deadline
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # the driver and what it started are one process group
        running.wait()
    assert catalog.manifest(catalog.head().refs["main"]).epoch == 0
    check(executor, tmp_path)


@pytest.mark.parametrize("requests", [1, 5, 8, 9, 10, 11, 12, 13, 20, 27])
def test_killed_at_a_request_to_the_store(executor: ExecutorUnderTest, tmp_path: Path, requests: int) -> None:
    land(tmp_path)
    code = exit_code(KILLS_ITSELF, tmp_path, str(requests))
    assert code == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
    check(executor, tmp_path)
