"""The Makefile and setup, as somebody meets them on a fresh machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ["bash", "dirname", "sed", "head"]


def test_help_lists_every_target() -> None:
    text = (REPOSITORY / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    targets = phony.group(1).split()
    listed = [line.split()[0] for line in make("help").stdout.splitlines()]
    assert sorted(listed) == sorted(targets)
    assert {"help", "setup", "demo", "test", "check", "up", "down", "fmt", "minio"} <= set(listed)


def make(target: str) -> subprocess.CompletedProcess[str]:
    # `make test` runs this: what it hands down would make this make speak of its level.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", target], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine with Python but without Java and uv, as a folder for PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None, tool
        (programs / tool).symlink_to(found)
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    return programs


def setup(machine: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine), "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        ["bash", str(REPOSITORY / "scripts/setup.sh")], env=environment, capture_output=True, text=True, check=False
    )


def java(machine: Path, version: str) -> None:
    (machine / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    (machine / "java").chmod(0o755)


def test_setup_says_that_java_is_missing(machine: Path) -> None:
    done = setup(machine)
    assert done.returncode == 1
    assert "no Java: Spark needs a JDK or JRE 17 or newer" in done.stderr


@pytest.mark.parametrize(("version", "major"), [("11.0.2", "11"), ("1.8.0_392", "1")])
def test_setup_says_that_java_is_too_old(machine: Path, version: str, major: str) -> None:
    java(machine, version)
    done = setup(machine)
    assert done.returncode == 1
    assert f"is Java {major}: Spark needs 17 or newer" in done.stderr


def test_setup_says_that_python_is_missing(machine: Path) -> None:
    (machine / "python3").unlink()
    done = setup(machine)
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr
