"""Views of the output as Spark DataFrames, over the files themselves."""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.distribute.spark.application import bring_packages
from headrace.distribute.spark.types import DataFrame, SparkColumn, SparkSession
from headrace.distribute.views import fulfilling
from headrace.model.expr import Expr, columns_of

_NEWEST = "_headrace_newest"
_S3 = "s3://"


def of_files(
    spark: SparkSession, files: Sequence[str], columns: pa.Schema, identity: Sequence[str] | None
) -> DataFrame:
    """The rows of Parquet files; of those with the same ``identity`` the newest, unless it is a retraction."""
    schema = from_arrow_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(*[_for_hadoop(spark, file) for file in files])
    return rows if identity is None else newest(rows, identity)


def newest(rows: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Of ``rows`` with the same ``identity`` the newest, unless it is a retraction."""
    places = Window.partitionBy(*map(column_named, identity)).orderBy(f.desc("epoch"), f.desc("sequence"))
    numbered = rows.withColumn(_NEWEST, f.row_number().over(places))
    return numbered.where((f.col(_NEWEST) == 1) & ~f.col("is_retraction")).drop(_NEWEST)


def of_table(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table in memory."""
    return spark.createDataFrame(table)


def filtered(spark: SparkSession, rows: DataFrame, columns: pa.Schema, where: Expr) -> DataFrame:
    """Those of ``rows``, which have ``columns``, for which ``where`` is TRUE, as Spark's Python workers evaluate it."""
    bring_packages(spark)
    return rows.mapInArrow(partial(_kept, columns, where), rows.schema)


def _kept(columns: pa.Schema, where: Expr, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = {name: batch.column(name) for name in columns_of(where)}
        yield batch.filter(fulfilling(where, columns, read, batch.num_rows))


def column_named(name: str) -> SparkColumn:
    """The column called ``name``, whatever characters it has."""
    return f.col(f"`{name.replace('`', '``')}`")


def _for_hadoop(spark: SparkSession, file: str) -> str:
    """``file`` as Hadoop names it: its own client for S3 answers to ``s3a``, unless the session has one for ``s3``."""
    if file.startswith("/"):
        return f"file://{file}"
    if file.startswith(_S3) and not spark.conf.get("spark.hadoop.fs.s3.impl", ""):
        return f"s3a://{file.removeprefix(_S3)}"
    return file
