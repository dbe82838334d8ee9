"""What ``headrace run`` says while Spark starts, and when its JVM does not: in a process of its own, with real Java."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.deployments import PIPELINE_FILE

pytestmark = pytest.mark.slow

JAVA_SCRIPT = """#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) exec {java} "$@";; esac
echo "the kernel is looking for memory" >&2
kill -9 $$
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline and one landed file."""
    (tmp_path / "clicks.py").write_text(PIPELINE_FILE)
    landing = tmp_path / "root" / "landing" / "clicks"
    landing.mkdir(parents=True)
    (landing / "a.jsonl").write_text(
        '{"user": "ann", "at": "2026-01-01T00:00:00Z", "amount": 1}\n'
        '{"user": "ann", "at": "2026-01-01T03:00:00Z", "amount": 1}\n'
        "this is no JSON\n"
    )
    return tmp_path


def run(folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("headrace")
    return subprocess.run(
        [command, "run", "clicks.py", "--root", (folder / "root").as_uri()],
        cwd=folder,
        env={**os.environ, "HEADRACE_LOGS": str(folder / "logs"), "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_jvm_that_is_killed_while_it_starts_is_worth_another_attempt(folder: Path) -> None:
    real = shutil.which("java", path=f"{os.environ['JAVA_HOME']}/bin") if "JAVA_HOME" in os.environ else None
    real = real or shutil.which("java")
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA_SCRIPT.format(java=real))
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    result = run(folder, {"JAVA_HOME": str(folder / "java")})
    assert result.returncode == 30, result.stderr
    (log,) = (folder / "logs").glob("*.log")
    assert result.stderr.splitlines() == [
        f"starting Spark; its messages: {log}",
        f"details: {log}",
        "error Spark's JVM ended before it ran: the kernel is looking for memory. Run again; if it is killed each "
        f"time, the machine lacks memory. All its messages are in {log} (retry.spark_start)",
    ]
    assert "Traceback" in log.read_text()


def test_java_that_refuses_its_options_is_a_matter_of_configuration(folder: Path) -> None:
    result = run(folder, {"HEADRACE_JAVA_OPTIONS": "-Xss1"})
    assert result.returncode == 10, result.stderr
    assert "The Java thread stack size specified is too small" in result.stderr.splitlines()[-1]
    assert "(config.jvm)" in result.stderr.splitlines()[-1]


def test_logs_that_cannot_be_written_are_told_before_spark_starts(folder: Path) -> None:
    (folder / "file").write_text("")
    result = run(folder, {"HEADRACE_LOGS": str(folder / "file" / "logs")})
    assert result.returncode == 10, result.stderr
    assert "set HEADRACE_LOGS to a folder that can be written" in result.stderr


@pytest.mark.spark
def test_a_run_tells_what_it_does_and_spark_speaks_in_a_file(folder: Path) -> None:
    result = run(folder, {})
    assert result.returncode == 0, result.stderr
    (log,) = (folder / "logs").glob("*.log")
    lines = result.stderr.splitlines()
    assert lines[:2] == [f"starting Spark; its messages: {log}", "1 new file"]
    assert lines[2].startswith("epoch 0: 3 records of 1 file, 3 panes, 1 retraction, 0 late, 1 rejected, watermark ")
    assert len(lines) == 3
    assert "WARN" in log.read_text()
    assert "1 record rejected: headrace read clicks.py" in result.stdout
