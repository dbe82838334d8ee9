"""The dead letters of main once it has adopted outputs: those that these outputs refused as they are computed now.

All outputs share one log, whose files each have the letters of one output, or those that no output could take. So the
log gets other files, and none is written.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.filelog import FileLog, FileRecord
from headrace_snapshots.format.files import DataFile, LoggedFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import called_before
from headrace_snapshots.format.table_names import REJECTED

if TYPE_CHECKING:
    import pyarrow as pa

Letter = tuple[str | None, str | None, int | None]
"""Where a dead letter is from: its input, file and position."""


def taken_by_none(catalog: Catalog, manifest: Manifest, until: int | None = None) -> set[Letter]:
    """The dead letters, up to epoch ``until``, that no output took. Raises BrokenObjectError."""
    letters: set[Letter] = set()
    for record in catalog.files(manifest.logs[REJECTED]):
        for file in record.files:
            rows = _rows(catalog, file)
            if _output(rows) is None and (until is None or record.epoch <= until):
                columns = (rows[name].to_pylist() for name in ("input", "file", "position"))
                letters.update(zip(*columns, strict=True))
    return letters


def adopted_letters(catalog: Catalog, main: Manifest, branch: Manifest, outputs: Collection[str]) -> FileLog:
    """The log of ``main`` in its next epoch, with the letters of ``outputs`` that ``branch`` has in place of its
    own.
    """
    log, replaced = FileLog.empty(), {name for output in outputs for name in (output, *called_before(main, output))}
    for record in catalog.files(main.logs[REJECTED]):
        if kept := tuple(file for file in record.files if _output(_rows(catalog, file)) not in replaced):
            log = catalog.append_record(log, FileRecord(record.epoch, kept))
    files = (file for record in catalog.files(branch.logs[REJECTED]) for file in record.files)
    own = tuple(file for file in files if _output(_rows(catalog, file)) in outputs)
    return catalog.append_record(log, FileRecord(main.epoch + 1, own)) if own else log


def _rows(catalog: Catalog, file: LoggedFile) -> "pa.Table":
    from headrace.state.datafiles.files import stored  # with Arrow
    from headrace_snapshots.datafiles import verify

    assert isinstance(file, DataFile)
    return stored(verify(catalog.store, file))


def _output(rows: "pa.Table") -> str | None:
    """The output that could not take the records of a file; None: no output could."""
    if "output" not in rows.column_names:  # from before outputs had names
        return None
    (output,) = rows["output"].unique().to_pylist()
    return None if output is None else str(output)
