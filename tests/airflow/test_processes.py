"""A process of a task's own: what it says, what it may take, and its end, with real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from headrace_airflow.processes import MemoryLimitError, OwnProcess, ProcessEnd, memory_of
from tests.airflow.subprocesses import REPOSITORY, write_pipeline

PLENTY = 2**40
MB = 2**20

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, flush=True)
child.wait()
"""
"""A process that starts another one, tells both pids and waits."""

HOG = """
import sys
print("before", flush=True)
held = bytearray(200 * 2**20)
held[::4096] = b"x" * len(held[::4096])
sys.stdin.read()
"""
"""A process that takes 200 MB and waits."""


def run(script: str, memory: int = PLENTY) -> tuple[ProcessEnd, list[str]]:
    reported_lines: list[str] = []
    return OwnProcess(memory).run([sys.executable, "-c", script], reported_lines.append), reported_lines


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until_gone(pid: int) -> None:
    Retrying(stop=stop_after_delay(30), wait=wait_fixed(0.05), retry=retry_if_result(lambda yes: not yes))(is_gone, pid)


class Family:
    """FAMILY under an OwnProcess: what it told, and who they are."""

    def __init__(self) -> None:
        self.own = OwnProcess(PLENTY)
        self.reported_lines: list[str] = []
        self.has_started = threading.Event()

    def tell(self, line: str) -> None:
        self.reported_lines.append(line)
        self.has_started.set()

    def run(self) -> ProcessEnd:
        return self.own.run([sys.executable, "-c", FAMILY], self.tell)

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in self.reported_lines[0].split()]


@pytest.fixture
def family() -> Iterator[Family]:
    own_family = Family()
    yield own_family
    own_family.own.stop()


def test_lines_of_both_outputs_are_told_and_the_exit_code_counts() -> None:
    end, reported_lines = run(
        "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr); sys.exit(10)"
    )
    assert reported_lines == ["one", "two"]
    assert end == ProcessEnd(well=False, exit_code=10, last_line="two")
    assert run("print('fine')")[0] == ProcessEnd(well=True, exit_code=0, last_line="fine")


def test_bytes_that_are_no_text_do_not_stop_a_run() -> None:
    end, reported_lines = run("import os; os.write(1, bytes([0xff, 0x0a]))")
    assert (end.well, reported_lines) == (True, ["\\xff"])


def test_who_takes_too_much_memory_is_ended_and_told_what_to_do() -> None:
    with pytest.raises(MemoryLimitError, match=r"HEADRACE_LOCAL_MEMORY allows 100 MB: raise it, or let an epoch"):
        run(HOG, 100 * MB)


@pytest.mark.slow
def test_memory_counts_that_of_children_and_not_what_is_reserved_alone() -> None:
    reserves = "import mmap; held = mmap.mmap(-1, 2**33); print('reserved')"
    assert run(reserves, 100 * MB)[0].well
    hogs = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOG!r}])"
    with pytest.raises(MemoryLimitError):
        run(hogs, 100 * MB)


def test_stopping_ends_the_whole_group_and_waits(family: Family) -> None:
    ends: list[ProcessEnd] = []
    runner = threading.Thread(target=lambda: ends.append(family.run()))
    runner.start()
    assert family.has_started.wait(60)
    assert memory_of(family.pids[0]) > MB
    family.own.stop()
    assert [is_gone(pid) for pid in family.pids] == [True, True]
    runner.join(60)
    assert ends == [ProcessEnd(well=False, exit_code=-signal.SIGKILL, last_line=family.reported_lines[-1])]


def test_a_signals_handler_stops_it_while_it_is_waited_for(family: Family) -> None:
    handler_before = signal.signal(signal.SIGUSR1, lambda *_: family.own.stop())
    try:
        threading.Thread(target=lambda: family.has_started.wait(60) and os.kill(os.getpid(), signal.SIGUSR1)).start()
        ended_result = family.run()
    finally:
        signal.signal(signal.SIGUSR1, handler_before)
    assert ended_result.exit_code == -signal.SIGKILL
    assert [is_gone(pid) for pid in family.pids] == [True, True]


