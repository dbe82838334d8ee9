"""Replaying late records: what was dropped as late, landed again as files of the source's own format.

Where to? Behind the same watermark they are late again, and the files that they came from still hold them. So by
default they land under a root of their own, ``{root}/late``, where a batch run of the same pipeline gives their part of
the results, to be added to what readers see. Who wants all in one result runs the original files as one batch, in which
nothing is late.

Each epoch's late records become one file (CSV: one for each header), named after the snapshot that dropped them and
created by one conditional put: doing it again lands only what is not there yet.

A record late in all of its windows lands once. One that is late in some of them (sliding windows) was counted in the
others, and a run of it alone would count it there again: it does not land, and is counted.
"""

import gzip
import io
import json
import re
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import FixConfigError
from headrace.model.expr import DataType
from headrace.model.time import instant
from headrace.model.windows import CustomWindows
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.sources import FileFormat, FileSource
from headrace.read.arrow import schema_of
from headrace.read.at import At, snapshot_at
from headrace.read.changes import changed_since
from headrace.read.columns import View, ViewColumns
from headrace.read.damage import ways_out
from headrace.read.rows import tables
from headrace.reference.windows import assign
from headrace.runs.restoring import InputGoneError
from headrace.sources.planning import open_source
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.store import ObjectExistsError, ObjectNotFoundError, ObjectStore, open_store

