"""Pipelines that read themselves, also by way of others: named by the first thing that can know it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.errors import PipelineError, UpstreamCycleError
from tests.lineage.test_defined_inputs import HOURLY, files, land, open_handle, published_input, run


def pipeline_reading(name: str, *reads: str, beside_files: bool = False) -> hr.Pipeline:
    inputs = [*([files(name)] if beside_files else []), *map(published_input, reads)]
    return hr.Pipeline(name, inputs[0], union=[one.named(f"of{n}") for n, one in enumerate(inputs[1:])], **HOURLY)


def test_one_that_reads_itself_is_refused_when_it_is_built(tmp_path: Path) -> None:
    for beside_files in (True, False):
        with pytest.raises(UpstreamCycleError, match="z reads z: ") as error:
            pipeline_reading("z", "z", beside_files=beside_files)
        assert isinstance(error.value, PipelineError)
        assert error.value.code == "config.upstream_cycle"
    for root in (tmp_path, tmp_path / "other"):
        root.mkdir(exist_ok=True)
        source = hr.published("z", {"k": str, "s": int}, root=root.as_uri())
        definition = hr.Pipeline("z", source, **HOURLY)
        if root == tmp_path:
            with pytest.raises(UpstreamCycleError, match="z reads z: "):
                run(tmp_path, definition)
        else:
            run(tmp_path, definition)  # one of that name under another root


def test_the_last_of_a_circle_that_runs_first_names_all_of_it(tmp_path: Path) -> None:
    land(tmp_path, "a")
    run(tmp_path, pipeline_reading("a", "c", beside_files=True))
    run(tmp_path, pipeline_reading("b", "a"))
    c = open_handle(tmp_path, pipeline_reading("c", "b"))
    with pytest.raises(UpstreamCycleError, match="c reads b reads a reads c: "):
        c.run()
    assert "c" not in hr.open(tmp_path.as_uri()), "nothing is committed"


def test_what_a_pipeline_read_before_it_was_changed_is_no_circle(tmp_path: Path) -> None:
    for name in "xy":
        land(tmp_path, name)
    x, y = (open_handle(tmp_path, pipeline_reading(name, beside_files=True)) for name in "xy")
    x.run()
    open_handle(tmp_path, pipeline_reading("y", "x", beside_files=True)).run()
    reading = open_handle(tmp_path, pipeline_reading("x", "y", beside_files=True))
    with pytest.raises(UpstreamCycleError, match="x reads y reads x: "):
        reading.backfill(promote=True)
    y.backfill(promote=True)  # it reads x no more
    reading.backfill(promote=True)
    assert hr.open(tmp_path.as_uri()).lineage().readings[0].upstream.name == "y"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_PIPELINES", str(folder))
    monkeypatch.setenv("HEADRACE_ROOT", tmp_path.as_uri())
    return folder


def headrace(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, result.output


def write(folder: Path, file: str, pipelines: Sequence[tuple[str, str]]) -> str:
    lines = [f"{name} = pipeline_reading({name!r}, {upstream!r})" for name, upstream in pipelines]
    (folder / file).write_text("\n".join(["from tests.process.test_circles import pipeline_reading", *lines, ""]))
    return str(folder / file)


@pytest.mark.parametrize("are_registered", [True, False])
def test_a_circle_of_which_nothing_was_ever_published_is_named(folder: Path, are_registered: bool) -> None:
    if are_registered:
        write(folder, "x.py", [("x", "y")])
        write(folder, "y.py", [("y", "x"), ("w", "x")])
        x, w = "x", "w"
    else:
        folder = folder.parent
        x = f"{write(folder, 'all.py', [('x', 'y'), ('y', 'x'), ('w', 'x')])}:x"
        w = x.replace(":x", ":w")
    for command in (["run", x], ["check", x]):
        code, output = headrace(*command)
        assert code == 10
        assert "x reads y reads x: " in output
    assert headrace("run", w)[0] == headrace("check", w)[0] == 0, "it only reads one of them"
    code, output = headrace("lineage")
    assert (code == 10 and "reads x" in output) is are_registered
