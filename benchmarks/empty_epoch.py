"""Epochs without data within a running application, against Structured Streaming's micro-batches without rows.

``python -m benchmarks.empty_epoch --keys 100000``: every file holds no row, so an epoch is what taking in, deciding and
committing cost by themselves. Also told: how long a run takes that finds no new file (no epoch, no commit).
"""

import argparse

from benchmarks.live_keys import report
from benchmarks.workloads import Side


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000], help="live keys meanwhile")
    parser.set_defaults(changed=0, against=Side.STRUCTURED_STREAMING)
    report(parser, epochs=20)


if __name__ == "__main__":
    main()
