"""Which snapshot a reader means, by its id, by a branch or a tag, or by a time; and whether it is whole.

``ways_out`` says of a damaged object which snapshots do without it, and so what a person can do. ``damage_under`` finds
such objects: a run reads its state and what is new. What older epochs wrote it only names, so damage there would be
told to readers alone. So each publishing run looks at a few of these objects, at others than the run before it. All
have their turn, and longer histories never need more requests. No data file is read: ``fsck --deep`` finds bits that
have changed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

import msgspec

from headrace.errors import FixConfigError
from headrace_snapshots import names as object_names
from headrace_snapshots.catalog import Catalog, Link, LostEntry
from headrace_snapshots.datafiles import check_size
from headrace_snapshots.errors import DamagedLogError, MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import IndexRef
from headrace_snapshots.format.manifest import INPUTS, Manifest, is_current
from headrace_snapshots.log import Entry
from headrace_snapshots.output_catalog import given_up_warning, how_back
from headrace_snapshots.protocol.moves import Head

_DAMAGE = (BrokenObjectError, MissingSnapshotError)
_COMMAND = "`headrace rollback"


class _NeededSince(msgspec.Struct, frozen=True):
    """From ``link`` on a line needs the object. ``why`` says so. ``replays``: a backfill does without the object."""

    link: Link
    why: str
    replays: bool


@contextmanager
def ways_out(catalog: Catalog, ref: str | None) -> Iterator[None]:
    """Have an error about a damaged manifest, index node or data file below ``ref`` say where that can go back to.

    None: below any ref, for who looks at all of them. An error that names a command already is left as it is.
    """
    try:
        yield
    except _DAMAGE as error:
        way_out = None if _COMMAND in str(error) else repair_advice(catalog, ref, str(error))
        if way_out is None:
            raise
        raise type(error)(f"{error}. {way_out}") from error


def repair_advice(catalog: Catalog, ref: str | None, message: str) -> str | None:
    """What to do about the object that ``message`` names; None if no snapshot of the ref needs it, or it is a tag that
    somebody reads.
    """
    head = catalog.head()
    tags = sorted(name for name in head.refs if name.startswith(object_names.TAGS))
    published_refs = sorted(filter(object_names.is_published, head.refs))
    delivery_refs = filter(object_names.is_delivery, head.refs)
    branches = sorted({*head.refs} - {*tags, *published_refs, *delivery_refs, object_names.MAIN})
    for name in (object_names.MAIN, *published_refs, *branches, *tags) if ref is None else (ref,):
        if name in head.refs and (needed_since := _needed_since(catalog, head.refs[name], message)) is not None:
            if not name.startswith(object_names.TAGS):
                return _going_back(catalog, head, name, needed_since)
            return f"`headrace drop {catalog.pipeline} {name}` does without it" if ref is None else None
    return None


def _going_back(catalog: Catalog, head: Head, branch: str, needed_since: _NeededSince) -> str:
    pipeline, refs = catalog.pipeline, head.refs
    replay = (
        f"`headrace backfill {pipeline}` (or the backfill DAG): it replays all input into a new branch, and readers "
        "stay where they are until its cut-over"
    )
    snapshot_before = _snapshot_before(catalog, refs[branch], needed_since.link)
    if snapshot_before is None:
        return f"{needed_since.why}, and no snapshot before that is kept. Without a backup, run {replay}"
    published_id = catalog.published_by_any(refs)
    is_readers = branch == object_names.MAIN or object_names.is_published(branch)
    has_been_read = (
        published_id is not None
        and catalog.ancestor_at(published_id, needed_since.link.epoch) == needed_since.link.snapshot_id
    )
    if is_readers:
        rollback_hint = how_back(catalog, None if snapshot_before == object_names.BEGINNING else snapshot_before)
    else:
        rollback_hint = f"`headrace rollback {pipeline} --to {snapshot_before} --branch {branch}`"
    readers = ", and readers with it" if is_readers and has_been_read else ""
    text = (
        f"{needed_since.why}: {rollback_hint} goes back to before that{readers}, and the next run reads again "
        "what came after"
    )
    text += (
        given_up_warning(catalog, refs[branch], None if snapshot_before == object_names.BEGINNING else snapshot_before)
        if is_readers
        else ""
    )
    return f"{text}. Or run {replay}" if needed_since.replays else text


def _needed_since(catalog: Catalog, head: str, message: str) -> _NeededSince | None:
    """From where on the line of ``head`` needs what ``message`` names; None if it does not."""
    name_match = re.search(
        rf"/{re.escape(catalog.pipeline)}/(?:data/\d+-(?P<writer>{object_names.SNAPSHOT})/|manifests/(?P<manifest>{object_names.SNAPSHOT})\.json"
        r"|index/(?P<node>[0-9a-f]{32})\.json)",
        message,
    )
    if name_match is None:
        return None
    if name_match["node"] is not None:
        return _since_node(catalog, head, name_match["node"])
    link = _find_link(catalog, name_match["writer"] or name_match["manifest"])
    if link is None or catalog.ancestor_at(head, link.epoch) != link.snapshot_id:
        return None
    is_data = name_match["writer"] is not None
    why = f"Epoch {link.epoch} wrote it" if is_data else f"It is the snapshot of epoch {link.epoch}"
    return _NeededSince(link, why, replays=is_data)


def _since_node(catalog: Catalog, head: str, node: str) -> _NeededSince | None:
    """A node was made when the last of its records came, or later."""
    try:
        manifest = catalog.manifest(head)
    except _DAMAGE:
        return None
    refs_by_name = {name: [*log.refs] for name, log in manifest.logs.items()}
    refs_by_name |= {
        name: [layer.node for layer in layers if layer.node is not None] for name, layers in manifest.tables.items()
    }
    for name, refs in refs_by_name.items():
        for ref in _refs_below(catalog, refs):
            if ref.id == node:
                layer = catalog.ancestor_at(head, ref.last_epoch)
                link = None if layer is None else _find_link(catalog, layer)
                why = f"It says which files of {name} there are up to epoch {ref.last_epoch}"
                return None if link is None else _NeededSince(link, why, replays=name != INPUTS)
    return None


def _refs_below(catalog: Catalog, refs_to_visit: list[IndexRef]) -> Iterator[IndexRef]:
    """These references, and those below them, as far as nodes can be read."""
    while refs_to_visit:
        ref = refs_to_visit.pop()
        yield ref
        try:
            refs_to_visit.extend(catalog.read_node(ref.id).refs)
        except BrokenObjectError:
            continue


def _snapshot_before(catalog: Catalog, head: str, since_link: Link) -> str | None:
    """The newest kept snapshot in the line of ``head`` that came before ``since_link``; None if there is none."""
    if since_link.parent is None:
        return object_names.BEGINNING
    try:
        if catalog.is_kept(since_link.parent):
            return since_link.parent
    except BrokenObjectError:  # what expiry has marked is lost: a rollback says what to do about that first
        return since_link.parent
    return next((link.snapshot_id for link in catalog.lineage(head) if link.epoch < since_link.epoch), None)


def _find_link(catalog: Catalog, snapshot: str) -> Link | None:
    try:
        return catalog.link(snapshot)
    except _DAMAGE:  # of an attempt that was never committed, or has expired
        return None


FILES, NODES = 16, 4
"""How many a run looks at: files of ``current``, and nodes, of its layers and of the logs of panes, late records and
dead letters.
"""

_READERS = 8
Item = TypeVar("Item")


def damage_under(catalog: Catalog, manifest: Manifest) -> list[str]:
    """What is wrong with objects that readers of ``manifest`` need, of those whose turn it is, and what to do."""
    current = [layer for table, layers in manifest.tables.items() if is_current(table) for layer in layers]
    files = [(layer, number) for layer in current for number in range(layer.file_count)]
    logs = (log for name, log in manifest.logs.items() if name != INPUTS)
    nodes = [ref.id for log in logs for ref in log.refs] + [
        layer.node.id for layer in current if layer.node is not None
    ]
    problems = [
        *_find_problems(
            lambda place: check_size(catalog.store, place[0].files[place[1]]), _next_turn(files, FILES, manifest.epoch)
        ),
        *_find_problems(catalog.read_node, _next_turn(nodes, NODES, manifest.epoch)),
    ]
    problems_with_advice = ((problem, repair_advice(catalog, object_names.MAIN, problem)) for problem in problems)
    return [f"{problem}. {way_out}" if way_out is not None else problem for problem, way_out in problems_with_advice]


def _next_turn(all_: Sequence[Item], count: int, epoch: int) -> list[Item]:
    """So many of them, from where that epoch's turn begins."""
    begin = epoch * count % max(len(all_), 1)
    return [*all_[begin : begin + count], *all_[: max(0, min(begin, begin + count - len(all_)))]]


