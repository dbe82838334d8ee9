"""Rows per second of whole drains, against Spark's own ways or one DuckDB query, as a ratio within one run.

``python -m benchmarks.throughput --workload tumbling --executor spark|local --against structured_streaming|flink|...
--rows 20000000 --keys 200000 --epochs 10 --format text|json``. Wall and CPU seconds from the first listing to the last
commit; the start of Spark is left out on both sides, compiling code is not. Told apart: seconds from the start of the
process to its first commit, all that the process took from its start, and the most memory of the process with its JVM
and workers. Other engines (``benchmarks.engines``) compute tumbling windows alone. Needs memory and disk in proportion
to the rows.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.comparison import FOLDER, compare, machine, show, workplace
from benchmarks.engines import module_of
from benchmarks.runs import Run
from benchmarks.workloads import COMPARED, Side, Workload


def main() -> None:
    """Command line."""
    given = _arguments()
    print("generating data", file=sys.stderr, flush=True)
    source = data.events(given.folder / "data", data.Events(given.rows, given.keys, given.epochs, given.seed))
    with workplace(given.folder) as work:
        run = Run(Side.OURS, given.against, given.workload, source, work, given.cores, given.memory, given.executor)
        comparison = compare(run, given.against, given.repeats, work)
    result: dict[str, Any] = {
        "workload": given.workload,
        "against": given.against,
        "executor": given.executor,
        "rows": given.rows,
        "keys": given.keys,
        "epochs": given.epochs,
        **comparison.to_json(given.rows),
        "machine": machine(given.cores, given.memory),
    }
    if given.format == "json":
        print(json.dumps(result))
    else:
        title = f"{given.rows:,} rows, {given.keys:,} keys, {given.epochs} files"
        show(title, [result], lambda entry: str(entry["workload"]))
    if not result["agrees"]:
        raise SystemExit("the results differ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", type=Workload, choices=COMPARED, default=Workload.TUMBLING)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=10, help="files, and so micro-batches")
    peers = [side for side in Side if side not in (Side.OURS, Side.BESIDE, Side.AWAITED, Side.NONE, Side.DELTA_MERGE)]
    parser.add_argument("--against", type=Side, choices=peers, default=Side.STRUCTURED_STREAMING)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    executor_argument(parser)
    common_arguments(parser)
    given = parser.parse_args()
    if module_of(given.against) and given.workload is not Workload.TUMBLING:
        parser.error(f"{given.against} computes tumbling windows alone")
    return given


def executor_argument(parser: argparse.ArgumentParser) -> None:
    """Where ours computes."""
    executors = ["spark", "local"]
    parser.add_argument("--executor", choices=executors, default="spark", help="ours")


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of all benchmarks."""
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", default="6g", help="of the driver, for both sides")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for generated data (kept) and runs (removed)")
    parser.add_argument("--format", choices=["text", "json"], default="text")


if __name__ == "__main__":
    main()
