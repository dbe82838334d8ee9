"""Which tests share a process, of those beside each other, and which come first."""

import re
from collections.abc import Iterable

import pytest

LONGEST_WAITS_FIRST = (
    "tests/airflow/test_seeded_kills.py",
    "tests/airflow/test_end_to_end.py",
    "tests/airflow/test_scheduled_backfill.py",
    "tests/airflow/test_following.py",
    "tests/browser/test_forms.py",
    "tests/browser/test_pages.py",
    "tests/airflow/test_secrets.py",
    "tests/airflow/test_watching.py",
    "tests/sinks/test_bad_servers.py",
    "tests/faults/test_storage.py",
    "tests/faults/test_restarts.py",
    "tests/sinks/test_demo_reach.py",
)
"""Those that wait most of their time: for Airflow, browsers, servers that do not answer."""
LONGEST_FIRST = (
    "tests/sources/test_kafka.py",  # and all that needs the broker; its own session of Spark ends before that of others
    "tests/conformance/test_spark.py",  # and all that needs the session of Spark
    "tests/tooling/test_benchmarks.py",
    "tests/airflow/test_dag_files.py",  # and all that runs scripts with Airflow
    "tests/conformance/test_local.py",
    "tests/sinks/test_conformance.py",
    "tests/cluster/test_headrace_on_a_cluster.py",
    "tests/process/test_process_locale.py",
    "tests/joins/test_step.py",
    "tests/process/test_adopting.py",
    "tests/pipeline/test_mistakes.py",
    "tests/sources/test_spark_source_on_postgres.py",
    "tests/cluster/test_spark_cluster.py",
    "tests/joins/test_patched_joins.py",
    "tests/rows/test_row_histories.py",
    "tests/tooling/test_packaging.py",
    "tests/sinks/test_own_sink.py",
    "tests/faults/test_kills.py",
    "tests/rows/test_patched_histories.py",
    "tests/process/test_recover_with_readers.py",
    "tests/faults/test_corruption.py",
    "tests/read/test_pruning.py",
    "tests/process/test_published.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_nexmark.py",
    "tests/state/test_memory.py",
    "tests/flights/test_truth.py",
    "tests/snapshots/test_interleavings.py",
    "tests/additions/test_outside.py",
    "tests/process/test_paced_runs.py",
    "tests/joins/test_duckdb.py",
    "tests/sources/test_landed_damage.py",
    "tests/process/test_outputs.py",
    "tests/loops/test_parked.py",
    "tests/process/test_backfill_range.py",
    "tests/kernel/test_calls.py",
    "tests/audit/test_nan.py",
    "tests/process/test_parked.py",
    "tests/process/test_upkeep.py",
    "tests/versions/test_histories.py",
    "tests/process/test_unions.py",
    "tests/sinks/test_against.py",
    "tests/process/test_changing_files.py",
    "tests/read/test_names.py",
    "tests/process/test_loops.py",
    "tests/cluster/test_connect.py",
    "tests/simulation/test_properties.py",
    "tests/joins/test_random_joins.py",
    "tests/process/test_many_parts.py",
    "tests/cli/test_starting.py",
    "tests/process/test_random_runs.py",
    "tests/rows/test_lists.py",
    "tests/rows/test_nested_functions.py",
    "tests/joins/test_nested.py",
    "tests/rows/test_delivered_rows.py",
    "tests/loops/test_examples.py",
    "tests/additions/test_inside.py",
    "tests/sinks/test_iceberg.py",
    "tests/rows/test_random_rows.py",
    "tests/sinks/test_spark_sink.py",
    "tests/additions/test_registries.py",
)
"""Of those that compute."""
_COMPUTING = 2
"""So many processes take these first, as many as CI has cores; further ones take first those that wait. Beside each
other both kinds use the cores all the time.
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
_SCRIPTS = "tests/airflow/"
_SCRIPTS_GROUP = "the process that scripts with Airflow are forks of"
_OWN_AIRFLOW = ("test_secrets.py", "test_watching.py")
"""Files of that folder that start an Airflow, and run no script."""
_QUIET_FILES = ("tests/airflow/test_scheduled_backfill.py", "tests/airflow/test_following.py")
_QUIET_GROUP = "the Airflow in which no process is killed"
_DISTURBED_FILES = ("tests/airflow/test_seeded_kills.py", "tests/airflow/test_end_to_end.py")
_DISTURBED_GROUP = "the Airflow in which processes are killed"
"""Of both kinds the second stops it."""


def process_of(nodeid: str) -> str:
    """What a test shares its process with: its file; what the session of Spark computes, and what a broker has, have
    one each, since a JVM takes long to start and to become quick; and so have files that share an Airflow, or the
    process that has imported its libraries.
    """
    file, _, test = nodeid.partition("::")
    if file.startswith(_SPARK_FILES) or _ON_SPARK.search(test):
        return _SPARK
    if file.startswith(_BROWSER):
        return _BROWSER
    if file in _DISTURBED_FILES:
        return _DISTURBED_GROUP
    if file in _QUIET_FILES:
        return _QUIET_GROUP
    if file.startswith(_SCRIPTS) and not file.endswith(_OWN_AIRFLOW):
        return _SCRIPTS_GROUP
    is_on_kafka = file.startswith(_KAFKA_FILES) or _ON_KAFKA.search(test)
    return _KAFKA if is_on_kafka else file  # it takes half a minute of a core


def needs_broker(item: pytest.Item) -> bool:
    """Whether a test has the broker of Kafka: by a fixture, or by a parameter that names one."""
    return "broker" in getattr(item, "fixturenames", ()) or _ON_KAFKA.search(item.nodeid) is not None


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Where a file is for one process, ``process_of`` says what else is, and ``_COMPUTING`` who takes which next."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

    waiting = {process_of(file) for file in LONGEST_WAITS_FIRST}

    class Schedule(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return process_of(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            waits = self.nodes.index(node) >= _COMPUTING
            first_scope = next((scope for scope in self.workqueue if (scope in waiting) == waits), None)
            if first_scope is not None:
                self.workqueue.move_to_end(first_scope, last=False)
            super()._assign_work_unit(node)

    return Schedule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: of the processes beside each other none is left with one of them at the end."""
    rank = {file: place for place, file in enumerate((*LONGEST_WAITS_FIRST, *LONGEST_FIRST))}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


def check_processes(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError if a test would start a second session of Spark, or one more broker."""
    for item in items:
        fixtures, process = getattr(item, "fixturenames", ()), process_of(item.nodeid)
        if "spark" in fixtures and process != _SPARK:
            raise pytest.UsageError(f"{item.nodeid}: call a test of Spark's session by on_spark (tests/schedule.py)")
        if needs_broker(item) and process not in (_KAFKA, _SPARK):
            raise pytest.UsageError(f"{item.nodeid}: name the file in _KAFKA_FILES (tests/schedule.py)")
