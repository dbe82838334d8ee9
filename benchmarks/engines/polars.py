"""Polars' streaming engine over all files as one lazy query: no state, no snapshots, no accounting."""

import time

import polars as pl

from benchmarks.landing import paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import SIZE


def measure(run: Run) -> Measured:
    """Sums per user and tumbling window; the results are one Parquet file in the run's folder."""
    out = run.work / "results.parquet"
    watch = Stopwatch()
    window = pl.col("at").dt.truncate(SIZE).alias("window_start")
    sums = (pl.len().cast(pl.Int64).alias("payments"), pl.col("amount").sum())
    events = pl.scan_parquet(paths(run.landing))
    grouped = events.group_by("user", window).agg(*sums)
    results = grouped.with_columns((pl.col("window_start") + SIZE).alias("window_end"))
    results.sink_parquet(out, engine="streaming")
    wall, cpu = watch.read()
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=0.0,
        first_commit_seconds=run.first_commit(time.time()),
        epoch_seconds=[wall],
        rows_sql=f"select * from read_parquet('{out}')",
        cut=None,
    )
