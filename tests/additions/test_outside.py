"""Another distribution adds parts to Headrace by entry points alone: each is used by the command line as one of
Headrace's own.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import FixConfigError, PipelineError
from headrace.ext.stores import ObjectStore, open_store
from tests.distributions import write_distribution
from tests.snapshots import test_store_contract

DISTRIBUTION_FOLDER = Path(__file__).parent / "outside"
LEVELS = DISTRIBUTION_FOLDER / "levels.py"
HEADRACE = str(Path(sys.executable).parent / "headrace")
HEADER = "station   level at\n"


def line(station: str, level: object, time: str) -> str:
    return f"{station:10}{level!s:>5} 2026-01-01T{time}Z\n"


@dataclass(frozen=True)
class Installation:
    """Processes for which the distribution is installed; ``root`` is where they keep their deployment."""

    root: str
    path: str

    @property
    def store(self) -> ObjectStore:
        return open_store(self.root)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_RO")}
        environment |= {"PYTHONPATH": self.path, "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
        )

    def headrace(self, command: str, *arguments: str, root: str | None = None) -> Any:
        """What the command prints as JSON."""
        words = [command, str(LEVELS), *arguments, "--root", root or self.root, "--format", "json"]
        result = self.python(HEADRACE, *words)
        assert result.returncode == 0, result.stderr + result.stdout
        return json.loads(result.stdout)

    def land(self, name: str, *lines: str) -> None:
        self.store.write(f"landing/levels/{name}", "".join([HEADER, *lines]).encode())

    def run(self, **files: str) -> Any:
        for name, text in files.items():
            self.land(f"{name}.txt", text)
        return self.headrace("run")

    def rows(self, root: str | None = None) -> set[tuple[str, str, int]]:
        result = self.headrace("read", root=root)
        rows = result["rows"] if isinstance(result, dict) else result
        return {(row["station"], row["window_start"][11:16], row["highest"]) for row in rows}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where Python finds the distribution, in this process, too."""
    site = tmp_path / "site"
    write_distribution((DISTRIBUTION_FOLDER / "pyproject.toml").read_text(), site)
    for folder in (DISTRIBUTION_FOLDER, site):
        monkeypatch.syspath_prepend(str(folder))
    return os.pathsep.join([str(site), str(DISTRIBUTION_FOLDER)])


@pytest.fixture
def installation(tmp_path: Path, path: str) -> Installation:
    """Whose store is one of the distribution's."""
    return Installation(f"memdir://{tmp_path}/root", path)


@pytest.mark.slow
def test_files_of_a_format_from_outside_are_run_to_rows_and_land_again(installation: Installation) -> None:
    bad_line = line("Worms", "high", "10:40:00")
    first = installation.run(
        a=line("Worms", 212, "10:00:00") + line("Mainz", 301, "10:20:00") + bad_line, b=line("Worms", 230, "10:30:00")
    )
    assert first["counts"]["rejected"] == 1
    installation.run(c=line("Worms", 180, "12:00:00"))
    late = line("Mainz", 999, "10:50:00")
    assert installation.run(d=late)["counts"]["late_dropped"] == 1
    assert installation.rows() == {("Worms", "10:00", 230), ("Mainz", "10:00", 301)}

    landed_result = installation.headrace("replay-late")
    assert (landed_result["files"], landed_result["records"], landed_result["left"]) == (1, 1, {})
    store_beside = open_store(f"{installation.root}/late")
    (copy,) = store_beside.list("landing/levels/")
    assert store_beside.read(copy.path).decode() == HEADER + late
    installation.headrace("run", "--mode", "batch", root=f"{installation.root}/late")
    assert installation.rows(root=f"{installation.root}/late") == {("Mainz", "10:00", 999)}

    landed_result = installation.headrace("replay-rejected")
    assert (landed_result["files"], landed_result["records"], landed_result["left"]) == (1, 1, {})
    store_beside = open_store(f"{installation.root}/rejected")
    (copy,) = store_beside.list("landing/levels/")
    assert store_beside.read(copy.path).decode() == HEADER + bad_line


@pytest.mark.slow
def test_unit_tests_write_records_in_a_format_from_outside(installation: Installation) -> None:
    code = """
import headrace as hr
from headrace.testing import at, rows, run, watermark
from levels import pipeline
told = [{"station": "Worms", "level": 7, "at": at("10:00")}, "Mainz", {"station": "x" * 40}]
print(run(pipeline, [rows(told[0]), watermark("12:00")]).panes)
print([row["reason"] for row in run(pipeline, [rows(told[1])]).rejected])
run(pipeline, [rows(told[2])])
"""
    result = installation.python("-c", code)
    assert result.stdout.splitlines() == [
        "[<ON_TIME #0 [10:00, 11:00) station='Worms' highest=7 readings=1>]",
        "['event time is null']",
    ], result.stderr
    assert "UnitTestError: input source, 'xxxxxxxxxx" in result.stderr
    assert "is wider than 30 characters" in result.stderr


