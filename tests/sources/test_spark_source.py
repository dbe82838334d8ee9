"""A source that Spark reads keeps what the port of sources promises."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import format_exception
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.connectors.spark.definition import (
    LandedColumnsError,
    RangeColumnsError,
    RangeFailedError,
    RangeFunctionError,
)
from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.errors import ArithmeticDataError
from headrace.errors import HeadraceError, PipelineError, RetryError
from headrace.ext.sources import SplitGoneError
from headrace.pipeline.endpoints import Source
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.restore import InputGoneError
from headrace.sources.landing import Landing
from headrace.testing.connectors import SourceConformance, SourceWorld
from headrace.testing.connectors.worlds import COLUMNS, records
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing import Fault, FaultyStore
from tests.process.golden_roots import GOLDEN, copy_root, values
from tests.process.golden_visits import VISITS
from tests.sources.spark_ranges import Folder, FolderAsTold

pytestmark = pytest.mark.spark


@dataclass
class SparkWorld(SourceWorld):
    """Files that Spark reads, each a range."""

    folder: Path
    landed: int = 0

    @cached_property
    def root(self) -> ObjectStore:
        """One that tasks reach, too."""
        return open_store((self.folder.parent / "landed").as_uri())

    @property
    def source(self) -> Source:
        return hr.spark_source("tests.sources.spark_ranges:Folder", COLUMNS, connection="folder")

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.add(pa.Table.from_pylist([dict(record) for record in records]))

    def append_unreadable(self) -> None:
        number, text, time = (
            pa.array([7]),
            pa.array([b"\xff"]).view(pa.string()),
            pa.array([0], pa.timestamp("us", "UTC")),
        )
        self.add(pa.table({"number": number, "text": text, "at": time}))

    def add(self, table: pa.Table) -> None:
        self.landed += 1
        pq.write_table(table, self.folder / f"{self.landed:04}.parquet")


@pytest.fixture
def spark_world(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkWorld:
    folder = tmp_path / "system"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_CONN_FOLDER", folder.as_uri())
    return SparkWorld(folder)


class TestSparkSource(SourceConformance):
    @pytest.fixture
    def world(self, spark_world: SparkWorld) -> SourceWorld:
        return spark_world

    @pytest.mark.parametrize("seed", [0, 1])  # each range is a job
    def test_each_record_is_in_one_split_wherever_a_run_stops(self, world: SourceWorld, seed: int) -> None:
        super().test_each_record_is_in_one_split_wherever_a_run_stops(world, seed)


SECRET = "planted-secret"


@pytest.fixture
def told_folder(spark_world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FolderAsTold]]:
    """What a user's class gives, to be said by the test."""
    monkeypatch.setenv("HEADRACE_CONN_FOLDER", f"{spark_world.folder.as_uri()}?token={SECRET}")
    yield FolderAsTold
    FolderAsTold.said_ends = FolderAsTold.said_read = None


@pytest.fixture
def root(tmp_path: Path) -> str:
    return (tmp_path / "root").as_uri()


