"""The recipe for feeds of upserts (docs/how-to/change-data.md) keeps rows together: NULLs and updates of one moment."""

import random
from collections import Counter
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.testing import rows, run
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "change-data.md"
SHOPS = ("oslo", "rome", "", "1", None)


@pytest.fixture(scope="module")
def recipe() -> hr.Pipeline:
    """The pipeline as the page has it."""
    (code,) = [block.text for block in blocks(PAGE) if block.language == "python" and "result = run(" in block.text]
    scope: dict[str, Any] = {}
    exec(code.partition("result = run(")[0], scope)
    definition: hr.Pipeline = scope["sales"]
    return definition


def upserts(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "id": chance.randrange(4),
            "version": version,
            "shop": chance.choice(SHOPS),
            "amount": chance.choice([None, 0, -7, 15, 4 * 10**17]),
            "gone": chance.random() < 0.2,
            "at": f"2026-05-01T09:{chance.randrange(5):02}:00Z",
        }
        for version in range(20)
    ]


def truth(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """By shop, the total of what is known, and how many orders there are."""
    newest: dict[int, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["version"]):
        newest[row["id"]] = row
    left = [row for row in newest.values() if not row["gone"]]
    orders = Counter("none" if row["shop"] is None else row["shop"] for row in left)
    return {
        shop: (
            sum(row["amount"] or 0 for row in left if (row["shop"] if row["shop"] is not None else "none") == shop),
            n,
        )
        for shop, n in orders.items()
    }


@pytest.mark.parametrize("executor", ["local", "reference"])
@pytest.mark.parametrize("seed", range(6))
def test_the_recipe_keeps_rows_together(recipe: hr.Pipeline, seed: int, executor: Any) -> None:
    chance = random.Random(seed)
    given_steps = upserts(chance)
    chance.shuffle(given_steps)
    cuts = sorted(chance.sample(range(1, len(given_steps)), 4))
    parts = [given_steps[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(given_steps)], strict=True)]
    result = run(recipe, [rows(*part) for part in parts], executor=executor, output="by_shop")
    totals = {row["shop"]: (row["total"] or 0, row["orders"]) for row in result.current if row["orders"]}
    assert totals == truth(given_steps)


def test_check_says_where_rows_may_come_apart(recipe: hr.Pipeline) -> None:
    pipeline = hr.Pipeline(
        "apart",
        hr.json("landing/apart", {"id": int, "shop": str, "amount": int}).arrival_time(),
        key="id",
        what={"shop": col("shop").last(), "amount": col("amount").last(), "once": col("amount").first()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
    )
    (note,) = [note for note in hr.check(pipeline).pipelines[0].notes if "never was" in note]
    assert note.startswith("aggregates shop, amount are each the last value that is not NULL")
    assert not [note for note in hr.check(recipe).pipelines[0].notes if "never was" in note]
