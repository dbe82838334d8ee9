"""Each command has a method in Python, which gives as a value what the command prints; and names are enough wherever no
definition is needed. All over one real root, of runs of the executor local.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import headrace as hr
from headrace.cli.commands import pipelines
from headrace.cli.main import app
from headrace.cli.output import Format
from headrace.describe import check
from headrace.read.deployment import Deployment
from headrace.read.shown_values import as_json
from headrace.runs.client.handle import PipelineHandle
from headrace.testing import suite
from tests.cli.deployments import PIPELINE_FILE

DEFINITION = {"run", "deliver", "backfill", "recover", "replay-late", "replay-rejected", "explain", "plan"}
"""Commands that need the definition."""

TEST_FILE = """
pipeline: ../clicks.py
tests:
  - name: one
    given: [{rows: [{user: ann, at: "2026-01-01T09:00:00Z", amount: 1}]}, {end: true}]
    expect: {current: [{user: ann, clicks: 1}]}
"""


@dataclass(frozen=True)
class Case:
    """A command line, what is called ``after`` it where, and the command lines ``before`` it. ``again``: the same in
    Python, for what changes nothing.
    """

    words: Sequence[str]
    owner: Any = PipelineHandle
    method: str = ""
    before: Sequence[Sequence[str]] = ()
    again: Callable[[PipelineHandle], Any] | None = None


LOCAL = ("--executor", "local")
CASES: dict[str, list[Case]] = {
    "run": [
        Case([*LOCAL]),
        Case([*LOCAL, "--dry-run"], again=lambda clicks: clicks.run(executor="local", dry_run=True)),
        Case([*LOCAL, "--mode", "replay", "--branch", "again"]),
        Case([*LOCAL, "--branch", "trial", "--max-epochs", "1"], before=[["fork", "first", "trial"]]),
    ],
    "backfill": [
        Case(
            [*LOCAL, "--branch", "all", "--dry-run", "--promote"],
            again=lambda clicks: clicks.backfill(executor="local", branch="all", promote=True, dry_run=True),
        ),
        Case([*LOCAL]),
        Case([*LOCAL, "--from", "2026-01-01", "--to", "2026-01-02", "--promote"]),
    ],
    "recover": [
        Case(["first", *LOCAL]),
        Case(
            ["first", *LOCAL, "--dry-run"],
            again=lambda clicks: clicks.recover("first", executor="local", dry_run=True),
        ),
    ],
    "replay-late": [Case(["--at", "main"], method="replay_late")],
    "replay-rejected": [Case(["--at", "main"], method="replay_rejected")],
    "log": [
        Case(["--limit", "3"], again=lambda clicks: clicks.log(limit=3)),
        Case(["--graph"], method="graph", again=lambda clicks: clicks.graph()),
    ],
    "show": [Case(["main"], again=lambda clicks: clicks.show("main"))],
    "release": [Case(["main", "--message", "known"])],
    "publish": [Case([], before=[["run", *LOCAL, "--no-publish"], ["release", "main", "--message", "known"]])],
    "tag": [Case(["second"])],
    "drop": [Case(["first"])],
    "diff": [Case(["first", "main"], again=lambda clicks: clicks.diff("first", "main"))],
    "fork": [Case(["first", "trial"])],
    "rollback": [
        Case(["--to", "first"]),
        Case(["--to", "first", "--dry-run"], again=lambda clicks: clicks.rollback(to="first", dry_run=True)),
    ],
    "promote": [
        Case(["trial"], before=[["backfill", *LOCAL, "--branch", "trial"]]),
        Case(["trial", "--dry-run"], before=[["backfill", *LOCAL, "--branch", "trial"]]),
        Case(["trial", "--patch", "--dry-run"], before=[["backfill", *LOCAL, "--branch", "trial"]]),
    ],
    "explain": [Case(["--key", "ann"], again=lambda clicks: clicks.explain("ann"))],
    "plan": [Case([], again=lambda clicks: clicks.plan())],
    "deliver": [Case([]), Case(["--dry-run"], again=lambda clicks: clicks.deliver(dry_run=True))],
    "expire": [Case(["--keep-last", "2"]), Case(["--keep-last", "2", "--dry-run"])],
    "fsck": [Case(["--deep"], again=lambda clicks: clicks.fsck(deep=True))],
    "read": [
        Case(["--view", view, "--at", "main"], again=lambda clicks, view=view: clicks.read(view, at="main"))
        for view in ("current", "panes", "late", "rejected", "state")
    ],
    "files": [
        Case(["--view", "panes"], method="read", again=lambda clicks: clicks.files("panes")),
    ],
    "plot": [Case(["--epochs", "2"], again=lambda clicks: clicks.plot(epochs=2))],
    "pipelines": [Case([], owner=Deployment)],
    "lineage": [
        Case([], owner=Deployment),
        Case(["--of", "clicks", "--at", "main"], owner=Deployment, method="dependents"),
    ],
    "check": [Case([], owner=check)],
    "new": [Case(["shop"], owner=pipelines, method="write_example")],
    "test": [Case(["tests/clicks.yaml"], owner=suite, method="run_suite")],
}
EVERY = {" ".join([name, *case.words]): (name, case) for name, cases in CASES.items() for case in cases}
BY_NAME = {
    words: (name, case)
    for words, (name, case) in EVERY.items()
    if name not in DEFINITION and case.owner is PipelineHandle and "state" not in case.words
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs, each with a click that is late and a line that is none. The first is tagged, the last is not
    published, and one file more has landed.
    """
    folder = tmp_path_factory.mktemp("methods")
    (folder / "clicks.py").write_text(PIPELINE_FILE)
    (folder / "tests").mkdir()
    (folder / "tests" / "clicks.yaml").write_text(TEST_FILE)
    landing = folder / "root" / "landing" / "clicks"
    landing.mkdir(parents=True)
    for number in range(4):
        late = {"user": "ann", "at": "2025-12-20T00:00:00Z", "amount": number}
        row = {"user": "ann", "at": f"2026-01-01T{number:02}:00:00Z", "amount": number}
        (landing / f"{number:03}.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(late)}\nnothing\n")
        if number < 3:
            publish = "--no-publish" if number == 2 else "--publish"
            assert headrace(folder, "run", "clicks.py", publish, *LOCAL).exit_code == 0
        if number == 0:
            assert headrace(folder, "tag", "clicks.py", "first").exit_code == 0
    return folder


