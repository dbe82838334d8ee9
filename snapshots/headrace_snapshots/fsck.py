"""Fsck: holds all that kept snapshots need against what is stored, and names what is wrong, who needs it, and the way
out.

Every object that anything names is looked for, and its length compared; those that carry their checksum (manifests,
nodes, entries, marks) are read. With ``deep`` data files are read too, and held against the checksums that manifests
have of them. Nothing is written, unless ``repair`` is asked for what can be made again from what is whole: the hint.
What no manifest names is counted: it may be a run's that is under way, or garbage, which ``expire`` tells apart.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property

from headrace_snapshots.ancestry import Link
from headrace_snapshots.catalog import Catalog, LostEntry
from headrace_snapshots.datafiles import verify
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.marks import manifest_path, node_path
from headrace_snapshots.reach import data_files, files_of
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError

KINDS = ("log", "log-hint.json", "manifests", "index", "data", "audits", "runs", "marks")
"""What there is below the folder of a pipeline."""

BACKUP = "bring it back from a backup"
_READERS = 8


@dataclass(frozen=True)
class Problem:
    """One object that is not as it should be. ``needed_by``: the newest of those that need it."""

    path: str
    problem: str
    needed_by: str
    remedy: str
    is_repaired: bool = False


@dataclass(frozen=True)
class Checked:
    """What was found. ``snapshots`` are kept; ``objects`` with ``bytes`` are all that there are.

    ``unreferenced``: objects of snapshots that nothing kept names, with their bytes. ``unknown``: paths of objects of
    no kind that Headrace stores.
    """

    problems: tuple[Problem, ...]
    snapshots: int
    objects: int
    bytes: int
    unreferenced: int
    unreferenced_bytes: int
    unknown: tuple[str, ...]

    @property
    def damage(self) -> tuple[Problem, ...]:
        """The problems that are left."""
        return tuple(problem for problem in self.problems if not problem.is_repaired)

    def to_json(self) -> JSON:
        """A JSON object."""
        return asdict(self)


Beside = Callable[[Catalog, Iterable[Entry], Collection[str]], Iterable[Problem]]
"""Checks what is kept beside snapshots; gets the log's entries and the ids of the kept snapshots."""


def fsck(catalog: Catalog, *, deep: bool = False, repair: bool = False, beside: Iterable[Beside] = ()) -> Checked:
    """Check everything that is kept. Raises what the store raises when it does not answer, and NewerFormatError."""
    listed = {info.path: info for info in catalog.store.list(f"{catalog.pipeline}/")}
    log = _Log(catalog)
    tree = _Tree(catalog, listed, deep)
    problems = [*log.problems(repair), *tree.problems()]
    problems += [problem for each in beside for problem in each(catalog, log.entries, tree.links)]
    kinds = {path: path.removeprefix(f"{catalog.pipeline}/").partition("/")[0] for path in listed}
    loose = [p for p, kind in kinds.items() if kind in {"manifests", "index", "data"} and p not in tree.named]
    return Checked(
        tuple(problems),
        len(tree.links),
        len(listed),
        sum(info.size for info in listed.values()),
        len(loose),
        sum(listed[path].size for path in loose),
        tuple(path for path, kind in kinds.items() if kind not in KINDS),
    )


