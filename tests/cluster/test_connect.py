"""A run on a real Spark Connect server: nothing of an epoch needs the driver's own JVM."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest
import tenacity

from headrace.distribute.spark.jvm import driver_java_options
from scripts import sessions
from tests.process.clicks import CLICKS, land, truth
from tests.reading import read

pytestmark = [pytest.mark.spark, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

# In a process of its own: a process has sessions of one kind.
PROGRAM = """
import sys
from pyspark.sql.connect.session import SparkSession
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.process.clicks import CLICKS

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(process(CLICKS, sys.argv[2], RunOptions("connected", executor="spark"), spark=spark).epochs)
spark.stop()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server with two cores."""
    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": driver_java_options(),
        "spark.local.dir": str(tmp_path / "local"),
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "spark-submit", "--class", SERVER, "--master", "local[2]", *conf, "spark-internal"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text(errors="replace")[-4000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda is_there: not is_there),
            stop=tenacity.stop_after_delay(120),
            wait=tenacity.wait_fixed(0.1),
        )(answers)
        yield f"sc://127.0.0.1:{port}"
    finally:
        family = sessions.family(process)
        for member in family:
            with suppress(psutil.NoSuchProcess):  # some end with their parents
                member.kill()
        psutil.wait_procs(family, timeout=20)
        process.wait(timeout=20)


def test_a_run_on_a_connect_server(server: str, tmp_path: Path) -> None:
    land(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, server, tmp_path.as_uri()],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-6000:]
    assert result.stdout.splitlines()[-1] == "(0, 1, 2, 3, 4)"
    rows = read(CLICKS, tmp_path.as_uri(), "current", "main").to_pylist()
    assert {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows} == truth()
