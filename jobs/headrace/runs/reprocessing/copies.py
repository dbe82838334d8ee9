"""Landing records again that became no part of a result: where to, under which names, each only once.

A file is named after the epoch and the snapshot that dropped its records, and created by one conditional put: so the
target itself is the memory of what has landed.
"""

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from headrace.errors import FixConfigError, FixDataError
from headrace.model.time import instant
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FileFormat, FileSource
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.reprocessed_copies import AGAIN, landed_from
from headrace.read.snapshots.snapshot_refs import At
from headrace.read.views.columns import View
from headrace.runs.publishing.read_files import files_as_read
from headrace.sources.file_planning import LandedFile, open_source
from headrace.sources.formats.errors import UnreadableFileError
from headrace.sources.formats.lines import first_line
from headrace.sources.formats.reader import decompressed
from headrace.sources.landing import ByInput, Landing
from headrace.sources.landing_places import overlap
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    open_store,
)

_SUFFIXES = {FileFormat.JSON: ".jsonl", FileFormat.CSV: ".csv", FileFormat.PARQUET: ".parquet"}
_GZIP = ".gz"
_PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


class LandingAgainError(FixConfigError):
    """Records that cannot land there again, or not in that way."""

    code = "config.landing_again"


@dataclass
class Target:
    """Where files of records of one ``view`` land.

    ``lands_in_source``: the pipeline itself reads there. ``already_landed``: names of files that had landed before;
    ``created``: the files that have landed now.
    """

    view: View
    store: ObjectStore
    prefix: str
    lands_in_source: bool
    already_landed: set[str] = field(default_factory=set)
    created: list[LandedFile] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """The whole prefix."""
        return f"{self.store.uri.rstrip('/')}/{self.prefix}"

    @property
    def stem(self) -> str:
        """How the names of the files begin."""
        return f"{AGAIN if self.lands_in_source else ''}{self.view}-"

    def look(self) -> None:
        """Find what has landed before."""
        folder = self.path("")
        self.already_landed = {info.path.removeprefix(folder) for info in self.store.list(self.path(self.stem))}

    def check_there(self, catalog: Catalog, dropped: Iterable[str], at: At) -> None:
        """Raise LandingAgainError for files from snapshots that the one at ``at`` does not come from. ``dropped``: the
        epochs and snapshots of those that it comes from, as far as they are kept. Where the pipeline reads such files
        are no input.
        """
        if self.lands_in_source:
            return
        known, horizon = set(dropped), catalog.head().horizon
        floor = 0 if horizon is None else horizon.floor
        named = ((name, landed_from(name, self.view)) for name in self.already_landed)
        stale = sorted(name for name, of in named if of is not None and of not in known and int(of[:8]) >= floor)
        if stale:
            raise LandingAgainError(
                f"{self.uri} has {len(stale)} files of {self.view} records (such as {stale[0]}) from snapshots that "
                f"{at} does not have: newer, rolled back since, or of another branch or pipeline. With them records "
                "would count twice: remove them, or name another landing prefix (--to)"
            )

    def create(self, name: str, content: bytes) -> bool:
        """Land ``content``, packed as the end of ``name`` says, unless it has landed before; whether it was landed."""
        packed = gzip.compress(content, mtime=0) if name.endswith(_GZIP) else content
        try:
            info = self.store.create(self.path(name), packed)
        except ObjectExistsError:
            return False
        self.created.append(LandedFile(info.path, info.size, info.etag))
        return True

    def path(self, name: str) -> str:
        """Where a file of that name is."""
        return f"{self.prefix}/{name}" if self.prefix else name


