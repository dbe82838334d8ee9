"""Where main can go back to: snapshots that are whole, and what going back to one gives up. Nothing here moves."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice

from headrace.errors import RestoreError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.progress import input_file, progress_of
from headrace.read.snapshots.read_names import left_out
from headrace.runs.reporting.listener import number_of
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.datafiles import look, verify
from headrace_snapshots.errors import MissingSnapshotError, RefusedError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.patches import GivenUp
from headrace_snapshots.refs import MAIN, is_published, output_of
from headrace_snapshots.store import ObjectStore

_READERS = 8
_NAMED = 3


class TargetBrokenError(RestoreError, code="restore.target_broken"):
    """The snapshot to which a recovery would go back is not whole itself."""


@dataclass(frozen=True)
class RecoveryTarget:
    """A snapshot of main. ``keeps_readers``: what readers see is not newer, so they lose nothing. ``problem``: what is
    missing of it, or cut; the content of its files was not read.
    """

    snapshot: str
    epoch: int
    created_at: str
    keeps_readers: bool
    problem: str | None

    def to_json(self) -> JSON:
        """A JSON object."""
        return asdict(self)


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
    refs, files = catalog.head().refs, _Files(catalog, look)
    targets: list[RecoveryTarget] = []
    keeps_readers, published = True, catalog.published_by_any(refs)
    for link in islice(_line(catalog, refs.get(MAIN)), limit):
        if link.manifest is not None:
            manifest, problems = link.manifest, files.problems(link.manifest)
            problem = _told(problems) if problems else None
            targets.append(RecoveryTarget(link.snapshot_id, link.epoch, manifest.created_at, keeps_readers, problem))
        keeps_readers = keeps_readers and link.snapshot_id != published
    return targets


def check_whole(catalog: Catalog, snapshot: str) -> int:
    """How many files the tables of ``snapshot`` name, each found as it was written. Raises TargetBrokenError."""
    manifest = catalog.manifest(snapshot)
    if problems := _Files(catalog, verify).problems(manifest):
        raise _target_broken(manifest, problems)
    return len({file.path for layers in manifest.tables.values() for layer in layers for file in layer.files})


def check_there(catalog: Catalog, snapshot: str) -> None:
    """Look for the files of ``snapshot`` without reading them. Raises TargetBrokenError where one is gone or cut."""
    manifest = catalog.manifest(snapshot)
    if problems := _Files(catalog, look).problems(manifest):
        raise _target_broken(manifest, problems)


def _target_broken(manifest: Manifest, problems: Sequence[str]) -> TargetBrokenError:
    """What is wrong with a snapshot as a target."""
    return TargetBrokenError(
        f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch}) cannot be restored: {_told(problems)}. "
        "Choose an older one"
    )


def _told(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return f"{'; '.join(problems[:_NAMED])}{more}"


def with_epochs(catalog: Catalog, given_up: GivenUp) -> GivenUp:
    """``given_up`` by a recovery, which also says what is computed again, and what readers lose until then."""
    line = f"{_counted(catalog, *given_up.moves[MAIN])} will be given up and computed again"
    lost = [
        _counted(seen_catalog(catalog, output), *move) + (f" of {output}" if output else "")
        for ref, move in given_up.moves.items()
        if is_published(ref)
        for output in (output_of(ref),)
    ]
    if not lost:
        readers = "readers lose nothing: what they see is not newer than the snapshot"
    else:
        readers = f"readers lose {' and '.join(lost)} at once, until what is computed again is audited and published"
    return replace(given_up, told=(line, readers, *given_up.told))


def way_back(catalog: Catalog, pipeline: Pipeline) -> Recovery | None:
    """Where ``pipeline`` could recover from now that its state is broken; None while main has no snapshot."""
    refs = catalog.head().refs
    if (head := refs.get(MAIN)) is None:
        return None
    broken: list[Link] = []
    files = _Files(catalog, verify)
    for link in _line(catalog, head):
        if link.manifest is not None and not files.problems(link.manifest):
            break
        broken.append(link)
    else:
        return Recovery(head, None, False, "no snapshot of main is whole")
    if not broken:
        return Recovery(head, None, False, f"snapshot {head} is whole: a recovery would not help")
    target = link.snapshot_id
    if _is_newer_for_readers(catalog, target):
        return Recovery(head, target, False, f"readers see a snapshot that is newer than {target}")
    if (lost := _lost_input(catalog, pipeline, broken[0], link.epoch)) is not None:
        return Recovery(head, target, False, lost)
    return Recovery(head, target, True, "readers lose nothing, and all input since then is there")


def _is_newer_for_readers(catalog: Catalog, target: str) -> bool:
    """Whether readers would go back with main; they would be left with nothing where that is refused."""
    try:
        return any(map(is_published, catalog.would_roll_back(MAIN, target, give_up_delivered=True)))
    except RefusedError:
        return True


def _line(catalog: Catalog, head: str | None) -> Iterator[Link]:
    """Main's snapshots, newest first, as far as they are kept."""
    if head is not None:
        with suppress(MissingSnapshotError):  # what came before has expired
            yield from catalog.lineage(head)


