"""Views of the output as Spark DataFrames, over the files themselves.

Those of a local root Spark reads by itself. Those of any other are read by its Python workers, as whatever reads
results does: through the store, against lengths and checksums, and without the jars that Spark would need for S3.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.distribute.spark.application import bring_packages
from headrace.distribute.spark.types import DataFrame, SparkColumn, SparkSession
from headrace.distribute.tasks.shuffle.level_functions import Rows, numbers_in
from headrace.distribute.views import fulfilling
from headrace.kernel.renamed_columns import Names, as_now, names_there
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.traversal import columns_of
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectStore, open_store, scheme_of

_NEWEST = "_headrace_newest"

NamedFile = tuple[DataFile, Names]
"""A file, and what it calls columns, if not by their name."""


def of_files(
    spark: SparkSession,
    store: ObjectStore,
    files: Sequence[NamedFile],
    columns: pa.Schema,
    identity: Sequence[str] | None,
) -> DataFrame:
    """The rows of Parquet files; of those with the same ``identity`` the newest, unless it is a retraction."""
    schema = from_arrow_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    if isinstance(store, LocalStore):
        by_names: dict[str, list[NamedFile]] = {}
        for file in files:
            by_names.setdefault(repr(sorted(file[1].items())), []).append(file)
        rows = reduce(DataFrame.unionByName, (_local(spark, store, alike, columns) for alike in by_names.values()))
    else:
        bring_packages(spark)
        keys = scheme_of(store.uri).settings(os.environ)
        read = partial(_rows, store.uri, keys, tuple(files), columns)
        rows = spark.range(0, len(files), 1, len(files)).mapInArrow(read, schema)
    return rows if identity is None else newest(rows, identity)


def _local(spark: SparkSession, store: LocalStore, files: Sequence[NamedFile], columns: pa.Schema) -> DataFrame:
    """The rows of files that all have the same names for columns."""
    _, names = files[0]
    kinds = from_arrow_schema(columns)
    stored = pa.schema(
        [field.with_name(name) for field in columns if (name := names.get(field.name, field.name)) is not None]
    )
    checked = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    rows = checked.schema(from_arrow_schema(stored)).parquet(*[f"file://{store.root / file.path}" for file, _ in files])

    def column(name: str) -> SparkColumn:
        stored_name = names.get(name, name)
        if stored_name is None:
            return f.lit(None).cast(kinds[name].dataType).alias(name)
        return column_named(stored_name).alias(name)

    return rows.select(*map(column, columns.names)) if names else rows


def _rows(
    root: str,
    keys: Mapping[str, str],
    files: Sequence[NamedFile],
    columns: pa.Schema,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    os.environ.update(keys)
    return verified_rows(open_store(root), files, columns, numbers)


def verified_rows(
    store: ObjectStore, files: Sequence[NamedFile], columns: pa.Schema, numbers: Rows
) -> Iterator[pa.RecordBatch]:
    """The rows of those of ``files`` whose ``numbers`` come. Raises BrokenObjectError for one that is not what was
    written.
    """
    for number in numbers_in(numbers):
        file, names = files[number]
        content = pa.BufferReader(verify(store, file))
        for batch in pq.ParquetFile(content).iter_batches(columns=names_there(columns, names)):
            yield from as_now(pa.Table.from_batches([batch]), columns, names).to_batches()


def newest(rows: DataFrame, identity: Sequence[str]) -> DataFrame:
    """The newest row of each ``identity``; none where that is a retraction."""
    places = Window.partitionBy(*map(column_named, identity)).orderBy(f.desc("epoch"), f.desc("sequence"))
    numbered = rows.withColumn(_NEWEST, f.row_number().over(places))
    return numbered.where((f.col(_NEWEST) == 1) & ~f.col("is_retraction")).drop(_NEWEST)


def of_table(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table in memory."""
    return spark.createDataFrame(table)


def filtered(spark: SparkSession, rows: DataFrame, columns: pa.Schema, condition: Expr) -> DataFrame:
    """The ``rows``, of schema ``columns``, for which ``condition`` is TRUE, as Spark's Python workers evaluate it."""
    bring_packages(spark)
    return rows.mapInArrow(partial(_kept, columns, condition), rows.schema)


def _kept(columns: pa.Schema, condition: Expr, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = {name: batch.column(name) for name in columns_of(condition)}
        yield batch.filter(fulfilling(condition, columns, read, batch.num_rows))


def column_named(name: str) -> SparkColumn:
    """The column called ``name``, whatever characters it has."""
    return f.col(f"`{name.replace('`', '``')}`")
