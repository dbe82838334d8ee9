"""Where main can go back to: snapshots of one pipeline that are whole, or one consistent cut of all that read it.

``recovery_targets`` are whole snapshots, and ``Recovery`` says what going back gives up. Nothing moves by these.

``recovery_cut`` and ``take_readers_back`` take a pipeline and all that read it back to one consistent cut. The target
of each reader is its newest snapshot that has consumed nothing but what its upstreams publish after they went back.
Upstreams are asked first, so a reader of two of them fits both. Every move is one entry of a log. What is left to do
follows from where things are: after a kill the next call does the rest.

``move_back`` moves one branch back by one entry of the log; ``is_recovery`` finds that entry again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headrace.errors import HeadraceError, RestoreError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.lineage.cut import KnownReaders, PlacedPipeline, RootStores, known_readers
from headrace.read.lineage.lineage import PipelineHead, heads_of
from headrace.read.pipeline_reader import pipelines_under
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.progress import input_file, progress_of
from headrace.read.upstream import GONE_ERRORS, UpstreamPosition, upstreams_of
from headrace.runs.options import RunOptions
from headrace.runs.plan import MoveBack
from headrace.runs.reporting.listener import number_of
from headrace.runs.restore import name_some
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.datafiles import check_size, read_verified
from headrace_snapshots.errors import MissingSnapshotError, RefusedError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import INPUTS, Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, PUBLISHED, is_published, output_of, published_ref
from headrace_snapshots.output_catalog import (
    GivenUp,
    describe_given_up,
    patches_given_up,
    seen_catalog,
    short_of,
    would_give_up,
)
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectStore

_READERS = 8


class TargetBrokenError(RestoreError, code="restore.target_broken"):
    """The snapshot to which a recovery would go back is not whole itself."""


@dataclass(frozen=True)
class RecoveryTarget(JsonFields):
    """A snapshot of main. ``keeps_readers``: what readers see is not newer, so they lose nothing. ``problem``: what is
    missing of it, or cut; the content of its files was not read.
    """

    snapshot: str
    epoch: int
    created_at: str
    keeps_readers: bool
    problem: str | None


@dataclass(frozen=True)
class Recovery:
    """What a run that has met broken state can do. ``target``: the newest whole snapshot before its head, if any.

    ``is_safe``: readers lose nothing and all input is there that is read again; ``reason`` says why, or why not.
    """

    head: str
    target: str | None
    is_safe: bool
    reason: str


def recovery_targets(catalog: Catalog, limit: int) -> list[RecoveryTarget]:
    """The newest snapshots of main whose manifests can be read, newest first. Their files are looked for, not read."""
    refs, files = catalog.head().refs, _Files(catalog, check_size)
    targets: list[RecoveryTarget] = []
    keeps_readers, published_id = True, catalog.published_by_any(refs)
    for link in islice(_main_links(catalog, refs.get(MAIN)), limit):
        if link.manifest is not None:
            manifest, problems = link.manifest, files.problems(link.manifest)
            problem = name_some(problems) if problems else None
            targets.append(RecoveryTarget(link.snapshot_id, link.epoch, manifest.created_at, keeps_readers, problem))
        keeps_readers = keeps_readers and link.snapshot_id != published_id
    return targets


def check_whole(catalog: Catalog, snapshot: str) -> int:
    """How many files the tables of ``snapshot`` name, each found as it was written. Raises TargetBrokenError."""
    manifest = catalog.manifest(snapshot)
    if problems := _Files(catalog, read_verified).problems(manifest):
        raise _target_broken(manifest, problems)
    return len({file.path for layer in catalog.layers(manifest, manifest.tables) for file in layer.files})


def check_there(catalog: Catalog, snapshot: str) -> None:
    """Look for the files of ``snapshot`` without reading them. Raises TargetBrokenError where one is gone or cut."""
    manifest = catalog.manifest(snapshot)
    if problems := _Files(catalog, check_size).problems(manifest):
        raise _target_broken(manifest, problems)


def _target_broken(manifest: Manifest, problems: Sequence[str]) -> TargetBrokenError:
    """What is wrong with a snapshot as a target."""
    return TargetBrokenError(
        f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch}) cannot be restored: {name_some(problems)}. "
        "Choose an older one"
    )


def with_epochs(catalog: Catalog, given_up: GivenUp) -> GivenUp:
    """``given_up`` by a recovery, which also says what is computed again, and what readers lose until then."""
    line = f"{_lost_counts_text(catalog, *given_up.moves[MAIN])} will be given up and computed again"
    lost_outputs = [
        _lost_counts_text(seen_catalog(catalog, output), *move) + (f" of {output}" if output else "")
        for ref, move in given_up.moves.items()
        if is_published(ref)
        for output in (output_of(ref),)
    ]
    if not lost_outputs:
        readers = "readers lose nothing: what they see is not newer than the snapshot"
    else:
        readers = (
            f"readers lose {' and '.join(lost_outputs)} at once, until what is computed again is audited and published"
        )
    return replace(given_up, told=(line, readers, *given_up.told))


def way_back(catalog: Catalog, pipeline: Pipeline) -> Recovery | None:
    """Where ``pipeline`` could recover from now that its state is broken; None while main has no snapshot."""
    refs = catalog.head().refs
    if (head := refs.get(MAIN)) is None:
        return None
    broken_links: list[Link] = []
    files = _Files(catalog, read_verified)
    for link in _main_links(catalog, head):
        if link.manifest is not None and not files.problems(link.manifest):
            break
        broken_links.append(link)
    else:
        return Recovery(head, None, False, "no snapshot of main is whole")
    if not broken_links:
        return Recovery(head, None, False, f"snapshot {head} is whole: a recovery would not help")
    target = link.snapshot_id
    if _is_newer_for_readers(catalog, target):
        return Recovery(head, target, False, f"readers see a snapshot that is newer than {target}")
    if (lost_input := _lost_input(catalog, pipeline, broken_links[0], link.epoch)) is not None:
        return Recovery(head, target, False, lost_input)
    return Recovery(head, target, True, "readers lose nothing, and all input since then is there")


def _is_newer_for_readers(catalog: Catalog, target: str) -> bool:
    """Whether readers would go back with main; they would be left with nothing where that is refused."""
    try:
        return any(map(is_published, catalog.would_roll_back(MAIN, target, give_up_delivered=True)))
    except RefusedError:
        return True


def _main_links(catalog: Catalog, head: str | None) -> Iterator[Link]:
    """Main's snapshots, newest first, as far as they are kept."""
    if head is not None:
        with suppress(MissingSnapshotError):  # what came before has expired
            yield from catalog.lineage(head)


