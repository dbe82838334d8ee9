"""Reading an epoch's files: every record of them, judged.

A judged record has ``_file`` (its path in the source's store), ``_reject`` (why it goes to the dead letter, NULL for an
accepted one), ``_raw`` (its text), ``_event_time`` (long, microseconds UTC), ``_split`` (string), ``_kept`` (whether
the filter is TRUE), the key columns by their names, the inputs of the aggregates (``Plan.inputs`` names them), and
``_order`` where the order of arrival counts. Of a rejected record only the first three count.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import functions as f
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from headrace.engine import columns as c
from headrace.engine.elements import element_size, record
from headrace.engine.errors import UnreadableFileError
from headrace.engine.expressions import compile_expr, named
from headrace.engine.plan import Plan
from headrace.engine.source_files import FileColumns, file_columns
from headrace.engine.source_planning import InputFile
from headrace.engine.source_records import PATH, PLACE, POSITION, RAW, UNPARSED, scan
from headrace.engine.storage import hadoop_uri
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn, SparkSession
from headrace.model.expr import DataType as Kind
from headrace.model.expr import Expr, Schema, lit
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.typing import type_of
from headrace.model.watermarks import SplitStrategy
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.inputs import EventTime
from headrace.pipeline.sources import OnUnreadable

FILE, REJECT, EVENT_TIME, SPLIT, KEPT, MARK = "_file", "_reject", "_event_time", "_split", "_kept", "_mark"

EARLIEST, LATEST = -2_208_988_800_000_000, 253_402_300_799_999_999
"""Event times are of the years 1900 to 9999: what lies outside is a mistake, and would move the watermark there."""

_FOOTER_READERS = 8

_ORDER = StructType(
    [StructField("file", StringType()), StructField("block", LongType()), StructField("row", LongType())]
)


@dataclass(frozen=True)
class Batch:
    """The files of one epoch, looked at: which can be read by one scan, and which (path -> reason) not at all.

    ``processing_time`` is that of the epoch, the event time of records that have none of their own (``Ingestion``).
    """

    source_uri: str
    groups: Mapping[FileColumns, tuple[InputFile, ...]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    processing_time: Instant = MIN_INSTANT

    def without(self, error: UnreadableFileError) -> "Batch":
        """This batch with the file of ``error`` as a dead letter: for one that turns out to be torn while it is read.

        Raises ``error`` itself if the file is none of this batch (or already left out).
        """
        base = hadoop_uri(self.source_uri, "")
        path = error.path.removeprefix(base)
        groups = {how: tuple(file for file in files if file.path != path) for how, files in self.groups.items()}
        if groups == self.groups:
            raise error
        return replace(
            self,
            groups={how: files for how, files in groups.items() if files},
            unreadable={**self.unreadable, path: error.reason},
        )


def open_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    files: Sequence[InputFile],
    source_uri: str,
    processing_time: Instant = MIN_INSTANT,
) -> Batch:
    """Look at ``files`` of the store at ``source_uri``: headers and footers, no records.

    A file that cannot be read, or lacks what it must have, is in ``Batch.unreadable`` if the source says DEAD_LETTER.
    Raises UnreadableFileError for it otherwise, and typed errors for files that are gone or forbidden.
    """

    def look(file: InputFile) -> FileColumns | UnreadableFileError | None:
        try:
            return file_columns(spark, pipeline, file, hadoop_uri(source_uri, file.path))
        except UnreadableFileError as error:
            return error

    with ThreadPoolExecutor(_FOOTER_READERS) as pool:
        found = list(pool.map(look, files))
    groups: dict[FileColumns, list[InputFile]] = {}
    unreadable: dict[str, str] = {}
    for file, columns in zip(files, found, strict=True):
        if isinstance(columns, UnreadableFileError):
            if pipeline.source.on_unreadable is OnUnreadable.FAIL:
                raise columns
            unreadable[file.path] = columns.reason
        elif columns is not None:
            groups.setdefault(columns, []).append(file)
    return Batch(source_uri, {columns: tuple(group) for columns, group in groups.items()}, unreadable, processing_time)


def read_batch(spark: SparkSession, pipeline: Pipeline, plan: Plan, batch: Batch) -> DataFrame:
    """The judged records of ``batch``: one scan per way in which its files hold their columns, usually one.

    A file that cannot be read at all is one rejected record without text. Lazy: errors come with the action.
    """
    return _judged(spark, pipeline, plan, batch, numbered=False).drop(POSITION)


def rejected_rows(spark: SparkSession, pipeline: Pipeline, plan: Plan, batch: Batch, epoch: int) -> DataFrame:
    """The dead letters of ``batch``: ``file``, ``position``, ``reason``, ``raw``, ``epoch``.

    ``position`` is the number of the line in its file (of the row, in Parquet), from 0; a CSV header is line 0. It and
    ``raw`` are NULL for a file that cannot be read at all. Reads the files again, and lines twice for their numbers.
    """
    judged = _judged(spark, pipeline, plan, batch, numbered=True).where(f.col(REJECT).isNotNull())
    return judged.select(
        f.col(FILE).alias("file"),
        f.col(POSITION).alias("position"),
        f.col(REJECT).alias("reason"),
        f.col(RAW).alias("raw"),
        f.lit(epoch).cast("long").alias("epoch"),
    )


def _judged(spark: SparkSession, pipeline: Pipeline, plan: Plan, batch: Batch, numbered: bool) -> DataFrame:
    source, ordered = pipeline.source, plan.is_ordered and not numbered
    parts = []
    for columns, files in batch.groups.items():
        uris = [hadoop_uri(batch.source_uri, file.path) for file in files]
        records = scan(spark, source.format, source.schema, columns, uris, numbered=numbered, ordered=ordered)
        parts.append(_judge(pipeline, plan, batch, records))
    if batch.unreadable or not parts:
        parts.append(_unreadable_rows(spark, pipeline, plan, batch.unreadable, ordered))
    return reduce(DataFrame.unionByName, parts)


def _judge(pipeline: Pipeline, plan: Plan, batch: Batch, records: DataFrame) -> DataFrame:
    schema = pipeline.schema
    parsed = f.col(UNPARSED).isNull()

    def computed(name: str, expr: Expr) -> SparkColumn:
        return f.when(parsed, compile_expr(expr, schema)).cast(_kind(expr, schema)).alias(name)

    expr = pipeline.event_time.expr
    arrival = f.when(parsed, f.lit(int(batch.processing_time))).cast("long")
    event_time = arrival if expr is None else f.unix_micros(computed(EVENT_TIME, expr))
    mark = marks(pipeline.event_time)
    kept = pipeline.filter if pipeline.filter is not None else lit(True)
    split = pipeline.event_time.split if pipeline.event_time.split is not None else lit("")
    if plan.reads_size:
        records = records.withColumn(c.SIZE, element_size(schema))
        schema = {**schema, c.SIZE: Kind.INT}
    rows = records.select(
        _file_column(batch.source_uri).alias(FILE),
        f.col(RAW),
        f.col(UNPARSED),
        f.col(POSITION) if POSITION in records.columns else f.lit(None).cast("long").alias(POSITION),
        event_time.alias(EVENT_TIME),
        *([_order(batch.source_uri)] if PLACE in records.columns else []),
        *([record(pipeline.schema)] if plan.reads_records else []),
        *([f.unix_micros(computed(MARK, mark)).alias(MARK)] if mark is not None else []),
        f.coalesce(computed(SPLIT, split), f.lit("")).alias(SPLIT),
        f.coalesce(computed(KEPT, kept), f.lit(False)).alias(KEPT),
        *[computed(name, expr) for name, expr in [*pipeline.key.items(), *plan.inputs]],
    )
    return rows.select(_reason(pipeline).alias(REJECT), *[named(name) for name in rows.columns if name != UNPARSED])


def marks(event_time: EventTime) -> Expr | None:
    """The expression of the marks of splits (``model.watermarks``), None where they are the event times."""
    strategy, expr = event_time.watermark, event_time.expr
    if not isinstance(strategy, SplitStrategy) or expr is None:
        return None
    mark = strategy.mark(expr)
    return None if mark is expr else mark


def _reason(pipeline: Pipeline) -> SparkColumn:
    event_time = f.col(EVENT_TIME)
    reason = (
        f.when(f.col(UNPARSED).isNotNull(), f.col(UNPARSED))
        .when(event_time.isNull(), "event time is null")
        .when(~event_time.between(EARLIEST, LATEST), "event time is outside the years 1900 to 9999")
    )
    for name in pipeline.key:
        reason = reason.when(named(name).isNull(), f"key is null: {name}")
    if marks(pipeline.event_time) is None:
        return reason
    # a record that only asserts the watermark is no data, and no dead letter (semantics 9.4)
    control = f.col(UNPARSED).isNull() & event_time.isNull() & f.col(MARK).isNotNull()
    return f.when(~control, reason)


def _file_column(source_uri: str) -> SparkColumn:
    """The file's path in its store. Spark gives a URI, percent-encoded where the name needs it."""
    path = f.col(PATH)
    decoded = f.when(~f.contains(path, f.lit("%")), path).otherwise(
        f.url_decode(f.replace(path, f.lit("+"), f.lit("%2B")))
    )
    return f.substring(decoded, len(hadoop_uri(source_uri, "")) + 1, 2**31 - 1)