def test_an_exception_that_comes_while_it_runs_ends_it(family: Family) -> None:
    class TimeIsUpError(BaseException):
        pass

    def tell(line: str) -> None:
        family.tell(line)
        raise TimeIsUpError

    with pytest.raises(TimeIsUpError):
        family.own.run([sys.executable, "-c", FAMILY], tell)
    assert [is_gone(pid) for pid in family.pids] == [True, True]


def test_what_was_stopped_before_it_started_does_not_run(family: Family) -> None:
    family.own.stop()
    assert family.run().exit_code == -signal.SIGKILL


def test_children_that_outlive_their_parent_are_ended_with_it() -> None:
    leaves = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); print(child.pid)"
    )
    end, reported_lines = run(leaves)
    assert end.well
    assert is_gone(int(reported_lines[0]))


@pytest.mark.slow
def test_children_that_keep_the_output_open_do_not_hold_a_run_up() -> None:
    leaves = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
        "print(child.pid, end='')"
    )
    end, reported_lines = run(leaves)
    assert end.well
    assert is_gone(int(reported_lines[0]))


@pytest.mark.slow
def test_long_output_and_output_that_is_closed_early_are_told_whole() -> None:
    end, reported_lines = run("print('x' * 10**6); print('y\\n' * 10**5, end='')")
    assert (end.well, reported_lines[0]) == (True, "x" * 10**6)
    assert reported_lines[1:] == ["y"] * 10**5
    end, reported_lines = run(
        "import os, sys, select; print('last', flush=True); os.close(1); os.close(2); select.select([], [], [], 0.5)"
    )
    assert (end.well, reported_lines) == (True, ["last"])


def test_no_airflow_is_imported_for_it() -> None:
    program = "import sys, headrace_airflow.processes; print('airflow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


@pytest.mark.slow
def test_a_run_ends_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, "clicks")
    file.write_text(f"{file.read_text()}\nimport os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n")
    submit = [
        sys.executable,
        str(REPOSITORY / "jobs/headrace/application/submit.py"),
        "process",
        "--pipeline",
        str(file),
    ]
    submit += ["--root", tmp_path.as_uri(), "--run-id", "r1", "--executor=local", "--end-with-input"]
    task = f"""
from headrace_airflow.processes import OwnProcess
OwnProcess(2**40).run({submit!r}, lambda line: print(line, flush=True))
"""
    with subprocess.Popen([sys.executable, "-c", task], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = next(int(line) for line in starter.stdout if line.strip().isdigit())
        assert not is_gone(pid)
        starter.kill()
        until_gone(pid)


SUPERVISOR = """
import subprocess, sys
task = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
print(task.pid, flush=True)
task.wait()
"""
TASK = """
import sys
from headrace_airflow.processes import OwnProcess
try:
    OwnProcess(2**40).run([sys.executable, "-c", sys.argv[1]], lambda line: print(line, flush=True))
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_a_run_ends_when_whoever_supervises_its_task_is_killed() -> None:
    command = [sys.executable, "-c", SUPERVISOR, TASK, FAMILY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        task = int(supervisor.stdout.readline())
        pids = [task, *map(int, supervisor.stdout.readline().split())]
        assert not any(map(is_gone, pids))
        supervisor.kill()
        for pid in pids:
            until_gone(pid)
        assert supervisor.stdout.read() == "OrphanedError\n"


WAITING_TASK = """
import subprocess, sys
from headrace_airflow.processes import ParentWatch
supervised = ParentWatch(lambda: application.kill())  # before anybody hears that the application runs
application = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
try:
    with supervised:
        application.wait()
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_an_application_of_spark_ends_too_when_whoever_supervises_its_task_is_killed() -> None:
    application = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    command = [sys.executable, "-c", SUPERVISOR, WAITING_TASK, application]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(supervisor.stdout.readline()) for _ in range(2)]
        assert not any(map(is_gone, pids))
        supervisor.kill()
        for pid in pids:
            until_gone(pid)
        assert supervisor.stdout.read() == "OrphanedError\n"
