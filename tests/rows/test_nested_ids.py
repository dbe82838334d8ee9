"""Duplicates that are told by a struct, a map or a list as a whole: equal ones are of one record, whatever reads it."""

import json
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import GenericAlias
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.distribute.spark.application import SparkSession
from headrace.errors import PipelineError
from headrace.kernel.columns import arrow_type
from headrace.kernel.keys import to_comparable_bytes
from headrace.model.arguments import Arguments
from headrace.model.expressions.data_types import column_type
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.testing import rows, run
from tests.process.executors import SparkStandIn
from tests.reference.strategies import examples
from tests.rows.orders import Orders

KEY: dict[str, Any] = {"shop": str, "place": {"no": int, "names": list[str]}, "price": Decimal}
SCHEMA: dict[str, Any] = {
    "key": KEY,
    "tags": dict[str, int],
    "lines": GenericAlias(list, ({"sku": str, "marks": dict[str, bool]},)),
    "n": int,
    "sign": int,
    "at": datetime,
}
SOURCE = hr.json("landing/orders", SCHEMA).event_time("at", bound="0s")
SIGNED_SOURCE = hr.json("landing/orders", SCHEMA, changelog=col("sign")).event_time("at", bound="0s")
EXPLODED_SOURCE = hr.json("landing/orders", SCHEMA, explode="lines").event_time("at", bound="0s")
HORIZON = 10
IDS: dict[str, tuple[Any, hr.Expr, str]] = {
    "struct": (SOURCE, col("key"), "key"),
    "struct in a struct": (SOURCE, col("key").field("place"), "key.place"),
    "map": (SOURCE, col("tags"), "tags"),
    "list": (SOURCE, col("lines"), "lines"),
    "item": (SOURCE, col("lines").item(0), "lines"),
    "signed": (SIGNED_SOURCE, col("key"), "key"),
    "exploded": (EXPLODED_SOURCE, col("lines"), "lines"),
}

_KEYS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "shop": st.sampled_from([None, "", "a", "é"]),
        "place": st.none()
        | st.fixed_dictionaries(
            {}, optional={"no": st.sampled_from([None, 0, 1]), "names": st.sampled_from([None, [], [None], ["", "a"]])}
        ),
        "price": st.sampled_from([None, 0, "1.50", 1.5]),
    },
)
_TAGS = st.none() | st.permutations([("a", 1), ("b", None), ("c", 0)]).flatmap(
    lambda pairs: st.integers(0, 3).map(lambda size: dict(pairs[:size]))
)
_LINES = st.none() | st.lists(
    st.none()
    | st.fixed_dictionaries(
        {}, optional={"sku": st.sampled_from([None, "s"]), "marks": st.sampled_from([None, {}, {"b": True, "a": None}])}
    ),
    max_size=2,
)


