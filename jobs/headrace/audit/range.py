"""What an audit reads: the files of the epochs between two snapshots."""

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest


def audited_files(
    catalog: Catalog, published: str | None, head: Manifest
) -> tuple[list[DataFile], list[DataFile], int]:
    """What an audit of (``published``, ``head``] reads: files of panes and of ``current``; the epoch behind which."""
    since = -1 if published is None else catalog.manifest(published).epoch
    records = catalog.files(head.logs["panes"], since_epoch=since)
    panes = [file for record in records for file in record.files if isinstance(file, DataFile)]
    return panes, [file for layer in head.tables["current"] for file in layer.files], since
