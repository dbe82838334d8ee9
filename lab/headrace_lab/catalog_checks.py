"""What holds of every catalog at every moment, whatever its writers did and whatever happened to them."""

from collections.abc import Iterator

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, is_published
from headrace_snapshots.protocol.moves import Head, Kind
from headrace_snapshots.store import ObjectStore

_FENCING = {Kind.INIT, Kind.CLAIM, Kind.ROLLBACK, Kind.FORK, Kind.PROMOTE, Kind.EXPIRE}


def check_catalog(store: ObjectStore, pipeline: str) -> None:
    """Raise AssertionError with every violation found. Reads the whole log: for tests."""
    problems = list(violations(store, pipeline))
    if problems:
        raise AssertionError("\n".join(problems))


def violations(store: ObjectStore, pipeline: str) -> Iterator[str]:
    """What is wrong with the catalog of ``pipeline``, one sentence each."""
    folder = f"{pipeline}/log/"
    catalog = Catalog(store, pipeline)
    base = catalog.head().base
    whole = [info.path.removeprefix(folder) for info in store.list(folder, f"{folder}{base - 1:020d}.json")]
    yield from _gaps(whole, base)
    entries = [Entry.from_bytes(store.read(folder + name), folder + name) for name in whole]
    head = Head() if not base else entries.pop(0).head
    last_expiry = max((entry.number for entry in entries if entry.kind is Kind.EXPIRE), default=-1)
    for entry in entries:
        yield from _follows(head, entry)
        if entry.number >= last_expiry:  # what others named may be gone
            yield from _manifests(catalog, head, entry)
        head = entry.head
    if len({entry.write_id for entry in entries}) != len(entries):
        yield "two entries have one write id: something was done twice"
    if catalog.head() != head:
        yield f"a newcomer finds head {catalog.head().entry}, the log ends at {head.entry}"


def _gaps(names: list[str], base: int) -> Iterator[str]:
    for number, name in enumerate(names, start=base):
        if name != f"{number:020d}.json":
            yield f"object {number} of the log is {name}: the log has a gap, or something that is no entry"


def _follows(head: Head, entry: Entry) -> Iterator[str]:
    """Whether the entry's moves begin where ``head`` was, and its refs and generations are what they lead to."""
    refs = dict(head.refs)
    for ref, (old_snapshot, new_snapshot) in entry.moves.items():
        if refs.pop(ref, None) != old_snapshot:
            yield f"entry {entry.number} moves {ref} from {old_snapshot}, which was at {head.refs.get(ref)}"
        if new_snapshot is not None:
            refs[ref] = new_snapshot
    if refs != dict(entry.refs):
        yield f"entry {entry.number} has refs {dict(entry.refs)}, its moves lead to {refs}"
    for branch, generation in entry.generations.items():
        was = head.generations.get(branch)
        if generation != was and (generation != entry.number or entry.kind not in _FENCING):
            yield f"entry {entry.number} ({entry.kind}) changes the generation of {branch} from {was} to {generation}"
    if entry.kind is Kind.COMMIT and entry.branch and entry.generation != head.generations.get(entry.branch):
        yield f"entry {entry.number} commits to {entry.branch} under a generation that was fenced"


def _manifests(catalog: Catalog, head: Head, entry: Entry) -> Iterator[str]:
    """Whether every snapshot that is named exists, and each branch and ``published`` are where they may be."""
    try:
        named_manifests_by_ref = {ref: catalog.manifest(snapshot) for ref, snapshot in entry.refs.items()}
    except MissingSnapshotError as error:
        yield f"entry {entry.number}: {error}"
        return
    if entry.kind is Kind.COMMIT and entry.branch:
        yield from _commits(catalog, head, entry, named_manifests_by_ref[entry.branch])
    main = entry.refs.get(MAIN)
    for ref in filter(is_published, named_manifests_by_ref):
        if main is None or not catalog.is_ancestor(entry.refs[ref], main):
            yield f"entry {entry.number} leaves {ref} at {entry.refs[ref]}, which is not on main ({main})"


def _commits(catalog: Catalog, head: Head, entry: Entry, manifest: Manifest) -> Iterator[str]:
    parent = head.refs.get(manifest.branch)
    if manifest.parent != parent:
        yield f"entry {entry.number} commits {manifest.snapshot_id} of parent {manifest.parent} on top of {parent}"
    elif parent is not None and manifest.epoch != catalog.manifest(parent).epoch + 1:
        yield f"entry {entry.number} commits epoch {manifest.epoch} after {catalog.manifest(parent).epoch}"
    if (manifest.branch, manifest.generation) != (entry.branch, entry.generation):
        yield f"entry {entry.number} commits a manifest of {manifest.branch}, generation {manifest.generation}"