def _order(source_uri: str) -> SparkColumn:
    """Where a record stands in the order of arrival (semantics 12.3): files of an epoch are taken by name."""
    return f.struct(_file_column(source_uri), f.col(f"{PLACE}.*")).cast(_ORDER).alias(c.ORDER)


def _unreadable_rows(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, unreadable: Mapping[str, str], ordered: bool
) -> DataFrame:
    """A rejected record for each file that cannot be read at all."""
    schema = pipeline.schema
    pairs = [f.struct(f.lit(path).alias("path"), f.lit(reason).alias("reason")) for path, reason in unreadable.items()]
    none = f.struct(f.lit("").alias("path"), f.lit("").alias("reason"))
    files = spark.range(1 if pairs else 0).select(f.explode(f.array(*(pairs or [none]))).alias("file"))

    def null(name: str, kind: DataType) -> SparkColumn:
        return f.lit(None).cast(kind).alias(name)

    columns = [*pipeline.key.items(), *plan.inputs]
    return files.select(
        f.concat(f.lit("file: "), f.col("file.reason")).alias(REJECT),
        f.col("file.path").alias(FILE),
        null(RAW, StringType()),
        null(POSITION, LongType()),
        null(EVENT_TIME, LongType()),
        *([null(c.ORDER, _ORDER)] if ordered else []),
        *([_no_record(schema)] if plan.reads_records else []),
        *([null(MARK, LongType())] if marks(pipeline.event_time) is not None else []),
        f.lit("").alias(SPLIT),
        f.lit(False).alias(KEPT),
        *[null(name, _kind(expr, schema)) for name, expr in columns],
    )


def _no_record(schema: Schema) -> SparkColumn:
    """The struct of ``elements.record``, all NULL."""
    kinds = {name: LongType() if kind is Kind.TIMESTAMP else SPARK_TYPES[kind] for name, kind in schema.items()}
    return f.struct(*[f.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]).alias(c.RECORD)


def _kind(expr: Expr, schema: Schema) -> DataType:
    """Spark's type of ``expr``; that of a bare NULL does not matter."""
    return SPARK_TYPES[type_of(expr, schema) or Kind.BOOL]