class _Files:
    """What is wrong with files of tables, as ``check`` finds: each is checked once, however many snapshots name it."""

    def __init__(self, catalog: Catalog, check: Callable[[ObjectStore, DataFile], object]) -> None:
        self._catalog, self._check = catalog, check
        self._problem_by_path: dict[str, str | None] = {}

    def problems(self, manifest: Manifest) -> list[str]:
        """What is wrong with what ``manifest`` names; once something is known to be broken nothing else is read."""
        try:
            layers = self._catalog.layers(manifest, manifest.tables)
        except BrokenObjectError as error:
            return [str(error)]
        files = {file.path: file for layer in layers for file in layer.files}
        if not (broken_files := self._known_problems(files)):
            unread = [file for path, file in files.items() if path not in self._problem_by_path]
            with ThreadPoolExecutor(_READERS) as pool:
                results = list(pool.map(self._file_problem, unread))
            self._problem_by_path |= dict(zip((file.path for file in unread), results, strict=True))
            broken_files = self._known_problems(files)
        return broken_files or self._offsets_problem(manifest)

    def _known_problems(self, paths: Iterable[str]) -> list[str]:
        return [problem for path in paths if (problem := self._problem_by_path.get(path)) is not None]

    def _file_problem(self, file: DataFile) -> str | None:
        try:
            self._check(self._catalog.store, file)
        except BrokenObjectError as error:
            return str(error)
        return None

    def _offsets_problem(self, manifest: Manifest) -> list[str]:
        try:
            progress_of(self._catalog, manifest)
        except BrokenObjectError as error:
            return [str(error)]
        return []


def _lost_input(catalog: Catalog, pipeline: Pipeline, newest: Link, after_epoch: int) -> str | None:
    """Why input that was read since epoch ``after_epoch`` could not be read again; None if it could."""
    unknown = "nobody can tell whether all input is still there: what names it is broken"
    if newest.manifest is None:
        return unknown
    try:
        records = [*catalog.file_records(newest.manifest.logs[INPUTS], since_epoch=after_epoch)]
    except BrokenObjectError:
        return unknown
    read = [file for record in records for file in record.files if isinstance(file, InputFile)]
    landing = Landing(pipeline, catalog.store)
    gone_paths = [
        path for name in dict.fromkeys(file.input for file in read) for path in _missing_paths(landing, name, read)
    ]
    if not gone_paths:
        return None
    return f"{len(gone_paths)} files that would be read again are gone or changed: {name_some(gone_paths)}"


