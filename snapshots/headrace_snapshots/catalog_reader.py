"""What can be asked of the snapshots of one pipeline: where refs are, what came before what, and which readers saw.

``walk_lineage`` and what follows it answer of ancestry. Manifests are immutable, so a fact that was found once stays
true. Searches go by the skip pointers of manifests (``format.manifest``), and from one that has none by its parent.
They read few of the manifests on the way; one that is missing or broken is passed by what the log has of its commit.

``newest_seen`` says which snapshots readers of an output could see, or a person has released, as the log tells. A
rollback takes readers to no other. So it is held against the entries that let readers see something: a publish, a
release, a promotion. A rollback is none of them: earlier versions took readers to snapshots that no audit had passed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final

from headrace.errors import RestoreError
from headrace_snapshots.datafiles import Objects
from headrace_snapshots.errors import MissingSnapshotError, RefusedError
from headrace_snapshots.format import output_view
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.holds import Marks
from headrace_snapshots.log import CatalogLog, Entry, LostEntry
from headrace_snapshots.names import MAIN, is_published, output_of, published_of
from headrace_snapshots.protocol.moves import Head, Kind, Past
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class Link:
    """A snapshot in a line of descent. When its manifest cannot be read, ``problem`` says why.

    Then there is no ``manifest``, and ``epoch`` and ``parent`` are those that the log has of its commit.
    """

    snapshot_id: str
    epoch: int
    parent: str | None
    manifest: Manifest | None = None
    problem: RestoreError | None = None

    @property
    def ancestors(self) -> dict[int, str]:
        """Ancestors known without another request, by epoch: the parent, and whatever the manifest names."""
        skips = () if self.manifest is None else self.manifest.skips
        parents = {} if self.parent is None else {self.epoch - 1: self.parent}
        return {**{skip.epoch: skip.snapshot_id for skip in skips}, **parents}


READERS = 8
"""Manifests that are read at once."""

Look = Callable[[str], Link]
"""Finds a snapshot by its id: a request, unless it is remembered."""


def walk_lineage(look: Look, snapshot_id: str) -> Iterator[Link]:
    """``snapshot_id`` and all that came before it, newest first."""
    current: str | None = snapshot_id
    while current is not None:
        link = look(current)
        yield link
        current = link.parent


def gather_manifests(read: Callable[[str], Manifest | None], snapshot_id: str, after_epoch: int) -> dict[str, Manifest]:
    """The manifests of ``snapshot_id`` and of what came before it in epochs behind ``after_epoch``, by id; each is read
    once, as soon as one that names it has been. ``read`` gives None for one that is not to be had, and raises what ends
    all.
    """
    manifests: dict[str, Manifest] = {}
    requested_ids = {snapshot_id}
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="manifests")
    try:
        waiting: set[Future[Manifest | None]] = {pool.submit(read, snapshot_id)}
        while waiting:
            finished_futures, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for manifest in filter(None, (future.result() for future in finished_futures)):
                manifests[manifest.snapshot_id] = manifest
                ancestors = Link(manifest.snapshot_id, manifest.epoch, manifest.parent, manifest).ancestors
                new = {ancestor for epoch, ancestor in ancestors.items() if epoch > after_epoch} - requested_ids
                requested_ids |= new
                waiting |= {pool.submit(read, ancestor) for ancestor in new}
    finally:
        pool.shutdown(cancel_futures=True)
    return manifests


def ancestor_at(look: Look, link: Link, epoch: int) -> str | None:
    """The id of the snapshot of ``epoch`` in the line of ``link``; None if that begins later or ends earlier."""
    while link.epoch > epoch:
        nearest = min((ancestor_epoch for ancestor_epoch in link.ancestors if ancestor_epoch >= epoch), default=None)
        if nearest is None:
            return None
        ancestor = link.ancestors[nearest]
        if nearest == epoch:
            return ancestor
        link = look(ancestor)
    return link.snapshot_id if link.epoch == epoch else None


def common_ancestor(look: Look, one: Link, other: Link) -> Link | None:
    """The newest snapshot in the lines of both, which may be one of them; None if they began apart."""
    older, newer = sorted((one, other), key=lambda link: link.epoch)
    ancestor_beside = ancestor_at(look, newer, older.epoch)
    if ancestor_beside is None:
        return None
    newer = look(ancestor_beside)
    while older.snapshot_id != newer.snapshot_id:
        left, right = older.ancestors, newer.ancestors
        known_epochs = left.keys() & right.keys()
        if not known_epochs:
            return None
        differing_epochs = [epoch for epoch in known_epochs if left[epoch] != right[epoch]]
        # back to the oldest ancestors that differ; where none does, the newest that both name is in both lines
        nearest = min(differing_epochs) if differing_epochs else max(known_epochs)
        older, newer = look(left[nearest]), look(right[nearest])
    return older


class CatalogReader(Objects):
    """Answers questions, and changes nothing. Usable from many threads.

    Any method may raise what the store raises, BrokenObjectError for a control object that is damaged, and
    DamagedLogError when entries of the log are lost.
    """

    output = ""
    """The output whose catalog it is, where outputs have names and it is that of one."""

    def __init__(
        self, store: ObjectStore, pipeline: str, new_id: Callable[[], str], *, looks_once: bool = False
    ) -> None:
        super().__init__(store, pipeline, new_id)
        self.marks = Marks(store, pipeline)
        self._log = CatalogLog(store, pipeline, looks_once=looks_once)

    def called_at(self, snapshot_id: str) -> str:
        """What the output whose catalog it is is called in a snapshot."""
        del snapshot_id
        return self.output

    @property
    def looks_once(self) -> bool:
        """Whether the log is looked at once."""
        return self._log.looks_once

    def look_again(self) -> None:
        """Have the next question look at the log, also where that is looked at once: before what depends on others."""
        self._log.look_again()

    def head(self) -> Head:
        """Every ref and generation now; the cost does not grow with the log."""
        last = self._log.last_entry()
        return Head() if last is None else last.head

    def known_head(self) -> Head:
        """``head``, or of a damaged log what the newest entry that can be read says; then it is not ``is_whole``."""
        end = self._log.find_end()
        head = Head() if end.entry is None else end.entry.head
        return head if end.lost is None else replace(head, entry=end.number, is_whole=False)

    def published_by_all(self, refs: Mapping[str, str]) -> str | None:
        """The newest snapshot that readers of all outputs see, the oldest published; None if some output has none."""
        epochs = self._published_epochs(refs)
        if "" not in published_of(refs):
            main = None if MAIN not in refs else self.manifest(refs[MAIN])
            if main is None or any(output not in published_of(refs) for output in output_view.output_names(main)):
                return None
        return min(epochs, key=epochs.__getitem__, default=None)

    def published_by_any(self, refs: Mapping[str, str]) -> str | None:
        """The newest snapshot that readers of some output see; None if there is none."""
        epochs = self._published_epochs(refs)
        return max(epochs, key=epochs.__getitem__, default=None)

    def _published_epochs(self, refs: Mapping[str, str]) -> dict[str, int]:
        """The epochs of the snapshots that readers see, all on the line of main; one alone needs no number."""
        snapshots = {*published_of(refs).values()}
        return {snapshot: self.link(snapshot).epoch if len(snapshots) > 1 else 0 for snapshot in snapshots}

    def history(self, before: int | None = None, at_once: int = 1) -> Iterator[Entry | LostEntry]:
        """The entries below number ``before`` (default: all), newest first, also past those that are lost.

        One request for each that is asked for, and of a store that is far for those that are read ``at_once`` with it.
        """
        return self._log.entries_before(before if before is not None else self._log.find_end().number + 1, at_once)

    def entries(self, before: int | None = None, at_once: int = 1) -> Iterator[Entry]:
        """Entries of ``history`` that can be read."""
        return (entry for entry in self.history(before, at_once) if isinstance(entry, Entry))

    def last_move(self, ref: str, limit: int = 100) -> Entry | None:
        """The newest entry that moved ``ref``, among the newest ``limit``; None if none of them did."""
        return next((entry for entry in islice(self.entries(), limit) if ref in entry.moves), None)

    def list_entries(self, before: int | None = None, limit: int = 20) -> list[Entry]:
        """At most ``limit`` of ``entries``."""
        return list(islice(self.entries(before, at_once=limit), limit))

    def ancestry(self, snapshot_id: str, until: str | None = None) -> Iterator[Manifest]:
        """``snapshot_id`` and what came before it, newest first, down to but without ``until``, as far as it is kept.

        Raises RefusedError at the end when ``until`` is not an ancestor, or has expired.
        """
        return self._walk_line(snapshot_id, until, self.manifest)

    def whole_ancestry(self, snapshot_id: str, until: str | None = None) -> list[Manifest]:
        """All of ``ancestry``: as many requests, several at once. Raises what it raises."""
        manifests = self._gather_line(snapshot_id, until)
        return [
            *self._walk_line(snapshot_id, until, lambda wanted_id: manifests.get(wanted_id) or self.manifest(wanted_id))
        ]

    def readable_since(self, snapshot_id: str, until: str | None) -> dict[int, Manifest]:
        """The manifests of ``snapshot_id`` and of its ancestors after its ancestor ``until`` (None: all of them) that
        are there and can be read, by epoch. Nothing ends it: an ancestor that has expired, or whose manifest is missing
        or broken, is passed over. Raises MissingSnapshotError or BrokenObjectError if ``until`` cannot be read.
        """
        after_epoch = -1 if until is None else self.manifest(until).epoch
        manifests = self._gather_line(snapshot_id, until)

        def look_up_link(wanted_id: str) -> Link:
            if (manifest := manifests.get(wanted_id)) is None:
                return self.link(wanted_id)
            return Link(wanted_id, manifest.epoch, manifest.parent, manifest)

        with suppress(MissingSnapshotError):  # what came before it nobody can tell
            for link in takewhile(lambda link: link.epoch > after_epoch, self._with_grafts(look_up_link, snapshot_id)):
                if link.manifest is not None:
                    manifests[link.snapshot_id] = link.manifest
        return {manifest.epoch: manifest for manifest in manifests.values()}

    def _gather_line(self, snapshot_id: str, until_id: str | None) -> dict[str, Manifest]:
        """Reads what can be read of the line of ``snapshot_id`` after ``until_id``, as far as others name it."""

        def read_if_possible(wanted_id: str) -> Manifest | None:
            # who needs it is told when it is its turn
            with suppress(BrokenObjectError, MissingSnapshotError, output_view.UnknownOutputError):
                return self.manifest(wanted_id)
            return None

        after_epoch = -1 if until_id is None else self.manifest(until_id).epoch
        return gather_manifests(read_if_possible, snapshot_id, after_epoch)

    def _walk_line(self, snapshot_id: str, until_id: str | None, read: Callable[[str], Manifest]) -> Iterator[Manifest]:
        grafts = self._read_grafts()
        current: str | None = snapshot_id
        child: str | None = None
        while current is not None and current != until_id:
            try:
                manifest = read(current)
            except MissingSnapshotError:
                self.look_again()  # it may have expired since
                now = self._read_grafts()
                if child is None or now.get(child, current) == current:
                    raise
                grafts, current = now, now[child]
                continue
            yield manifest
            child, current = current, grafts.get(current, manifest.parent)
        if current != until_id:
            raise RefusedError(
                f"{until_id} is not an ancestor of {snapshot_id} in pipeline {self.pipeline}, or has expired"
            )

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether ``ancestor`` is ``descendant`` or came before it; few requests however many epochs are between."""
        return self.ancestor_at(descendant, self.manifest(ancestor).epoch) == ancestor

    def ancestor_at(self, descendant: str, epoch: int) -> str | None:
        """The snapshot of ``epoch`` in the line of ``descendant``; None if it has none. Few requests, too."""
        try:
            return ancestor_at(self.link, self.link(descendant), epoch)
        except MissingSnapshotError:  # what lies between has expired
            return next((link.snapshot_id for link in self.lineage(descendant) if link.epoch == epoch), None)

    def successor(self, snapshot: Link | None, descendant: str) -> Link | None:
        """What follows ``snapshot`` (None: the beginning) in the line of ``descendant``; None if that is not in it, or
        nothing follows. Few requests, too.
        """
        parent, epoch = (None, 0) if snapshot is None else (snapshot.snapshot_id, snapshot.epoch + 1)
        child = self.ancestor_at(descendant, epoch)
        link = None if child is None else self.link(child)
        return link if link is not None and link.parent == parent else None

    def common_ancestor(self, one: str, other: str) -> Link | None:
        """The newest snapshot that is, or came before, both; None if they began apart. Few requests, too."""
        first, second = self.link(one), self.link(other)
        try:
            return common_ancestor(self.link, first, second)
        except MissingSnapshotError:
            ancestors = {link.snapshot_id for link in self.lineage(one)}
            return next((link for link in self.lineage(other) if link.snapshot_id in ancestors), None)

    def given_up(self, past: Past, snapshot_id: str) -> Link | None:
        """The newest in the line of ``snapshot_id`` that main had before it left for another line, by what ``past``
        tells. Main may have it all the same. None if there is none, as far as manifests that tell are left.
        """
        links: list[Link] = []
        for head in past.heads:
            with suppress(BrokenObjectError, MissingSnapshotError):
                common = self.common_ancestor(head, snapshot_id)
                links += [] if common is None else [common]
        return max(links, key=lambda link: link.epoch, default=None)

    def lineage(self, snapshot_id: str) -> Iterator[Link]:
        """``snapshot_id`` and what came before it, newest first, as far as it is kept.

        It goes on past manifests that are missing or broken.
        """
        return self._with_grafts(self.link, snapshot_id)

    def _with_grafts(self, look: Look, snapshot_id: str) -> Iterator[Link]:
        """The line of ``snapshot_id`` by what ``look`` finds, past parents that are not kept any more."""
        grafts = self._read_grafts()

        def kept_link(snapshot: str) -> Link:
            link = look(snapshot)
            return replace(link, parent=grafts.get(snapshot, link.parent))

        return walk_lineage(kept_link, snapshot_id)

    def readable_manifests(self, snapshot_id: str) -> Iterator[Manifest]:
        """The manifests of its ``walk_lineage`` that can be read, newest first."""
        return (link.manifest for link in self.lineage(snapshot_id) if link.manifest is not None)

    def _read_grafts(self) -> Mapping[str, str | None]:
        """Which parents are not kept any more, and what stands for them. Reads the log again."""
        horizon = self.known_head().horizon
        return {} if horizon is None else horizon.grafts

    def is_kept(self, snapshot_id: str) -> bool:
        """Whether ``snapshot_id`` is there, and no expiry has marked it: then it may get a ref.

        Raises BrokenObjectError if the list of what is marked cannot be read.
        """
        horizon = self.head().horizon
        try:
            return horizon is None or self.marks.is_kept(horizon.mark, snapshot_id)
        except BrokenObjectError:
            self.look_again()
            now = self.head().horizon
            if now is None or horizon is None or now.mark == horizon.mark:  # else that mark counts no more
                raise
            return self.marks.is_kept(now.mark, snapshot_id)

    def link(self, snapshot_id: str) -> Link:
        """A snapshot in its line of descent, whose parent may have expired. Raises MissingSnapshotError if neither its
        manifest nor its commit is there.
        """
        try:
            manifest = self.manifest(snapshot_id)
        except (BrokenObjectError, MissingSnapshotError) as error:
            for entry in self.entries():
                parent, committed_id = entry.moves.get(entry.branch or "", (None, None))
                if entry.kind is Kind.COMMIT and committed_id == snapshot_id:
                    return Link(snapshot_id, entry.detail["epoch"], parent, problem=error)
            raise
        return Link(snapshot_id, manifest.epoch, manifest.parent, manifest)

    def hint_problem(self) -> str | None:
        """What is wrong with the object that says where to look for the end of the log, if anything is."""
        return self._log.hint_problem()


