"""Files of late records and dead letters that were landed again where the pipeline reads: for whom they are input.

The files that such records came from hold them as well. So a file of them is input only for a run that goes on from the
snapshot that dropped them. Who reads the original files anew (a backfill, a batch, a run after a rollback) judges the
records there, and leaves out the file of them: each counts once, whatever is read again, and whoever else reads there.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from headrace.read.columns import View
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest

AGAIN = "again-"
"""How names of such files begin where the pipeline reads; elsewhere whoever reads them has no other file of them."""

_NAME = re.compile(rf"({AGAIN})?({View.LATE}|{View.REJECTED})-(\d{{8}}-[0-9a-f]{{16}})")


def landed_from(path: str, view: View) -> str | None:
    """The epoch and the snapshot whose ``view`` records a file holds, by its name; None if it was not landed again."""
    named = _NAME.match(PurePosixPath(path).name)
    return named[3] if named is not None and named[2] == view else None


def dropped(catalog: Catalog, manifest: Manifest | None, view: View) -> dict[str, list[DataFile]]:
    """The files of the ``view`` by epoch and snapshot (as data files are named), oldest first."""
    found: dict[str, list[DataFile]] = {}
    for record in () if manifest is None else catalog.files(manifest.logs[view]):
        for file in record.files:
            if isinstance(file, DataFile):
                found.setdefault(PurePosixPath(file.path).parent.name, []).append(file)
    return found


def left_out(catalog: Catalog, manifest: Manifest | None, paths: Iterable[str]) -> set[str]:
    """Those of the input files ``paths`` that are none for who goes on from ``manifest`` (None: begins)."""
    found: set[str] = set()
    some = [path for path in paths if PurePosixPath(path).name.startswith(AGAIN)]
    for view in (View.LATE, View.REJECTED):
        named = {path: of for path in some if (of := landed_from(path, view)) is not None}
        if named:
            known = dropped(catalog, manifest, view)
            found |= {path for path, of in named.items() if of not in known}
    return found