def _missing_paths(landing: Landing, name: str, read: Sequence[InputFile]) -> list[str]:
    """The paths of what was ``read`` of input ``name`` and is gone or changed: all, if there is no such input now."""
    splits = [input_file(file) for file in read if file.input == name]
    if name not in landing.enumerators:
        return [split.path for split in splits]
    return [split.path for split, _ in landing.missing_splits(name, splits)]


def _lost_counts_text(catalog: Catalog, newest: str | None, target_id: str | None) -> str:
    """How much the line of ``newest`` has beyond ``target_id``, as far as it can be read."""
    panes = epochs = 0
    for link in _main_links(catalog, newest):
        if link.snapshot_id == target_id:
            break
        epochs += 1
        counts = {} if link.manifest is None else link.manifest.counts
        panes += sum(counts.get(name, 0) for name in ("panes_early", "panes_on_time", "panes_late"))
    return f"{number_of(epochs, 'epoch')} with {number_of(panes, 'pane')}"


_MOST_TURNS = 5
"""How often what runs committed meanwhile is taken back as well, at most."""


class ReadersCannotFollowError(RestoreError, code="restore.readers_cannot_follow"):
    """Pipelines that read one which is taken back cannot go back with it."""


@dataclass(frozen=True)
class CutMove(JsonFields):
    """What becomes of main of a ``pipeline``: it goes back ``to`` a snapshot and gives something up; or it would have
    to, and the ``problem`` says why it cannot. Neither: what it has consumed stays as it is, and so does it. Or it
    ``is_left`` where it is, as somebody has asked for.
    """

    pipeline: PlacedPipeline
    head: str | None
    to: str | None
    given_up: GivenUp | None = None
    problem: str | None = None
    is_left: bool = False

    @property
    def in_words(self) -> str:
        """For people."""
        if self.problem is not None:
            return f"cannot follow: {self.problem}"
        if self.is_left:
            return "is left where it is: its next run takes back what it can"
        if self.given_up is None:
            return "stays: it has consumed nothing of what is given up"
        return "; ".join(self.given_up.told)


