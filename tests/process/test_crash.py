"""SIGKILL of the driver and its JVM in the middle of a run: the next run ends where an undisturbed one would."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.engine.types import SparkSession
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.process import process
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import check_catalog
from tests.process.clicks import CLICKS, FILES, land, truth
from tests.process.test_process import current, panes_twice

pytestmark = pytest.mark.spark
SECONDS = 300.0

DRIVER = """
import sys
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.process import process
from tests.process.clicks import CLICKS
process(CLICKS, sys.argv[1], RunOptions("killed"))
"""


def test_killed_during_a_later_epoch(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path)
    root = tmp_path.as_uri()
    catalog = Catalog(open_store(root), CLICKS.name)
    repository = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(repository), "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, root],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + SECONDS
            while "main" not in catalog.head().refs:
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "no epoch was committed in time"
                time.sleep(0.05)  # polls a condition with a deadline
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # the driver and its JVM are one process group
            driver.wait()
    survived = catalog.manifest(catalog.head().refs["main"]).epoch
    assert survived < FILES - 1, "the driver was done before it was killed"
    result = process(CLICKS, root, RunOptions("again"), spark=spark)
    assert result.epochs == tuple(range(survived + 1, FILES))
    assert current(CLICKS, tmp_path) == truth()
    assert panes_twice(CLICKS, tmp_path) == []
    check_catalog(catalog.store, CLICKS.name)
