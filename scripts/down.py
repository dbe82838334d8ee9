"""``python -m scripts.down``: stop what ``scripts.up`` started, and nothing else."""

import argparse
import sys
from pathlib import Path

from scripts.airflow_env import HOME, stop


def main(arguments: list[str]) -> int:
    """Exit code 0, also when nothing was running."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=HOME, help="AIRFLOW_HOME (default: %(default)s)")
    print("stopped Airflow" if stop(parser.parse_args(arguments).home) else "nothing was running")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