@pytest.fixture
def folder(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all that for a test of its own, which is the working folder."""
    path = tmp_path / "own"
    shutil.copytree(ran, path)
    monkeypatch.chdir(path)
    monkeypatch.setenv("HEADRACE_PIPELINES", str(path))
    return path


def headrace(folder: Path, command: str, *words: str) -> Result:
    takes = {param.name for param in app.commands[command].params}
    root = ["--root", (folder / "root").as_uri()] if "root" in takes else []
    with chdir(folder):
        return CliRunner().invoke(app, [command, *words, *root], catch_exceptions=False)


def value(result: Any) -> Any:
    """What a method gave, as JSON has it."""
    if hasattr(result, "to_json"):
        result = result.to_json()
    return result


def in_json(result: Any) -> Any:
    """``result`` as it comes back from where JSON is printed."""
    return json.loads(json.dumps(value(result), default=as_json))


def line(name: str, words: Sequence[str], pipeline: str) -> list[str]:
    """The command line, with the pipeline where the command takes it."""
    (first, *_) = [param.name for param in app.commands[name].params if isinstance(param, click.Argument)] or [None]
    if first == "snapshot":
        return [name, *words, "--pipeline", pipeline]
    return [name, *([pipeline] if first == "pipeline" else []), *words]


def test_every_command_has_a_method() -> None:
    printing = {name for name, command in app.commands.items() if any(p.name == "output" for p in command.params)}
    assert printing == {*CASES}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), EVERY.values(), ids=EVERY)
def test_a_method_gives_what_the_command_prints(
    name: str, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for earlier_command, *words in case.before:
        result = headrace(folder, *line(earlier_command, words, "clicks"))
        assert result.exit_code == 0, result.output
    method, results = case.method or name, list[Any]()
    original = getattr(case.owner, method)

    def spy_on_call(*args: Any, **kwargs: Any) -> Any:
        results.append(original(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(case.owner, method, spy_on_call)
    printed_result = headrace(folder, *line(name, case.words, "clicks"), "--format", Format.JSON)
    assert printed_result.exit_code == 0, printed_result.output
    assert results, f"headrace {name} does not call {method}"
    document = json.loads(printed_result.stdout)
    if name != "files":
        assert in_json(results[-1]) == document
    if case.again is not None:
        assert in_json(case.again(hr.open((folder / "root").as_uri())["clicks"])) == document


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), BY_NAME.values(), ids=BY_NAME)
def test_commands_that_need_no_definition_take_a_name_on_a_root_alone(
    name: str, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for earlier_command, *words in case.before:
        assert headrace(folder, *line(earlier_command, words, "clicks")).exit_code == 0
    monkeypatch.delenv("HEADRACE_PIPELINES")
    (folder / "clicks.py").unlink()
    result = headrace(folder, *line(name, case.words, "clicks"))
    assert result.exit_code == 0, result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEFINITION))
def test_commands_that_need_the_definition_say_so(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_PIPELINES")
    result = headrace(folder, *line(name, CASES[name][0].words, "clicks"))
    assert result.exit_code == 10, result.output
    assert "HEADRACE_PIPELINES" in result.stderr
