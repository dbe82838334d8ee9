"""A result that its type does not hold ends the run, and says which it is and what to do; doing that ends right."""

import json
import os
import random
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col, testing
from headrace import open as open_root
from headrace.errors import DecimalOverflowError, HeadraceError, IntegerOverflowError

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


def run(pipeline: hr.Pipeline, root: Path, name: str) -> None:
    hr.open(root.as_uri())[pipeline].run(executor="local")


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
    with pytest.raises(error) as error_info:
        run(pipeline(what()), tmp_path, "first")
    message = str(error_info.value)
    assert message.startswith(
        "aggregate 'total' of key user='ann', shop='Oslo' in the window from 2026-01-01T10:00:00Z"
    )
    assert value in message
    assert all(way in message for way in (".cast(Decimal)", ".cast(float)", "filter", "correct"))


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
    definition = pipeline(col("amount").sum())
    run(definition, tmp_path, "first")
    land(tmp_path, "b.jsonl", WRONG[1:])
    with pytest.raises(IntegerOverflowError):
        run(definition, tmp_path, "second")
    land(tmp_path, "b.jsonl", [sale("ann", 7, hour=10), sale("zoe", 2)])
    run(definition, tmp_path, "third")
    assert totals(tmp_path) == {"eve": 1, "ann": 7, "zoe": 2}


READ = {"id": int, "t": int, "x": int}
BAD = {"id": 2, "t": 180, "x": 10**18}
GOOD = [{"id": 1, "t": 60, "x": 1}, {"id": 3, "t": 120, "x": 3}]
MANY = (col("x") * 100).cast(datetime)


def one(
    time: hr.Expr = col("t").cast(datetime),  # noqa: B008
    split: hr.Expr | None = None,
    union: hr.FileSource | None = None,
    source: hr.FileSource | None = None,
    **parts: Any,
) -> hr.Pipeline:
    read = (source or hr.json("landing/in", READ)).event_time(time, bound="1h", split=split)
    more = [] if union is None else [union.event_time("t2", bound="1h").named("more")]
    parts = {"key": "id", "what": {"n": hr.count(), "most": col("x").max()}, **parts}
    return hr.Pipeline("p", read, union=more, where=hr.FixedWindows("1h"), when=hr.on_update(), **parts)


OVERFLOWS: dict[str, tuple[Callable[[], hr.Pipeline], str]] = {
    "event time": (lambda: one(MANY), "event time: (x * 100) leaves 64 bits"),
    "key": (lambda: one(key={"k": col("x") * 100}), "key k: (x * 100) leaves 64 bits"),
    "split": (lambda: one(split=(col("x") * 100).cast(str)), "split: (x * 100) leaves 64 bits"),
    "id": (lambda: one(deduplicate=hr.Deduplicate(col("x") * 100, "1h")), "id: (x * 100) leaves 64 bits"),
    "a part of it": (
        lambda: one(key={"k": hr.if_else(col("x") > 5, col("x") * 100, 0)}),
        "key k: (x * 100) leaves 64 bits",
    ),
}


