"""The tasks of an epoch as one small Spark job, whose plan is the same in every epoch: what an exchange carries is
repartitioned by part, and no row of it is anything but a blob to Spark.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.distribute.spark.application import runs_here
from headrace.distribute.spark.errors import spark_errors
from headrace.distribute.spark.functions import applied
from headrace.distribute.spark.session import EXCHANGE
from headrace.distribute.spark.travelling import travels
from headrace.distribute.spark.types import SPARK_TYPES, DataFrame, SparkSession
from headrace.distribute.tasks.exchange import SCHEMA
from headrace.distribute.tasks.fold import FoldPlan, fold_level
from headrace.distribute.tasks.levels import level_below, levels_below, map_level, nothing_level, rows_level
from headrace.distribute.tasks.map_side import read_rows
from headrace.distribute.tasks.panes import leaving_schema, read_panes
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shipped import PLACE
from headrace.distribute.tasks.work import Task, Work, work_of
from headrace.model.expr import DataType
from headrace.pipeline.code import modules_of
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.inputs import Input

_ROW = from_arrow_schema(SCHEMA)
_TASKS = 1_000_000
"""Tasks over rows that a user's own code made are numbered from a multiple of it on."""

Batches = Iterable[pa.RecordBatch]


class SparkRunner:
    """Runs the tasks of ``work`` in ``spark``, as many beside each other as it has cores."""

    def __init__(self, spark: SparkSession, work: Work, tasks: int) -> None:
        self._spark = spark
        self._work = work
        for name, value in EXCHANGE.items():  # a session that was brought may have others
            spark.conf.set(name, value)
        self.parts = self.shares = tasks

    def pickled(self, pipeline: Pipeline) -> bytes:
        """``pipeline`` with what its file and the modules beside it define, which executors cannot import."""
        for module in modules_of(pipeline):
            travels(module)
        found: bytes = cloudpickle.dumps(pipeline)  # type: ignore[no-untyped-call]
        return found

    def environment(self) -> dict[str, str]:
        """The variables that say where storage is, and with which keys, for tasks on other machines. They go with the
        tasks, never into Spark's configuration.
        """
        if runs_here(self._spark):
            return {}
        return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}

    def epoch(self, plan: EpochPlan) -> Batches:
        """What the tasks of the last level say."""
        with spark_errors():
            rows = self._mapped(plan) if plan.first_stage == 0 else self._panes(plan)
            for level in range(levels_below(self._work, plan.first_stage)):
                rows = _through(rows.repartitionById(plan.parts, "part"), partial(level_below, plan, level))
            return _collected(rows)

    def _mapped(self, plan: EpochPlan) -> DataFrame:
        rows = _through(self._numbers(len(plan.shares)), partial(map_level, plan))
        for number, given in enumerate(self._work.pipeline.inputs, 1):
            read = any(name == given.name for share in plan.shares for name, _ in share)
            if given.source.transform is not None and read:
                columns = self._numbers(len(plan.shares)).mapInArrow(
                    partial(read_input, plan, given.name), _row_type(given)
                )
                made = applied(given.source.transform, columns)
                rows = rows.union(_through(made, partial(map_made, plan, given.name, number * _TASKS)))
        return rows

    def _panes(self, plan: EpochPlan) -> DataFrame:
        rows = _through(self._numbers(1), partial(nothing_level, plan))
        if plan.elements:
            transform = self._work.pipeline.stages[plan.first_stage].aggregation.transform
            assert transform is not None
            schema = from_arrow_schema(leaving_schema(self._work.stages[plan.first_stage - 1]))
            panes = self._numbers(len(plan.elements)).mapInArrow(partial(read_elements, plan), schema)
            rows = rows.union(_through(applied(transform, panes), partial(map_made, plan, "", _TASKS)))
        return rows

    def fold(self, plan: FoldPlan) -> Batches:
        """What the tasks of a fold say."""
        with spark_errors():
            return _collected(_through(self._numbers(plan.parts), partial(fold_level, plan)))

    def _numbers(self, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, count)


def read_input(plan: EpochPlan, name: str, numbers: Batches) -> Iterator[pa.RecordBatch]:
    """The records of an input in the shares whose ``numbers`` the first column has, as rows of Spark's."""
    for number in _first_column(numbers):
        yield from read_rows(Task(plan, work_of(plan.where), number), name)


def read_elements(plan: EpochPlan, numbers: Batches) -> Iterator[pa.RecordBatch]:
    """The panes in the files whose ``numbers`` the first column has."""
    for number in _first_column(numbers):
        yield from read_panes(Task(plan, work_of(plan.where), number))


def map_made(plan: EpochPlan, name: str, base: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """What is said of a partition of rows that a user's own code made."""
    context = TaskContext.get()
    assert context is not None
    yield from rows_level(plan, name, base + context.partitionId(), batches)


def _first_column(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _row_type(given: Input) -> StructType:
    columns = {**dict.fromkeys(PLACE, DataType.INT), **given.source.schema}
    return StructType([StructField(name, SPARK_TYPES[kind]) for name, kind in columns.items()])


def _through(rows: DataFrame, run: Callable[[Batches], Iterator[pa.RecordBatch]]) -> DataFrame:
    return rows.mapInArrow(run, _ROW)


def _collected(rows: DataFrame) -> Batches:
    table: Any = rows.toArrow()
    batches: Batches = table.to_batches()
    return batches
