"""Files without a record, which count for nothing wherever they lie: each record is said to be from its own file."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import DataType, Pipeline, SparkFunction, col
from headrace.ext.stores import open_store
from headrace_lab.sizes import set_sizes
from tests.faults.scenarios import FILES, land_file, results
from tests.process.executors import ExecutorUnderTest, on_spark

SCHEMA = {"id": str, "user": str, "at": datetime, "price": int}
TYPES = pa.schema([("id", "string"), ("user", "string"), ("at", pa.timestamp("us", "UTC")), ("price", "int64")])


def parquet(records: list[dict[str, Any]]) -> bytes:
    rows = [{**record, "at": datetime.fromisoformat(record["at"])} for record in records]
    pq.write_table(pa.Table.from_pylist(rows, TYPES), sink := io.BytesIO())
    return sink.getvalue()


def json_lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def csv(records: list[dict[str, Any]]) -> bytes:
    return "".join(f"{','.join(map(str, line))}\n" for line in [SCHEMA, *(r.values() for r in records)]).encode()


WRITERS: Mapping[str, Callable[[list[dict[str, Any]]], bytes]] = {"json": json_lines, "csv": csv, "parquet": parquet}
BLANK = {"json": b"\n  \n", "csv": b"\n", "parquet": b""}


def deduplicating(kind: str, **source: Any) -> Pipeline:
    """Clicks per user and hour, all files but those of the first run in one epoch."""
    read = {"json": hr.json, "csv": hr.csv, "parquet": hr.parquet}[kind]
    return hr.Pipeline(
        "deduplicating",
        read("landing", SCHEMA, **source).event_time("at", bound="10m"),
        key="user",
        what={"clicks": hr.count(), "spent": col("price").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.AfterWatermark(early=hr.AfterCount(3), late=hr.AfterCount(1)),
        how=hr.retracting("30m"),
        deduplicate=hr.Deduplicate("id", "2h"),
    )


def records(number: int, folder: Path) -> list[dict[str, Any]]:
    land_file(folder, "clicks", number)
    lines = (folder / "landing" / "clicks" / f"{number:03}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[:-1]]


def make_root(executor: ExecutorUnderTest, pipeline: Pipeline, kind: str, folder: Path, empty: Sequence[bytes]) -> str:
    """A root with what comes of the newest file first, and then of all others, with ``empty`` files between them."""
    write, store = WRITERS[kind], open_store(folder.as_uri())
    store.write(f"landing/0.{kind}", write(records(FILES - 1, folder / "made")))
    executor.run(pipeline, store.uri, publish=False)
    for number in range(FILES - 1):
        store.write(f"landing/{2 * number + 2}.{kind}", write(records(number, folder / "made")[: 40 - 15 * number]))
    for number, content in enumerate(empty):
        store.write(f"landing/{2 * number + 1}.{kind}", content)
    executor.run(pipeline, store.uri)
    return store.uri


def landed_late(pipeline: Pipeline, root: str) -> list[bytes]:
    hr.open(root)[pipeline].replay_late()
    late = open_store(f"{root}/late")
    return sorted(late.read(info.path) for info in late.list("landing/"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("tasks", ["1", "3"])
def test_files_without_records_change_nothing(
    executor: ExecutorUnderTest, kind: str, tasks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", tasks)
    with set_sizes(task_bytes=100):
        pipeline = deduplicating(kind)
        rows_without = make_root(executor, pipeline, kind, tmp_path / "without", ())
        root = make_root(executor, pipeline, kind, tmp_path / "with", (b"", BLANK[kind], WRITERS[kind]([]), b""))
        expected = results(pipeline, rows_without)
        assert len(expected["late"]) > 10
        assert results(pipeline, root) == expected
        landed_rows = landed_late(pipeline, root)
        assert landed_rows
        if kind != "parquet":
            assert landed_rows == landed_late(pipeline, rows_without)


@on_spark
def test_files_without_records_change_nothing_behind_spark_code(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Nor do those all of whose records parse, of which the map side itself has none."""
    function = SparkFunction(
        "tests.spark.spark_transforms:double_rows", {**SCHEMA, "times": DataType.STRING}, deterministic=True
    )
    pipeline = deduplicating("json", transform=function)
    results_by_name = {
        name: results(pipeline, make_root(executor, pipeline, "json", tmp_path / name, empty))
        for name, empty in {"without": (), "with": (b"", b"", b"no record\n")}.items()
    }
    assert len(results_by_name["without"]["late"]) > 10
    assert len(results_by_name["with"].pop("rejected")) == 1 + len(results_by_name["without"].pop("rejected"))
    assert results_by_name["with"] == results_by_name["without"]