def _find_problems(look: Callable[[Item], object], objects: Sequence[Item]) -> list[str]:
    def find_problem(item: Item) -> str | None:
        try:
            look(item)
        except BrokenObjectError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(_READERS, thread_name_prefix="underneath") as pool:
        return [text for text in pool.map(find_problem, objects) if text is not None]


At = str | datetime
"""A branch, a tag, the id of a snapshot, an aware datetime, or such a time as ISO 8601 text."""

_TIME_ADVICE = "write it with its time zone, such as 2026-11-21T10:00:00Z"


class UnknownBranchError(FixConfigError, code="config.unknown_branch"):
    """A branch or tag that the catalog does not have."""


class AtError(FixConfigError, code="config.snapshot_ref"):
    """What ``at`` says is neither a name nor a time."""


class NoSnapshotError(FixConfigError, code="config.no_snapshot"):
    """There is no snapshot at that name or time."""


class ResolvedSnapshot(msgspec.Struct, frozen=True):
    """A snapshot, None where the branch has none yet; ``ref``: the branch or tag that it was found by, if any."""

    manifest: Manifest | None
    ref: str | None = None


def snapshot_at(catalog: Catalog, snapshot_ref: At | None = None) -> ResolvedSnapshot:
    """The snapshot that ``snapshot_ref`` means; by default the one at ``published``.

    A name is that of a branch or a tag (``tags/name`` or ``name``), else the id of a snapshot. A time means what
    ``published`` pointed to then, by the log: what readers saw. For a pipeline whose outputs have names, ``published``
    is the newest snapshot that readers of every output may see. Raises AtError, UnknownBranchError, NoSnapshotError for
    a time at which nothing was published.
    """
    if isinstance(snapshot_ref, datetime):
        return _published_at(catalog, snapshot_ref, snapshot_ref.isoformat())
    if snapshot_ref is None:
        snapshot_ref = object_names.PUBLISHED
    if not isinstance(snapshot_ref, str) or not snapshot_ref:
        raise AtError(
            f"at={snapshot_ref!r} does not name a snapshot: give a branch, a tag, a snapshot's id, or a time; "
            f"{_TIME_ADVICE}"
        )
    match object_names.kind_of_name(snapshot_ref):
        case object_names.NameKind.TIME:
            return _published_at(catalog, _parse_time(snapshot_ref), snapshot_ref)
        case object_names.NameKind.SNAPSHOT:
            return ResolvedSnapshot(_read_manifest(catalog, snapshot_ref))
        case object_names.NameKind.BEGINNING:
            raise NoSnapshotError(
                f"{object_names.BEGINNING!r} is before the first snapshot of {catalog.pipeline}: nothing is there"
            )
    head = catalog.head()
    ref = object_names.ref_of(snapshot_ref, head.refs, head.generations)
    if ref is None:
        raise _unknown_ref_error(catalog, head, snapshot_ref)
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
    match object_names.kind_of_name(name):
        case object_names.NameKind.SNAPSHOT:
            return name
        case object_names.NameKind.TIME | object_names.NameKind.BEGINNING as kind:
            raise AtError(
                f"{name!r} is {kind.value}, which names no snapshot here: give a branch, a tag or an id; "
                f"`headrace log {catalog.pipeline}` lists them"
            )
    ref = object_names.ref_of(name, head.refs, head.generations)
    if ref is None:
        raise _unknown_ref_error(catalog, head, name)
    snapshot = _at_ref(catalog, head, ref)
    if snapshot is None:
        raise UnknownBranchError(f"{name} has no snapshot yet")
    return snapshot


