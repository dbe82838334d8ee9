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
from headrace.ext.sources import SourceSplit
from headrace.formats.errors import UnreadableFileError
from headrace.formats.file_format import FileFormat
from headrace.model.time import instant
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FilesSource
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.read_names import landed_from
from headrace.read.snapshots.snapshot_refs import At
from headrace.read.views.columns import View
from headrace.runs.publishing.promotion_checks import files_as_read
from headrace.sources.file_planning import open_source
from headrace.sources.landing import ByInput, Landing, overlap
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import first_name, outputs_of
from headrace_snapshots.layout import AGAIN
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    open_store,
)

_GZIP = ".gz"
_PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


class LandingAgainError(FixConfigError, code="config.landing_again"):
    """Records that cannot land there again, or not in that way."""


def output_alone(pipeline: Pipeline, output: str | None) -> tuple[Pipeline, str]:
    """The pipeline with an ``output`` alone, and its name; "" where it has none. Raises LandingAgainError."""
    by_output = pipeline.by_output
    if (output or "") not in by_output:
        has = f"the outputs {', '.join(by_output)}" if pipeline.has_names else "one output, which has no name"
        raise LandingAgainError(
            f"pipeline {pipeline.name} has {has}: say of which one records land again"
            + (f", such as {pipeline.name}.{next(iter(by_output))}" if pipeline.has_names else "")
        )
    return by_output[output or ""], output or ""


@dataclass
class Target:
    """Where files of records of one ``view`` and ``source`` land; their names end with ``suffix``.

    ``lands_in_source``: the pipeline itself reads there. ``already_landed``: names of files that had landed before;
    ``created``: the files that have landed now.
    """

    view: View
    source: FilesSource
    suffix: str
    headers: "Headers"
    store: ObjectStore
    prefix: str
    lands_in_source: bool
    already_landed: set[str] = field(default_factory=set)
    created: list[SourceSplit] = field(default_factory=list)

    @property
    def uri(self) -> str:
        """The whole prefix."""
        return f"{self.store.uri.rstrip('/')}/{self.prefix}"

    @property
    def format(self) -> FileFormat:
        """The format of the files."""
        form: FileFormat = self.source.file_format
        return form

    @property
    def stem(self) -> str:
        """How the names of the files begin."""
        return f"{AGAIN if self.lands_in_source else ''}{self.view}-"

    def name(self, *parts: object) -> str:
        """The name of a file, with ``parts`` in its middle."""
        return f"{self.stem}{'-'.join(map(str, parts))}{self.suffix}"

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
        self.created.append(SourceSplit(info.path, info.size, info.etag))
        return True

    def path(self, name: str) -> str:
        """Where a file of that name is."""
        return f"{self.prefix}/{name}" if self.prefix else name


def late_behind(catalog: Catalog, pipeline: Pipeline, files: ByInput) -> int | None:
    """How many records of ``files`` would be late in the next epoch of main, for the output that drops the most; None
    where only Spark could tell, or one of them cannot be read.
    """
    read = {name: landed for name, landed in files.items() if landed}
    head = catalog.head().refs.get(MAIN)
    if head is None or not read:
        return 0
    if any(input_.source.transform is not None for input_ in pipeline.inputs if input_.name in read):
        return None
    from headrace.distribute.records import in_arrival_order, read_records  # with Arrow
    from headrace.kernel.delta import Disposition, aggregate
    from headrace.kernel.stage import CompiledStage

    progress, landing = StoredProgress.of(catalog.manifest(head)), Landing(pipeline, catalog.store)
    late = 0
    for output, alone in pipeline.of_records.items():
        stage = CompiledStage(alone.edges or alone.stages[0])
        try:
            pieces = in_arrival_order(alone, read)
            records = read_records(alone, [stage], landing, pieces, instant(datetime.now(UTC))).records
        except FixDataError:  # which the next run says
            return None
        if records is not None:
            watermark = progress.watermark_of(progress.chains.get(output))
            fates = aggregate(stage, records.columns, watermark).accounting.rows
            late = max(late, fates.get(Disposition.LATE, 0) + fates.get(Disposition.LATE_RETRACTION, 0))
    return late


