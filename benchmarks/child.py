"""The process of one measured run: ``python -m benchmarks.child RUN.json MEASURED.json``."""

import sys
from pathlib import Path

from benchmarks import ours, peers
from benchmarks.runs import Run
from benchmarks.workloads import Side


def main() -> None:
    """Command line."""
    asked, answer = (Path(name) for name in sys.argv[1:3])
    run = Run.from_json(asked.read_text())
    measured = ours.measure(run) if run.side is Side.OURS else peers.measure(run)
    answer.write_text(measured.to_json())


if __name__ == "__main__":
    main()
