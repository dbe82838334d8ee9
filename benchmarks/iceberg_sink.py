"""What a delivery to Iceberg costs beside a plain append of as many rows, to a table of the same kind.

``python -m benchmarks.iceberg_sink --rows 200000 --days 10``. A pipeline of ``rows`` keys by day is delivered, then all
rows of the newest day change and are delivered: files of that day are written again. Beside it, pyiceberg appends the
same rows to another table of the same catalog (SQLite, local files), partitioned by day as ours is. The ratio is ours
over the append.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform

import headrace as hr
from benchmarks.comparison import FOLDER, machine, workplace
from headrace import col
from headrace.ext.sinks import ChangeSource

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


def pipeline(landing: Path) -> hr.Pipeline:
    """Payments by user and day."""
    files = hr.parquet(landing.as_uri(), {"user": int, "at": hr.DataType.TIMESTAMP, "amount": int})
    return hr.Pipeline(
        "payments",
        files.event_time("at", bound="30d"),
        key="user",
        what={"payments": hr.count(), "amount": col("amount").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="60d"),
        sinks=[hr.iceberg("payments.ours", connection="benchmark")],
        executor="local",
    )


def land(landing: Path, name: str, users: range, days: range, of: int) -> None:
    """One payment of each user, in turn on one of ``days``."""
    landing.mkdir(parents=True, exist_ok=True)
    at = [BEGIN + timedelta(days=days[user % len(days)], hours=12) for user in users if user % of in days]
    chosen = [user for user in users if user % of in days]
    columns = {"user": chosen, "at": pa.array(at, pa.timestamp("us", "UTC")), "amount": [user % 97 for user in chosen]}
    pq.write_table(pa.table(columns), landing / f"{name}.parquet")


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def measure(asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """A delivery of the newest day, and an append of its rows."""
    catalog_uri, warehouse = f"sqlite:///{work / 'catalog.db'}", (work / "lake").as_uri()
    os.environ["HEADRACE_CONN_BENCHMARK"] = f"sqlite://{work / 'catalog.db'}?warehouse={warehouse}"
    handle = hr.open((work / "root").as_uri(), create=True)[pipeline(work / "landing")]
    users = range(asked.rows)
    land(work / "landing", "a", users, range(asked.days), asked.days)
    handle.run()
    all_rows = seconds(handle.deliver)
    land(work / "landing", "b", users, range(asked.days - 1, asked.days), asked.days)
    handle.run()
    (delivery,) = handle.deliver()
    assert delivery.source is ChangeSource.PANES
    assert delivery.written == asked.rows // asked.days, delivery
    catalog = load_catalog("benchmark", type="sql", uri=catalog_uri, warehouse=warehouse)
    ours = catalog.load_table("payments.ours")
    rows = ours.scan(f"window_start >= '{(BEGIN + timedelta(days=asked.days - 1)).isoformat()}'").to_arrow()
    assert rows.num_rows == delivery.written
    schema, source = ours.schema(), ours.schema().find_field("window_start").field_id
    spec = PartitionSpec(PartitionField(source, 1000, DayTransform(), "day"))
    plain = catalog.create_table("payments.plain", schema, partition_spec=spec)
    plain.append(ours.scan().to_arrow())
    append = seconds(lambda: plain.append(rows))
    catalog.close()
    return {"all": all_rows, "rows": delivery.written, "delivery": delivery.seconds, "append": append}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for data and runs (removed)")
    asked = parser.parse_args()
    runs = []
    for number in range(asked.repeats):
        with workplace(asked.folder) as work:
            (work / "lake").mkdir()
            runs.append(measure(asked, work))
        print(f"{number + 1}/{asked.repeats}: {runs[-1]}", file=sys.stderr, flush=True)
    ratio = statistics.median(run["delivery"] / run["append"] for run in runs)
    medians = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
    print(json.dumps({**medians, "delivery_over_append": round(ratio, 2), "machine": machine(0, "-")}, indent=1))


if __name__ == "__main__":
    main()
