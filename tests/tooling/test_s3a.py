"""Spark reads and writes s3a:// with the pinned jars, on a real MinIO: every format, and a rename."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.jvm import pinned_jars, s3a_jars
from scripts.minio_server import Server, client, find_or_build, start, stop

pytestmark = [pytest.mark.spark, pytest.mark.s3]

# In a process of its own: the jars count only before the JVM starts.
PROGRAM = """
from headrace.engine.session import spark_session

conf = {
    "spark.driver.memory": "512m",
    # The session's raw local file system has no directory for upload buffers; Headrace never uploads by S3A.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
}
spark = spark_session("s3a", root_uri="s3://tests/root", cores=2, conf=conf)
rows = spark.range(300_000).selectExpr("id", "uuid() AS text")
rows.coalesce(1).write.parquet("s3a://tests/rows")
for format in ("json", "csv", "parquet"):
    rows.limit(10).write.format(format).save(f"s3a://tests/few {format}")
    print(format, spark.read.format(format).load(f"s3a://tests/few {format}").count())
print("text", spark.read.text("s3a://tests/few json/*.json").count())
print("rows", spark.read.parquet("s3a://tests/rows").distinct().count())
print("secret in conf", any("SECRET" in value for _, value in spark.sparkContext.getConf().getAll()))
spark.stop()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    find_or_build()
    made = start(tmp_path / "data")
    client(made).make_bucket("tests")
    yield made
    stop(made)


def test_spark_reads_what_it_wrote_through_s3a(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(s3a_jars()) == len(pinned_jars())
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    program = PROGRAM.replace("SECRET", server.secret_key)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-12000:]
    assert done.stdout.splitlines() == [
        "json 10",
        "csv 10",
        "parquet 10",
        "text 10",
        "rows 300000",
        "secret in conf False",
    ]
    assert server.secret_key not in done.stderr
