"""Fsck: compares what kept snapshots need with what is stored, and says what is wrong, who needs it, and what to do.

``told_of_more`` finds entries that are lost though the log looks whole: what else is stored names snapshots that the
log does not know (``Witness``). The hint proves the loss of what comes behind the entry that it names. It is put at the
end of every command, so only a command that was killed leaves entries behind it. If they are lost too, others still
speak of them:

* A manifest says the generation under which it was written, which is the number of an entry.
* A manifest, the result of a run and an audit name snapshots that were committed, and published, when they were
  written. The log leads to each of them, or an expiry has marked it, or its manifest is gone.

What a rollback of a damaged log has given up is no loss: it fenced all writers, so that has older generations. Nor is
what an expiry has folded. The entry that committed a snapshot came after the claim that its manifest names. So there
must be one only where that claim has not been folded.

``fsck`` looks for every object that anything names, and compares its length. It reads those that carry their checksum
(manifests, nodes, entries, marks). With ``deep`` data files are read too, and held against the checksums that manifests
have of them. What no manifest names is counted: it may be a run's that is under way, or garbage.

Nothing is written unless ``repair`` is asked for, and then only what changes no answer that anybody gets:

* A data file of which there is a copy is stored again, if the copy has the checksum that manifests say (``Copies``).
  The local cache has copies of state.
* The hint is written again, and a mark that cannot be read is made again.
* What no snapshot ever named is marked, and deleted once its writers are fenced (``expiry.collect_unnamed``); not while
  anything is damaged, since what cannot be read does not say what it needs.

It moves no ref: which results to give up is a person's decision, and each problem says the command.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from headrace_snapshots import names as object_names
from headrace_snapshots.catalog import Catalog, LostEntry
from headrace_snapshots.catalog_reader import Link
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.expiry import KINDS, Expired, collect_unnamed
from headrace_snapshots.format.codec import JSON, BrokenObjectError, checksum
from headrace_snapshots.format.files import DataFile, IndexRef
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.gc_roots import data_files, layered_of, logged_of, merged_of, names_of
from headrace_snapshots.log import Entry
from headrace_snapshots.output_catalog import given_up_warning
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError


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
"""The objects of these paths that witness something and are no manifests."""


def told_of_more(
    catalog: Catalog,
    entries: Sequence[Entry],
    stored_paths: Collection[str],
    kept_snapshots: Collection[str],
    witnesses: Iterable[Witness],
) -> list[str]:
    """What a log should say that looks whole, and does not: in words, by each object that proves it.

    ``entries``: those that are there, newest first. ``stored_paths``: paths that were listed before they were read;
    ``kept_snapshots``: ids of snapshots that refs lead to.
    """
    return [*_LogShape(catalog, entries).told_of_more(stored_paths, kept_snapshots, witnesses)]


@dataclass(frozen=True)
class _LogShape:
    """What the ``entries`` of a log say, newest first, and what they lead to."""

    catalog: Catalog
    entries: Sequence[Entry]

    def told_of_more(
        self, stored_paths: Collection[str], kept_snapshots: Collection[str], witnesses: Iterable[Witness]
    ) -> Iterator[str]:
        marked_paths = self._marked_paths()
        if marked_paths is None or not self.entries:
            return
        loose = [path for path in stored_paths if self._is_loose(path, kept_snapshots, marked_paths)]
        manifests = [manifest for path in loose if (manifest := self._read_manifest(path)) is not None]
        last, first = self.entries[0].number, self.entries[-1].number
        given_up = max((entry.number for entry in self.entries if entry.base == entry.number), default=-1)
        told_from = max(given_up + 1, first - 1)
        by_id = {manifest.snapshot_id: manifest for manifest in manifests if manifest.generation >= told_from}
        for manifest in by_id.values():
            if manifest.generation > last:
                yield f"snapshot {manifest.snapshot_id} was written under entry {manifest.generation}"
        every = [*witnesses, *(_witness_of_parent(self.catalog.pipeline, manifest) for manifest in by_id.values())]
        led_to = self._led_to() if by_id else set()
        for witness in every:
            committed_ids = {*witness.committed, *self._committed_before_audit(witness, by_id)}
            for snapshot in sorted(committed_ids & by_id.keys() - led_to):
                yield f"{witness.path} names snapshot {snapshot}, which no entry does"
        for witness in every:
            if witness.published in kept_snapshots and self._was_never_published(witness.published, witness.at):
                yield f"{witness.path} says that snapshot {witness.published} was published, which no entry does"

    @staticmethod
    def _committed_before_audit(witness: Witness, manifests: Mapping[str, Manifest]) -> Iterator[str]:
        """What was committed before it was audited; a patch is audited first."""
        audited_manifest = None if witness.audited is None else manifests.get(witness.audited)
        if audited_manifest is not None and not audited_manifest.is_patch:
            yield audited_manifest.snapshot_id

    def _is_loose(self, path: str, kept_ids: Collection[str], marked_paths: Collection[str]) -> bool:
        is_manifest = object_names.kind_of(self.catalog.pipeline, path) is object_names.ObjectKind.MANIFESTS
        return (
            is_manifest and path not in marked_paths and path.rpartition("/")[2].removesuffix(".json") not in kept_ids
        )

    def _marked_paths(self) -> Collection[str] | None:
        """The paths of what is to be deleted; None if that cannot be read."""
        horizon = self.catalog.known_head().horizon
        if horizon is None:
            return ()
        try:
            return {path for batch in self.catalog.marks.read(horizon.mark).batches for path in batch.objects}
        except BrokenObjectError:
            return None

    def _read_manifest(self, path: str) -> Manifest | None:
        try:
            return self.catalog.manifest(path.rpartition("/")[2].removesuffix(".json"))
        except (BrokenObjectError, MissingSnapshotError):
            return None

    def _led_to(self) -> set[str]:
        """The ids of snapshots that an entry names, and of those before them, as far as manifests are there."""
        ids_to_visit = [snapshot for entry in self.entries for snapshot in _named_snapshots(entry)]
        ids: set[str] = set()
        while ids_to_visit:
            snapshot = ids_to_visit.pop()
            if snapshot in ids:
                continue
            ids.add(snapshot)
            manifest = self._read_manifest(object_names.manifest_path(self.catalog.pipeline, snapshot))
            if manifest is not None and manifest.parent is not None:
                ids_to_visit.append(manifest.parent)
        return ids

    def _was_never_published(self, snapshot: str | None, time: str) -> bool:
        """Whether entries of ``time`` are there, and none of them had ``snapshot``, or a later one, published."""
        if snapshot is None or time < self.entries[-1].at:
            return False
        published_ids: set[str | None] = {
            published_id for entry in self.entries for published_id in object_names.published_of(entry.refs).values()
        }
        moves = (move for entry in self.entries for ref, move in entry.moves.items() if object_names.is_published(ref))
        published_ids |= {published_id for move in moves for published_id in move}
        now = object_names.published_of(self.entries[0].refs).values()
        if snapshot in published_ids:
            return False
        try:
            return not any(self.catalog.is_ancestor(snapshot, published_id) for published_id in now)
        except (BrokenObjectError, MissingSnapshotError):
            return False


def _named_snapshots(entry: Entry) -> Iterator[str]:
    for snapshot in (*entry.refs.values(), *(snapshot for move in entry.moves.values() for snapshot in move)):
        if snapshot is not None:
            yield snapshot


def _witness_of_parent(pipeline: str, manifest: Manifest) -> Witness:
    """A manifest is written when what it follows is committed."""
    parent_ids = frozenset[str]() if manifest.parent is None else frozenset({manifest.parent})
    return Witness(object_names.manifest_path(pipeline, manifest.snapshot_id), parent_ids)


BACKUP = "bring it back from a backup"
_READERS = 8
_BEFORE_PROMOTION = "main before the promotion of entry "


@dataclass(frozen=True)
class Problem:
    """One object that is not as it should be. ``needed_by``: the newest that needs it, of main if there is one."""

    path: str
    problem: str
    needed_by: str
    remedy: str
    is_repaired: bool = False


@dataclass(frozen=True)
class FsckReport:
    """What was found. ``snapshots`` are kept; ``objects`` with ``bytes`` are all that there are.

    ``unreferenced``: objects of snapshots that nothing kept names, with their bytes. ``unknown``: paths of objects of
    no kind that Headrace stores. ``collected``: what became of what no snapshot ever named, by a ``repair``.
    """

    problems: tuple[Problem, ...]
    snapshots: int
    objects: int
    bytes: int
    unreferenced: int
    unreferenced_bytes: int
    unknown: tuple[str, ...]
    collected: Expired | None = None

    @property
    def damage(self) -> tuple[Problem, ...]:
        """The problems that are left."""
        return tuple(problem for problem in self.problems if not problem.is_repaired)

    def to_json(self) -> JSON:
        return asdict(self)


Beside = Callable[[Catalog, Iterable[Entry], Collection[str]], Iterable[Problem]]
"""Checks what is kept beside snapshots; gets the log's entries and the ids of the kept snapshots."""

