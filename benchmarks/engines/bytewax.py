# /// script
# requires-python = ">=3.11,<3.12"
# dependencies = ["bytewax==0.21.1", "psutil>=7", "pyarrow>=18"]
# ///
"""Bytewax: each window a fold in Python, a worker for each core, recovery each ten seconds.

Each user has a watermark of their own, of their own rows; a window comes out once, when it is closed.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op
import bytewax.operators.windowing as windows
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.landing import paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import BOUND, LATENESS, SIZE

_BATCH: Final = 8192
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Sums = tuple[int, int]
"""How many payments, and how much."""


def measure(run: Run) -> Measured:
    """Sums per user and tumbling window; the results are Parquet files in the run's folder."""
    out, recovery = run.work / "results", run.work / "recovery"
    out.mkdir()
    recovery.mkdir()
    init_db_dir(recovery, run.cores)
    watch = Stopwatch()
    cli_main(
        _flow(run.landing, out),
        workers_per_process=run.cores,
        epoch_interval=timedelta(seconds=10),
        recovery_config=RecoveryConfig(recovery),
    )
    wall, cpu = watch.read()
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=0.0,
        first_commit_seconds=run.first_commit(time.time()),
        epoch_seconds=[wall],
        rows_sql=f"select * from read_parquet('{out}/*.parquet')",
        cut=None,
    )


def _flow(landing: Path, out: Path) -> Dataflow:
    flow = Dataflow("payments")
    rows = op.input("files", flow, _Files(landing))
    clock = windows.EventClock(
        lambda row: row[0], wait_for_system_duration=BOUND + LATENESS, to_system_utc=lambda _: None
    )
    fixed = windows.TumblingWindower(length=SIZE, align_to=_EPOCH)
    sums = windows.fold_window("sums", rows, clock, fixed, lambda: (0, 0), _added, _both, ordered=False)
    op.output("results", sums.down, _Folder(out))
    return flow


def _added(sums: Sums, row: tuple[datetime, int]) -> Sums:
    return sums[0] + 1, sums[1] + row[1]


def _both(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1]


class _Files(FixedPartitionedSource[Any, int]):
    """The files one after another, as one partition: users' rows come in the order of arrival."""

    def __init__(self, landing: Path) -> None:
        self._landing = landing

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> "_Rows":
        return _Rows(self._landing, resume_state or 0)


class _Rows(StatefulSourcePartition[Any, int]):
    """Batches of (user, (event time, amount)), from a batch on."""

    def __init__(self, landing: Path, done: int) -> None:
        self._batches = _batches(landing)
        self._done = 0
        for _ in range(done):
            self.next_batch()

    def next_batch(self) -> list[tuple[str, tuple[datetime, int]]]:
        batch = next(self._batches)
        self._done += 1
        users, times, amounts = (batch.column(name).to_pylist() for name in ("user", "at", "amount"))
        return [(str(user), (at, amount)) for user, at, amount in zip(users, times, amounts, strict=True)]

    def snapshot(self) -> int:
        return self._done


def _batches(landing: Path) -> Iterator[pa.RecordBatch]:
    for path in paths(landing):
        yield from pq.ParquetFile(path).iter_batches(_BATCH)


class _Folder(DynamicSink[Any]):
    """A Parquet file of each worker."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "_File":
        return _File(self._out / f"{worker_index}.parquet")


class _File(StatelessSinkPartition[Any]):
    def __init__(self, path: Path) -> None:
        times = pa.timestamp("us", "UTC")
        fields = {"user": pa.int64(), "window_start": times, "window_end": times}
        self._schema = pa.schema({**fields, "payments": pa.int64(), "amount": pa.int64()})
        self._writer = pq.ParquetWriter(path, self._schema)

    def write_batch(self, items: list[tuple[str, tuple[int, Sums]]]) -> None:
        starts = [_EPOCH + number * SIZE for _, (number, _) in items]
        columns = {
            "user": [int(user) for user, _ in items],
            "window_start": starts,
            "window_end": [start + SIZE for start in starts],
            "payments": [sums[0] for _, (_, sums) in items],
            "amount": [sums[1] for _, (_, sums) in items],
        }
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
