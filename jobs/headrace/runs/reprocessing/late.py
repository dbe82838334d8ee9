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

import io
import json
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model.expressions.expr import DataType
from headrace.model.time import instant, parse
from headrace.model.windows import CustomWindows
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FileFormat
from headrace.read.definition_changes import changed_since
from headrace.read.snapshots.damage import ways_out
from headrace.read.snapshots.reprocessed_copies import dropped, landed_from
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.arrow_types import python_rows, schema_of
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.reference.windows import assign
from headrace.runs.reprocessing.copies import (
    NO_HEADER,
    Headers,
    LandingAgainError,
    Target,
    suffix_of,
    target_of,
    text_of,
    why_no_header,
)
from headrace.sources.file_planning import open_source
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.store import ObjectStore, open_store

_ALONE = "-file-"
"""In the names of files with the records of one file each."""

_LATE = ("file", "event_time", "raw", "window_start", "window_end")
"""What is read of late rows."""


@dataclass(frozen=True)
class LandedLate:
    """What landed: ``files`` with ``records``, under ``target``; ``already_landed`` files had landed before.

    Records left out: ``late_in_some_windows``, which other windows had taken, and ``late_twice``, which had landed here
    before and were dropped once more. ``left``: how many cannot land, by the reason why. ``lands_in_source``: the
    pipeline itself reads the target.
    """

    target: str
    files: int = 0
    records: int = 0
    already_landed: int = 0
    late_in_some_windows: int = 0
    late_twice: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    lands_in_source: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class _Record:
    """A late record as it is told from others: its file and its text; equal ones are counted."""

    file: str
    event_time: datetime
    raw: str


def land_late(pipeline: Pipeline, root: str, *, to: str | None = None, at: At = PUBLISHED) -> LandedLate:
    """Land the late records of the snapshot that ``at`` means, and of those before it, under the landing prefix ``to``:
    a path below ``root``, or a whole URI.

    CSV: records whose file is gone, and with it the header that says which field is which, are left and counted;
    a later landing has them once it is back.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises. No Spark.
    """
    if isinstance(pipeline.where, CustomWindows):
        raise LandingAgainError(
            f"pipeline {pipeline.name} has a window function of its own, so it is not known which late records "
            "other windows have taken: run the original files as one batch (--mode batch), in which nothing is late"
        )
    if pipeline.union or pipeline.source.transform is not None:
        why = "several inputs" if pipeline.union else "a Spark function between its files and its records"
        raise LandingAgainError(
            f"pipeline {pipeline.name} has {why}, so its late records cannot be written as files of its source: "
            "run the original files as one batch (--mode batch), in which nothing is late"
        )
    store = open_store(root)
    target = target_of(View.LATE, pipeline.source, store, root, to)
    catalog = Catalog(store, pipeline.name)
    found = snapshot_at(catalog, at)
    manifest = found.manifest
    if manifest is not None and (changed := changed_since(pipeline, manifest)):
        raise LandingAgainError(
            f"{changed}, and so is what was late. Take the change back for this; or run `headrace backfill "
            f"{pipeline.name}` (or the backfill DAG), and then this"
        )
    target.look()
    late = dropped(catalog, manifest, View.LATE)
    target.check_there(catalog, late, at)
    source, _ = open_source(store, pipeline.source.path)
    landing = _Landing(pipeline, store, target, Headers(source, catalog, manifest, pipeline.input.name))
    with ways_out(catalog, found.ref or ""):
        for name, files in late.items():
            landing.epoch(name, files)
    return landing.result()


