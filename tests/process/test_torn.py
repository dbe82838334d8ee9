"""Files that turn out to be torn while an epoch reads them, as dead letters."""

from datetime import timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace import FixedWindows, Pipeline
from tests.building import change_pipeline
from tests.corpus import BrokenFile, json_lines
from tests.corpus.files import TORN_FILES, parquet, table
from tests.process.executors import ExecutorUnderTest
from tests.reading import read
from tests.sources.landed import pipeline


def tolerant(kind: str) -> Pipeline:
    definition = pipeline(kind, on_unreadable="dead_letter")
    in_order = definition.source.event_time("time", bound="0s").event_time
    return change_pipeline(definition, event_time=in_order, where=FixedWindows(timedelta(days=9)))


def run(executor: ExecutorUnderTest, pipeline: Pipeline, root: Path) -> hr.types.RunResult:
    return executor.run(pipeline, root.as_uri(), publish=False)


def land(root: Path, files: dict[str, bytes]) -> None:
    (root / "landing").mkdir(parents=True)
    for name, content in files.items():
        (root / "landing" / name).write_bytes(content)


CASES = [
    pytest.param(kind, broken_file, id=f"{kind}: {broken_file.name}")
    for kind, files in TORN_FILES.items()
    for broken_file in files
]


@pytest.mark.parametrize(("kind", "broken_file"), CASES)
def test_a_torn_file_is_one_dead_letter(
    executor: ExecutorUnderTest, tmp_path: Path, kind: str, broken_file: BrokenFile
) -> None:
    good = f"{json_lines.record(n=4)}\n".encode() if kind == "json" else parquet(table(n=[4]))
    land(tmp_path, {"good.x": good, broken_file.file: broken_file.content})
    tested_pipeline = tolerant(kind)
    result = run(executor, tested_pipeline, tmp_path)
    assert (result.counts["accepted"], result.counts["rejected"]) == (1, 1)
    (dead,) = read(tested_pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["file"], dead["position"], dead["raw"], dead["raw_bytes"]) == (
        f"landing/{broken_file.file}",
        None,
        None,
        None,
    )
    assert dead["reason"].startswith("file: ")
    assert broken_file.reason in dead["reason"]
