"""The Spark job of an epoch by its name: what it is called in Spark's own pages, and which of its stages run now."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from headrace.distribute.spark.application import is_connected
from headrace.distribute.spark.types import SparkSession

_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


@dataclass(frozen=True)
class StageTasks:
    """How many of the ``tasks`` of a stage of Spark's are ``done``."""

    done: int
    tasks: int


@dataclass(frozen=True)
class EpochJob:
    """The job that a thread runs for an epoch, in a ``group`` of Spark's; None for sessions of Spark Connect, whose
    client cannot ask for it.
    """

    spark: SparkSession
    group: str | None

    @classmethod
    @contextmanager
    def running(cls, spark: SparkSession, description: str) -> Iterator[Self]:
        """While inside, jobs of this thread have that ``description``. A group that a caller has set stays: by it the
        caller may cancel what it has started.
        """
        if is_connected(spark):
            yield cls(spark, None)
            return
        context = spark.sparkContext
        names = (_GROUP, _DESCRIPTION)
        before = {name: context.getLocalProperty(name) for name in names}
        group = before[_GROUP] or f"headrace-{uuid.uuid4().hex}"
        context.setLocalProperty(_GROUP, group)
        context.setLocalProperty(_DESCRIPTION, description)
        try:
            yield cls(spark, group)
        finally:
            for name in names:
                # the typing of pyspark forgets that None clears a property
                context.setLocalProperty(name, before[name])  # type: ignore[arg-type]

    def stages(self) -> list[StageTasks]:
        """The stages of the newest job that runs, in their order; none before it has begun."""
        if self.group is None:
            return []
        tracker = self.spark.sparkContext.statusTracker()
        jobs = {number: tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self.group)}
        running = [number for number, job in jobs.items() if job is not None and job.status == "RUNNING"]
        newest = jobs[max(running)] if running else None
        stages = [] if newest is None else [tracker.getStageInfo(stage) for stage in sorted(newest.stageIds)]
        return [StageTasks(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