RELEASED_KEY: Final = "released"
"""The field of the ``detail`` of a release that has what it is about: snapshots by ref, also where nothing moves."""

_LETS_SEE = frozenset({Kind.PUBLISH, Kind.RELEASE, Kind.PROMOTE})
_READERS = 16
_UNREADABLE = (BrokenObjectError, MissingSnapshotError)


def newest_entries(catalog: CatalogReader, oldest: int = 0, before_entry: int | None = None) -> Iterator[Entry]:
    """The entries of the log that can be read, newest first, down to number ``oldest``; several are read at once.
    ``before_entry``: only those with a lower number.
    """
    head = catalog.known_head()
    first = max(head.base, oldest)
    entries = catalog.entries(head.entry + 1 if before_entry is None else before_entry, _READERS)
    return takewhile(lambda entry: entry.number >= first, entries)


def names_in(catalog: CatalogReader, target_id: str, main: str) -> dict[str, str | None] | None:
    """What each output of ``target_id`` is called in ``main``, which has come from it: where that cannot be read, what
    it is called in ``target_id``. None if that cannot be read either.
    """
    with suppress(*_UNREADABLE):
        target_manifest = catalog.manifest(target_id)
        with suppress(*_UNREADABLE):
            return output_view.called_since(target_manifest, next(catalog.readable_manifests(main)))
        return {output: output for output in output_view.output_names(target_manifest)}
    return None


