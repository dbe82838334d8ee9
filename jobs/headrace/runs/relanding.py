"""Landing dropped records again, each only once, whatever the view that they are in; and the copies that this makes.

``Target`` says where to, and under which names. A file is named after the epoch and the snapshot that dropped its
records, and created by one conditional put. So the target itself is the memory of what has landed.

``Relanding`` lands them epoch after epoch. A view (late records, dead letters) says which of its rows land, and in
which files. The snapshot, the targets, the content of a file in the source's own format, the conditional put and the
counts are the same for all.
"""

import gzip
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import FixConfigError, FixDataError
from headrace.ext.sources import SourceSplit
from headrace.formats.file_format import FileFormat, UnreadableFileError
from headrace.model.time import to_instant
from headrace.pipeline.endpoints import Input
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FilesSource
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.read_names import dropped_files, landed_from
from headrace.read.snapshots.snapshot_refs import At, snapshot_at, ways_out
from headrace.read.views.arrow_types import python_rows, schema_of
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import read_tables
from headrace.runs.publishing.audits import files_as_read
from headrace.sources import file_planning
from headrace.sources.landing import ByInput, Landing, overlap_problem
from headrace_snapshots import store as object_stores
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import first_name, outputs_of
from headrace_snapshots.names import AGAIN_PREFIX, MAIN
from headrace_snapshots.output_catalog import seen_catalog

_GZIP = ".gz"
_PACKED_SUFFIXES = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


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
    store: object_stores.ObjectStore
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
        form: FileFormat = self.source.file_format
        return form

    @property
    def stem(self) -> str:
        """How the names of the files begin."""
        return f"{AGAIN_PREFIX if self.lands_in_source else ''}{self.view}-"

    def file_name(self, *parts: object) -> str:
        """The name of a file, with ``parts`` in its middle."""
        return f"{self.stem}{'-'.join(map(str, parts))}{self.suffix}"

    def find_landed(self) -> None:
        folder = self.file_path("")
        self.already_landed = {info.path.removeprefix(folder) for info in self.store.list(self.file_path(self.stem))}

    def check_there(self, catalog: Catalog, known_places: Iterable[str], ref: At) -> None:
        """Raise LandingAgainError for files from snapshots that the snapshot at ``ref`` does not come from.
        ``known_places``: the epochs and snapshots of those that it comes from, as far as they are kept. Where the
        pipeline reads such files are no input.
        """
        if self.lands_in_source:
            return
        known_epochs, horizon = set(known_places), catalog.head().horizon
        floor = 0 if horizon is None else horizon.floor
        names_with_epochs = ((name, landed_from(name, self.view)) for name in self.already_landed)
        stale = sorted(
            name
            for name, epoch in names_with_epochs
            if epoch is not None and epoch not in known_epochs and int(epoch[:8]) >= floor
        )
        if stale:
            raise LandingAgainError(
                f"{self.uri} has {len(stale)} files of {self.view} records (such as {stale[0]}) from snapshots that "
                f"{ref} does not have. These are newer, rolled back since, or of another branch or pipeline. With the "
                "files records would count twice: remove them, or name another landing prefix (--to)"
            )

    def create_file(self, name: str, content: bytes) -> bool:
        """Land ``content``, packed as the end of ``name`` says, unless it has landed before; whether it was landed."""
        # no time in it: the same records are the same bytes, whenever they land
        packed_content = gzip.compress(content, mtime=0) if name.endswith(_GZIP) else content
        try:
            info = self.store.create(self.file_path(name), packed_content)
        except object_stores.ObjectExistsError:
            return False
        self.created.append(SourceSplit(info.path, info.size, info.etag))
        return True

    def file_path(self, name: str) -> str:
        """Where a file of that name is."""
        return f"{self.prefix}/{name}" if self.prefix else name


