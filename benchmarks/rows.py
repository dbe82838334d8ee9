"""Rows as results against Spark's own ways and DuckDB, as ratios within one run.

``python -m benchmarks.rows --workload cleaned|waiting|tops --executor local|spark
--against structured_streaming|duckdb``.
``cleaned``: JSON records that are filtered, with a column in capitals and one that is computed, as Parquet: against
Structured Streaming's file sink, a file a micro-batch, and against DuckDB's COPY of all files, ours as one batch.
``waiting``: the same records as rows that wait for the watermark, a file a micro-batch, against DuckDB's COPY of those
that are below it. ``tops``: the three largest payments of each shop and hour, a file a micro-batch, against
``transformWithState`` in Python with RocksDB. Each run is a process of its own. Wall and CPU seconds from the first
listing to the last commit, children's too; Spark's start is left out on both sides.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks import data
from benchmarks.comparison import machine, ratios, told, workplace
from benchmarks.runs import Stopwatch
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import BOUND, LATENESS, Side

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline

SHOPS, MOST = 100, 3


class RowWorkload(StrEnum):
    """What is computed."""

    CLEANED = "cleaned"
    WAITING = "waiting"
    TOPS = "tops"


_CLEANED = ("id", "shop", "amount", 'epoch_us("at")')
RESULTS: Mapping[RowWorkload, tuple[str, ...]] = {
    RowWorkload.CLEANED: _CLEANED,
    RowWorkload.WAITING: _CLEANED,
    RowWorkload.TOPS: ("shop", "hour", '"user"', "amount"),
}
"""What both sides are compared in."""


@dataclass(frozen=True)
class Figures:
    """What a run took, and what it found: how many rows, and a digest of all."""

    wall_seconds: float
    cpu_seconds: float
    found: Sequence[Any]


@dataclass(frozen=True)
class RowsRun:
    """One side, with the files of ``landing`` and a folder of its own."""

    workload: RowWorkload
    against: Side
    landing: Path
    work: Path
    cores: int
    memory: str
    executor: str


def main() -> None:
    """Command line."""
    given = _arguments()
    if given.side:
        print(json.dumps(vars(_measured(given))))
        return
    is_of_tops = given.workload is RowWorkload.TOPS
    landing = _payments(given) if is_of_tops else cleaned_input(given.folder, given.rows, given.files)
    sides: dict[Side, list[Figures]] = {Side.OURS: [], given.against: []}
    for _ in range(given.repeats):
        for side, runs in sides.items():
            runs.append(_side_run(side, landing, given))
    ours, peer = sides.values()
    result = {
        "workload": given.workload,
        "rows": given.rows,
        "executor": given.executor,
        "against": given.against,
        "ours": [vars(run) for run in ours],
        "peer": [vars(run) for run in peer],
        "ratio": ratios([(one.wall_seconds, other.wall_seconds) for one, other in zip(ours, peer, strict=True)]),
        "cpu_ratio": ratios([(one.cpu_seconds, other.cpu_seconds) for one, other in zip(ours, peer, strict=True)]),
        "agrees": all(one.found == other.found and one.found[0] for one, other in zip(ours, peer, strict=True)),
        "load": os.getloadavg()[0],
    }
    if given.format == "json":
        print(json.dumps({**result, "machine": machine(given.cores, given.memory)}))
    else:
        _show(result, ours, peer)
    if not result["agrees"]:
        raise SystemExit("the results differ")


def _show(result: Mapping[str, Any], ours: Sequence[Figures], peer: Sequence[Figures]) -> None:
    for name, runs in (("ours", ours), (result["against"], peer)):
        wall, cpu = (statistics.median(getattr(run, f"{of}_seconds") for run in runs) for of in ("wall", "cpu"))
        print(f"{result['workload']}, {result['executor']}, {name}: {wall:.2f} s, CPU {cpu:.2f} s")
    verdict = "agrees" if result["agrees"] else "DISAGREES"
    print(f"wall {told(result['ratio'])}, CPU {told(result['cpu_ratio'])}; {verdict}; load {result['load']:.1f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", type=RowWorkload, choices=list(RowWorkload), default=RowWorkload.CLEANED)
    peers = [Side.STRUCTURED_STREAMING, Side.DUCKDB]
    parser.add_argument("--against", type=Side, choices=peers, default=Side.STRUCTURED_STREAMING)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=10, help="and so micro-batches")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", type=Side, help=argparse.SUPPRESS)
    parser.add_argument("--landing", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    executor_argument(parser)
    common_arguments(parser)
    given = parser.parse_args()
    if given.workload is RowWorkload.TOPS and given.against is Side.DUCKDB:
        parser.error("duckdb is the floor of cleaned and waiting rows alone")
    if given.workload is RowWorkload.WAITING and given.against is not Side.DUCKDB:
        parser.error("waiting rows are measured against duckdb alone")
    return given


def _side_run(side: Side, landing: Path, given: argparse.Namespace) -> Figures:
    with workplace(given.folder) as work:
        asked = {"side": side, "landing": landing, "work": work, "workload": given.workload, "against": given.against}
        asked |= {"executor": given.executor, "cores": given.cores, "memory": given.memory}
        words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "HEADRACE_CACHE": str(work / "cache")}
        environment["PYSPARK_PYTHON"] = sys.executable
        command = [sys.executable, "-m", "benchmarks.rows", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    figures = Figures(**json.loads(done.stdout.splitlines()[-1]))
    print(f"{side}: {figures.wall_seconds:.1f} s, CPU {figures.cpu_seconds:.1f} s", file=sys.stderr, flush=True)
    return figures


def _measured(given: argparse.Namespace) -> Figures:
    names = ("workload", "against", "landing", "work", "cores", "memory", "executor")
    run = RowsRun(**{name: getattr(given, name) for name in names})
    if given.side is Side.OURS:
        return _ours(run)
    if given.side is Side.DUCKDB:
        return _duckdb(run)
    from benchmarks import row_peers  # with Spark

    return row_peers.measure(run)


def figures(run: RowsRun, watch: Stopwatch, rows_sql: str) -> Figures:
    """What ``watch`` says, with what ``rows_sql`` finds."""
    wall, cpu = watch.read()
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        digest = f"bit_xor(hash({', '.join(RESULTS[run.workload])}))::varchar"
        found = connection.execute(f"select count(*), {digest} from ({rows_sql})").fetchone()
    return Figures(wall, cpu, list(found or ()))


# --- the input


def cleaned_input(folder: Path, rows: int, files: int) -> Path:
    """The folder of so many JSON records in so many files, written if it is not there yet."""
    landing = folder / "data" / f"orders-{rows}-{files}"
    if not landing.is_dir():
        draft = landing.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        size = rows // files
        for file in range(files):
            with (draft / f"part-{file:05}.json").open("w") as out:
                out.writelines(json.dumps(_order(file * size + number)) + "\n" for number in range(size))
            os.utime(draft / f"part-{file:05}.json", (1_767_225_600 + file,) * 2)
        draft.rename(landing)
    return landing


def _order(number: int) -> dict[str, object]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=40 * number)
    status = ("paid", "paid", "paid", "paid", "open")[number * 7 % 5]
    order = {"id": number, "customer": f"customer {number * 31 % 50_021}", "shop": f"shop {number * 17 % 97}"}
    money = {"price": number * 13 % 10_000, "quantity": number % 7 + 1}
    return {**order, "status": status, **money, "at": at.isoformat(), "note": "x" * 24}


def _payments(given: argparse.Namespace) -> Path:
    return data.events(given.folder / "data", data.Events(given.rows, 20_000, given.files))


# --- ours, and the floor


def _ours(run: RowsRun) -> Figures:
    import headrace as hr
    from headrace.runs.options import Mode, RunOptions
    from headrace.runs.process import process

    spark = None
    if run.executor == "spark":
        from headrace.distribute.spark.session import spark_session

        conf = {"spark.driver.memory": run.memory, "spark.local.dir": str(run.work / "spark")}
        spark = spark_session("rows", cores=run.cores, conf=conf)
    pipeline, root = _PIPELINES[run.workload](run), (run.work / "root").as_uri()
    options = RunOptions("measured", executor=run.executor, files_per_epoch=1)
    if run.workload is RowWorkload.CLEANED and run.against is Side.DUCKDB:
        options = RunOptions("measured", executor=run.executor, mode=Mode.BATCH)
    watch = Stopwatch()
    process(pipeline, root, options, spark=spark)
    found, cpu = watch.read()
    rows = hr.open(root, create=True)[pipeline].current(at="main").to_arrow()
    with duckdb.connect() as connection:
        connection.register("found", rows)
        connection.execute(f"copy found to '{run.work}/found.parquet' (format parquet)")
    columns = "*" if run.workload is not RowWorkload.TOPS else "*, epoch(window_start)::bigint // 3600 as hour"
    sql = f"select {columns} from read_parquet('{run.work}/found.parquet')"
    return Figures(found, cpu, figures(run, watch, sql).found)


def _cleaned(run: RowsRun) -> "Pipeline":
    """Rows of the records that are paid; WAITING: behind the watermark."""
    import headrace as hr
    from headrace import col

    columns = {"id": int, "shop": str, "status": str, "price": int, "quantity": int, "at": datetime}
    waits: dict[str, Any] = {"when": hr.on_window_close()} if run.workload is RowWorkload.WAITING else {}
    return hr.Pipeline(
        "cleaned",
        hr.json(f"file://{run.landing}", columns).event_time("at", bound="1h"),
        **waits,
        rows={"id": col("id"), "shop": col("shop").upper(), "amount": col("price") * col("quantity"), "at": col("at")},
        filter=col("status") == "paid",
    )


def _tops(run: RowsRun) -> "Pipeline":
    import headrace as hr
    from headrace import col

    columns = {"user": int, "at": datetime, "amount": int}
    return hr.Pipeline(
        "tops",
        hr.parquet(f"file://{run.landing}", columns).event_time("at", bound=BOUND),
        rows=["user", "amount"],
        key={"shop": col("user") % SHOPS},
        take=hr.top(MOST, by="amount"),
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness=LATENESS),
    )


_PIPELINES: Mapping[RowWorkload, Callable[[RowsRun], "Pipeline"]] = {
    RowWorkload.CLEANED: _cleaned,
    RowWorkload.WAITING: _cleaned,
    RowWorkload.TOPS: _tops,
}


def _duckdb(run: RowsRun) -> Figures:
    """One COPY over all files; of waiting rows those below the watermark, an hour behind the newest record."""
    types = (
        "id: 'bigint', shop: 'varchar', status: 'varchar', price: 'bigint', quantity: 'bigint', \"at\": 'timestamptz'"
    )
    out = run.work / "results.parquet"
    with duckdb.connect(config={"threads": run.cores, "memory_limit": run.memory}) as connection:
        connection.execute("set timezone = 'UTC'")
        watch = Stopwatch()
        kept = "where status = 'paid'"
        if run.workload is RowWorkload.WAITING:
            kept = """qualify "at" < max("at") over () - interval '1 hour' and status = 'paid'"""
        connection.execute(
            f'copy (select id, upper(shop) as shop, price * quantity as amount, "at" from read_json('
            f"'{run.landing}/*.json', format = 'newline_delimited', columns = {{{types}}}) {kept}) "
            f"to '{out}' (format parquet)"
        )
        return figures(run, watch, f"select * from read_parquet('{out}')")


if __name__ == "__main__":
    main()
