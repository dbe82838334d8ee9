"""Reading where files are not at hand, or not small: an S3 root, a Spark session, little memory; and after runs."""

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException

import headrace as hr
from headrace import Pipeline, col
from headrace.errors import BrokenObjectError, MissingRootError, QueryError, ReadResourcesError
from tests.cli.deployments import PIPELINE_FILE, Deployment, pane
from tests.minio_bucket import BUCKET
from tests.process.clicks import CLICKS, SESSIONS, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.s3
def test_an_s3_root_is_read_through_the_store_and_verified(
    minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}/a root")
    deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 5)])
    deployment.commit(panes=[pane("ann", 1, 2, retraction=True), pane("ann", 1, 3, index=1)])
    root = hr.open(deployment.root)
    assert list(root) == ["clicks"]
    view = root["clicks"].current(at="main", where=col("clicks") > 0, columns=["user", "clicks"])
    expected = [{"user": "ann", "clicks": 3}, {"user": "bob", "clicks": 5}]
    assert view.to_arrow().to_pylist() == expected
    assert view.to_duckdb().order('"user"').fetchall() == [("ann", 3), ("bob", 5)]
    assert [uri.startswith(f"{deployment.root}/clicks/data/") for uri in view.files()] == [True, True]
    with monkeypatch.context() as small:
        small.setenv("HEADRACE_READ_DISK", "1k")
        for read in (view.to_arrow, view.to_duckdb, view.count):
            with pytest.raises(ReadResourcesError, match=r"copies .* KB to the local disk first.*HEADRACE_READ_DISK"):
                read()
    path = next(info.path for info in deployment.store.list("clicks/data/"))
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann"))
    with pytest.raises(BrokenObjectError, match=path) as error:
        view.to_arrow()
    assert not [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if os.environ[name] in str(error.value)]
    with pytest.raises(MissingRootError, match="does not exist"):
        hr.open(f"s3://{BUCKET}/{uuid.uuid4().hex}")


def test_copies_must_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path, f"memory://{uuid.uuid4().hex}")
    deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 5)])
    size = sum(info.size for info in deployment.store.list("clicks/data/"))
    view = hr.open(deployment.root)["clicks"].panes(at="main")
    monkeypatch.setenv("HEADRACE_READ_DISK", f"{size}b")
    assert view.to_arrow().num_rows == 2
    monkeypatch.setenv("HEADRACE_READ_DISK", f"{size - 1}b")
    with pytest.raises(ReadResourcesError, match=r"copies .* to .*, and may use .* under .*HEADRACE_READ_DISK sets"):
        view.to_arrow()
    monkeypatch.delenv("HEADRACE_READ_DISK")
    free = -(-size * 10 // 9)
    assert free * 9 // 10 == size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert view.to_arrow().num_rows == 2
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free - 2))
    with pytest.raises(ReadResourcesError, match=r"copies .* to .*, and may use .* under"):
        view.to_arrow()


@pytest.mark.spark
@pytest.mark.s3
def test_a_spark_data_frame_of_an_s3_root_is_read_by_workers_and_verified(
    spark: "SparkSession", minio: str, tmp_path: Path
) -> None:
    deployment = Deployment(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}/a root")
    deployment.commit(panes=[pane(user, n, n) for user in ("ann", "bob") for n in range(3)])
    deployment.commit(panes=[pane("ann", 2, 2, retraction=True), pane("bob", 1, 7, index=1)])
    clicks = hr.open(deployment.root)["clicks"]
    for view in (
        clicks.current(at="main", columns=["user", "clicks", "window_start"]),
        clicks.current(at="main", where=col("clicks") > 1, columns=["clicks", "user"]),
        clicks.panes(at="main"),
        clicks.late(at="main"),
    ):
        frame = view.to_spark(spark)
        table, expected = frame.toArrow(), view.to_arrow()
        assert frame.columns == view.schema.names
        assert sorted(map(str, table.to_pylist())) == sorted(map(str, expected.to_pylist()))
    whole = clicks.panes(at="main").to_spark(spark)
    path = next(info.path for info in deployment.store.list("clicks/data/"))
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann"))
    with pytest.raises(PythonException, match="does not have the checksum in its manifest"):
        whole.toArrow()


