"""Which panes a snapshot names: those of epochs that an expiry let go are left out of what is committed after it; and
from which epoch on two snapshots name panes of their own.
"""

from collections.abc import Collection

from headrace.read.views.columns import View, ViewColumns
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import come_to, goes_on
from headrace_snapshots.format.table_names import UNNAMED


def has_panes(catalog: Catalog, manifest: Manifest, since: int) -> bool:
    """Whether a snapshot surely names all panes of the epochs after ``since``: an expiry leaves out those from before
    the oldest snapshot of main that it keeps, and others below that may be kept all the same.
    """
    log = manifest.logs.get(UNNAMED.panes)
    first = None if log is None else log.first_epoch
    if first is not None and first <= since + 1:
        return True
    horizon = catalog.known_head().horizon
    for link in catalog.lineage(manifest.snapshot_id):
        if link.epoch <= since + 1:
            return True
        if horizon is not None and link.snapshot_id in horizon.grafts:
            return False
    return True


def common_epoch(catalog: Catalog, one: Manifest, other: Manifest, columns: Collection[str]) -> int:
    """The last epoch whose panes the lines of two snapshots have in common, and show with the same values in
    ``columns``; -1: none. They do not if rows were computed again meanwhile, columns have got the names of others, or
    were gone and have come again.
    """
    link = catalog.common_ancestor(one.snapshot_id, other.snapshot_id)
    if link is None or link.manifest is None or not all(goes_on(link.manifest, side, "") for side in (one, other)):
        return -1
    epoch = come_to(link.manifest, "")
    calls = [ViewColumns.from_json(side.schema).names(View.PANES, epoch) for side in (one, other)]
    is_alike = all(calls[0].get(name, name) == calls[1].get(name, name) for name in columns)
    return epoch if is_alike else -1
