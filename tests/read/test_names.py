"""Columns may be called anything that a pipeline accepts: a run stores them, and every reader gives them."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.errors import PipelineError
from tests.docs.pages import ROOT
from tests.reference.naming import UNTAKEN

pytestmark = pytest.mark.slow

SCHEMA = {"user": str, "at": datetime, "x": int}
PARTS = 8


def choose_names(part: int) -> list[str]:
    """Names that differ in more than their case."""
    return list({name.lower(): name for name in UNTAKEN[part::PARTS]}.values())


def sums(names: list[str]) -> Pipeline:
    """Two of the names are keys, one a column of the input, all others aggregates."""
    first, second, *others = names
    schema = {**SCHEMA, others[0]: int}
    return Pipeline(
        "names",
        hr.json("landing", schema).event_time("at", bound="0s"),
        key={first: col("user"), second: col("x")},
        what={name: (col(others[0]) + number).sum() for number, name in enumerate(others)},
        where=hr.FixedWindows("1h"),
        when=hr.AfterWatermark(early=hr.AfterCount(1)),
        expectations=[hr.expect("expect_column_values_to_not_be_null", column=others[-1])],
        executor="local",
    )


def land(root: Path, name: str, column: str, *records: tuple[str, str, int, int]) -> None:
    (root / "landing").mkdir(exist_ok=True)
    lines = [{"user": user, "at": f"2026-01-01T{time}:00Z", "x": x, column: value} for user, time, x, value in records]
    (root / "landing" / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def rows_of(view: Any) -> Iterator[list[dict[str, Any]]]:
    """The rows of a view as each reader gives them, by value of its second key."""
    yield view.to_arrow().to_pylist()
    yield view.to_pandas().to_dict("records")
    relation = view.to_duckdb()
    yield [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    yield view.first(10)[0]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_reader_gives_columns_by_their_names(tmp_path: Path, part: int) -> None:
    names = choose_names(part)
    first, second, *others = names
    pipeline = sums(names)
    land(tmp_path, "1.json", others[0], ("ann", "05:01", 1, 10), ("ann", "05:02", 2, 20))
    handle = hr.open(tmp_path.as_uri())[pipeline]
    handle.run()
    land(tmp_path, "2.json", others[0], ("ann", "05:03", 1, 5), ("ann", "07:00", 3, 1), ("ann", "04:00", 9, 1))
    handle.run()
    reader = hr.open(tmp_path.as_uri())["names"]
    two = {first: "ann", second: 2, **{name: 20 + number for number, name in enumerate(others)}}
    for rows in rows_of(reader.current()):
        (found_row,) = [row for row in rows if row[second] == 2]
        assert {name: found_row[name] for name in names} == two
    for name, value in [*two.items()][:: len(two) // 8]:
        kept_rows = reader.current(where=col(name) == value).to_arrow().to_pylist()
        assert two in [{key: row[key] for key in names} for row in kept_rows]
    assert reader.current(columns=[others[-1], second]).columns == (others[-1], second)
    snapshot_before, snapshot_after = (
        snapshot for snapshot in reader.snapshots().to_arrow()["snapshot"].to_pylist()[:2]
    )
    diff = reader.diff(snapshot_before, snapshot_after)
    assert {row.key[second] for row in diff.output.first} >= {1}
    assert others[0] in next(row for row in diff.output.first if row.key[second] == 1).after
    assert reader.explain(("ann", 2), pipeline=pipeline)
    assert reader.state(pipeline=pipeline).to_arrow()[first].to_pylist()


def test_names_that_are_headraces_are_refused() -> None:
    code = (ROOT / "jobs" / "headrace" / "program" / "columns.py").read_text()
    internal = re.findall(r'"(_\w+)"', code)
    assert "_moment" in internal
    for name in internal:
        with pytest.raises(PipelineError, match="names that start with _ belong to Headrace"):
            sums([name, "b", "c", "d"])
        with pytest.raises(PipelineError, match="names that start with _ belong to Headrace"):
            hr.json("landing", {**SCHEMA, name: int})
    with pytest.raises(PipelineError, match="a name is text"):
        sums(["\ud800", "b", "c", "d"])
