"""An epoch is one Spark job of the same levels every time, and nothing but blobs crosses its exchanges."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headrace import Aggregation, Deduplicate, FixedWindows, Pipeline, col, count
from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.blobs import PlainJobs
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, FILES, land, truth
from tests.process.test_local import current
from tests.process.test_outputs_below import GRAPH

pytestmark = pytest.mark.spark

DEEP = replace(
    CLICKS,
    deduplicate=Deduplicate("user", "1d"),
    then=[Aggregation(what={"users": count(), "spent": col("spent").sum()}, where=FixedWindows("1h"))],
)
"""With a level of tasks by id, and two by key."""

TASKS, EXCHANGE = "PythonRDD", "ShuffledRDD"


@dataclass(frozen=True)
class Lineage:
    """What Spark makes the rows of a job of, level by level, the last first: kinds, and how many parts each has."""

    kinds: list[str]
    parts: list[int]

    @classmethod
    def from_rows(cls, rows: Any) -> "Lineage":
        nodes = list(ancestors(rows._jrdd.rdd()))
        return cls([node.getClass().getSimpleName() for node in nodes], [node.getNumPartitions() for node in nodes])

    def count(self, kind: str) -> int:
        return self.kinds.count(kind)


def ancestors(rdd: Any) -> Iterator[Any]:
    yield rdd
    dependencies = rdd.dependencies()
    for place in range(dependencies.size()):
        yield from ancestors(dependencies.apply(place).rdd())


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Lineage]:
    """The lineages of all jobs from now on."""
    seen_jobs: list[Lineage] = []
    collect_rows = PlainJobs.collect_rows

    def remember(self: PlainJobs, name: str, rows: Any) -> Any:
        seen_jobs.append(Lineage.from_rows(rows))
        return collect_rows(self, name, rows)

    monkeypatch.setattr(PlainJobs, "collect_rows", remember)
    return seen_jobs


def plans_of_sql(spark: SparkSession) -> int:
    """How many plans of SQL the application has run."""
    return int(spark._jsparkSession.sharedState().statusStore().executionsCount())


def run(root: Path, spark: SparkSession, group: str, pipeline: Pipeline = CLICKS) -> int:
    """A run; how many jobs it was."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    try:
        process(pipeline, root.as_uri(), RunOptions(group, executor="spark"), spark=spark)
        return len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_an_epoch_is_one_job_of_one_shape_and_only_blobs_cross(
    spark: SparkSession, tmp_path: Path, jobs: list[Lineage]
) -> None:
    land(tmp_path)
    plans_before = plans_of_sql(spark)
    assert run(tmp_path, spark, "one-stage") == FILES
    assert len(jobs) == FILES
    assert all(job == jobs[0] for job in jobs)
    assert (jobs[0].count(TASKS), jobs[0].count(EXCHANGE)) == (2, 1)
    assert plans_of_sql(spark) == plans_before


def test_between_all_levels_of_tasks_only_blobs_cross(spark: SparkSession, tmp_path: Path, jobs: list[Lineage]) -> None:
    land(tmp_path, 0, 2)
    assert run(tmp_path, spark, "three-levels", DEEP) == 2
    for job in jobs:
        assert (job.count(TASKS), job.count(EXCHANGE)) == (4, 3)
        # no row is looked at between the tasks: neither joined nor grouped nor sorted
        assert set(job.kinds) - {TASKS, EXCHANGE} <= {"PairwiseRDD", "MapPartitionsRDD", "ParallelCollectionRDD"}


def test_an_epoch_is_one_job_for_each_step_from_outputs_to_those_that_read_them(
    spark: SparkSession, tmp_path: Path, jobs: list[Lineage]
) -> None:
    """However many outputs there are, and however many an output unites: GRAPH has five, in three steps."""
    land(tmp_path, 0, 2)
    assert run(tmp_path, spark, "outputs", GRAPH) == 2 * 3
    assert [job.count(EXCHANGE) for job in jobs] == [2, 1, 1] * 2, "daily has two aggregations, in the first job"


def test_each_output_has_tasks_of_its_own_in_the_steps_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """One part of keys each while there is little state: as many tasks as outputs, not as outputs times cores."""
    land(tmp_path, 0, 1)
    assert run(tmp_path, spark, "tasks", GRAPH) == 3
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup("tasks"))]
    stages = [[tracker.getStageInfo(stage) for stage in sorted(job.stageIds)] for job in jobs if job is not None]
    tasks = [[stage.numTasks for stage in of_job if stage is not None] for of_job in stages]
    assert tasks == [[1, 3, 1], [1, 1], [2, 1]], "shares of files; hourly, visits, daily; its second aggregation; ..."


@set_sizes(fanout=2)
def test_layers_merge_in_jobs_beside_the_epochs(spark: SparkSession, tmp_path: Path, jobs: list[Lineage]) -> None:
    land(tmp_path)
    assert run(tmp_path, spark, "merging") == FILES, "an epoch is one job, whatever is merged"
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = catalog.manifest(catalog.head().refs["main"]).tables["state"]
    assert len(layers) < FILES
    assert [job.count(EXCHANGE) for job in jobs].count(0) > 0, "merges are jobs of their own"
    assert current(CLICKS, tmp_path) == truth()
