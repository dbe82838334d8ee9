"""Reading an epoch's files: every record of them, judged.

A judged record has ``_input`` (the name of its input), ``_file`` (its path in that one's store), ``_raw`` (its text),
``_reject`` (why it goes to the dead letter, NULL for an accepted one), ``_event_time`` (long, microseconds UTC),
``_split`` and ``_mark`` (what it says to the watermark of its input), ``_admitted`` (whether the filter is TRUE), the
key columns by their names, the inputs of the aggregates (``Plan.inputs`` names them), ``_order`` where the order of
arrival counts, and ``_id`` where duplicates do. Of a rejected record only the first four count.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from headrace.engine.elements import element_size, record
from headrace.engine.expressions import by_reference, compile_expr, named
from headrace.engine.plan import Plan
from headrace.engine.source_files import FileColumns, file_columns
from headrace.engine.source_records import PATH, PLACE, POSITION, RAW, UNPARSED, scan
from headrace.engine.spark_functions import through
from headrace.engine.storage import hadoop_uri
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn, SparkSession
from headrace.model.expr import Column, Expr, Schema, lit
from headrace.model.expr import DataType as Kind
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.typing import type_of
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.inputs import Input
from headrace.pipeline.sources import OnUnreadable
from headrace.program import columns as c
from headrace.sources.errors import UnreadableFileError
from headrace.sources.judging import EARLIEST, LATEST, mark_of
from headrace.sources.planning import InputFile
from headrace.sources.required import required_by

_FOOTER_READERS = 8

_ORDER = StructType(
    [
        StructField("input", IntegerType()),
        StructField("file", StringType()),
        StructField("block", LongType()),
        StructField("row", LongType()),
    ]
)


@dataclass(frozen=True)
class Batch:
    """The files of one input in one epoch, looked at: which can be read by one scan, and which (path -> reason) not at
    all.

    ``processing_time`` is that of the epoch, the event time of records that have none of their own (``Ingestion``).
    """

    input: Input
    source_uri: str
    groups: Mapping[FileColumns, tuple[InputFile, ...]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    processing_time: Instant = MIN_INSTANT

    def without(self, error: UnreadableFileError) -> "Batch | None":
        """This batch with the file of ``error`` as a dead letter, for one that turns out to be torn while it is read;
        None if the file is none of this batch (or already left out).
        """
        base = hadoop_uri(self.source_uri, "")
        path = error.path.removeprefix(base)
        groups = {how: tuple(file for file in files if file.path != path) for how, files in self.groups.items()}
        if groups == self.groups:
            return None
        return replace(
            self,
            groups={how: files for how, files in groups.items() if files},
            unreadable={**self.unreadable, path: error.reason},
        )

    def alone(self) -> Iterator["Batch"]:
        """Each of its files that can be read, by itself."""
        for columns, files in self.groups.items():
            for file in files:
                yield replace(self, groups={columns: (file,)}, unreadable={})


def open_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    given: Input,
    files: Sequence[InputFile],
    source_uri: str,
    *,
    processing_time: Instant = MIN_INSTANT,
) -> Batch:
    """Look at ``files`` of the store at ``source_uri``, which hold records of ``given``: headers and footers only.

    A file that cannot be read, or lacks what it must have, is in ``Batch.unreadable`` if the source says DEAD_LETTER.
    Raises UnreadableFileError for it otherwise, and typed errors for files that are gone or forbidden.
    """
    required = required_by(pipeline, given)

    def look(file: InputFile) -> FileColumns | UnreadableFileError | None:
        try:
            return file_columns(spark, given.source, required, file, hadoop_uri(source_uri, file.path))
        except UnreadableFileError as error:
            return error

    with ThreadPoolExecutor(_FOOTER_READERS) as pool:
        found = list(pool.map(look, files))
    groups: dict[FileColumns, list[InputFile]] = {}
    unreadable: dict[str, str] = {}
    for file, columns in zip(files, found, strict=True):
        if isinstance(columns, UnreadableFileError):
            if given.source.on_unreadable is OnUnreadable.FAIL:
                raise columns
            unreadable[file.path] = columns.reason
        elif columns is not None:
            groups.setdefault(columns, []).append(file)
    scans = {columns: tuple(group) for columns, group in groups.items()}
    return Batch(given, source_uri, scans, unreadable, processing_time)


def read_batches(spark: SparkSession, pipeline: Pipeline, plan: Plan, batches: Sequence[Batch]) -> DataFrame:
    """The judged records of ``batches``: one scan per way in which files hold their columns, usually one for each.

    A file that cannot be read at all is one rejected record without text. Lazy: errors come with the action.
    """
    return _judged(spark, pipeline, plan, batches, numbered=False).drop(POSITION)


def numbered_records(spark: SparkSession, pipeline: Pipeline, plan: Plan, batches: Sequence[Batch]) -> DataFrame:
    """The judged records with ``_position``, the number of the line in its file (of the row, in Parquet), from 0; a CSV
    header is line 0. It is NULL for a file that cannot be read at all. Lines are read twice for their numbers.
    """
    return _judged(spark, pipeline, plan, batches, numbered=True)


def _judged(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, batches: Sequence[Batch], *, numbered: bool
) -> DataFrame:
    ordered = (plan.is_ordered or pipeline.deduplicate is not None) and not numbered
    parts = []
    for batch in batches:
        source, judge = batch.input.source, _Judge(pipeline, plan, batch)
        for columns, files in batch.groups.items():
            uris = [hadoop_uri(batch.source_uri, file.path) for file in files]
            records = scan(spark, source.format, source.schema, columns, uris, numbered=numbered, ordered=ordered)
            if source.transform is not None:
                records = through(source.transform, records, UNPARSED)
            parts.append(judge.judged(records))
        if batch.unreadable or not batch.groups:
            parts.append(judge.unreadable(spark, ordered))
    return reduce(DataFrame.unionByName, parts)


class _Judge:
    """Judges records of one batch."""

    def __init__(self, pipeline: Pipeline, plan: Plan, batch: Batch) -> None:
        self.pipeline, self.plan, self.batch = pipeline, plan, batch
        self.input = batch.input
        self.columns = self.input.expressions(pipeline.schema)

    @property
    def _identified(self) -> list[tuple[str, Expr]]:
        """What is computed of a record over the pipeline's columns: its id, its key, what is aggregated."""
        deduplicate = self.pipeline.deduplicate
        own = [] if deduplicate is None else [(c.ID, deduplicate.id)]
        return [*own, *self.pipeline.key.items(), *self.plan.inputs]

    def judged(self, records: DataFrame) -> DataFrame:
        """Scanned ``records``, judged."""
        schema = self.pipeline.schema
        stamps = self._stamps()
        if not all(isinstance(expr, Column) and expr.name == name for name, expr in self.columns.items()):
            kept = [name for name in (PATH, RAW, UNPARSED, POSITION, PLACE) if name in records.columns]
            own = self.input.source.columns
            values = [_parsed(expr, own).alias(name) for name, expr in self.columns.items()]
            records = records.select(*kept, *stamps.values(), *values)
            stamps = {name: f.col(name) for name in stamps}
        if self.plan.reads_size:
            records = records.withColumn(c.SIZE, element_size(schema))
            schema = {**schema, c.SIZE: Kind.INT}
        kept_if = self.pipeline.filter if self.pipeline.filter is not None else lit(True)
        rows = records.select(
            f.lit(self.input.name).alias(c.INPUT),
            _file_column(self.batch.source_uri).alias(c.FILE),
            f.col(RAW),
            f.col(UNPARSED),
            f.col(POSITION) if POSITION in records.columns else f.lit(None).cast("long").alias(POSITION),
            *([self._order()] if PLACE in records.columns else []),
            *([record(self.pipeline.schema)] if self.plan.reads_records else []),
            *stamps.values(),
            f.coalesce(_parsed(kept_if, schema), f.lit(False)).alias(c.ADMITTED),
            *[_parsed(expr, schema).alias(name) for name, expr in self._identified],
        )
        return rows.select(self._reason().alias(c.REJECT), *[named(n) for n in rows.columns if n != UNPARSED])

    def _stamps(self) -> dict[str, SparkColumn]:
        """Event time, mark and split, over the columns of the input."""
        event_time, schema = self.input.event_time, self.input.source.columns
        arrival = f.when(
            f.col(UNPARSED).isNull(), by_reference(self.batch.processing_time, f"cast(isnull({RAW}) as int)")
        )
        expr = event_time.expr
        at = arrival if expr is None else f.unix_micros(_parsed(expr, schema))
        mark = mark_of(event_time)
        split = event_time.split if event_time.split is not None else lit("")
        return {
            c.EVENT_TIME: at.alias(c.EVENT_TIME),
            c.MARK: (at if mark is None else f.unix_micros(_parsed(mark, schema))).alias(c.MARK),
            c.SPLIT: f.coalesce(_parsed(split, schema), f.lit("")).alias(c.SPLIT),
        }

    def _reason(self) -> SparkColumn:
        event_time = f.col(c.EVENT_TIME)
        reason = (
            f.when(f.col(UNPARSED).isNotNull(), f.col(UNPARSED))
            .when(event_time.isNull(), "event time is null")
            .when(~event_time.between(EARLIEST, LATEST), "event time is outside the years 1900 to 9998")
        )
        if self.pipeline.deduplicate is not None:
            reason = reason.when(f.col(c.ID).isNull(), "id is null")
        for name in self.pipeline.key:
            reason = reason.when(named(name).isNull(), f"key is null: {name}")
        if mark_of(self.input.event_time) is None:
            return reason
        # a record that only asserts the watermark is no data, and no dead letter (semantics 9.4)
        mark = f.col(c.MARK)
        control = f.col(UNPARSED).isNull() & event_time.isNull() & mark.isNotNull()
        outside = f.when(~mark.between(EARLIEST, LATEST), "asserted watermark is outside the years 1900 to 9998")
        return f.coalesce(outside, f.when(~control, reason))

    def _order(self) -> SparkColumn:
        """Where a record stands in the order of arrival (semantics 12.3): inputs as they are declared, files of an
        epoch by name.
        """
        number = [each.name for each in self.pipeline.inputs].index(self.input.name)
        file = _file_column(self.batch.source_uri)
        return f.struct(f.lit(number), file, f.col(f"{PLACE}.*")).cast(_ORDER).alias(c.ORDER)

    def unreadable(self, spark: SparkSession, ordered: bool) -> DataFrame:
        """A rejected record for each file that cannot be read at all."""
        pairs = [
            f.struct(f.lit(path).alias("path"), f.lit(reason).alias("reason"))
            for path, reason in self.batch.unreadable.items()
        ]
        none = f.struct(f.lit("").alias("path"), f.lit("").alias("reason"))
        files = spark.range(1 if pairs else 0).select(f.explode(f.array(*(pairs or [none]))).alias("file"))
        schema = {**self.pipeline.schema, c.SIZE: Kind.INT}

        def null(name: str, kind: DataType) -> SparkColumn:
            return f.lit(None).cast(kind).alias(name)

        return files.select(
            f.concat(f.lit("file: "), f.col("file.reason")).alias(c.REJECT),
            f.lit(self.input.name).alias(c.INPUT),
            f.col("file.path").alias(c.FILE),
            null(RAW, StringType()),
            *[null(name, LongType()) for name in (POSITION, c.EVENT_TIME, c.MARK)],
            *([null(c.ORDER, _ORDER)] if ordered else []),
            *([_no_record(self.pipeline.schema)] if self.plan.reads_records else []),
            f.lit("").alias(c.SPLIT),
            f.lit(False).alias(c.ADMITTED),
            *[null(name, _kind(expr, schema)) for name, expr in self._identified],
        )


