# /// script
# requires-python = ">=3.11,<3.12"
# dependencies = ["pathway==0.33.0", "duckdb>=1.5", "psutil>=7"]
# ///
"""Pathway over the files as one commit, on a thread for each core.

Without a licence key it reads no Parquet: before anything is measured, the files are written as CSV.
"""

import os
import time
from pathlib import Path

import duckdb
import pathway as pw

from benchmarks.landing import paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import BOUND, LATENESS, SIZE


class _Payments(pw.Schema):
    user: int
    at: pw.DateTimeUtc
    amount: int


def measure(run: Run) -> Measured:
    """Sums per user and tumbling window; the results are a CSV file in the run's folder."""
    out, landing = run.work / "results.csv", run.work / "landing"
    _write_csv(run.landing, landing)
    os.environ["PATHWAY_THREADS"] = str(run.cores)
    watch = Stopwatch()
    events = pw.io.csv.read(landing, schema=_Payments, mode="static")
    behavior = pw.temporal.common_behavior(cutoff=BOUND + LATENESS)
    windows = events.windowby(events.at, window=pw.temporal.tumbling(SIZE), behavior=behavior, instance=events.user)
    sums = windows.reduce(
        user=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        window_end=pw.this._pw_window_end,
        payments=pw.reducers.count(),
        amount=pw.reducers.sum(pw.this.amount),
    )
    pw.io.csv.write(sums, out)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    wall, cpu = watch.read()
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=0.0,
        first_commit_seconds=run.first_commit(time.time()),
        epoch_seconds=[wall],
        rows_sql=f"select * from read_csv('{out}')",
        cut=None,
    )


def _write_csv(files: Path, to: Path) -> None:
    to.mkdir()
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for path in paths(files):
            rows = f'select "user", strftime("at", \'%Y-%m-%dT%H:%M:%S.%f+0000\') as "at", amount from \'{path}\''
            connection.execute(f"copy ({rows}) to '{to / path.stem}.csv'")
