"""What type checkers know of headrace: written by ``python -m scripts.stubs --write``."""

from collections.abc import Sequence

from headrace import errors as errors
from headrace import testing as testing
from headrace import types as types
from headrace.connectors.delta.sink import delta as delta
from headrace.connectors.files.definition import FileSource as FileSource
from headrace.connectors.final_rows import final_rows as final_rows
from headrace.connectors.iceberg.sink import iceberg as iceberg
from headrace.connectors.kafka.definition import AvroValues, KafkaSource
from headrace.connectors.kafka.definition import avro as avro
from headrace.connectors.kafka.definition import kafka_sink as kafka_sink
from headrace.connectors.postgres.sink import postgres as postgres
from headrace.connectors.published.definition import published as published
from headrace.connectors.spark.definition import SparkSource
from headrace.connectors.spark.definition import spark_sink as spark_sink
from headrace.describe.check import check as check
from headrace.kernel.aggregates.sketches import merge_distinct_sketches as merge_distinct_sketches
from headrace.kernel.aggregates.sketches import merge_quantile_sketches as merge_quantile_sketches
from headrace.model.accumulation import Firing, TimestampCombiner
from headrace.model.accumulation import How as How
from headrace.model.arguments import Length
from headrace.model.changelog import Versions, WrittenChangelog
from headrace.model.changelog import debezium_envelope as debezium_envelope
from headrace.model.changelog import debezium_versions as debezium_versions
from headrace.model.changelog import delta_change_type as delta_change_type
from headrace.model.changelog import upserts as upserts
from headrace.model.combiners import CustomCombiner as CustomCombiner
from headrace.model.event_time import Deduplicate as Deduplicate
from headrace.model.event_time import Punctuated as Punctuated
from headrace.model.event_time import SplitStrategy as SplitStrategy
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.columns import WrittenColumns
from headrace.model.expressions.columns import case as case
from headrace.model.expressions.columns import coalesce as coalesce
from headrace.model.expressions.columns import concat as concat
from headrace.model.expressions.columns import field as field
from headrace.model.expressions.columns import greatest as greatest
from headrace.model.expressions.columns import if_else as if_else
from headrace.model.expressions.columns import least as least
from headrace.model.expressions.data_types import DataType as DataType
from headrace.model.expressions.data_types import ListType as ListType
from headrace.model.expressions.expr import Aggregate as Aggregate
from headrace.model.expressions.expr import Expr as Expr
from headrace.model.expressions.expr import col as col
from headrace.model.expressions.expr import count as count
from headrace.model.expressions.expr import lit as lit
from headrace.model.triggers import Signal as Signal
from headrace.model.triggers import Trigger as Trigger
from headrace.model.triggers.composites import AfterAll as AfterAll
from headrace.model.triggers.composites import AfterAny as AfterAny
from headrace.model.triggers.composites import AfterEach as AfterEach
from headrace.model.triggers.composites import AfterWatermark as AfterWatermark
from headrace.model.triggers.composites import OrFinally as OrFinally
from headrace.model.triggers.composites import Repeatedly as Repeatedly
from headrace.model.triggers.composites import on_update as on_update
from headrace.model.triggers.composites import on_window_close as on_window_close
from headrace.model.triggers.custom import CustomTrigger as CustomTrigger
from headrace.model.triggers.custom import Progress as Progress
from headrace.model.triggers.custom import TriggerElement as TriggerElement
from headrace.model.triggers.custom import TriggerMoment as TriggerMoment
from headrace.model.triggers.data_driven import AfterPattern as AfterPattern
from headrace.model.triggers.data_driven import AfterPunctuation as AfterPunctuation
from headrace.model.triggers.data_driven import DataDriven as DataDriven
from headrace.model.triggers.elementary import AfterBytes as AfterBytes
from headrace.model.triggers.elementary import AfterCount as AfterCount
from headrace.model.triggers.elementary import AfterPercentileWatermark as AfterPercentileWatermark
from headrace.model.triggers.elementary import AfterProcessingTime as AfterProcessingTime
from headrace.model.triggers.elementary import AfterSignal as AfterSignal
from headrace.model.triggers.elementary import AfterSynchronizedProcessingTime as AfterSynchronizedProcessingTime
from headrace.model.triggers.elementary import Always as Always
from headrace.model.triggers.elementary import Default as Default
from headrace.model.triggers.elementary import Never as Never
from headrace.model.windows import CalendarWindows as CalendarWindows
from headrace.model.windows import CustomWindows as CustomWindows
from headrace.model.windows import FixedWindows as FixedWindows
from headrace.model.windows import GlobalWindows as GlobalWindows
from headrace.model.windows import MergeGroup as MergeGroup
from headrace.model.windows import Sessions as Sessions
from headrace.model.windows import ShiftedOutputTime as ShiftedOutputTime
from headrace.model.windows import SlidingWindows as SlidingWindows
from headrace.model.windows import Window as Window
from headrace.model.windows import WindowFn as WindowFn
from headrace.pipeline import endpoints
from headrace.pipeline.deployment import Backfill as Backfill
from headrace.pipeline.deployment import Retention as Retention
from headrace.pipeline.deployment import airflow as airflow
from headrace.pipeline.deployment import cron as cron
from headrace.pipeline.deployment import on_assets as on_assets
from headrace.pipeline.deployment import on_files as on_files
from headrace.pipeline.endpoints import BatchFunction as BatchFunction
from headrace.pipeline.endpoints import Input as Input
from headrace.pipeline.endpoints import OnMissing, OnUnreadable, OwnFunction
from headrace.pipeline.endpoints import SparkFunction as SparkFunction
from headrace.pipeline.joins import as_of as as_of
from headrace.pipeline.joins import lookup as lookup
from headrace.pipeline.joins import next_event as next_event
from headrace.pipeline.joins import same_window as same_window
from headrace.pipeline.joins import within as within
from headrace.pipeline.loops import Loop as Loop
from headrace.pipeline.output import Output as Output
from headrace.pipeline.output import Rows as Rows
from headrace.pipeline.output import count_windows as count_windows
from headrace.pipeline.output import sliding_count_windows as sliding_count_windows
from headrace.pipeline.pipeline import Pipeline as Pipeline
from headrace.pipeline.quality import Expectation as Expectation
from headrace.pipeline.quality import Limits as Limits
from headrace.pipeline.quality import expect as expect
from headrace.pipeline.quality import limit as limit
from headrace.pipeline.quality import usual_distribution as usual_distribution
from headrace.pipeline.quality import usual_nulls as usual_nulls
from headrace.pipeline.quality import usual_volume as usual_volume
from headrace.pipeline.rows import distinct as distinct
from headrace.pipeline.rows import function as function
from headrace.pipeline.rows import newest as newest
from headrace.pipeline.rows import query as query
from headrace.pipeline.rows import top as top
from headrace.pipeline.sources import NameOrder
from headrace.pipeline.stages import Aggregation as Aggregation
from headrace.runs.client.handle import open as open