def late_behind(catalog: Catalog, pipeline: Pipeline, files: ByInput) -> int | None:
    """How many records of ``files`` would be late in the next epoch of main, for the output that drops the most; None
    where only Spark could tell, or one of them cannot be read.
    """
    read = {name: splits for name, splits in files.items() if splits}
    head = catalog.head().refs.get(MAIN)
    if head is None or not read:
        return 0
    if any(input_.source.transform is not None for input_ in pipeline.inputs if input_.name in read):
        return None
    from headrace.distribute.records import in_arrival_order, read_records  # with Arrow
    from headrace.kernel.delta import Disposition, aggregate_rows
    from headrace.kernel.joins.sides import compile_joins
    from headrace.kernel.stage import CompiledStage

    progress, landing = StoredProgress.from_manifest(catalog.manifest(head)), Landing(pipeline, catalog.store)
    late = 0
    for output, output_pipeline in pipeline.of_records.items():
        stage = CompiledStage(output_pipeline.edges or output_pipeline.stages[0])
        joins = compile_joins(output_pipeline) if output_pipeline.join else None
        try:
            pieces = in_arrival_order(output_pipeline, read)
            records = read_records(
                output_pipeline, [joins or stage], landing, pieces, to_instant(datetime.now(UTC))
            ).records
        except FixDataError:  # which the next run says
            return None
        if records is not None and joins is not None:
            late = max(late, int(joins.late_mask(records.columns, progress.watermark).sum()))
        elif records is not None:
            watermark = progress.watermark_of(progress.chains.get(output))
            fates = aggregate_rows(stage, records.columns, watermark).accounting.rows
            late = max(late, fates.get(Disposition.LATE, 0) + fates.get(Disposition.LATE_RETRACTION, 0))
    return late


def root_beside(catalog: Catalog, root: str, view: View, output: str | None) -> str:
    """The root below which records of a ``view`` land by default; records of an ``output`` land in a folder that keeps
    the output's first name, so that they land once whatever it is called. ``catalog`` is that of all outputs.

    Raises LandingAgainError if another output has that folder.
    """
    default_root = f"{root.rstrip('/')}/{view}"
    if not output:
        return default_root
    head = catalog.head().refs.get(MAIN)
    if head is None:
        return f"{default_root}/{output}"
    main = catalog.manifest(head)
    folder = first_name(main, output)
    for other in outputs_of(main):
        if other != output and first_name(main, other) == folder:
            raise LandingAgainError(
                f"outputs {output} and {other} of {catalog.pipeline} were both called {folder}, at different times: "
                f"their records would land below the same root {default_root}/{folder}. Name a landing prefix (--to)"
            )
    return f"{default_root}/{folder}"


def target_of(own: Target, store: object_stores.ObjectStore, root: str | None, destination: str | None) -> Target:
    """Where records land: under ``destination``, or by default where their source lies below the ``root`` beside
    theirs. ``own``: where the pipeline reads them.

    Raises LandingAgainError if there is no such default, or it lies in the folder of a pipeline.
    """
    target = _resolve_target(own, store, root, destination)
    if (problem := overlap_problem(store, target.store, target.prefix)) is not None:
        raise LandingAgainError(f"{problem}, where files are no input: name another landing prefix (--to)")
    return target


def _resolve_target(
    own: Target, store: object_stores.ObjectStore, default_root: str | None, landing_uri: str | None
) -> Target:
    path = own.source.path
    if landing_uri is not None:
        store_named, prefix = file_planning.open_source(store, landing_uri)
        target = replace(own, store=store_named, prefix=prefix, lands_in_source=False)
        own_uri, target_uri = (side.uri.rstrip("/") for side in (own, target))
        return own if own_uri == target_uri else replace(target, lands_in_source=target_uri.startswith(f"{own_uri}/"))
    if "://" in path:
        raise LandingAgainError(
            f"the source {path} is the same under every root, so its {own.view} records need a landing prefix of "
            "their own: name one (--to)"
        )
    assert default_root is not None
    return replace(own, store=object_stores.open_store(default_root), prefix=path.strip("/"), lands_in_source=False)


