"""What the kit must know of a system, to add, lose and change what it holds; and pipelines over it.

``VALUES`` are values that systems like to change on the way: extremes, empty ones, and what looks like syntax.

A ``SourceWorld`` adds records, loses some, changes some. A ``SinkWorld`` says how a definition names the target, and
what that holds. ``SinkDeployment`` has pipelines whose sink is that of a world, on a root of their own, and what their
readers see. The functions below ask a source for its splits and records, and give pipelines over it.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace import DataType, FixedWindows, Pipeline, col, count, on_update, retracting
from headrace import open as open_root
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, ScannedRecords
from headrace.ext.sinks import EPOCH, NUMBER, SIGN, Sink
from headrace.ext.sources import Input, Source, SourcePosition, SourceReader, SourceSplit, SplitEnumerator
from headrace.ext.stores import ObjectStore, open_store
from headrace.read.views.arrow_types import schema_of, zoneless_rows
from headrace.runs.delivering.deliver import deliver
from headrace.sources.landing import Landing
from headrace.types import Delivery, PipelineHandle
from headrace_snapshots.format.codec import Fields

_SENT_AT: Final = datetime(2026, 5, 1, tzinfo=UTC)

VALUES: Final[Mapping[DataType, list[Any]]] = {
    DataType.STRING: [
        *("", " ", "NULL", "\\N", 'a"b', "a'b", "a,b", "a\nb", "a\r\nb", "a\\b", "{}", "{a,b}"),
        *("œ🜁\u202e", "x" * 5000),
        *("a", "A", "a ", "ss", "ß", "\u00e9", "e\u0301"),  # one to collations that do not compare characters
    ],
    DataType.INT: [0, -1, 2**63 - 1, -(2**63)],
    DataType.FLOAT: [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 1 / 3],
    DataType.BOOL: [True, False],
    DataType.TIMESTAMP: [
        _SENT_AT,
        _SENT_AT.replace(microsecond=1),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    DataType.DATE: [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    DataType.BYTES: [b"", b"\x00", b"\xff\xfe", b"\\x41"],
    DataType.DECIMAL: [
        Decimal("0.000000001"),
        Decimal("-99999999999999999999999999999.999999999"),
        Decimal(0),
        Decimal("1.5"),
    ],
}


def plain(value: Any) -> Any:
    """``value`` such that two are equal if readers take them for one: with its type, times in UTC, NaN like NaN."""
    match value:
        case datetime():
            parts: Any = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case float():
            parts = repr(value)
        case Decimal():
            parts = str(value.normalize())
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case list() | tuple():
            return "list", *map(plain, value)
        case dict():
            parts = tuple(map(plain, value.values()))
        case _:
            parts = value
    return type(value).__name__, parts


COLUMNS: Mapping[str, Any] = {"number": int, "text": str, "at": datetime}
"""The columns of the source of a world, under whatever names it has them."""


class SourceWorld(ABC):
    """A source with nothing in it, for one test. What is not durable, so that runs land it, is lost and altered where
    it was landed: then ``lose`` and ``alter`` are not asked for.
    """

    has_unreadable: ClassVar[bool] = True
    """Whether a record can be one that does not parse. If not, ``append_unreadable`` is not asked for."""

    @property
    def input(self) -> Input:
        """How pipelines read the source."""
        return self.source.event_time("at", bound="1h")

    @cached_property
    def root(self) -> ObjectStore:
        """Where it is landed in tests that run no pipeline."""
        return open_store(f"memory://{uuid4().hex}")

    @property
    @abstractmethod
    def source(self) -> Source:
        """What a definition names, with ``COLUMNS``."""

    @abstractmethod
    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add ``records``, values of ``COLUMNS`` by name, times as datetimes, to be planned as splits of their own."""

    def append_unreadable(self) -> None:
        """Add one record that does not parse, as a split of its own: ``number`` is text, or ``text`` is not UTF-8."""
        raise NotImplementedError(
            "write append_unreadable(): it adds a record that does not parse; or say has_unreadable = False"
        )

    def lose(self) -> None:
        """Take away what was added first."""
        raise NotImplementedError("write lose(): it takes away the records that were added first")

    def alter(self) -> None:
        """Change what was added first, as nobody should."""
        raise NotImplementedError("write alter(): it changes the records that were added first")


