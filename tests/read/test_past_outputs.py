"""Outputs that are gone or have other names now: older snapshots, tags and times still have them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import UnknownOutputError

pytestmark = pytest.mark.slow  # whole runs

EARLY: dict[str, Any] = {"key": "k", "where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1d")}
COUNT, MOST, SUM = ({"n": hr.count()}, {"m": col("v").max()}, {"s": col("v").sum()})


class Shop:
    """A pipeline that loses an output and renames another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.files = folder, folder.as_uri(), 0
        (folder / "landing/s").mkdir(parents=True)
        self.run(a=hr.Output(what=COUNT, **EARLY), b=hr.Output(what=MOST, **EARLY), z=hr.Output(what=SUM, **EARLY))
        self.handle.tag("old")
        self.first, self.time_of_first = str(self.handle.show("main").snapshot_id), datetime.now(UTC)
        self.run(a=hr.Output(what=COUNT, **EARLY), b2=hr.Output(what=MOST, formerly="b", **EARLY))

    def run(self, **outputs: hr.Output) -> None:
        self.files += 1
        record = {"k": "a", "at": "2025-05-01T09:00:00Z", "v": self.files}
        (self.folder / f"landing/s/{self.files}.json").write_text(json.dumps(record) + "\n")
        source = hr.json("landing/s", {"k": str, "at": datetime, "v": int}).event_time("at", bound="1h")
        self.handle = hr.open(self.root, create=True)[hr.Pipeline("shop", source, outputs=outputs, executor="local")]
        self.handle.run()

    @property
    def reader(self) -> hr.types.PipelineHandle:
        """Who knows no definition."""
        return hr.open(self.root)["shop"]

    def value(self, output: str, column: str, ref: Any) -> int:
        (row,) = self.reader[output].current(at=ref).to_arrow().to_pylist()
        return int(row[column])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


def check(shop: Shop, *names: tuple[str, str]) -> None:
    for output, column in names:
        for ref in ("old", shop.first, shop.time_of_first, shop.time_of_first.isoformat()):
            assert shop.value(output, column, ref) == 1, (output, ref)


def test_what_older_snapshots_have_is_read_there(shop: Shop) -> None:
    check(shop, ("a", "n"), ("b", "m"), ("b2", "m"), ("z", "s"))
    assert shop.value("b2", "m", "main") == 2


def test_where_it_is_not_the_snapshot_says_what_it_has(shop: Shop) -> None:
    for output in ("z", "b"):
        for ref in (None, "main"):
            with pytest.raises(UnknownOutputError, match=rf"has no output '{output}': it has the outputs a, b2"):
                shop.value(output, "s", ref)


def test_what_no_snapshot_has_is_a_mistake(shop: Shop) -> None:
    with pytest.raises(UnknownOutputError, match=r"no output 'b3'; it has the outputs a, b2"):
        shop.reader["b3"]


def test_after_a_rollback_to_the_beginning_tags_have_it_still(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.reader.rollback(to="beginning")
    check(shop, ("a", "n"), ("b", "m"), ("z", "s"))
    with pytest.raises(UnknownOutputError, match=r"has no output 'b2': it has the outputs a, b, z"):
        shop.value("b2", "m", "old")
    with pytest.raises(UnknownOutputError, match="it has no snapshot now"):
        shop.reader["zz"]