@dataclass(frozen=True)
class RecoveryCut(JsonFields):
    """The ``moves`` of a pipeline and of its readers, each after those of the pipelines that it reads. ``searched``
    says where readers were looked for: the cut is whole only if there are no others.
    """

    moves: tuple[CutMove, ...]
    searched: KnownReaders

    def check_all_follow(self) -> None:
        """Raise ReadersCannotFollowError if a reader would have to go back and cannot."""
        if problems := [f"{move.pipeline} {move.in_words}" for move in self.moves if move.problem is not None]:
            raise ReadersCannotFollowError(
                f"{self.moves[0].pipeline}: {'; '.join(problems)}. Nothing has moved. `headrace recover --leave "
                "READER` recovers without one; its next run takes back what it can"
            )

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a table: a pipeline each."""
        return [
            {"pipeline": str(move.pipeline), "from": move.head, "to": move.to, "what": move.in_words}
            for move in self.moves
        ]


def recovery_cut(
    catalog: Catalog,
    snapshot: str | None,
    *,
    give_up_delivered: bool = False,
    leave: Collection[str] = (),
    reader_roots: Iterable[str] = (),
) -> RecoveryCut:
    """Where main of the pipeline of ``catalog`` and of all that read it would be once it went back to ``snapshot``;
    None: it has gone back already. Nothing moves. Readers to ``leave`` (by name) stay where they are.

    Readers are those under the root of ``catalog`` and under ``reader_roots``, and those that hold something
    (``known_readers``). Raises RefusedError if the pipeline itself cannot go back there, UpstreamCycleError,
    MissingRootError.
    """
    stores = RootStores(catalog.store)
    first = PlacedPipeline("", catalog.pipeline)
    readers_found = known_readers(
        catalog.store, dict.fromkeys([catalog.pipeline, *pipelines_under(catalog.store)]), reader_roots
    )
    heads = heads_of(stores, readers_found.pipelines)
    head = catalog.head().refs.get(MAIN)
    moves = {first: _first_move(catalog, first, head, snapshot, give_up_delivered)}
    # upstreams first: where a reader goes depends on where they go
    for reader in [*heads][::-1]:
        read = {stores.place_pipeline(position.root, position.pipeline) for position in heads[reader].consumed.values()}
        if reader in moves or not read & moves.keys():
            continue
        if reader.name in leave:
            moves[reader] = CutMove(reader, heads[reader].snapshot, heads[reader].snapshot, is_left=True)
        else:
            moves[reader] = _Choice(stores, moves, give_up_delivered).choose_move(reader, heads[reader])
    for hidden_reader in readers_found.unseen:
        if hidden_reader.upstream in moves:
            is_left = hidden_reader.reader.name in leave
            moves[hidden_reader.reader] = CutMove(
                hidden_reader.reader, None, None, problem=None if is_left else hidden_reader.why, is_left=is_left
            )
    return RecoveryCut(tuple(moves.values()), readers_found)


def _first_move(
    catalog: Catalog, first: PlacedPipeline, head: str | None, snapshot: str | None, give_up_delivered: bool
) -> CutMove:
    if snapshot is None or snapshot == head:
        return CutMove(first, head, head)
    given_up = would_give_up(catalog, MAIN, snapshot, give_up_delivered=give_up_delivered)
    return CutMove(first, head, snapshot, with_epochs(catalog, given_up))


@dataclass(frozen=True)
class _Choice:
    """Where readers of ``planned`` pipelines go back to."""

    stores: RootStores
    planned: Mapping[PlacedPipeline, CutMove]
    give_up_delivered: bool

    def choose_move(self, reader: PlacedPipeline, head: PipelineHead) -> CutMove:
        catalog = self.stores.catalog(reader)
        assert head.snapshot is not None, "it has consumed something"
        target_id = next(self._fitting_snapshots(catalog, head.snapshot), None)
        if target_id == head.snapshot:
            return CutMove(reader, target_id, target_id)
        if target_id is None:
            return CutMove(
                reader,
                head.snapshot,
                head.snapshot,
                problem="no whole snapshot is kept from before it read what is given up; afterwards `headrace backfill "
                f"{reader.name} --promote` computes it again",
            )
        try:
            given_up = would_give_up(catalog, MAIN, target_id, give_up_delivered=self.give_up_delivered)
        except RefusedError as error:
            return CutMove(reader, head.snapshot, head.snapshot, problem=str(error))
        return CutMove(reader, head.snapshot, target_id, with_epochs(catalog, given_up))

    def _fitting_snapshots(self, catalog: Catalog, head: str) -> Iterator[str]:
        """Snapshots that have consumed only what the planned pipelines publish once they have moved, newest first."""
        for link in catalog.lineage(head):
            manifest = link.manifest
            if manifest is not None and all(
                map(self._is_published, upstreams_of(manifest, catalog.store.uri).values())
            ):
                with suppress(TargetBrokenError):  # an older one may be whole
                    # where it stays at its head nothing is restored
                    if link.snapshot_id != head:
                        check_there(catalog, link.snapshot_id)
                    yield link.snapshot_id

    def _is_published(self, position: UpstreamPosition) -> bool:
        upstream = self.stores.place_pipeline(position.root, position.pipeline)
        move = self.planned.get(upstream)
        if move is None:
            return True  # it stays as it is
        if position.is_behind:
            return False
        if position.snapshot is None:
            return True
        upstream_catalog = self.stores.catalog(upstream, position.output)
        ref = published_ref(position.output)
        moved_refs = {} if move.given_up is None else move.given_up.moves
        published_id = moved_refs[ref][1] if ref in moved_refs else upstream_catalog.head().refs.get(PUBLISHED)
        if published_id is None:
            return False
        with suppress(*GONE_ERRORS):
            return upstream_catalog.is_ancestor(position.snapshot, published_id)
        return False


def check_can_follow(catalog: Catalog, snapshot: str, options: RunOptions) -> None:
    """Raise ReadersCannotFollowError if a reader cannot go back with a recovery to ``snapshot``."""
    recovery_cut(
        catalog,
        snapshot,
        give_up_delivered=options.give_up_delivered,
        leave=options.left_readers,
        reader_roots=options.reader_roots,
    ).check_all_follow()


def take_readers_back(catalog: Catalog, options: RunOptions) -> tuple[str, ...]:
    """Move the readers of a pipeline that has gone back, upstreams first; for people what that gave up, which could not
    be moved, and where readers may be that nobody has seen. What a run of a reader commits meanwhile goes back, too.
    """
    warnings: dict[str, None] = {}
    stuck = {*options.left_readers}
    for _ in range(_MOST_TURNS):
        cut = recovery_cut(
            catalog,
            None,
            give_up_delivered=options.give_up_delivered,
            leave=stuck,
            reader_roots=options.reader_roots,
        )
        warnings |= dict.fromkeys(cut.searched.limits)
        warnings |= {f"reader {move.pipeline} {move.in_words}": None for move in cut.moves if move.problem is not None}
        moves = [move for move in cut.moves if move.given_up is not None]
        if not moves:
            break
        for move in moves:
            if not _move_reader(RootStores(catalog.store), move, catalog.pipeline, options, warnings):
                stuck.add(move.pipeline.name)
    return tuple(warnings)


def _move_reader(stores: RootStores, move: CutMove, first: str, options: RunOptions, warnings: dict[str, None]) -> bool:
    assert move.given_up is not None, "only what moves is moved"
    message = f"recovery of {first} with its readers, {options.request or options.run_id}"
    try:
        stores.catalog(move.pipeline).rollback(
            MAIN,
            move.to,
            f"{message}: {options.message}" if options.message else message,
            replayed=True,
            patches=move.given_up.patches,
            give_up_delivered=options.give_up_delivered,
        )
    except HeadraceError as error:
        warnings[f"reader {move.pipeline} could not go back to {move.to} ({error.code}: {error})"] = None
        return False
    warnings[f"reader {move.pipeline} has gone back to {move.to}: {move.in_words}"] = None
    return True


@dataclass(frozen=True)
class MovedBack:
    """The snapshot that was ``given_up``, and ``warnings`` of what else went with it."""

    given_up: str | None
    warnings: tuple[str, ...]


def move_back(catalog: Catalog, stage: MoveBack, *, give_up_delivered: bool) -> MovedBack:
    """Move a branch back, and ``published`` if it is newer. Later output patches are given up. Raises RefusedError."""
    catalog.look_again()  # patches that came while the run was planned are given up, too
    head = catalog.head().refs.get(stage.branch)
    patches = patches_given_up(catalog, head, stage.snapshot)
    entry = catalog.rollback(
        stage.branch,
        stage.snapshot,
        stage.message,
        replayed=True,
        patches=patches,
        give_up_delivered=give_up_delivered,
    )
    given_up, _ = entry.moves.get(stage.branch, (head, None))
    warnings = (*short_of(catalog, entry.moves, stage.snapshot), *describe_given_up(catalog, patches, stage.snapshot))
    return MovedBack(given_up, warnings)


def is_recovery(entry: Entry, request: str) -> bool:
    """Whether ``entry`` is that by which an attempt of ``request`` went back."""
    recovery = recovery_of(request)
    return entry.kind is Kind.ROLLBACK and (entry.message == recovery or entry.message.startswith(f"{recovery}: "))


def recovery_of(request: str) -> str:
    """With what the message of the entry begins; then comes who decided it and why, if that is known."""
    return f"recovery {request}"


def moved_back_before(catalog: Catalog, branch: str, snapshot: str, request: str) -> str | None:
    """What ``branch`` was at before ``request`` took it back to ``snapshot``, if it continues from there.

    What the branch has next was committed under another claim then, and before that claim stands the rollback. So few
    entries are read, however many epochs there have been.
    """
    head, target_link = catalog.head(), catalog.link(snapshot)
    successor = catalog.successor(target_link, head.refs[branch]) if branch in head.refs else None
    if successor is None:
        return None
    claims = [None if link.manifest is None else link.manifest.generation for link in (target_link, successor)]
    if claims[0] == claims[1] is not None:
        return None
    return given_up_by(catalog, head.entry if claims[1] is None else claims[1], branch, snapshot, request)


def given_up_by(catalog: Catalog, last_entry: int, branch: str, snapshot: str, request: str) -> str | None:
    """What ``request`` gave up, up to entry ``last_entry``, by taking ``branch`` back to ``snapshot``, if it did."""
    for entry in catalog.entries(before=last_entry + 1):
        has_target = any(new_id == snapshot for _, new_id in entry.moves.values())
        if has_target and is_recovery(entry, request):
            return entry.moves.get(branch, (None, None))[0]
        if has_target and entry.kind is Kind.COMMIT:
            return None
    return None