class _Landing:
    """Lands epoch after epoch, and counts."""

    def __init__(self, pipeline: Pipeline, store: ObjectStore, target: Target, headers: Headers) -> None:
        self._pipeline, self._store, self._target = pipeline, store, target
        self._header_of = headers.of
        self._suffix = suffix_of(pipeline.source)
        self._counts: Counter[str] = Counter()
        self._left: Counter[str] = Counter()

    def result(self) -> LandedLate:
        left = dict(sorted(self._left.items()))
        return LandedLate(self._target.uri, left=left, lands_in_source=self._target.lands_in_source, **self._counts)

    def epoch(self, name: str, files: Sequence[DataFile]) -> None:
        """Land the late records of one epoch, in files of its ``name``; those there already are left alone."""
        stem = f"{self._target.stem}{name}"
        first = f"{stem}{self._suffix}"
        if first in self._target.already_landed:  # the one that is created last
            self._counts["already_landed"] += 1
            return
        records = self._records(files)
        if self._pipeline.source.format is FileFormat.CSV:
            self._csv(stem, records)
        elif records:
            self._land(first, self._content(records), len(records))

    def _csv(self, stem: str, records: Sequence[_Record]) -> None:
        """A file for each header. Where one is missing, now or when the epoch landed first, a file for each that
        records came from, so that what is in it depends on no other.
        """
        if not records:
            return
        files = sorted({record.file for record in records})
        headers, missing = self._headers(files)
        texts: defaultdict[str, list[bytes]] = defaultdict(list)
        for record in records:
            texts[record.file].append(record.raw.encode())
        alone = {file: f"{stem}{_ALONE}{number}{self._suffix}" for number, file in enumerate(files)}
        if missing or self._target.already_landed & {*alone.values()}:
            begun = any(name.startswith(f"{stem}-") and _ALONE not in name for name in self._target.already_landed)
            for file, why in missing.items():
                self._left[why] += len(texts[file])
            for file in headers:
                if begun:  # by a landing that was stopped, of files that are told apart by all headers
                    self._left["of an epoch that has landed in part; the rest needs all headers"] += len(texts[file])
                else:
                    self._land(alone[file], text_of([headers[file], *texts[file]]), len(texts[file]))
            return
        by_header: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for record in records:
            by_header[headers[record.file]].append(record.raw.encode())
        # the one without a number is created last: where it is, all are
        for number, (header, lines) in reversed([*enumerate(by_header.items())]):
            name = f"{stem}-{number}{self._suffix}" if number else f"{stem}{self._suffix}"
            self._land(name, text_of([header, *lines]), len(lines))

    def _land(self, name: str, content: bytes, records: int) -> None:
        if self._target.create(name, content):
            self._counts.update(files=1, records=records)
        else:
            self._counts["already_landed"] += 1

    def _records(self, files: Sequence[DataFile]) -> list[_Record]:
        """What lands of the late rows in ``files``, equal records as often as they came."""
        late = ViewColumns.of(self._pipeline).schema(View.LATE)
        columns = pa.schema([late.field(name) for name in _LATE])
        windows: defaultdict[_Record, Counter[tuple[Any, Any]]] = defaultdict(Counter)
        for table in tables(self._store, files, columns):
            for row in python_rows(table):
                place = row["window_start"], row["window_end"]
                windows[_Record(row["file"], row["event_time"], row["raw"])][place] += 1
        landing: list[_Record] = []
        for record, late in windows.items():
            times = max(late.values())
            if self._target.lands_in_source and landed_from(record.file, View.LATE):
                self._counts["late_twice"] += times
            elif (None, None) not in late and len(late) < len(assign(self._pipeline.where, instant(record.event_time))):
                self._counts["late_in_some_windows"] += times
            else:
                landing += [record] * times
        return sorted(landing, key=lambda record: (record.file, record.event_time, record.raw))

    def _content(self, records: Sequence[_Record]) -> bytes:
        """``records`` of a JSON or Parquet source as a file of it."""
        lines = [record.raw for record in records]
        if self._pipeline.source.format is FileFormat.PARQUET:
            return _parquet(lines, self._pipeline.source.schema)
        return text_of(line.encode() for line in lines)

    def _headers(self, files: Iterable[str]) -> tuple[dict[str, bytes], dict[str, str]]:
        """The headers of the CSV ``files`` that records came from; and why there is none, of those that have none."""
        headers: dict[str, bytes] = {}
        missing: dict[str, str] = {}
        for file in files:
            try:
                headers[file] = self._header_of(file)
            except NO_HEADER as error:
                missing[file] = why_no_header(file, error)
        return headers, missing


_FROM_JSON: Mapping[DataType, Callable[[Any], Any]] = {
    DataType.FLOAT: float,
    DataType.TIMESTAMP: parse,
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