def suffix_of(source: FilesSource) -> str:
    """How names end that the source takes. Raises LandingAgainError if it takes only files that are packed somehow."""
    form: FileFormat = source.file_format
    if not source.suffixes:
        return form.suffix
    unpacked_suffixes = [suffix for suffix in source.suffixes if not suffix.endswith(_PACKED_SUFFIXES)]
    if not unpacked_suffixes:
        raise LandingAgainError(
            f"the source {source.path} takes only {', '.join(source.suffixes)}, which records are not landed as: "
            f"let it take {form.suffix} too"
        )
    # one that needs no packing, if there is one
    return min(unpacked_suffixes, key=lambda suffix: suffix.endswith(_GZIP))


@dataclass(frozen=True)
class Headers:
    """The headers of the files in ``store`` that records of the input ``name`` came from, whose ``format`` has some.
    The files must be as they were when they were read up to ``manifest``.
    """

    format: FileFormat
    store: object_stores.ObjectStore
    catalog: Catalog
    manifest: Manifest | None
    name: str
    _header_by_path: dict[str, bytes | str] = field(default_factory=dict, init=False)

    def header_of_file(self, path: str) -> bytes | str:
        """The header of a file, for which all of the file is read, once; or as text why records of it cannot land."""
        if path not in self._header_by_path:
            self._header_by_path[path] = self._read_header(path)
        return self._header_by_path[path]

    def _read_header(self, path: str) -> bytes | str:
        try:
            return self.format.header(self._file_content(path), path)
        except (object_stores.ObjectNotFoundError, file_planning.VanishedFileError):
            problem = "is gone: put it back"
        except file_planning.ChangedFileError:
            problem = "has changed since they were read: put the old content back"
        except UnreadableFileError:
            problem = "cannot be read"
        return f"{path}, which has the header of their columns, {problem}"

    def _file_content(self, path: str) -> bytes:
        was = self._as_read.get(path)
        if was is None:
            return self.store.read(path)
        return file_planning.read_content(self.store, SourceSplit(path, was.size, was.etag, was.digest))

    @cached_property
    def _as_read(self) -> Mapping[str, stored.InputFile]:
        return files_as_read(self.catalog, self.manifest, self.name)


_TORN_REASON = (
    "that no file of records can hold. They have a quote that is not closed, several records on a line, or a part of "
    "an array; or a letter that the encoding of the source does not have. Land a corrected file of them under another "
    "name"
)

ReadRows = Callable[[], Iterator[Mapping[str, Any]]]
"""Reads the rows of an epoch."""


class DroppedRecord(NamedTuple):
    """A record that can land: its input file, what orders it there (its event time or its position), and its bytes."""

    file: str
    order: Any
    content: bytes


def lines_by_file(records: Iterable[DroppedRecord]) -> dict[str, list[bytes]]:
    """The bytes of ``records`` by input file, in order."""
    lines: defaultdict[str, list[bytes]] = defaultdict(list)
    for record in sorted(records):
        lines[record.file].append(record.content)
    return lines


@dataclass(frozen=True)
class Copy:
    """A file that is to land: ``lines`` (the bytes of records) by input file. These share their header, if any."""

    target: Target
    name: str
    lines: Mapping[str, Sequence[bytes]]

    @property
    def records(self) -> int:
        return sum(map(len, self.lines.values()))

    def that_stand_alone(self) -> "Copy":
        """The file without lines in which those behind them would be."""
        stands_alone = self.target.format.stands_alone
        lines = {file: [line for line in file_lines if stands_alone(line)] for file, file_lines in self.lines.items()}
        return replace(self, lines=lines)

    def content(self) -> bytes | str:
        """The content of the file; or as text why there is none."""
        lines = [line for file_lines in self.lines.values() for line in file_lines]
        header = self.target.headers.header_of_file(next(iter(self.lines))) if self.target.format.has_header else None
        if isinstance(header, str):
            return header
        return self.target.format.copied(lines, self.target.source.as_read.fields, header)


