# /// script
# requires-python = ">=3.11,<3.12"
# dependencies = ["apache-flink==2.3.0", "psutil>=7"]
# ///
"""Flink's SQL over the files, as a bounded stream or as a batch, in a cluster inside one JVM.

As a stream: state on the heap, which takes two thirds of the CPU that RocksDB takes here, checkpoints each ten seconds,
and a Parquet sink that commits at checkpoints and at the end. Each window comes out once, when the watermark has passed
it. Its file source reads files in no order. With the bound that the others have, rows of files that it reads late would
be dropped, so the bound is a month.
"""

import os
import time
from pathlib import Path
from typing import Final

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import SIZE, Side

JARS: Final = "HEADRACE_FLINK_JARS"
"""The folder of what Flink needs to read Parquet: its format, and Hadoop's client."""

_BOUND_DAYS: Final = 30


def measure(run: Run) -> Measured:
    """Sums per user and tumbling window; the results are Parquet files in the run's folder."""
    out = run.work / "results"
    started = time.monotonic()
    tables = _tables(run)
    for statement in (_source(run.landing), _sink(out)):
        tables.execute_sql(statement)
    start_seconds = time.monotonic() - started
    watch = Stopwatch()
    tables.execute_sql(_QUERY).wait()
    wall, cpu = watch.read()
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=run.first_commit(time.time()),
        epoch_seconds=[wall],
        rows_sql=f"select * from read_parquet('{out}/*')",
        cut=None,
    )


def _tables(run: Run) -> TableEnvironment:
    jars = sorted(Path(os.environ[JARS]).glob("*.jar"))
    modes = {Side.FLINK: EnvironmentSettings.in_streaming_mode, Side.FLINK_BATCH: EnvironmentSettings.in_batch_mode}
    tables = TableEnvironment.create(modes[run.side]())
    settings = {
        "parallelism.default": str(run.cores),
        "pipeline.jars": ";".join(jar.as_uri() for jar in jars),
        "table.local-time-zone": "UTC",
        "pipeline.object-reuse": "true",
    }
    if run.side is Side.FLINK:
        settings |= {
            "state.backend.type": "hashmap",
            "execution.checkpointing.interval": "10 s",
            "execution.checkpointing.dir": (run.work / "checkpoints").as_uri(),
        }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    return tables


def _source(landing: Path) -> str:
    return f"""
    create table events (
        `user` bigint, `at` timestamp(6), amount bigint, event_time as cast(`at` as timestamp(3)),
        watermark for event_time as event_time - interval '{_BOUND_DAYS}' day
    ) with ('connector' = 'filesystem', 'path' = '{landing.as_uri()}', 'format' = 'parquet',
            'parquet.utc-timezone' = 'true')"""


def _sink(out: Path) -> str:
    return f"""
    create table results (
        `user` bigint, window_start timestamp(3), window_end timestamp(3), payments bigint, amount bigint
    ) with ('connector' = 'filesystem', 'path' = '{out.as_uri()}', 'format' = 'parquet',
            'parquet.utc-timezone' = 'true', 'parquet.write.int64.timestamp' = 'true')"""


_QUERY: Final = f"""
insert into results
select `user`, window_start, window_end, count(*), sum(amount)
from table(tumble(table events, descriptor(event_time), interval '{int(SIZE.total_seconds()) // 60}' minute))
group by `user`, window_start, window_end"""
