"""Epochs of one pipeline in a Spark application."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headrace.distribute.epoch import Attempts
from headrace.distribute.spark.application import bring_packages, in_background_pool, tasks_of
from headrace.distribute.spark.runner import SparkRunner
from headrace.distribute.spark.types import SparkSession
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace_snapshots.store import ObjectStore, scheme_of

P = ParamSpec("P")
R = TypeVar("R")


class SparkEngine(TasksEngine):
    """The state of one pipeline in one Spark application. Raises typed errors (``distribute.spark.errors``)."""

    executor = "spark"

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, store: ObjectStore, landing: Landing, attempts: Attempts
    ) -> None:
        for uri in (store.uri, *landing.uris):
            if not scheme_of(uri).is_shared:
                raise FixConfigError(f"tasks cannot reach {uri}: use a root that starts with file:// or s3://")
        bring_packages(spark)
        work = TaskEnvironment.of(pipeline, store, landing)
        super().__init__(work, attempts, SparkRunner(spark, work, tasks_of(spark)))
        self._spark = spark

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own, whose Spark jobs share the cores fairly with the epoch being computed."""
        return in_background_pool(self._spark, run)