def root_beside(catalog: Catalog, root: str, view: View, output: str | None) -> str:
    """The root below which records of a ``view`` land by default; those of an ``output`` in a folder that keeps the
    output's first name, so that they land once whatever it is called. ``catalog`` is that of all outputs.

    Raises LandingAgainError if another output has that folder.
    """
    beside = f"{root.rstrip('/')}/{view}"
    if not output:
        return beside
    head = catalog.head().refs.get(MAIN)
    if head is None:
        return f"{beside}/{output}"
    main = catalog.manifest(head)
    folder = first_name(main, output)
    for other in outputs_of(main):
        if other != output and first_name(main, other) == folder:
            raise LandingAgainError(
                f"outputs {output} and {other} of {catalog.pipeline} were both called {folder}, at different times: "
                f"their records would land below the same root {beside}/{folder}. Name a landing prefix (--to)"
            )
    return f"{beside}/{folder}"


def target_of(own: Target, store: ObjectStore, beside: str | None, to: str | None) -> Target:
    """Where records land: under ``to``, or by default where their source lies below the root ``beside`` theirs.
    ``own``: where the pipeline reads them.

    Raises LandingAgainError if there is no such default, or it lies in the folder of a pipeline.
    """
    target = _target(own, store, beside, to)
    if (problem := overlap(store, target.store, target.prefix)) is not None:
        raise LandingAgainError(f"{problem}, where files are no input: name another landing prefix (--to)")
    return target


def _target(own: Target, store: ObjectStore, beside: str | None, to: str | None) -> Target:
    path = own.source.path
    if to is not None:
        store_named, prefix = open_source(store, to)
        target = replace(own, store=store_named, prefix=prefix, lands_in_source=False)
        own_uri, target_uri = (side.uri.rstrip("/") for side in (own, target))
        return own if own_uri == target_uri else replace(target, lands_in_source=target_uri.startswith(f"{own_uri}/"))
    if "://" in path:
        raise LandingAgainError(
            f"the source {path} is the same under every root, so its {own.view} records need a landing prefix of "
            "their own: name one (--to)"
        )
    assert beside is not None
    return replace(own, store=open_store(beside), prefix=path.strip("/"), lands_in_source=False)


def suffix_of(source: FilesSource) -> str:
    """How names end that the source takes. Raises LandingAgainError if it takes only files that are packed somehow."""
    form: FileFormat = source.file_format
    if not source.suffixes:
        return form.suffix
    unpacked = [suffix for suffix in source.suffixes if not suffix.endswith(_PACKED)]
    if not unpacked:
        raise LandingAgainError(
            f"the source {source.path} takes only {', '.join(source.suffixes)}, which records are not landed as: "
            f"let it take {form.suffix} too"
        )
    return min(unpacked, key=lambda suffix: suffix.endswith(_GZIP))


@dataclass(frozen=True)
class Headers:
    """The headers of the files in ``store`` that records of the input ``name`` came from, whose ``format`` has some.
    The files must be as they were when they were read up to ``manifest``.
    """

    format: FileFormat
    store: ObjectStore
    catalog: Catalog
    manifest: Manifest | None
    name: str
    _known: dict[str, bytes | str] = field(default_factory=dict, init=False)

    def of(self, path: str) -> bytes | str:
        """The header of a file, for which all of the file is read, once; or as text why records of it cannot land."""
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: str) -> bytes | str:
        try:
            return self.format.header(self._content(path), path)
        except ObjectNotFoundError:
            problem = "is gone: put it back"
        except ObjectChangedError:
            problem = "has changed since they were read: put the old content back"
        except UnreadableFileError:
            problem = "cannot be read"
        return f"{path}, which has the header of their columns, {problem}"

    def _content(self, path: str) -> bytes:
        was = self._as_read.get(path)
        if was is None:
            return self.store.read(path)
        return self.store.read_same(ObjectInfo(path, was.size, was.etag, was.digest))

    @cached_property
    def _as_read(self) -> Mapping[str, stored.InputFile]:
        return files_as_read(self.catalog, self.manifest, self.name)
