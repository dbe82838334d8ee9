"""Many small JSON files landed at once, against Structured Streaming's file source on the same files.

``python -m benchmarks.small_files --files 1000 10000 --executor local|spark``. A file has ten records, about 1 KB. Both
sides sum amounts by shop and hour; each run is a process of its own. Wall and CPU seconds from the first listing to the
last commit, children's too; Spark's start is left out on both sides.

With ``--kinds json csv quoted parquet signed debezium`` Headrace alone, for each kind the same records in ten files,
too.
"""

import argparse
import csv
import io
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from benchmarks.comparison import machine, ratios, told, workplace
from benchmarks.landing import land_file
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import Side

RECORDS, SHOPS = 10, 97


@dataclass(frozen=True)
class Figures:
    """What a run took, and what it found: sums and counts by shop and hour."""

    wall_seconds: float
    cpu_seconds: float
    found: Mapping[str, list[int]]
    peak_bytes: int = 0


SUFFIXES = {
    "json": ".jsonl",
    "csv": ".csv",
    "quoted": ".csv",
    "parquet": ".parquet",
    "signed": ".jsonl",
    "debezium": ".jsonl",
}
"""Kinds of files, and how their names end."""


def main() -> None:
    """Command line."""
    given = _arguments()
    if given.side:
        print(json.dumps(vars(_measured(given))))
        return
    if given.kinds:
        _show_kinds(given)
        return
    measured = [_compared(given, files) for files in given.files]
    if given.format == "json":
        print(json.dumps({"small_files": measured, "machine": machine(given.cores, given.memory)}))
    for entry in measured if given.format == "text" else ():
        ours, peer = (statistics.median(entry[side]["wall_seconds"]) for side in ("ours", "peer"))
        print(f"{entry['files']:,} files: {ours:.2f} s, peer {peer:.2f} s; wall {told(entry['ratio'])},", end=" ")
        print(f"CPU {told(entry['cpu_ratio'])}; {'agrees' if entry['agrees'] else 'DISAGREES'}")
    if not all(entry["agrees"] for entry in measured):
        raise SystemExit("the results differ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--kinds", choices=SUFFIXES, nargs="+", default=[])
    parser.add_argument("--kind", choices=SUFFIXES, default="json", help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", type=Side, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    executor_argument(parser)
    common_arguments(parser)
    return parser.parse_args()


def _show_kinds(given: argparse.Namespace) -> None:
    """Files of each kind beside the same records in ten, in turn."""
    for files, kind in product(given.files, given.kinds):
        many = landed(given.folder, files, kind)
        ten = landed(given.folder, 10, kind, files * RECORDS // 10)
        pairs = [[side_run(Side.OURS, landing, given, kind) for landing in (many, ten)] for _ in range(given.repeats)]
        if any(one.found != other.found or len(one.found) < SHOPS for one, other in pairs):
            raise SystemExit(f"{files} files of {kind} and ten give different results")
        cpu = ["/".join(f"{run.cpu_seconds:.2f}" for run in runs) for runs in zip(*pairs, strict=True)]
        peak = [max(run.peak_bytes for run in runs) // 2**20 for runs in zip(*pairs, strict=True)]
        print(f"{files:,} files of {kind}: CPU {cpu[0]} s, {peak[0]} MB; in ten {cpu[1]} s, {peak[1]} MB", flush=True)


def side_run(side: Side, landing: Path, given: argparse.Namespace, kind: str = "json") -> Figures:
    """One side over these files, in a process of its own."""
    with workplace(given.folder) as work:
        for path in landing.iterdir():
            land_file(path, work / "landing" / "shops", "a")
        asked = ["--side", side, "--work", str(work), "--executor", given.executor, "--kind", kind]
        command = [sys.executable, "-m", "benchmarks.small_files", *asked, "--cores", str(given.cores)]
        command += ["--memory", given.memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def landed(folder: Path, files: int, kind: str = "json", records: int = RECORDS) -> Path:
    """The folder of so many files of so many records, written if it is not there yet."""
    landing = folder / "data" / f"small-files-{kind}-{files}-{records}"
    if not landing.is_dir():
        draft = landing.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        for file in range(files):
            rows = [_record(file * records + number) for number in range(records)]
            (draft / f"{file:08d}{SUFFIXES[kind]}").write_bytes(_body(kind, rows))
        draft.rename(landing)
    return landing


def _body(kind: str, rows: list[dict[str, object]]) -> bytes:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        out = pa.BufferOutputStream()
        times = [{**row, "at": datetime.fromisoformat(str(row["at"]))} for row in rows]
        pq.write_table(pa.Table.from_pylist(times), out)
        return bytes(out.getvalue())
    if kind in ("csv", "quoted"):
        text = io.StringIO()
        quoting = csv.QUOTE_MINIMAL if kind == "csv" else csv.QUOTE_ALL
        writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n", quoting=quoting)
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    if kind == "signed":
        rows = [{**row, "sign": 1} for row in rows]
    if kind == "debezium":
        rows = [{"before": None, "after": row, "op": "c"} for row in rows]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _record(number: int) -> dict[str, object]:
    hour, minute, second = number // 3600 % 24, number // 60 % 60, number % 60
    at = f"2026-01-01T{hour:02d}:{minute:02d}:{second:02d}Z"
    return {"shop": f"shop {number % SHOPS}", "amount": number % 1000, "at": at, "note": "x" * 24}


def _compared(given: argparse.Namespace, files: int) -> dict[str, Any]:
    landing = landed(given.folder, files)
    sides: dict[Side, list[Figures]] = {Side.OURS: [], Side.STRUCTURED_STREAMING: []}
    for _ in range(given.repeats):
        for side, runs in sides.items():
            runs.append(side_run(side, landing, given))
    pairs = [*zip(*sides.values(), strict=True)]
    return {
        "files": files,
        "executor": given.executor,
        **{
            name: {"wall_seconds": [f.wall_seconds for f in runs], "cpu_seconds": [f.cpu_seconds for f in runs]}
            for name, runs in zip(("ours", "peer"), sides.values(), strict=True)
        },
        "ratio": ratios([(ours.wall_seconds, peer.wall_seconds) for ours, peer in pairs]),
        "cpu_ratio": ratios([(ours.cpu_seconds, peer.cpu_seconds) for ours, peer in pairs]),
        "agrees": all(ours.found == peer.found and len(ours.found) >= SHOPS for ours, peer in pairs),
    }


def _measured(given: argparse.Namespace) -> Figures:
    return _ours(given) if given.side is Side.OURS else _structured_streaming(given)


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def _ours(given: argparse.Namespace) -> Figures:
    import headrace as hr
    from headrace.runs.options import RunOptions
    from headrace.runs.process import process

    schema: dict[str, Any] = {"shop": str, "amount": int, "at": datetime}
    reading: dict[str, Any] = {}
    if given.kind == "signed":
        schema, reading = {**schema, "sign": int}, {"changelog": hr.col("sign")}
    if given.kind == "debezium":
        reading = {"changelog": hr.debezium_envelope()}
    form = {".csv": hr.csv, ".parquet": hr.parquet}.get(SUFFIXES[given.kind], hr.json)
    sales = hr.Pipeline(
        "sales",
        form("landing/shops", schema, **reading).event_time("at", bound="1h"),
        key="shop",
        what={"amount": hr.col("amount").sum(), "records": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("1d") if reading else hr.accumulating("1d"),
    )
    spark = None
    if given.executor == "spark":
        from headrace.distribute.spark.session import spark_session

        spark = spark_session("small-files", cores=given.cores, conf={"spark.driver.memory": given.memory})
    root = given.work.as_uri()
    begun, cpu = time.monotonic(), _cpu_seconds()
    process(sales, root, RunOptions("measured", executor=given.executor), spark=spark)
    wall, cpu = time.monotonic() - begun, _cpu_seconds() - cpu
    rows = hr.open(root)[sales].read(at="main").to_arrow().to_pylist()
    found = ((row["shop"], f"{row['window_start']:%H}", row["amount"], row["records"]) for row in rows)
    return Figures(wall, cpu, _by_window(found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _structured_streaming(given: argparse.Namespace) -> Figures:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f

    builder = SparkSession.builder.master(f"local[{given.cores}]").config("spark.driver.memory", given.memory)
    conf = {
        "spark.sql.shuffle.partitions": str(given.cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = builder.config(map={**conf, "spark.sql.session.timeZone": "UTC"}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    out = str(given.work / "out")

    def stored(rows: DataFrame, batch: int) -> None:
        rows.write.mode("append").parquet(out)

    begun, cpu = time.monotonic(), _cpu_seconds()
    landed = spark.readStream.schema("shop string, amount long, at timestamp").json(
        str(given.work / "landing" / "shops")
    )
    windows = landed.withWatermark("at", "25 hours").groupBy(f.window("at", "1 hour"), "shop")
    sums = windows.agg(f.sum("amount").alias("amount"), f.count("*").alias("records"))
    writer = sums.writeStream.outputMode("update").foreachBatch(stored).trigger(availableNow=True)
    writer.option("checkpointLocation", str(given.work / "checkpoint")).start().awaitTermination()
    wall, cpu = time.monotonic() - begun, _cpu_seconds() - cpu
    hour = f.date_format("window.start", "HH")
    newest = spark.read.parquet(out).groupBy("shop", hour).agg(f.max("amount"), f.max("records"))
    return Figures(wall, cpu, _by_window(tuple(row) for row in newest.collect()))


def _by_window(rows: Any) -> dict[str, list[int]]:
    return {f"{shop} {hour}": [amount, records] for shop, hour, amount, records in rows}


if __name__ == "__main__":
    main()
