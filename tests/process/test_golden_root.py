"""Deployments that older versions wrote (tests/golden) are read, and runs continue from them."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.read.pipeline_reader import PipelineReader
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from tests.process.golden_roads import ROADS
from tests.process.golden_sales import SALES
from tests.process.golden_shop import SHOP

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LANDED = hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="10m")
CLICKS = hr.Pipeline(
    "clicks",
    LANDED,
    key="user",
    what={"clicks": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
FIRST, LAST = datetime(2026, 1, 1, 0, tzinfo=UTC), datetime(2026, 1, 3, 9, tzinfo=UTC)
OLD = [("ann", FIRST, 2, 6), ("bob", FIRST, 1, 7)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied("format-1", tmp_path)


@pytest.fixture
def with_outputs(tmp_path: Path) -> Path:
    return copied("format-3", tmp_path)


def copied(name: str, folder: Path) -> Path:
    shutil.copytree(GOLDEN / name / "root", folder / "root")
    return folder / "root"


def rows(reader: PipelineReader) -> list[tuple[object, ...]]:
    found = reader.current(columns=["user", "window_start", "clicks", "amount"]).to_arrow().to_pylist()
    return [tuple(row.values()) for row in found]


def test_its_views_are_read(root: Path) -> None:
    reader = hr.open(root.as_uri())["clicks"]
    assert rows(reader) == [*OLD, ("ann", LAST, 1, 4), ("bob", LAST, 1, 2)]
    assert reader.panes().count() == 10
    assert reader.late().to_arrow()["user"].to_pylist() == ["eve"]
    assert reader.rejected().to_arrow()["raw"].to_pylist() == ["not a record"]
    assert reader.snapshots().to_arrow()["epoch"].to_pylist() == [0, 1, 2]


def test_a_run_goes_on_from_its_state(root: Path) -> None:
    stored = hr.open(root.as_uri())["clicks"].current().manifest
    assert stored is not None
    assert fingerprint(CLICKS) == stored.fingerprint
    (root / "landing" / "clicks" / "d.jsonl").write_text(
        '{"user": "ann", "at": "2026-01-03T09:40:00Z", "amount": 10}\n'
    )
    result = process(CLICKS, root.as_uri(), RunOptions("after", publish=True))
    assert result.epochs == (3,)
    assert result.counts["input_files"] == 1
    reader = hr.open(root.as_uri())["clicks"]
    assert rows(reader) == [*OLD, ("ann", LAST, 2, 14), ("bob", LAST, 1, 2)]


def amounts(root: Path, output: str) -> list[tuple[object, ...]]:
    reader = hr.open(root.as_uri())["shop"][output]
    columns = reader.current(columns=["user", "window_start", "amount"]).to_arrow().to_pylist()
    return [tuple(row.values()) for row in columns]


def test_outputs_are_read(with_outputs: Path) -> None:
    day = [FIRST, LAST.replace(hour=0)]
    assert amounts(with_outputs, "hourly") == [
        ("ann", FIRST, 5),
        ("bob", FIRST, 2),
        ("ann", LAST, 8),
        ("bob", LAST, 32),
    ]
    assert amounts(with_outputs, "daily") == [
        ("ann", day[0], 5),
        ("bob", day[0], 2),
        ("ann", day[1], 8),
        ("bob", day[1], 32),
    ]
    shop = hr.open(with_outputs.as_uri())["shop"]
    assert shop["hourly"].late().to_arrow()["user"].to_pylist() == ["eve"]
    assert shop["hourly"].rejected().to_arrow()["raw"].to_pylist() == ["no record"]


def test_a_run_goes_on_from_the_state_of_outputs(with_outputs: Path) -> None:
    (with_outputs / "landing" / "orders" / "d.jsonl").write_text(
        '{"user": "ann", "at": "2026-01-03T09:40:00Z", "amount": 10}\n'
    )
    result = process(SHOP, with_outputs.as_uri(), RunOptions("after", publish=True))
    assert (result.epochs, result.warnings) == ((3,), ())
    assert amounts(with_outputs, "hourly")[2:] == [("ann", LAST, 18), ("bob", LAST, 32)]
    assert amounts(with_outputs, "daily")[2:] == [("ann", LAST.replace(hour=0), 18), ("bob", LAST.replace(hour=0), 32)]
    assert hr.open(with_outputs.as_uri())["shop"].fsck().damage == ()


def lengths(root: Path) -> dict[str, int]:
    """The way from the harbour to each place."""
    rows = hr.open(root.as_uri())["roads"].current(columns=["vertex", "value"]).to_arrow().to_pylist()
    return {row["vertex"]: row["value"] for row in rows}


def test_rounds_go_on_with_what_was_in_flight(tmp_path: Path) -> None:
    root = copied("format-1-loop", tmp_path)
    assert lengths(root) == {"harbour": 0, "mill": 5, "ford": 8, "abbey": 20, "ridge": 22}
    result = process(ROADS, root.as_uri(), RunOptions("after", publish=True))
    assert (result.counts["input_files"], result.warnings) == (0, ())
    assert lengths(root) == {"harbour": 0, "mill": 5, "ford": 8, "abbey": 12, "ridge": 14, "pass": 15}
    shorter = {"a": "harbour", "b": "pass", "km": 1, "at": "2026-01-01T00:20:00Z"}
    (root / "landing" / "roads" / "d.jsonl").write_text(json.dumps(shorter) + "\n")
    process(ROADS, root.as_uri(), RunOptions("shorter", publish=True))
    assert lengths(root) == {"harbour": 0, "pass": 1, "ridge": 2, "abbey": 4, "mill": 5, "ford": 8}
    assert hr.open(root.as_uri())["roads"].fsck().damage == ()


def test_what_was_landed_is_read_again_without_its_broker(tmp_path: Path) -> None:
    root = copied("format-1-landed", tmp_path)
    handle = hr.open(root.as_uri())["sales"]

    def sold(at: str) -> list[tuple[object, ...]]:
        columns = ["user", "window_start", "orders", "amount", "last"]
        return [tuple(row.values()) for row in handle.current(columns=columns, at=at).to_arrow().to_pylist()]

    nine = FIRST.replace(hour=9)
    expected = [("ann", FIRST, 2, 5, 0), ("bob", FIRST, 1, 1, 1), ("ann", nine, 2, 9, 3), ("bob", nine, 1, 2, 2)]
    assert sold("published") == expected
    assert handle.rejected().to_arrow()["raw"].to_pylist() == ["no record"]
    handle.run(SALES, mode="replay", from_branch="main", branch="again")
    assert sold("again") == expected
    assert handle.fsck().damage == ()
