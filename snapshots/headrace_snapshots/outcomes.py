"""The outcome of an entry that its writer finds folded away: whether the head shows its effect.

The entry was stored before the log was folded, and counts; or after that, and is void. Nothing in the log tells which,
but the head does: a commit counts if its branch leads to its snapshot, which no other entry names. What people ask for
can be so by another's hand as well, and then there is nothing left to do either.
"""

from headrace_snapshots.catalog_reader import CatalogReader
from headrace_snapshots.errors import FencedAfterCommitError, FencedError, MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.protocol import (
    BeginDelivery,
    Commit,
    Drop,
    EndDelivery,
    Fork,
    Head,
    Intent,
    Promote,
    Publish,
    Rollback,
    Tag,
)
from headrace_snapshots.refs import MAIN, TAGS, delivered_ref, delivering_ref


def counts(catalog: CatalogReader, head: Head, intent: Intent, entry: Entry) -> bool:
    """Whether ``entry``, the one of ``intent`` that was folded away, has done at ``head`` what it was to do.

    Raises what ends a writer that was fenced: see ``_is_committed``.
    """
    match intent:
        case Commit():
            is_done = _is_committed(catalog, head, intent, entry)
        case Publish(snapshots):
            is_done = all(_shows(catalog, head.refs.get(ref), snapshot) for ref, snapshot in snapshots.items())
        case Rollback() | Fork():
            is_done = head.generations.get(intent.branch, -1) >= entry.number and _has_moved(
                catalog, head, intent, entry
            )
        case Promote(branch):
            is_done = branch not in head.generations and _leads_to(catalog, head.refs.get(MAIN), entry.moves[MAIN][1])
        case Tag(name, snapshot):
            is_done = head.refs.get(TAGS + name) == snapshot
        case Drop(ref):
            is_done = ref not in head.refs and ref not in head.generations
        case BeginDelivery(output, sink, snapshot):
            is_done = _leads_to(catalog, head.refs.get(delivering_ref(output, sink)), snapshot)
        case EndDelivery(output, sink, snapshot):
            is_done = _leads_to(catalog, head.refs.get(delivered_ref(output, sink)), snapshot)
        case _:
            is_done = False  # a claim and an expiry are done once more
    return is_done


def _has_moved(catalog: CatalogReader, head: Head, intent: Rollback | Fork, entry: Entry) -> bool:
    """Whether the branch leads to where it was to be, and no longer to what a rollback was to give up."""
    before, to = entry.moves.get(intent.branch, (None, None))
    now = head.refs.get(intent.branch)
    if to is not None and not _leads_to(catalog, now, to):
        return False
    return before == to or not _leads_to(catalog, now, before)


def _shows(catalog: CatalogReader, now: str | None, snapshot: str | None) -> bool:
    """Whether readers see ``snapshot``, or a later one; or nothing more, if there is none."""
    return now is None if snapshot is None else _leads_to(catalog, now, snapshot)


def _leads_to(catalog: CatalogReader, now: str | None, snapshot: str | None) -> bool:
    """Whether ``snapshot`` is ``now`` or came before it; not, as far as anybody can tell, if it has expired."""
    if now is None or snapshot is None:
        return False
    if now == snapshot:
        return True
    try:
        return catalog.is_ancestor(snapshot, now)
    except (MissingSnapshotError, BrokenObjectError):
        return False


def _is_committed(catalog: CatalogReader, head: Head, intent: Commit, entry: Entry) -> bool:
    """Whether the branch leads to the snapshot, or main, if the branch was promoted (another may have its name since),
    and the writer has the branch still.

    Raises FencedAfterCommitError if it was committed, and the writer was fenced since; FencedError if snapshots that
    would tell have expired.
    """
    branch, epoch = intent.branch, entry.detail["epoch"]
    at = head.refs.get(branch)
    ends = {head.refs[ref] for ref in (branch, MAIN) if ref in head.refs}
    ancestors = {end: catalog.ancestor_at(end, epoch) for end in ends}
    where = f"pipeline {catalog.pipeline}: epoch {epoch} (snapshot {intent.snapshot})"
    if intent.snapshot not in ancestors.values():
        if at is not None and ancestors[at] is None and catalog.link(at).epoch > epoch:
            raise FencedError(
                f"{where} of a writer that stood still may have been committed to branch {branch}, and has expired "
                "since if it was; this writer was replaced and must stop. There is nothing to repeat"
            )
        return False
    if at == intent.snapshot and head.generations.get(branch) == intent.generation:
        return True
    raise FencedAfterCommitError(
        f"{where} was committed to branch {branch} and counts: there is nothing to repeat. While this writer stood "
        "still others went on with the branch, so it was replaced and must stop"
    )