def record(n: int, minute: int, sign: int = 1, **values: Any) -> dict[str, Any]:
    moment = f"2026-05-01T00:{minute:02}:00Z"
    return {**dict.fromkeys(("key", "tags", "lines")), **values, "n": n, "sign": sign, "at": moment}


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Few of whose ids differ."""
    return [
        record(
            n, draw(st.integers(0, 20)), draw(st.sampled_from([1, 1, -1])),
            key=draw(_KEYS), tags=draw(_TAGS), lines=draw(_LINES),
        )
        for n in range(draw(st.integers(1, 12)))
    ]  # fmt: skip


def distinct_records(name: str, **more: Any) -> hr.Pipeline:
    source, id_, _ = IDS[name]
    deduplicate = hr.Deduplicate(id_, f"{HORIZON}m")
    return hr.Pipeline("orders", source, rows=["n"], deduplicate=deduplicate, executor="local", **more)


@pytest.mark.parametrize("name", IDS)
@given(landed_orders=records(), cuts=st.lists(st.integers(0, 12), max_size=3))
@settings(examples(40, fewest=7), suppress_health_check=list(HealthCheck))
def test_the_first_of_each_counts_as_in_the_reference(
    name: str, landed_orders: list[dict[str, Any]], cuts: list[int]
) -> None:
    ends = [*sorted({min(cut, len(landed_orders)) for cut in cuts} - {0}), len(landed_orders)]
    steps = [rows(*landed_orders[begin:end]) for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    local, reference = (run(distinct_records(name), steps, executor=one) for one in ("local", "reference"))
    assert [row_texts(part) for part in (local.panes, local.late)] == [
        row_texts(part) for part in (reference.panes, reference.late)
    ]
    assert Counter(row["reason"] for row in local.rejected) == Counter(row["reason"] for row in reference.rejected)


COMPARED_COLUMNS = ("n", "event_time", "timing", "is_retraction", "reason")


def row_texts(parts: Any) -> Counter[str]:
    return Counter(
        str(
            [
                (name, str(value)[:19])
                for name, value in sorted(getattr(part, "row", part).items())
                if name in COMPARED_COLUMNS
            ]
        )
        for part in parts
    )


SPELLINGS: list[list[dict[str, Any]]] = [
    [
        record(1, 0, key={"shop": "a", "price": 1.5}),
        record(2, 1, key={"price": "1.50", "shop": "a", "place": None, "else": 1}),
        record(3, 2, key={"shop": "a", "place": {}}),
        record(4, 3, key={}),
        record(5, 4, key=None),
    ],
    [
        record(6, 5, key={"shop": None, "place": None, "price": None}),
        record(7, 6, key={"shop": "a", "place": {"no": None}}),
        record(8, 7, key={"shop": "a", "place": {"names": []}}),
        record(9, 8, key={"shop": "", "place": {"names": []}}),
        record(10, 9, key={"shop": "a", "price": 1.5}),
    ],
    [record(11, 40, key={"shop": "b"}), record(12, 15, key={"shop": "a", "price": 1.5})],
    [record(13, 41, key={"shop": "a", "price": 1.5}), record(14, 42, key={"shop": "b"})],
]


def standing(orders: Orders, pipeline: hr.Pipeline, **options: Any) -> set[int]:
    return {row["n"] for row in orders.handle(pipeline).current(columns=["n"], **options).to_json()}


@pytest.mark.parametrize("parts", [1, 3])
def test_runs_and_a_replay_remember_them(tmp_path: Path, parts: int) -> None:
    orders, pipeline = Orders(tmp_path), distinct_records("struct")
    with SparkStandIn.stand_in():
        for step in SPELLINGS:
            orders.run(pipeline, *step, executor="local" if parts == 1 else "spark", publish=True)
        assert standing(orders, pipeline) == expected_numbers()
        orders.handle(pipeline).backfill(branch="again", executor="local" if parts > 1 else "spark")
    assert standing(orders, pipeline, at="again") == expected_numbers()
    (dead,) = orders.handle(pipeline).rejected().to_json()
    assert (dead["reason"], json.loads(dead["raw"])["n"]) == ("id is null", 5)


def expected_numbers() -> set[int]:
    steps = [rows(*step) for step in SPELLINGS]
    return {pane.values["n"] for pane in run(distinct_records("struct"), steps, executor="reference").panes}


def test_equal_ones_are_of_one_record_however_they_are_written() -> None:
    """12 comes as the watermark is at 9 minutes, and 13 once that is beyond the horizon of 12."""
    assert expected_numbers() == {1, 3, 4, 8, 9, 11, 13}


@pytest.mark.spark
def test_runs_on_spark_tell_the_same(tmp_path: Path, spark: SparkSession) -> None:
    orders, pipeline = Orders(tmp_path), distinct_records("struct")
    for number, step in enumerate(SPELLINGS[:2]):
        orders.land(str(number), *step)
        process(pipeline, orders.root, RunOptions(str(number), executor="spark"), spark=spark)
    assert standing(orders, pipeline, at="main") == {1, 3, 4, 8, 9}


@pytest.mark.parametrize("kind", [{"x": float}, dict[str, float], list[float], {"a": {"b": list[float]}}])
def test_a_float_in_it_is_refused(kind: Any) -> None:
    source = hr.json("landing", {"id": kind, "at": datetime}).event_time("at", bound="0s")
    with pytest.raises(PipelineError, match="a float in it does not compare exactly; declare that as Decimal"):
        hr.Pipeline("orders", source, rows=["at"], deduplicate=hr.Deduplicate("id", "1h"))


STORED_BYTES = [
    (None, None),
    ({}, "01" + "00" + "0" * 16 + "00" + ("00" + "0" * 16) * 2 + "00" + "0" * 32),
    (
        {"shop": "ab", "place": {"no": -1, "names": ["x", None]}, "price": Decimal("1.5")},
        "01"  # it is there
        "01" "0200000000000000" "6162"  # shop
        "01" "01" "ffffffffffffffff"  # place, and its no
        "01" "0200000000000000" "01" "0100000000000000" "78" "00" "0000000000000000"  # names
        "01" "002f685900000000" "0000000000000000",  # 1.5 in billionths
    ),
]  # fmt: skip


@pytest.mark.parametrize(("value", "stored_hex"), STORED_BYTES)
def test_bytes_that_are_stored_never_change(value: Any, stored_hex: str | None) -> None:
    kind = column_type(Arguments("KEY"), "key", KEY)
    (octets,) = to_comparable_bytes(pa.array([value], arrow_type(kind))).to_pylist()
    assert (None if octets is None else octets.hex()) == stored_hex
