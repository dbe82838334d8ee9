"""Spark's own ways to the same results, set up as an expert would: Structured Streaming, and the plain query.

Structured Streaming: RocksDB state with changelog checkpoints and without a row count per put (Spark's tuning advice),
as many shuffle partitions as cores, one file a micro-batch, update mode where it exists. Its sink is a folder of
Parquet files per batch, overwritten if the batch is repeated: the least that gives every result exactly once.
"""

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.landing import land, paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import (
    BEFORE,
    BOUND,
    BUSY,
    GAP,
    LATENESS,
    LEFT,
    LIVE,
    PERIOD,
    RESULTS,
    RIGHT,
    SIZE,
    STAYING,
    Side,
    Workload,
)
from headrace.distribute.spark.jvm import driver_java_options

SCHEMA = "user bigint, at timestamp, amount bigint"
_OF_SIDES = f"id bigint, {SCHEMA}"

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",  # as ours: larger than the groups of a batch
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
}
STREAMING = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
_OTHER_CLOUDS = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-cbor",
    "com.google.cloud.bigdataoss:gcs-connector",
    "com.squareup.okhttp3:okhttp",
    "com.squareup.okio:okio",
    "joda-time:joda-time",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-huaweicloud",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
    "org.eclipse.jetty:jetty-util",
    "org.eclipse.jetty:jetty-util-ajax",
)
"""What Spark's packages for S3 name besides: of other clouds, or there already."""

_ON_S3 = {
    "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0,org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",
    "spark.jars.excludes": ",".join(_OTHER_CLOUDS),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.aws.credentials.provider": (
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
    ),
}
"""For a checkpoint on S3, whose keys are in the environment: a file of it is one put, instead of a put and a rename."""


def measure(run: Run) -> Measured:
    """Run the peer; its checkpoint and its results are in the run's folder."""
    started = time.monotonic()
    spark = session(run)
    start_seconds = time.monotonic() - started
    measured = _batch(spark, run, start_seconds) if run.side is Side.SPARK_BATCH else _stream(spark, run, start_seconds)
    spark.stop()
    return measured


def session(run: Run, more: Mapping[str, str] | None = None) -> SparkSession:
    """A session as an expert would set it up, with ``more`` settings."""
    settings = {
        **CONF,
        **(STREAMING if run.side is Side.STRUCTURED_STREAMING else {}),
        "spark.master": f"local[{run.cores}]",
        "spark.sql.shuffle.partitions": str(run.cores),
        "spark.driver.memory": run.memory,
        "spark.local.dir": str(run.work / "spark"),
        "spark.driver.extraJavaOptions": driver_java_options(),
    }
    settings |= more or {}
    if run.root is not None:
        settings |= _ON_S3 | {"spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"]}
    if run.event_log is not None:
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": run.event_log.as_uri()}
    builder = SparkSession.builder.appName("benchmark peer")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# --- the queries


def _grouped(workload: Workload, events: DataFrame) -> DataFrame:
    return _QUERIES[workload](events)


def _sums(events: DataFrame, window: Any, name: str = "window") -> DataFrame:
    sums = (f.count(f.lit(1)).alias("payments"), f.sum("amount").alias("amount"))
    grouped = events.groupBy(window.alias("w"), "user").agg(*sums)
    return grouped.select("user", *_ends("w"), "payments", "amount")


def _ends(window: str) -> tuple[Any, Any]:
    return f.col(f"{window}.start").alias("window_start"), f.col(f"{window}.end").alias("window_end")


def _seconds(length: Any) -> str:
    return f"{int(length.total_seconds())} seconds"


def _two_stage(events: DataFrame) -> DataFrame:
    users = events.groupBy(f.window("at", _seconds(SIZE)).alias("w"), "user").agg(f.count(f.lit(1)).alias("payments"))
    busy = users.where(f.col("payments") > BUSY)
    windows = busy.groupBy(f.window(f.window_time("w"), _seconds(SIZE)).alias("v"))
    return windows.agg(f.count(f.lit(1)).alias("users")).select(*_ends("v"), "users")


def _newest_payment(events: DataFrame) -> DataFrame:
    newest = events.groupBy("user").agg(f.max(f.struct("at", "amount")).alias("newest"))
    return newest.select("user", f.col("newest.amount").alias("amount"))


_QUERIES: dict[Workload, Callable[[DataFrame], DataFrame]] = {
    Workload.TUMBLING: lambda events: _sums(events, f.window("at", _seconds(SIZE))),
    Workload.SLIDING: lambda events: _sums(events, f.window("at", _seconds(SIZE), _seconds(PERIOD))),
    Workload.SESSIONS: lambda events: _sums(events, f.session_window("at", _seconds(GAP))),
    Workload.TWO_STAGE: _two_stage,
    Workload.LIVE_KEYS: lambda events: _sums(events, f.window("at", "1 day")),
    Workload.NEWEST: _newest_payment,
}

_LATE_RESULTS = (Workload.SESSIONS, Workload.TWO_STAGE)
"""Structured Streaming has no update mode for sessions and for several aggregations: no early results, that is."""

