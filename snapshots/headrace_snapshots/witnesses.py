"""Entries that are lost though the log looks whole: what else is stored names snapshots that the log does not know.

The hint proves the loss of what comes behind the entry that it names. It is put at the end of every command, so only a
command that was killed leaves entries behind it. If they are lost too, others still speak of them:

* A manifest says the generation under which it was written, which is the number of an entry.
* A manifest, the result of a run and an audit name snapshots that were committed, and published, when they were
  written. The log leads to each of them, or an expiry has marked it, or its manifest is gone.

What a rollback of a damaged log has given up is no loss: it fenced all writers, so that has older generations. Nor is
what an expiry has folded. The entry that committed a snapshot came after the claim that its manifest names, so there
must be one only where that claim has not been folded.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.layout import ObjectKind, kind_of, manifest_path
from headrace_snapshots.refs import is_published, published_of


@dataclass(frozen=True)
class Witness:
    """The object at ``path`` names snapshots that were ``committed`` when it was written, one that was ``audited``, and
    one that was ``published``.

    ``at``: when its writer had not looked yet what is published (ISO 8601); only needed where something is.
    """

    path: str
    committed: frozenset[str] = frozenset()
    audited: str | None = None
    published: str | None = None
    at: str = ""


Witnesses = Callable[[Catalog, Collection[str]], Iterable[Witness]]
"""Those that are no manifests, among the objects of these paths."""


def told_of_more(
    catalog: Catalog,
    entries: Sequence[Entry],
    stored: Collection[str],
    kept: Collection[str],
    witnesses: Iterable[Witness],
) -> list[str]:
    """What a log should say that looks whole, and does not: in words, by each object that proves it.

    ``entries``: those that are there, newest first. ``stored``: paths that were listed before they were read; ``kept``:
    ids of snapshots that refs lead to.
    """
    return [*_Log(catalog, entries).told_of_more(stored, kept, witnesses)]


@dataclass(frozen=True)
class _Log:
    """What the ``entries`` of a log say, newest first, and what they lead to."""

    catalog: Catalog
    entries: Sequence[Entry]

    def told_of_more(
        self, stored: Collection[str], kept: Collection[str], witnesses: Iterable[Witness]
    ) -> Iterator[str]:
        marked = self._marked()
        if marked is None or not self.entries:
            return
        loose = [path for path in stored if self._is_loose(path, kept, marked)]
        manifests = [manifest for path in loose if (manifest := self._manifest(path)) is not None]
        last, first = self.entries[0].number, self.entries[-1].number
        given_up = max((entry.number for entry in self.entries if entry.base == entry.number), default=-1)
        told_from = max(given_up + 1, first - 1)
        by_id = {manifest.snapshot_id: manifest for manifest in manifests if manifest.generation >= told_from}
        for manifest in by_id.values():
            if manifest.generation > last:
                yield f"snapshot {manifest.snapshot_id} was written under entry {manifest.generation}"
        every = [*witnesses, *(_parent(self.catalog.pipeline, manifest) for manifest in by_id.values())]
        led_to = self._led_to() if by_id else set()
        for witness in every:
            named = {*witness.committed, *self._audited(witness, by_id)}
            for snapshot in sorted(named & by_id.keys() - led_to):
                yield f"{witness.path} names snapshot {snapshot}, which no entry does"
        for witness in every:
            if witness.published in kept and self._was_never_published(witness.published, witness.at):
                yield f"{witness.path} says that snapshot {witness.published} was published, which no entry does"

    @staticmethod
    def _audited(witness: Witness, manifests: Mapping[str, Manifest]) -> Iterator[str]:
        """What was committed before it was audited; a patch is audited first."""
        audited = None if witness.audited is None else manifests.get(witness.audited)
        if audited is not None and not audited.is_patch:
            yield audited.snapshot_id

    def _is_loose(self, path: str, kept: Collection[str], marked: Collection[str]) -> bool:
        is_manifest = kind_of(self.catalog.pipeline, path) is ObjectKind.MANIFESTS
        return is_manifest and path not in marked and path.rpartition("/")[2].removesuffix(".json") not in kept

    def _marked(self) -> Collection[str] | None:
        """The paths of what is to be deleted; None if that cannot be read."""
        horizon = self.catalog.known_head().horizon
        if horizon is None:
            return ()
        try:
            return {path for batch in self.catalog.marks.read(horizon.mark).batches for path in batch.objects}
        except BrokenObjectError:
            return None

    def _manifest(self, path: str) -> Manifest | None:
        try:
            return self.catalog.manifest(path.rpartition("/")[2].removesuffix(".json"))
        except (BrokenObjectError, MissingSnapshotError):
            return None

    def _led_to(self) -> set[str]:
        """The ids of snapshots that an entry names, and of those before them, as far as manifests are there."""
        ahead = [snapshot for entry in self.entries for snapshot in _named(entry)]
        ids: set[str] = set()
        while ahead:
            snapshot = ahead.pop()
            if snapshot in ids:
                continue
            ids.add(snapshot)
            manifest = self._manifest(manifest_path(self.catalog.pipeline, snapshot))
            if manifest is not None and manifest.parent is not None:
                ahead.append(manifest.parent)
        return ids

    def _was_never_published(self, snapshot: str | None, at: str) -> bool:
        """Whether entries of ``at`` are there, and none of them had ``snapshot``, or a later one, published."""
        if snapshot is None or at < self.entries[-1].at:
            return False
        published: set[str | None] = {shown for entry in self.entries for shown in published_of(entry.refs).values()}
        moves = (move for entry in self.entries for ref, move in entry.moves.items() if is_published(ref))
        published |= {shown for move in moves for shown in move}
        now = published_of(self.entries[0].refs).values()
        if snapshot in published:
            return False
        try:
            return not any(self.catalog.is_ancestor(snapshot, shown) for shown in now)
        except (BrokenObjectError, MissingSnapshotError):
            return False


def _named(entry: Entry) -> Iterator[str]:
    for snapshot in (*entry.refs.values(), *(snapshot for move in entry.moves.values() for snapshot in move)):
        if snapshot is not None:
            yield snapshot


def _parent(pipeline: str, manifest: Manifest) -> Witness:
    """A manifest is written when what it follows is committed."""
    named = frozenset[str]() if manifest.parent is None else frozenset({manifest.parent})
    return Witness(manifest_path(pipeline, manifest.snapshot_id), named)
