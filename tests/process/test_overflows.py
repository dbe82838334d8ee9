"""A result that its type does not hold ends the run, and says which it is and what to do; doing that ends right."""

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import DecimalOverflowError, HeadraceError, IntegerOverflowError
from headrace.runs.client.deployment import open as open_root
from headrace.runs.options import RunOptions
from headrace.runs.process import process

pytestmark = pytest.mark.slow
SCHEMA = {"user": str, "shop": str, "at": datetime, "amount": int, "price": Decimal}
TOP = 2**63 - 1
LARGE = "9" * 29


def pipeline(what: hr.Aggregate, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline(
        "sales",
        hr.json("landing/sales", SCHEMA).event_time("at", bound="10m"),
        key=["user", "shop"],
        what={"n": hr.count(), "total": what},
        where=hr.FixedWindows("1h"),
        when=hr.Repeatedly(hr.AfterCount(1)),
        **parts,
    )


def land(root: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder = root / "landing" / "sales"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def sale(user: str, amount: int, price: str = "1", hour: int = 9) -> dict[str, Any]:
    return {"user": user, "shop": "Oslo", "at": f"2026-01-01T{hour:02}:10:00Z", "amount": amount, "price": price}


def run(made: hr.Pipeline, root: Path, name: str) -> None:
    process(made, root.as_uri(), RunOptions(name, executor="local", publish=True))


def totals(root: Path) -> dict[str, Any]:
    return {row["user"]: row["total"] for row in open_root(root.as_uri())["sales"].current().to_arrow().to_pylist()}


WRONG = [sale("eve", 1), sale("ann", TOP, LARGE, hour=10), sale("ann", 1, LARGE, hour=10), sale("zoe", 2)]
CASES: dict[str, tuple[Callable[[], hr.Aggregate], type[HeadraceError], str]] = {
    "integers": (
        lambda: col("amount").sum(),
        IntegerOverflowError,
        "a sum is 9223372036854775808, which leaves 64 bits",
    ),
    "decimals": (lambda: col("price").sum(), DecimalOverflowError, "a sum leaves 38 digits"),
}


@pytest.mark.parametrize("kind", CASES)
def test_it_says_which_result_and_what_to_do(tmp_path: Path, kind: str) -> None:
    what, error, value = CASES[kind]
    land(tmp_path, "a.jsonl", WRONG)
    with pytest.raises(error) as caught:
        run(pipeline(what()), tmp_path, "first")
    said = str(caught.value)
    assert said.startswith("aggregate 'total' of key user='ann', shop='Oslo' in the window from 2026-01-01T10:00:00Z")
    assert value in said
    assert all(way in said for way in (".cast(Decimal)", ".cast(float)", "filter", "correct"))


@pytest.mark.parametrize(
    ("what", "parts", "ann"),
    [
        (lambda: col("amount").cast(Decimal).sum(), {}, Decimal(TOP + 1)),
        (lambda: col("amount").cast(float).sum(), {}, float(TOP + 1)),
        (lambda: col("amount").sum(), {"filter": col("amount") < 1_000_000}, 1),
    ],
)
def test_each_way_out_that_changes_the_pipeline_is_one(
    tmp_path: Path, what: Callable[[], hr.Aggregate], parts: dict[str, Any], ann: object
) -> None:
    land(tmp_path, "a.jsonl", WRONG)
    with pytest.raises(IntegerOverflowError):
        run(pipeline(col("amount").sum()), tmp_path, "first")
    run(pipeline(what(), **parts), tmp_path, "second")
    assert totals(tmp_path) == {"eve": 1, "ann": ann, "zoe": 2}


def test_so_is_a_correction(tmp_path: Path) -> None:
    land(tmp_path, "a.jsonl", [sale("eve", 1)])
    made = pipeline(col("amount").sum())
    run(made, tmp_path, "first")
    land(tmp_path, "b.jsonl", WRONG[1:])
    with pytest.raises(IntegerOverflowError):
        run(made, tmp_path, "second")
    land(tmp_path, "b.jsonl", [sale("ann", 7, hour=10), sale("zoe", 2)])
    run(made, tmp_path, "third")
    assert totals(tmp_path) == {"eve": 1, "ann": 7, "zoe": 2}