class _Log:
    """The entries of the log, its hint, and what the newest entry names beside snapshots."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._folder = f"{catalog.pipeline}/log"
        self._head = catalog.known_head()
        found = [*catalog.history()]
        self.entries = [entry for entry in found if isinstance(entry, Entry)]
        self._lost = [entry for entry in found if isinstance(entry, LostEntry)]

    def problems(self, repair: bool) -> Iterator[Problem]:
        for lost in self._lost:
            yield Problem(
                self._path(lost.number), lost.problem, f"the log up to entry {self._head.entry}", self._way_on()
            )
        for later, entry in zip(self.entries, self.entries[1:], strict=False):
            if later.number == entry.number + 1 and not _leads_to(entry, later):
                problem = f"its refs are not those that entry {later.number} has found"
                yield Problem(self._path(entry.number), problem, f"entry {later.number}", self._way_on())
        yield from self._hint(repair)
        yield from self._mark()

    def _way_on(self) -> str:
        if self._head.is_whole:
            return f"{BACKUP}; as long as it is missing, only `headrace log` misses it"
        to = self._head.refs.get(MAIN, "beginning")
        return f"{BACKUP}; or `headrace rollback {self._catalog.pipeline} --to {to}` goes on without it"

    def _hint(self, repair: bool) -> Iterator[Problem]:
        problem = self._catalog.hint_problem()
        if problem is None:
            return
        is_repaired = False
        if repair and self._head.is_whole:
            self._catalog.mend_hint()
            is_repaired = self._catalog.hint_problem() is None
        remedy = "`headrace fsck --repair` writes it anew, or the next few entries do"
        path = f"{self._catalog.pipeline}/log-hint.json"
        yield Problem(path, problem, "whoever looks for the end of the log", remedy, is_repaired)

    def _mark(self) -> Iterator[Problem]:
        if self._head.horizon is None:
            return
        try:
            self._catalog.marks.read(self._head.horizon.mark)
        except BrokenObjectError as error:
            path = self._catalog.marks.path(self._head.horizon.mark)
            yield Problem(path, str(error), "the next expiry", "`headrace expire` makes another")

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


class _Tree:
    """Kept snapshots, newest of a line first, and all that they name. What is shared is looked at once."""

    def __init__(self, catalog: Catalog, listed: Mapping[str, ObjectInfo], deep: bool) -> None:
        self._catalog, self._listed, self._deep = catalog, listed, deep
        self.links: dict[str, Link] = {}
        self.named: set[str] = set()
        self._broken: dict[str, tuple[str, str]] = {}
        """By path what is wrong, and who needs it."""

    def problems(self) -> list[Problem]:
        self._find_links()
        files: dict[str, tuple[DataFile, str]] = {}
        for link in self.links.values():
            if link.manifest is not None:
                for file in self._files(link.manifest, known=self.named):
                    files.setdefault(file.path, (file, _name(link.manifest)))
        self.named |= files.keys()
        with ThreadPoolExecutor(_READERS, thread_name_prefix="fsck") as pool:
            found = pool.map(self._problem, [file for file, _ in files.values()])
            self._broken |= {
                path: (problem, name)
                for (path, (_, name)), problem in zip(files.items(), found, strict=True)
                if problem is not None
            }
        return [Problem(path, problem, name, self._remedy) for path, (problem, name) in self._broken.items()]

    def _find_links(self) -> None:
        refs = self._catalog.known_head().refs
        for ref in sorted(refs, key=lambda ref: (ref != MAIN, ref)):
            below = refs[ref]
            try:
                for link in self._catalog.lineage(refs[ref]):
                    if link.snapshot_id in self.links:
                        break
                    self.links[link.snapshot_id] = link
                    self._add_manifest(link.snapshot_id, ref, link.problem)
                    below = link.parent or below
            except (BrokenObjectError, MissingSnapshotError) as error:  # and the log does not know what came before
                self._add_manifest(below, ref, error)

    def _add_manifest(self, snapshot: str, ref: str, problem: Exception | None) -> None:
        path = manifest_path(self._catalog.pipeline, snapshot)
        self.named.add(path)
        if problem is not None:
            self._broken[path] = str(problem), f"{ref}, of which it is a snapshot"

    def _files(self, manifest: Manifest, known: set[str]) -> Iterator[DataFile]:
        """The data files of a manifest, without those of nodes that are ``known``, which become more."""
        yield from files_of(manifest)
        refs = [ref for log in manifest.logs.values() for level in log.levels for ref in level]
        while refs:
            ref = refs.pop()
            path = node_path(self._catalog.pipeline, ref.id)
            if path in known:
                continue
            known.add(path)
            try:
                node = self._catalog.read_node(ref.id)
            except BrokenObjectError as error:
                self._broken.setdefault(path, (str(error), _name(manifest)))
                continue
            refs.extend(node.refs)
            yield from data_files(node)

    def _problem(self, file: DataFile) -> str | None:
        info = self._listed.get(file.path) or self._stat(file.path)
        if info is None:
            return f"{self._catalog.store.uri}/{file.path} is missing"
        if info.size != file.bytes:
            return f"{self._catalog.store.uri}/{file.path} has {info.size} bytes, its manifest says {file.bytes}"
        try:
            if self._deep:
                verify(self._catalog.store, file)
        except BrokenObjectError as error:
            return str(error)
        return None

    def _stat(self, path: str) -> ObjectInfo | None:
        """Of what a run stored after the listing."""
        with suppress(ObjectNotFoundError):
            return self._catalog.store.stat(path)
        return None

    @cached_property
    def _remedy(self) -> str:
        """For all that snapshots need."""
        pipeline = self._catalog.pipeline
        whole = next((link.snapshot_id for link in self._main() if self._is_whole(link)), None)
        back = (
            "no snapshot of main is whole"
            if whole is None
            else f"`headrace rollback {pipeline} --to {whole}` goes back"
        )
        return f"{BACKUP}; or go on from an older snapshot: {back}; or run a backfill"

    def _main(self) -> Iterator[Link]:
        current = self._catalog.known_head().refs.get(MAIN)
        while current is not None and current in self.links:
            yield self.links[current]
            current = self.links[current].parent

    def _is_whole(self, link: Link) -> bool:
        if link.manifest is None:
            return False
        nodes: set[str] = set()
        files = {file.path for file in self._files(link.manifest, known=nodes)}
        return self._broken.keys().isdisjoint(files | nodes)


def _leads_to(entry: Entry, later: Entry) -> bool:
    """Whether the moves of ``later`` begin where ``entry`` was, unless it gave entries up."""
    gave_up = later.base == later.number
    return gave_up or all(entry.refs.get(ref) == before for ref, (before, _) in later.moves.items())


def _name(manifest: Manifest) -> str:
    return f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch} of {manifest.branch})"
