"""Our own MinIO server: found or built, started on loopback, stopped by pid and only if it is still ours."""

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scripts.minio_server import (
    MODULE,
    MinioUnavailableError,
    Server,
    client,
    find,
    find_or_build,
    running,
    start,
    stop,
)

FAKE_GO = """#!/bin/sh
echo "$@" > "$RECORD"
echo "GOFLAGS=[$GOFLAGS]" >> "$RECORD"
printf built > "$GOBIN/minio"
"""


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a PATH with one empty folder of programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return programs


def program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_without_minio_and_go_the_message_says_what_to_install(nothing_installed: Path) -> None:
    assert find() is None
    with pytest.raises(MinioUnavailableError, match=r"install MinIO .* or Go"):
        find_or_build()


def test_minio_on_the_path_is_taken(nothing_installed: Path) -> None:
    program(nothing_installed / "minio", "#!/bin/sh\n")
    assert find_or_build() == nothing_installed / "minio"


@pytest.mark.parametrize(("ci", "compiler_flags"), [("", "-dwarf=false"), ("true", "-dwarf=false -l")])
def test_go_installs_the_named_version_into_the_cache_once(
    ci: str, compiler_flags: str, nothing_installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("RECORD", str(record))
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    program(nothing_installed / "go", FAKE_GO)
    binary = find_or_build()
    assert binary.read_text() == "built"
    assert binary.is_relative_to(tmp_path / "cache" / "headrace")
    assert record.read_text() == f"install -gcflags=all={compiler_flags} -ldflags=-s -w {MODULE}\nGOFLAGS=[]\n"
    record.unlink()
    assert find_or_build() == binary
    assert not record.exists()


def test_what_ci_built_is_for_ci_alone(nothing_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(nothing_installed / "go", FAKE_GO)
    monkeypatch.setenv("RECORD", os.devnull)
    monkeypatch.setenv("CI", "true")
    of_ci = find_or_build()
    monkeypatch.setenv("CI", "")
    assert find() is None
    full_build = find_or_build()
    assert full_build != of_ci
    monkeypatch.setenv("CI", "true")
    assert find() == full_build


def test_a_failed_build_leaves_nothing_that_looks_built(nothing_installed: Path) -> None:
    program(nothing_installed / "go", "#!/bin/sh\nexit 3\n")
    with pytest.raises(MinioUnavailableError, match="exit code 3"):
        find_or_build()
    assert find() is None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if find() is None:
        message = "there is no MinIO server: run `make minio`, or put minio on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    result = start(tmp_path / "data")
    yield result
    stop(result)


@pytest.mark.s3
def test_a_started_server_can_be_used_at_once_on_loopback_and_stops_for_good(server: Server) -> None:
    assert server.endpoint.startswith("http://127.0.0.1:")
    assert client(server).list_buckets() == []  # nothing is left of finding out whether it is up
    client(server).make_bucket("first")
    stop(server)
    assert not psutil.pid_exists(server.pid)
    stop(server)  # again: nothing


@pytest.mark.s3
def test_every_server_has_its_own_secret_that_neither_its_name_nor_its_command_line_shows(server: Server) -> None:
    command = " ".join(psutil.Process(server.pid).cmdline())
    assert server.secret_key not in repr(server)
    assert server.secret_key not in command
    assert len(server.secret_key) >= 32


def test_a_process_that_only_has_the_pid_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        named_server = Server("http://127.0.0.1:1", "key", "secret", other.pid, psutil.Process(other.pid).create_time())
        stop(replace(named_server, started=named_server.started - 100))
        assert other.poll() is None
        stop(named_server)
        assert other.wait(timeout=5) is not None


def test_the_state_of_a_dead_server_counts_for_nothing(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    (tmp_path / "server.json").write_text(
        '{"endpoint": "http://127.0.0.1:1", "access_key": "k", "secret_key": "s", "pid": 4194304, "started": 1.0}'
    )
    assert running(tmp_path) is None