class Relanding:
    """Lands the records of a ``view`` that the snapshot at ``ref`` has dropped, and those before it, of ``inputs``; for
    one ``output`` of several, the records that it has dropped, by default below a folder of its own.

    ``counts`` and ``left`` (by the reason why they cannot land) grow with each epoch.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        root: str,
        view: View,
        inputs: Iterable[Input],
        *,
        destination: str | None,
        ref: At,
        output: str = "",
    ) -> None:
        self._pipeline, self._view, self._ref, self._output = pipeline, view, ref, output
        self._store = object_stores.open_store(root)
        self._root_beside = (
            None if destination is not None else root_beside(Catalog(self._store, pipeline.name), root, view, output)
        )
        self.whole = Catalog(self._store, pipeline.name)
        self.catalog = seen_catalog(self.whole, output)
        self._snapshot = snapshot_at(self.catalog, ref)
        self.manifest = self._snapshot.manifest
        self.targets = {input_.name: self._target_for_input(input_, destination) for input_ in inputs}
        self.counts: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def _target_for_input(self, input_: Input, landing_uri: str | None) -> Target:
        source = input_.source
        if not isinstance(source, FilesSource):
            raise LandingAgainError(
                f"records of input {input_.name} cannot land again: it reads {source}, and no files. Correct them "
                "where they come from"
            )
        store, prefix = file_planning.open_source(self._store, source.path)
        headers = Headers(source.file_format, store, self.catalog, self.manifest, input_.name)
        own = Target(self._view, source, suffix_of(source), headers, store, prefix, lands_in_source=True)
        target = target_of(own, self._store, self._root_beside, landing_uri)
        if self._output and target.lands_in_source:
            raise LandingAgainError(
                f"{target.uri} is read by pipeline {self._pipeline.name}, whose other outputs have taken what output "
                f"{self._output} could not: they would count it twice. Name another landing prefix (--to)"
            )
        return target

    @property
    def own(self) -> dict[str, Target]:
        """The targets that the pipeline itself reads, by input."""
        return {name: target for name, target in self.targets.items() if target.lands_in_source}

    def land(self, columns: Iterable[str], copies: Callable[[str, ReadRows], Iterator[Copy]]) -> dict[str, Any]:
        """Land the ``copies`` made of each epoch's rows, which have ``columns``. Returns the result's shared fields."""
        epochs = dropped_files(self.catalog, self.manifest, self._view)
        for target in self.targets.values():
            target.find_landed()
            target.check_there(self.catalog, epochs, self._ref)
        types = self._columns.column_types(self._view)
        schema = schema_of({name: types[name] for name in columns})
        with ways_out(self.catalog, self._snapshot.ref or ""):
            for epoch, files in epochs.items():
                for copy in copies(epoch, partial(self._dropped_rows, files, schema)):
                    self._land(copy)
        left = dict(sorted(self.left.items()))
        return {**self.counts, "left": left, "lands_in_source": bool(self.own), "beside": self._root_beside}

    @property
    def _columns(self) -> ViewColumns:
        """The columns of the rows; dead letters are those of all outputs."""
        if self._view is View.REJECTED:
            return ViewColumns({}, {}, {}, output=self._output or next(iter(self._pipeline.outputs), ""))
        return ViewColumns.from_pipeline(self._pipeline)

    def _dropped_rows(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[Mapping[str, Any]]:
        for table in read_tables(self._store, files, schema):
            yield from python_rows(table)

    def _land(self, copy: Copy) -> None:
        if copy.name in copy.target.already_landed:
            self.counts["already_landed"] += 1
            return
        sound = copy.that_stand_alone()
        if torn_records := copy.records - sound.records:
            self.left[_TORN_REASON] += torn_records
        copy = sound
        if not copy.records:
            return
        if isinstance(content := copy.content(), str):
            self.left[content] += copy.records
        elif copy.target.create_file(copy.name, content):
            self.counts.update(files=1, records=copy.records)
        else:
            self.counts["already_landed"] += 1