_APPEND_ONLY = (*_LATE_RESULTS, Workload.WITHIN)


# --- the plain query


def _batch(spark: SparkSession, run: Run, start_seconds: float) -> Measured:
    out = run.work / "results"
    watch = Stopwatch()
    events = spark.read.schema(SCHEMA).parquet(*[str(path) for path in paths(run.landing)])
    _grouped(run.workload, events).write.parquet(str(out))
    wall, cpu = watch.read()
    committed = time.time()
    columns = ", ".join(f'"{name}"' for name in RESULTS[run.workload])
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=run.first_commit(committed),
        epoch_seconds=[wall],
        rows_sql=f"select {columns} from read_parquet('{out}/*.parquet')",
        cut=None,
    )


# --- Structured Streaming


def _stream(spark: SparkSession, run: Run, start_seconds: float) -> Measured:
    out = run.work / "results"
    if run.prepare is not None:
        land(run.prepare, run.landing, "a")
        _drain(spark, run, out)
        land(run.source, run.landing, "b")
    watch = Stopwatch()
    query = _drain(spark, run, out)
    wall, cpu = watch.read()
    progress = [dict(batch) for batch in query.recentProgress]
    batches = [batch for batch in progress if takes_in(batch)]
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=_first_commit(run, batches[0]["batchId"]),
        epoch_seconds=[batch["durationMs"]["triggerExecution"] / 1000 for batch in batches],
        rows_sql=_newest(run.workload, out),
        cut=_watermark(progress) if run.workload in _LATE_RESULTS else None,
        details=[{**batch["durationMs"], "rows": batch["numInputRows"]} for batch in progress],
        extra={"load_seconds": _load_seconds(batches[0])},
    )


def _load_seconds(batch: Mapping[str, Any]) -> float:
    """What its tasks took to load their state: a mean of those beside each other."""
    stated = [each for each in batch["stateOperators"] if each["customMetrics"]]
    loads = [each["customMetrics"]["rocksdbLoadLatencyMs"] / each["numShufflePartitions"] for each in stated]
    return sum(loads) / 1000


def takes_in(batch: Mapping[str, Any]) -> bool:
    """Whether the batch takes in files, even without rows; others only move the watermark on."""
    return any(source["startOffset"] != source["endOffset"] for source in batch["sources"])


def _first_commit(run: Run, batch: int) -> float | None:
    """When the batch was noted as complete: from then on a restart does not repeat it. Unknown on S3."""
    if run.root is not None:
        return None
    return run.first_commit((run.work / "checkpoint" / "commits" / str(batch)).stat().st_mtime)


def _drain(spark: SparkSession, run: Run, out: Path) -> StreamingQuery:
    def sink(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{out}/batch={batch:05d}")

    query = (
        _results(spark, run)
        .writeStream.outputMode("append" if run.workload in _APPEND_ONLY else "update")
        .option("checkpointLocation", run.root or str(run.work / "checkpoint"))
        .foreachBatch(sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def _results(spark: SparkSession, run: Run) -> DataFrame:
    if run.workload is Workload.WITHIN:
        return _within(*(_events(spark, run.landing / side, BOUND + STAYING, _OF_SIDES) for side in (LEFT, RIGHT)))
    delay = BOUND + LATENESS if run.workload not in LIVE else BOUND + 96 * LATENESS
    return _grouped(run.workload, _events(spark, run.landing, delay))


def _events(spark: SparkSession, folder: Path, delay: timedelta, schema: str = SCHEMA) -> DataFrame:
    folder.mkdir(parents=True, exist_ok=True)  # Spark wants it to be there, and a side may have no files yet
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return events.withWatermark("at", _seconds(delay))


def _within(left: DataFrame, right: DataFrame) -> DataFrame:
    other = right.select(f.col("user").alias("payer"), f.col("at").alias("paid"), f.col("amount").alias("before"))
    is_near = f"paid between at - interval {_seconds(BEFORE)} and at"
    return left.join(other, f.expr(f"user = payer and {is_near}")).select(*RESULTS[Workload.WITHIN])


def _watermark(progress: list[dict[str, Any]]) -> int:
    """The watermark of the last batch: windows that end up to it are out."""
    stated = progress[-1]["eventTime"]["watermark"]
    return round(datetime.fromisoformat(stated.replace("Z", "+00:00")).timestamp() * 1000) * 1000


def _newest(workload: Workload, out: Path) -> str:
    """Of every window the result of the newest batch that has one; all rows that were joined."""
    source = f"read_parquet('{out}/*/*.parquet', hive_partitioning = true)"
    if workload is Workload.WITHIN:
        return f"select {', '.join(RESULTS[workload])} from {source}"
    identity = [name for name in RESULTS[workload] if name in ("user", "window_start", "window_end")]
    values = [name for name in RESULTS[workload] if name not in identity]
    columns = [*(f'"{name}"' for name in identity), *(f'arg_max("{name}", batch) as "{name}"' for name in values)]
    groups = ", ".join(f'"{name}"' for name in identity)
    return f"select {', '.join(columns)} from {source} group by {groups}"
