"""An epoch is one Spark job with the same small plan every time, and nothing but blobs crosses its exchanges."""

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.distribute.spark import runner
from headrace.distribute.spark.types import DataFrame, SparkSession
from headrace.distribute.tasks.exchange import SCHEMA
from headrace.pipeline.executors import Executor
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, FILES, land, truth
from tests.process.test_local import current

pytestmark = pytest.mark.spark


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plans of all jobs from now on."""
    seen: list[str] = []
    heard = runner._heard

    def remember(rows: DataFrame, tasks: int) -> Any:
        frame: Any = rows
        seen.append(frame._jdf.queryExecution().executedPlan().toString())
        return heard(rows, tasks)

    monkeypatch.setattr(runner, "_heard", remember)
    return seen


def shape(plan: str) -> list[str]:
    """The operators of a plan, without the numbers that Spark gives to columns."""
    return [re.sub(r"#\d+L?|\[plan_id=\d+\]|\(\d+\)", "", line).strip() for line in plan.splitlines()]


def run(root: Path, spark: SparkSession, group: str) -> int:
    """A run; how many jobs it was."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    try:
        process(CLICKS, root.as_uri(), RunOptions(group, executor=Executor.SPARK), spark=spark)
        return len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_an_epoch_is_one_job_of_one_shape_and_only_blobs_cross(
    spark: SparkSession, tmp_path: Path, plans: list[str]
) -> None:
    land(tmp_path)
    assert run(tmp_path, spark, "one-stage") == FILES
    assert len(plans) == FILES
    first = shape(plans[0])
    assert all(shape(plan) == first for plan in plans)
    assert len([line for line in first if "MapInArrow" in line]) == 2
    exchanges = [line for line in first if "Exchange" in line]
    assert len(exchanges) == 1
    crossing = first[first.index(exchanges[0]) + 1]
    assert f"[{', '.join(SCHEMA.names)}]" in crossing


def test_layers_merge_in_jobs_beside_the_epochs(
    spark: SparkSession, tmp_path: Path, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_snapshots.format.layers.FANOUT", 2)
    land(tmp_path)
    assert run(tmp_path, spark, "merging") == FILES, "an epoch is one job, whatever is merged"
    catalog = Catalog(open_store(tmp_path.as_uri()), CLICKS.name)
    layers = catalog.manifest(catalog.head().refs["main"]).tables["state"]
    assert len(layers) < FILES
    assert len([plan for plan in plans if plan.count("MapInArrow") == 1]) > 0, "merges are jobs of their own"
    assert current(CLICKS, tmp_path) == truth()
