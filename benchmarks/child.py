"""The process of one measured run: ``python -m benchmarks.child RUN.json MEASURED.json``."""

import importlib
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.engines import module_of
from benchmarks.runs import Measured, Run, tree_cpu
from benchmarks.workloads import Side

_MODULES = {
    Side.OURS: "ours",
    Side.BESIDE: "driven",
    Side.AWAITED: "driven",
    Side.NONE: "driven",
    Side.DUCKDB: "floor",
    Side.DELTA_MERGE: "delta_merge",
}


def main() -> None:
    """Command line."""
    asked, answer = (Path(name) for name in sys.argv[1:3])
    run = Run.from_json(asked.read_text())
    # only the side's own: what a process imports counts from its start to its first commit
    side = importlib.import_module(module_of(run.side) or f"benchmarks.{_MODULES.get(run.side, 'peers')}")
    measured: Measured = side.measure(run)
    whole = {"process_seconds": time.time() - run.launched, "process_cpu_seconds": tree_cpu()}
    measured = replace(measured, **whole)
    answer.write_text(measured.to_json())


if __name__ == "__main__":
    main()
