"""Rows as DataFrames: data files of a snapshot, views over them, figures of columns, and what users' functions make.

Spark reads files of a local root by itself. Its Python workers read all others as readers do: through the store, and
against lengths and checksums. So they do without the jars that Spark would need for S3.

Figures (``SparkColumns``) are exact, and the same as those of a table in one process.

A user's own Spark code is named ``module:function``: it is found, called, and held to what it declares
(``apply_function``).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from headrace.distribute.column_figures import LONGEST_TEXT, BlamedRows
from headrace.distribute.spark import application
from headrace.distribute.spark.errors import SparkFunctionError
from headrace.distribute.tasks.levels import RowBatches, numbers_in
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.distribute.views import condition_mask
from headrace.formats.fields import with_json
from headrace.formats.parquet import values_as
from headrace.kernel.columns import Names, as_now, checked_values, names_there
from headrace.model.expressions import data_types
from headrace.model.expressions.data_types import ColumnType, NestedType, in_words
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import columns_of
from headrace.pipeline.endpoints import SparkFunction
from headrace.pipeline.loading.code_digests import named_function
from headrace.state.files import may_hold_nan
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectStore, open_store, scheme_of

_NEWEST, _RANK, _SUM = "_headrace_newest", "_headrace_rank", "_headrace_sum"

FileWithNames = tuple[DataFile, Names]
"""A file, and what it calls columns, if not by their name."""


def of_files(
    spark: application.SparkSession,
    store: ObjectStore,
    files: Sequence[FileWithNames],
    columns: pa.Schema,
    identity: Sequence[str] | None,
    *,
    is_summed: bool = False,
) -> application.DataFrame:
    """The rows of Parquet files. Among rows with the same ``identity`` the newest stays, unless it is a retraction.
    Rows ``is_summed`` stay as often as they were added more often than withdrawn.
    """
    schema = from_arrow_schema(columns)
    if not files:
        return spark.createDataFrame([], schema)
    if isinstance(store, LocalStore):
        by_names: dict[str, list[FileWithNames]] = {}
        for file in files:
            by_names.setdefault(repr(sorted(file[1].items())), []).append(file)
        rows = reduce(
            application.DataFrame.unionByName,
            (_local_frame(spark, store, files_alike, columns) for files_alike in by_names.values()),
        )
    else:
        application.bring_packages(spark)
        keys = scheme_of(store.uri).settings(os.environ)
        read = partial(_read_rows_at_root, store.uri, keys, tuple(files), columns)
        rows = spark.range(0, len(files), 1, len(files)).mapInArrow(read, schema)
    if identity is None:
        return rows
    return standing_rows(rows, identity) if is_summed else newest_rows(rows, identity)


def _local_frame(
    spark: application.SparkSession, store: LocalStore, files: Sequence[FileWithNames], columns: pa.Schema
) -> application.DataFrame:
    """The rows of files that all have the same names for columns."""
    _, names = files[0]
    kinds = from_arrow_schema(columns)
    stored_schema = pa.schema(
        [field.with_name(name) for field in columns if (name := names.get(field.name, field.name)) is not None]
    )
    checked_reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    if any(may_hold_nan(field.type) for field in columns):
        # statistics in files of older versions leave out NaN, which Spark holds for above every number
        checked_reader = checked_reader.option("parquet.filter.stats.enabled", "false")
    rows = checked_reader.schema(from_arrow_schema(stored_schema)).parquet(
        *[f"file://{store.root / file.path}" for file, _ in files]
    )

    def named_column(name: str) -> application.SparkColumn:
        stored_name = names.get(name, name)
        if stored_name is None:
            return f.lit(None).cast(kinds[name].dataType).alias(name)
        return column_named(stored_name).alias(name)

    return rows.select(*map(named_column, columns.names)) if names else rows


def _read_rows_at_root(
    root: str,
    keys: Mapping[str, str],
    files: Sequence[FileWithNames],
    columns: pa.Schema,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    os.environ.update(keys)
    return verified_rows(open_store(root), files, columns, numbers)


def verified_rows(
    store: ObjectStore, files: Sequence[FileWithNames], columns: pa.Schema, numbers: RowBatches
) -> Iterator[pa.RecordBatch]:
    """The rows of those of ``files`` whose ``numbers`` come. Raises BrokenObjectError for one that is damaged."""
    for number in numbers_in(numbers):
        file, names = files[number]
        content = pa.BufferReader(read_verified(store, file))
        for batch in pq.ParquetFile(content).iter_batches(columns=names_there(columns, names)):
            yield from as_now(pa.Table.from_batches([batch]), columns, names).to_batches()


def newest_rows(rows: application.DataFrame, identity: Sequence[str]) -> application.DataFrame:
    """The newest row of each ``identity``; none where that is a retraction."""
    places = Window.partitionBy(*map(column_named, identity)).orderBy(f.desc("epoch"), f.desc("sequence"))
    numbered_rows = rows.withColumn(_NEWEST, f.row_number().over(places))
    return numbered_rows.where((f.col(_NEWEST) == 1) & ~f.col("is_retraction")).drop(_NEWEST)


def standing_rows(rows: application.DataFrame, identity: Sequence[str]) -> application.DataFrame:
    """What stands of ``rows``: of those of one ``identity`` as many as were put there more often than withdrawn."""
    columns = [_comparable_value(column_named(name), rows.schema[name].dataType) for name in identity]
    same = Window.partitionBy(*columns)
    of_sign = Window.partitionBy(*columns, f.col("is_retraction"))
    ranked_rows = rows.withColumn(_RANK, f.row_number().over(of_sign.orderBy("epoch", "sequence")))
    summed_rows = ranked_rows.withColumn(_SUM, f.sum(f.when(f.col("is_retraction"), -1).otherwise(1)).over(same))
    return summed_rows.where(~f.col("is_retraction") & (f.col(_RANK) <= f.col(_SUM))).drop(_RANK, _SUM)


def _comparable_value(column: application.SparkColumn, kind: DataType) -> application.SparkColumn:
    """What tells values of ``column`` apart. Spark compares no maps: it compares their entries, in stored order."""
    match kind:
        case MapType():
            entries = f.map_entries(column)
            return f.transform(
                entries, lambda entry: f.struct(entry["key"], _comparable_value(entry["value"], kind.valueType))
            )
        case ArrayType():
            return f.transform(column, lambda item: _comparable_value(item, kind.elementType))
        case StructType():
            fields = [
                _comparable_value(column.getField(field.name), field.dataType).alias(field.name)
                for field in kind.fields
            ]
            # without this NULL would become a struct of NULLs, which is a value
            return f.when(column.isNotNull(), f.struct(*fields))
    return column


def of_table(spark: application.SparkSession, table: pa.Table) -> application.DataFrame:
    """The rows of a table in memory."""
    return spark.createDataFrame(table)


def filter_rows(
    spark: application.SparkSession, rows: application.DataFrame, columns: pa.Schema, condition: Expr
) -> application.DataFrame:
    """The ``rows``, of schema ``columns``, for which ``condition`` is TRUE, as Spark's Python workers evaluate it."""
    application.bring_packages(spark)
    return rows.mapInArrow(partial(_filter_batches, columns, condition), rows.schema)


