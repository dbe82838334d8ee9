"""An epoch is one Spark job with the same small plan every time, and nothing but blobs crosses its exchanges."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace import Aggregation, Deduplicate, FixedWindows, Pipeline, col, count
from headrace.distribute.spark import engine
from headrace.distribute.spark.application import DataFrame, SparkSession
from headrace.distribute.tasks.exchange import SCHEMA
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

BLOBS = from_arrow_schema(SCHEMA)


@dataclass(frozen=True)
class Plan:
    """The physical plan of a job: as text, the names of its operators, and the columns that each exchange carries."""

    text: str
    operators: list[str]
    exchanged: list[StructType]

    @classmethod
    def from_rows(cls, rows: Any) -> "Plan":
        root = rows._jdf.queryExecution().executedPlan()
        nodes = list(nodes_of(root))
        exchanges = [node for node in nodes if "Exchange" in node.nodeName()]
        carried_schemas = [StructType.fromJson(json.loads(node.schema().json())) for node in exchanges]
        return cls(root.toString(), [node.nodeName() for node in nodes], carried_schemas)


def nodes_of(plan: Any) -> Iterator[Any]:
    yield plan
    for place in range(plan.children().size()):
        yield from nodes_of(plan.children().apply(place))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The physical plans of all jobs from now on."""
    seen_plans: list[Plan] = []
    collect_messages = engine._collect_messages

    def remember(rows: DataFrame, tasks: int) -> Any:
        seen_plans.append(Plan.from_rows(rows))
        return collect_messages(rows, tasks)

    monkeypatch.setattr(engine, "_collect_messages", remember)
    return seen_plans


def shape(plan: Plan) -> list[str]:
    """The operators of a plan, without the numbers that Spark gives to columns."""
    return [re.sub(r"#\d+L?|\[plan_id=\d+\]|\(\d+\)", "", line).strip() for line in plan.text.splitlines()]


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
    spark: SparkSession, tmp_path: Path, plans: list[Plan]
) -> None:
    land(tmp_path)
    assert run(tmp_path, spark, "one-stage") == FILES
    assert len(plans) == FILES
    first = shape(plans[0])
    assert all(shape(plan) == first for plan in plans)
    assert plans[0].operators.count("MapInArrow") == 2
    assert plans[0].exchanged == [BLOBS]


def test_between_all_levels_of_tasks_only_blobs_cross(spark: SparkSession, tmp_path: Path, plans: list[Plan]) -> None:
    land(tmp_path, 0, 2)
    assert run(tmp_path, spark, "three-levels", DEEP) == 2
    for plan in plans:
        assert plan.operators.count("MapInArrow") == 4
        assert plan.exchanged == [BLOBS, BLOBS, BLOBS]
        # no row is looked at between the tasks: neither joined nor grouped nor sorted
        assert set(plan.operators) - {"MapInArrow", "Exchange"} <= {"Project", "Range", "WholeStageCodegen (1)"}


def test_an_epoch_is_one_job_for_each_step_from_outputs_to_those_that_read_them(
    spark: SparkSession, tmp_path: Path, plans: list[Plan]
) -> None:
    """However many outputs there are, and however many an output unites: GRAPH has five, in three steps."""
    land(tmp_path, 0, 2)
    assert run(tmp_path, spark, "outputs", GRAPH) == 2 * 3
    assert [len(plan.exchanged) for plan in plans] == [2, 1, 1] * 2, "daily has two aggregations, in the first job"
    assert {*(kind for plan in plans for kind in map(str, plan.exchanged))} == {str(BLOBS)}


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
def test_layers_merge_in_jobs_beside_the_epochs(spark: SparkSession, tmp_path: Path, plans: list[Plan]) -> None:
    land(tmp_path)
    assert run(tmp_path, spark, "merging") == FILES, "an epoch is one job, whatever is merged"
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = catalog.manifest(catalog.head().refs["main"]).tables["state"]
    assert len(layers) < FILES
    assert len([plan for plan in plans if plan.operators.count("MapInArrow") == 1]) > 0, "merges are jobs of their own"
    assert current(CLICKS, tmp_path) == truth()
