"""Readers of a Delta table find decimals: its log would have their bounds as floats, which lie on the wrong side."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import headrace as hr
from headrace.connectors.delta import table as delta_table
from headrace.types import PipelineHandle

pytestmark = pytest.mark.slow
TABLE = "lake/reports/prices"
PRICES = [
    "0",
    "1.5",
    "-0.000000001",
    "9007199254740993.000000001",
    "99999999999999999999999999999.999999999",
    "-99999999999999999999999999999.999999999",
]


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineHandle:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    pipeline = hr.Pipeline(
        "prices",
        hr.json("landing/prices", {"id": int, "price": Decimal, "net": {"price": Decimal}}).arrival_time(),
        rows=["id", "price", "net"],
        id="id",
        executor="local",
        sinks=[hr.delta("reports/prices", connection="lake")],
    )
    return hr.open(tmp_path.as_uri(), create=True)[pipeline]


def deliver_each(prices: PipelineHandle, root: Path) -> None:
    """A file for each price."""
    folder = root / "landing" / "prices"
    folder.mkdir(parents=True)
    for number, price in enumerate(PRICES):
        row = {"id": number, "price": price, "net": {"price": price}}
        (folder / f"{number}.json").write_text(json.dumps(row) + "\n")
        prices.run()
        prices.deliver()


def check_readers(root: Path) -> None:
    table = DeltaTable(root / TABLE)
    dataset, engine = table.to_pyarrow_dataset(), QueryBuilder().register("t", table)
    values = [Decimal(price) for price in PRICES]
    for text, value in zip(PRICES, values, strict=True):
        ids_above = [number for number, other in enumerate(values) if other >= value]
        by_arrow = dataset.to_table(filter=ds.field("price") >= pa.scalar(value, pa.decimal128(38, 9)))
        assert sorted(by_arrow["id"].to_pylist()) == ids_above
        condition = f"price >= cast('{text}' as decimal(38, 9))"
        assert ids(engine.execute(f"select id from t where {condition}").read_all()) == ids_above
        with duckdb.connect() as database:
            query = f"select id from read_parquet({table.file_uris()}) where {condition}"
            assert ids(database.sql(query).to_arrow_table()) == ids_above
        equal = f"net['price'] = cast('{text}' as decimal(38, 9))"
        assert ids(engine.execute(f"select id from t where {equal}").read_all()) == [values.index(value)]


def ids(rows: Any) -> list[int]:
    return sorted(pa.table(rows).column("id").to_pylist())


def test_readers_find_decimals_that_floats_do_not_hold(prices: PipelineHandle, tmp_path: Path) -> None:
    deliver_each(prices, tmp_path)
    check_readers(tmp_path)


def test_files_still_bound_their_decimals(prices: PipelineHandle, tmp_path: Path) -> None:
    deliver_each(prices, tmp_path)
    bounds = set()
    for path in DeltaTable(tmp_path / TABLE).file_uris():
        group = pq.read_metadata(path).row_group(0)
        columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
        bounds.add(columns["price"].statistics.max)
    assert bounds == {Decimal(price) for price in PRICES}


def test_a_table_of_an_older_version_is_mended_by_what_it_gets(
    prices: PipelineHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(delta_table, "_has_unbounded", lambda _: False)
        deliver_each(prices, tmp_path)
    with pytest.raises(AssertionError):
        check_readers(tmp_path)
    prices.deliver(refill=True)
    check_readers(tmp_path)
