"""The README runs as it stands, on real flights."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import app
from headrace.pipeline.loading.registry import resolve
from tests.docs import pages
from tests.docs.running import Reader

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_pipeline_is_one_of_about_twenty_lines(tmp_path: Path) -> None:
    file = tmp_path / "delays.py"
    file.write_text(blocks()[0])
    assert resolve(str(file)).name == "delays"
    assert len(blocks()[0].split("flights = ")[1].splitlines()) <= 20


@pytest.mark.slow
def test_all_of_it_runs_on_real_flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    reader.start()
    (tmp_path / "scripts").symlink_to(README.parent / "scripts")
    (tmp_path / "delays.py").write_text(blocks()[0])
    for block in pages.blocks(README):
        reader.follow(block)
    printed = CliRunner().invoke(app, ["read", "delays.py", "--format", "json"]).stdout
    rows = json.loads(printed)
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
