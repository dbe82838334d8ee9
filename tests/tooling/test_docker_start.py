"""docker/start, against an engine that is played: a `docker` on PATH that keeps what it was asked for."""

import os
import shutil
import stat
import subprocess
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tooling.test_compose import DOCKER, lines

ENGINE = """#!/bin/sh
printf '%s\\n' "$*" >>"$STUB/asked"
env >"$STUB/environment"
case "$*" in
  "compose version --short") cat "$STUB/version" ;;
  info) exit "$(cat "$STUB/engine")" ;;
  "volume inspect headrace_postgres") [ -e "$STUB/volume" ] ;;
  *" up "*) touch "$STUB/volume"; exit "$(cat "$STUB/up")" ;;
  *" ps --all") echo "airflow-scheduler unhealthy" ;;
esac
"""
UI = "AIRFLOW_ADMIN_PASSWORD"


@dataclass(frozen=True)
class Machine:
    """A copy of the folder docker/, and an engine whose answers are files of ``stub``."""

    folder: Path
    stub: Path

    def start(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.stub}:{os.environ['PATH']}"
        environment = {"PATH": path, "STUB": str(self.stub), "HOME": str(self.stub), **variables}
        command = [self.folder / "start", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, umask=0o022)

    def start_output(self, *arguments: str, **variables: str) -> str:
        """What a start prints that must not fail."""
        result = self.start(*arguments, **variables)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def says(self, what: str, value: str) -> None:
        (self.stub / what).write_text(value)

    def compose_calls(self) -> list[str]:
        """What compose was asked to do, without where its files are."""
        words = f"compose --project-directory {self.folder} --file {self.folder}/compose.yaml "
        asked_lines = (self.stub / "asked").read_text().splitlines()
        return [each.removeprefix(words) for each in asked_lines if each.startswith(words)]

    @property
    def env_file(self) -> Path:
        return self.folder / ".env"

    def secrets(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in lines(self.env_file))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An engine that does all that is asked for, on a machine that Headrace never ran on."""
    folder = tmp_path / "a clone" / "docker"
    stub = tmp_path / "stub"
    folder.mkdir(parents=True)
    stub.mkdir()
    for name in ("start", "compose.yaml", ".env.example"):
        shutil.copy(DOCKER / name, folder / name)
    (stub / "docker").write_text(ENGINE)
    (stub / "docker").chmod(0o755)
    machine = Machine(folder, stub)
    for what, value in {"version": "2.39.4", "engine": "0", "up": "0"}.items():
        machine.says(what, value)
    return machine


def test_it_writes_secrets_builds_starts_waits_and_says_where_airflow_is(machine: Machine) -> None:
    output = machine.start_output()
    assert machine.compose_calls() == ["build", "up --detach --no-build --wait --wait-timeout 900"]
    secrets = machine.secrets()
    assert list(secrets) == [line.removesuffix("=") for line in lines(DOCKER / ".env.example")]
    assert all(len(value) >= 40 for value in secrets.values())
    assert len(set(secrets.values())) == len(secrets)
    assert len(urlsafe_b64decode(secrets["AIRFLOW_FERNET_KEY"])) == 32
    assert stat.S_IMODE(machine.env_file.stat().st_mode) == 0o600
    assert "http://127.0.0.1:8080" in output
    assert {name for name, value in secrets.items() if value in output} == {UI}
    assert [file.name for file in machine.folder.iterdir() if file.name.startswith(".env")].count(".env") == 1
    assert {"pipelines", "dags"} <= {each.name for each in machine.folder.iterdir()}
    assert not list(machine.folder.glob(".env.[!e]*"))


def test_no_secret_is_an_argument_or_in_the_environment_of_what_it_starts(machine: Machine) -> None:
    machine.start_output(POSTGRES_PASSWORD="of this shell")  # which compose would prefer to the file's
    asked_text, environment = ((machine.stub / name).read_text() for name in ("asked", "environment"))
    for name, value in machine.secrets().items():
        assert value not in asked_text + environment
        assert f"{name}=" not in environment


def test_the_second_time_secrets_and_settings_stay(machine: Machine) -> None:
    machine.env_file.write_text("AIRFLOW_PORT=9999\nPIPELINES=/srv/pipelines\nSPARK_AUTH_SECRET=mine\nMINIO_PORT=9100")
    machine.env_file.chmod(0o644)
    output = machine.start_output()
    assert "http://127.0.0.1:9999" in output
    assert "/srv/pipelines" in output
    assert not (machine.folder / "pipelines").exists()
    first = machine.secrets()
    assert (first["SPARK_AUTH_SECRET"], first["MINIO_PORT"]) == ("mine", "9100")
    assert stat.S_IMODE(machine.env_file.stat().st_mode) == 0o600
    second_output = machine.start_output()
    assert machine.secrets() == first
    assert "wrote" not in second_output
    assert first[UI] in second_output


def test_a_lost_file_of_secrets_is_not_replaced_beside_an_old_database(machine: Machine) -> None:
    machine.start_output()
    machine.env_file.unlink()
    result = machine.start()
    assert result.returncode == 1
    assert "POSTGRES_PASSWORD" in result.stderr
    assert "docker volume rm headrace_postgres" in result.stderr
    assert not machine.env_file.exists()


def test_a_secret_that_came_later_is_added(machine: Machine) -> None:
    machine.start_output()
    old_secrets = machine.secrets()
    text = machine.env_file.read_text()
    machine.env_file.write_text(text.replace(old_secrets["BUCKET_READER_PASSWORD"], ""))
    machine.start_output()
    now = machine.secrets()
    assert now.keys() == old_secrets.keys()
    assert {name for name in now if now[name] != old_secrets[name]} == {"BUCKET_READER_PASSWORD"}


def test_images_of_a_registry_are_pulled_and_not_built(machine: Machine) -> None:
    result = machine.start("--pull")
    assert result.returncode == 1
    assert "IMAGES=" in result.stderr
    with machine.env_file.open("a") as file:
        file.write("IMAGES=registry.example.com/team/\n")
    machine.start_output("--pull")
    assert machine.compose_calls()[-2:] == ["pull", "up --detach --no-build --wait --wait-timeout 900"]


def test_what_never_becomes_healthy_is_shown_and_no_password_is(machine: Machine) -> None:
    machine.says("up", "1")
    result = machine.start(START_SECONDS="5")
    assert result.returncode == 1
    assert "--wait-timeout 5" in machine.compose_calls()[-2]
    assert "airflow-scheduler unhealthy" in result.stderr
    assert "logs SERVICE" in result.stderr
    assert not [value for value in machine.secrets().values() if value in result.stdout + result.stderr]


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [("engine", "1", "engine does not answer"), ("version", "v2.9.0", "2.9.0"), ("version", "1.29.2", "1.29.2")],
)
def test_an_engine_that_cannot_do_it_is_refused_before_anything_is_written(
    machine: Machine, what: str, value: str, message: str
) -> None:
    machine.says(what, value)
    result = machine.start()
    assert result.returncode == 1
    assert message in result.stderr
    assert not machine.env_file.exists()


def test_no_engine_and_unknown_arguments_are_refused(machine: Machine) -> None:
    assert "--fast" in machine.start("--fast").stderr
    tools = machine.stub / "tools"
    tools.mkdir()
    for tool in ("bash", "env", "dirname", "sed", "tail"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    result = machine.start(PATH=str(tools))
    assert result.returncode == 1
    assert "no docker on PATH" in result.stderr