def newest_seen(catalog: CatalogReader, target_id: str, output: str, main: str | None) -> str | None:
    """The newest snapshot at or before ``target_id`` that readers of its ``output`` could see, or that was released,
    when main went on to ``main``; None if none is kept.
    """
    line = _OutputLine.from_catalog(catalog, target_id, output, main)
    oldest: Entry | None = None
    snapshots: list[str] = []
    for entry in newest_entries(catalog):
        seen_here = [snapshot for ref, snapshot in lets_see(entry).items() if line.keeps(ref, snapshot)]
        snapshots += seen_here
        if seen_here and entry.kind is not Kind.RELEASE:  # which may be of an older one than those before it
            break
        oldest = entry
    else:
        seen_pairs = () if oldest is None else _seen_before(catalog, oldest)
        snapshots += [snapshot for ref, snapshot in seen_pairs if line.keeps(ref, snapshot)]
    return max(snapshots, key=lambda snapshot: catalog.link(snapshot).epoch, default=None)


def _seen_before(catalog: CatalogReader, oldest: Entry) -> Iterator[tuple[str, str]]:
    """What readers could see before the ``oldest`` entry that is left, by ref."""
    yield from ((ref, snapshot) for ref, snapshot in oldest.refs_before.items() if is_published(ref))
    horizon = catalog.known_head().horizon
    for ref, snapshots in () if horizon is None else horizon.seen.items():
        yield from ((ref, snapshot) for snapshot in snapshots)