def _at_ref(catalog: Catalog, head: Head, ref: str) -> str | None:
    return catalog.published_by_all(head.refs) if ref == object_names.PUBLISHED else head.refs.get(ref)


def _read_manifest(catalog: Catalog, snapshot_id: str) -> Manifest:
    try:
        return catalog.manifest(snapshot_id)
    except MissingSnapshotError:
        raise _unknown_ref_error(catalog, catalog.head(), snapshot_id) from None


def _unknown_ref_error(catalog: Catalog, head: Head, name: str) -> UnknownBranchError:
    refs_text = ", ".join(sorted(head.refs)) or "none"
    return UnknownBranchError(
        f"pipeline {catalog.pipeline} has no branch, tag or snapshot {name!r}; its branches and tags are {refs_text}, "
        f"`headrace log {catalog.pipeline}` lists its snapshots. If it is meant as a time, {_TIME_ADVICE}"
    )


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise AtError(f"at={text!r} cannot be read as a time: {_TIME_ADVICE}") from None


def _published_at(catalog: Catalog, when: datetime, time_text: str) -> ResolvedSnapshot:
    if when.tzinfo is None:
        raise AtError(f"at={time_text} has no time zone, so it is not clear when that is: {_TIME_ADVICE}")
    entry = _entry_at(catalog, when)
    snapshot = None if entry is None else catalog.published_by_all(entry.refs)
    if snapshot is None:
        raise NoSnapshotError(
            f"pipeline {catalog.pipeline} had published nothing by {time_text}, or that has expired: "
            f"`headrace log {catalog.pipeline}` says when it was published"
        )
    return ResolvedSnapshot(catalog.manifest(snapshot), object_names.PUBLISHED)


