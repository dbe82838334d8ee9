"""Fixtures that several folders of tests share: one Spark session per process, the executor of a run."""

import atexit
import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.process.executors import Executed

if TYPE_CHECKING:
    from headrace.distribute.spark.types import SparkSession

_SLOW_MACHINE = [HealthCheck.too_slow]  # which is no fault of a test's
settings.register_profile("whole", deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile("unit", max_examples=5, deadline=None, suppress_health_check=_SLOW_MACHINE)  # quick feedback
settings.load_profile("whole")

# Tests run many queries once over few rows: compiling them well costs more than running them.
os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session", autouse=True)
def cache_of_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder of the tests' own, that of processes which they start too."""
    os.environ["HEADRACE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


LONGEST_FIRST = (
    "tests/airflow/test_end_to_end.py",
    "tests/snapshots/test_interleavings.py",
    "tests/airflow/test_scheduled_backfill.py",
    "tests/flights/test_truth.py",
    "tests/browser/test_forms.py",
    "tests/faults/test_corruption.py",
    "tests/tooling/test_benchmarks.py",
    "tests/process/test_changing_files.py",
    "tests/airflow/test_secrets.py",
    "tests/read/test_pruning.py",
    "tests/browser/test_pages.py",
    "tests/conformance/test_local.py",
    "tests/cluster/test_headrace_on_a_cluster.py",
    "tests/read/test_elsewhere.py",
    "tests/airflow/test_seeded_kills.py",
    "tests/conformance/test_spark.py",
    "tests/airflow/test_local_tasks.py",
    "tests/audit/test_run_audit.py",
    "tests/cluster/test_spark_cluster.py",
    "tests/simulation/test_properties.py",
    "tests/airflow/test_tasks.py",
    "tests/audit/test_large.py",
    "tests/tooling/test_packaging.py",
    "tests/process/test_crash.py",
    "tests/cli/test_ways_out.py",
    "tests/faults/test_kills.py",
    "tests/airflow/test_recovery.py",
    "tests/faults/test_spark_kills.py",
    "tests/faults/test_storage.py",
    "tests/process/test_released.py",
    "tests/airflow/test_decisions.py",
    "tests/additions/test_outside.py",
    "tests/airflow/test_pages.py",
    "tests/process/test_upgrades.py",
    "tests/process/test_patching.py",
    "tests/read/test_names.py",
    "tests/kernel/test_calls.py",
    "tests/process/test_upkeep.py",
    "tests/spark/test_memory.py",
    "tests/process/test_backfill_range.py",
    "tests/cluster/test_connect.py",
    "tests/kernel/test_equal_hashes.py",
    "tests/flights/test_reference_truth.py",
    "tests/process/test_backfill_cuts.py",
    "tests/cli/test_starting.py",
    "tests/process/test_replay.py",
    "tests/docs/test_pages.py",
    "tests/cli/test_lost_entries.py",
    "tests/airflow/test_dags.py",
)
"""Those that wait for others (Airflow, browsers, clusters) between those that compute: beside each other they use both
cores.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: of the processes beside each other none is left with one of them at the end."""
    rank = {file: place for place, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.location[0], len(rank)))


def pytest_collection() -> None:
    """Collecting makes what stays: there is nothing to look for meanwhile."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was collected lives to the end: without this the collector looks through it in every other test, and pytest
    ten times at the end. Libraries count what was not let go of when a process ends: then it is looked through.
    """
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)


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


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Executed:
    """``local``, or what ``on_both`` says."""
    name = getattr(request, "param", "local")
    return Executed(name, request.getfixturevalue("spark") if name == "spark" else None)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whole runs take their time."""
    if "executor" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)
