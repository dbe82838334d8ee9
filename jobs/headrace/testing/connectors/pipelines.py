"""Pipelines of the kit over a source or a sink of a world.

Pipelines whose sink is that of a world, on a root of their own, and what their readers see.

What the kit asks of the source of a world: its splits, its records, and a pipeline over it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace import FixedWindows, Pipeline, col, count, on_update, retracting
from headrace import open as open_root
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords
from headrace.ext.sources import SourcePosition, SourceReader, SourceSplit, SplitEnumerator
from headrace.read.views.arrow_types import schema_of, zoneless_rows
from headrace.runs.delivering.deliver import deliver
from headrace.sources.landing import Landing
from headrace.testing.connectors.worlds import SinkWorld, SourceWorld, plain
from headrace.types import Delivery, PipelineHandle
from headrace_snapshots.format.codec import Fields

Rows = list[tuple[Any, ...]]


@dataclass
class SinkDeployment:
    """A root in ``folder``, and pipelines that deliver to the sink of a ``world``."""

    world: SinkWorld
    folder: Path

    def sales(self, where: hr.WindowFn | None = None, **changed: Any) -> hr.Pipeline:
        """Sales by user and hour."""
        made = hr.Pipeline(
            "sales",
            hr.json("landing/sales", {"user": str, "price": int, "at": datetime}).event_time("at", bound="10m"),
            key="user",
            what={"orders": hr.count(), "spent": hr.col("price").sum()},
            where=where or hr.FixedWindows("1h"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="30d"),
            sinks=[self.world.sink],
            executor="local",
        )
        return replace(made, **changed) if changed else made

    def values(self, kind: hr.DataType, **what: Any) -> hr.Pipeline:
        """The greatest ``value`` of a ``kind`` for each number, in one window without an end."""
        return hr.Pipeline(
            "values",
            hr.parquet("landing/values", {"number": int, "value": kind, "at": datetime}).event_time("at", bound="0s"),
            key="number",
            what=what or {"value": hr.col("value").max()},
            where=hr.GlobalWindows(),
            when=hr.on_update(),
            how=hr.retracting(),
            sinks=[self.world.sink],
            executor="local",
        )

    def keyed(self, kind: hr.DataType) -> hr.Pipeline:
        """How often each value of a ``kind`` is there, by hour: values as keys."""
        return hr.Pipeline(
            "keyed",
            hr.parquet("landing/values", {"number": int, "value": kind, "at": datetime}).event_time("at", bound="0s"),
            key="value",
            what={"times": hr.count(), "number": hr.col("number").max()},
            where=hr.FixedWindows("1h"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="30d"),
            sinks=[self.world.sink],
            executor="local",
        )

    def handle(self, pipeline: hr.Pipeline) -> PipelineHandle:
        """The pipeline under the root."""
        return open_root(self.folder.as_uri(), create=True)[pipeline]

    def land(self, name: str, *records: dict[str, Any]) -> None:
        """A landing file of sales."""
        landing = self.folder / "landing" / "sales"
        landing.mkdir(parents=True, exist_ok=True)
        (landing / f"{name}.json").write_text("".join(json.dumps(record) + "\n" for record in records))

    def land_values(self, kind: hr.DataType, values: Sequence[Any], name: str = "1") -> None:
        """A landing file of values, numbered."""
        landing = self.folder / "landing" / "values"
        landing.mkdir(parents=True, exist_ok=True)
        schema = schema_of({"number": hr.DataType.INT, "value": kind, "at": hr.DataType.TIMESTAMP})
        at = datetime(2026, 5, 1, tzinfo=UTC)
        columns = [range(len(values)), values, [at] * len(values)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), landing / f"{name}.parquet")

    def deliver(self, pipeline: hr.Pipeline, **options: Any) -> Delivery:
        """Deliver to the one sink."""
        (delivery,) = self.handle(pipeline).deliver(**options, dry_run=False)
        return delivery

    def attempt(self, pipeline: hr.Pipeline) -> Delivery:
        """Deliver to the one sink, and do not look again where another delivery came between."""
        (sink,) = pipeline.sinks
        return deliver(self.handle(pipeline).catalog, "", sink)

    def held(self, pipeline: hr.Pipeline) -> Rows:
        """What the target holds, in the columns of the pipeline."""
        names = _columns(pipeline)
        return _in_order({name: row[name] for name in names} for row in self.world.rows())

    def published(self, pipeline: hr.Pipeline) -> Rows:
        """What readers see of the pipeline."""
        names = _columns(pipeline)
        return _in_order(zoneless_rows(self.handle(pipeline).current(columns=names).to_arrow()))


def order(user: str, minute: int, price: int = 1) -> dict[str, Any]:
    """An order of 1 May 2026, that many minutes after midnight."""
    return {
        "user": user,
        "price": price,
        "at": f"2026-05-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z",
    }


def _columns(pipeline: hr.Pipeline) -> list[str]:
    return [*pipeline.key_types, "window_start", "window_end", *pipeline.value_types]


def _in_order(rows: Any) -> Rows:
    return sorted((tuple(map(plain, row.values())) for row in rows), key=repr)


_BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
TEXTS = ("", " ", "a", 'a"b', "a,b", "œ🜁", "null", "{}")


def records(first: int, many: int) -> list[dict[str, Any]]:
    """Records with numbers from ``first`` on."""
    numbers = range(first, first + many)
    return [
        {"number": number, "text": TEXTS[number % len(TEXTS)], "at": _BEGIN + timedelta(minutes=number)}
        for number in numbers
    ]


def pipeline_of(world: SourceWorld) -> Pipeline:
    """Records by text and day."""
    return Pipeline(
        "conforming",
        world.input,
        key="text",
        what={"n": count(), "sum": col("number").sum()},
        where=FixedWindows("1d"),
        when=on_update(),
        how=None if world.source.changelog is None else retracting(allowed_lateness="30d"),
        executor="local",
    )


def landing_of(world: SourceWorld) -> Landing:
    """What a run has of the source, which has landed what is new if the source is not durable."""
    landing = Landing(pipeline_of(world), world.root)
    landing.land({})
    return landing


def enumerator_of(world: SourceWorld) -> SplitEnumerator:
    """The enumerator of a run, which has landed what is new if the source is not durable."""
    (enumerator,) = landing_of(world).enumerators.values()
    return enumerator


def reader_of(world: SourceWorld) -> SourceReader:
    """The reader of a task."""
    (reader,) = Landing(pipeline_of(world), world.root).readers.values()
    return reader


def stored(position: SourcePosition) -> SourcePosition:
    """``position`` as a snapshot gives it back, with the splits that it remembers."""
    written = json.loads(json.dumps(position.to_json()))
    return SourcePosition.from_json(Fields(written, "input"), position.recent)


def read_whole(reader: SourceReader, splits: Iterable[SourceSplit]) -> list[Mapping[str, Any]]:
    """All records of ``splits``, in order."""
    return [row for split in splits for row in rows_of(reader.read(split, WHOLE_FILE, RequiredColumns()))]


def rows_of(scanned: ScannedRecords) -> list[Mapping[str, Any]]:
    """Records with all that is said of each: ``position``, ``unparsed`` and ``raw`` beside the columns."""
    columns = {name: column.to_pylist() for name, column in scanned.columns.items()}
    raw = scanned.raw(np.arange(len(scanned))).to_pylist()
    return [
        {
            **{name: values[row] for name, values in columns.items()},
            "position": int(scanned.position[row]),
            "unparsed": scanned.unparsed[row].as_py(),
            "raw": raw[row],
        }
        for row in range(len(scanned))
    ]
