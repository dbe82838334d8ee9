"""The wheel and the sdist: what is in them, and what the wheel does in an environment that has nothing else."""

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.own_parts import EXTRAS

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 60
PACKAGES = {"headrace", "headrace_snapshots", "headrace_airflow"}
NOT_ASKED_FOR = {"pyspark", "apache-airflow", "great-expectations", "pandas", "minio", "matplotlib", "httpx", "grpcio"}

pytestmark = pytest.mark.slow  # builds the distribution, and installs it from PyPI (or uv's cache)


def uv(*arguments: str | Path) -> str:
    """What uv says: that on PATH, or the one that setup has installed."""
    program = shutil.which("uv") or str(REPOSITORY / ".headrace/uv/bin/uv")
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, env=plain())
    assert result.returncode == 0, result.stderr
    return result.stdout


def plain(**more: str) -> dict[str, str]:
    """The environment without what makes Python look into this repository."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "HEADRACE_", "AWS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--out-dir", folder, REPOSITORY)
    return folder


@dataclass(frozen=True)
class Installation:
    """The wheel without extras in an environment of its own, and a folder to work in."""

    environment: Path
    folder: Path

    def headrace(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.environment / "bin" / "headrace", *arguments],
            cwd=self.folder,
            env=plain(HEADRACE_CACHE=str(self.folder / "cache"), HEADRACE_LOGS=str(self.folder / "logs"), **variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def read_refusal(self, *arguments: str, **variables: str) -> str:
        """The one message of a command that lacks an extra."""
        result = self.headrace(*arguments, **variables)
        assert result.returncode == 10, result.stderr
        assert "(config.not_installed)" in result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr


@pytest.fixture(scope="module", params=["highest", "lowest-direct"])
def installation(
    request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """With the newest of its dependencies, and with the oldest that it allows; an example is there."""
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = dist.glob("*.whl")
    environment = folder / "venv"
    uv("venv", "--quiet", environment)
    uv("pip", "install", "--quiet", "--python", environment, "--resolution", request.param, wheel)
    fresh_installation = Installation(environment, folder)
    result = fresh_installation.headrace("new", "shop")
    assert result.returncode == 0, result.stderr
    yield fresh_installation
    shutil.rmtree(environment)


def test_the_wheel_holds_the_three_packages_and_nothing_of_the_repository(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == PACKAGES
    sources = {
        str(file.relative_to(folder))
        for folder in (REPOSITORY / place for place in ("jobs", "snapshots", "plugins"))
        for package in PACKAGES
        for file in (folder / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sources == {name for name in names if ".dist-info" not in name}
    assert {"headrace/py.typed", "headrace/__init__.pyi", "headrace/errors.pyi"} <= sources


def test_the_sdist_holds_what_the_wheel_is_built_from(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as archive_file:
        names = {name.partition("/")[2] for name in archive_file.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    tops = {name.partition("/")[0] for name in names if "/" in name}
    assert tops == {"jobs", "snapshots", "plugins"}
    assert not [name for name in names if "pipelines" in name.split("/") or "tests" in name.split("/")]


def test_nothing_is_installed_that_was_not_asked_for(installation: Installation) -> None:
    names_there = {
        each["name"] for each in json.loads(uv("pip", "list", "--format", "json", "--python", installation.environment))
    }
    assert "headrace" in names_there
    assert names_there.isdisjoint(NOT_ASKED_FOR)


def test_a_new_pipeline_runs_without_extras(installation: Installation) -> None:
    where = ("shop/shop.py", "--root", (installation.folder / "shop/data").as_uri())
    for arguments in (
        ("check", "shop/shop.py"),
        ("run", *where),
        ("log", *where),
        ("pipelines",),
    ):
        result = installation.headrace(*arguments)
        assert result.returncode == 0, result.stderr
    result = installation.headrace("read", *where, "--where", "product = 'tea'", "--format", "json")
    rows = json.loads(result.stdout)
    assert {(row["window_start"], row["orders"], row["cents"]) for row in rows} == {
        ("2025-01-01T09:00:00Z", 2, 1260),
        ("2025-01-01T10:00:00Z", 2, 1680),
        ("2025-01-01T12:00:00Z", 1, 420),
    }


TOPIC = """
import headrace as hr

