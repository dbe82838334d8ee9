"""A new process goes on with many live keys, against a restart of Structured Streaming.

It restores the keys, takes in one file and commits.

``python -m benchmarks.restart --keys 10000000 --changed 200000 --executor spark|local --against structured_streaming``:
every key gets a window in a process that is not measured. Then, for each repeat, new processes of both sides in turn
take in one further file of ``--changed`` rows that touch as many keys: ours once with the cache of state as the process
before left it, once with an empty cache. The figure is seconds from the start of the process to its commit. Of ours
is told besides when the state was restored, since the process began and since the run claimed its branch; of the peer,
what its tasks take to load theirs, which is a part of its first batch.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from benchmarks import data
from benchmarks.comparison import Comparison, agree, machine, measured, show, workplace
from benchmarks.landing import land, land_file, paths
from benchmarks.runs import Measured, Run
from benchmarks.throughput import common_arguments, executor_argument
from benchmarks.workloads import Side, Workload


class Cache(StrEnum):
    """What our process finds of its state on the local disk."""

    KEPT = "kept"
    EMPTY = "empty"


def main() -> None:
    """Command line."""
    given = _arguments()
    print(f"generating data of {given.keys:,} keys", file=sys.stderr, flush=True)
    kept = given.folder / "data"
    live = data.everyone(kept, given.keys)
    changes = data.touches(kept, data.Touches(given.keys, given.changed, len(given.caches) * given.repeats))
    with workplace(given.folder) as work:
        sides = {side: _run(given, side, work / side) for side in (Side.OURS, given.against)}
        for run in sides.values():
            land(live, run.source, "a")
            _told("live keys", measured(run))
        comparisons = _restarts(sides, given.caches, paths(changes))
    results = [
        {"cache": cache, "against": given.against, **comparison.to_json(given.changed)}
        for cache, comparison in comparisons.items()
    ]
    if given.format == "json":
        shape = {"keys": given.keys, "changed": given.changed, "executor": given.executor}
        print(json.dumps({**shape, "results": results, "machine": machine(given.cores, given.memory)}))
    else:
        title = f"{given.keys:,} live keys, {given.changed:,} changed rows, executor {given.executor}"
        show(title, results, lambda entry: f"cache {entry['cache']}")
        for entry in results:
            for side in ("ours", "peer"):
                told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in entry[side]["extra"][-1].items())
                print(f"cache {entry['cache']}, {side}: {told}")
    if not all(entry["agrees"] for entry in results):
        raise SystemExit("the results differ")


def _restarts(sides: Mapping[Side, Run], caches: Sequence[Cache], changes: Sequence[Path]) -> dict[Cache, Comparison]:
    """Pairs of runs by what cache ours found; each pair takes in one of the files."""
    ours, peer = sides.values()
    found: dict[Cache, list[tuple[Measured, Measured]]] = {cache: [] for cache in caches}
    loads: dict[Cache, list[float]] = {cache: [] for cache in caches}
    for number, path in enumerate(changes):
        cache = caches[number % len(caches)]
        loads[cache].append(os.getloadavg()[0])
        for run in sides.values():
            land_file(path, run.source, "b")
        if cache is Cache.EMPTY:
            shutil.rmtree(ours.cache)
        found[cache].append((_told(f"cache {cache}", measured(ours)), _told("peer", measured(peer))))
    last, last_peer = found[cache][-1]
    agreement = agree(ours.workload, last.results, last_peer.results)
    return {
        cache: Comparison([pair[0] for pair in pairs], [pair[1] for pair in pairs], agreement, loads[cache])
        for cache, pairs in found.items()
    }


def _run(given: argparse.Namespace, side: Side, work: Path) -> Run:
    made = Run(side, given.against, Workload.LIVE_KEYS, work / "landing", work, given.cores, given.memory)
    return replace(made, executor=given.executor)


def _told(what: str, run: Measured) -> Measured:
    commit = run.first_commit_seconds
    print(f"{what}: {commit:.1f} s from start to commit", file=sys.stderr, flush=True)
    return run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--changed", type=int, default=200_000)
    parser.add_argument("--against", type=Side, choices=[Side.STRUCTURED_STREAMING], default=Side.STRUCTURED_STREAMING)
    parser.add_argument("--caches", type=Cache, nargs="+", choices=list(Cache), default=list(Cache), help="ours")
    parser.add_argument("--repeats", type=int, default=3)
    executor_argument(parser)
    common_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