__all__: list[str]
__version__: str

def accumulating(
    allowed_lateness: Length | None = "0s",
    *,
    on_time: Firing | str = "FIRE_ALWAYS",
    closing: Firing | str = "FIRE_IF_NON_EMPTY",
    timestamp: TimestampCombiner | str = "END_OF_WINDOW",
    keep_last: int | None = None,
) -> How:
    """Each pane holds everything so far.

    ``allowed_lateness`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.accumulating("2d").accumulation.value
    'ACCUMULATING'
    """

def csv(
    path: str,
    schema: WrittenColumns,
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    escape: str | None = None,
    encoding: str = "utf-8",
    skip_lines: int = 0,
    nulls: Sequence[str] = (),
    decimal: str = ".",
    thousands: str | None = None,
    max_files: int = 10_000,
    max_bytes: int = 536_870_912,
    look_back: int = 1000,
    names: NameOrder | str = "any",
    max_rejected: int | None = None,
    on_unreadable: OnUnreadable | str = "fail",
    missing: OnMissing | str = "fail",
    suffixes: Sequence[str] = (),
    transform: OwnFunction | None = None,
    explode: str | None = None,
    changelog: WrittenChangelog | None = None,
    versions: Versions | None = None,
) -> FileSource:
    """CSV files under ``path``, each with a header. ``schema`` gives the columns to read with their types; the further
    arguments (``reading``) are those of ``FileSource``.

    Files that are written otherwise than with commas, quotes and in UTF-8: ``delimiter`` parts fields (";", "\\t");
    ``quote`` encloses them, and is doubled in them (None: nothing does); ``escape``, such as a backslash, takes the
    meaning of the character behind it; ``encoding`` is one that Python knows ("cp1252", "utf-16"); ``skip_lines``
    before the header are left out; ``nulls`` are NULL, beside the empty field ("NA"); numbers have a ``decimal`` comma,
    and ``thousands`` between groups of three digits.

    >>> hr.csv("landing/flights", {"origin": str, "delay": int}).format
    'csv'
    >>> hr.csv("landing/sales", {"shop": str, "amount": float}, delimiter=";", decimal=",").dialect.decimal
    ','
    """

