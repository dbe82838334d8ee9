"""The README runs as it stands, on real flights."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from tests.docs import pages
from tests.docs.running import Reader

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def delays() -> str:
    """The pipeline over real flights; the first one of the README is that of the front page."""
    (block,) = (block for block in blocks() if '"delays",' in block)
    return block


def test_the_readme_begins_as_the_front_page_does() -> None:
    page = (README.parent / "docs" / "index.md").read_text()
    assert blocks()[0] == re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    tables = [re.findall(r"^\|.*\|$", text, re.MULTILINE)[:9] for text in (README.read_text(), page)]
    assert tables[0] == tables[1]
    assert "SQLMesh" in tables[0][0]


def test_the_pipeline_is_one_of_about_twenty_lines(tmp_path: Path) -> None:
    file = tmp_path / "delays.py"
    file.write_text(delays())
    assert [checked_pipeline.name for checked_pipeline in hr.check(file).pipelines] == ["delays"]
    assert len(delays().split("flights = ")[1].splitlines()) <= 20


@pytest.mark.slow
def test_all_of_it_runs_on_real_flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    reader.start()
    (tmp_path / "scripts").symlink_to(README.parent / "scripts")
    (tmp_path / "delays.py").write_text(delays())
    for block in pages.blocks(README):
        reader.follow(block)
    printed_stdout = CliRunner().invoke(app, ["read", "delays.py", "--format", "json"]).stdout
    rows = json.loads(printed_stdout)
    assert {row["origin"] for row in rows} == {"EWR", "JFK", "LGA"}
    busy = sorted(row["flights"] for row in rows if row["flights"] > 30)
    assert busy
    assert sorted(reader.names["frame"]["flights"]) == busy


def test_two_commands_and_once_how_headrace_is_found() -> None:
    text = README.read_text()
    two = text.split("## Two commands")[1].split("```")[1]
    assert re.findall(r"\$ (make \w+)", two) == ["make demo", "make test"]
    assert text.count(".venv/bin/activate") == 1
    assert text.index(".venv/bin/activate") < text.index("$ headrace ")
