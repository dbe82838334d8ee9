"""The Makefile and setup, as somebody meets them on a fresh machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schedule import LONGEST_FIRST, LONGEST_WAITS_FIRST

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ["bash", "dirname", "sed", "head"]


def test_help_lists_every_target() -> None:
    text = (REPOSITORY / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    targets = phony.group(1).split()
    listed_targets = [line.split()[0] for line in make("help").stdout.splitlines()]
    assert sorted(listed_targets) == sorted(targets)
    assert {"help", "setup", "demo", "test", "check", "up", "down", "fmt", "minio"} <= set(listed_targets)


def test_the_files_that_take_long_are_there() -> None:
    """Else one that was moved runs last, and all other processes wait for it."""
    assert [file for file in (*LONGEST_WAITS_FIRST, *LONGEST_FIRST) if not (REPOSITORY / file).is_file()] == []


def test_each_of_the_two_commands_of_the_readme_does_all_the_set_up(tmp_path: Path) -> None:
    section = (REPOSITORY / "README.md").read_text().partition("## Two commands")[2]
    commands = re.findall(r"^\$ make (\w+)", section.partition("```console")[2].partition("```")[0], re.MULTILINE)
    assert commands == ["demo", "test"]
    for name in ("Makefile", "uv.lock", "pyproject.toml", "scripts/setup.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for command in commands:
        first, *_, last = make("-n", command, folder=tmp_path).stdout.splitlines()
        assert first == "scripts/setup.sh"
        assert ".venv/bin/" in last


def make(*arguments: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    # `make test` runs this: what it hands down would make this make speak of its level.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The programs of a machine with Python but without Java and uv, as a folder for PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        program = shutil.which(tool)
        assert program is not None, tool
        (programs / tool).symlink_to(program)
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
    result = setup(machine)
    assert result.returncode == 1
    assert "no Java: Spark needs a JDK or JRE 17 or newer" in result.stderr


@pytest.mark.parametrize(("version", "major"), [("11.0.2", "11"), ("1.8.0_392", "1")])
def test_setup_says_that_java_is_too_old(machine: Path, version: str, major: str) -> None:
    java(machine, version)
    result = setup(machine)
    assert result.returncode == 1
    assert f"is Java {major}: Spark needs 17 or newer" in result.stderr


def test_setup_says_that_python_is_missing(machine: Path) -> None:
    (machine / "python3").unlink()
    result = setup(machine)
    assert result.returncode == 1
    assert "no Python 3.11 or newer" in result.stderr


def chromium(programs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``make test-browser`` does first, on a machine that has these programs."""
    return subprocess.run(
        [sys.executable, "-m", "scripts.chromium"],
        cwd=REPOSITORY,
        env={"PATH": str(programs), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def write_program(file: Path, *lines: str) -> None:
    file.write_text("\n".join([f"#!{shutil.which('sh')}", *lines]))
    file.chmod(0o755)


def test_without_chromium_the_tests_in_a_browser_say_how_to_get_it(tmp_path: Path) -> None:
    result = chromium(tmp_path)
    assert result.returncode == 1
    assert "on Debian `apt-get install chromium chromium-driver`" in result.stderr
    write_program(tmp_path / "chromium")
    assert chromium(tmp_path).returncode == 1, "its driver is missing"
    write_program(tmp_path / "chromedriver")
    assert chromium(tmp_path).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install")
def test_ci_installs_chromium(tmp_path: Path) -> None:
    touch = shutil.which("touch")
    files = [tmp_path / name for name in ("chromium", "chromedriver")]
    touch_commands = [f"{touch} {file} && {shutil.which('chmod')} +x {file}" for file in files]
    write_program(
        tmp_path / "apt-get", f'echo "$@" >> {tmp_path / "asked"}', '[ "$1" = update ] && exit 0', *touch_commands
    )
    assert chromium(tmp_path).returncode == 1
    assert not (tmp_path / "asked").exists()
    result = chromium(tmp_path, CI="true")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "asked").read_text().splitlines() == [
        "update", "install --yes --no-install-recommends chromium chromium-driver",
    ]  # fmt: skip
