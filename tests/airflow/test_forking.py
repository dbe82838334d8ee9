"""Code of users for pages: each question in a process of its own, which is held to limits and knows no secrets."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace.pipeline.loading.registry import PipelineFolders, in_file
from headrace.runs.reporting.results import redact_secrets
from headrace_airflow.pages.explanation import (
    ForkServer,
    NoAnswerError,
    UnexplainedError,
    ask_for_explanation,
    variables_of_users,
)
from headrace_airflow.processes import can_confine
from headrace_airflow.roots import Root
from headrace_snapshots.store import open_store
from tests.distributions import write_distribution

_CLICKS = """
import json, os
from datetime import datetime
from pathlib import Path
import headrace as hr

def read(file):
    try:
        return Path(file).read_bytes().decode(errors="replace")
    except OSError as error:
        return type(error).__name__

Path(os.environ["SEEN"]).write_text(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "environment": dict(os.environ),
    "begun_with": read("/proc/self/environ"), "status": read("/proc/self/status"),
}))
print("said on the way")

clicks = hr.Pipeline(
    "clicks",
    hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="0s"),
    key="user",
    what={"clicks": hr.count()},
    where=hr.FixedWindows("1m"),
    when=hr.on_update(),
    executor="local",
)
"""
_HANGS = """
import os, signal, subprocess
from pathlib import Path
own = subprocess.Popen(["sleep", "1000"])
Path(os.environ["SEEN"]).write_text(f"{os.getpid()} {os.getppid()} {own.pid}")
while True:
    try:
        while True:
            signal.pause()
    except BaseException:
        pass
"""
_GROWS = "taken = [bytes(1_000_000) + b'1' for _ in range(2_000)]\n"
_DIES = "import os\nprint('these are its last words', flush=True)\nos._exit(3)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forking")
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / "clicks.py").write_text(_CLICKS)
    for name, text in (("hangs", _HANGS), ("grows", _GROWS), ("dies", _DIES)):
        (folder / name).mkdir()
        (folder / name / "code.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN", str(folder / "by_the_test"))
        (registered_pipeline,) = in_file(pipelines / "clicks.py")
    root = (folder / "root").as_uri()
    for minute in range(3):
        line = json.dumps({"user": "ada", "at": f"2026-11-20T00:0{minute}:00Z"})
        open_store(root).write(f"landing/clicks/{minute}.jsonl", f"{line}\n".encode())
    hr.open(root, create=True)[registered_pipeline.pipeline].run(files_per_epoch=1)
    return folder


@pytest.fixture(scope="module")
def forks() -> ForkServer:
    environment = {**os.environ, "AT_THE_START": "yes"}
    return ForkServer("headrace_airflow.pages.explanation", environment, seconds=15.0, memory=2**29)


Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def explain(folder: Path, forks: ForkServer) -> Explain:
    def ask(
        files: str = "pipelines", *, pipeline: str = "clicks", window: str = "", **variables: str
    ) -> dict[str, Any]:
        kept_variables = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment = {**kept_variables, "SEEN": str(folder / "seen"), "HEADRACE_IMPORT_LIMIT": "0s", **variables}
        root = Root("", (folder / "root").as_uri(), PipelineFolders((folder / files,)))
        opened_root: Any = SimpleNamespace(root=root, environment=environment)
        return ask_for_explanation(forks, opened_root, (pipeline, ""), "ada", window)

    return ask


def _read_request(folder: Path) -> dict[str, Any]:
    seen_fields: dict[str, Any] = json.loads((folder / "seen").read_text())
    return seen_fields


def test_each_question_has_a_process_of_its_own_out_of_one_that_stays(folder: Path, explain: Explain) -> None:
    first, seen_request = explain(), _read_request(folder)
    second, seen_again = explain(), _read_request(folder)
    assert first == second
    assert first["lines"][0].startswith("clicks at snapshot")
    assert seen_request["parent"] == seen_again["parent"] != os.getpid()
    assert seen_request["pid"] != seen_again["pid"]


def test_code_of_users_has_the_keys_of_its_root_and_nothing_of_the_server(folder: Path, explain: Explain) -> None:
    explain(AWS_ACCESS_KEY_ID="of-the-root", AIRFLOW__CORE__FERNET_KEY="secret")
    seen_request = _read_request(folder)
    assert seen_request["environment"]["AWS_ACCESS_KEY_ID"] == "of-the-root"
    assert not [name for name in seen_request["environment"] if name.startswith("AIRFLOW")]
    assert "AT_THE_START" not in seen_request["environment"]
    assert "of-the-root" not in seen_request["begun_with"]
    assert not can_confine() or "NoNewPrivs:\t1" in seen_request["status"]  # confined, as test_isolation tests it


def test_a_process_that_hangs_is_ended_with_all_that_it_has_started(folder: Path, explain: Explain) -> None:
    with pytest.raises(NoAnswerError, match="was ended after 15 s"):
        explain("hangs")
    own, _, process_starts = map(int, (folder / "seen").read_text().split())
    _wait_until(lambda: not (_runs(own) or _runs(process_starts)))
    assert explain()["lines"]


def test_a_process_that_takes_too_much_memory_is_ended(explain: Explain) -> None:
    with pytest.raises(NoAnswerError, match="was ended when it took"):
        explain("grows")


def test_the_last_words_of_a_process_that_ends_by_itself_are_told(explain: Explain) -> None:
    with pytest.raises(NoAnswerError, match="ended with exit code 3: these are its last words"):
        explain("dies")


def test_what_is_wrong_with_a_question_is_said(explain: Explain) -> None:
    with pytest.raises(UnexplainedError, match="there is no pipeline 'absent'"):
        explain(pipeline="absent")
    with pytest.raises(UnexplainedError, match="is not a time"):
        explain(window="yesterday")


def test_a_server_that_was_killed_is_started_again(folder: Path, explain: Explain) -> None:
    explain()
    killed_process = _read_request(folder)["parent"]
    os.kill(killed_process, signal.SIGKILL)
    assert explain()["lines"]
    assert _read_request(folder)["parent"] != killed_process


_ASKS = """
import sys
from tests.airflow.test_forking import asks
asks(sys.argv[1])
"""


def asks(folder: str) -> None:
    """Ask, in a process of its own, what is never answered."""
    question = {
        "uri": "memory://none",
        "folders": [f"{folder}/hangs"],
        "environment": {**os.environ, "HEADRACE_IMPORT_LIMIT": "0s", "SEEN": f"{folder}/left"},
    }
    forks = ForkServer("headrace_airflow.pages.explanation", os.environ, seconds=600.0, memory=2**30)
    forks.ask({**question, "pipeline": "clicks", "key": "", "window": ""})


def test_nothing_outlives_the_process_that_asked(folder: Path) -> None:
    asking = subprocess.Popen([sys.executable, "-c", _ASKS, str(folder)])
    left = folder / "left"
    _wait_until(lambda: left.exists() and len(left.read_text().split()) == 3)
    asking.kill()
    asking.wait()
    own, server, process_starts = map(int, left.read_text().split())
    _wait_until(lambda: not (_runs(own) or _runs(server) or _runs(process_starts)))


_IMPORTS = """
import sys
from importlib import import_module
from headrace_airflow.pages import explanation
for name in explanation.PRELOADED_MODULES:
    import_module(name)
