"""Which snapshot a reader means: by its id, by a branch or a tag, or by a time."""

from dataclasses import dataclass
from datetime import datetime

from headrace.errors import FixConfigError
from headrace.read.snapshots.damage import ways_out
from headrace_snapshots.catalog import Catalog, Head, LostEntry
from headrace_snapshots.errors import DamagedLogError, MissingSnapshotError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import BEGINNING, PUBLISHED, NameKind, kind_of_name, ref_of

At = str | datetime
"""A branch, a tag, the id of a snapshot, an aware datetime, or such a time as ISO 8601 text."""

_WRITTEN = "write it with its time zone, such as 2026-11-21T10:00:00Z"


class UnknownBranchError(FixConfigError, code="config.unknown_branch"):
    """A branch or tag that the catalog does not have."""


class AtError(FixConfigError, code="config.snapshot_ref"):
    """What ``at`` says is neither a name nor a time."""


class NoSnapshotError(FixConfigError, code="config.no_snapshot"):
    """There is no snapshot at that name or time."""


@dataclass(frozen=True)
class ResolvedSnapshot:
    """A snapshot, None where the branch has none yet; ``ref``: the branch or tag that it was found by, if any."""

    manifest: Manifest | None
    ref: str | None = None


def snapshot_at(catalog: Catalog, at: At | None = None) -> ResolvedSnapshot:
    """The snapshot that ``at`` means; by default the one at ``published``.

    A name is that of a branch or a tag (``tags/name`` or ``name``), else the id of a snapshot. A time means what
    ``published`` pointed to then, by the log: what readers saw. Of a pipeline whose outputs have names ``published`` is
    the newest snapshot that readers of every output may see.
    Raises AtError, UnknownBranchError, NoSnapshotError for a time at which nothing was published.
    """
    if isinstance(at, datetime):
        return _published_at(catalog, at, at.isoformat())
    if at is None:
        at = PUBLISHED
    if not isinstance(at, str) or not at:
        raise AtError(
            f"at={at!r} does not name a snapshot: give a branch, a tag, a snapshot's id, or a time; {_WRITTEN}"
        )
    match kind_of_name(at):
        case NameKind.TIME:
            return _published_at(catalog, _time(at), at)
        case NameKind.SNAPSHOT:
            return ResolvedSnapshot(_manifest(catalog, at))
        case NameKind.BEGINNING:
            raise NoSnapshotError(f"{BEGINNING!r} is before the first snapshot of {catalog.pipeline}: nothing is there")
    head = catalog.head()
    ref = ref_of(at, head.refs, head.generations)
    if ref is None:
        raise _unknown(catalog, head, at)
    snapshot = _at_ref(catalog, head, ref)
    if snapshot is None:
        return ResolvedSnapshot(None, ref)
    with ways_out(catalog, ref):
        return ResolvedSnapshot(catalog.manifest(snapshot), ref)


def named_id(catalog: Catalog, head: Head, name: str) -> str:
    """The id of the snapshot that ``name`` means at ``head``: an id, or the branch or tag that points to it.

    Raises UnknownBranchError, also for a branch that has no snapshot yet, and AtError for a time.
    """
    if not isinstance(name, str):
        raise AtError(f"{name!r} does not name a snapshot: give a branch, a tag or an id")
    match kind_of_name(name):
        case NameKind.SNAPSHOT:
            return name
        case NameKind.TIME | NameKind.BEGINNING as kind:
            raise AtError(
                f"{name!r} is {kind.value}, which names no snapshot here: give a branch, a tag or an id; "
                f"`headrace log {catalog.pipeline}` lists them"
            )
    ref = ref_of(name, head.refs, head.generations)
    if ref is None:
        raise _unknown(catalog, head, name)
    snapshot = _at_ref(catalog, head, ref)
    if snapshot is None:
        raise UnknownBranchError(f"{name} has no snapshot yet")
    return snapshot


def _at_ref(catalog: Catalog, head: Head, ref: str) -> str | None:
    return catalog.published_by_all(head.refs) if ref == PUBLISHED else head.refs.get(ref)


def _manifest(catalog: Catalog, snapshot_id: str) -> Manifest:
    try:
        return catalog.manifest(snapshot_id)
    except MissingSnapshotError:
        raise _unknown(catalog, catalog.head(), snapshot_id) from None


def _unknown(catalog: Catalog, head: Head, name: str) -> UnknownBranchError:
    there = ", ".join(sorted(head.refs)) or "none"
    return UnknownBranchError(
        f"pipeline {catalog.pipeline} has no branch, tag or snapshot {name!r}; its branches and tags are {there}, "
        f"`headrace log {catalog.pipeline}` lists its snapshots. If it is meant as a time, {_WRITTEN}"
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise AtError(f"at={text!r} cannot be read as a time: {_WRITTEN}") from None


def _published_at(catalog: Catalog, when: datetime, written: str) -> ResolvedSnapshot:
    if when.tzinfo is None:
        raise AtError(f"at={written} has no time zone, so it is not clear when that is: {_WRITTEN}")
    entry = _entry_at(catalog, when)
    snapshot = None if entry is None else catalog.published_by_all(entry.refs)
    if snapshot is None:
        raise NoSnapshotError(
            f"pipeline {catalog.pipeline} had published nothing by {written}, or that has expired: "
            f"`headrace log {catalog.pipeline}` says when it was published"
        )
    return ResolvedSnapshot(catalog.manifest(snapshot), PUBLISHED)


def _entry_at(catalog: Catalog, when: datetime) -> Entry | None:
    """The newest entry of the log that was written by ``when``: by bisection, as entries come one after another.

    Raises DamagedLogError if one that is lost may be it.
    """
    head = catalog.head()
    low, high = head.base, head.entry + 1
    newest: Entry | None = None
    while low < high:
        middle = (low + high) // 2
        entry = next(catalog.entries(middle + 1), None)
        if entry is None or entry.number < low:  # those from low to middle are lost
            low = middle + 1
        elif datetime.fromisoformat(entry.at) <= when:
            newest, low = entry, middle + 1
        else:
            high = entry.number
    lost = next(catalog.history(high), None) if high > head.base else None
    if isinstance(lost, LostEntry):
        raise DamagedLogError(
            f"what readers of {catalog.pipeline} saw at {when.isoformat()} may stand in entry {lost.number} of its "
            f"log, and {lost.problem}. Bring it back from a backup, or name a snapshot or a tag"
        )
    return newest
