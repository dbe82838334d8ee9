"""Processes of tests beside each other: some take first what waits, some what computes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schedule import LONGEST_FIRST, LONGEST_WAITS_FIRST, process_of

REPOSITORY = Path(__file__).resolve().parents[2]
WAITING, COMPUTING = LONGEST_WAITS_FIRST[-3:], LONGEST_FIRST[5:9]
TEST = """
import os
from pathlib import Path

def test_that_writes_who_runs_it():
    with open({list!r}, "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " {name}\\n")
"""


def run_files(folder: Path, *names: str, processes: int) -> list[set[str]]:
    """The files that each process has run."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TEST.format(list=str(folder / "ran"), name=name))
    options = ["-p", "tests.schedule", "-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", *options, "tests"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        check=True,
        capture_output=True,
    )
    ran = [line.split() for line in (folder / "ran").read_text().splitlines()]
    return [{name for worker, name in ran if worker == one} for one in sorted({worker for worker, _ in ran})]


@pytest.mark.slow
def test_of_three_processes_one_takes_first_what_waits(tmp_path: Path) -> None:
    ran = run_files(tmp_path, *WAITING, *COMPUTING, processes=3)
    (of_waiting,) = [files for files in ran if files & {*WAITING[:2]}]
    assert {*WAITING[:2]} <= of_waiting
    assert not of_waiting & {*COMPUTING}
    assert sorted(name for files in ran for name in files) == sorted((*WAITING, *COMPUTING))


@pytest.mark.slow
def test_what_waits_is_run_where_no_process_takes_it_first(tmp_path: Path) -> None:
    ran = run_files(tmp_path, *WAITING, *COMPUTING, processes=2)
    assert sorted(name for files in ran for name in files) == sorted((*WAITING, *COMPUTING))


def test_files_that_share_an_airflow_share_a_process() -> None:
    assert process_of("tests/browser/test_forms.py::test_a") == process_of("tests/browser/test_pages.py::test_b")
    assert process_of("tests/airflow/test_dags.py::test_a") == process_of("tests/airflow/test_pages.py::test_b")
    assert process_of("tests/airflow/test_dags.py::test_a") != process_of("tests/airflow/test_watching.py::test_b")
    quiet = process_of("tests/airflow/test_following.py::test_a")
    assert quiet == process_of("tests/airflow/test_scheduled_backfill.py::test_b")
    assert quiet != process_of("tests/airflow/test_end_to_end.py::test_c")
