"""The process of one measured run: ``python -m benchmarks.child RUN.json MEASURED.json``."""

import sys
from pathlib import Path

from benchmarks import floor, ours, peers
from benchmarks.runs import Run
from benchmarks.workloads import Side


def main() -> None:
    """Command line."""
    asked, answer = (Path(name) for name in sys.argv[1:3])
    run = Run.from_json(asked.read_text())
    sides = {Side.OURS: ours, Side.DUCKDB: floor}
    measured = sides.get(run.side, peers).measure(run)
    answer.write_text(measured.to_json())


if __name__ == "__main__":
    main()