def counting(function: str = "FolderAsTold", schema: Mapping[str, Any] = COLUMNS, **parts: Any) -> hr.Pipeline:
    reading = {name: parts.pop(name) for name in ("missing", "name") if name in parts}
    source = hr.spark_source(f"tests.sources.spark_ranges:{function}", schema, connection="folder", **reading)
    return hr.Pipeline(
        "counting",
        source.event_time("at", bound="1h"),
        key="text",
        what={"n": hr.count(), "sum": hr.col("number").sum()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        executor="local",
        **parts,
    )


def count_rows(handle: PipelineHandle) -> int:
    return sum(row["n"] for row in handle.read("current", at="main").to_json())


def landed_paths(root: str) -> list[str]:
    return [info.path.removeprefix("counting/landed/source/") for info in open_store(root).list("counting/landed/")]


def raises_with_secret(*_: Any) -> Any:
    raise ConnectionError(f"no answer to {SECRET}")


def raises_in_tasks(ranges: FolderAsTold, *_: Any) -> Any:
    def fail(batches: Any) -> Any:
        raise ValueError(f"no answer to {SECRET}")

    return ranges.session.spark.range(3).mapInArrow(fail, "number long")


def columns(*expressions: str) -> Callable[..., Any]:
    """A frame of one row with these columns."""

    def read(ranges: FolderAsTold, *_: Any) -> Any:
        return ranges.session.spark.range(1).selectExpr(*expressions)

    return read


RIGHT = ("1L as number", "'a' as text", "timestamp'2026-05-01 10:00:00' as at")


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({"ends": lambda *_: "12"}, (RangeFunctionError, r"ends\(None\) gives '12': give a list of texts")),
        ({"ends": lambda *_: 12}, (RangeFunctionError, r"ends\(None\) gives 12: give a list of texts")),
        ({"ends": lambda *_: ["1", ""]}, (RangeFunctionError, r"ends\(None\) gives '': give a list of texts")),
        (
            {"ends": raises_with_secret},
            (RangeFailedError, r"failed: ConnectionError: no answer to \*\*\* \(.*line \d+\)"),
        ),
        ({"read": lambda *_: [1]}, (RangeFunctionError, r"read\(\) gives list, and must give a DataFrame")),
        (
            {"read": raises_with_secret},
            (RangeFailedError, r"\(connection folder .*ConnectionError: no answer to \*\*\*"),
        ),
        ({"read": raises_in_tasks}, (RangeColumnsError, r"no column text; there is no column at")),
        ({"read": columns("nowhere as number")}, (RangeFunctionError, r"Spark refuses its DataFrame: .*nowhere")),
        ({"read": columns("1L as text", "1L as text")}, (RangeColumnsError, r"read\(\) gives column text 2 times")),
        (
            {"read": columns("'x' as number", "'a' as text")},
            (
                RangeColumnsError,
                r"its column number is string, and the source says int; there is no column at. It has number",
            ),
        ),
        ({"read": columns(*RIGHT, "make_interval(1) as v")}, (RangeColumnsError, r"cannot be landed")),
        (
            {"read": columns(*RIGHT, "1L as `a.b`")},
            (RangeColumnsError, r"column a\.b, and Spark takes what is before a dot for"),
        ),
        (
            {"read": columns(*RIGHT, "array(from_json('{}', 'struct<>')) as v")},
            (RangeColumnsError, r"column v, an object without fields"),
        ),
        (
            {"read": columns("1L div (id * 0) as number", *RIGHT[1:])},
            (ArithmeticDataError, r"connection folder.*DIVIDE_BY"),
        ),
    ],
)
def test_what_is_wrong_with_a_class_is_named_and_nothing_is_landed(
    told_folder: type[FolderAsTold],
    root: str,
    spark_world: SparkWorld,
    says: Mapping[str, Any],
    expected: tuple[type[HeadraceError], str],
) -> None:
    error, message = expected
    spark_world.append(records(0, 3))
    told_folder.said_ends, told_folder.said_read = says.get("ends"), says.get("read")
    handle = hr.open(root, create=True)[counting()]
    with pytest.raises(error, match=message) as error_info:
        handle.run()
    assert SECRET not in "".join(format_exception(error_info.value))
    assert landed_paths(root) == []
    told_folder.said_ends = told_folder.said_read = None
    handle.run()
    assert count_rows(handle) == 3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("tests.nowhere:Orders", r"cannot be imported \(No module named 'tests.nowhere'\)"),
        ("tests.sources.spark_ranges:Nobody", "module tests.sources.spark_ranges has no function Nobody"),
        ("tests.sources.spark_ranges:WithoutRead", r"it gives WithoutRead, which has no method read\(\)"),
    ],
)
def test_a_class_that_is_none_is_named(spark_world: SparkWorld, root: str, function: str, message: str) -> None:
    source = hr.spark_source(function, COLUMNS, connection="folder").event_time("at", bound="1h")
    pipeline = hr.Pipeline(
        "counting", source, key="text", what={"n": hr.count()}, where=hr.FixedWindows("1d"), executor="local"
    )
    with pytest.raises(RangeFunctionError, match=message):
        hr.open(root, create=True)[pipeline].run()


