"""A small pipeline over a landing folder, and what tests of sources ask of an epoch over it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import AfterWatermark, FileSource, FixedWindows, Input, Pipeline, count, discarding
from headrace.distribute.epoch import ComputedEpoch
from headrace.distribute.local import LocalEngine
from headrace.distribute.records import in_arrival_order, read_records
from headrace.ext.sources import SourceSplit
from headrace.kernel.stage import CompiledStage
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, col
from headrace.model.time import parse_instant
from headrace.pipeline.endpoints import OWN, OnMissing, OnUnreadable
from headrace.runs.commits import attempts_of
from headrace.sources import landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import REJECTED
from headrace_snapshots.store import LocalStore
from tests.corpus import SCHEMA

NOW = parse_instant("2026-01-01T00:00:00Z")


def pipeline(
    kind: str,
    *,
    schema: Mapping[str, DataType] = SCHEMA,
    key: Mapping[str, Expr] | None = None,
    filter: Expr | None = None,  # noqa: A002 - the name that it has in Pipeline
    split: Expr | None = None,
    time: str = "time",
    on_unreadable: OnUnreadable | str = OnUnreadable.FAIL,
    missing: OnMissing = OnMissing.NULL,
    **parts: Any,
) -> Pipeline:
    """A pipeline over files that may lack columns."""
    own = {name: parts.pop(name) for name in ("changelog", "versions", "dialect") if name in parts}
    source = FileSource("landing", kind, schema, on_unreadable=on_unreadable, missing=missing, **own)
    parts = parts or {
        "key": key or {"user": col("user")},
        "where": FixedWindows(timedelta(hours=1)),
        "when": AfterWatermark(),
        "how": discarding(),
        "what": {"records": count(), "n_sum": col("n").sum(), "x_sum": col("x").sum()},
    }
    return Pipeline(
        name="tested",
        input=Input(
            source,
            EventTime(col(time), BoundedOutOfOrderness(timedelta(hours=1)), split=split),
        ),
        filter=filter,
        **parts,
    )


class LandedFiles:
    """A root folder with a landing prefix, read as an epoch reads it."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "landing"
        self.folder.mkdir(parents=True)
        self.store = LocalStore(root)

    def write(self, name: str, content: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def files(self, pipeline: Pipeline) -> list[SourceSplit]:
        """What has landed."""
        return landing.Landing(pipeline, self.store).new_files({}).get(OWN, [])

    def compute(self, pipeline: Pipeline, files: Sequence[SourceSplit] | None = None) -> ComputedEpoch:
        """A first epoch over ``files`` (None: over all that has landed)."""
        attempts = attempts_of(Catalog(self.store, pipeline.name))
        engine = LocalEngine(pipeline, self.store, landing.Landing(pipeline, self.store), attempts)
        return engine.compute({OWN: self.files(pipeline) if files is None else files}, NOW)

    def read(self, pipeline: Pipeline, files: Sequence[SourceSplit] | None = None) -> list[dict[str, Any]]:
        """Judged records in order of file, with their ``file``; ``_in_0`` and ``_in_1`` are n and x."""
        place = landing.Landing(pipeline, self.store)
        pieces = in_arrival_order(pipeline, {OWN: self.files(pipeline) if files is None else files})
        records = read_records(pipeline, [CompiledStage(pipeline.stages[0])], place, pieces, NOW).records
        if records is None:
            return []
        paths = [records.paths[number] for number in records.file_of(np.arange(len(records.positions)))]
        rows = pa.RecordBatch.from_pydict(dict(records.columns)).to_pylist()
        return [{"file": path, **row} for path, row in zip(paths, rows, strict=True)]

    def dead_letters(self, pipeline: Pipeline) -> list[dict[str, Any]]:
        """The stored dead letters of an epoch over all that has landed, in order of file and position."""
        rows = self.stored_rows(self.compute(pipeline).written.logs[REJECTED])
        return sorted(rows, key=lambda row: (row["file"], -1 if row["position"] is None else row["position"]))

    def stored_rows(self, files: Sequence[DataFile]) -> list[dict[str, Any]]:
        """The rows of data files, whatever their columns."""
        return [row for file in files for row in pq.read_table(self.root / file.path).to_pylist()]
