"""The session: its settings, S3A without secrets, URIs of objects."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.engine.session import BACKGROUND_POOL, in_background_pool
from headrace.engine.storage import hadoop_uri, spark_uri
from headrace.engine.types import SparkSession
from headrace.errors import FixConfigError


@pytest.mark.spark
def test_the_session_computes_the_same_everywhere(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"


@pytest.mark.spark
def test_the_driver_waits_for_nobody_beyond_this_machine(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    connections = psutil.Process(gateway.proc.pid).net_connections("inet")
    addresses = {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}
    assert addresses == {"127.0.0.1"}
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"


@pytest.mark.spark
def test_jobs_of_the_background_run_in_a_pool_of_their_own(spark: SparkSession) -> None:
    seen: list[str | None] = []

    def run(count: int) -> int:
        seen.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        return spark.range(count).count()

    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(in_background_pool(spark, run)(5)))
    thread.start()
    thread.join()
    assert (seen, results) == ([BACKGROUND_POOL], [5])
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


S3_SESSION = """
from headrace.engine.session import spark_session
spark_session("x", root_uri="s3://bucket/prefix")
"""


def test_s3_without_jars_says_what_to_do_before_a_jvm_starts(tmp_path: Path) -> None:
    environment = {**os.environ, "HEADRACE_SPARK_JARS": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", S3_SESSION], env=environment, capture_output=True, text=True, check=False
    )
    assert "JarsMissingError" in run.stderr
    assert "make setup" in run.stderr


def test_s3a_takes_endpoint_and_region_from_the_environment_and_no_secret() -> None:
    from headrace.engine.session import _s3a_conf

    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ACCESS_KEY_ID": "the-key",
        "AWS_SECRET_ACCESS_KEY": "the-secret",
    }
    settings = _s3a_conf(environment)
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert settings["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert not any(secret in value for secret in ("the-key", "the-secret") for value in settings.values())
    assert "spark.hadoop.fs.s3a.endpoint" not in _s3a_conf({"AWS_REGION": "eu-west-1"})


def test_uris_of_objects() -> None:
    assert hadoop_uri("file:///a%20b/", "x[1].json") == "file:///a b/x[1].json"
    assert spark_uri("file:///a", "x[1]{2}*?\\.json") == "file:///a/x\\[1\\]\\{2\\}\\*\\?\\\\.json"
    assert hadoop_uri("s3://bucket/p%41", "x.json") == "s3a://bucket/p%41/x.json"
    with pytest.raises(FixConfigError, match="memory://"):
        hadoop_uri("memory://x", "y")
