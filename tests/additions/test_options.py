"""One more option of a run: a patch of its declaration and of what obeys it. Methods, commands, the process of a task
and forms have it then.
"""

import json
import os
import shutil
import subprocess
import sys
from inspect import Parameter, signature
from pathlib import Path

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.scheduling import EXECUTORS
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.option_values import checked_fields
from headrace.runs.options import COMMANDS, FORMS, declared_options, options_of_method
from scripts.handle_options import CLIENT, stale_signatures, write_signatures

ROOT = Path(__file__).resolve().parents[2]
PATCH = Path(__file__).parent / "patches" / "option.patch"
PACKAGES = ("jobs/headrace", "plugins/headrace_airflow")
PIPELINE = """
import headrace as hr

hits = hr.Pipeline("hits", hr.json("landing/hits", {"page": str}).arrival_time(), what={"hits": hr.count()},
                   where=hr.FixedWindows("1h"), executor="local")
"""
USE = """
import io, json
from contextlib import redirect_stdout
from inspect import signature
from pathlib import Path
import headrace as hr
from click.testing import CliRunner
from headrace.application.submit import main
from headrace.cli.main import app
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.runs.client.handle import PipelineHandle
from headrace_airflow.forms import option_fields, option_flags

root, hits = Path("root").absolute().as_uri(), resolve_pipeline("hits.py")
heard = []
hr.open(root, create=True)[hits].run(greeting="hello", listener=heard.append)
typed = CliRunner().invoke(app, ["run", "hits.py", "--root", root, "--greeting", "good day"])
task = ["process", "--pipeline", "hits.py", "--root", root, "--run-id", "r1", "--executor=local", "--greeting=hi"]
with redirect_stdout(io.StringIO()) as output:
    main(task)
field = option_fields("process", hits)["greeting"]
print(json.dumps({
    "method": str(signature(PipelineHandle.run).parameters["greeting"]),
    "heard": heard[0],
    "command": "good day" in typed.output,
    "process": "hi" in output.getvalue().splitlines(),
    "form": [field.value, field.description, field.schema],
    "task": option_flags("process", hits)["--greeting"],
}))
"""


def python(folder: Path, *arguments: str) -> str:
    """What a process that imports the copies in ``folder`` prints last."""
    path = [*(str(folder / Path(package).parent) for package in PACKAGES), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "AIRFLOW_HOME": str(folder / "airflow")}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.mark.slow
def test_one_more_option_touches_its_declaration_and_what_obeys_it(tmp_path: Path) -> None:
    assert PATCH.read_text().count("diff --git ") == 2
    for package in (*PACKAGES, "scripts"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(PATCH)], cwd=tmp_path, check=True)
    python(tmp_path, "-m", "scripts.handle_options", "--write")
    (tmp_path / "hits.py").write_text(PIPELINE)
    landing = tmp_path / "root/landing/hits"
    landing.mkdir(parents=True)
    (landing / "a.jsonl").write_text('{"page": "a"}\n')
    assert json.loads(python(tmp_path, "-c", USE)) == {
        "method": "greeting: str | None = None",
        "heard": "hello",
        "command": True,
        "process": True,
        "form": [None, "Say this before anything else.", {"type": ["null", "string"], "title": "Greeting"}],
        "task": "greeting",
    }


def test_methods_have_the_options_that_are_declared() -> None:
    assert list(stale_signatures()) == []
    for method in COMMANDS.keys() & vars(PipelineHandle).keys():
        parameters = signature(getattr(PipelineHandle, method)).parameters
        options = options_of_method(method)
        assert {option.name for option in options} <= parameters.keys()
        for option in options:
            assert parameters[option.name].kind is Parameter.KEYWORD_ONLY
            assert parameters[option.name].default == option.default


def test_a_signature_that_lacks_an_option_or_has_one_too_many_is_named_and_written_again(tmp_path: Path) -> None:
    shutil.copytree(ROOT / CLIENT, tmp_path / CLIENT)
    handle = tmp_path / CLIENT / "handle.py"
    declared_text = handle.read_text()
    assert "        full_sweep: bool = False,\n" in declared_text
    handle.write_text(declared_text.replace("        full_sweep: bool = False,\n", "        gone: str = '',\n"))
    (problem,) = stale_signatures(tmp_path)
    assert problem.startswith(f"{CLIENT}/handle.py:")
    write_signatures(tmp_path)
    assert handle.read_text() == declared_text


def test_every_option_that_people_may_give_says_what_it_is_for() -> None:
    for command, names in COMMANDS.items():
        assert [name for name in names if not declared_options()[name].for_door(command).help] in ([], ["output"])
    for form, names in FORMS.items():
        for option in (declared_options()[name].for_door(form) for name in names):
            assert option.title
            assert option.about or option.help


def test_none_is_as_good_as_left_out() -> None:
    left_out = {option.name: option.default for option in options_of_method("run")}
    nothing = {name: None for name, value in left_out.items() if value in (None, False, ())}
    assert checked_fields("run", left_out | nothing) == checked_fields("run", left_out)


@pytest.mark.parametrize(
    "name, value, why",
    [
        ("without", "daily", r'write a list: \["daily"\]'),
        ("max_epochs", 0, "a whole number of at least 1"),
        ("full_sweep", "yes", "True or False"),
        ("executor", "sprak", EXECUTORS.names()[0]),
        ("branch", None, "text such as 'trial'"),
    ],
)
def test_what_an_option_cannot_be_is_said_by_its_kind(name: str, value: object, why: str) -> None:
    defaults = {option.name: option.default for option in options_of_method("run")}
    with pytest.raises(PipelineError, match=rf"^run\({name}=.*{why}"):
        checked_fields("run", defaults | {name: value})
