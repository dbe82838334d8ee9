"""An epoch on MinIO states every request that was made for it: its own, its tasks', and those of Spark through S3A."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from scripts.minio_server import client, find_or_build, start, stop
from tests.process.clicks import CLICKS, records
from tests.s3_proxy import Proxy, proxying

pytestmark = [pytest.mark.spark, pytest.mark.s3]
ROOT = "s3://tests/deployment"
LARGE = 20_000_000  # the reader of S3A asks for more than one part of such a file

# In a process of its own: the jars of S3A count only before the JVM starts.
PROGRAM = f"""
import http.client, os
from headrace.engine.session import spark_session
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.process import process
from headrace.entrypoints.report import Silent
from tests.process.clicks import CLICKS

def mark(name):
    proxy = http.client.HTTPConnection(os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"))
    proxy.request("HEAD", f"/mark/{{name}}")
    proxy.getresponse().read()

class Marking(Silent):
    def committed(self, manifest):
        mark(f"committed/{{manifest.epoch}}")

spark = spark_session("requests", root_uri="{ROOT}", cores=2)
for name, epochs in (("first", 2), ("second", 1)):
    mark(name)
    process(CLICKS, "{ROOT}", RunOptions(name, max_epochs=epochs), listener=Marking(), spark=spark)
spark.stop()
"""


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A MinIO with a bucket, behind a proxy to which the environment points."""
    find_or_build()
    server = start(tmp_path / "data")
    try:
        client(server).make_bucket("tests")
        with proxying(server.endpoint) as proxy:
            for name, value in {**server.environment(), "AWS_ENDPOINT_URL": proxy.endpoint}.items():
                monkeypatch.setenv(name, value)
            yield proxy
    finally:
        stop(server)


def land(number: int, size: int = 0) -> None:
    """One file of clicks, with spaces that make it at least ``size`` bytes long."""
    lines = [json.dumps(record) for record in records(number)]
    text = "".join(line + " " * (size // len(lines)) + "\n" for line in lines)
    open_store(ROOT).write(f"landing/clicks/part-{number:05d}.jsonl", text.encode())


def asked_by_spark(proxy: Proxy, begin: str, end: str) -> dict[str, int]:
    """What Spark asked between two marks, by the names that manifests have for it."""
    paths = [path for _, path, _ in proxy.seen]
    kinds = Counter(
        "list" if method == "GET" and "list-type=2" in path else {"HEAD": "stat"}.get(method, method.lower())
        for method, path, agent in proxy.seen[paths.index(f"/mark/{begin}") : paths.index(f"/mark/{end}")]
        if "Hadoop" in agent
    )
    return {**{f"spark_{kind}": kinds[kind] for kind in ("get", "list", "stat")}, "spark_all": kinds.total()}


def stated(*manifests: Manifest) -> dict[str, int]:
    """What these epochs say that Spark asked."""
    found: Counter[str] = Counter()
    for manifest in manifests:
        found.update({kind: count for kind, count in manifest.requests.items() if kind.startswith("spark_")})
    return dict(found)


def test_epochs_state_what_spark_asked_for(proxy: Proxy) -> None:
    land(0, LARGE)
    land(1)
    land(2)
    repository = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=repository, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    catalog = Catalog(open_store(ROOT), CLICKS.name)
    third, second, first = catalog.ancestry(catalog.head().refs["main"])
    assert stated(first, second) == asked_by_spark(proxy, "first", "committed/1")
    assert stated(first, second)["spark_get"] > 2  # two files, one of them in parts
    assert stated(third) == asked_by_spark(proxy, "second", "committed/2")
    assert third.requests["put"] > 0
