"""Fixtures that several folders of tests share: one Spark session per process, the executor of a run."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from headrace.this_process import collect_seldom
from scripts.java_server import QUICK_START
from tests.cpu_by_file import pytest_runtest_makereport, pytest_runtest_protocol, pytest_terminal_summary
from tests.kafka_broker import broker, running_broker
from tests.minio_bucket import minio
from tests.needed import pytest_runtest_setup
from tests.process.executors import ExecutorUnderTest
from tests.schedule import check_processes, pytest_collection_modifyitems, pytest_xdist_make_scheduler

if TYPE_CHECKING:
    from headrace.distribute.spark.application import SparkSession

__all__ = [
    "broker",
    "minio",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
    "running_broker",
]

_SLOW_MACHINE = [HealthCheck.too_slow]  # which is no fault of a test's
settings.register_profile("whole", deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile("unit", max_examples=5, deadline=None, suppress_health_check=_SLOW_MACHINE)  # quick feedback
settings.load_profile("whole")

# Tests run many queries once over few rows: compiling them well costs more than running them, and so does verifying the
# classes of published jars.
os.environ.setdefault("HEADRACE_JAVA_OPTIONS", " ".join(QUICK_START))


@pytest.fixture(scope="session", autouse=True)
def cache_of_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder of the tests' own, that of processes which they start too."""
    os.environ["HEADRACE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection() -> None:
    """Collecting makes what stays: there is nothing to look for meanwhile."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives to the end: without this the collector looks through it in every other test, and pytest
    ten times at the end. Libraries count what was not let go of when a process ends: then it is looked through.
    """
    gc.freeze()
    collect_seldom()
    gc.enable()
    atexit.register(gc.unfreeze)
    if "airflow" in sys.modules:
        raise pytest.UsageError("a module of tests imports Airflow: three seconds for each process, before any test")
    check_processes(session.items)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A small local session, as applications have it."""
    from headrace.distribute.spark.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "headrace tests",
        cores=2,
        conf={
            "spark.driver.memory": "3g",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("HEADRACE_")}


@pytest.fixture(scope="module", autouse=True)
def settings_stay() -> "Iterator[None]":
    """A module leaves the settings of Headrace in the environment as they were: others in this process read them. One
    that does not fails, and nobody after it.
    """
    old_settings = _settings()
    yield
    new_settings = _settings()
    for name in new_settings.keys() - old_settings.keys():
        del os.environ[name]
    os.environ.update(old_settings)
    assert new_settings == old_settings


@pytest.fixture(scope="module", autouse=True)
def references_stay() -> "Iterator[None]":
    """A process of a user knows the pipelines of one command line by their files. One of tests would go on to call
    every ``shop`` by the file of the first.
    """
    yield
    registry = sys.modules.get("headrace.pipeline.loading.registry")
    if registry is not None:
        registry.REFERENCES.clear()


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> ExecutorUnderTest:
    """``local``, or what ``on_both`` says."""
    name = getattr(request, "param", "local")
    return ExecutorUnderTest(name, request.getfixturevalue("spark") if name == "spark" else None)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whole runs take their time."""
    if "executor" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)
