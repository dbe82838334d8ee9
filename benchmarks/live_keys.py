"""Epochs that change a few of many live keys, against Structured Streaming.

``python -m benchmarks.live_keys --keys 1000000 10000000 --changed 200000 --executor spark|local``: every key
gets a window, then, in the same application, come epochs of ``--changed`` rows that touch as many keys. An epoch is
from commit to commit; the first, in which the state is read back, is left out of the median and told apart.
"""

import argparse
import json
import sys
from typing import Any

from benchmarks import data
from benchmarks.comparison import compare, machine, show, workplace
from benchmarks.runs import Run
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import LIVE, Side, Workload


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--changed", type=int, default=200_000)
    peers = [Side.STRUCTURED_STREAMING, Side.DELTA_MERGE]
    parser.add_argument("--against", type=Side, choices=peers, default=Side.STRUCTURED_STREAMING)
    report(parser, epochs=7)


def report(parser: argparse.ArgumentParser, epochs: int) -> None:
    """Measure what the arguments ask for and print it. Raises SystemExit when the results differ."""
    parser.add_argument("--workload", type=Workload, choices=LIVE, default=Workload.LIVE_KEYS)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--repeats", type=int, default=3)
    executor_argument(parser)
    common_arguments(parser)
    given = parser.parse_args()
    if given.against is Side.DELTA_MERGE and given.workload is not Workload.NEWEST:
        parser.error("delta_merge keeps the newest row of each key alone: --workload newest")
    results = [_measure(given, keys) for keys in given.keys]
    if given.format == "json":
        print(
            json.dumps({"results": results, "growth": _growth(results), "machine": machine(given.cores, given.memory)})
        )
    else:
        title = f"{given.epochs} epochs of {given.changed:,} changed rows"
        show(title, results, lambda entry: f"{entry['live_keys']:,} live keys")
        for side, growth in _growth(results).items():
            print(f"{side}: the epoch at {given.keys[-1]:,} keys takes {growth:.2f} times that at {given.keys[0]:,}")
        idle = [extra["idle_run_seconds"] for entry in results for extra in entry["ours"]["extra"]]
        print(f"a run that finds nothing new, in a running application: {min(idle):.3f} to {max(idle):.3f} s")
    if not all(entry["agrees"] for entry in results):
        raise SystemExit("the results differ")


def _measure(given: argparse.Namespace, keys: int) -> dict[str, Any]:
    print(f"generating data of {keys:,} keys", file=sys.stderr, flush=True)
    cache = given.folder / "data"
    live = data.everyone(cache, keys)
    changes = data.touches(cache, data.Touches(keys, given.changed, given.epochs))
    with workplace(given.folder) as work:
        run = Run(
            Side.OURS,
            given.against,
            given.workload,
            changes,
            work,
            given.cores,
            given.memory,
            given.executor,
            prepare=live,
        )
        comparison = compare(run, given.against, given.repeats, work)
    return {
        "live_keys": keys,
        "changed": given.changed,
        "against": given.against,
        "executor": given.executor,
        **comparison.to_json(given.changed * given.epochs),
    }


def _growth(results: list[dict[str, Any]]) -> dict[str, float]:
    """How many times longer a warm epoch takes with the most keys than with the fewest."""
    if len(results) < 2:
        return {}
    return {
        side: round(results[-1][side]["median_epoch_seconds"] / results[0][side]["median_epoch_seconds"], 3)
        for side in ("ours", "peer")
    }


if __name__ == "__main__":
    main()
