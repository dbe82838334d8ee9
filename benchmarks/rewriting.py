"""Bytes that snapshots write against bytes of state that changed, over many epochs, merges of layers included.

``python -m benchmarks.rewriting --keys 1000000 --changed 20000 --epochs 50``: every key gets a window, which is not
measured. Then each epoch changes ``--changed`` keys: always the same (hot) ones, or any of all (uniform). What an
epoch changed is the layer of rows that it stores, as it is stored first: encoded, with the frame of its file. All
that is in the root afterwards counts, superseded or not. ``--runs one`` makes each epoch a run of its own, each of
which waits for its merges. Sums are compared with a query over all files.
"""

import argparse
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.comparison import agree, workplace
from benchmarks.floor import query
from benchmarks.landing import land, paths
from benchmarks.ours import folded
from benchmarks.pipelines import pipeline
from benchmarks.runs import Results
from benchmarks.throughput import common_arguments
from benchmarks.workloads import Side, Workload
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.client.handle import open as open_root
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.format.manifest import UNNAMED
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store

KINDS = ("changed", "merged", "catalog", "panes", "folded")
"""Layers of state as epochs store them; those that became one; manifests, log and index; the output; and the files of
``current``, which are output made ready for readers.
"""

_TABLE = re.compile(r"data/[^/]+/(.+)-\d{5}-[0-9a-f]+-\d+\.parquet")
_KIND_OF_TABLE = {
    UNNAMED.state_table(0): "changed",
    f"{UNNAMED.state_table(0)}-merged": "merged",
    UNNAMED.panes: "panes",
    UNNAMED.current: "folded",
}


def main() -> None:
    """Command line."""
    given = _arguments()
    with workplace(given.folder) as work:
        results = [_measured(given, work / f"{keys}-{runs}", keys, runs) for keys in given.which for runs in given.runs]
    if given.format == "json":
        print(json.dumps({"keys": given.keys, "changed": given.changed, "epochs": given.epochs, "results": results}))
    else:
        _show(f"{given.epochs} epochs that change {given.changed:,} of {given.keys:,} keys", results)
    if not all(each["agrees"] for each in results):
        raise SystemExit("the results differ")


def _measured(given: argparse.Namespace, work: Path, which: str, runs: str) -> dict[str, Any]:
    print(f"{which} keys, {runs} run", file=sys.stderr, flush=True)
    kept, landing, root = given.folder / "data", work / "landing", (work / "root").as_uri()
    hot = given.changed if which == "hot" else 0
    made = pipeline(Workload.LIVE_KEYS, Side.STRUCTURED_STREAMING, landing)
    options = RunOptions("measured", executor="local", files_per_epoch=1)
    land(data.everyone(kept, given.keys), landing, "a")
    process(made, root, options)
    before = _bytes(root, made)
    land(data.touches(kept, data.Touches(given.keys, given.changed, given.epochs, hot=hot)), landing, "b")
    most = 1 if runs == "one" else None
    epochs = 0
    while done := len(process(made, root, replace(options, max_epochs=most)).epochs):
        epochs += done
    written = {kind: size - before[kind] for kind, size in _bytes(root, made).items()}
    agrees = epochs == given.epochs and _is_right(made, root, landing)
    shutil.rmtree(work)
    return {"which": which, "runs": runs, "bytes": written, "ratios": _ratios(written), "agrees": agrees}


def _bytes(root: str, made: Pipeline) -> dict[str, int]:
    """What is in the root, by kind."""
    found: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    for info in open_store(root).list(f"{made.name}/"):
        table = _TABLE.search(info.path)
        found[_KIND_OF_TABLE[table[1]] if table else "catalog"] += info.size
    return dict(found)


def _ratios(written: Mapping[str, int]) -> dict[str, float]:
    """Over the bytes that changed: of state with its merges; of all of a snapshot; and of everything."""
    state = written["changed"] + written["merged"]
    sums = {"state": state, "snapshots": state + written["catalog"], "everything": sum(written.values())}
    return {name: round(size / written["changed"], 3) for name, size in sums.items()}


def _is_right(made: Pipeline, root: str, landing: Path) -> bool:
    files = open_root(root)[made.name].current(at=MAIN).files()
    expected = Results(query(Workload.LIVE_KEYS, paths(landing)))
    return bool(agree(Workload.LIVE_KEYS, Results(folded(made, Workload.LIVE_KEYS, files)), expected)["agrees"])


def _show(title: str, results: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    sizes = [f"{kind} MB" for kind in KINDS]
    for name in ("keys", "runs", *sizes, "state / changed", "snapshots / changed", "everything / changed", "results"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result["which"],
            result["runs"],
            *(f"{result['bytes'][kind] / 1e6:,.2f}" for kind in KINDS),
            *(f"{ratio:.2f}" for ratio in result["ratios"].values()),
            "agree" if result["agrees"] else "DIFFER",
        )
    Console(width=160).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changed", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--which", nargs="+", choices=["hot", "uniform"], default=["hot", "uniform"])
    parser.add_argument("--runs", nargs="+", choices=["all", "one"], default=["all"], help="epochs of a run")
    parser.add_argument("--repeats", type=int, default=1, help="bytes do not vary: as the others take it")
    common_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
