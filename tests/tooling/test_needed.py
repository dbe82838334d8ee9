"""Tests begin while CI still gets what some of them need; these wait for it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TEST = """
import pytest
from pathlib import Path

@pytest.mark.{marker}
def test_that_says_whether_it_is_there():
    print("there:", Path({there!r}).exists())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("marker", "is_there"), [("s3", True), ("slow", False)])
def test_a_test_that_needs_a_server_waits_until_it_is_there(marker: str, is_there: bool, tmp_path: Path) -> None:
    needed_file, lock, test_file = (tmp_path / name for name in ("there", "lock", "test_needy.py"))
    test_file.write_text(TEST.format(marker=marker, there=str(needed_file)))
    pytest_options = ["-p", "tests.needed", "-s", "-n0", "--no-header", "-p", "no:cacheprovider", "-W", "ignore"]
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"
    }  # they change the output
    with lock.open("wb") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *pytest_options, str(test_file)],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(REPOSITORY), "HEADRACE_TESTS_NEEDED": str(lock)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "collected 1 item" in line and is_there:
                    needed_file.touch()
                    fcntl.flock(lock_file, fcntl.LOCK_UN)
    assert process.returncode == 0, lines
    assert any(f"there: {is_there}" in line for line in lines), lines