def late_behind(catalog: Catalog, pipeline: Pipeline, files: ByInput) -> int | None:
    """How many records of ``files`` would be late in the next epoch of main; None where only Spark could tell, or one
    of them cannot be read.
    """
    read = {name: some for name, some in files.items() if some}
    head = catalog.head().refs.get(MAIN)
    if head is None or not read:
        return 0
    if any(each.source.transform is not None for each in pipeline.inputs if each.name in read):
        return None
    from headrace.distribute.records import in_arrival_order, read_records  # with Arrow
    from headrace.kernel.delta import Disposition, aggregate
    from headrace.kernel.stage import CompiledStage

    progress = StoredProgress.of(catalog.manifest(head))
    stage, landing = CompiledStage(pipeline.stages[0]), Landing(pipeline, catalog.store)
    try:
        pieces = in_arrival_order(pipeline, read)
        records = read_records(pipeline, stage, landing, pieces, instant(datetime.now(UTC))).records
    except FixDataError:  # which the next run says
        return None
    if records is None:
        return 0
    return aggregate(stage, records.columns, progress.watermark).accounting.rows.get(Disposition.LATE, 0)


def target_of(view: View, source: FileSource, store: ObjectStore, root: str, to: str | None) -> Target:
    """Where records of ``source`` land: under ``to``, or by default where the source lies below ``root/{view}``.

    Raises LandingAgainError if there is no such default, or it lies in the folder of a pipeline.
    """
    found = _target(view, source, store, root, to)
    if (problem := overlap(store, found.store, found.prefix)) is not None:
        raise LandingAgainError(f"{problem}, where files are no input: name another landing prefix (--to)")
    return found


def _target(view: View, source: FileSource, store: ObjectStore, root: str, to: str | None) -> Target:
    if to is not None:
        found = Target(view, *open_source(store, to), lands_in_source=False)
        own = Target(view, *open_source(store, source.path), lands_in_source=True)
        here, below = (each.uri.rstrip("/") for each in (own, found))
        return own if here == below else replace(found, lands_in_source=below.startswith(f"{here}/"))
    if "://" in source.path:
        raise LandingAgainError(
            f"the source {source.path} is the same under every root, so its {view} records have no place of their own: "
            "name a landing prefix for them (--to)"
        )
    return Target(view, open_store(f"{root.rstrip('/')}/{view}"), source.path.strip("/"), lands_in_source=False)


def suffix_of(source: FileSource) -> str:
    """How names end that the source takes. Raises LandingAgainError if it takes only files that are packed somehow."""
    if not source.suffixes:
        return _SUFFIXES[source.format]
    taken = [suffix for suffix in source.suffixes if not suffix.endswith(_PACKED)]
    if not taken:
        raise LandingAgainError(
            f"the source {source.path} takes only {', '.join(source.suffixes)}, which records are not landed as: "
            f"let it take {_SUFFIXES[source.format]} too"
        )
    return min(taken, key=lambda suffix: suffix.endswith(_GZIP))


@dataclass(frozen=True)
class Headers:
    """The headers of the CSV files in ``store`` that records of the input ``name`` came from. These must be as they
    were when they were read up to ``manifest``.
    """

    store: ObjectStore
    catalog: Catalog
    manifest: Manifest | None
    name: str

    def of(self, path: str) -> bytes:
        """Reads the header of a file, and so all of the file. Raises one of NO_HEADER."""
        was = self._as_read.get(path)
        same = None if was is None else ObjectInfo(path, was.size, was.etag, was.digest)
        found = first_line(decompressed(self.store.read(path) if same is None else self.store.read_same(same), path))
        if not len(found):
            raise UnreadableFileError(path, "it has no header")
        header: bytes = found.text[0].as_py()
        return header

    @cached_property
    def _as_read(self) -> Mapping[str, stored.InputFile]:
        return files_as_read(self.catalog, self.manifest, self.name)


NO_HEADER = (ObjectNotFoundError, ObjectChangedError, UnreadableFileError)


def why_no_header(path: str, error: Exception) -> str:
    """Why records of the CSV file cannot land, for the header of which there was this ``error``."""
    why = "cannot be read"
    if isinstance(error, ObjectNotFoundError):
        why = "is gone: put it back"
    elif isinstance(error, ObjectChangedError):
        why = "has changed since they were read: put the old content back"
    return f"{path}, which has the header of their columns, {why}"


def text_of(lines: Iterable[bytes]) -> bytes:
    """Lines as the content of a file."""
    return b"".join(line + b"\n" for line in lines)