def test_a_format_that_nobody_has_is_refused_with_the_names_of_all(path: str) -> None:
    with pytest.raises(PipelineError) as error:
        hr.FileSource("landing/levels", "fixed_with", {"level": int})
    expected = 'FileSource(format=\'fixed_with\'): write one of "json", "csv", "parquet", "fixed_width"'
    assert str(error.value) == expected


def test_a_scheme_that_nobody_has_is_refused_with_the_forms_of_all(path: str) -> None:
    with pytest.raises(FixConfigError) as error:
        open_store("memdri://ann:secret@folder")
    expected = "use file:///folder, s3://bucket/prefix, memory://name or memdir:///folder"
    assert str(error.value) == f"'memdri://...@folder' is not a root of a store: {expected}"


@pytest.mark.slow
def test_an_executor_from_outside_computes_a_run(path: str, tmp_path: Path) -> None:
    installation_outside = Installation(tmp_path.as_uri(), path)
    installation_outside.land("a.txt", line("Worms", 212, "10:00:00"), line("Worms", 180, "12:00:00"))
    words = ["run", str(LEVELS), "--root", installation_outside.root, "--executor"]
    result = installation_outside.python(HEADRACE, *words, "announced", "--format", "json")
    assert json.loads(result.stdout)["executor"] == {"name": "announced", "reason": "asked for"}, result.stderr
    assert "Acme computes this" in result.stderr
    assert installation_outside.rows() == {("Worms", "10:00", 212)}
    refused_result = installation_outside.python(HEADRACE, *words, "anounced")
    assert refused_result.returncode == 2
    assert "'anounced' is not one of 'spark', 'local', 'auto', 'announced'" in refused_result.stderr


def test_a_pipeline_names_an_executor_from_outside(path: str) -> None:
    source = hr.json("landing/clicks", {"at": datetime}).arrival_time()
    clicks_with = partial(hr.Pipeline, "clicks", source, what={"clicks": hr.count()}, where=hr.FixedWindows("1h"))
    assert clicks_with(executor="announced").executor == "announced"
    with pytest.raises(PipelineError) as error:
        clicks_with(executor="anounced")
    expected = 'write one of "spark", "local", "announced", "auto"'
    assert str(error.value) == f"Pipeline clicks(executor='anounced'): {expected}"


PROMISES = [
    promise
    for name, promise in vars(test_store_contract).items()
    if name.startswith("test_") and [*signature(promise).parameters] == ["store"]
]


def test_the_contract_of_stores_is_found() -> None:
    assert len(PROMISES) > 9


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_store_from_outside_keeps_what_every_store_promises(
    promise: Callable[[ObjectStore], None], path: str, tmp_path: Path
) -> None:
    promise(open_store(f"memdir://{tmp_path}/store"))


PIPELINE_FILE = """
from datetime import datetime

import headrace as hr
from acme_headrace.daily_table import DailyTable

pipeline = hr.Pipeline(
    "said",
    DailyTable({database!r}, "said", {{"text": str, "at": datetime}}).event_time("at", bound="1h"),
    key="text",
    what={{"n": hr.count()}},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_source_from_outside_is_read_by_both_executors(installation: Installation, tmp_path: Path) -> None:
    file, database = tmp_path / "said.py", tmp_path / "said.db"
    file.write_text(PIPELINE_FILE.format(database=str(database)))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE said (day TEXT, text, at TEXT)")
        days = [("2026-05-01", "a"), ("2026-05-02", "b"), ("2026-05-02", "a"), ("2026-05-02", 7), ("9999-12-31", None)]
        connection.executemany("INSERT INTO said VALUES (?, ?, ?)", [(*one, f"{one[0]}T00:00:00Z") for one in days])

    def headrace(command: str, *words: str) -> Any:
        result = installation.python(
            HEADRACE, command, str(file), *words, "--root", installation.root, "--format", "json"
        )
        assert result.returncode == 0, result.stderr + result.stdout
        return json.loads(result.stdout)

    counts = headrace("run", "--executor", "spark", "--files-per-epoch", "1")["counts"]
    assert (counts["input_files"], counts["rejected"]) == (2, 1)
    headrace("run", "--executor", "local", "--mode", "replay", "--from-branch", "main", "--branch", "again")
    rows_that_differ = headrace("diff", "main", "again")["output"]["rows"]
    assert [rows_that_differ[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
    rows = headrace("read", "--at", "main")
    assert sorted((row["text"], row["n"]) for row in rows) == [("a", 1), ("a", 1), ("b", 1)], "of each day"
