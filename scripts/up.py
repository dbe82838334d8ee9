"""``python -m scripts.up``: start a local Airflow with every registered pipeline, and leave it running."""

import argparse
import sys
from pathlib import Path

from scripts.airflow_env import HOME, REPOSITORY, LocalAirflow, LocalAirflowError


def main(arguments: list[str]) -> int:
    """Exit code 0 when every component is healthy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=HOME, help="AIRFLOW_HOME (default: %(default)s)")
    parser.add_argument(
        "--root", default=(REPOSITORY / ".headrace" / "root").as_uri(), help="HEADRACE_ROOT (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    airflow = LocalAirflow(given.home, given.root)
    try:
        airflow.start()
    except LocalAirflowError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Airflow runs at {airflow.url} (no login; loopback only)")
    print(f"  root   {given.root}\n  logs   {airflow.home / 'logs'}\n  stop   make down")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