def test_a_task_that_fails_lands_nothing(told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld) -> None:
    spark_world.append(records(0, 3))
    told_folder.said_read = lambda ranges, *_: raises_in_tasks(ranges).selectExpr(*RIGHT)
    handle = hr.open(root, create=True)[counting()]
    with pytest.raises(RangeFailedError, match=r"a Spark job failed: ValueError: no answer to \*\*\*") as error:
        handle.run()
    assert SECRET not in "".join(format_exception(error.value))
    assert not [path for path in landed_paths(root) if path.startswith("_ranges")]


def test_where_nothing_is_new_spark_is_not_asked(
    told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld
) -> None:
    spark_world.append(records(0, 3))
    handle = hr.open(root, create=True)[counting()]
    handle.run()
    files_before, requested_begins = landed_paths(root), []
    told_folder.said_ends = lambda _, begin: requested_begins.append(begin) or [begin]
    told_folder.said_read = lambda *_: pytest.fail("it was asked for a range")
    assert handle.run().epochs == ()
    assert requested_begins == ["0001.parquet"]
    assert landed_paths(root) == files_before


def test_a_range_without_records_leaves_nothing(
    told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld
) -> None:
    spark_world.append(records(0, 3))
    handle = hr.open(root, create=True)[counting()]
    told_folder.said_read = lambda ranges, *_: ranges.session.spark.range(0).selectExpr(*RIGHT)
    assert handle.run().epochs == ()
    assert landed_paths(root) == []
    told_folder.said_read = None
    handle.run()
    assert count_rows(handle) == 3


def test_landed_files_expire_and_so_does_what_a_lander_left(
    told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld
) -> None:
    """A lander is stopped when it has written a range and claims it; another one lands the range."""
    pipeline = counting()
    handle = hr.open(root, create=True)[pipeline]
    for turn in range(4):
        spark_world.append(records(3 * turn, 3))
        stopped_faulty_store = FaultyStore(
            open_store(root), lambda operation: Fault.FAIL if operation.kind == "create" else None
        )
        with pytest.raises(RetryError):
            Landing(pipeline, stopped_faulty_store).land_all({})
        handle.run()
    files = [path for path in landed_paths(root) if path.startswith("_written")]
    assert len(files) == 8
    assert handle.fsck().damage == ()
    for _ in range(2):
        handle.expire(keep_last=2)
    left = landed_paths(root)
    assert [path for path in left if path.startswith("_ranges")] == [
        f"_ranges/{3:020d}.json",
        f"_ranges/{3:020d}.seal.json",
    ]
    assert len([path for path in left if path.startswith("_written")]) == 1
    assert handle.fsck().damage == ()
    spark_world.append(records(12, 3))
    handle.run()
    assert count_rows(handle) == 15
    with pytest.raises(InputGoneError, match="3 files are gone"):
        handle.backfill()


def test_what_is_lost_of_a_range_is_missed(told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld) -> None:
    pipeline, store = counting(), open_store(root)
    handle = hr.open(root, create=True)[pipeline]
    for turn in range(3):
        spark_world.append(records(3 * turn, 3))
        handle.run() if turn == 0 else Landing(pipeline, store).land_all({})
    (file,) = [path for path in landed_paths(root) if path.startswith(f"_written/{1:020d}")]
    store.delete(f"counting/landed/source/{file}")
    (problem,) = handle.fsck().damage
    assert problem.path == f"counting/landed/source/_ranges/{1:020d}.json"
    with pytest.raises(SplitGoneError, match="is gone"):
        handle.run()
    for name in ("json", "seal.json"):
        store.delete(f"counting/landed/source/_ranges/{1:020d}.{name}")
    with pytest.raises(SplitGoneError, match=rf"_ranges/{1:020d}.json, which was planned to be read, is gone"):
        handle.run()
    assert count_rows(handle) == 3


