"""Epochs of one pipeline in this process, without a JVM."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headrace.distribute.epoch import Attempts
from headrace.distribute.local.runner import Threads, cores
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.settings import stated_tasks
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace.state.datafiles.cache import RowCache
from headrace_snapshots.store import ObjectStore

P = ParamSpec("P")
R = TypeVar("R")


class LocalTransformError(FixConfigError, code="config.needs_spark"):
    """A pipeline names Spark code of its own, which needs Spark."""


class LocalEngine(TasksEngine):
    """The state of one pipeline in this process; ``cache`` holds its rows, None: that of the process."""

    executor = "local"

    def __init__(
        self,
        pipeline: Pipeline,
        store: ObjectStore,
        landing: Landing,
        attempts: Attempts,
        cache: RowCache | None = None,
    ) -> None:
        for function in pipeline.spark_functions:
            raise LocalTransformError(
                f"pipeline {pipeline.name} sends rows through {function.name}, which is Spark code: "
                "run it with --executor spark"
            )
        work = TaskEnvironment.of(pipeline, store, landing, cache)
        super().__init__(work, attempts, Threads(work, stated_tasks() or cores()))

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` itself."""
        return run
