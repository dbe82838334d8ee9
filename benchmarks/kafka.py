"""A topic of JSON records drained, against Structured Streaming's own source for Kafka, as ratios within one run.

``python -m benchmarks.kafka --rows 5000000 --partitions 4 --sides spark local never``. A broker of our own gets
payments as JSON objects, those of a user in one partition; each side counts and sums them by user and ten minutes, in a
process of its own. Structured Streaming reads with ``availableNow``, one batch, RocksDB state, results as Parquet. Ours
reads with its defaults: ``spark`` and ``local`` land the records first, ``never`` (on ``local``) reads them where they
are. Wall and CPU seconds from the first look at the topic to the last commit; the start of Spark is left out on both
sides. ``--profile`` says as well where threads of our process were, by module; on Spark that is the driver alone.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from aiokafka import AIOKafkaProducer

from benchmarks import data
from benchmarks.comparison import FOLDER, machine, workplace
from benchmarks.runs import Stopwatch
from benchmarks.sampling import sampled
from benchmarks.workloads import BOUND, LATENESS, SIZE
from scripts.kafka import Kafka
from tests.sources.kafka_topics import Topics

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
TOPIC = "payments"
_BATCH = 64 * 1024
_PROFILE = ["--profile"]
_ROWS = 'select epoch_us(window_start) as at, "user", payments, amount from ({}) order by all'


def main() -> None:
    """Command line."""
    given = _arguments()
    if given.child:
        print(json.dumps(_CHILDREN[given.child](given)))
        return
    source = data.events(given.folder / "data", data.Events(given.rows, given.keys, 10))
    with workplace(given.folder) as work, Kafka(work / "broker") as broker:
        topics = Topics(broker.address)
        topics.make(TOPIC, given.partitions)
        _note(f"sending {given.rows:,} records")
        started = time.monotonic()
        asyncio.run(_send(broker.address, source, given.partitions))
        _note(f"sent in {time.monotonic() - started:.0f} s")
        sides = [side for _ in range(given.repeats) for side in ("peer", *given.sides)]
        runs: dict[str, list[dict[str, Any]]] = {}
        for number, side in enumerate(sides):
            folder = work / f"{number}-{side}"
            folder.mkdir()
            runs.setdefault(side, []).append(_run(side, folder, broker, given))
            _note(f"{side}: {runs[side][-1]}")
    print(json.dumps(_told(runs, given)))


def _told(runs: dict[str, list[dict[str, Any]]], given: argparse.Namespace) -> dict[str, Any]:
    """The least seconds of each side, and peer over ours."""
    least = {side: min(own, key=lambda run: run["wall"]) for side, own in runs.items()}
    digests = {run["digest"] for own in runs.values() for run in own}
    ratios = {side: round(least["peer"]["wall"] / own["wall"], 2) for side, own in least.items()}
    return {
        "rows": given.rows,
        "partitions": given.partitions,
        "seconds": least,
        "ratio": ratios,
        "agrees": len(digests) == 1,
        "load_average": os.getloadavg()[0],
        "machine": machine(given.cores, given.memory),
    }


def _run(side: str, folder: Path, broker: Kafka, given: argparse.Namespace) -> dict[str, Any]:
    words = ["--child", side, "--work", str(folder), "--address", broker.address, "--memory", given.memory]
    environment = {**os.environ, "HEADRACE_CONN_EVENTS": f"kafka://{broker.address}", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka", *words, "--cores", str(given.cores), *_PROFILE[: given.profile]],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


# --- the records


async def _send(address: str, source: Path, partitions: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, max_batch_size=_BATCH, acks=1) as producer:
        for partition, values in _values(source, partitions):
            batch = producer.create_batch()
            now, waiting = int(time.time() * 1000), []
            for value in values:
                if batch.append(key=None, value=value, timestamp=now) is None:
                    batch.close()
                    waiting.append(await producer.send_batch(batch, TOPIC, partition=partition))
                    batch = producer.create_batch()
                    batch.append(key=None, value=value, timestamp=now)
            batch.close()
            waiting.append(await producer.send_batch(batch, TOPIC, partition=partition))
            await asyncio.gather(*waiting)


def _values(source: Path, partitions: int) -> Iterator[tuple[int, list[bytes]]]:
    """Payments as JSON objects by partition, file by file."""
    for file in sorted(source.glob("*.parquet")):
        for partition in range(partitions):
            with duckdb.connect() as connection:
                connection.execute("set timezone = 'UTC'")
                table: pa.Table = connection.execute(
                    'select concat(\'{"user":\', "user", \',"at":"\', strftime("at", \'%Y-%m-%dT%H:%M:%S.%fZ\'), '
                    f"'\",\"amount\":', amount, '}}')::blob as value from read_parquet('{file}') "
                    f'where "user" % {partitions} = {partition}'
                ).to_arrow_table()
            yield partition, table["value"].to_pylist()


# --- the sides


def _ours(given: argparse.Namespace, executor: str, land: str) -> dict[str, Any]:
    import headrace as hr
    from headrace import col
    from headrace.runs.options import RunOptions
    from headrace.runs.process import process

    source = hr.kafka(TOPIC, {"user": int, "at": hr.DataType.TIMESTAMP, "amount": int}, connection="events", land=land)
    pipeline = hr.Pipeline(
        "benchmark",
        source.event_time("at", bound=BOUND),
        key="user",
        what={"payments": hr.count(), "amount": col("amount").sum()},
        where=hr.FixedWindows(SIZE),
        when=hr.on_update(),
        how=hr.accumulating(allowed_lateness=LATENESS, on_time="if_non_empty"),
        executor=executor,
    )
    os.environ["HEADRACE_CACHE"] = str(given.work / "cache")
    handle = hr.open((given.work / "root").as_uri(), create=True)[pipeline]
    spark = _session(given, {}) if executor == "spark" else None
    watch = Stopwatch()
    with sampled() if given.profile else nullcontext({}) as shares:
        result = process(pipeline, handle.root, RunOptions("measured", create=True), spark=spark)
        wall, cpu = watch.read()
    rows = handle.read("current", at="main").to_arrow()
    profile = {"profile": shares} if shares else {}
    return {"wall": wall, "cpu": cpu, "epochs": len(result.epochs), **_digest(rows), **profile}


def _session(given: argparse.Namespace, more: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    from benchmarks.peers import CONF
    from headrace.distribute.spark.jvm import driver_java_options

    settings = {
        **CONF,
        "spark.master": f"local[{given.cores}]",
        "spark.sql.shuffle.partitions": str(given.cores),
        "spark.driver.memory": given.memory,
        "spark.local.dir": str(given.work / "spark"),
        "spark.driver.extraJavaOptions": driver_java_options(),
        **more,
    }
    builder = SparkSession.builder.appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _peer(given: argparse.Namespace) -> dict[str, Any]:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    from benchmarks.peers import STREAMING, _seconds

    spark = _session(given, {**STREAMING, "spark.jars.packages": PACKAGE})
    out = given.work / "results"

    def sink(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(f"{out}/batch={batch:05d}")

    watch = Stopwatch()
    topic = spark.readStream.format("kafka").option("kafka.bootstrap.servers", given.address).option("subscribe", TOPIC)
    values = topic.option("startingOffsets", "earliest").load().selectExpr("cast(value as string) as value")
    events = values.select(f.from_json("value", "user bigint, at timestamp, amount bigint").alias("v")).select("v.*")
    sums = (f.count(f.lit(1)).alias("payments"), f.sum("amount").alias("amount"))
    grouped = events.withWatermark("at", _seconds(BOUND + LATENESS)).groupBy(
        f.window("at", _seconds(SIZE)).alias("w"), "user"
    )
    query = (
        grouped.agg(*sums)
        .select("user", f.col("w.start").alias("window_start"), "payments", "amount")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(given.work / "checkpoint"))
        .foreachBatch(sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wall, cpu = watch.read()
    batches = len([batch for batch in query.recentProgress if batch["numInputRows"]])
    spark.stop()
    with duckdb.connect() as connection:
        newest = connection.execute(
            'select "user", window_start, arg_max(payments, batch) as payments, arg_max(amount, batch) as amount '
            f"from read_parquet('{out}/*/*.parquet', hive_partitioning = true) group by all"
        ).to_arrow_table()
    return {"wall": wall, "cpu": cpu, "epochs": batches, **_digest(newest)}


def _digest(rows: pa.Table) -> dict[str, Any]:
    """How many results there are, and what they are."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("rows", rows)
        count, payments, digest = connection.execute(
            'select count(*), sum(payments)::bigint, bit_xor(hash("user"::bigint, epoch_us(window_start), '
            "payments::bigint, amount::bigint))::varchar from rows"
        ).fetchall()[0]
    return {"rows": count, "payments": payments, "digest": f"{count} {payments} {digest}"}


_CHILDREN = {
    "peer": _peer,
    "spark": lambda given: _ours(given, "spark", "always"),
    "local": lambda given: _ours(given, "local", "always"),
    "never": lambda given: _ours(given, "local", "never"),
    "spark-never": lambda given: _ours(given, "spark", "never"),
}


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sides", nargs="*", choices=[*_CHILDREN], default=["spark", "local", "never"])
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", default="6g", help="of the driver, for both sides")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--profile", action="store_true", help="say where threads of ours were (a bit slower)")
    parser.add_argument("--child", choices=[*_CHILDREN], help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
