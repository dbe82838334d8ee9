"""``python -m scripts.up``: start a local Airflow with every registered pipeline, and leave it running."""

import argparse
import sys
from pathlib import Path

from scripts.airflow_env import ADMIN, HOME, REPOSITORY, LocalAirflow, LocalAirflowError

ROOT = REPOSITORY / ".headrace" / "root"


def main(arguments: list[str]) -> int:
    """Exit code 0 when every component is healthy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=HOME, help="AIRFLOW_HOME (default: %(default)s)")
    parser.add_argument("--root", default=ROOT.as_uri(), help="HEADRACE_ROOT (default: %(default)s, which is made)")
    given = parser.parse_args(arguments)
    if given.root == ROOT.as_uri():
        ROOT.mkdir(parents=True, exist_ok=True)  # a run that finds no input makes no root
    airflow = LocalAirflow(given.home, given.root, triggerer=True)
    try:
        airflow.start()
    except LocalAirflowError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Airflow runs at {airflow.url} (for this machine only)")
    print(f"  login  {ADMIN}, password {airflow.passwords[ADMIN]} (new at every start)")
    print(f"  root   {given.root}\n  logs   {airflow.home / 'logs'}\n  stop   make down")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
