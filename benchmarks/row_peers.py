"""Spark's own ways to rows (``benchmarks.rows``): the file sink, and ``transformWithState`` in Python with RocksDB."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.peers import CONF, STREAMING
from benchmarks.rows import MOST, SHOPS, Figures, RowsRun, RowWorkload, figures
from benchmarks.runs import Stopwatch
from benchmarks.workloads import BOUND, LATENESS
from headrace.distribute.spark.jvm import driver_java_options

_ORDERS = "id bigint, shop string, status string, price bigint, quantity bigint, at timestamp"
_PAYMENTS = "user bigint, at timestamp, amount bigint"
_TOPS = "shop bigint, hour bigint, user bigint, amount bigint"
_HOUR = 3600


def measure(run: RowsRun) -> Figures:
    """Run the peer; its checkpoint and its results are in the run's folder."""
    spark = _session(run)
    watch = Stopwatch()
    sql = _cleaned(spark, run) if run.workload == RowWorkload.CLEANED else _tops(spark, run)
    measured = figures(run, watch, sql)
    spark.stop()
    return measured


def _session(run: RowsRun) -> SparkSession:
    settings: dict[str, Any] = {
        **CONF,
        **STREAMING,
        "spark.master": f"local[{run.cores}]",
        "spark.sql.shuffle.partitions": str(run.cores),
        "spark.driver.memory": run.memory,
        "spark.local.dir": str(run.work / "spark"),
        "spark.driver.extraJavaOptions": driver_java_options(),
    }
    return SparkSession.builder.appName("benchmark peer").config(map=settings).getOrCreate()


def _cleaned(spark: SparkSession, run: RowsRun) -> str:
    orders = spark.readStream.schema(_ORDERS).option("maxFilesPerTrigger", 1).json(str(run.landing))
    amount = (f.col("price") * f.col("quantity")).alias("amount")
    rows = orders.where(f.col("status") == "paid").select("id", f.upper("shop").alias("shop"), amount, "at")
    out = run.work / "results"
    writer = rows.writeStream.format("parquet").option("path", str(out))
    writer.option("checkpointLocation", str(run.work / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return f"select * from read_parquet('{out}/*.parquet')"


class _Largest(StatefulProcessor):
    """The largest payments of a shop and hour, until it is over and nothing of it can come any more."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        self._rows = handle.getListState("rows", "amount bigint, at bigint, user bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 (Spark's)
        """Give all of them again if one has changed."""
        known = [tuple(row) for row in self._rows.get()]
        if not known:
            self._handle.registerTimer((int(key[1]) + 1) * _HOUR * 1000)
        frames = [frame.nlargest(MOST, ["amount", "us", "user"]) for frame in rows]
        arrived = [
            (int(a), int(b), int(c)) for frame in frames for a, b, c in frame[["amount", "us", "user"]].to_numpy()
        ]
        largest = sorted([*known, *arrived], reverse=True)[:MOST]
        if largest != known:
            self._rows.put(largest)
            yield pd.DataFrame(
                {"shop": key[0], "hour": key[1], "user": [r[2] for r in largest], "amount": [r[0] for r in largest]}
            )

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 (Spark's)
        """Forget it."""
        self._rows.clear()
        return iter([])

    def close(self) -> None:
        """Nothing."""


def _tops(spark: SparkSession, run: RowsRun) -> str:
    out = run.work / "results"
    payments = spark.readStream.schema(_PAYMENTS).option("maxFilesPerTrigger", 1).parquet(str(run.landing))
    delay = f"{int((BOUND + LATENESS).total_seconds())} seconds"
    us = f.unix_micros("at")
    shaped = payments.withWatermark("at", delay).select(
        (f.col("user") % SHOPS).alias("shop"),
        f.floor(us / (_HOUR * 1_000_000)).alias("hour"),
        "at",
        us.alias("us"),
        "user",
        "amount",
    )
    largest = shaped.groupBy("shop", "hour").transformWithStateInPandas(
        statefulProcessor=_Largest(), outputStructType=_TOPS, outputMode="Update", timeMode="EventTime"
    )

    def sink(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{out}/batch={batch:05d}")

    writer = largest.writeStream.outputMode("update").foreachBatch(sink)
    writer.option("checkpointLocation", str(run.work / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    source = f"read_parquet('{out}/*/*.parquet', hive_partitioning = true)"
    return f"select * from {source} qualify batch = max(batch) over (partition by shop, hour)"