def seen_until(
    catalog: CatalogReader, head: Head, first_entry: int, kept_snapshots: Collection[str]
) -> dict[str, list[str]]:
    """Tell which of ``kept_snapshots`` readers could see, as entries below ``first_entry`` say, which are to be
    deleted, and those that are deleted already; by ref.
    """
    seen_by_ref = {} if head.horizon is None else {ref: dict.fromkeys(ids) for ref, ids in head.horizon.seen.items()}
    for entry in newest_entries(catalog, before_entry=first_entry) if kept_snapshots else ():
        for ref, snapshot in lets_see(entry).items():
            seen_by_ref.setdefault(ref, {})[snapshot] = None
    of_kept = {
        ref: [snapshot for snapshot in snapshots if snapshot in kept_snapshots]
        for ref, snapshots in seen_by_ref.items()
    }
    return {ref: snapshots for ref, snapshots in of_kept.items() if snapshots}


def lets_see(entry: Entry) -> dict[str, str]:
    """What readers may see from ``entry`` on, by ref."""
    if entry.kind not in _LETS_SEE:
        return {}
    moved_refs = {ref: new_id for ref, (_, new_id) in entry.moves.items() if is_published(ref) and new_id is not None}
    released_refs: Mapping[str, JSON] = (entry.detail or {}).get(RELEASED_KEY, {}) if entry.kind is Kind.RELEASE else {}
    return {**released_refs, **moved_refs}