class VersionsWorld(SourceWorld):
    """A source whose ``versions=`` say that each record is a version of the row of its ``number``."""

    @abstractmethod
    def delete(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Say that the rows of the numbers of ``records`` are gone, each from its ``at`` on: a split of its own."""


class SinkWorld(ABC):
    """A target that nobody has delivered to, for one test. It pickles: killed deliveries run in their own processes."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that no error and no delivery may show: the password of the connection."""

    @property
    @abstractmethod
    def sink(self) -> Sink:
        """What a definition names."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that delivers, by which it knows the connection."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows that the target holds, none if it is not there, as its users read them: not through the sink."""

    def lose_a_row(self) -> bool:
        """Remove a row of the target, as somebody else does; False: the kit does without it."""
        return False

    def before_each_request(self, act: Callable[[], None]) -> None:
        """From here on, call ``act`` before each request of this process to the target: here, or in a process that was
        forked here.

        A delivery is then killed at each of them. Without it, it is killed where the kit can: before and after the
        sink applies a change, and at each batch of rows.
        """
        del act


class ChangeLogWorld(SinkWorld):
    """A target that only appends. What it holds is the sum of its records."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """All records that the target holds, none if it is not there, in their order, as its users read them."""

    def rows(self) -> list[dict[str, Any]]:
        """The sum of the records. They are numbered from 1 without a gap, and none withdraws what is not there."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for number, record in enumerate(self.records(), start=1):
            assert record[NUMBER] == number, f"record {record[NUMBER]} stands where {number} is due"
            row = {name: value for name, value in record.items() if name not in (NUMBER, SIGN, EPOCH)}
            same = tuple(map(plain, row.values()))
            match record[SIGN]:
                case 0:
                    rows.clear()
                case 1:
                    assert same not in rows, f"record {number} adds what is there: {row}"
                    rows[same] = row
                case -1:
                    assert rows.pop(same, None) is not None, f"record {number} withdraws what is not there: {row}"
        return [*rows.values()]


TableRows = list[tuple[Any, ...]]


@dataclass
class SinkDeployment:
    """A root in ``folder``, and pipelines that deliver to the sink of a ``world``."""

    world: SinkWorld
    folder: Path

    def sales(self, where: hr.WindowFn | None = None, **fields: Any) -> hr.Pipeline:
        """Sales by user and hour."""
        pipeline = hr.Pipeline(
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
        return replace(pipeline, **fields) if fields else pipeline

    def newest(self) -> hr.Pipeline:
        """The newest sale of each user, by whom rows are known; none where its price is below zero."""
        return hr.Pipeline(
            "newest",
            hr.json("landing/sales", {"user": str, "price": int, "at": datetime}).event_time("at", bound="10m"),
            rows=["price"],
            key="user",
            take=hr.newest(deleted=hr.col("price") < 0),
            id="user",
            sinks=[self.world.sink],
            executor="local",
        )

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
        """How often each value of a ``kind`` is there, by hour: values as keys, of which NULL is one."""
        return hr.Pipeline(
            "keyed",
            hr.parquet("landing/values", {"number": int, "value": kind, "at": datetime}).event_time("at", bound="0s"),
            key="value",
            null_keys=True,
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
        time = datetime(2026, 5, 1, tzinfo=UTC)
        columns = [range(len(values)), values, [time] * len(values)]
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

    def held(self, pipeline: hr.Pipeline) -> TableRows:
        """What the target holds, in the columns of the pipeline."""
        names = _output_columns(pipeline)
        return _in_order({name: row[name] for name in names} for row in self.world.rows())

    def published(self, pipeline: hr.Pipeline) -> TableRows:
        """What readers see of the pipeline."""
        names = _output_columns(pipeline)
        return _in_order(zoneless_rows(self.handle(pipeline).current(columns=names).to_arrow()))


def order(user: str | None, minute: int, price: int = 1) -> dict[str, Any]:
    """An order of 1 May 2026, that many minutes after midnight."""
    return {
        "user": user,
        "price": price,
        "at": f"2026-05-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z",
    }


def _output_columns(pipeline: hr.Pipeline) -> list[str]:
    if pipeline.rows:
        return [*pipeline.value_types, "event_time"]
    return [*pipeline.key_types, "window_start", "window_end", *pipeline.value_types]


def _in_order(rows: Any) -> TableRows:
    return sorted((tuple(map(plain, row.values())) for row in rows), key=repr)


_FIRST_AT = datetime(2026, 5, 1, tzinfo=UTC)
TEXTS = ("", " ", "a", 'a"b', "a,b", "œ🜁", "null", "{}")


def records(first: int, many: int) -> list[dict[str, Any]]:
    """Records with numbers from ``first`` on."""
    numbers = range(first, first + many)
    return [
        {"number": number, "text": TEXTS[number % len(TEXTS)], "at": _FIRST_AT + timedelta(minutes=number)}
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
    landing.land_all({})
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
    position_json = json.loads(json.dumps(position.to_json()))
    return SourcePosition.from_json(Fields(position_json, "input"), position.recent)


def read_whole(reader: SourceReader, splits: Iterable[SourceSplit]) -> list[Mapping[str, Any]]:
    """All records of ``splits``, in order."""
    return [row for split in splits for row in rows_of(reader.read(split, WHOLE_FILE, RequiredColumns()))]


def rows_of(records: ScannedRecords) -> list[Mapping[str, Any]]:
    """Records with all that is said of each: ``position``, ``unparsed`` and ``raw`` beside the columns."""
    columns = {name: column.to_pylist() for name, column in records.columns.items()}
    raw = records.raw(np.arange(len(records))).to_pylist()
    return [
        {
            **{name: values[row] for name, values in columns.items()},
            "position": int(records.position[row]),
            "unparsed": records.unparsed[row].as_py(),
            "raw": raw[row],
        }
        for row in range(len(records))
    ]


def newest_of(world: SourceWorld) -> Pipeline:
    """The newest text of each number, of a source with versions."""
    return Pipeline(
        "newest", world.input, key="number", rows=["text"], take=hr.newest(), how=retracting(None), when=on_update(),
        executor="local",
    )  # fmt: skip


def asked_of(world: SourceWorld, folder: Path) -> Pipeline:
    """Questions in files of ``folder``, each with the text that its number had at its time, and whether it met any."""
    questions = hr.json(folder.as_uri(), {"number": int, "asked": datetime}).event_time("asked", bound="1h")
    versions = world.input.named("versions")
    columns = {"text": "text", "met": "number"}
    join = hr.as_of(versions, "number", columns=columns, outer=True, lateness="30d")
    return Pipeline("held", questions, join=[join], rows=["number", "asked", *columns], executor="local")
