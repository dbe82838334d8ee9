"""What a delivery to PostgreSQL costs beside the same statements by hand, on the same server and rows.

``python -m benchmarks.sinks --connection postgresql://user:password@host/database --rows 1000000 --changed 100000``. A
pipeline of ``rows`` keys is delivered once (all rows), then ``changed`` of them change and are delivered (the panes
between). By hand: the rows lie ready as CSV files; they are copied, and the changed ones staged and written by INSERT
with ON CONFLICT, each in one transaction. The ratio is by hand over ours, so that 1 means that reading the snapshot and
working out the change cost nothing. Tables are made in a schema of their own, which goes.
"""

import argparse
import json
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

import headrace as hr
from benchmarks import data
from benchmarks.comparison import FOLDER, machine, workplace
from benchmarks.landing import paths
from headrace import col
from headrace.runs.client.handle import PipelineHandle

COLUMNS = '"user", window_start, window_end, payments, amount'
DECLARED = (
    '"user" bigint, window_start timestamptz, window_end timestamptz, payments bigint, amount bigint, '
    'unique nulls not distinct ("user", window_start, window_end)'
)


def pipeline(landing: Path, table: str) -> hr.Pipeline:
    """Payments by user and day."""
    files = hr.parquet(landing.as_uri(), {"user": int, "at": hr.DataType.TIMESTAMP, "amount": int})
    return hr.Pipeline(
        "payments",
        files.event_time("at", bound="1d"),
        key="user",
        what={"payments": hr.count(), "amount": col("amount").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="7d"),
        sinks=[hr.postgres(table, connection="benchmark")],
        executor="local",
    )


def land(source: Path, landing: Path, name: str) -> None:
    """The files of a folder, into the landing folder."""
    landing.mkdir(exist_ok=True)
    for path in paths(source):
        (landing / f"{name}-{path.name}").symlink_to(path)


def csv_of(handle: PipelineHandle, file: Path, where: str | None = None) -> Path:
    """What readers see, as PostgreSQL reads it."""
    rows = handle.current(where=where, columns=[name.strip('" ') for name in COLUMNS.split(",")])
    rows.to_duckdb().write_csv(str(file))
    return file


@contextmanager
def schema(connection: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A schema of our own."""
    name = f"headrace_{secrets.token_hex(4)}"
    with psycopg.connect(connection, autocommit=True) as server:
        server.execute(f"create schema {name}")
        try:
            yield server, name
        finally:
            server.execute(f"drop schema {name} cascade")


def by_hand(server: psycopg.Connection, table: str, file: Path, *, is_new: bool) -> None:
    """The rows of a file, copied into a new table, or written over those of one."""
    with server.transaction():
        into = table if is_new else "staged"
        declared = f"create table {table} ({DECLARED})"
        server.execute(declared if is_new else f"create temporary table staged (like {table}) on commit drop")
        statement = f"copy {into} ({COLUMNS}) from stdin (format csv, header)"
        with server.cursor() as cursor, cursor.copy(statement) as copy, file.open("rb") as text:
            while chunk := text.read(2**20):
                copy.write(chunk)
        if not is_new:
            server.execute(
                f"insert into {table} ({COLUMNS}) select {COLUMNS} from staged on conflict "
                '("user", window_start, window_end) '
                "do update set payments = excluded.payments, amount = excluded.amount"
            )


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def measure(asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Both, for all rows and for those that changed."""
    everyone = data.everyone(asked.folder / "data", asked.rows)
    touched = data.touches(asked.folder / "data", data.Touches(asked.rows, asked.changed, 1))
    with schema(asked.connection) as (server, name):
        made = pipeline(work / "landing", f"{name}.ours")
        handle = hr.open((work / "root").as_uri(), create=True)[made]
        land(everyone, work / "landing", "a")
        handle.run()
        before = handle.show("published").epoch
        all_rows = csv_of(handle, work / "all.csv")
        ours = [seconds(handle.deliver)]
        hand = [seconds(lambda: by_hand(server, f"{name}.hand", all_rows, is_new=True))]
        land(touched, work / "landing", "b")
        handle.run()
        changed = csv_of(handle, work / "changed.csv", f"epoch > {before}")
        ours.append(seconds(handle.deliver))
        hand.append(seconds(lambda: by_hand(server, f"{name}.hand", changed, is_new=False)))
        same = server.execute(
            f"select count(*) from (table {name}.ours except select {COLUMNS} from {name}.hand) as apart"
        ).fetchone()
        if same != (0,):
            raise SystemExit(f"the tables differ in {same} rows")
    return {"all": (ours[0], hand[0]), "changed": (ours[1], hand[1])}


def show(asked: argparse.Namespace, runs: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    """Medians over the runs."""
    result: dict[str, Any] = {"rows": asked.rows, "changed": asked.changed, "machine": machine(0, "-")}
    for kind, rows in (("all", asked.rows), ("changed", asked.changed)):
        ratio = statistics.median(hand / ours for ours, hand in (run[kind] for run in runs))
        ours = statistics.median(run[kind][0] for run in runs)
        result[kind] = {"seconds": ours, "rows_per_second": round(rows / ours), "by_hand_over_ours": round(ratio, 2)}
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection", required=True, help="a URI of a server on which schemas may be made")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changed", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for data and runs (removed)")
    asked = parser.parse_args()
    os.environ["HEADRACE_CONN_BENCHMARK"] = asked.connection
    runs = []
    for number in range(asked.repeats):
        with workplace(asked.folder) as work:
            runs.append(measure(asked, work))
        print(f"{number + 1}/{asked.repeats}: {runs[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(show(asked, runs), indent=1))


if __name__ == "__main__":
    main()
