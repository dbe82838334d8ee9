"""``python -m scripts.up``: start a local Airflow with every registered pipeline, and leave it running."""

import argparse
import os
import sys
from pathlib import Path

from scripts.airflow_env import ADMIN, HOME, REPOSITORY, LocalAirflow, LocalAirflowError, end_orphans

ROOT = REPOSITORY / ".headrace" / "root"


def main(arguments: list[str], airflow_of: type[LocalAirflow] = LocalAirflow, own_root: Path = ROOT) -> int:
    """Exit code 0 when every component is healthy. ``own_root`` is served where nobody names another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=HOME, help="AIRFLOW_HOME (default: %(default)s)")
    root = os.environ.get("HEADRACE_ROOT") or own_root.as_uri()  # what commands of the same shell work with
    parser.add_argument(
        "--root", default=root, help="HEADRACE_ROOT (default: the variable, else a folder that is made)"
    )
    options = parser.parse_args(arguments)
    if options.root == own_root.as_uri():
        own_root.mkdir(parents=True, exist_ok=True)  # a run that finds no input makes no root
    if end_orphans(options.home):
        print("Ended what a scheduler that was killed had left: it held locks, by which runs are skipped")
    airflow = airflow_of(options.home, options.root, triggerer=True)
    try:
        airflow.start()
    except LocalAirflowError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Airflow runs at {airflow.url} (for this machine only)")
    print(f"  login  {ADMIN}, password {airflow.passwords[ADMIN]} (new at every start)")
    print(f"  root   {options.root}\n  logs   {airflow.home / 'logs'}\n  stop   make down")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
