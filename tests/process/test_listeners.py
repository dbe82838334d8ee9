"""Who watches a run, or reads what it says, ends nothing by failing; and the run holds no manifest of epochs that are
long committed.
"""

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from headrace.application import submit
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import LineListener
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.manifest import Manifest
from tests.process.clicks import CLICKS, land


class Failing:
    """A listener of which one method fails, from the second time on."""

    def __init__(self, method: str) -> None:
        self.method, self.methods_told = method, list[str]()

    def _tell(self, method: str, what: object) -> None:
        self.methods_told.append(method)
        if method == self.method and self.methods_told.count(method) > (method == "committed"):
            raise BrokenPipeError(32, f"nobody reads {what!r}"[:30])

    def noted(self, what: str) -> None:
        self._tell("noted", what)

    def planned(self, files: int) -> None:
        self._tell("planned", files)

    def committed(self, manifest: Manifest) -> None:
        self._tell("committed", manifest.epoch)

    def warned(self, warning: str) -> None:
        self._tell("warned", warning)


@pytest.mark.parametrize("method", ["noted", "planned", "committed"])
def test_a_listener_that_fails_ends_no_run_and_is_told_nothing_more(method: str, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)
    listener = Failing(method)
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("first", executor="auto"), listener=listener)
    assert (result.status, result.epochs) == ("succeeded", (0, 1, 2))
    assert listener.methods_told[-1] == method
    (warning,) = [each for each in result.warnings if "the listener failed" in each]
    assert warning.startswith("the listener failed (BrokenPipeError: [Errno 32] nobody")


def test_a_listener_that_warnings_end_is_no_other(tmp_path: Path) -> None:
    listener = Failing("warned")
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("none", create=True, executor="local"), listener=listener)
    assert listener.methods_told[-1] == "warned"
    assert [("the listener failed" in each) for each in result.warnings] == [False, True]


def test_an_interrupt_in_a_listener_is_an_interrupt(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt):
        process(CLICKS, tmp_path.as_uri(), RunOptions("first", executor="auto"), listener=LineListener(interrupt))


PIPELINE = """
from tests.process.clicks import CLICKS
"""


def unread(command: list[str], closed_stream: str) -> int:
    """The exit code of a program whose output nobody reads: the reader is gone before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    streams = {
        name: writing if closed_stream in {name, "both"} else subprocess.DEVNULL for name in ("stdout", "stderr")
    }
    variables = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    ended_completed_process = subprocess.run([sys.executable, *command], check=False, env=variables, **streams)
    os.close(writing)
    return ended_completed_process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("closed_stream", ["stdout", "stderr", "both"])
def test_a_run_whose_output_nobody_reads_any_more_goes_on_and_succeeds(closed_stream: str, tmp_path: Path) -> None:
    """As in ``headrace run ... 2>&1 | head -1``."""
    land(tmp_path / "root", 0, 3)
    file = tmp_path / "own.py"
    file.write_text(PIPELINE)
    where = [str(file), "--root", (tmp_path / "root").as_uri(), "--executor", "local"]
    assert unread(["-c", "from headrace.cli.main import main; main()", "run", *where], closed_stream) == 0
    (result,) = (tmp_path / "root" / "clicks" / "runs").iterdir()
    stored_result = json.loads(result.read_text())
    assert (stored_result["status"], stored_result["epochs"]) == ("succeeded", [0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "exit_code"), [(False, 0), (True, 10)])
def test_a_task_whose_log_is_gone_leaves_its_result_and_its_exit_code(
    fails: bool, exit_code: int, tmp_path: Path
) -> None:
    land(tmp_path / "root", 0, 2)
    file = tmp_path / "own.py"
    file.write_text(PIPELINE)
    where = ["--pipeline", str(file), "--root", (tmp_path / "root").as_uri(), "--run-id", "r", "--executor", "local"]
    options = ["--mode", "replay", "--from-branch", "nothing"] if fails else []
    assert unread([submit.__file__, "process", *where, *options], "stdout") == exit_code
    stored_result = json.loads((tmp_path / "root" / "clicks" / "runs" / "r.json").read_text())
    assert stored_result["status"] == ("failed" if fails else "succeeded")


class Counting(LineListener):
    """How many of the manifests that it was told of are in memory, at most."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)
        self.manifests_told = list[weakref.ref[Manifest]]()
        self.most = 0

    def committed(self, manifest: Manifest) -> None:
        self.manifests_told.append(weakref.ref(manifest))
        if manifest.epoch % 5 == 4:
            gc.collect()  # what is garbage is not held
            self.most = max(self.most, sum(each() is not None for each in self.manifests_told))


@pytest.mark.slow
@set_sizes(cached_objects=4)
def test_a_run_holds_few_manifests_however_many_epochs_it_has(tmp_path: Path) -> None:
    land(tmp_path, 0, 40)
    counting = Counting()
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("long", publish=True, executor="local"), listener=counting)
    assert len(result.epochs) == 40
    assert result.counts["records"] == 40 * 80
    assert 0 < counting.most <= 12


def test_what_epochs_say_together_is_in_the_result(tmp_path: Path) -> None:
    """Counts and warnings of all epochs, though their manifests are gone: two have records ahead of the clock."""
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    for number in range(3):
        year = 2026 if number == 1 else 2999
        record = {"user": "ann", "at": f"{year}-01-01T00:00:00Z", "price": 1}
        (folder / f"{number}.json").write_text(json.dumps(record) + "\n")
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("ahead", executor="local"))
    (warning,) = [each for each in result.warnings if "ahead of the clock" in each]
    assert "2 records, the first of file landing/clicks/0.json" in warning
    assert result.counts["records"] == 3
