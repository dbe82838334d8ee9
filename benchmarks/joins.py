"""Joins of rows, epoch after epoch, against Structured Streaming's join of two streams, or against all of it again.

``python -m benchmarks.joins --join within|as_of --right 10000000 --new-left 2000000 --executor local|spark``: rows of
both sides are taken in, then, in the same application, come epochs of ``--new-left`` and ``--new-right`` rows of the
same hour, or with ``--later`` of minutes behind it. Structured Streaming gets the same cut into micro-batches; it has
no join with the version that held, so there the peer is DuckDB: one ``asof join`` over all files, without state. The
rows that stand in the end are compared. Rows have a tenth as many users as the larger side has rows.

Structured Streaming is the peer of ``within``, all of it again that of ``as_of``.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.comparison import compare, machine, show, workplace
from benchmarks.landing import land
from benchmarks.runs import Run
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import JOINS, LEFT, RIGHT, Side, Workload

FILES = 2
"""Files of each side that are taken in before, and so epochs."""

PEERS = {Workload.WITHIN: Side.STRUCTURED_STREAMING, Workload.AS_OF: Side.DUCKDB}


def main() -> None:
    """Command line."""
    given = _arguments()
    against = PEERS[given.join]
    with workplace(given.folder) as work:
        print("generating data", file=sys.stderr, flush=True)
        before, new = _land(given, work)
        run = Run(
            Side.OURS,
            Side.STRUCTURED_STREAMING,
            given.join,
            new,
            work,
            given.cores,
            given.memory,
            given.executor,
            prepare=before,
        )
        comparison = compare(run, against, given.repeats, work)
    names = ("join", "executor", "left", "right", "new_left", "new_right", "epochs", "hot", "later")
    result: dict[str, Any] = {
        **{name: getattr(given, name) for name in names},
        "against": against,
        **comparison.to_json(given.epochs * (given.new_left + given.new_right)),
        "machine": machine(given.cores, given.memory),
    }
    if given.format == "json":
        print(json.dumps(result))
    else:
        rows = f"{given.new_left:,} + {given.new_right:,} rows into {given.left:,} + {given.right:,}"
        show(f"{given.epochs} epochs of {rows}", [result], lambda entry: str(entry["join"]))
    if not result["agrees"]:
        raise SystemExit("the results differ")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--join", type=Workload, choices=JOINS, default=Workload.WITHIN)
    parser.add_argument("--left", type=int, default=0, help="rows before the epochs")
    parser.add_argument("--right", type=int, default=10_000_000)
    parser.add_argument("--new-left", type=int, default=2_000_000, help="rows of each epoch")
    parser.add_argument("--new-right", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hot", action="store_true", help="half of all rows are of one user")
    parser.add_argument("--later", action="store_true", help="new rows are of minutes behind the hour of those before")
    parser.add_argument("--repeats", type=int, default=3)
    executor_argument(parser)
    common_arguments(parser)
    return parser.parse_args()


def _land(given: argparse.Namespace, work: Path) -> tuple[Path, Path]:
    """Folders of the rows before the epochs, and of those that come in them; each has a folder of each side."""
    keys = max(given.left, given.right) // 10
    parts = {"span": 3600 // FILES, "step": 3600 // FILES}  # so that no two rows of a side have one time
    times = {"begin": 3600, "span": 360, "step": 3600} if given.later else {}
    before, new = work / "before", work / "new"
    sides = ((LEFT, given.left, given.new_left), (RIGHT, given.right, given.new_right))
    for seed, (side, rows, coming) in enumerate(sides):
        old_rows = data.SideRows(rows // FILES, FILES, keys, **parts, is_hot=given.hot, seed=2 * seed)
        new_rows = data.SideRows(coming, given.epochs, keys, **times, is_hot=given.hot, seed=2 * seed + 1)
        for folder, parameters in ((before, old_rows), (new, new_rows)):
            (folder / side).mkdir(parents=True)
            land(data.side(given.folder / "data", parameters), folder / side, side)
    return before, new


if __name__ == "__main__":
    main()
