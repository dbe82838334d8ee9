"""Pipeline folders whose modules have the same names, in the driver and in Spark's workers; and code that changes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import app
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.runs.options import RunOptions
from headrace.runs.reporting.results import RunResult
from headrace.runs.restore import ChangedCodeError
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

PIPELINE = """
from datetime import datetime

import headrace as hr
import own.combiners
from consts import NAME
from headrace import col

marks = hr.json("landing", {"at": datetime, "mark": int}, %s).event_time("at", bound="1h")
pipeline = hr.Pipeline(
    NAME,
    marks,
    key="mark",
    what={"total": col("mark").combine(own.combiners.Weighted())},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
)
"""
TRANSFORM = """
        transform=hr.%s("parsing:marked", {"at": datetime, "mark": int}, deterministic=True),
"""
BATCHES = '''
"""Marks."""
import consts
import pyarrow as pa

def marked(batch):
    mark = pa.array([consts.MARK] * batch.num_rows, pa.int64())
    return batch.set_column(batch.schema.get_field_index("mark"), "mark", mark)
'''
PARSING = '''
"""Marks."""
import consts
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

def marked(rows):
    mark = f.udf(lambda: consts.MARK, LongType())
    return rows.withColumn("mark", mark())
'''
COMBINERS = """
from dataclasses import dataclass
from consts import WEIGHT
from headrace import CustomCombiner, DataType

@dataclass(frozen=True)
class Weighted(CustomCombiner):
    accumulator_types = {"sum": DataType.INT}
    result_type = DataType.INT

    def create(self):
        return {"sum": 0}

    def add(self, accumulator, value):
        return {"sum": accumulator["sum"] + WEIGHT * value}

    def merge(self, left, right):
        return {"sum": left["sum"] + right["sum"]}

    def extract(self, accumulator):
        return accumulator["sum"]

    def remove(self, accumulator, value):
        return {"sum": accumulator["sum"] - WEIGHT * value}
"""


def write(folder: Path, name: str, mark: int = 1, weight: int = 10, more: str = "", *, transform: str = "") -> Path:
    """A folder with a pipeline ``name``, whose results say which of the folders' modules made them. ``transform``: what
    kind of function marks records.
    """
    (folder / "own").mkdir(parents=True, exist_ok=True)
    (folder / "consts.py").write_text(f"NAME = {name!r}\nMARK = {mark}\nWEIGHT = {weight}\n{more}")
    if transform:
        (folder / "parsing.py").write_text(PARSING if transform == "SparkFunction" else BATCHES)
    (folder / "own" / "combiners.py").write_text(COMBINERS)
    file = folder / "pipeline.py"
    file.write_text(PIPELINE % (TRANSFORM % transform if transform else ""))
    return file


def land(root: Path, file: int = 0) -> None:
    landing = root / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    (landing / f"{file}.json").write_text(json.dumps({"at": "2026-01-01T00:00:00Z", "mark": 1}))


def run(reference: str, root: Path, executor: ExecutorUnderTest, *, strict: bool = False) -> RunResult:
    return executor.process(resolve_pipeline(reference), root.as_uri(), RunOptions("run", strict=strict))


def results(reference: str, root: Path) -> list[tuple[int, int]]:
    rows = read(resolve_pipeline(reference), root.as_uri(), "current", "main").to_pylist()
    return [(row["mark"], row["total"]) for row in rows]


def test_combiners_of_one_name_in_two_folders_are_each_their_folders_own(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", "first", weight=10)
    write(tmp_path / "b", "second", weight=1000)
    monkeypatch.setenv("HEADRACE_PIPELINES", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    land(tmp_path)
    for name in ("first", "second", "first"):
        run(name, tmp_path, executor)
    assert results("first", tmp_path) == [(1, 10)]
    assert results("second", tmp_path) == [(1, 1000)]


@pytest.mark.parametrize(
    ("executor", "transform"),
    [
        pytest.param("spark", "SparkFunction", marks=pytest.mark.spark),
        pytest.param("spark", "BatchFunction", marks=pytest.mark.spark),
        ("local", "BatchFunction"),
    ],
    indirect=["executor"],
)
def test_functions_of_one_name_in_two_folders_are_each_their_folders_own(
    executor: ExecutorUnderTest, transform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", "first", mark=1, weight=10, transform=transform)
    write(tmp_path / "b", "second", mark=2, weight=1000, transform=transform)
    monkeypatch.setenv("HEADRACE_PIPELINES", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    land(tmp_path)
    for name in ("first", "second", "first"):
        run(name, tmp_path, executor)
    assert results("first", tmp_path) == [(1, 10)]
    assert results("second", tmp_path) == [(2, 2000)]
    write(tmp_path / "a", "first", mark=3, weight=10, transform=transform)
    with pytest.raises(ChangedCodeError, match=r"the code of parsing:marked has changed since snapshot .* \(epoch 0\)"):
        run("first", tmp_path, executor, strict=True)


def test_code_that_has_changed_is_told_once_and_refused_where_that_is_asked(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    reference = str(write(tmp_path, "told"))
    land(root)
    assert run(reference, root, executor, strict=True).warnings == ()
    write(tmp_path, "told", more='"""Another text."""\nUNUSED = 1\n')
    assert run(reference, root, executor, strict=True).warnings == (), "nothing that counts has changed"
    write(tmp_path, "told", weight=11)
    expected = r"the code of own.combiners:Weighted has changed since snapshot .* \(epoch 0\)"
    with pytest.raises(ChangedCodeError, match=expected):
        run(reference, root, executor, strict=True)
    land(root, 1)
    (warning,) = run(reference, root, executor).warnings
    assert "the code of own.combiners:Weighted has changed since snapshot" in warning
    assert run(reference, root, executor, strict=True).warnings == (), "the newest snapshot was made by this code"


def test_the_command_line_can_be_strict(tmp_path: Path) -> None:
    reference = str(write(tmp_path, "strict"))
    land(tmp_path)
    command = ["run", reference, "--root", tmp_path.as_uri(), "--no-publish", "--executor", "local"]
    assert CliRunner().invoke(app, command).exit_code == 0
    write(tmp_path, "strict", weight=2)
    refused_result = CliRunner().invoke(app, [*command, "--strict"])
    assert refused_result.exit_code == 10
    assert "the code of own.combiners:Weighted has changed" in refused_result.stderr
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "the code of own.combiners:Weighted has changed" in result.stdout + result.stderr