@pytest.mark.parametrize("executor", ["local", "reference"])
@pytest.mark.parametrize("kind", OVERFLOWS)
def test_a_record_that_overflows_before_it_counts_is_a_dead_letter(kind: str, executor: Any) -> None:
    make, reason = OVERFLOWS[kind]
    result = testing.run(make(), [testing.rows(GOOD[0], BAD, GOOD[1]), testing.end()], executor=executor)
    assert [(row["position"], row["reason"]) for row in result.rejected] == [(1, reason)]
    assert sum(row["n"] for row in result.current) == 2


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_what_is_filtered_may_overflow_where_it_would_be_aggregated(executor: Any) -> None:
    definition = one(filter=col("x") < 10**10, what={"most": (col("x") * 1_000_000).max()})
    result = testing.run(definition, [testing.rows(GOOD[0], BAD, GOOD[1]), testing.end()], executor=executor)
    assert sorted(row["most"] for row in result.current) == [1_000_000, 3_000_000]
    assert not result.rejected


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"what": {"most": (col("x") * 1_000_000).max()}}, r"what is aggregated of it \(key id=2, event time .*\)"),
        ({"filter": col("x") * 1_000_000 > 0}, r"its filter \(key id=2, event time .*\)"),
    ],
)
def test_what_counts_and_overflows_names_file_record_and_key(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "landing" / "in"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("".join(json.dumps(row) + "\n" for row in (GOOD[0], BAD)))
    expected_message = rf"landing/in/1\.json, position 1: {message}: \(x \* 1000000\) leaves 64 bits; cast its operands"
    with pytest.raises(IntegerOverflowError, match=expected_message):
        hr.open(tmp_path.as_uri())[one(**parts)].run(executor="local", publish=False)


def test_spark_judges_alike(tmp_path: Path) -> None:
    folder = tmp_path / "landing" / "in"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("".join(json.dumps(row) + "\n" for row in (GOOD[0], BAD, GOOD[1])))
    definition = one(MANY, key={"k": col("x") + 1}, filter=col("x") < 10**10, what={"most": (col("x") * 10**6).max()})
    hr.open(tmp_path.as_uri())[definition].run(executor="spark")
    handle = open_root(tmp_path.as_uri())["p"]
    assert sorted(row["most"] for row in handle.current().to_json()) == [1_000_000, 3_000_000]
    assert [row["reason"] for row in handle.rejected().to_json()] == ["event time: (x * 100) leaves 64 bits"]


LARGE_INTS = (0, 1, -1, 7, 2**31, 2**61, 2**62, -(2**62), 2**63 - 1, -(2**63), None)


def expression(chance: random.Random, *names: str) -> hr.Expr:
    """An integer that overflows now and then."""
    expression_made: hr.Expr = col(chance.choice(names))
    for _ in range(chance.randrange(3)):
        other: Any = chance.choice([col(chance.choice(names)), 2, 3, 2**33, -1])
        kind = chance.randrange(5)
        expression_made = [
            lambda m, o: m + o,
            lambda m, o: m - o,
            lambda m, o: m * o,
            lambda m, _: m.abs(),
            hr.coalesce,
        ][kind](expression_made, other)
    return expression_made


def random_pipeline(chance: random.Random) -> hr.Pipeline:
    """Over two inputs, the second in another form; what counts cannot overflow, but for sums of what was filtered."""
    schema = {"a": int, "b": int, "at": datetime}
    first = hr.json("landing/first", schema).event_time(
        col("at").plus(seconds=expression(chance, "a", "b") % 3600) if chance.random() < 0.7 else "at",
        bound="1d",
        split=expression(chance, "a", "b").cast(str) if chance.random() < 0.5 else None,
    )
    second = hr.json("landing/second", {"c": int, "b": int, "at": datetime}).event_time("at", bound="1d")
    mapped_input = second.named("second", columns={"a": expression(chance, "c", "b")})
    small = col("a").between(-1000, 1000) & col("b").between(-1000, 1000)
    return hr.Pipeline(
        "mixed",
        first,
        union=[mapped_input],
        key={"k": expression(chance, "a", "b")},
        filter=small,
        deduplicate=hr.Deduplicate(expression(chance, "a", "b"), "1d") if chance.random() < 0.3 else None,
        what={"n": hr.count(), "most": (col("a") * 2**40 + col("b")).max()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting("1d"),
        then=[
            hr.Aggregation(
                key={"far": col("most") * chance.choice([1, 2**13, 2**21])},
                what={"n": col("n").sum()},
                where=hr.FixedWindows("1d"),
            )
        ],
        executor="local",
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "4"))))
def test_random_pipelines_reject_what_the_reference_rejects(seed: int) -> None:
    chance = random.Random(seed)
    definition = random_pipeline(chance)
    steps = []
    for _ in range(2):
        records = [
            {"a": chance.choice(LARGE_INTS), "b": chance.choice(LARGE_INTS), "at": f"{chance.randrange(24):02}:00"}
            for _ in range(12)
        ]
        steps.append(testing.rows(*records))
        others = [{"c": row["a"], "b": row["b"], "at": row["at"]} for row in records]
        steps.append(testing.rows(*others, of="second"))
    outcomes = []
    for executor in ("local", "reference"):
        result = testing.run(definition, [*steps, testing.end()], executor=executor)  # type: ignore[arg-type]
        letters = sorted((row["input"], str(row["position"]), row["reason"]) for row in result.rejected)
        panes = [(pane.step, str(pane.key), str(pane.values), pane.is_retraction) for pane in result.panes]
        outcomes.append((letters, panes))
    assert outcomes[0] == outcomes[1]