@dataclass(frozen=True)
class _OutputLine:
    """The snapshots of an output up to one of them, and under which names it had them."""

    catalog: CatalogReader
    target_id: str
    manifest: Manifest | None
    output: str
    names_since: set[str]

    @classmethod
    def from_catalog(cls, catalog: CatalogReader, target_id: str, output: str, main: str | None) -> "_OutputLine":
        """The line of ``output``, as snapshot ``target_id`` calls it, which has other names on the way to ``main``."""
        target_manifest: Manifest | None = None
        names_since = {output}
        with suppress(*_UNREADABLE):
            target_manifest = catalog.manifest(target_id)
            now = None if main is None else next(catalog.readable_manifests(main), None)
            name_now = None if now is None else output_view.called_since(target_manifest, now).get(output)
            if now is not None and name_now is not None:
                names_since |= {name_now, *output_view.all_names_before(now, name_now)}
        return cls(catalog, target_id, target_manifest, output, names_since)

    def keeps(self, ref: str, snapshot: str) -> bool:
        """Whether ``snapshot``, which readers by ``ref`` could see, is kept, and one of these."""
        with suppress(*_UNREADABLE):
            return (
                self.catalog.is_ancestor(snapshot, self.target_id)
                and self._is_called(output_of(ref), snapshot)
                and self.catalog.is_kept(snapshot)
            )
        return False

    def _is_called(self, name: str, snapshot: str) -> bool:
        """Whether ``name`` was the output's, in ``snapshot`` or since."""
        if self.manifest is None:
            return name == self.output
        manifest = self.catalog.manifest(snapshot)
        name_then = output_view.called_in(manifest, self.manifest, self.output)
        return name_then is not None and (
            name == name_then or (name in self.names_since and name not in output_view.output_names(manifest))
        )
