"""Expiry: what is not kept is marked in a log entry, and what was marked before is deleted.

Theory of operation
-------------------
*Kept* is what has a ref. On main, it is all that some output has not published yet, the last published snapshots and
the young ones. The same holds for what main was before promotions, which can be taken back. On other branches it is all
that main never had. An object is *live* while a kept snapshot needs it: its manifest, the data files of its tables and
logs, the nodes with these; besides whatever the caller counts as live (audits, results of runs). A snapshot is a fact
about the log, and so is what it needs: no clock tells whether an object is live. The clock only says which snapshots
are young, and both it and the newest entry's time must agree that one is not.

An expiry does, in this order:

1. **Sweep.** It deletes what the mark of an earlier expiry lists, if it is still not live and its writers are fenced;
   manifests first, so that no snapshot is there whose files are not.
2. **Mark.** It lists all objects, subtracts the live ones, and stores the list as a mark. It appends the entry that
   names the mark, at exactly the head for which liveness was computed. If somebody else's entry was faster, all is
   void.
3. **Fold.** It deletes the entries of the log below the oldest snapshot of main that is kept. What they said of kept
   snapshots that readers could see, the mark's entry says from then on.

Why that never deletes what anybody needs:

* *A writer in flight* stores data files and nodes before any manifest names them. An object that no snapshot ever named
  may be such a one. So it waits until no branch has a generation any more from when the object was marked. From then on
  the object's writer can commit nothing. What an expired snapshot named waits for nobody. A writer names files of its
  branch's head, which is kept, and its own new ones. Nobody else ever uses the names of these (a node names its
  writer).
* *An expired snapshot gets no ref again.* Tags, forks and rollbacks ask whether it is in the mark of the head that they
  follow (protocol/transitions). From the mark on it is as good as deleted, so it is no race when it is deleted.
* *A reader* of a kept snapshot never misses anything: a manifest never changes, and all that it names is live. A
  reader of an older one has the time from one expiry to the next.
* *Two expiries* at once sweep the same mark, which is no harm. One of their entries comes first; the other reads the
  new head. One that was stopped, and goes on much later, deletes what its mark lists, and those names never come back.
* *A crash* anywhere leaves a mark that no entry names, which is deleted once its number is given, or one that the next
  expiry sweeps.

A branch that did nothing in all of the kept log would hold up the garbage of killed runs for ever. So the same entry
fences it. A writer that is still at work there learns so when it commits, and its next run goes on as ever.

Panes, late records and dead letters of old epochs are named by every later snapshot, so they would never be garbage.
The entry says from which epoch of main on they are kept (the *floor*). The snapshots that are committed next leave out
what is older, and it goes with the last snapshot that still names it. Names of input files are never left out: they say
what was read.
"""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from headrace.errors import RestoreError
from headrace.this_process import Size
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import seen_until
from headrace_snapshots.errors import PublishConflictError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.gc_roots import (
    FactsIndex,
    Keep,
    KeptSnapshots,
    Lineages,
    ReaderBehind,
    SnapshotPosition,
    named_by,
)
from headrace_snapshots.holds import Batch, DeletionList, read_holds
from headrace_snapshots.names import MAIN, ObjectKind, kind_of, object_folder
from headrace_snapshots.protocol.moves import Head, Horizon
from headrace_snapshots.store import ObjectInfo

KINDS = (ObjectKind.MANIFESTS, ObjectKind.INDEX, ObjectKind.DATA)
"""What snapshots are made of, in the order in which it is deleted."""

KEPT_ENTRIES: Final = Size(100)
"""The least number of entries that is kept of the log."""

_KEEP_ALL = Keep(sys.maxsize)
_DELETERS = 8
_logger = logging.getLogger(__name__)

Live = Callable[[Collection[ObjectInfo], Collection[str], dict[str, str]], set[str]]
"""The paths of live objects, given the objects of a kind and the ids of the kept snapshots. It may note something of
each object by its path, and finds it again at the next expiry.
"""

