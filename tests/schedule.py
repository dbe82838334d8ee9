"""Which tests share a process, of those beside each other, and which come first."""

import re
from collections.abc import Iterable

import pytest

LONGEST_FIRST = (
    "tests/airflow/test_seeded_kills.py",
    "tests/airflow/test_end_to_end.py",
    "tests/browser/test_forms.py",
    "tests/browser/test_pages.py",
    "tests/snapshots/test_interleavings.py",
    "tests/sinks/test_conformance.py",
    "tests/sources/test_kafka.py",
    "tests/airflow/test_scheduled_backfill.py",
    "tests/flights/test_truth.py",
    "tests/faults/test_corruption.py",
    "tests/tooling/test_benchmarks.py",
    "tests/process/test_changing_files.py",
    "tests/airflow/test_secrets.py",
    "tests/read/test_pruning.py",
    "tests/conformance/test_local.py",
    "tests/cluster/test_headrace_on_a_cluster.py",
    "tests/read/test_elsewhere.py",
    "tests/process/test_adopting.py",
    "tests/airflow/test_watching.py",
    "tests/process/test_parked.py",
    "tests/conformance/test_spark.py",
    "tests/airflow/test_local_tasks.py",
    "tests/audit/test_run_audit.py",
    "tests/process/test_loops.py",
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

_ON_SPARK = re.compile(r"on_spark|[\[-]spark[\]-]")
_SPARK_FILES = (
    "tests/audit/test_large.py",
    "tests/read/test_elsewhere.py",
    "tests/sinks/test_spark_conformance.py",
    "tests/sources/test_conformance.py",
    "tests/sources/test_spark_source.py",
    "tests/spark/",
)
_SPARK = "the session of Spark"
_KAFKA_FILES = (
    "tests/sources/test_kafka",
    "tests/sources/test_avro_topic.py",
    "tests/sources/test_bad_broker.py",
    "tests/sources/test_watched_topic.py",
    "tests/sinks/test_kafka_",
)
_ON_KAFKA = re.compile(r"[\[-]broker[\]-]")
_KAFKA = "the broker of Kafka"
_BROWSER = "tests/browser/"
_DISTURBED_FILES = ("tests/airflow/test_seeded_kills.py", "tests/airflow/test_end_to_end.py")
_DISTURBED_GROUP = "the Airflow in which processes are killed"
"""The second of them stops it."""


def process_of(nodeid: str) -> str:
    """What a test shares its process with: its file; what the session of Spark computes, and what a broker has, have
    one each, since a JVM takes long to start and to become quick; and so have files that share an Airflow.
    """
    file, _, test = nodeid.partition("::")
    if file.startswith(_SPARK_FILES) or _ON_SPARK.search(test):
        return _SPARK
    if file.startswith(_BROWSER):
        return _BROWSER
    if file in _DISTURBED_FILES:
        return _DISTURBED_GROUP
    is_on_kafka = file.startswith(_KAFKA_FILES) or _ON_KAFKA.search(test)
    return _KAFKA if is_on_kafka else file  # it takes half a minute of a core


def needs_broker(item: pytest.Item) -> bool:
    """Whether a test has the broker of Kafka: by a fixture, or by a parameter that names one."""
    return "broker" in getattr(item, "fixturenames", ()) or _ON_KAFKA.search(item.nodeid) is not None


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Where a file is for one process, ``process_of`` says what else is."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Schedule(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return process_of(nodeid)

    return Schedule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: of the processes beside each other none is left with one of them at the end."""
    rank = {file: place for place, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def check_processes(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError if a test would start a second session of Spark, or one more broker."""
    for item in items:
        fixtures, process = getattr(item, "fixturenames", ()), process_of(item.nodeid)
        if "spark" in fixtures and process != _SPARK:
            raise pytest.UsageError(f"{item.nodeid}: call a test of Spark's session by on_spark (tests/schedule.py)")
        if needs_broker(item) and process not in (_KAFKA, _SPARK):
            raise pytest.UsageError(f"{item.nodeid}: name the file in _KAFKA_FILES (tests/schedule.py)")
