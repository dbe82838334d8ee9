"""Runs that find no input, on the command line: what a person mistyped is told from what has not landed yet."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from tests.airflow.subprocesses import write_pipeline


@pytest.fixture
def reference(tmp_path: Path) -> str:
    return str(write_pipeline(tmp_path, "clicks"))


def run(reference: str, root: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["run", reference, "--root", root.as_uri(), *options])


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("{}")


def test_a_prefix_without_files_is_named_with_what_lies_around_it(reference: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "landing/click/a.json", "landing/click/b/c.json", "landing/flights/a.json", "landing/notes.txt")
    result = run(reference, root)
    assert result.exit_code == 0
    text = f"input source: nothing lies under {root.as_uri()}/landing/clicks/; "
    assert f"{text}{root.as_uri()}/landing/ holds click/, flights/, notes.txt" in result.stderr


def test_a_root_without_a_landing_is_named_with_what_it_holds(reference: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, *(f"{letter}/x/y.json" for letter in "abcdefg"))
    result = run(reference, root)
    assert f"{root.as_uri()}/ holds a/, b/, c/, d/, e/, ..." in result.stderr


def test_files_that_are_no_input_are_named(reference: str, tmp_path: Path) -> None:
    names = ("_SUCCESS", ".part.json", "_temporary/a.json", "half.json.TMP", "half.json.filepart")
    put(tmp_path, *(f"landing/clicks/{name}" for name in names))
    result = run(reference, tmp_path)
    assert result.exit_code == 0
    assert "no file under" in result.stderr
    assert "_SUCCESS" in result.stderr
    endings = ".tmp, .part, .filepart, .crdownload or .inprogress"
    assert f"those that begin with _ or . or end in {endings} are left out" in result.stderr
    only_csv = str(write_pipeline(tmp_path, "other", source='suffixes=(".csv",),').rename(tmp_path / "other2.py"))
    put(tmp_path, "landing/other/a.json")
    assert "names must end in .csv" in run(only_csv, tmp_path).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("landing/clicks/day/again", "."),
        ("landing/clicks/day/up", "../.."),
        ("landing/clicks/itself", "itself"),
        ("landing/clicks/one/to", "../two"),
        ("landing/clicks/up", "../../.."),
    ],
)
def test_links_in_a_circle_are_named_and_nothing_is_read_twice(
    reference: str, tmp_path: Path, link: str, target: str
) -> None:
    root = tmp_path / "root"
    put(root, "landing/clicks/day/a.json", "landing/clicks/one/a.json", "landing/clicks/two/a.json")
    (root / "landing/clicks/two/back").symlink_to("../one")  # alone it is no circle
    plain = run(reference, root, "--executor", "local")
    assert plain.exit_code == 0, plain.output
    (root / link).symlink_to(target)
    (root / "landing/clicks/zzz.json").write_text("{}")
    refused_result = run(reference, root, "--executor", "local")
    assert refused_result.exit_code == 10, refused_result.output
    assert "(config.link_loop)" in refused_result.stderr
    assert "remove the link" in refused_result.stderr
    (root / link).unlink()
    assert run(reference, root, "--executor", "local").exit_code == 0


def test_a_pattern_is_refused_when_the_pipeline_is_built(reference: str) -> None:
    file = Path(reference)
    file.write_text(file.read_text().replace("landing/clicks", "landing/clicks/*.json"))
    refused_result = CliRunner().invoke(app, ["check", reference])
    assert refused_result.exit_code == 10, refused_result.output
    assert "that is a pattern, and a path is a prefix" in " ".join(refused_result.output.split())


def test_a_root_that_does_not_exist_is_named_and_not_made(reference: str, tmp_path: Path) -> None:
    (tmp_path / "rooot").mkdir()
    result = run(reference, tmp_path / "root")
    assert result.exit_code == 10
    assert f"the root {tmp_path.as_uri()}/root does not exist: {tmp_path} holds clicks.py, rooot/" in result.stderr
    for command in ("log", "read", "files", "plot", "replay-late"):
        found_result = CliRunner().invoke(app, [command, reference, "--root", f"{tmp_path.as_uri()}/root"])
        assert (found_result.exit_code, "does not exist" in found_result.stderr) == (10, True), found_result.output
    arguments = ["process", "--pipeline", reference, "--root", f"{tmp_path.as_uri()}/root", "--run-id", "r"]
    submitted_result = subprocess.run([sys.executable, "-m", "headrace.application.submit", *arguments], check=False)
    assert submitted_result.returncode == 10
    assert not (tmp_path / "root").exists()
    assert run(reference, tmp_path / "root", "--create").exit_code == 0
    assert (tmp_path / "root").is_dir()
    assert run(reference, tmp_path / "root").exit_code == 0, "a root that is there is used"


def test_sources_outside_the_root(reference: str, tmp_path: Path) -> None:
    file = Path(reference)
    file.write_text(file.read_text().replace("landing/clicks", f"{tmp_path.as_uri()}/elsewhere/clicks"))
    (tmp_path / "root").mkdir()
    result = run(reference, tmp_path / "root")
    assert result.exit_code == 0
    assert f"{tmp_path.as_uri()}/elsewhere/clicks/ does not exist; {tmp_path} holds clicks.py, root/" in result.stderr