def _parsed(expr: Expr, schema: Schema) -> SparkColumn:
    """``expr`` of a record, NULL if it does not parse."""
    return f.when(f.col(UNPARSED).isNull(), compile_expr(expr, schema)).cast(_kind(expr, schema))


def _file_column(source_uri: str) -> SparkColumn:
    """The file's path in its store. Spark gives a URI, percent-encoded where the name needs it."""
    path = f.col(PATH)
    decoded = f.when(~f.contains(path, f.lit("%")), path).otherwise(
        f.url_decode(f.replace(path, f.lit("+"), f.lit("%2B")))
    )
    return f.substring(decoded, len(hadoop_uri(source_uri, "")) + 1, 2**31 - 1)


def _no_record(schema: Schema) -> SparkColumn:
    """The struct of ``elements.record``, all NULL."""
    kinds = {name: LongType() if kind is Kind.TIMESTAMP else SPARK_TYPES[kind] for name, kind in schema.items()}
    return f.struct(*[f.lit(None).cast(kind).alias(name) for name, kind in kinds.items()]).alias(c.RECORD)


def _kind(expr: Expr, schema: Schema) -> DataType:
    """Spark's type of ``expr``; that of a bare NULL does not matter."""
    return SPARK_TYPES[type_of(expr, schema) or Kind.BOOL]