_NAME = re.compile(r"late-(\d{8}-[0-9a-f]{16})")  # as land_late begins them, whatever the suffix
_SUFFIXES = {FileFormat.JSON: ".jsonl", FileFormat.CSV: ".csv", FileFormat.PARQUET: ".parquet"}
_GZIP = ".gz"
_LATE = ("file", "event_time", "raw", "window_start", "window_end")
"""What is read of late rows."""
_PACKED = (".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


class LateReplayError(FixConfigError):
    """Late records that cannot land there, or not in that way."""

    code = "config.late_replay"


@dataclass(frozen=True)
class LandedLate:
    """What landed: ``files`` with ``records``, under ``target``; ``there`` files had landed before.

    ``partly_late`` records were left out because some of their windows had taken them; ``late_again`` because they had
    landed here before and were dropped once more. ``is_own``: the target is where the pipeline itself reads.
    """

    target: str
    files: int = 0
    records: int = 0
    there: int = 0
    partly_late: int = 0
    late_again: int = 0
    is_own: bool = False


@dataclass(frozen=True)
class _Record:
    """A late record as it is told from others: its file and its text; equal ones are counted."""

    file: str
    event_time: datetime
    raw: str


@dataclass
class _Target:
    """Where files land."""

    store: ObjectStore
    prefix: str
    is_own: bool
    there: set[str] = field(default_factory=set)

    def path(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    @property
    def uri(self) -> str:
        return f"{self.store.uri.rstrip('/')}/{self.prefix}"

    def look(self) -> None:
        """Find what has landed before."""
        folder = self.path("")
        self.there = {info.path.removeprefix(folder) for info in self.store.list(self.path("late-"))}


def land_late(pipeline: Pipeline, root: str, *, to: str | None = None, at: At = PUBLISHED) -> LandedLate:
    """Land the late records of the snapshot that ``at`` means, and of those before it, under the landing prefix ``to``:
    a path below ``root``, or a whole URI.

    Raises LateReplayError, BrokenObjectError, InputGoneError (CSV: a file whose header is needed), and what
    read.at.snapshot_at raises. No Spark.
    """
    if isinstance(pipeline.where, CustomWindows):
        raise LateReplayError(
            f"pipeline {pipeline.name} has a window function of its own, so it is not known which late records "
            "other windows have taken: run the original files as one batch (--mode batch), in which nothing is late"
        )
    if pipeline.also or pipeline.source.transform is not None:
        why = "several inputs" if pipeline.also else "a Spark function between its files and its records"
        raise LateReplayError(
            f"pipeline {pipeline.name} has {why}, so its late records cannot be written as files of its source: "
            "run the original files as one batch (--mode batch), in which nothing is late"
        )
    store = open_store(root)
    target = _target(pipeline.source, store, root, to)
    catalog = Catalog(store, pipeline.name)
    found = snapshot_at(catalog, at)
    manifest = found.manifest
    if manifest is not None and (changed := changed_since(pipeline, manifest)):
        raise LateReplayError(
            f"{changed}, and so is what was late. Take the change back for this; or run `headrace backfill "
            f"{pipeline.name}` (or the backfill DAG), and then this"
        )
    target.look()
    dropped = {} if manifest is None else _dropped(catalog, manifest)
    _check_there(target, dropped.keys(), at)
    landing = _Landing(pipeline, store, target)
    with ways_out(catalog, found.ref or ""):
        for name, files in dropped.items():
            landing.epoch(name, files)
    return landing.result()


def _target(source: FileSource, store: ObjectStore, root: str, to: str | None) -> _Target:
    if to is not None:
        found = _Target(*open_source(store, to), is_own=False)
        own = _Target(*open_source(store, source.path), is_own=True)
        return own if (found.uri.rstrip("/") == own.uri.rstrip("/")) else found
    if "://" in source.path:
        raise LateReplayError(
            f"the source {source.path} is the same under every root, so its late records have no place of their own: "
            "name a landing prefix for them (--to)"
        )
    return _Target(open_store(f"{root.rstrip('/')}/late"), source.path.strip("/"), is_own=False)


def _dropped(catalog: Catalog, manifest: Manifest) -> dict[str, list[DataFile]]:
    """Files of late rows by epoch and snapshot (as data files are named), oldest first."""
    found: defaultdict[str, list[DataFile]] = defaultdict(list)
    for record in catalog.files(manifest.logs["late"]):
        for file in record.files:
            if isinstance(file, DataFile):
                found[PurePosixPath(file.path).parent.name].append(file)
    return dict(found)


def _check_there(target: _Target, dropped: Iterable[str], at: At) -> None:
    known = set(dropped)
    stale = sorted(name for name in target.there if (named := _NAME.match(name)) and named[1] not in known)
    if stale:
        raise LateReplayError(
            f"{target.uri} has {len(stale)} files of late records (such as {stale[0]}) from snapshots that {at} "
            "does not have: newer, rolled back since, or of another branch or pipeline. With them records would count "
            "twice: remove them, or name another landing prefix (--to)"
        )


class _Landing:
    """Lands epoch after epoch, and counts."""

    def __init__(self, pipeline: Pipeline, store: ObjectStore, target: _Target) -> None:
        self._pipeline, self._store, self._target = pipeline, store, target
        self._source, _ = open_source(store, pipeline.source.path)
        self._suffix = _suffix(pipeline.source)
        self._counts: Counter[str] = Counter()

    def result(self) -> LandedLate:
        return LandedLate(self._target.uri, is_own=self._target.is_own, **self._counts)

    def epoch(self, name: str, files: Sequence[DataFile]) -> None:
        """Land the late records of one epoch, in files of its ``name``; those there already are left alone."""
        first = f"late-{name}{self._suffix}"
        if first in self._target.there:  # the one that is created last
            self._counts["there"] += 1
            return
        records = self._records(files)
        contents = [*self._contents(records)]
        for number, (content, count) in reversed([*enumerate(contents)]):
            self._create(f"late-{name}-{number}{self._suffix}" if number else first, content, count)

    def _create(self, name: str, content: bytes, records: int) -> None:
        packed = gzip.compress(content, mtime=0) if self._suffix.endswith(_GZIP) else content
        try:
            self._target.store.create(self._target.path(name), packed)
        except ObjectExistsError:
            self._counts["there"] += 1
        else:
            self._counts.update(files=1, records=records)

    def _records(self, files: Sequence[DataFile]) -> list[_Record]:
        """What lands of the late rows in ``files``, equal records as often as they came."""
        late = ViewColumns.of(self._pipeline).schema(View.LATE)
        columns = pa.schema([late.field(name) for name in _LATE])
        windows: defaultdict[_Record, Counter[tuple[Any, Any]]] = defaultdict(Counter)
        for table in tables(self._store, files, columns):
            for row in table.to_pylist():
                place = row["window_start"], row["window_end"]
                windows[_Record(row["file"], row["event_time"], row["raw"])][place] += 1
        landing: list[_Record] = []
        for record, late in windows.items():
            times = max(late.values())
            if self._target.is_own and _NAME.match(PurePosixPath(record.file).name):
                self._counts["late_again"] += times
            elif (None, None) not in late and len(late) < len(assign(self._pipeline.where, instant(record.event_time))):
                self._counts["partly_late"] += times
            else:
                landing += [record] * times
        return sorted(landing, key=lambda record: (record.file, record.event_time, record.raw))

    def _contents(self, records: Sequence[_Record]) -> Iterator[tuple[bytes, int]]:
        """The contents of the files for ``records``, and how many are in each."""
        if not records:
            return
        lines = [record.raw for record in records]
        match self._pipeline.source.format:
            case FileFormat.JSON:
                yield _text(lines), len(records)
            case FileFormat.PARQUET:
                yield _parquet(lines, self._pipeline.source.schema), len(records)
            case FileFormat.CSV:
                by_header: defaultdict[str, list[str]] = defaultdict(list)
                headers = {file: self._header(file) for file in sorted({record.file for record in records})}
                for record in records:
                    by_header[headers[record.file]].append(record.raw)
                for header, found in by_header.items():
                    yield _text([header, *found]), len(found)

    def _header(self, path: str) -> str:
        """The header of the CSV file that records came from; reads all of it."""
        try:
            data = self._source.read(path)
        except ObjectNotFoundError as error:
            raise InputGoneError(
                f"late records of {self._pipeline.name} came from {path}, which is gone, and with it the header that "
                "says which field is which: put it back"
            ) from error
        if path.endswith(_PACKED):
            raise LateReplayError(
                f"the header of {path} cannot be read: of compressed CSV files only {_GZIP} can be read"
            )
        text = (gzip.decompress(data) if path.endswith(_GZIP) else data).decode("utf-8-sig", errors="replace")
        return next(line for line in re.split(r"\r\n|\r|\n", text) if line.strip())


def _suffix(source: FileSource) -> str:
    """How names end that the source takes. Raises LateReplayError if it takes only files that are packed somehow."""
    if not source.suffixes:
        return _SUFFIXES[source.format]
    taken = [suffix for suffix in source.suffixes if not suffix.endswith(_PACKED)]
    if not taken:
        raise LateReplayError(
            f"the source {source.path} takes only {', '.join(source.suffixes)}, which late records are not written as: "
            f"let it take {_SUFFIXES[source.format]} too"
        )
    return min(taken, key=lambda suffix: suffix.endswith(_GZIP))


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


_FROM_JSON: Mapping[DataType, Callable[[Any], Any]] = {
    DataType.FLOAT: float,
    DataType.TIMESTAMP: datetime.fromisoformat,
    DataType.DATE: date.fromisoformat,
    DataType.BYTES: b64decode,
    DataType.DECIMAL: Decimal,
}
"""How values come back that JSON has no form for; floats: "NaN", "Infinity"."""


def _parquet(lines: Iterable[str], columns: Mapping[str, DataType]) -> bytes:
    """The records of a Parquet source, whose text is JSON, with the columns that the source names."""

    def value(found: Any, kind: DataType) -> Any:
        return found if found is None or kind not in _FROM_JSON else _FROM_JSON[kind](found)

    rows = [json.loads(line) for line in lines]
    arrays = {name: [value(row[name], kind) for row in rows] for name, kind in columns.items()}
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays, schema=schema_of(columns)), buffer)
    return buffer.getvalue()