clicks = hr.Pipeline(
    "clicks",
    hr.kafka("clicks", {"user": str}, connection="events").arrival_time(),
    key="user",
    what={"clicks": hr.count()},
    where=hr.FixedWindows("1h"),
    executor="local",
)
"""


@pytest.mark.parametrize("installation", ["highest"], indirect=True)  # which versions the others have is no matter here
def test_each_extra_that_is_missing_is_named_with_the_command(installation: Installation, tmp_path: Path) -> None:
    root = (installation.folder / "shop/data").as_uri()
    expecting = tmp_path / "shop.py"
    text = (installation.folder / "shop" / "shop.py").read_text()
    expects = 'expectations=[hr.expect("column_values_to_not_be_null", column="orders")],\n    description='
    expecting.write_text(text.replace("description=", expects))
    delivering = tmp_path / "delivering.py"
    sinks = {"postgres": "postgresql://x:y@127.0.0.1:1/z", "delta": "file:///x", "iceberg": "sqlite:///x"}
    sink_calls = ", ".join(f'hr.{kind}("shop.sales", connection="{kind}", name="{kind}")' for kind in sinks)
    delivering.write_text(text.replace("description=", f"sinks=[{sink_calls}],\n    description="))
    connections = {f"HEADRACE_CONN_{kind.upper()}": uri for kind, uri in sinks.items()}
    streaming = tmp_path / "streaming.py"
    streaming.write_text(TOPIC)
    in_python = tmp_path / "test_shop.py"
    in_python.write_text("def test_nothing():\n    pass\n")
    keys = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    messages = {
        "spark": installation.read_refusal("run", "shop/shop.py", "--root", root, "--executor", "spark"),
        "quality": installation.read_refusal("run", str(expecting), "--root", root, "--executor", "local"),
        "s3": installation.read_refusal("log", "shop/shop.py", "--root", "s3://bucket/root", **keys),
        "plots": installation.read_refusal("plot", "shop/shop.py", "--root", root, "--out", "lateness.png"),
        **{
            kind: installation.read_refusal("deliver", str(delivering), "--root", root, "--sink", kind, **connections)
            for kind in sinks
        },
        "kafka": installation.read_refusal(
            "run", str(streaming), "--root", root, HEADRACE_CONN_EVENTS="kafka://127.0.0.1:1"
        ),
        "test": installation.read_refusal("test", str(in_python)),
        "airflow": airflow_error(installation),
    }
    assert messages.keys() == EXTRAS.keys()
    for extra, message in messages.items():
        assert f"pip install 'headrace[{extra}]'" in message
    assert "--executor local" in messages["spark"]


@pytest.mark.parametrize("name", ["conformance", "simulate"])
def test_a_command_of_the_lab_names_the_package_that_brings_it(installation: Installation, name: str) -> None:
    assert "pip install ./lab" in installation.read_refusal(name)


def test_the_oracle_is_of_the_lab_and_tests_that_ask_for_it_go_on(installation: Installation) -> None:
    python = installation.environment / "bin" / "python"
    code = "from importlib.util import find_spec; print(find_spec('headrace_lab'), find_spec('headrace.reference'))"
    result = subprocess.run([python, "-c", code], env=plain(), capture_output=True, text=True, check=True)
    assert result.stdout == "None None\n"
    tested_result = installation.headrace("test", "shop/tests/shop.yaml", "--executor", "reference")
    assert (tested_result.returncode, "3 passed" in tested_result.stderr) == (0, True), (
        tested_result.stdout + tested_result.stderr
    )
    assert "headrace-lab since 0.3, which is not installed" in tested_result.stderr


def test_the_lab_is_a_package_of_its_own(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("lab")
    uv("build", "--wheel", "--out-dir", folder, "--package", "headrace-lab", REPOSITORY)
    (wheel,) = folder.glob("*.whl")
    (headrace,) = dist.glob("*.whl")
    assert {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name} == {
        "headrace_lab"
    }
    uv("venv", "--quiet", folder / "venv")
    uv("pip", "install", "--quiet", "--python", folder / "venv", wheel, headrace)
    with_lab = Installation(folder / "venv", folder)
    assert with_lab.headrace("simulate", "--records", "1").returncode == 0
    assert with_lab.headrace("new", "shop").returncode == 0
    tested_result = with_lab.headrace("test", "shop/tests/shop.yaml", "--executor", "reference")
    assert (tested_result.returncode, tested_result.stderr) == (0, "3 passed\n"), (
        tested_result.stdout + tested_result.stderr
    )
    cases = str(REPOSITORY / "tests/conformance/cases/bundling.json")
    result = with_lab.headrace("conformance", cases, "--executor", "local")
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "28 passed, 0 failed, 1 skipped")
    assert "headrace[spark]" in with_lab.read_refusal("conformance", cases, "--executor", "spark")


def airflow_error(installation: Installation) -> str:
    """What a file of DAGs meets where Airflow is not installed."""
    command = [installation.environment / "bin" / "python", "-c", "import headrace_airflow.dags"]
    result = subprocess.run(command, env=plain(), capture_output=True, text=True, check=False)
    assert result.returncode == 1
    return result.stderr


def test_what_a_task_of_airflow_runs_is_in_the_wheel(installation: Installation) -> None:
    place = "from headrace import application; print(application.__path__[0])"
    python = installation.environment / "bin" / "python"
    result = subprocess.run([python, "-c", place], env=plain(), capture_output=True, text=True, check=True)
    program = Path(result.stdout.strip()) / "submit.py"
    arguments = ["process", "--pipeline", "shop/shop.py", "--root", (installation.folder / "shop/data").as_uri()]
    run = subprocess.run(
        [python, program, *arguments, "--run-id", "r1", "--executor", "local"],
        cwd=installation.folder,
        env=plain(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