Remember = Callable[[Collection[str], dict[str, str]], None]
"""Notes something of each kept snapshot, given their ids, by the path of its manifest. The next expiry has these notes
again, so it need not read the manifest for that.
"""


@dataclass(frozen=True)
class ObjectAmount:
    """So many objects with so many bytes."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Total(ObjectAmount):
    """So many in all, and of each kind: by the name of its folder, such as ``manifests`` or ``data``."""

    kinds: Mapping[str, ObjectAmount] = field(default_factory=dict)

    @classmethod
    def from_sizes(cls, objects: Mapping[str, int]) -> "Total":
        """Sums ``objects``, sizes in bytes by path."""
        sizes: dict[str, list[int]] = {}
        for path, size in objects.items():
            sizes.setdefault(path.split("/")[1], []).append(size)
        kinds = {kind: ObjectAmount(len(sizes[kind]), sum(sizes[kind])) for kind in sorted(sizes)}
        return cls(len(objects), sum(objects.values()), kinds)

    @property
    def snapshots(self) -> int:
        return self.kinds.get("manifests", ObjectAmount()).objects


@dataclass(frozen=True)
class Expired:
    """What an expiry did, or with ``dry_run`` would have done.

    ``swept`` is deleted. ``marked`` is what the next expiry deletes. ``waiting`` is what a writer of the branches
    ``writers`` may still need. ``folded`` entries of the log are deleted; ``tags`` were dropped, and ``fenced``
    branches have done nothing for so long that their writers were fenced. ``kept`` snapshots are left; ``first_epoch``
    is the first of main's, None if it has none. ``held_by``: outputs that hold main's history back, since they have
    published less than the others. ``readers`` in other pipelines for whom more is kept than the rule says; readers
    ``behind`` have read nothing of what the rule keeps, furthest first. The others have, and their own snapshots were
    computed from what is kept.
    """

    kept: int
    first_epoch: int | None
    swept: Total
    marked: Total
    waiting: Total
    writers: tuple[str, ...] = ()
    folded: int = 0
    tags: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    behind: tuple[ReaderBehind, ...] = ()
    dry_run: bool = False

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def expire(
    catalog: Catalog,
    keep: Keep,
    now: datetime,
    *,
    beside: Mapping[ObjectKind, Live] | None = None,
    remember: Remember | None = None,
    dry_run: bool = False,
    unnamed_only: bool = False,
) -> Expired:
    """Sweep what was marked, mark what ``keep`` does not keep, fold the log.

    ``beside``: further kinds of objects, and what is live of them. ``remember``: what else is noted of the kept
    snapshots. ``unnamed_only``: what a snapshot named stays marked, and is not swept.
    Raises RestoreError when something is damaged that is kept: then nothing can be deleted; see ``fsck``.
    """
    expiry = _Expiry(catalog, keep, now, beside or {}, remember, dry_run=dry_run, unnamed_only=unnamed_only)
    # Ends: another turn means that somebody else's entry was stored.
    while True:
        try:
            return expiry.attempt()
        except PublishConflictError:
            continue
        except RestoreError:
            if not expiry.is_overtaken():  # another one may have deleted what this one was about to read
                raise


def collect_unnamed(catalog: Catalog) -> Expired:
    """Only what no snapshot ever named: sweep what was marked of it, mark the rest. All snapshots that are kept stay.

    What expired snapshots named is left to the next ``expire``, for the sake of those who read it.
    Raises RestoreError as ``expire`` does.
    """
    return expire(catalog, _KEEP_ALL, datetime.max.replace(tzinfo=UTC), unnamed_only=True)


class _Expiry:
    """One expiry. What it listed first it keeps through all attempts: later objects are none of its business."""

    def __init__(
        self,
        catalog: Catalog,
        keep: Keep,
        now: datetime,
        beside: Mapping[ObjectKind, Live],
        remember: Remember | None,
        *,
        dry_run: bool,
        unnamed_only: bool,
    ) -> None:
        self._catalog, self._keep, self._now, self._beside = catalog, keep, now, beside
        self._remember, self._dry_run, self._unnamed_only = remember, dry_run, unnamed_only
        self._facts = FactsIndex(catalog)
        self._objects_by_kind = {kind: self._list_objects(kind) for kind in (*KINDS, *beside)}
        self._swept: dict[str, int] = {}
        self._entry = -1

    def _list_objects(self, kind: ObjectKind) -> list[ObjectInfo]:
        pipeline = self._catalog.pipeline
        infos = self._catalog.store.list(object_folder(pipeline, kind))
        return [info for info in infos if kind_of(pipeline, info.path) is kind]  # others are not ours

    def _object_kind(self, path: str) -> ObjectKind | None:
        return kind_of(self._catalog.pipeline, path)

    def is_overtaken(self) -> bool:
        """Whether there is a newer entry than the one at which the attempt began."""
        return self._catalog.head().entry != self._entry

    def attempt(self) -> Expired:
        """Raises PublishConflictError if the head moved meanwhile."""
        head = self._catalog.head()
        self._entry = head.entry
        if head.entry < 0:
            return Expired(0, None, Total(), Total(), Total(), dry_run=self._dry_run)
        marked_batches = self._marked_batches(head)
        self._learn_manifests(marked_batches or ())
        readers = read_holds(self._catalog.store, self._catalog.pipeline)
        snapshots_stored = {_snapshot_of(info.path) for info in self._objects_by_kind[ObjectKind.MANIFESTS]}
        kept_snapshots = Lineages(self._facts).compute_kept(
            head, self._keep, min(self._now, self._last_change(head)), readers, snapshots_stored
        )
        live = self._live_paths(kept_snapshots)
        waiting = self._sweep_marked(head, marked_batches or (), live)
        first_entry = self._first_entry(head, kept_snapshots)
        free, unknown = self._dead_objects(kept_snapshots, live, waiting)
        # any writer may be about to name what no snapshot has named yet
        writers = {*head.generations} if unknown else {branch for batch in waiting for branch in batch.writers}
        idle = self._idle_branches(head, writers, first_entry)
        tags = () if self._keep.tags else tuple(sorted(kept_snapshots.lost_tags))
        batches = (
            *waiting,
            *_batch_if_any({}, free),
            *_batch_if_any({b: generation for b, generation in head.generations.items() if b not in idle}, unknown),
        )
        number_folded = 0
        if not self._dry_run:
            snapshots_beside_main = {*kept_snapshots.snapshots} - {
                position.id for position in kept_snapshots.main
            }  # of main the log that is kept tells
            seen_by_ref = seen_until(self._catalog, head, first_entry, snapshots_beside_main)
            horizon = Horizon("", first_entry, _floor_epoch(kept_snapshots), kept_snapshots.grafts, seen_by_ref)
            if (
                # an expiry that has nothing new to say stores no entry
                batches != marked_batches
                or tags
                or idle
                or kept_snapshots.past != head.past
                or _is_news(head.horizon, horizon)
            ):
                mark_id = self._catalog.marks.new_id(head.entry + 1, self._catalog.new_snapshot_id())
                mark = DeletionList(mark_id, batches, self._facts.encode_facts(kept_snapshots.snapshots))
                self._write_marks(kept_snapshots, horizon, mark, tags, idle)
            number_folded = self._fold_log()
        return self._report(kept_snapshots, batches, number_folded, tags, idle)

    def _last_change(self, head: Head) -> datetime:
        """When the newest entry was stored: while nothing is stored nothing gets old."""
        return datetime.fromisoformat(next(self._catalog.entries(head.entry + 1)).at)

    def _learn_manifests(self, marked_batches: Iterable[Batch]) -> None:
        """Read the manifests that came since the last expiry, several at once."""
        going = {path for batch in marked_batches for path in batch.objects}
        manifest_paths = (info.path for info in self._objects_by_kind[ObjectKind.MANIFESTS] if info.path not in going)
        self._facts.learn_snapshots([*map(_snapshot_of, manifest_paths)])

    def _live_paths(self, kept_snapshots: KeptSnapshots) -> set[str]:
        live = named_by(self._facts, kept_snapshots.snapshots)
        for kind, judge in self._beside.items():
            live |= judge(self._objects_by_kind[kind], kept_snapshots.snapshots, self._facts.notes)
        if self._remember is not None:
            self._remember(kept_snapshots.snapshots, self._facts.notes)
        return live

    def _marked_batches(self, head: Head) -> tuple[Batch, ...] | None:
        """What is marked at ``head``. None if that is damaged: then nothing was, and all of it is found again."""
        if head.horizon is None:
            return ()
        try:
            mark = self._catalog.marks.read(head.horizon.mark)
        except BrokenObjectError as error:
            _logger.warning("the list of marked objects cannot be read, so they are found and marked again: %s", error)
            return None
        self._facts.restore_facts(mark.facts)
        return mark.batches

    def _sweep_marked(self, head: Head, marked_batches: Iterable[Batch], live: Collection[str]) -> tuple[Batch, ...]:
        """Delete what is marked, as far as that may be; what is left of it."""
        left: list[Batch] = []
        for batch in marked_batches:
            writers = {
                b: generation for b, generation in batch.writers.items() if head.generations.get(b) == generation
            }
            objects = {
                path: size for path, size in batch.objects.items() if path not in live and self._object_kind(path)
            }
            if writers or (self._unnamed_only and not batch.writers):
                left += _batch_if_any(writers, objects)
            else:
                self._swept |= objects
        if not self._dry_run:
            self._delete_objects(self._swept)
        return tuple(left)

    def _first_entry(self, head: Head, kept_snapshots: KeptSnapshots) -> int:
        """The first entry to keep: at most that with which main's oldest kept snapshot came."""
        latest = max(head.base, head.entry - KEPT_ENTRIES.value + 1)
        if kept_snapshots.oldest is None:
            return latest
        return self._when_it_came(head, kept_snapshots, kept_snapshots.oldest, latest)

    def _when_it_came(self, head: Head, kept_snapshots: KeptSnapshots, oldest: SnapshotPosition, latest: int) -> int:
        """The first entry after which main had ``oldest``, or ``latest`` if that is earlier. Few requests, since it
        came after its writer's claim, and main went on from it; or to what it has given up since.
        """
        ids_before = {*kept_snapshots.snapshots, *kept_snapshots.expired} - {
            position.id for position in kept_snapshots.main
        }
        first = max(head.base, min(oldest.generation, latest))
        while first < latest:
            middle = (first + latest) // 2
            entry = next(self._catalog.entries(middle + 1), None)  # None: another expiry has folded it meanwhile
            main = None if entry is None else entry.refs.get(MAIN)
            if main is None or main in ids_before:
                first = middle + 1
            else:
                latest = middle
        return first

    def _idle_branches(self, head: Head, writers: Collection[str], first_entry: int) -> list[str]:
        """Branches whose writers did nothing in all of the kept log."""
        claimed_before = {branch for branch in writers if head.generations[branch] < first_entry}
        if not claimed_before:
            return []
        kept_entries = takewhile(lambda entry: entry.number >= first_entry, self._catalog.entries(head.entry + 1))
        return sorted(claimed_before - {entry.branch for entry in kept_entries})

    def _dead_objects(
        self, kept_snapshots: KeptSnapshots, live: Collection[str], waiting: Iterable[Batch]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """What is neither live nor marked yet: what no writer can need, and what one may be about to name."""
        known_paths = {*self._swept, *(path for batch in waiting for path in batch.objects)}
        objects = {info.path: info.size for infos in self._objects_by_kind.values() for info in infos}
        dead = {path: size for path, size in objects.items() if path not in live and path not in known_paths}
        paths_of_expired = named_by(
            self._facts, kept_snapshots.expired, as_far_as_known=True
        ) | {  # the rest waits for writers
            info.path for kind in self._beside for info in self._objects_by_kind[kind]
        }
        return (
            {path: size for path, size in dead.items() if path in paths_of_expired},
            {path: size for path, size in dead.items() if path not in paths_of_expired},
        )

    def _write_marks(
        self,
        kept_snapshots: KeptSnapshots,
        horizon: Horizon,
        mark: DeletionList,
        tags: Collection[str],
        idle: Collection[str],
    ) -> None:
        self._catalog.marks.write(mark)
        count = sum(len(batch.objects) for batch in mark.batches)
        message = f"marked {number_of(count)}, deleted {number_of(len(self._swept))}"
        horizon = replace(horizon, mark=mark.id)
        self._catalog.expire(
            kept_snapshots.head.entry, horizon, tags=tags, idle=idle, message=message, past=kept_snapshots.past
        )

    def _fold_log(self) -> int:
        """Delete old entries of the log, and marks that count no more."""
        number_folded = self._catalog.fold()
        head = self._catalog.head()
        self._delete_objects(
            self._catalog.marks.dead_paths(head.entry, None if head.horizon is None else head.horizon.mark)
        )
        return number_folded

    def _delete_objects(self, paths: Collection[str]) -> None:
        """Manifests first."""
        store = self._catalog.store
        with ThreadPoolExecutor(_DELETERS) as pool:
            for is_manifest in (True, False):
                batch = [path for path in paths if (self._object_kind(path) is ObjectKind.MANIFESTS) is is_manifest]
                for _ in pool.map(store.delete, batch):
                    pass

    def _report(
        self,
        kept_snapshots: KeptSnapshots,
        batches: Iterable[Batch],
        number_folded: int,
        tags: Collection[str],
        idle: Collection[str],
    ) -> Expired:
        by_wait: dict[bool, dict[str, int]] = {True: {}, False: {}}
        for batch in batches:
            by_wait[bool(batch.writers)].update(batch.objects)
        return Expired(
            kept=len(kept_snapshots.snapshots),
            first_epoch=None if kept_snapshots.oldest is None else kept_snapshots.oldest.epoch,
            swept=Total.from_sizes(self._swept),
            marked=Total.from_sizes(by_wait[False]),
            waiting=Total.from_sizes(by_wait[True]),
            writers=tuple(sorted({branch for batch in batches for branch in batch.writers})),
            folded=number_folded,
            tags=tuple(tags),
            fenced=tuple(idle),
            held_by=kept_snapshots.held_by,
            readers=kept_snapshots.readers,
            behind=kept_snapshots.behind,
            dry_run=self._dry_run,
        )


def _snapshot_of(path: str) -> str:
    """The snapshot whose manifest is at ``path``."""
    return path.rpartition("/")[2].removesuffix(".json")


def _batch_if_any(writers: Mapping[str, int], objects: Mapping[str, int]) -> list[Batch]:
    return [Batch(writers, objects)] if objects else []


def _floor_epoch(kept_snapshots: KeptSnapshots) -> int:
    """From which epoch of main on output is kept; 0: from the beginning."""
    oldest = kept_snapshots.oldest
    return oldest.epoch if oldest is not None and oldest.id in kept_snapshots.grafts else 0


def _is_news(old_horizon: Horizon | None, now: Horizon) -> bool:
    """Whether what is kept has changed, or enough of the log can be folded to be worth an entry."""
    if old_horizon is None:
        return bool(now.grafts) or now.folded >= KEPT_ENTRIES.value
    has_changed = (old_horizon.floor, old_horizon.grafts) != (now.floor, now.grafts)
    return has_changed or now.folded - old_horizon.folded >= KEPT_ENTRIES.value


def number_of(objects: int) -> str:
    """``1 object``, ``2 objects``."""
    return f"{objects:,} object{'' if objects == 1 else 's'}"
