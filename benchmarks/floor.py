"""The floor: one DuckDB query over all files, without state, snapshots, accounting or dead letters."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb

from benchmarks.landing import paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import BUSY, GAP, PERIOD, RESULTS, SIZE, Workload


def measure(run: Run) -> Measured:
    """Run the query; its results are one Parquet file in the run's folder."""
    out = run.work / "results.parquet"
    started = time.monotonic()
    connection = duckdb.connect(config={"threads": run.cores, "memory_limit": run.memory})
    connection.execute("set timezone = 'UTC'")
    start_seconds = time.monotonic() - started
    watch = Stopwatch()
    connection.execute(f"copy ({query(run.workload, paths(run.landing))}) to '{out}' (format parquet)")
    wall, cpu = watch.read()
    committed = time.time()
    connection.close()
    columns = ", ".join(f'"{name}"' for name in RESULTS[run.workload])
    return Measured(
        wall_seconds=wall,
        cpu_seconds=cpu,
        start_seconds=start_seconds,
        first_commit_seconds=run.first_commit(committed),
        epoch_seconds=[wall],
        rows_sql=f"select {columns} from read_parquet('{out}')",
        cut=None,
    )


def query(workload: Workload, files: Iterable[Path]) -> str:
    """DuckDB's query for the results over these files."""
    names = ", ".join(f"'{path}'" for path in files)
    return _QUERIES[workload].format(events=f"read_parquet([{names}])")


_SIZE, _PERIOD, _GAP = (f"interval '{int(length.total_seconds())}' second" for length in (SIZE, PERIOD, GAP))

_DAY = "interval '1' day"

_SUMS = "count(*)::bigint as payments, sum(amount)::bigint as amount"

_TUMBLING = f"""
select "user", time_bucket({_SIZE}, "at") as window_start, time_bucket({_SIZE}, "at") + {_SIZE} as window_end, {_SUMS}
from {{events}} group by all"""

_DAILY = f"""
select "user", time_bucket({_DAY}, "at") as window_start, time_bucket({_DAY}, "at") + {_DAY} as window_end, {_SUMS}
from {{events}} group by all"""

_SLIDING = f"""
select "user", window_start, window_start + {_SIZE} as window_end, {_SUMS} from (
    select "user", amount, unnest([time_bucket({_PERIOD}, "at") - {_PERIOD}, time_bucket({_PERIOD}, "at")])
        as window_start from {{events}}
) group by all"""

_SESSIONS = f"""
select "user", min("at") as window_start, max("at") + {_GAP} as window_end, {_SUMS} from (
    select *, sum(opens) over (partition by "user" order by "at" rows unbounded preceding) as session from (
        select "user", "at", amount,
            ("at" >= lag("at", 1, "at") over (partition by "user" order by "at") + {_GAP})::int as opens
        from {{events}}
    )
) group by "user", session"""

_TWO_STAGE = f"""
select window_start, window_end, count(*)::bigint as users from ({_TUMBLING})
where payments > {BUSY} group by all"""

_QUERIES: Mapping[Workload, str] = {
    Workload.TUMBLING: _TUMBLING,
    Workload.SLIDING: _SLIDING,
    Workload.SESSIONS: _SESSIONS,
    Workload.TWO_STAGE: _TWO_STAGE,
    Workload.LIVE_KEYS: _DAILY,
}