@pytest.mark.spark
def test_a_spark_data_frame_of_a_local_root_notices_damaged_pages(spark: "SparkSession", tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    deployment.commit(panes=[pane("ann", n, n) for n in range(3)])
    frame = hr.open(deployment.root)["clicks"].panes(at="main").to_spark(spark)
    path = next(info.path for info in deployment.store.list("clicks/data/"))
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann", 1))
    with pytest.raises(Exception, match="CRC checksum verification failed"):
        frame.toArrow()


@pytest.mark.spark
def test_a_spark_data_frame_has_the_rows_of_the_view(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "a folder %41"
    folder.mkdir()
    deployment = Deployment(folder)
    panes = [pane(user, n, n) for user in ("ann", "", "bob") for n in range(3)]
    deployment.commit(panes=panes)
    deployment.commit(panes=[pane("ann", 2, 2, retraction=True), pane("bob", 1, 7, index=1)])
    clicks = hr.open(deployment.root)["clicks"]

    for view in (
        clicks.current(at="main", columns=["user", "clicks", "window_start"]),
        clicks.current(at="main", where=col("clicks") > 1, columns=["clicks", "user"]),
        clicks.panes(at="main"),
        clicks.late(at="main"),
        clicks.snapshots(at="main", columns=["snapshot", "epoch", "committed_at"]),
    ):
        frame = view.to_spark(spark)
        assert frame.columns == view.schema.names
        values = frame.toArrow().cast(view.schema).to_pylist()
        assert sorted(values, key=repr) == sorted(view.to_arrow().to_pylist(), key=repr)
    assert clicks.current().to_spark(spark).count() == 0
    with pytest.raises(QueryError, match="which Spark may understand otherwise"):
        clicks.current(at="main", where="clicks > 1").to_spark(spark)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [CLICKS, SESSIONS], ids=lambda pipeline: pipeline.name)
def test_what_a_run_withdrew_has_no_row(tmp_path: Path, pipeline: Pipeline) -> None:
    """Sessions that merge withdraw those that they were: only the merged one is current."""
    land(tmp_path)
    reader = hr.open(tmp_path.as_uri())[pipeline]
    reader.run(executor="local", publish=False)
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    panes = reader.panes(at="main").to_arrow().to_pylist()
    for row in sorted(panes, key=lambda row: (row["epoch"], row["sequence"])):
        newest[row["user"], row["window_start"], row["window_end"]] = row
    live = [row for row in newest.values() if not row["is_retraction"]]
    assert any(row["is_retraction"] for row in newest.values()) == (pipeline is SESSIONS)
    rows = reader.current(at="main").to_arrow().to_pylist()
    assert rows == sorted(live, key=lambda row: (row["window_start"], row["user"], row["window_end"]))


MEMORY_TEST = """
import re, sys
from pathlib import Path
import headrace as hr
view = hr.open(sys.argv[1])["clicks"].current(at="main")
rows = size = 0
last = None
for batch in view.batches():
    rows, size = rows + batch.num_rows, size + batch.nbytes
    starts = batch.column("window_start").to_pylist()
    assert last is None or last <= starts[0]
    last = starts[-1]
most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss begins with the parent's
print(rows, size, int(most[1]) * 1024)
"""


@pytest.mark.slow
def test_a_view_several_times_as_large_as_memory_is_read_in_order(tmp_path: Path) -> None:
    wide = PIPELINE_FILE.replace("hr.count(),", 'hr.count(), "note": col("user").max(),')
    deployment = Deployment(tmp_path, file_text=wide)
    epochs, rows, limit = 4, 240_000, 192 * 2**20
    for epoch in range(epochs):
        deployment.commit(panes=_wide(epoch, epoch * rows // 2, rows))  # the first half of them once more
    stdout = subprocess.run(
        [sys.executable, "-c", MEMORY_TEST, deployment.root],
        env={**os.environ, "HEADRACE_READ_MEMORY": str(limit), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    total, size, peak = map(int, stdout.split())  # and nothing else, such as a bar of DuckDB's
    assert total == rows // 2 * (epochs + 1)
    assert size > 3 * limit
    assert peak < size, "all of it was in memory"
    assert not [*tmp_path.glob("headrace-read-*")]


DIFF_MEMORY_TEST = """
import re, sys
from pathlib import Path
import headrace as hr
found = hr.open(sys.argv[1])["clicks"].diff(sys.argv[2], "main", limit=3).output
most = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(found.rows.before, found.rows.after, found.rows.added, found.rows.changed, len(found.first), int(most[1]) * 1024)
"""


@pytest.mark.slow
def test_snapshots_several_times_as_large_as_memory_are_compared(tmp_path: Path) -> None:
    wide = PIPELINE_FILE.replace("hr.count(),", 'hr.count(), "note": col("user").max(),')
    deployment = Deployment(tmp_path, file_text=wide)
    rows, limit = 160_000, 128 * 2**20
    first = deployment.commit(panes=_wide(0, 0, rows))
    for epoch in (1, 2):
        deployment.commit(panes=_wide(epoch, epoch * rows // 2, rows, clicks=7))
    stdout = subprocess.run(
        [sys.executable, "-c", DIFF_MEMORY_TEST, deployment.root, first],
        env={**os.environ, "HEADRACE_READ_MEMORY": str(limit), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    *counts, shown_rows, peak = map(int, stdout.split())
    assert counts == [rows, 2 * rows, rows, rows // 2]
    assert shown_rows == 3
    assert peak < 3 * rows * 1000, "all of it was in memory"
    assert not [*tmp_path.glob("headrace-read-*")]


def _wide(epoch: int, first: int, rows: int, clicks: int = 0) -> pa.Table:
    """Panes of as many keys from ``first`` on, of about a KB each."""
    numbers = pa.array(range(first, first + rows))
    starts = pc.cast(pc.multiply(numbers, 1_000_000), pa.timestamp("us", "UTC"))
    sample = pane("ann", 0, clicks or epoch, note="", epoch=epoch)
    columns = {name: pa.repeat(pa.scalar(value), rows) for name, value in sample.items()}
    text = pc.utf8_lpad(numbers.cast(pa.string()), 10, "0")
    note = pc.binary_repeat(text, 100)
    return pa.table({**columns, "user": text, "note": note, "window_start": starts, "window_end": starts})
