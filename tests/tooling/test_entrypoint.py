"""The first program of the images: what it writes into files, what it hands on, and what it refuses."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).resolve().parents[2] / "docker" / "entrypoint.sh"


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SPARK_CONF_DIR": str(folder), **variables}
    return subprocess.run([ENTRYPOINT, *command], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def spark_class(tmp_path: Path) -> Path:
    """A ``spark-class`` that says with what it was started."""
    program = tmp_path / "bin" / "spark-class"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    return program


def test_settings_go_to_a_private_file_and_the_secret_no_further(tmp_path: Path) -> None:
    result = run(tmp_path, "env", SPARK_AUTH_SECRET="abc", SPARK_DEFAULTS="spark.ui.enabled false\nspark.cores.max 4")
    assert result.returncode == 0, result.stderr
    file = tmp_path / "spark-defaults.conf"
    assert file.read_text().splitlines() == [
        "spark.master.rest.enabled false",
        "spark.ui.enabled false",
        "spark.cores.max 4",
        "spark.authenticate true",
        "spark.authenticate.secret abc",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "abc" not in result.stdout


def test_without_settings_it_only_runs_what_was_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, "echo", "two words", "*")
    assert (result.returncode, result.stdout) == (0, "two words *\n")
    assert not list(tmp_path.iterdir())
    assert run(tmp_path, "sh", "-c", "exit 3").returncode == 3


@pytest.mark.parametrize("node", ["master", "worker"])
def test_no_master_and_no_worker_without_a_secret(tmp_path: Path, spark_class: Path, node: str) -> None:
    result = run(tmp_path, node, SPARK_MASTER_URL="spark://here:7077")
    assert result.returncode != 0
    assert "SPARK_AUTH_SECRET" in result.stderr
    assert result.stdout == ""


def test_a_worker_needs_to_know_its_master(tmp_path: Path, spark_class: Path) -> None:
    result_alone = run(tmp_path, "worker", SPARK_AUTH_SECRET="abc")
    assert result_alone.returncode != 0
    assert "SPARK_MASTER_URL" in result_alone.stderr
    result = run(tmp_path, "worker", SPARK_AUTH_SECRET="abc", SPARK_MASTER_URL="spark://here:7077")
    assert result.stdout == "org.apache.spark.deploy.worker.Worker spark://here:7077\n"


def test_no_command_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 64
    assert "say what to run" in result.stderr
