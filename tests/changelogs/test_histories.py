"""Histories of rows: what is added, changed and withdrawn, in any order and cut anywhere, gives what the rows that are
left give (semantics 14.2). The reference and the kernel give the same panes on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.testing import end, rows, run
from tests.own_combiners import Longest
from tests.panes import same
from tests.reference.strategies import examples

SCHEMA = {"id": int, "shop": str, "amount": int, "price": Decimal, "share": float, "at": datetime}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Row = Mapping[str, Any]
Change = tuple[Row | None, Row | None]
"""What a row was, and what it is; None: it was not there, it is not there."""

WHAT = {
    "n": hr.count(),
    "total": col("amount").sum(),
    "worst": col("amount").max(),
    "best": col("price").min(),
    "price": col("price").sum(),
    "mean": col("amount").mean(),
    "spread": col("amount").variance(),
    "shares": col("share").collect(),
    "last": col("amount").last(),
    "ids": col("id").distinct(),
    "near": col("id").approx_distinct(),
    "top": col("amount").top(2),
    "median": col("amount").quantile(0.5),
    "longest": col("shop").combine(Longest()),
    "both": col("amount").pairs(col("id"), outer="both"),
    "rate": col("total") / col("n"),
}
DAILY = hr.Aggregation(
    key="shop", what={"of_hours": col("total").sum(), "most": col("worst").max()}, where=hr.FixedWindows("1d")
)


def sign_of_change(change: Change) -> list[dict[str, Any]]:
    row_before, row_after = change
    return [{**row, "sign": sign} for row, sign in ((row_before, -1), (row_after, 1)) if row is not None]


def rows_of_delta(change: Change) -> list[dict[str, Any]]:
    names = ("update_preimage", "update_postimage") if None not in change else ("delete", "insert")
    return [{**row, "_change_type": name} for row, name in zip(change, names, strict=True) if row is not None]


def envelope(change: Change) -> list[dict[str, Any]]:
    row_before, row_after = change
    op = "u" if row_before and row_after else "c" if row_after else "d"
    return [{"payload": {"op": op, "before": row_before, "after": row_after}}]


FORMS: list[tuple[dict[str, Any], Any, Any]] = [
    ({**SCHEMA, "sign": int}, col("sign"), sign_of_change),
    (SCHEMA, hr.delta_change_type(), rows_of_delta),
    (SCHEMA, hr.debezium_envelope(within="payload"), envelope),
]

_ROWS = st.builds(
    lambda number, shop, amount, cents, share, minutes: {
        "id": number,
        "shop": shop,
        "amount": amount,
        "price": Decimal(cents) / 100,
        "share": share,
        "at": BEGIN + timedelta(minutes=minutes),
    },
    st.integers(0, 3),
    st.sampled_from(["a", "b"]),
    st.integers(-4, 9),
    st.integers(-300, 300),
    st.sampled_from([0.1, 0.2, -1e18, 1e18, 3.5]),
    st.integers(0, 300),
)


@dataclass(frozen=True)
class History:
    """Epochs of changes, and the rows that are there after them."""

    epochs: Sequence[Sequence[Change]]
    left: Sequence[Row]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Rows that come, are changed, and go; changes come in any order, so that rows are withdrawn before they came."""
    changes: list[Change] = []
    left: list[Row] = []
    for versions in draw(st.lists(st.lists(_ROWS, min_size=1, max_size=4), min_size=1, max_size=5)):
        changes += zip([None, *versions], versions, strict=False)
        if draw(st.booleans()):
            changes.append((versions[-1], None))
        else:
            left.append(versions[-1])
    changes = draw(st.permutations(changes))
    cuts = sorted(draw(st.lists(st.integers(0, len(changes)), max_size=3)))
    edges = [0, *cuts, len(changes)]
    return History([changes[begin:end] for begin, end in pairwise(edges)], left)


def pipeline(schema: Mapping[str, Any], changelog: Any, parts: Mapping[str, Any]) -> hr.Pipeline:
    source = hr.json("landing/orders", schema, changelog=changelog)
    return hr.Pipeline("orders", source.event_time("at", bound="30d"), key="shop", how=hr.retracting("30d"), **parts)


PARTS = st.fixed_dictionaries(
    {
        "what": st.just(WHAT),
        "where": st.sampled_from([hr.FixedWindows("1h"), hr.SlidingWindows("2h", "1h"), hr.GlobalWindows()]),
        "when": st.sampled_from([hr.on_update(), hr.Repeatedly(hr.AfterCount(3))]),
        "filter": st.sampled_from([None, None, col("amount") > -2]),
        "having": st.sampled_from([None, None, col("n") > 1]),
        "then": st.sampled_from([(), (), (DAILY,)]),
    }
)


@given(histories(), PARTS, st.sampled_from(FORMS))
@settings(examples(14), suppress_health_check=list(HealthCheck))
def test_what_is_left_counts(history: History, parts: Mapping[str, Any], form: tuple[Any, Any, Any]) -> None:
    schema, changelog, records_of_change = form
    if isinstance(parts["where"], hr.GlobalWindows):
        parts = {**parts, "then": ()}  # no day has the end of time
    signed_pipeline, plain = pipeline(schema, changelog, parts), pipeline(SCHEMA, None, parts)
    steps = [
        rows(*(record for change in epoch for record in records_of_change(change))) for epoch in history.epochs if epoch
    ]
    on_kernel = run(signed_pipeline, [*steps, end()])
    on_reference = run(signed_pipeline, [*steps, end()], executor="reference")
    expected = run(plain, [rows(*history.left), end()], executor="reference")
    assert same(_rows_of(on_kernel.panes), _rows_of(on_reference.panes))
    assert same(_values_by_pane(on_kernel), _values_by_pane(expected))
    assert on_kernel.rejected == on_kernel.late == []


def _rows_of(panes: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(pane.row.values()) for pane in panes)


def _values_by_pane(result: Any) -> tuple[tuple[Any, ...], ...]:
    panes = sorted(result.current, key=lambda pane: (str(pane.key), str(pane.window)))
    return tuple((str(pane.key), str(pane.window), *pane.values.values()) for pane in panes)