def _entry_at(catalog: Catalog, when: datetime) -> Entry | None:
    """The newest entry of the log that says it was written by ``when``.

    It is found by bisection, as entries come one after another. Their times need not: clocks differ from machine to
    machine, and are set. One entry of a clock that was ahead would end a bisection long before the newest. So entries
    behind its end are looked at, too, at distances that double, and the last one of all. One that says less than what
    comes before it in the log is of a clock that was behind: it counts for nothing there.

    Raises DamagedLogError if one that is lost may be it.
    """
    head = catalog.head()
    newest, high = _bisect_entries(catalog, when, head.base, head.entry + 1)
    distance = 1
    while newest is not None and high < head.entry:
        place = min(high + distance, head.entry)
        later_entry = next(catalog.entries(place + 1), None)
        earliest = datetime.fromisoformat(newest.at)
        if (
            later_entry is not None
            and later_entry.number > high
            and earliest <= datetime.fromisoformat(later_entry.at) <= when
        ):
            following, high = _bisect_entries(catalog, when, later_entry.number + 1, head.entry + 1)
            newest, distance = following or later_entry, 1
        elif place == head.entry:
            break
        else:
            distance *= 2
    lost_entry = next(catalog.history(high), None) if high > head.base else None
    if isinstance(lost_entry, LostEntry):
        raise DamagedLogError(
            f"what readers of {catalog.pipeline} saw at {when.isoformat()} may stand in entry {lost_entry.number} of "
            f"its log, and {lost_entry.problem}. Bring it back from a backup, or name a snapshot or a tag"
        )
    return newest


def _bisect_entries(catalog: Catalog, when: datetime, low: int, high: int) -> tuple[Entry | None, int]:
    """The last entry from number ``low`` on that was written by ``when``, and the number of the first that was not, or
    ``high``.
    """
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
    return newest, high
