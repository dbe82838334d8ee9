"""Where main can go back to: snapshots that are whole, and what going back to one gives up. Nothing here moves."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from headrace.errors import RestoreError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.progress import progress_of
from headrace.sources.file_planning import LandedFile, is_unchanged
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog, Link
from headrace_snapshots.datafiles import verify
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS
from headrace_snapshots.patches import GivenUp
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectNotFoundError

_READERS = 8
_NAMED = 3


class TargetBrokenError(RestoreError):
    """The snapshot to which a recovery would go back is not whole itself."""

    code = "restore.target_broken"


@dataclass(frozen=True)
class RecoveryTarget:
    """A snapshot of main that can be read. ``keeps_readers``: what readers see is not newer, so they lose nothing."""

    snapshot: str
    epoch: int
    created_at: str
    keeps_readers: bool

    def to_json(self) -> JSON:
        """A JSON object."""
        return {
            "snapshot": self.snapshot,
            "epoch": self.epoch,
            "created_at": self.created_at,
            "keeps_readers": self.keeps_readers,
        }


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
    """The newest snapshots of main whose manifests can be read, newest first. Their files are not read."""
    refs = catalog.head().refs
    targets: list[RecoveryTarget] = []
    keeps_readers = True
    for link in islice(_line(catalog, refs.get(MAIN)), limit):
        if link.manifest is not None:
            targets.append(RecoveryTarget(link.snapshot_id, link.epoch, link.manifest.created_at, keeps_readers))
        keeps_readers = keeps_readers and link.snapshot_id != refs.get(PUBLISHED)
    return targets


def check_whole(catalog: Catalog, snapshot: str) -> int:
    """How many files the tables of ``snapshot`` name, each found as it was written. Raises TargetBrokenError."""
    manifest = catalog.manifest(snapshot)
    if problems := _Files(catalog).problems(manifest):
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise TargetBrokenError(
            f"snapshot {snapshot} (epoch {manifest.epoch}) cannot be restored: {'; '.join(problems[:_NAMED])}{more}. "
            "Choose an older one"
        )
    return len({file.path for layers in manifest.tables.values() for layer in layers for file in layer.files})


def with_epochs(catalog: Catalog, given_up: GivenUp) -> GivenUp:
    """``given_up`` by a recovery, which also says what is computed again, and what readers lose until then."""
    line = f"{_counted(catalog, *given_up.moves[MAIN])} are given up and computed again"
    if PUBLISHED not in given_up.moves:
        readers = "readers lose nothing: what they see is not newer than the snapshot"
    else:
        readers = (
            f"readers lose {_counted(catalog, *given_up.moves[PUBLISHED])} at once, until what is computed again "
            "is audited and published"
        )
    return replace(given_up, told=(line, readers, *given_up.told))


def way_back(catalog: Catalog, pipeline: Pipeline) -> Recovery | None:
    """Where ``pipeline`` could recover from now that its state is broken; None while main has no snapshot."""
    refs = catalog.head().refs
    if (head := refs.get(MAIN)) is None:
        return None
    broken: list[Link] = []
    files = _Files(catalog)
    for link in _line(catalog, head):
        if link.manifest is not None and not files.problems(link.manifest):
            break
        broken.append(link)
    else:
        return Recovery(head, None, False, "no snapshot of main is whole")
    if not broken:
        return Recovery(head, None, False, f"snapshot {head} is whole: a recovery would not help")
    target = link.snapshot_id
    if PUBLISHED in catalog.would_roll_back(MAIN, target):
        return Recovery(head, target, False, f"readers see a snapshot that is newer than {target}")
    if (lost := _lost_input(catalog, pipeline, broken[0], link.epoch)) is not None:
        return Recovery(head, target, False, lost)
    return Recovery(head, target, True, "readers lose nothing, and all input since then is there")


def _line(catalog: Catalog, head: str | None) -> Iterator[Link]:
    """Main's snapshots, newest first, as far as they are kept."""
    if head is not None:
        with suppress(MissingSnapshotError):  # what came before has expired
            yield from catalog.lineage(head)


class _Files:
    """What is wrong with files of tables: each is read once, however many snapshots name it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
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
            verify(self._catalog.store, file)
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
    gone = [file.path for file in read if not _is_there(landing, file)]
    if not gone:
        return None
    return f"{len(gone)} files that would be read again are gone or changed: {'; '.join(gone[:_NAMED])}"


def _is_there(landing: Landing, file: InputFile) -> bool:
    place = landing.places.get(file.input)
    if place is None:
        return False
    try:
        info = place.store.stat(file.path)
    except ObjectNotFoundError:
        return False
    then = LandedFile(file.path, file.size, file.etag, file.digest)
    return is_unchanged(place.store, then, LandedFile(info.path, info.size, info.etag))


def _counted(catalog: Catalog, newest: str | None, to: str | None) -> str:
    """How much the line of ``newest`` has beyond ``to``, as far as it can be read."""
    panes = epochs = 0
    for link in _line(catalog, newest):
        if link.snapshot_id == to:
            break
        epochs += 1
        counts = {} if link.manifest is None else link.manifest.counts
        panes += sum(counts.get(name, 0) for name in ("panes_early", "panes_on_time", "panes_late"))
    return f"{epochs:,} epochs with {panes:,} panes"