def _filter_batches(columns: pa.Schema, condition: Expr, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = {name: batch.column(name) for name in columns_of(condition)}
        yield batch.filter(condition_mask(condition, columns, read, batch.num_rows))


def lists_as_json(rows: application.DataFrame) -> application.DataFrame:
    """``rows`` with JSON where they have lists, structs and maps."""
    fields = [
        StructField(
            field.name, StringType() if isinstance(field.dataType, ArrayType | MapType | StructType) else field.dataType
        )
        for field in rows.schema
    ]
    return rows if fields == [*rows.schema] else rows.mapInArrow(_with_json, StructType(fields))


def _with_json(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from with_json(pa.Table.from_batches([batch])).to_batches()


def column_named(name: str) -> application.SparkColumn:
    """The column called ``name``, whatever characters it has."""
    return f.col(f"`{name.replace('`', '``')}`")


PART_BYTES = 2**25
"""About how many bytes of stored rows one partition folds."""


def stored_rows(
    spark: application.SparkSession, work: TaskEnvironment, files: Sequence[FileWithNames], columns: pa.Schema
) -> application.DataFrame:
    """The rows of ``files``; reading raises BrokenObjectError (in ``spark_errors``) for a missing or damaged one."""
    application.bring_packages(spark)
    numbers = spark.range(0, len(files), 1, len(files) or 1)
    run = application.TaskPayload.from_environment(spark, work).task_function(_read_rows, tuple(files), columns)
    return numbers.mapInArrow(run, from_arrow_schema(columns))


def _read_rows(
    work: TaskEnvironment, files: Sequence[FileWithNames], columns: pa.Schema, numbers: RowBatches
) -> Iterator[pa.RecordBatch]:
    return verified_rows(work.store, files, columns, numbers)


def standing_since(
    spark: application.SparkSession,
    rows: application.DataFrame,
    identity: Sequence[str] | None,
    epoch: int,
    stored_bytes: int,
    *,
    is_summed: bool = False,
) -> application.DataFrame:
    """What stands of ``rows``, ``stored_bytes`` long, as ``of_files`` folds them, without those up to ``epoch``."""
    if identity is not None:
        parts = max(application.tasks_of(spark), 1 + stored_bytes // PART_BYTES)
        rows = rows.repartition(parts, *map(column_named, identity))
        rows = (standing_rows if is_summed else newest_rows)(rows, identity)
    return rows.where(f.col("epoch") > epoch)


def rows_without(
    rows: application.DataFrame, others: application.DataFrame, columns: Sequence[str]
) -> application.DataFrame:
    """The ``rows`` that are not among ``others`` by ``columns``; NULL is NULL and NaN is NaN."""
    renamed_rows = others.select(*(column_named(name).alias(f"_other_{place}") for place, name in enumerate(columns)))
    conditions = (column_named(name).eqNullSafe(f.col(f"_other_{place}")) for place, name in enumerate(columns))
    return rows.join(renamed_rows, on=list(conditions), how="left_anti")


_TEXTS: Final = ("string", "boolean")
_FLOATS: Final = ("double", "float")


class SparkColumns:
    """Columns of ``frame``, which is scanned several times: persist it before."""

    def __init__(self, frame: application.DataFrame) -> None:
        self._frame = frame
        self._kinds = dict(frame.dtypes)

    def missing_counts(self, columns: Sequence[str]) -> Mapping[str, int]:
        """How many values of each are NULL, or floats that are not finite: one scan."""
        counts = [f.count_if(self._is_missing(name)).alias(str(place)) for place, name in enumerate(columns)]
        (row,) = self._frame.agg(*counts).collect() if counts else ([],)
        return dict(zip(columns, row, strict=True))

    def is_text(self, column: str) -> bool:
        """Whether it is text or a boolean, and no number."""
        return self._kinds[column] in _TEXTS

    def most_frequent(self, column: str, number: int) -> list[tuple[str, int]]:
        """The most frequent texts and how often they come; the first in order of those that are as frequent."""
        texts = self._frame.select(self._column_as_text(column).alias("text")).where(f.col("text").isNotNull())
        counts = texts.groupBy("text").agg(f.count("*").alias("number"))
        best = counts.orderBy(f.desc("number"), f.asc("text")).limit(number)
        return [(row.text, row.number) for row in best.collect()]

    def at_ranks(self, column: str, places: Sequence[int]) -> Mapping[int, float]:
        """The finite numbers at ``places`` (from 1 on) when they are sorted.

        Equal values are counted before they are sorted, which one task does: it spills what does not fit.
        """
        if not places:
            return {}
        finite = self._frame.where(~self._is_missing(column)).select(column_named(column).alias("value"))
        counts = finite.groupBy("value").agg(f.count("*").alias("number"))
        so_far = f.sum("number").over(Window.orderBy("value").rowsBetween(Window.unboundedPreceding, 0))
        ending = counts.withColumn("last", so_far)
        wanted_places = f.array(*map(f.lit, places))
        places_here = f.filter(
            wanted_places, lambda place: (place <= f.col("last")) & (place > f.col("last") - f.col("number"))
        )
        ranked_values = (
            ending.withColumn("places", places_here).where(f.size("places") > 0).select("value", "places").collect()
        )
        return {place: float(row.value) + 0.0 for row in ranked_values for place in row.places}  # no negative zero

    def first_rows(self, condition: BlamedRows, order: Sequence[str], number: int) -> pa.Table:
        """The first rows in ``order`` that fulfil ``condition``: the columns of both."""
        names = [*dict.fromkeys((*order, condition.column))]
        fulfilling = self._frame.where(self._is_blamed(condition)).orderBy(
            *(column_named(name).asc_nulls_last() for name in order)
        )
        table: pa.Table = fulfilling.limit(number).select(*map(column_named, names)).toArrow()
        return table

    def _is_missing(self, column: str) -> application.SparkColumn:
        value = column_named(column)
        if self._kinds[column] not in _FLOATS:
            return value.isNull()
        return value.isNull() | f.isnan(value) | (f.abs(value) == float("inf"))

    def _column_as_text(self, column: str) -> application.SparkColumn:
        return f.substring(column_named(column).cast("string"), 1, LONGEST_TEXT)

    def _is_blamed(self, condition: BlamedRows) -> application.SparkColumn:
        match condition.blamed:
            case "missing":
                return self._is_missing(condition.column)
            case "text":
                return cast("application.SparkColumn", self._column_as_text(condition.column) == condition.value)
        value, bound = column_named(condition.column).cast("double"), f.lit(condition.value)
        is_beyond = value > bound if condition.blamed == "above" else value < bound
        return ~self._is_missing(condition.column) & is_beyond


def apply_function(function: SparkFunction, rows: application.DataFrame) -> application.DataFrame:
    """What ``function`` makes of ``rows``: the columns of theirs that start with ``_``, then those that it declares.

    Raises SparkFunctionError.
    """
    ours = [name for name in rows.columns if name.startswith("_")]
    try:
        result = _resolve(function)(rows)
    except SparkFunctionError:
        raise
    except Exception as error:
        raise SparkFunctionError(f"Spark function {function.name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, application.DataFrame):
        raise SparkFunctionError(f"Spark function {function.name} gives {type(result).__name__}, not a DataFrame")
    lost_columns = [name for name in ours if name not in result.columns]
    if lost_columns:
        raise SparkFunctionError(
            f"Spark function {function.name} loses column {lost_columns[0]}: columns that start with _ say where a "
            "record is from; add columns with withColumn or select('*', ...), and drop only your own"
        )
    for name, kind in function.returns.items():
        if name not in result.columns:
            raise SparkFunctionError(f"Spark function {function.name} declares column {name}, and does not give it")
        kind_given = result.schema[name].dataType
        if _nullable(kind_given) != application.spark_type(kind):
            raise SparkFunctionError(
                f"Spark function {function.name} declares column {name} as {in_words(kind)}, which is Spark's "
                f"{application.spark_type(kind).simpleString()}, and gives {kind_given.simpleString()}; cast it"
            )
    rows_made = result.select(*map(column_named, ours), *map(column_named, function.returns))
    kinds = {
        name: kind
        for name, kind in function.returns.items()
        if isinstance(kind, NestedType) or kind is data_types.DataType.DATE
    }
    if not kinds:
        return rows_made
    schema = StructType([StructField(field.name, _nullable(field.dataType)) for field in rows_made.schema])
    return rows_made.mapInArrow(partial(_check_values, function.name, kinds), schema)


def _nullable(kind: DataType) -> DataType:
    """The same type, in which everything may be NULL."""
    match kind:
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
        case StructType():
            return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    return kind


def _check_values(
    name: str, kinds: Mapping[str, ColumnType], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The ``batches`` that the Spark function called ``name`` made, with the columns of ``nested_kinds`` as equal
    values are written. Raises SparkFunctionError.
    """
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for column, kind in kinds.items():
            canonical, foreign_row = checked_values(columns[column], kind)
            columns[column], is_foreign = values_as(canonical, kind)
            if foreign_row is not None or is_foreign is not None:
                what = "what no column holds" if foreign_row is None else foreign_row[1]
                raise SparkFunctionError(f"Spark function {name} gave {what} in column {column}")
        yield pa.RecordBatch.from_pydict(columns)


def _resolve(function: SparkFunction) -> Callable[[application.DataFrame], object]:
    spark_function = named_function(
        f"Spark function {function.name}", function.name, function.package, SparkFunctionError
    )
    application.ship_module(spark_function.module)  # with its own functions for rows
    return spark_function.function
