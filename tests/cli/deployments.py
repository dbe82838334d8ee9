"""A deployment written by hand: real Parquet files and real catalog entries under a root, without Spark."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import Pipeline
from headrace.model.time import to_instant
from headrace.pipeline.identity import fingerprint, recorded_definition
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.read.views.columns import View, ViewColumns
from headrace.sources.progress import HeldBack, PipelineProgress
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.manifests import new_manifest
from tests.reading import schema
from tests.stored_progress import progress_fields

PIPELINE_FILE = '''"""A pipeline for tests: events per user and hour."""

from datetime import datetime

import headrace as hr
from headrace import col

landed = hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="10m")
clicks = hr.Pipeline(
    "clicks",
    landed,
    description="Clicks per user and hour.",
    key="user",
    what={"clicks": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1d"),
)
'''
Row = dict[str, Any]
START = datetime(2026, 3, 1, tzinfo=UTC)


def hour(number: int) -> datetime:
    """The start of an hour of the test's day."""
    return START + timedelta(hours=number)


def pane(
    user: str, window: int, clicks: int, *, index: int = 0, retraction: bool = False, **more: Any
) -> dict[str, Any]:
    """A pane of the hour ``window``; ``sequence`` puts a retraction before what follows it."""
    return {
        "user": user,
        "clicks": clicks,
        "amount": None,
        "window_start": hour(window),
        "window_end": hour(window + 1),
        "pane_time": hour(window + 1) - timedelta(microseconds=1),
        "timing": "EARLY",
        "pane_index": index,
        "nonspeculative_index": -1,
        "is_first": index == 0,
        "is_last": False,
        "is_retraction": retraction,
        "sequence": 0 if retraction else 1,
        **more,
    }


class Deployment:
    """One pipeline under one root. ``reference`` names its file, as on the command line."""

    def __init__(self, folder: Path, root: str | None = None, *, file_text: str = PIPELINE_FILE) -> None:
        file = folder / "clicks.py"
        file.write_text(file_text)
        self.reference = str(file)
        self.root = (folder / "root").as_uri() if root is None else root
        self.pipeline: Pipeline = resolve_pipeline(self.reference)
        self.store = open_store(self.root)
        self.catalog = Catalog(self.store, "clicks")
        self.head: Manifest | None = None
        self.claim: Claim | None = None

    def commit(self, **rows: pa.Table | Sequence[Mapping[str, Any]]) -> str:
        """Commit one epoch that adds ``rows`` to the views of those names; the snapshot's id."""
        epoch = 0 if self.head is None else self.head.epoch + 1
        snapshot = self.catalog.new_snapshot_id()
        prefix = self.catalog.data_prefix(epoch, snapshot)
        added_by_name = {name: self.write(f"{prefix}/{name}-0.parquet", name, rows[name], epoch) for name in rows}
        logs = {} if self.head is None else dict(self.head.logs)
        for name in ("panes", "late", "rejected", "inputs"):
            log = logs.get(name, FileLog.empty())
            logs[name] = (
                self.catalog.append_record(log, FileRecord(epoch, (added_by_name[name],)))
                if name in added_by_name
                else log
            )
        layers = () if self.head is None else self.head.tables["current"]
        if "panes" in added_by_name:
            layers = (*layers, Layer.from_files((added_by_name["panes"],), epoch, epoch))
        start = hour(epoch)
        claim = self.claim = self.claim or self.catalog.claim(MAIN, "test")
        manifest = new_manifest(
            snapshot_id=snapshot,
            pipeline="clicks",
            fingerprint=fingerprint(self.pipeline),
            definition=recorded_definition(self.pipeline),
            branch=MAIN,
            epoch=epoch,
            parent=None if self.head is None else self.head.snapshot_id,
            generation=claim.generation,
            created_at="2026-03-01T12:00:00Z",
            schema=ViewColumns.from_pipeline(self.pipeline).to_json(),
            progress=progress_fields(
                PipelineProgress(
                    watermark=to_instant(start + timedelta(minutes=50)),
                    held_back_by=HeldBack("source", "JFK", to_instant(START + timedelta(days=1))),
                    processing_time=to_instant(START + timedelta(days=1, seconds=epoch)),
                    min_event_time=to_instant(start),
                    max_event_time=to_instant(start + timedelta(hours=1)),
                    behind={0: 10} if epoch else {},
                )
            ),
            tables={"state": (), "current": layers},
            logs=logs,
            counts={"records": 10, "panes_late": 1, "late_dropped": len(rows.get("late", ()))},
            timings={"write_seconds": 0.5},
            requests={"put": 3},
        )
        self.catalog.commit(claim, manifest)
        self.head = manifest
        return snapshot

    def write(self, path: str, view: str, rows: pa.Table | Sequence[Mapping[str, Any]], epoch: int) -> DataFile:
        """A Parquet file of a view; a table has its columns."""
        columns = schema(self.pipeline, View(view))
        table = (
            rows.select(columns.names).cast(columns)
            if isinstance(rows, pa.Table)
            else pa.Table.from_pylist([{**row, "epoch": epoch} for row in rows], schema=columns)
        )
        buffer = io.BytesIO()
        pq.write_table(table, buffer, write_page_checksum=True)
        data = buffer.getvalue()
        self.store.write(path, data)
        return DataFile(path, len(rows), len(data), hashlib.sha256(data).hexdigest())