Copies = Callable[[DataFile], bytes | None]
"""What a copy elsewhere has for the content of a data file, if there is one."""


def fsck(
    catalog: Catalog,
    *,
    deep: bool = False,
    repair: bool = False,
    copies: Copies = lambda file: None,
    beside: Iterable[Beside] = (),
    witnesses: Witnesses = lambda catalog, stored_paths: (),
) -> FsckReport:
    """Check everything that is kept. ``witnesses``: what else says which snapshots were committed, and published.

    Raises what the store raises when it does not answer, and NewerFormatError."""
    # before the log is read: what is committed meanwhile would look as if its entry were lost
    infos_by_path = {info.path: info for info in catalog.store.list(f"{catalog.pipeline}/")}
    log = _Log(catalog)
    tree = _Tree(catalog, infos_by_path, deep, copies if repair else None)
    problems = [*log.problems(repair), *tree.problems()]
    problems += [problem for check in beside for problem in check(catalog, log.entries, tree.links)]
    problems += log.lost_unnoticed(infos_by_path, tree.links, witnesses(catalog, infos_by_path))
    kinds = {path: object_names.kind_of(catalog.pipeline, path) for path in infos_by_path}
    unnamed_paths = None
    if repair and all(
        problem.is_repaired or kinds.get(problem.path) is object_names.ObjectKind.MARKS for problem in problems
    ):
        unnamed_paths = collect_unnamed(catalog)
        problems = [replace(problem, is_repaired=True) for problem in problems]
    loose = [path for path, kind in kinds.items() if kind in KINDS and path not in tree.named_paths]
    return FsckReport(
        tuple(problems),
        len(tree.links),
        len(infos_by_path),
        sum(info.size for info in infos_by_path.values()),
        len(loose),
        sum(infos_by_path[path].size for path in loose),
        tuple(path for path, kind in kinds.items() if kind is None),
        unnamed_paths,
    )


