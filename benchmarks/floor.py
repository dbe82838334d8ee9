"""The floor: one DuckDB query over all files, without state, snapshots, accounting or dead letters."""

import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path

import duckdb

from benchmarks.landing import land, paths
from benchmarks.runs import Measured, Run, Stopwatch
from benchmarks.workloads import BUSY, GAP, JOINS, LEFT, PERIOD, RESULTS, RIGHT, SIZE, Workload


def measure(run: Run) -> Measured:
    """Run the query; its results are one Parquet file in the run's folder."""
    out = run.work / "results.parquet"
    started = time.monotonic()
    connection = duckdb.connect(config={"threads": run.cores, "memory_limit": run.memory})
    connection.execute("set timezone = 'UTC'")
    for prefix, folder in (("a", run.prepare), ("b", run.source)) if run.prepare is not None else ():
        land(folder, run.landing, prefix)
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
    given = list(files)
    if workload in JOINS:
        of_sides = {side: _read(path for path in given if path.parent.name == side) for side in (LEFT, RIGHT)}
        return _AS_OF.format(**of_sides)
    return _QUERIES[workload].format(events=_read(given))


def _read(files: Iterable[Path]) -> str:
    names = ", ".join(f"'{path}'" for path in files)
    return f"read_parquet([{names}])"


_SIZE, _PERIOD, _GAP = (length // timedelta(microseconds=1) for length in (SIZE, PERIOD, GAP))
_DAY = timedelta(days=1) // timedelta(microseconds=1)

_SUMS = "count(*)::bigint as payments, sum(amount)::bigint as amount"


def _by_window(rows: str, period: int, size: int) -> str:
    """Sums per user and window, of ``rows`` that say which ``period`` is its first. Windows are integers until the end:
    DuckDB takes twice as long with its ``time_bucket``.
    """
    start, end = (f"make_timestamptz({place})" for place in (f"w * {period}", f"w * {period} + {size}"))
    groups = f'select "user", w, {_SUMS} from ({rows}) group by all'
    return f'select "user", {start} as window_start, {end} as window_end, payments, amount from ({groups})'


def _fixed(size: int) -> str:
    return _by_window(f'select "user", amount, epoch_us("at") // {size} as w from {{events}}', size, size)


_TUMBLING, _DAILY = _fixed(_SIZE), _fixed(_DAY)

_SLIDING = _by_window(
    f'select "user", amount, unnest([w - 1, w]) as w from '
    f'(select "user", amount, epoch_us("at") // {_PERIOD} as w from {{events}})',
    _PERIOD,
    _SIZE,
)

_SESSIONS = f"""
select "user", make_timestamptz(min("at")) as window_start, make_timestamptz(max("at") + {_GAP}) as window_end, {_SUMS}
from (
    select *, sum(opens) over (partition by "user" order by "at" rows unbounded preceding) as session from (
        select "user", "at", amount,
            ("at" >= lag("at", 1, "at") over (partition by "user" order by "at") + {_GAP})::int as opens
        from (select "user", epoch_us("at") as "at", amount from {{events}})
    )
) group by "user", session"""

_TWO_STAGE = f"""
select window_start, window_end, count(*)::bigint as users from ({_TUMBLING})
where payments > {BUSY} group by all"""

_AS_OF = """
select l.id, l.amount, r.amount as before from {left} l
asof join (select "user", "at", max(amount) as amount from {right} group by all) r
on l."user" = r."user" and l."at" >= r."at"
"""
"""Of versions of one moment the last one counts (semantics 16.1); by itself an ``asof join`` takes any of them."""

_QUERIES: Mapping[Workload, str] = {
    Workload.TUMBLING: _TUMBLING,
    Workload.SLIDING: _SLIDING,
    Workload.SESSIONS: _SESSIONS,
    Workload.TWO_STAGE: _TWO_STAGE,
    Workload.LIVE_KEYS: _DAILY,
}
