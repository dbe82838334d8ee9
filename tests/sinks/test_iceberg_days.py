"""Days before 1970 in a table of Iceberg that is partitioned by day: pyiceberg puts their last second into the next."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import DayTransform

import headrace as hr
from headrace.types import PipelineHandle
from tests.sinks.worlds import IcebergWorld

pytestmark = pytest.mark.slow
LAST = datetime(1969, 11, 30, 23, 59, 59, 500_000, UTC)
TIMES = (LAST, datetime(1969, 11, 30, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC))


@pytest.fixture
def newest(tmp_path: Path) -> PipelineHandle:
    pipeline = hr.Pipeline(
        "newest",
        hr.json("landing", {"id": int, "value": int, "at": datetime}).event_time("at", bound="1h"),
        rows=["value"],
        key="id",
        take=hr.newest("value"),
        id="id",
        executor="local",
        sinks=[hr.iceberg("reports.sales", connection="lake")],
    )
    return hr.open(tmp_path.as_uri(), create=True)[pipeline]


def deliver_values(newest: PipelineHandle, root: Path, value: int) -> None:
    """A row of each time, all with one value."""
    rows = [{"id": number, "value": value, "at": time.isoformat()} for number, time in enumerate(TIMES)]
    (root / "landing").mkdir(exist_ok=True)
    (root / "landing" / f"{value}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    newest.run()
    newest.deliver()


def held_values(lake: IcebergWorld) -> list[tuple[int, int]]:
    return sorted((row["id"], row["value"]) for row in lake.rows())


def test_each_row_is_found_by_its_time(newest: PipelineHandle, lake: IcebergWorld, tmp_path: Path) -> None:
    deliver_values(newest, tmp_path, 1)
    with lake.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        for number, time in enumerate(TIMES):
            matches = table.scan(row_filter=EqualTo("event_time", time.isoformat())).to_arrow()
            assert matches.column("id").to_pylist() == [number]


def test_rows_that_change_are_there_once(newest: PipelineHandle, lake: IcebergWorld, tmp_path: Path) -> None:
    for value in (1, 2):
        deliver_values(newest, tmp_path, value)
        assert held_values(lake) == [(number, value) for number in range(len(TIMES))]


def test_rows_that_an_older_version_put_into_the_next_day_are_found(
    newest: PipelineHandle, lake: IcebergWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        import headrace.connectors.iceberg.table  # noqa: F401 (which mends it)

        older.setattr(DayTransform, "pyarrow_transform", original_of(DayTransform.pyarrow_transform))
        deliver_values(newest, tmp_path, 1)
    with lake.catalog() as catalog:
        table = catalog.load_table("reports.sales")
        assert table.scan(row_filter=EqualTo("event_time", LAST.isoformat())).to_arrow().num_rows == 0
    deliver_values(newest, tmp_path, 2)
    assert held_values(lake) == [(number, 2) for number in range(len(TIMES))]


def original_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """As pyiceberg has it."""
    original: Callable[..., Any] = function.__wrapped__  # type: ignore[attr-defined]
    return original