class _Log:
    """The entries of the log, its hint, and what the newest entry names beside snapshots."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._head = catalog.known_head()
        history = [*catalog.history()]
        self.entries = [entry for entry in history if isinstance(entry, Entry)]
        self._lost_entries = [entry for entry in history if isinstance(entry, LostEntry)]

    def problems(self, repair: bool) -> Iterator[Problem]:
        for lost_entry in self._lost_entries:
            yield Problem(
                self._entry_path(lost_entry.number),
                lost_entry.problem,
                f"the log up to entry {self._head.entry}",
                self._way_on(),
            )
        for later_entry, entry in zip(self.entries, self.entries[1:], strict=False):
            if later_entry.number == entry.number + 1 and not _leads_to(entry, later_entry):
                problem = f"entry {later_entry.number} has found other refs than it has"
                yield Problem(self._entry_path(entry.number), problem, f"entry {later_entry.number}", self._way_on())
        yield from self._hint_problems(repair)
        yield from self._mark_problems()

    def lost_unnoticed(
        self, stored_paths: Collection[str], kept_snapshots: Collection[str], witnesses: Iterable[Witness]
    ) -> Iterator[Problem]:
        """Entries behind the last one, of a log that looks whole."""
        if self._lost_entries or not self._head.is_whole:
            return
        testimonies = told_of_more(self._catalog, self.entries, stored_paths, kept_snapshots, witnesses)
        if testimonies:
            more = f", and {len(testimonies) - 1} more like that" if len(testimonies) > 1 else ""
            yield Problem(
                self._entry_path(self._head.entry + 1),
                f"the log ends at entry {self._head.entry}, but {testimonies[0]}{more}: some of the last entries are "
                "lost",
                "every reader, run and publish",
                f"{BACKUP} if nothing has run since; or do without: the next run reads the input of the lost epochs "
                f"again, and `headrace expire {self._catalog.pipeline}` removes what is left of them",
            )

    def _way_on(self) -> str:
        if self._head.is_whole:
            return f"{BACKUP}; as long as it is missing, only `headrace log` misses it"
        target_id = self._head.refs.get(object_names.MAIN, object_names.BEGINNING)
        return (
            f"{BACKUP}; or `headrace rollback {self._catalog.pipeline} --to {target_id}` goes on without it, and gives "
            "up all that was committed, patched or published since"
        )

    def _hint_problems(self, repair: bool) -> Iterator[Problem]:
        problem = self._catalog.hint_problem()
        is_repaired = False
        if repair and self._head.is_whole:
            self._catalog.mend_hint()
            is_repaired = self._catalog.hint_problem() is None
        if problem is None:
            return
        remedy = "`headrace fsck --repair` writes it again, or the next command that writes the log does"
        path = object_names.hint_path(self._catalog.pipeline)
        yield Problem(path, problem, "every search for the end of the log", remedy, is_repaired)

    def _mark_problems(self) -> Iterator[Problem]:
        if self._head.horizon is None:
            return
        try:
            self._catalog.marks.read(self._head.horizon.mark)
        except BrokenObjectError as error:
            path = self._catalog.marks.path(self._head.horizon.mark)
            yield Problem(
                path, str(error), "the next expiry", "`headrace fsck --repair` or `headrace expire` makes another"
            )

    def _entry_path(self, number: int) -> str:
        return object_names.entry_path(self._catalog.pipeline, number)


_NO_NAMES = "do without: the next run reads the log of inputs in its place, and stores it again"
_NOT_MERGED = "do without: the merge that it is a part of begins again"
_NODE_NOT_MERGED = f"{_NOT_MERGED}, and nothing expires while a snapshot that names it is kept"


@dataclass(frozen=True)
class _BrokenObject:
    """What is wrong with an object, the snapshot that needs it, and the ref whose line that is in."""

    problem: str
    needed_by: str
    ref: str


class _Tree:
    """Kept snapshots, newest of a line first, and all that they name. What is shared is looked at once."""

    def __init__(
        self, catalog: Catalog, infos_by_path: Mapping[str, ObjectInfo], deep: bool, copies: Copies | None
    ) -> None:
        self._catalog, self._infos_by_path, self._deep, self._copies = catalog, infos_by_path, deep, copies
        self.links: dict[str, Link] = {}
        self.named_paths: set[str] = set()
        self._spare: dict[str, str] = {}
        """Files without which all goes on, of names and of merges that are not done; what happens then."""
        self._refs: dict[str, str] = {}
        """The ref by which each snapshot was found first."""
        self._broken_by_path: dict[str, _BrokenObject] = {}
        """By path."""
        head = catalog.known_head()
        old_mains = {f"{_BEFORE_PROMOTION}{promotion.entry}": promotion.main for promotion in head.past.replaced}
        self._heads = {**head.refs, **old_mains}
        self._whole: dict[str, str | None] = {}
        """The newest whole snapshot of each ref that somebody asked for."""

    def problems(self) -> list[Problem]:
        self._find_links()
        files: dict[str, tuple[DataFile, Link]] = {}
        layer_paths: set[str] = set()
        for link in self.links.values():
            if link.manifest is not None:
                self._spare |= {file.path: _NO_NAMES for file in names_of(link.manifest)}
                merge_files = [*self._merge_files(link, link.manifest)]
                self._spare |= {file.path: _NOT_MERGED for file in merge_files}
                of_layers = [*self._layer_files(link, link.manifest, known_paths=self.named_paths)]
                layer_paths |= {file.path for file in of_layers}
                for file in (
                    *merge_files,
                    *of_layers,
                    *self._log_files(link, link.manifest, known_paths=self.named_paths),
                ):
                    files.setdefault(file.path, (file, link))
        self.named_paths |= files.keys()
        # once a merge is done its files are those of a layer, which needs them
        self._spare = {path: role for path, role in self._spare.items() if path not in layer_paths}
        with ThreadPoolExecutor(_READERS, thread_name_prefix="fsck") as pool:
            results = pool.map(self._file_problem, [file for file, _ in files.values()])
            wrong = {path: problem for path, problem in zip(files, results, strict=True) if problem is not None}
        repaired_problems = {path: problem for path, problem in wrong.items() if self._put_back(files[path][0])}
        for path in wrong.keys() - repaired_problems.keys():
            self._add_broken(path, wrong[path], files[path][1])
        return [
            *(
                Problem(path, error.problem, error.needed_by, f"{BACKUP}; or {self._way_on(path, error.ref)}")
                for path, error in self._broken_by_path.items()
            ),
            *(
                Problem(path, problem, _describe_link(files[path][1]), "it was stored again from the local cache", True)
                for path, problem in repaired_problems.items()
            ),
        ]

    def _add_broken(self, path: str, problem: str, link: Link) -> None:
        self._broken_by_path.setdefault(
            path, _BrokenObject(problem, _describe_link(link), self._refs[link.snapshot_id])
        )

    def _put_back(self, file: DataFile) -> bool:
        """Store a copy of ``file`` under its name, if there is one that is what manifests say."""
        data = None if self._copies is None else self._copies(file)
        if data is None or len(data) != file.bytes or checksum(data) != file.sha256:
            return False
        self._catalog.store.write(file.path, data)
        return True

    def _find_links(self) -> None:
        for ref in sorted(self._heads, key=lambda ref: (ref != object_names.MAIN, ref)):
            last_reached = self._heads[ref]
            try:
                for link in self._catalog.lineage(last_reached):
                    if link.snapshot_id in self.links:
                        break
                    self.links[link.snapshot_id] = link
                    self._refs[link.snapshot_id] = ref
                    self._add_manifest(link.snapshot_id, ref, link.problem)
                    last_reached = link.parent or last_reached
            except (BrokenObjectError, MissingSnapshotError) as error:  # and the log does not know what came before
                self._add_manifest(last_reached, ref, error)

    def _add_manifest(self, snapshot: str, ref: str, problem: Exception | None) -> None:
        path = object_names.manifest_path(self._catalog.pipeline, snapshot)
        self.named_paths.add(path)
        if problem is not None:
            self._broken_by_path[path] = _BrokenObject(str(problem), f"{ref}, of which it is a snapshot", ref)

    def _merge_files(self, link: Link, manifest: Manifest) -> Iterator[DataFile]:
        """The data files of what is done of merges, without those of nodes that are known; their nodes are spare."""
        nodes = [*manifest.merge_nodes]
        for node in nodes:
            self._spare[object_names.node_path(self._catalog.pipeline, node.id)] = _NODE_NOT_MERGED
        yield from merged_of(manifest)
        yield from self._files_below(link, nodes, known_paths=self.named_paths)

    def _layer_files(self, link: Link, manifest: Manifest, known_paths: set[str]) -> Iterator[DataFile]:
        """The data files of the tables of ``link``, without those of nodes in ``known_paths``, which become more."""
        yield from layered_of(manifest)
        yield from self._files_below(link, manifest.layer_nodes, known_paths)

    def _log_files(self, link: Link, manifest: Manifest, known_paths: set[str]) -> Iterator[DataFile]:
        """The same of its logs, and of names."""
        yield from logged_of(manifest)
        yield from self._files_below(link, (ref for log in manifest.logs.values() for ref in log.refs), known_paths)

    def _files_below(self, link: Link, nodes: Iterable[IndexRef], known_paths: set[str]) -> Iterator[DataFile]:
        refs = [*nodes]
        while refs:
            ref = refs.pop()
            path = object_names.node_path(self._catalog.pipeline, ref.id)
            if path in known_paths:
                continue
            known_paths.add(path)
            try:
                node = self._catalog.read_node(ref.id)
            except BrokenObjectError as error:
                self._add_broken(path, str(error), link)
                continue
            refs.extend(node.refs)
            yield from data_files(node)

    def _file_problem(self, file: DataFile) -> str | None:
        info = self._infos_by_path.get(file.path) or self._stat_object(file.path)
        if info is None:
            return f"{self._catalog.store.uri}/{file.path} is missing"
        if info.size != file.bytes:
            return f"{self._catalog.store.uri}/{file.path} has {info.size} bytes, its manifest says {file.bytes}"
        try:
            if self._deep:
                read_verified(self._catalog.store, file)
        except BrokenObjectError as error:
            return str(error)
        return None

    def _stat_object(self, path: str) -> ObjectInfo | None:
        """Looks at an object that a run may have stored after the listing; None if there is none."""
        with suppress(ObjectNotFoundError):
            return self._catalog.store.stat(path)
        return None

    def _way_on(self, path: str, ref: str) -> str:
        if path in self._spare:
            return self._spare[path]
        pipeline, whole = self._catalog.pipeline, self._newest_whole(ref)
        if ref.startswith(object_names.TAGS):
            return f"`headrace drop {pipeline} {ref}` does without the snapshot"
        if ref.startswith(_BEFORE_PROMOTION):
            return "do without: only a rollback over that promotion misses it"
        if whole == self._heads.get(ref):
            is_data = object_names.kind_of(pipeline, path) is object_names.ObjectKind.DATA
            limit_text = "until they expire" if is_data else "and nothing expires meanwhile"
            return f"do without: {ref} goes on, only older snapshots miss it, {limit_text}"
        backfill = f"`headrace backfill {pipeline}` computes all again beside it" if _is_of_main(ref) else ""
        if whole is None:
            return f"no snapshot of {ref} is whole: {backfill or f'`headrace drop {pipeline} {ref}`'}"
        branch = "" if _is_of_main(ref) else f" --branch {ref}"
        rollback_hint = f"`headrace rollback {pipeline} --to {whole}{branch}` goes back to the newest whole snapshot"
        rollback_hint += ", and the next run reads again what came after" if backfill else ""
        rollback_hint += given_up_warning(self._catalog, self._heads.get(ref), whole)
        return f"{rollback_hint}; or {backfill}" if backfill else rollback_hint

    def _newest_whole(self, ref: str) -> str | None:
        if ref not in self._whole:
            line = self._links_from_head(self._heads.get(ref))
            self._whole[ref] = next((link.snapshot_id for link in line if self._is_whole(link)), None)
        return self._whole[ref]

    def _links_from_head(self, head: str | None) -> Iterator[Link]:
        current = head
        while current is not None and current in self.links:
            yield self.links[current]
            current = self.links[current].parent

    def _is_whole(self, link: Link) -> bool:
        if link.manifest is None:
            return False
        nodes: set[str] = set()
        needed_files = (*self._layer_files(link, link.manifest, nodes), *self._log_files(link, link.manifest, nodes))
        return self._broken_by_path.keys().isdisjoint({file.path for file in needed_files} - self._spare.keys() | nodes)


def _leads_to(entry: Entry, later_entry: Entry) -> bool:
    """Whether the moves of ``later_entry`` begin where ``entry`` was, unless it gave entries up."""
    gave_up = later_entry.base == later_entry.number
    return gave_up or all(entry.refs.get(ref) == old_id for ref, (old_id, _) in later_entry.moves.items())


def _describe_link(link: Link) -> str:
    branch = "" if link.manifest is None else f" of {link.manifest.branch}"
    return f"snapshot {link.snapshot_id} (epoch {link.epoch}{branch})"


def _is_of_main(ref: str) -> bool:
    return ref == object_names.MAIN or object_names.is_published(ref) or object_names.is_delivery(ref)
