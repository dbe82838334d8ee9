"""Epochs of one pipeline in a Spark application: each a small job, whose levels are the same in every epoch.

An exchange repartitions what it carries by part, and no row of it is anything but a blob to Spark. So jobs are plain
ones (``blobs``). Spark Connect has none of these, and a user's own Spark code gets and gives frames: then levels are
frames, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.distribute.epoch import Attempts
from headrace.distribute.process import Stop
from headrace.distribute.spark import application
from headrace.distribute.spark.blobs import PlainJobs
from headrace.distribute.spark.failures import spark_errors
from headrace.distribute.spark.frames import apply_function
from headrace.distribute.spark.session import EXCHANGE
from headrace.distribute.tasks import levels
from headrace.distribute.tasks import plan as task_plan
from headrace.distribute.tasks.background import FoldPlan, MergePlan
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.exchange import PLACE, SCHEMA, ReceivedMessage, receive_messages
from headrace.distribute.tasks.map_side import read_rows
from headrace.distribute.tasks.tables import leaving_schema, read_panes
from headrace.errors import FixConfigError
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.endpoints import Input, SparkFunction
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import LevelProgress
from headrace.sources.landing import Landing
from headrace_snapshots.store import ObjectStore, scheme_of

_EXCHANGE_TYPE = from_arrow_schema(SCHEMA)
_TASKS = 1_000_000
"""Tasks over rows that a user's own code made are numbered from a multiple of it on."""


