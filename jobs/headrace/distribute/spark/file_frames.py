"""Data files of a snapshot as DataFrames: tasks read them as readers do, each held against its length and checksum, so
that Spark needs no client of the store.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.distribute.spark.application import bring_packages, tasks_of
from headrace.distribute.spark.task_payload import TaskPayload
from headrace.distribute.spark.types import DataFrame, SparkSession
from headrace.distribute.spark.view_frames import NamedFile, column_named, newest, verified_rows
from headrace.distribute.tasks.shuffle.level_functions import Rows
from headrace.distribute.tasks.task_environment import TaskEnvironment

PART_BYTES = 2**25
"""Of stored rows that are folded, about as many are in one partition."""


def stored_rows(
    spark: SparkSession, work: TaskEnvironment, files: Sequence[NamedFile], columns: pa.Schema
) -> DataFrame:
    """The rows of ``files``. Reading them raises BrokenObjectError (within ``spark_errors``) if a file is missing or
    not what was written.
    """
    bring_packages(spark)
    numbers = spark.range(0, len(files), 1, len(files) or 1)
    run = TaskPayload.of(spark, work).calling(_read, tuple(files), columns)
    return numbers.mapInArrow(run, from_arrow_schema(columns))


def _read(
    work: TaskEnvironment, files: Sequence[NamedFile], columns: pa.Schema, numbers: Rows
) -> Iterator[pa.RecordBatch]:
    return verified_rows(work.store, files, columns, numbers)


def newest_since(
    spark: SparkSession, rows: DataFrame, identity: Sequence[str], epoch: int, stored_bytes: int
) -> DataFrame:
    """The newest row of each ``identity``, without retractions and without rows of ``epoch`` or before it. ``rows`` are
    ``stored_bytes`` long in the store.
    """
    parts = max(tasks_of(spark), 1 + stored_bytes // PART_BYTES)
    return newest(rows.repartition(parts, *map(column_named, identity)), identity).where(f.col("epoch") > epoch)


def rows_without(rows: DataFrame, others: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The ``rows`` that are not among ``others`` by ``columns``; NULL is NULL and NaN is NaN."""
    renamed = others.select(*(column_named(name).alias(f"_other_{place}") for place, name in enumerate(columns)))
    conditions = (column_named(name).eqNullSafe(f.col(f"_other_{place}")) for place, name in enumerate(columns))
    return rows.join(renamed, on=list(conditions), how="left_anti")
