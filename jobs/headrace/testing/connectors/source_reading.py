"""What the kit asks of the source of a world: its splits, its records, and a pipeline over it."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from headrace import FixedWindows, Pipeline, col, count, on_update, retracting
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords
from headrace.ext.sources import SourcePosition, SourceReader, SourceSplit, SplitEnumerator
from headrace.sources.landing import Landing
from headrace.testing.connectors.source_world import SourceWorld
from headrace_snapshots.format.codec import Fields

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
