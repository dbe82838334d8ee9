"""What ``to_json`` gives in Python is what the command prints with ``--format json``, whatever types the rows have."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app

PIPELINE = """
from datetime import date, datetime
from decimal import Decimal
import headrace as hr
from headrace import col

source = hr.json("landing/o", {"k": bytes, "day": date, "at": datetime, "paid": Decimal}, max_files=1)
sales = hr.Pipeline(
    "sales",
    source.event_time("at", bound="1h"),
    key=["k", "day"],
    what={"last": col("at").max(), "total": col("paid").sum(), "times": col("at").collect(), "paid": col("paid").max()},
    having=col("total") > 2,
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting("1h"),
    executor="local",
)
"""
RECORD = '{"k": "AP8=", "day": "2026-05-01", "at": "2026-05-01T00:00:00.000001Z", "paid": "%s"}\n'


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.types.PipelineHandle:
    """Two epochs with rows, a late record, a dead letter, and a row that ``having`` withholds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_ROOT", tmp_path.as_uri())
    (tmp_path / "sales.py").write_text(PIPELINE)
    landing = tmp_path / "landing" / "o"
    landing.mkdir(parents=True)
    (landing / "1.json").write_text(RECORD % "2.50" + '{"k": 1}\n')
    (landing / "2.json").write_text(
        RECORD % "1.25" + '{"k": "AA==", "day": "2026-05-02", "at": "2026-05-09T00:00:00Z"}\n'
    )
    (landing / "3.json").write_text(RECORD % "1.25")
    handle = hr.open(tmp_path.as_uri(), create=True)[runpy.run_path("sales.py")["sales"]]
    handle.run(files_per_epoch=1)
    handle.tag("first", "main")
    return handle


def run_json(*words: str) -> Any:
    """What a command prints as JSON."""
    result = CliRunner().invoke(app, [*words, "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("view", ["current", "panes", "late", "rejected", "state"])
def test_rows_of_views_in_python_are_those_that_the_command_prints(sales: hr.types.PipelineHandle, view: str) -> None:
    rows = sales.read(view).to_json()
    assert rows
    assert rows == run_json("read", "sales.py", "--view", view)


def test_numbers_that_json_has_no_form_for_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_ROOT", tmp_path.as_uri())
    (tmp_path / "landing").mkdir()
    records = [{"v": "1e400", "w": 1.5}, {"v": "-1e400", "w": 2.5}]
    text = "".join(f'{{"v": {record["v"]}, "w": {record["w"]}}}\n' for record in records)
    (tmp_path / "landing" / "1.json").write_text(text)
    (tmp_path / "far.py").write_text(
        "import headrace as hr\n"
        "from headrace import col\n"
        'given = hr.json("landing", {"v": float, "w": float}).arrival_time()\n'
        'what = {"sum": col("v").sum(), "all": col("v").collect(), "most": col("v").max(), "w": col("w").sum()}\n'
        'far = hr.Pipeline("far", given, what=what, where=hr.GlobalWindows(), when=hr.on_update(), executor="local")\n'
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[runpy.run_path("far.py")["far"]]
    handle.run()

    [row] = run_json("read", "far.py", "--view", "panes")

    assert (row["sum"], row["most"], row["w"]) == ("NaN", "Infinity", 4.0)
    assert sorted(row["all"]) == ["-Infinity", "Infinity"]
    assert handle.read("panes").to_json() == [row]


def test_what_differs_in_python_is_what_the_command_prints(sales: hr.types.PipelineHandle, tmp_path: Path) -> None:
    (tmp_path / "landing" / "o" / "4.json").write_text(RECORD.replace("05-01", "05-09") % "7.00")
    sales.run()
    difference = sales.diff("first", "main").to_json()
    assert difference["output"]["first"]
    assert difference == run_json("diff", "sales.py", "first", "main")


def test_an_explanation_in_python_is_what_the_command_prints(sales: hr.types.PipelineHandle) -> None:
    rows = sales.current().first(1)[0]
    explanation = sales.explain(key={name: rows[0][name] for name in ("k", "day")}).to_json()
    assert explanation["windows"][0]["last_panes"]
    printed_one = run_json("explain", "sales.py", "--key", "AP8=", "--key", "2026-05-01")
    assert explanation == printed_one
