"""A confined process reads no other's environment or memory, and can do all else that it could before."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_airflow import processes

pytestmark = pytest.mark.skipif(not processes.can_confine(), reason="this kernel has no Landlock")

READS = """
import os, subprocess, sys
from headrace_airflow.processes import confine_process
other, folder, user = sys.argv[1:]
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
def read(what, pid):
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return b"4711" in file.read(1_000_000) if what == "environ" else True
    except PermissionError:
        return "refused"
print(read("environ", other), read("mem", other))
confine_process()
print(read("environ", other), read("mem", other))
own = subprocess.Popen(["cat"], env={**os.environ, "OWN": "4711"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
own.stdin.write(b"up\\n")
own.stdin.flush()
own.stdout.readline()
print(read("environ", own.pid))
own.kill()
own.wait()
for name in ("a", "b"):
    os.mkdir(f"{folder}/{name}")
open(f"{folder}/a/file", "w").close()
os.rename(f"{folder}/a/file", f"{folder}/b/file")
others = subprocess.run(["cat", f"/proc/{other}/environ"], stderr=subprocess.DEVNULL)
print(os.listdir(f"{folder}/b"), others.returncode)
"""
_USER, _GROUP = (os.geteuid(), os.getegid()) if os.geteuid() else (65534, 65534)
"""Root may read everybody's: there, it is nobody."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a user without rights may write to."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-isolation-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_a_confined_process_reads_nothing_of_others(folder: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "SECRET": "4711"}, user=_USER, group=_GROUP) as other:
        try:
            command = [sys.executable, "-c", READS, str(other.pid), str(folder), str(_USER)]
            completed_process = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            other.kill()
    assert completed_process.stdout.splitlines() == ["True True", "refused refused", "True", "['file'] 1"], (
        completed_process.stderr
    )


def test_all_ways_of_giving_a_secret_are_left_out() -> None:
    kept_variables = {"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_SIZE": "5"}
    secret = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "x",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": "x",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": "cat /secret",
        "AIRFLOW__CORE__FERNET_KEY": "x",
        "AIRFLOW__CORE__FERNET_KEY_SECRET": "x",
        "AIRFLOW__API_AUTH__JWT_SECRET": "x",
    }
    assert processes.without_secrets({**kept_variables, **secret}) == kept_variables


@pytest.mark.slow  # it imports Airflow
def test_functions_within_functions_are_found_again() -> None:
    assert processes._entry_function("os", "getcwd", ())() == str(Path.cwd())
    assert processes._entry_function(__name__, "make_callback.<locals>.inner", ["kept"])() == "kept"
    of_airflow = "airflow.sdk.execution_time.callback_supervisor", "CallbackSubprocess.start.<locals>._target"
    callback = processes._entry_function(*of_airflow, (None, {}, "alerts.late", "sales.py"))
    assert getattr(callback, "__closure__", None) is not None


def make_callback(value: str) -> object:
    """A function in a function, as Airflow's callbacks are."""

    def inner() -> str:
        return value

    return inner