class _Files:
    """What is wrong with files of tables, as ``check`` finds: each is checked once, however many snapshots name it."""

    def __init__(self, catalog: Catalog, check: Callable[[ObjectStore, DataFile], object]) -> None:
        self._catalog, self._check = catalog, check
        self._known: dict[str, str | None] = {}

    def problems(self, manifest: Manifest) -> list[str]:
        """What is wrong with what ``manifest`` names; once something is known to be broken nothing else is read."""
        files = {file.path: file for layers in manifest.tables.values() for layer in layers for file in layer.files}
        if not (broken := self._broken(files)):
            unread = [file for path, file in files.items() if path not in self._known]
            with ThreadPoolExecutor(_READERS) as pool:
                results = list(pool.map(self._problem, unread))
            self._known |= dict(zip((file.path for file in unread), results, strict=True))
            broken = self._broken(files)
        return broken or self._offsets_problem(manifest)

    def _broken(self, paths: Iterable[str]) -> list[str]:
        return [problem for path in paths if (problem := self._known.get(path)) is not None]

    def _problem(self, file: DataFile) -> str | None:
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


def _lost_input(catalog: Catalog, pipeline: Pipeline, newest: Link, after: int) -> str | None:
    """Why input that was read since epoch ``after`` could not be read again; None if it could."""
    unknown = "nobody can tell whether all input is still there: what names it is broken"
    if newest.manifest is None:
        return unknown
    try:
        records = [*catalog.files(newest.manifest.logs[INPUTS], since_epoch=after)]
    except BrokenObjectError:
        return unknown
    read = [file for record in records for file in record.files if isinstance(file, InputFile)]
    landing = Landing(pipeline, catalog.store)
    gone = [path for name in dict.fromkeys(file.input for file in read) for path in _gone(landing, name, read)]
    if not gone:
        return None
    return f"{len(gone)} files that would be read again are gone or changed: {'; '.join(gone[:_NAMED])}"


def gone_since(catalog: Catalog, pipeline: Pipeline, newest: Manifest, to: Manifest) -> list[str]:
    """The paths of input that ``newest`` and what is between had read after ``to``, and that nobody can read again. A
    file with other content than it had is read as it is; of files in another place than now nothing is said.
    """
    records = catalog.files(newest.logs[INPUTS], since_epoch=to.epoch)
    read = [file for record in records for file in record.files if isinstance(file, InputFile)]
    copies = left_out(catalog, to, (file.path for file in read))
    landing = Landing(pipeline, catalog.store)
    gone: list[str] = []
    for name in filter(landing.repeats, landing.enumerators):
        splits = [input_file(file) for file in read if file.input == name and file.path not in copies]
        if name in landing.files:
            here = [split for split in splits if split.path.startswith(landing.files[name].prefix)]
            gone += [split.path for split, how in landing.missing(name, here) if how == "is gone"]
        else:
            gone += [split.path for split, _ in landing.missing(name, splits)]
    return gone


def _gone(landing: Landing, name: str, read: Sequence[InputFile]) -> list[str]:
    """The paths of what was ``read`` of input ``name`` and is gone or changed: all, if there is no such input now."""
    splits = [input_file(file) for file in read if file.input == name]
    if name not in landing.enumerators:
        return [split.path for split in splits]
    return [split.path for split, _ in landing.missing(name, splits)]


def _counted(catalog: Catalog, newest: str | None, to: str | None) -> str:
    """How much the line of ``newest`` has beyond ``to``, as far as it can be read."""
    panes = epochs = 0
    for link in _line(catalog, newest):
        if link.snapshot_id == to:
            break
        epochs += 1
        counts = {} if link.manifest is None else link.manifest.counts
        panes += sum(counts.get(name, 0) for name in ("panes_early", "panes_on_time", "panes_late"))
    return f"{number_of(epochs, 'epoch')} with {number_of(panes, 'pane')}"
