"""Files that turn out to be torn while an epoch reads them, as dead letters."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.process import process
from headrace.entrypoints.reading import read
from headrace.entrypoints.results import RunResult
from headrace.pipeline import EventTime, FileFormat, FixedWindows, Monotonic, OnUnreadable, Pipeline, col
from tests.corpus import BrokenFile, json_lines
from tests.corpus.files import TORN, parquet, table
from tests.engine.source_fixtures import pipeline

pytestmark = pytest.mark.spark


def tolerant(kind: FileFormat) -> Pipeline:
    made = pipeline(kind, on_unreadable=OnUnreadable.DEAD_LETTER)
    return replace(made, event_time=EventTime(col("time"), Monotonic()), where=FixedWindows(timedelta(days=9)))


def run(spark: SparkSession, tested: Pipeline, root: Path) -> RunResult:
    return process(tested, root.as_uri(), RunOptions("run"), spark=interpreting(spark))


def land(root: Path, files: dict[str, bytes]) -> None:
    (root / "landing").mkdir(parents=True)
    for name, content in files.items():
        (root / "landing" / name).write_bytes(content)


def cases() -> Iterator[Any]:
    for kind, files in TORN.items():
        for broken in files:
            unused = "no aggregate" in broken.name
            reason = "G line 10: the file is read for its dead letters after it was accepted; E replaces it"
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if unused else []
            yield pytest.param(kind, broken, id=f"{kind}: {broken.name}", marks=marks)


@pytest.mark.parametrize(("kind", "broken"), list(cases()))
def test_a_torn_file_is_one_dead_letter(
    spark: SparkSession, tmp_path: Path, kind: FileFormat, broken: BrokenFile
) -> None:
    good = f"{json_lines.record(n=4)}\n".encode() if kind is FileFormat.JSON else parquet(table(n=[4]))
    land(tmp_path, {"good.x": good, broken.file: broken.content})
    tested = tolerant(kind)
    result = run(spark, tested, tmp_path)
    assert (result.rows["accepted"], result.rows["rejected"]) == (1, 1)
    (dead,) = read(tested, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["file"], dead["position"], dead["raw"], dead["raw_bytes"]) == (
        f"landing/{broken.file}",
        None,
        None,
        None,
    )
    assert dead["reason"].startswith("file: ")
    assert broken.reason in dead["reason"]


def test_many_torn_files_cost_what_one_does(spark: SparkSession, tmp_path: Path) -> None:
    broken, _ = TORN[FileFormat.JSON]
    good, tested = f"{json_lines.record()}\n".encode(), tolerant(FileFormat.JSON)
    jobs: list[int] = []
    for torn in (1, 4):
        root = tmp_path / str(torn)
        land(
            root, {f"{n}.json.gz" if n < torn else f"{n}.json": broken.content if n < torn else good for n in range(5)}
        )
        before = jobs_of(spark)
        assert run(spark, tested, root).rows["rejected"] == torn
        jobs.append(jobs_of(spark) - before)
    assert jobs[0] == jobs[1]


def jobs_of(spark: SparkSession) -> int:
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())
