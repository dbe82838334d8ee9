#!/opt/headrace/.venv/bin/python
"""Lands a file of standard input below the deployment's root: ``headrace-land landing/sales/0930.json < 0930.json``.

A file lands once. One that is there already stays as it is, and that is an error.
"""

import os
import sys

from headrace.errors import HeadraceError
from headrace_snapshots.store import ObjectExistsError, open_store


def main(arguments: list[str]) -> str | None:
    """What went wrong, if anything did."""
    if len(arguments) != 1:
        return "say where the file lands, as in: headrace-land landing/sales/0930.json < 0930.json"
    (path,) = arguments
    data = sys.stdin.buffer.read()
    try:
        open_store(os.environ["HEADRACE_ROOT"]).create(path, data)
    except ObjectExistsError:
        return f"{path} has landed already: give the file another name (one that sorts after those before)"
    except (HeadraceError, ValueError) as error:
        return str(error)
    print(f"landed {path}: {len(data)} bytes")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
