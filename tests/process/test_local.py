"""Runs whose epochs are computed in their own process: the same snapshots for readers, and no Spark anywhere."""

import mmap
import resource
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import FileSource, Pipeline, SparkFunction
from headrace.distribute.process import LargeEpochError, columns_fit
from headrace.errors import CacheFolderError
from headrace.model.event_time import EventTime, Punctuated
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, FILES, MODEST, SESSIONS, clicks, land, truth
from tests.reading import read

MANY_USERS = 3000
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def local(run_id: str, mode: Mode = Mode.MICRO_BATCH, branch: str = "main") -> RunOptions:
    return RunOptions(run_id, executor="local", mode=mode, branch=branch)


def current(pipeline: Pipeline, root: Path, branch: str = "main") -> dict[tuple[str, datetime], tuple[int, int]]:
    rows = read(pipeline, root.as_uri(), "current", branch).to_pylist()
    return {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows}


@pytest.mark.slow
def test_files_become_the_windows_that_readers_see(tmp_path: Path) -> None:
    land(tmp_path)
    result = process(CLICKS, tmp_path.as_uri(), local("first"))
    assert result.epochs == tuple(range(FILES))
    assert current(CLICKS, tmp_path) == truth()
    check_catalog(open_store(tmp_path.as_uri()), CLICKS.name)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [CLICKS, SESSIONS], ids=lambda pipeline: pipeline.name)
def test_runs_that_restore_each_other_give_what_one_gives(tmp_path: Path, pipeline: Pipeline) -> None:
    once_root, often_root = tmp_path / "once", tmp_path / "often"
    land(once_root)
    process(pipeline, once_root.as_uri(), local("whole"), now=lambda: NOON)
    for file in range(FILES):
        land(often_root, file, file + 1)
        process(pipeline, often_root.as_uri(), local(f"run-{file}"), now=lambda: NOON)
    for view in ("panes", "current"):
        assert read(pipeline, often_root.as_uri(), view, "main") == read(pipeline, once_root.as_uri(), view, "main")


@pytest.mark.slow
def test_a_replay_and_a_batch_go_the_same_way(tmp_path: Path) -> None:
    land(tmp_path)
    process(SESSIONS, tmp_path.as_uri(), local("first"), now=lambda: NOON)
    process(SESSIONS, tmp_path.as_uri(), local("again", Mode.REPLAY, "again"))
    root = tmp_path.as_uri()
    assert read(SESSIONS, root, "panes", "again") == read(SESSIONS, root, "panes", "main")
    process(CLICKS, root, local("batch", Mode.BATCH, "batch"))
    assert current(CLICKS, tmp_path, "batch") == truth()


@pytest.mark.slow
def test_layers_of_current_are_folded(tmp_path: Path) -> None:
    land(tmp_path, last=20)
    process(CLICKS, tmp_path.as_uri(), local("many"))
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = catalog.manifest(catalog.head().refs["main"]).tables["current"]
    assert len(layers) < 16
    assert current(CLICKS, tmp_path) == truth(20)