def test_a_schema_that_was_changed_reads_what_was_landed_as_it_was(
    told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld
) -> None:
    """What the frame had beside the schema was landed too."""
    spark_world.append(records(0, 3))
    told_folder.said_read = lambda ranges, *arguments: Folder.read(ranges, *arguments).selectExpr(
        "*", "number + 10 as beside"
    )
    deployment = hr.open(root, create=True)
    deployment[counting()].run()
    wider = counting(schema={**COLUMNS, "beside": int}, filter=hr.col("beside") > 10)
    handle = deployment[wider]
    handle.backfill(promote=True)
    assert count_rows(handle) == 2
    with pytest.raises(LandedColumnsError, match="its column beside is int64, and the source says string"):
        deployment[counting(schema={**COLUMNS, "beside": str}, filter=hr.col("beside") > "")].backfill()
    absent = {**COLUMNS, "new": int}
    with pytest.raises(LandedColumnsError, match=r'lacks column new, which .* reads.*missing="null" makes it NULL'):
        deployment[counting(schema=absent, filter=hr.col("new").is_null())].backfill()
    nullable = deployment[counting(schema=absent, filter=hr.col("new").is_null(), missing="null")]
    nullable.backfill(promote=True)
    assert count_rows(nullable) == 3


def test_a_large_partition_is_several_files_and_partitions_are_in_order(
    told_folder: type[FolderAsTold], root: str, spark_world: SparkWorld
) -> None:
    spark_world.append(records(0, 1))
    told_folder.said_read = lambda ranges, *_: ranges.session.spark.range(0, 160_000, 1, 2).selectExpr(
        "id as number", "repeat('x', 1000) as text", "timestamp'2026-05-01 10:00:00' as at"
    )
    pipeline, store = counting(), open_store(root)
    landing = Landing(pipeline, store)
    landing.land_all({})
    splits = landing.new_files({})["source"]
    numbers = [pq.read_table(pa.BufferReader(store.read(split.path)), columns=["number"])["number"] for split in splits]
    assert len(numbers) > 2
    assert pa.chunked_array([chunk for column in numbers for chunk in column.chunks]).equals(
        pa.chunked_array([pa.array(range(160_000))])
    )


def test_a_root_that_an_older_version_wrote_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last range was claimed by a run that was killed; a lander before it has left what nobody claimed."""
    root, folder = copy_root("format-3-written", tmp_path), tmp_path / "folder"
    shutil.copytree(GOLDEN / "format-3-written" / "folder", folder)
    monkeypatch.setenv("HEADRACE_CONN_FOLDER", folder.as_uri())
    visits = hr.open(root.as_uri())[VISITS]
    assert visits.run().counts["input_files"] == 1
    shutil.copy(folder / "a.parquet", folder / "d.parquet")
    assert visits.run().counts["input_files"] == 1
    from_nothing = hr.open((tmp_path / "nothing").as_uri(), create=True)[VISITS]
    from_nothing.run()
    assert values(visits, VISITS) == values(from_nothing, VISITS)
    for _ in range(2):
        visits.expire(keep_last=1)
    assert len([*root.glob("visits/landed/source/_written/*/*.parquet")]) == 1
    assert visits.fsck(deep=True).damage == ()


def test_the_definition_names_the_connection_and_refuses_what_cannot_be_meant() -> None:
    source = hr.spark_source("orders:Orders", {"n": int}, connection="db", name="orders")
    assert (source.place, source.connections, source.is_durable) == ("db/orders", ("db",), False)
    assert hr.spark_source("orders:Orders", {"n": int}).place == "orders:Orders"
    with pytest.raises(PipelineError, match="write module:function, as in orders:Orders"):
        hr.spark_source("orders", {"n": int})
    with pytest.raises(PipelineError, match="never its URI"):
        hr.spark_source("orders:Orders", {"n": int}, connection="postgresql://u:p@h/d")
