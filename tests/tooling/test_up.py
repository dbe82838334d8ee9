"""``make up``: which root it serves, and what a scheduler that was killed had left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts import up
from scripts.airflow_api import AirflowApi, NotReadyError
from scripts.airflow_env import LocalAirflow, Running, end_orphans, running

_MARK = "HEADRACE_LOCAL_AIRFLOW"


@contextmanager
def _process(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its input, as if Airflow had started it."""
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(wait, env={**os.environ, _MARK: mark}, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class NeverStarted(LocalAirflow):
    """One that says that it runs."""

    def start(self) -> None:
        pass


@pytest.mark.parametrize("root", ["file:///exported", None, ""])
def test_it_serves_the_root_that_the_shell_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], root: str | None
) -> None:
    own = tmp_path / "own"
    monkeypatch.delenv("HEADRACE_ROOT", raising=False)
    if root is not None:
        monkeypatch.setenv("HEADRACE_ROOT", root)
    assert up.main(["--home", str(tmp_path / "home")], NeverStarted, own) == 0
    assert f"root   {root or own.as_uri()}\n" in capsys.readouterr().out
    assert own.exists() == (not root)


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_a_killed_scheduler_left_is_ended_and_nothing_else(tmp_path: Path, *, is_killed: bool) -> None:
    mark = f"test-{os.getpid()}-{is_killed}"
    with ExitStack() as held_exit_stack:
        scheduler, task = (held_exit_stack.enter_context(_process(mark)) for _ in range(2))
        state = Running("http://127.0.0.1:1", "file:///root", mark, scheduler.pid)
        (tmp_path / "up.json").write_text(json.dumps(vars(state)))
        if is_killed:
            scheduler.kill()
            scheduler.wait()
        assert end_orphans(tmp_path) == is_killed
        assert (running(tmp_path) is None) == is_killed
        if is_killed:
            assert task.wait() != 0


def test_nothing_is_ended_where_nothing_was_started(tmp_path: Path) -> None:
    assert not end_orphans(tmp_path)


@pytest.mark.parametrize("runs_again", [False, True])
def test_tasks_that_wait_for_a_scheduler_find_the_api_server(tmp_path: Path, *, runs_again: bool) -> None:
    """Where Airflow has run before, tasks may wait: they would use up their retries while the API server starts."""
    did: list[str] = []

    class Api(AirflowApi):
        def health(self) -> dict[str, Any]:
            did.append("asked")
            if did.count("asked") == 1:
                raise NotReadyError("not yet")
            return {}

        def check_health(self, *_: object) -> None:
            pass

    class Airflow(LocalAirflow):
        def api_as(self, user: str) -> AirflowApi:
            return Api(self.url, user, self.passwords[user])

        def _make_database(self) -> None:
            pass

        def _spawn(self, component: str, _: object) -> None:
            did.append(component)

    if runs_again:
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "scheduler.log").touch()
    airflow = Airflow(tmp_path, "file:///root")
    airflow.start()
    airflow.api.close()
    waits = ["asked", "asked"] if runs_again else []
    assert did == ["api-server", *waits, "scheduler", "dag-processor"]
