"""The session: its settings, what it listens on, its pools."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import headrace as hr
from headrace.distribute.spark.application import BACKGROUND_POOL, SparkSession, in_background_pool, tasks_of
from tests.process.clicks import CLICKS, land


@pytest.mark.spark
def test_the_session_computes_the_same_everywhere(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "8"
    assert tasks_of(spark) == 2
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"


_PARTITIONS = """
from headrace.distribute.spark.session import spark_session

session = spark_session("tests")
print(session.conf.get("spark.sql.shuffle.partitions"))
session.stop()
"""


@pytest.mark.spark
def test_what_the_defaults_of_a_machine_say_of_partitions_holds(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 3\n")
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", _PARTITIONS], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "3"


@pytest.mark.spark
def test_the_driver_waits_for_nobody_beyond_this_machine(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    connections = psutil.Process(gateway.proc.pid).net_connections("inet")
    addresses = {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"


@pytest.mark.spark
def test_jobs_of_the_background_run_in_a_pool_of_their_own(spark: SparkSession) -> None:
    pools: list[str | None] = []

    def run(count: int) -> int:
        pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        return spark.range(count).count()

    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(in_background_pool(spark, run)(5)))
    thread.start()
    thread.join()
    assert (pools, results) == ([BACKGROUND_POOL], [5])
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


@pytest.mark.spark
def test_a_run_leaves_an_application_that_was_there_before(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    assert hr.open(tmp_path.as_uri(), create=True)[CLICKS].run(executor="spark").epochs == (0,)
    assert spark.range(5).count() == 5