def discarding(
    allowed_lateness: Length | None = "0s",
    *,
    on_time: Firing | str = "FIRE_ALWAYS",
    closing: Firing | str = "FIRE_IF_NON_EMPTY",
    timestamp: TimestampCombiner | str = "END_OF_WINDOW",
    keep_last: int | None = None,
) -> How:
    """Each pane holds only what came since the last one.

    ``allowed_lateness`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.discarding("2d").accumulation.value
    'DISCARDING'
    """

def json(
    path: str,
    schema: WrittenColumns,
    *,
    max_files: int = 10_000,
    max_bytes: int = 536_870_912,
    look_back: int = 1000,
    names: NameOrder | str = "any",
    max_rejected: int | None = None,
    on_unreadable: OnUnreadable | str = "fail",
    missing: OnMissing | str = "fail",
    suffixes: Sequence[str] = (),
    transform: OwnFunction | None = None,
    explode: str | None = None,
    changelog: WrittenChangelog | None = None,
    versions: Versions | None = None,
) -> FileSource:
    """Files of JSON lines, one object each, under ``path``. ``schema`` gives the columns to read with their types; the
    further arguments (``reading``) are those of ``FileSource``.

    >>> hr.json("landing/flights", {"origin": str, "delay": int}).format
    'json'
    """

def kafka(
    topic: str,
    schema: expression_columns.WrittenColumns,
    *,
    connection: str,
    land: str = "always",
    on_lost: str = "fail",
    max_files: int = 256,
    max_bytes: int = 536_870_912,
    max_rejected: int | None = None,
    transform: OwnFunction | None = None,
    explode: str | None = None,
    values: AvroValues | None = None,
    changelog: WrittenChangelog | None = None,
    versions: Versions | None = None,
) -> KafkaSource:
    """The records of a ``topic`` of Kafka, whose values are JSON objects, one each, or ``values=hr.avro(...)``.

    ``connection`` is a name; the environment says what it is (``HEADRACE_CONN_{NAME}``), or Airflow does:
    ``kafka://user:password@host:9092?tls=true``. ``schema`` names columns of the values, and of what Kafka says of each
    record. The latter are ``kafka_partition`` and ``kafka_offset`` (int), ``kafka_timestamp``, ``kafka_key`` (str or
    bytes) and ``kafka_headers`` (``list[str]``, each as name=value). The watermark is the least of all partitions,
    unless ``event_time`` gets another ``split``.

    ``land`` "always": each run first writes what is new to its pipeline's folder, and reads it from there. So records
    can still be read again after the topic has deleted them. "never" is for topics that keep their records for as long
    as snapshots live. ``on_lost``: records that are gone before they were read, or a topic that was replaced, fail the
    run; "skip": it goes on without them, and says so. Transactions that were aborted are left out. ``changelog`` is
    ``debezium_envelope()``, whose rows then have the ``schema``, or an expression: 1 where a record adds a row, -1
    where it withdraws one. A tombstone behind an envelope says nothing. ``versions``: records are versions of rows,
    ``upserts("id")`` or ``debezium_versions()``; a message without a value deletes the row that its key names. The
    other arguments of ``reading`` are those of ``FileSource``.

    >>> hr.kafka("orders", {"user": str, "at": datetime, "kafka_offset": int}, connection="events").place
    'events/orders'
    """

