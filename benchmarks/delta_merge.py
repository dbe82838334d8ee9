"""The newest row of each key by MERGE into a table of Delta, a micro-batch each: ``foreachBatch``, as its guide has it.

The table has deletion vectors, so that a merge writes the rows that change and marks those that were. It begins with
all keys, written at once.
"""

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.landing import land, paths
from benchmarks.peers import SCHEMA, session, takes_in
from benchmarks.runs import Measured, Run, Stopwatch
from headrace.distribute.spark.jvm import cache_folder
from scripts.maven import fetch_jars

VERSION = "4.4.0"
_JARS = (f"io.delta:delta-spark_4.2_2.13:{VERSION}",)


def measure(run: Run) -> Measured:
    """Merge the files of ``run`` into a table that has those to prepare; what it holds is copied behind the watch."""
    started = time.monotonic()
    spark = _session(run)
    start_seconds = time.monotonic() - started
    table = str(run.work / "table")
    assert run.prepare is not None
    everyone = spark.read.schema(SCHEMA).parquet(*map(str, paths(run.prepare)))
    everyone.write.format("delta").option("delta.enableDeletionVectors", "true").save(table)
    land(run.source, run.landing, "b")
    watch = Stopwatch()
    batches = _drain(spark, run, table)
    wall, cpu = watch.read()
    out = run.work / "results"
    spark.read.format("delta").load(table).write.parquet(str(out))
    spark.stop()
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=None,
        epoch_seconds=batches,
        rows_sql=f"""select "user", amount from read_parquet('{out}/*.parquet')""",
        cut=None,
    )


def _session(run: Run) -> SparkSession:
    jars = fetch_jars(cache_folder() / f"delta-jars-{VERSION}", _JARS, with_dependencies=True)
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    settings = {
        "spark.sql.catalog.spark_catalog": catalog,
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
    }
    settings["spark.databricks.delta.snapshotPartitions"] = str(run.cores)
    return session(run, {**settings, "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"})


def _drain(spark: SparkSession, run: Run, table: str) -> list[float]:
    """Seconds of each micro-batch."""

    def merge(rows: DataFrame, batch: int) -> None:
        del batch
        newest = rows.groupBy("user").agg(f.max(f.struct("at", "amount")).alias("newest")).select("user", "newest.*")
        newest.createOrReplaceTempView("changes")
        rows.sparkSession.sql(
            f"merge into delta.`{table}` t using changes c on t.user = c.user "
            "when matched and (c.at, c.amount) > (t.at, t.amount) then update set * when not matched then insert *"
        )

    payments = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(run.landing))
    writer = payments.writeStream.foreachBatch(merge).option("checkpointLocation", str(run.work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [batch["durationMs"]["triggerExecution"] / 1000 for batch in query.recentProgress if takes_in(dict(batch))]
