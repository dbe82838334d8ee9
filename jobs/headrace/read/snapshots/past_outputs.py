"""Outputs that main has not any more, or not yet: of branches, tags and older snapshots."""

from contextlib import suppress

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.refs import MAIN

_UNREADABLE = (BrokenObjectError, MissingSnapshotError)


def has_had(catalog: Catalog, output: str) -> bool:
    """Whether some kept snapshot has an ``output``: one that a ref names, the newest of what main has given up, or one
    of main, or of what main was before a promotion. Looks through all of them only for a name that none has.
    """
    head = catalog.head()
    for snapshot in dict.fromkeys((*head.refs.values(), *head.past.given_up)):
        with suppress(*_UNREADABLE):
            if output in outputs_of(catalog.manifest(snapshot)):
                return True
    lines = [head.refs.get(MAIN), *(promotion.main for promotion in reversed(head.past.replaced))]
    return any(line is not None and _is_on_line(catalog, line, output) for line in lines)


def _is_on_line(catalog: Catalog, newest: str, output: str) -> bool:
    """Whether a kept snapshot in the line of ``newest`` has the output."""
    with suppress(*_UNREADABLE):  # the rest has expired
        return any(output in outputs_of(manifest) for manifest in catalog.readable(newest))
    return False