def parquet(
    path: str,
    schema: WrittenColumns,
    *,
    max_files: int = 10_000,
    max_bytes: int = 536_870_912,
    look_back: int = 1000,
    names: NameOrder | str = "any",
    max_rejected: int | None = None,
    on_unreadable: OnUnreadable | str = "fail",
    missing: OnMissing | str = "fail",
    suffixes: Sequence[str] = (),
    transform: OwnFunction | None = None,
    explode: str | None = None,
    changelog: WrittenChangelog | None = None,
    versions: Versions | None = None,
) -> FileSource:
    """Parquet files under ``path``. ``schema`` gives the columns to read with their types; the further arguments
    (``reading``) are those of ``FileSource``.

    >>> hr.parquet("landing/flights", {"origin": str, "delay": int}).format
    'parquet'
    """

def retracting(
    allowed_lateness: Length | None = "0s",
    *,
    elide_unchanged: bool = False,
    on_time: Firing | str = "FIRE_ALWAYS",
    closing: Firing | str = "FIRE_IF_NON_EMPTY",
    timestamp: TimestampCombiner | str = "END_OF_WINDOW",
    keep_last: int | None = None,
) -> How:
    """Each pane holds everything so far, after the panes it replaces are withdrawn (Dataflow paper, section 2.3).

    ``allowed_lateness``, ``elide_unchanged`` and the further arguments (``behaviour``) are those of ``How``.

    >>> hr.retracting("2d").accumulation.value
    'RETRACTING'
    """

def spark_source(
    function: str,
    schema: WrittenColumns,
    *,
    connection: str | None = None,
    name: str | None = None,
    max_files: int = 100,
    max_bytes: int = 536_870_912,
    max_rejected: int | None = None,
    missing: endpoints.OnMissing | str = "fail",
    transform: endpoints.OwnFunction | None = None,
    explode: str | None = None,
    changelog: WrittenChangelog | None = None,
    versions: Versions | None = None,
) -> SparkSource:
    """Records that Spark reads and Headrace does not know (a JDBC database, BigQuery, MongoDB, Avro), by a class.

    ``function`` is ``module:function``, as a rule a class; the module lies beside the pipeline's file, or is installed.
    It is called with a session, which has ``spark`` (started when it is first used) and ``connection``, and gives an
    object with two methods. ``ends(begin)`` gives texts of yours, in order: each is where a range of new records ends,
    and the next one begins; ``begin`` is the last one that was landed, None at first. ``read(begin, end)`` gives a
    DataFrame of the records behind ``begin`` and up to ``end``, which has the columns of ``schema``. Each run first
    lands what is new as files in its pipeline's folder, and reads it from there. So replays and backfills ask for no
    range again. ``connection`` is the name of one. ``name`` is what the source is called, by default as the function;
    where records have been landed, it stays. The further arguments (``reading``) are those of ``FileSource``.

    >>> hr.spark_source("orders:Orders", {"shop": str, "at": datetime}, connection="orders_db").place
    'orders_db/orders:Orders'
    """
