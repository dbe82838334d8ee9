"""``headrace new`` and ``headrace check``: what the one writes runs, what the other says holds."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.pipeline.loading.registry import SHIPPED_FOLDER, resolve_pipeline
from headrace.pipeline.scheduling import DAG_FAMILIES, dag_id
from tests.cli.deployments import PIPELINE_FILE


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_new_writes_runs_as_its_next_steps_say(folder: Path) -> None:
    result = headrace("new", "shop")
    assert result.exit_code == 0, result.output
    steps = [shlex.split(line)[1:] for line in result.stdout.partition("next:")[2].splitlines() if line.strip()]
    assert [step[0] for step in steps] == ["check", "test", "run", "read"]
    for step in steps:
        assert "--executor" not in step, "it runs as it is, on a plain installation too"
        result = headrace(*step)
        assert result.exit_code == 0, result.output
    rows = json.loads(headrace(*steps[-1], "--format", "json").stdout)
    sums = {(row["product"], row["window_start"][11:13]): (row["orders"], row["cents"]) for row in rows}
    assert sums == {
        ("tea", "09"): (2, 1260),
        ("bread", "09"): (2, 1140),
        ("tea", "10"): (2, 1680),
        ("bread", "10"): (1, 380),
        ("tea", "12"): (1, 420),
        ("bread", "14"): (1, 380),
    }
    bare = headrace("run", *[word for word in steps[2][1:] if word not in {"--files-per-epoch", "1"}])
    assert bare.exit_code == 0, bare.output
    assert "executor local: auto: " in bare.stderr
    assert "auto: local, or spark where there is much input" in " ".join(headrace(*steps[0]).stdout.split())
    panes = json.loads(headrace(*steps[-1], "--view", "panes", "--format", "json").stdout)
    assert {row["timing"] for row in panes} >= {"EARLY", "ON_TIME"}


@pytest.mark.slow
def test_what_new_writes_of_rows_runs_as_its_next_steps_say(folder: Path) -> None:
    wrote = headrace("new", "shop", "--rows")
    assert wrote.exit_code == 0, wrote.output
    steps = [shlex.split(line)[1:] for line in wrote.stdout.partition("next:")[2].splitlines() if line.strip()]
    assert [step[0] for step in steps] == ["check", "test", "run", "read"]
    for step in steps:
        result = headrace(*step)
        assert result.exit_code == 0, result.output
    rows = json.loads(headrace(*steps[-1], "--format", "json").stdout)
    assert len(rows) == 9
    tea = [(row["euros"], row["day"], row["event_time"][11:16]) for row in rows if row["product"] == "tea"]
    assert sorted(tea, key=lambda row: row[2])[:2] == [("4.2", "2025-01-01", "09:05"), ("8.4", "2025-01-01", "09:40")]


def test_new_touches_no_file_that_is_there(folder: Path) -> None:
    assert headrace("new", "shop", "--folder", "a b").exit_code == 0
    file = folder / "a b" / "shop.py"
    file.write_text("mine")
    (folder / "a b" / "data" / "landing" / "shop" / "orders-1.jsonl").unlink()
    result_again = headrace("new", "shop", "--folder", "a b")
    assert result_again.exit_code == 10
    assert "nothing was written" in result_again.stderr
    assert file.read_text() == "mine"
    assert not (folder / "a b" / "data" / "landing" / "shop" / "orders-1.jsonl").exists()
    (folder / "file").write_text("")
    assert headrace("new", "other", "--folder", "file").exit_code == 10


@pytest.mark.parametrize("name", ["", "Shop", "1st", "a-b", "../x", "class.py", "x" * 64, "a b"])
def test_new_takes_names_of_pipelines_alone(folder: Path, name: str) -> None:
    refused_result = headrace("new", name)
    assert refused_result.exit_code == 10, refused_result.output
    assert "cannot name a pipeline" in refused_result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["class", "json", "headrace", "datetime"])
def test_names_that_python_knows_are_good_names(folder: Path, name: str) -> None:
    assert headrace("new", name).exit_code == 0
    assert resolve_pipeline(f"{name}/{name}.py").name == name


def run_check(*arguments: str) -> Any:
    return json.loads(headrace("check", *arguments, "--format", "json").stdout)


def test_check_says_what_a_pipeline_means(folder: Path) -> None:
    (folder / "clicks.py").write_text(PIPELINE_FILE.replace('key="user",', 'key="user",\n    schedule="@hourly",'))
    result = headrace("check", "clicks.py")
    assert result.exit_code == 0, result.output
    for words in ("clicks = count()", "fixed windows of 1h", "early: whenever", "headrace_clicks_process: @hourly"):
        assert words in result.stdout
    (pipeline,) = run_check("clicks.py:clicks")["pipelines"]
    families = {*DAG_FAMILIES.names()} - {"deliver"}  # it has no sinks
    assert pipeline["dags"] == {
        dag_id("clicks", family): "@hourly" if family == "process" else None for family in families
    }
    assert list(pipeline["meaning"]) == ["input source", "what", "where", "when", "how"]
    assert pipeline["problems"] == []


def test_check_without_a_name_looks_at_all_and_names_each_broken_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert headrace("check").exit_code == 0, "what ships is right"
    assert {each["name"] for each in run_check()["pipelines"]} == {
        file.stem for file in SHIPPED_FOLDER.glob("[!_]*.py")
    }
    (folder / "one.py").write_text("import headrace as hr\n\nhr.FixedWindows(3600)\n")
    (folder / "two.py").write_text("def f(:\n")
    monkeypatch.setenv("HEADRACE_PIPELINES", str(folder))
    result = headrace("check")
    assert result.exit_code == 10
    section = result.stdout.split("WRONG: files that cannot be used")[1]
    assert f"{folder / 'one.py'}:3: PipelineError" in section
    assert f"{folder / 'two.py'}:1: SyntaxError" in section
    assert len(run_check()["broken"]) == 2
    assert headrace("check", "aircraft_sessions").exit_code == 10


def test_check_finds_spark_code_that_is_not_there(folder: Path) -> None:
    function = 'transform=hr.SparkFunction("parsing:flat", {"user": str, "at": datetime, "amount": int}, True)'
    (folder / "clicks.py").write_text(PIPELINE_FILE.replace('"amount": int})', f'"amount": int}}, {function})'))
    assert headrace("check", "clicks.py").exit_code == 10
    assert "No module named" in run_check("clicks.py")["pipelines"][0]["problems"][0]
    (folder / "parsing.py").write_text("def other(rows): return rows\n")
    assert "has no function flat" in run_check("clicks.py")["pipelines"][0]["problems"][0]
    (folder / "parsing.py").write_text("def flat(rows): return rows\n")
    assert headrace("check", "clicks.py").exit_code == 0


@pytest.mark.parametrize("reference", ["nowhere", "nowhere.py", "clicks.py:other", "empty.py", "."])
def test_check_of_nothing_is_an_error(folder: Path, reference: str) -> None:
    (folder / "clicks.py").write_text(PIPELINE_FILE)
    (folder / "empty.py").write_text("")
    result = headrace("check", reference)
    assert result.exit_code == 10
    assert result.stdout == ""
    assert "config.unknown_pipeline" in result.stderr
