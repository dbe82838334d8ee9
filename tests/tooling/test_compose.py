"""docker/compose.yaml: what the specification allows, pinned, without secrets; and every setting is told."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from scripts.images import VERSION

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"
CODE = ("jobs", "snapshots", "plugins", "dags", "scripts")
SECRET = re.compile(r"PASSWORD|SECRET|FERNET_KEY|TOKEN")
VARIABLE = re.compile(r"\$\{(\w+)(:?[-?+]?)([^}]*)\}")
NAME = re.compile(r"(?<![A-Z_])HEADRACE_[A-Z0-9_]*[A-Z0-9]")  # not AIRFLOW_CONN_HEADRACE_API


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCKER / "compose.yaml").read_text()


@pytest.fixture(scope="module")
def services(text: str) -> dict[str, dict[str, Any]]:
    found_services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return found_services


def test_it_is_what_the_compose_specification_describes(text: str) -> None:
    schema = json.loads((DOCKER / "compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    compose = yaml.safe_load(text)
    assert [error.message for error in validator.iter_errors(compose)] == []
    bad_compose = {**compose, "services": {"postgres": {"image": "postgres", "healtcheck": {}}}}
    assert not validator.is_valid(bad_compose)


def test_every_image_is_pinned(services: dict[str, dict[str, Any]]) -> None:
    containerfile = (DOCKER / "Containerfile").read_text()
    (base,) = re.findall(r"^ARG BASE=(\S+)$", containerfile, re.MULTILINE)
    (minio,) = (service["build"]["dockerfile_inline"] for name, service in services.items() if name == "minio")
    others = re.findall(r"^FROM (\S+)", minio, re.MULTILINE)
    assert others[0] == base
    for image in [base, *others, *(service["image"] for service in services.values())]:
        if image.startswith("${IMAGES:-}headrace-"):
            assert image.rpartition(":")[2] == VERSION
        else:
            # a registry, and a tag that names one release: 17.6-..., RELEASE.2025-09-07..., bookworm-20251229-...
            assert re.fullmatch(r"docker\.io/[\w./-]+:\S*(\d+\.\d+|\d{4}-\d{2}-\d{2}|\d{8})\S*", image), image
    assert not re.findall(r"^FROM (?!\$\{BASE\}|runtime|build|spark-packages)", containerfile, re.MULTILINE)


def test_executors_have_what_reads_inputs() -> None:
    """Tasks on a cluster read topics themselves (``land="never"``), and objects of S3."""
    (spark,) = re.findall(r"AS spark-packages\n.*\n +/opt/install.sh (.*)", (DOCKER / "Containerfile").read_text())
    assert {"spark", "s3", "kafka"} <= {*re.findall(r"--extra (\S+)", spark)}


def test_the_images_have_the_uv_that_set_up_has() -> None:
    (in_image,) = re.findall(r"^ARG UV_VERSION=(\S+)$", (DOCKER / "Containerfile").read_text(), re.MULTILINE)
    assert f"UV_VERSION={in_image} " in (REPOSITORY / "scripts" / "setup.sh").read_text()


def test_no_secret_has_a_default_and_compose_refuses_to_start_without(text: str) -> None:
    variables = VARIABLE.findall(text)
    secrets = {name for name, _, _ in variables if SECRET.search(name)}
    assert len(secrets) > 5
    for name, operator, what in variables:
        if name in secrets:
            assert operator == ":?", name
            assert ".env.example" in what
        else:
            assert operator == ":-", f"{name} has no default"
    example = dict(line.split("=", 1) for line in lines(DOCKER / ".env.example"))
    assert set(example) == secrets
    assert set(example.values()) == {""}


def test_no_secret_is_written_down(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert VARIABLE.search(str(value)), f"{name}: {variable}"
    for file in (DOCKER / "Containerfile", DOCKER / "install.sh"):
        assert not SECRET.search(file.read_text())


def test_ports_are_those_of_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert "ports" not in services["postgres"]


def test_no_service_is_root_has_capabilities_or_writes_to_its_image(services: dict[str, dict[str, Any]]) -> None:
    containerfile = (DOCKER / "Containerfile").read_text()
    assert set(re.findall(r"^USER (\S+)", containerfile, re.MULTILINE)) == {"50000"}
    for name, service in services.items():
        user, _, _ = service["user"].partition(":")
        assert int(user) > 0, name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service
        assert "privileged" not in service
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert any(each.startswith("/tmp:") for each in service["tmpfs"]), name
        places = [each.split(":")[0] for each in service["tmpfs"]]
        mounts = [each.split(":") for each in service.get("volumes", [])]
        assert len({*places, *(mount[-2 if mount[-1] == "ro" else -1] for mount in mounts)}) == len(places + mounts)
        for mount in mounts:  # folders of the machine are only read
            assert (mount[-1] == "ro") == any(part.startswith("${") for part in mount), f"{name}: {mount}"


def test_the_keys_of_the_root_of_the_bucket_are_of_those_two_who_make_it(services: dict[str, dict[str, Any]]) -> None:
    knows = {name for name, service in services.items() if "MINIO_ROOT_PASSWORD" in str(service.get("environment"))}
    assert knows == {"minio", "bucket"}
    writes = {name for name, service in services.items() if "BUCKET_USER_PASSWORD" in str(service.get("environment"))}
    assert writes == {"bucket", "spark-worker", "airflow-scheduler"}
    reads = {name for name, service in services.items() if "BUCKET_READER_PASSWORD" in str(service.get("environment"))}
    assert reads == {"bucket", "airflow-api-server", "airflow-triggerer"}


def test_own_pipelines_and_dags_are_folders_that_all_who_load_them_mount(services: dict[str, dict[str, Any]]) -> None:
    for name in ("airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
        volumes = services[name]["volumes"]
        assert "${PIPELINES:-./pipelines}:/pipelines:ro" in volumes, name
        assert "${DAGS:-./dags}:/opt/headrace/dags/own:ro" in volumes, name


def test_every_lasting_service_says_whether_it_is_healthy_and_who_needs_it_waits(
    services: dict[str, dict[str, Any]],
) -> None:
    names_once = {name for name, service in services.items() if service["restart"] == "no"}
    assert names_once == {"bucket", "airflow-migration"}
    for name, service in services.items():
        assert ("healthcheck" in service) == (name not in names_once), name
        for dependency, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if dependency in names_once else "service_healthy"
            assert how["condition"] == expected, f"{name} needs {dependency}"


@pytest.mark.slow  # reads all code
def test_every_setting_of_headrace_is_told_and_none_that_is_not_there() -> None:
    texts = set(NAME.findall((REPOSITORY / "docs" / "settings.md").read_text()))
    read = {name for file in python_files() for name in names_in(file)}
    deployed_names = {name for file in DOCKER.iterdir() if file.is_file() for name in NAME.findall(file.read_text())}
    makefile = set(NAME.findall((REPOSITORY / "Makefile").read_text()))
    assert read | deployed_names | makefile == texts


def python_files() -> Iterator[Path]:
    for folder in CODE:
        yield from (REPOSITORY / folder).rglob("*.py")


def names_in(file: Path) -> Iterator[str]:
    """The variables that are a whole string of ``file``, as in ``os.environ["HEADRACE_X"]``."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            yield node.value


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