known = {*sys.modules}
explanation.answer(sys.stdin.readline())
print([name for name in sys.modules if name not in known and not name.startswith("_headrace_")])
"""


def test_a_fork_imports_nothing_but_the_pipeline(folder: Path) -> None:
    root = {"uri": (folder / "root").as_uri(), "folders": [str(folder / "pipelines")]}
    environment = {**os.environ, "SEEN": str(folder / "seen")}
    question = json.dumps(
        {**root, "environment": environment, "pipeline": "clicks", "output": "", "key": "ada", "window": ""}
    )
    completed_process = subprocess.run(
        [sys.executable, "-c", _IMPORTS], input=question, capture_output=True, text=True, check=True
    )
    assert completed_process.stdout.splitlines()[-1] == "[]"


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_says_how_a_store_is_reached_is_shown_in_no_text_and_given_to_no_code_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store of another package, too."""
    outside_path = Path(__file__).parents[1] / "additions" / "outside"
    write_distribution((outside_path / "pyproject.toml").read_text(), tmp_path / "site")
    for folder in (outside_path, tmp_path / "site"):
        monkeypatch.syspath_prepend(str(folder))
    open_store(f"memdir://{tmp_path}/store")
    monkeypatch.setenv("MEMDIR_KEY", "planted-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    assert redact_secrets("no planted-secret, no another-secret") == "no <MEMDIR_KEY>, no <AWS_SECRET_ACCESS_KEY>"
    given_variables = {
        "MEMDIR_KEY": "k",
        "AWS_REGION": "r",
        "HEADRACE_S3_ENDPOINT": "e",
        "AIRFLOW_HOME": "h",
        "LANG": "C",
    }
    assert variables_of_users(given_variables) == {"LANG": "C"}
