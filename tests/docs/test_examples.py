"""Each example runs from its own data to the rows that stand beside it."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from tests.docs.pages import ROOT

EXAMPLES = sorted(file.parent for file in (ROOT / "examples").glob("*/expected.jsonl"))
JOBS = sorted((ROOT / "examples" / "joins").glob("*.py"))
_NEXMARK_FOLDER = ROOT / "examples" / "nexmark"
"""Has no data of its own: tests/docs/test_nexmark.py lands some, and compares with DuckDB."""


def headrace(*words: str) -> str:
    result = CliRunner().invoke(app, words, prog_name="headrace", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_examples_say_what_they_give() -> None:
    assert len(EXAMPLES) >= 4
    of_joins = {file.parent for file in JOBS}
    assert {file.parent for file in (ROOT / "examples").glob("*/*.py")} == {*EXAMPLES, *of_joins, _NEXMARK_FOLDER}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda folder: folder.name)
def test_the_rows_of(example: Path, tmp_path: Path) -> None:
    shutil.copytree(example / "data", tmp_path / "data")
    (file,) = (str(each) for each in example.glob("*.py"))
    root = ("--root", f"file://{tmp_path}/data")
    headrace("run", file, *root)
    rows = json.loads(headrace("read", file, *root, "--format", "json"))
    expected = [json.loads(line) for line in (example / "expected.jsonl").read_text().splitlines()]
    (pipeline,) = (value for value in runpy.run_path(file).values() if isinstance(value, hr.Pipeline))
    stage = pipeline.stages[-1]
    columns = [*stage.key_types, "window_start", "window_end", *stage.value_types, "timing"]
    assert [{name: row[name] for name in columns} for row in rows] == expected


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_the_rows_of_the_join(file: Path, tmp_path: Path) -> None:
    shutil.copytree(file.parent / "data", tmp_path / "data")
    root = ("--root", f"file://{tmp_path}/data")
    headrace("run", str(file), *root)
    expected = [json.loads(line) for line in (file.parent / "expected" / f"{file.stem}.jsonl").read_text().splitlines()]
    rows = json.loads(headrace("read", str(file), *root, "--format", "json"))
    assert sorted([{name: row[name] for name in expected[0]} for row in rows], key=str) == sorted(expected, key=str)


def test_the_joins_pass_their_own_tests() -> None:
    assert headrace("test", str(JOBS[0].parent)).count("passed  ") == len(JOBS)
