"""What an audit may look at: the files that epochs between two snapshots wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.pipeline.expectations import View
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class AuditedFiles:
    """Files by view: those of panes, and those of ``current`` with rows that epochs after ``since`` wrote, which count:
    what these hide is not what changed.
    """

    files: Mapping[View, Sequence[DataFile]]
    since: int


def audited_files(catalog: Catalog, published: str | None, head: Manifest) -> AuditedFiles:
    """What an audit of (``published``, ``head``] may look at."""
    since = -1 if published is None else catalog.manifest(published).epoch
    records = catalog.files(head.logs["panes"], since_epoch=since)
    panes = [file for record in records for file in record.files if isinstance(file, DataFile)]
    current = [file for layer in head.tables["current"] if layer.last_epoch > since for file in layer.files]
    return AuditedFiles({View.PANES: panes, View.CURRENT: current}, since)