class SparkRunner:
    """Runs ``work`` in ``spark``, so many ``tasks`` beside each other; ``map_level`` runs those of the first level."""

    is_elsewhere = True

    def __init__(
        self,
        spark: application.SparkSession,
        work: task_plan.TaskEnvironment,
        tasks: int,
        map_level: levels.MapLevel = levels.map_level,
    ) -> None:
        self._spark = spark
        self._work = work
        self._payload = application.TaskPayload.from_environment(spark, work)
        has_frames = application.is_connected(spark) or bool(work.pipeline.spark_functions)
        self._jobs: Any = FrameJobs.in_session(spark) if has_frames else PlainJobs(spark.sparkContext)
        self._tasks = tasks
        self._map_level = map_level
        self._under_way: tuple[task_plan.EpochPlan, application.EpochJob] | None = None

    def task_count(self, size: int) -> int:
        """All of them: which of them had little to do shows in no figure."""
        del size
        return self._tasks

    def run_epoch(self, plan: task_plan.EpochPlan) -> Sequence[ReceivedMessage]:
        first, *later_levels = task_plan.level_names(self._work, plan)
        job_description = f"{self._work.pipeline.name}, epoch {plan.epoch}: {', then '.join((first, *later_levels))}"
        with spark_errors(), application.EpochJob.label_jobs(self._spark, job_description) as job:
            self._under_way = plan, job
            try:
                rows = self._map_panes(plan, first) if plan.job else self._map_inputs(plan, first)
                last = first
                for level, name in enumerate(later_levels):
                    parts = self._jobs.shuffle_rows(last, rows, levels.tasks_at(self._work, plan, level))
                    rows, last = self._run_tasks(name, parts, levels.level_below, plan, level), name
                return self._collect_messages(last, rows, levels.tasks_above(self._work, plan, len(later_levels)))
            finally:
                self._under_way = None

    def find_level(self) -> LevelProgress | None:
        """The level whose tasks run now. A user's own code may give the first one several stages of Spark's."""
        under_way = self._under_way
        if under_way is None or under_way[1].group is None:
            return None
        plan, job = under_way
        with spark_errors():
            stages = job.running_stages()
        if not stages:
            return task_plan.progress_at(self._work, plan, 0, 0, 0)
        stage_number = next(
            (number for number, stage in enumerate(stages) if stage.done < stage.tasks), len(stages) - 1
        )
        of_first = len(stages) - levels.levels_below(self._work, plan)
        return task_plan.progress_at(
            self._work, plan, max(0, stage_number - of_first + 1), stages[stage_number].done, stages[stage_number].tasks
        )

    def _map_inputs(self, plan: task_plan.EpochPlan, name: str) -> Any:
        rows = self._run_tasks(name, self._task_numbers(len(plan.shares)), self._map_level, plan)
        for number, input_ in enumerate(self._work.pipeline.inputs, 1):
            read = any(piece.input == input_.name for share in plan.shares for piece in share)
            if isinstance(input_.source.transform, SparkFunction) and read:
                run = self._payload.task_function(read_input, plan, input_.name)
                columns = self._task_numbers(len(plan.shares)).mapInArrow(run, _row_type(input_))
                rows_made = apply_function(input_.source.transform, columns)
                rows = rows.union(self._run_tasks(name, rows_made, map_made, plan, input_.name, number * _TASKS))
        return rows

    def _map_panes(self, plan: task_plan.EpochPlan, name: str) -> Any:
        work = self._work
        rows = self._run_tasks(
            name, self._task_numbers(task_plan.tasks_of_first_level(work, plan)), levels.map_level, plan
        )
        for number in task_plan.through_spark(work, plan):
            elements = [place for place, panes in enumerate(plan.elements) if panes.chain == number]
            if elements:
                chain, first = work.chains[number], work.jobs[plan.job].stage_at(number, 0)
                transform = chain.stages[first].stage.aggregation.transform
                assert isinstance(transform, SparkFunction)
                schema = from_arrow_schema(leaving_schema(chain.stages[first - 1]))
                files = self._task_numbers(len(elements), first=elements[0])
                transformed_rows = apply_function(
                    transform, files.mapInArrow(self._payload.task_function(read_elements, plan), schema)
                )
                base = (number + 1) * _TASKS
                rows = rows.union(self._run_tasks(name, transformed_rows, map_made, plan, chain.names.output, base))
        return rows

    def run_merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        return self._run_beside_epoch("merging layers", levels.merge_level, plan, len(plan.parts), stop)

    def run_fold(self, plan: FoldPlan, stop: Stop) -> Sequence[ReceivedMessage]:
        return self._run_beside_epoch("folding current", levels.fold_level, plan, len(plan.numbers), stop)

    def _run_beside_epoch(
        self,
        name: str,
        level: Callable[..., Iterator[pa.RecordBatch]],
        plan: MergePlan | FoldPlan,
        count: int,
        stop: Stop,
    ) -> Sequence[ReceivedMessage]:
        """What so many tasks say, which share the cores fairly with the epoch being computed."""

        def run_tasks() -> Sequence[ReceivedMessage]:
            return self._collect_messages(name, self._run_tasks(name, self._task_numbers(count), level, plan), count)

        with spark_errors(), application.interrupt_on_stop(self._spark, stop):
            return application.in_background_pool(self._spark, run_tasks)()

    def _task_numbers(self, count: int, *, first: int = 0) -> Any:
        return self._jobs.number_tasks(count, first=first)

    def _run_tasks(self, name: str, rows: Any, run: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> Any:
        """``rows`` through tasks that ``run``; Spark's pages have them by ``name``."""
        return self._jobs.run_tasks(name, rows, self._payload.task_function(run, *arguments))

    def _collect_messages(self, name: str, rows: Any, tasks: int) -> Sequence[ReceivedMessage]:
        """Run the job whose last level made ``rows`` under that ``name``: what so many tasks say."""
        return receive_messages(self._jobs.collect_rows(name, rows), tasks)


@dataclass(frozen=True)
class FrameJobs:
    """Makes jobs of levels of tasks as frames, as ``PlainJobs`` does. Plans in Spark's pages have their names."""

    spark: application.SparkSession

    @classmethod
    def in_session(cls, spark: application.SparkSession) -> Self:
        for name, value in EXCHANGE.items():  # a session that was brought may have others
            spark.conf.set(name, value)
        return cls(spark)

    def number_tasks(self, count: int, *, first: int = 0) -> application.DataFrame:
        return self.spark.range(first, first + count, 1, count)

    def run_tasks(
        self, name: str, rows: application.DataFrame, task_function: Callable[..., Iterator[pa.RecordBatch]]
    ) -> application.DataFrame:
        task_function.__name__ = name
        return rows.mapInArrow(task_function, _EXCHANGE_TYPE)

    def shuffle_rows(self, name: str, rows: application.DataFrame, parts: int) -> application.DataFrame:
        del name
        return rows.repartitionById(parts, "part")

    def collect_rows(self, name: str, rows: application.DataFrame) -> list[pa.RecordBatch]:
        del name
        table: Any = rows.toArrow()
        batches: list[pa.RecordBatch] = table.to_batches()
        return batches


def read_input(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, name: str, numbers: levels.RowBatches
) -> Iterator[pa.RecordBatch]:
    """The records of an input in the shares whose ``numbers`` the first column has, as rows of Spark's."""
    for number in levels.numbers_in(numbers):
        yield from read_rows(task_plan.EpochTask(plan, work, number), name)


def read_elements(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, numbers: levels.RowBatches
) -> Iterator[pa.RecordBatch]:
    """The panes in the files whose ``numbers`` the first column has."""
    for number in levels.numbers_in(numbers):
        yield from read_panes(task_plan.EpochTask(plan, work, number))


def map_made(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, name: str, base: int, batches: levels.RowBatches
) -> Iterator[pa.RecordBatch]:
    """What is said of a partition of rows that a user's own code made."""
    context = TaskContext.get()
    assert context is not None
    yield from levels.rows_level(work, plan, name, base + context.partitionId(), batches)


def _row_type(input_: Input) -> StructType:
    columns = {**dict.fromkeys(PLACE, DataType.INT), **input_.source.types}
    return StructType([StructField(name, application.spark_type(kind)) for name, kind in columns.items()])


P = ParamSpec("P")
R = TypeVar("R")


class SparkEngine(TasksEngine):
    """The state of one pipeline in one Spark application. Raises typed errors (``distribute.spark.jvm``)."""

    executor = "spark"

    def __init__(
        self,
        spark: application.SparkSession,
        pipeline: Pipeline,
        store: ObjectStore,
        landing: Landing,
        attempts: Attempts,
    ) -> None:
        for uri in (store.uri, *landing.uris):
            if not scheme_of(uri).is_shared:
                raise FixConfigError(f"tasks cannot reach {uri}: use a root that starts with file:// or s3://")
        application.bring_packages(spark)
        work = task_plan.TaskEnvironment.from_pipeline(pipeline, store, landing)
        super().__init__(work, attempts, SparkRunner(spark, work, application.tasks_of(spark)))
        self._spark = spark

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` for a thread of its own, whose Spark jobs share the cores fairly with the epoch being computed."""
        return application.in_background_pool(self._spark, run)
