"""A data file that is not what was written: which snapshots do without it, and so how a person gets on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.refs import BEGINNING, MAIN, PUBLISHED, TAGS


@contextmanager
def ways_out(catalog: Catalog, branch: str) -> Iterator[None]:
    """Have a BrokenObjectError about a data file below ``branch`` say where that branch can go back to."""
    try:
        yield
    except BrokenObjectError as error:
        advice = _advice(catalog, branch, str(error))
        if advice is None:
            raise
        raise BrokenObjectError(f"{error}. {advice}") from error


def _advice(catalog: Catalog, branch: str, message: str) -> str | None:
    """None if no snapshot of ``branch`` wrote a file that ``message`` names, or it is a tag, which cannot go back."""
    refs = catalog.head().refs
    head = refs.get(branch)
    if head is None or branch.startswith(TAGS):
        return None
    named = re.search(rf"/{re.escape(catalog.pipeline)}/data/\d+-([^/]+)/", message)
    if named is None or (writer := _link(catalog, named[1])) is None:
        return None
    if catalog.ancestor_at(head, writer.epoch) != writer.snapshot_id:
        return None
    anew = (
        f"`headrace backfill {catalog.pipeline}` (or the backfill DAG): it replays all input into a new branch, and "
        "readers stay where they are until its cut-over"
    )
    before = _before(catalog, head, writer)
    if before is None:
        return f"Epoch {writer.epoch} wrote it, and no snapshot before that is kept. Without a backup, run {anew}"
    published = refs.get(PUBLISHED)
    has_been_read = published is not None and catalog.ancestor_at(published, writer.epoch) == writer.snapshot_id
    back = f"headrace rollback {catalog.pipeline} --to {before}"
    back += "" if branch in (MAIN, PUBLISHED) else f" --branch {branch}"
    readers = ", and readers with it" if branch in (MAIN, PUBLISHED) and has_been_read else ""
    return (
        f"Epoch {writer.epoch} wrote it: `{back}` goes back to before that{readers}, and the next run reads again what "
        f"came after. Or run {anew}"
    )


def _before(catalog: Catalog, head: str, writer: Link) -> str | None:
    """The newest snapshot in the line of ``head`` that came before ``writer`` and is kept; None if there is none."""
    if writer.parent is None:
        return BEGINNING
    try:
        if catalog.is_kept(writer.parent):
            return writer.parent
    except BrokenObjectError:  # what expiry has marked is lost: a rollback says what to do about that first
        return writer.parent
    return next((link.snapshot_id for link in catalog.lineage(head) if link.epoch < writer.epoch), None)


def _link(catalog: Catalog, snapshot: str) -> Link | None:
    try:
        return catalog.link(snapshot)
    except (BrokenObjectError, MissingSnapshotError):  # of an attempt that was never committed, or has expired
        return None
