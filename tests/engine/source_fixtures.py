"""A small pipeline over a landing folder, and what tests of the source ask of it."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.engine.plan import Plan
from headrace.engine.side_outputs import rejected_rows
from headrace.engine.source_reading import Batch, numbered_records, open_batch, read_batches
from headrace.engine.types import SparkSession
from headrace.model.expr import DataType, Expr, col
from headrace.pipeline import (
    AfterWatermark,
    BoundedOutOfOrderness,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    OnUnreadable,
    Pipeline,
    count,
    discarding,
    sum_of,
)
from headrace.sources.planning import InputFile, Offsets, discover
from headrace_snapshots.store import LocalStore
from tests.corpus import SCHEMA


def pipeline(
    kind: FileFormat,
    *,
    schema: Mapping[str, DataType] = SCHEMA,
    key: Mapping[str, Expr] | None = None,
    filter: Expr | None = None,  # noqa: A002 - the name that it has in Pipeline
    split: Expr | None = None,
    on_unreadable: OnUnreadable = OnUnreadable.FAIL,
) -> Pipeline:
    return Pipeline(
        name="tested",
        source=FileSource(path="landing", format=kind, schema=schema, on_unreadable=on_unreadable),
        event_time=EventTime(col("time"), BoundedOutOfOrderness(timedelta(hours=1)), split=split),
        key=key or {"user": col("user")},
        where=FixedWindows(timedelta(hours=1)),
        when=AfterWatermark(),
        how=discarding(),
        what={"records": count(), "n_sum": sum_of(col("n")), "x_sum": sum_of(col("x"))},
        filter=filter,
    )


class Landing:
    """A root folder with a landing prefix, read as an epoch reads it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.folder = root / "landing"
        self.folder.mkdir(parents=True)
        self.store = LocalStore(root)

    def write(self, name: str, content: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def files(self, tested: Pipeline) -> list[InputFile]:
        return discover(self.store, "landing", Offsets(), tested.source)

    def open(self, tested: Pipeline) -> Batch:
        return open_batch(self.spark, tested, tested.inputs[0], self.files(tested), self.store.uri)

    def read(self, tested: Pipeline, batch: Batch | None = None) -> list[dict[str, Any]]:
        """Judged records in order of file; ``_in_0`` and ``_in_1`` are n and x."""
        rows = read_batches(self.spark, tested, Plan(tested.stages[0]), [batch or self.open(tested)]).collect()
        return sorted((row.asDict() for row in rows), key=lambda row: row["_file"])

    def rejected(self, tested: Pipeline, batch: Batch | None = None) -> list[tuple[str, int | None, str, str | None]]:
        records = numbered_records(self.spark, tested, Plan(tested.stages[0]), [batch or self.open(tested)])
        rows = rejected_rows(records, 7).collect()
        assert all(row["epoch"] == 7 for row in rows)
        found = [(row["file"], row["position"], row["reason"], row["raw"]) for row in rows]
        return sorted(found, key=lambda row: (row[0], row[1] if row[1] is not None else -1))

    def rejected_bytes(self, tested: Pipeline, batch: Batch) -> dict[int, bytes]:
        """What dead letters hold that are no text, by position."""
        records = numbered_records(self.spark, tested, Plan(tested.stages[0]), [batch])
        rows = rejected_rows(records, 7).where("raw_bytes is not null").collect()
        return {row["position"]: bytes(row["raw_bytes"]) for row in rows}