@pytest.mark.slow
@set_sizes(task_bytes=1, held_bytes=0)
def test_an_epoch_that_finds_the_disk_full_leaves_nothing_and_is_computed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "3")
    land(tmp_path, 0, 1, MANY_USERS)
    process(CLICKS, tmp_path.as_uri(), local("first"))
    land(tmp_path, 1, FILES, MANY_USERS)
    limit_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, limit_before[1]))
    try:
        with pytest.raises(CacheFolderError, match="set HEADRACE_CACHE to a folder"):
            process(CLICKS, tmp_path.as_uri(), local("full"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit_before)
    assert current(CLICKS, tmp_path) == truth(1, MANY_USERS)
    process(CLICKS, tmp_path.as_uri(), local("second"))
    assert current(CLICKS, tmp_path) == truth(users=MANY_USERS)


@pytest.mark.slow
def test_bad_and_late_records_are_told(tmp_path: Path) -> None:
    land(tmp_path)
    folder = tmp_path / "landing/clicks"
    (folder / "part-00009.jsonl").write_bytes(
        b'{"user": "u1", "at": "2025-12-01T00:00:00Z", "price": 1}\n{"user": "u2", "at": "2026-01-01T05:00:00Z"\n'
        b'{"user": "\xff", "at": "2026-01-01T05:00:00Z", "price": 1}\n'
    )
    result = process(CLICKS, tmp_path.as_uri(), local("bad"))
    assert (result.counts["late_dropped"], result.counts["rejected"]) == (1, 2)
    (late,) = read(CLICKS, tmp_path.as_uri(), "late", "main").to_pylist()
    assert (late["user"], late["reason"]) == ("u1", "window expired")
    dead = read(CLICKS, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert [(row["position"], row["reason"]) for row in dead] == [(1, "not a JSON object"), (2, "not UTF-8")]


@pytest.mark.slow
def test_an_audit_looks_at_the_same_rows(tmp_path: Path) -> None:
    land(tmp_path)
    pipeline = clicks(expectations=MODEST)
    options = replace(local("audited"), publish=True)
    result = process(pipeline, tmp_path.as_uri(), options)
    assert result.audit is not None
    assert result.audit.success
    assert result.published == result.snapshot


def test_spark_code_of_a_pipeline_needs_spark(tmp_path: Path) -> None:
    land(tmp_path)
    function = SparkFunction("tests.spark.spark_transforms:words", CLICKS.source.schema, deterministic=True)
    pipeline = change_pipeline(CLICKS, source=replace(CLICKS.source, transform=function))
    with pytest.raises(Exception, match="--executor spark"):
        process(pipeline, tmp_path.as_uri(), local("first"))


def test_a_timer_epoch_fires_what_is_due(tmp_path: Path) -> None:
    land(tmp_path)
    first = process(SESSIONS, tmp_path.as_uri(), local("first"), now=lambda: NOON)
    second_result = process(SESSIONS, tmp_path.as_uri(), local("again"), now=lambda: NOON + timedelta(days=1))
    assert second_result.snapshot == first.snapshot


@pytest.mark.slow
def test_nothing_is_imported_that_a_run_does_not_need(tmp_path: Path) -> None:
    land(tmp_path)
    program = (
        "import sys\n"
        "from headrace.runs.options import RunOptions\n"
        "from headrace.runs.process import process\n"
        "from tests.process.clicks import CLICKS\n"
        f"process(CLICKS, {tmp_path.as_uri()!r}, RunOptions('run', executor='local'))\n"
        "unneeded = {'pyspark', 'airflow', 'great_expectations', 'duckdb', 'matplotlib', 'minio', 'rich', 'click'}\n"
        "unneeded |= {'pandas'}\n"
        "sys.exit(', '.join(sorted(unneeded & set(sys.modules))) or None)\n"
    )
    completed_process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (completed_process.returncode, completed_process.stderr) == (0, "")


def test_a_record_that_only_asserts_the_watermark_needs_no_key(tmp_path: Path) -> None:
    source = FileSource("landing", "json", {**CLICKS.source.schema, "mark": DataType.TIMESTAMP})
    pipeline = change_pipeline(CLICKS, source=source, event_time=EventTime(col("at"), Punctuated(col("mark"))))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/0.json").write_text(
        '{"user": "u1", "at": "2026-01-01T05:00:00Z", "price": 1}\n{"mark": "2026-01-01T06:00:00Z"}\n{"user": "u1"}\n'
    )
    result = process(pipeline, tmp_path.as_uri(), local("first"), now=lambda: NOON)
    assert result.watermark == "2026-01-01T06:00:00Z"
    assert (result.counts["accepted"], result.counts["filtered"], result.counts["rejected"]) == (1, 1, 1)


def test_columns_that_arrow_cannot_hold_are_told_with_what_to_do() -> None:
    gigabyte = pa.py_buffer(mmap.mmap(-1, 2**30))  # which nobody reads
    one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2**30)), gigabyte])
    with pytest.raises(LargeEpochError, match="--files-per-epoch"), columns_fit():
        pa.concat_arrays([one, one])
    with pytest.raises(pa.ArrowInvalid), columns_fit():
        pa.array(["x"]).cast(pa.int64())
