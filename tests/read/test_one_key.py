"""One key of a million: what a cold process asks of the store."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.read.pipeline_reader import PipelineReader
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import LocalStore

KEYS, KEY = 1_000_000, "user-0314159"
HOUR = 3_600_000_000


class Counting(LocalStore):
    """A store that counts the bytes that it gives."""

    bytes_asked = 0

    def read(self, path: str) -> bytes:
        return self._note_bytes(super().read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._note_bytes(super().read_range(path, start, length))

    def sha256(self, path: str) -> tuple[int, str]:
        answer = super().sha256(path)
        self.bytes_asked += answer[0]  # a local file is read where it is
        return answer

    def _note_bytes(self, data: bytes) -> bytes:
        self.bytes_asked += len(data)
        return data


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pipeline, Path]]:
    """A view of a million rows; some records of each twentieth key came too late."""
    root = tmp_path_factory.mktemp("million")
    landing = root / "landing" / "sales"
    landing.mkdir(parents=True)
    source = np.random.default_rng(1)
    sale = hr.parquet("landing/sales", {"user": str, "at": datetime, "amount": int})
    pipeline = Pipeline(
        "sales",
        sale.event_time("at", bound="0s"),
        key="user",
        what={"sales": hr.count(), "total": col("amount").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.AfterWatermark(early=hr.AfterCount(1)),
        how=hr.retracting(),
    )
    for name, start, step in (("a", 480_000 * HOUR, 1), ("b", 479_000 * HOUR, 20)):
        users = [f"user-{number:07}" for number in source.permutation(KEYS) if number % step == 314_159 % step]
        times = pa.array(start + source.integers(0, HOUR, len(users)), pa.timestamp("us", "UTC"))
        amounts = source.integers(0, 1_000, len(users))
        pq.write_table(pa.table({"user": users, "at": times, "amount": amounts}), landing / f"{name}.parquet")
    options = RunOptions(run_id="r", executor="local", files_per_epoch=1)
    result = process(pipeline, root.as_uri(), options)
    assert (result.counts["panes"], result.counts["late_dropped"]) == (KEYS, KEYS // 20)
    yield pipeline, root


def reader(root: Path) -> tuple[Counting, PipelineReader]:
    """One that has seen nothing yet."""
    store = Counting(root)
    return store, PipelineReader(Catalog(store, "sales"))


@pytest.mark.slow
def test_a_key_of_a_million_asks_for_a_twentieth_of_the_bytes(million: tuple[Pipeline, Path]) -> None:
    _, root = million
    whole, all_rows = reader(root)
    assert len(all_rows.current(at="main").first(1)[0]) == 1
    wheres = (f"user = '{KEY}'", col("user") == KEY, f"\"user\" in ('{KEY}') and window_start < now()")
    for where in wheres:
        for view in ("current", "panes"):
            store, one = reader(root)
            (row,) = getattr(one, view)(at="main", where=where).first(5)[0]
            assert (row["user"], row["sales"]) == (KEY, 1)
            assert store.bytes_asked * 20 < whole.bytes_asked, (view, where, store.bytes_asked, whole.bytes_asked)
            assert store.requests.snapshot()["get"] < 8
    store, late = reader(root)
    late_bytes = sum(each.stat().st_size for each in (root / "sales" / "data").rglob("late-*"))
    assert late.late(at="main", where=col("user") == KEY).count() == 1
    assert store.bytes_asked < late_bytes / 2, "of 50,000 rows there are four chunks"
    store, none = reader(root)
    assert none.current(at="main", where="window_end < '2020-01-01'").count() == 0
    assert store.bytes_asked < 50_000, "no file of rows is read"


@pytest.mark.slow
def test_explaining_a_key_of_a_million_asks_for_a_twentieth_of_the_bytes(million: tuple[Pipeline, Path]) -> None:
    pipeline, root = million
    size = sum(file.stat().st_size for file in (root / "sales" / "data").rglob("*.parquet"))
    store, one = reader(root)
    text = str(one.explain(KEY, pipeline=pipeline))
    assert "user" in text
    assert store.bytes_asked * 20 < size, (store.bytes_asked, size)
