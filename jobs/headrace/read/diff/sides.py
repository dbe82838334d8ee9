"""Two snapshots as one output sees them, which may have another name in either."""

from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, called_on, output_names, seen_by
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.output_catalog import OutputCatalog, seen_catalog
from headrace_snapshots.refs import MAIN


def compared_sides(catalog: Catalog, before: At, after: At) -> tuple[Manifest | None, Manifest | None]:
    """What the output of ``catalog`` has at ``before`` and ``after``; None where there is no snapshot yet. One of them
    may know it by another name, which the names that the other has recorded tell.

    Raises UnknownOutputError if neither has it, and what ``snapshot_at`` does.
    """
    sides = [_side(catalog, at) for at in (before, after)]
    if isinstance(catalog, OutputCatalog):
        for number, at in enumerate((before, after)):
            side, other = sides[number], sides[1 - number]
            if not isinstance(side, Manifest) and isinstance(other, Manifest):
                sides[number] = _by_other_name(catalog, at, other.snapshot_id, side)
    for side in sides:
        if isinstance(side, UnknownOutputError):
            raise side
    left, right = (side if isinstance(side, Manifest) else None for side in sides)
    return left, right


def _side(catalog: Catalog, at: At) -> Manifest | UnknownOutputError | None:
    try:
        manifest = snapshot_at(catalog, at).manifest
        return None if manifest is None else seen_by(manifest, UNNAMED.output)
    except UnknownOutputError as error:
        return error


def _by_other_name(
    catalog: OutputCatalog, at: At, known_in: str, failed: UnknownOutputError | None
) -> Manifest | UnknownOutputError | None:
    """What is at ``at`` of the output that has the name of ``catalog`` in the snapshot ``known_in``."""
    whole, known = catalog.whole, catalog.whole.manifest(known_in)
    called = catalog.called_at(known_in)
    there = snapshot_at(whole, at if failed is not None else MAIN).manifest
    if there is None or called not in output_names(known):
        return failed
    then = called_on(there, known)[called]
    if then is None:  # it came later, and has the name since
        then = next((name for name, before in called_on(known, there).items() if before == called), None)
    return failed if then is None or then == called else _side(seen_catalog(whole, then), at)
