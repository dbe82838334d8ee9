"""Users' tests of rows, in Python and in YAML, on the kernel and on the interpreter."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import assert_panes, rows, run, watermark
from headrace.testing.suite import Verdict, find_tests, run_tests
from tests.rows.orders import ORDERS, order, signed_rows
from tests.rows.orders import rows as rows_of_orders

EXECUTORS = pytest.mark.parametrize("executor", ["local", "reference"])


@EXECUTORS
def test_rows_have_columns_event_time_and_timing(executor: str) -> None:
    steps = [rows(order("a", 2, 90)), watermark("2026-05-01T01:00:00Z"), rows(order("b", None, 3), order("a", 2, 90))]
    result = run(rows_of_orders(), steps, executor=executor)
    expected = [
        {"id": "a", "double": 4, "event_time": "2026-05-01T01:30:00Z", "timing": "ON_TIME"},
        {"id": "b", "double": None, "event_time": "2026-05-01T00:03:00Z", "timing": "LATE"},
        {"id": "a", "shop": "ONE"},
    ]
    assert_panes(result, expected)
    assert result.current.only("id") == [{"id": "b"}, {"id": "a"}, {"id": "a"}]
    assert repr(result.panes[1]) == "<LATE row 2026-05-01T00:03:00Z id='b' shop='ONE' double=None>"


@EXECUTORS
def test_a_withdrawal_is_expected_as_one(executor: str) -> None:
    steps = [
        rows(order("a", sign=1), order("a", sign=1), order("b", sign=-1)),
        rows(order("a", sign=-1), order("b", sign=1)),
    ]
    result = run(signed_rows(), steps, executor=executor)
    assert [pane["is_retraction"] for pane in result.panes] == [False, False, True, True, False]
    assert result.current.only("id") == [{"id": "a"}]
    assert result.steps[0].current.only("id") == [{"id": "a"}, {"id": "a"}]


@EXECUTORS
def test_what_cannot_give_a_column_is_rejected(executor: str) -> None:
    result = run(rows_of_orders(), [rows(order("a", 2**62))], executor=executor)
    (letter,) = result.rejected
    assert letter["reason"] == "column double: (price * 2) leaves 64 bits"


@EXECUTORS
@pytest.mark.parametrize(
    "take",
    [
        hr.query("select id, sum(price) over (order by event_time) as total, event_time from rows"),
        hr.function("tests.rows.group_functions:running", {"id": str, "total": int, "event_time": datetime}),
    ],
    ids=["query", "function"],
)
def test_rows_of_queries_and_functions(take: Any, executor: str) -> None:
    running = hr.Pipeline("orders", ORDERS, rows=["id", "price"], key="shop", take=take)
    result = run(running, [rows(order("a", 2), order("b", 3, 5)), rows(order("late", 4, 1))], executor=executor)
    assert result.current.only("id", "total") == [
        {"id": "a", "total": 2}, {"id": "late", "total": 6}, {"id": "b", "total": 9},
    ]  # fmt: skip
    assert [(pane["id"], pane["is_retraction"]) for pane in result.steps[1].panes] == [
        ("b", True), ("late", False), ("b", False),
    ]  # fmt: skip


def test_yaml(tmp_path: Path) -> None:
    (tmp_path / "paid.py").write_text(
        "from datetime import datetime\n\nimport headrace as hr\n\n"
        "orders = hr.json('landing/orders', {'id': str, 'price': int, 'at': datetime})\n"
        "paid = hr.Pipeline('paid', orders.event_time('at', bound='1h'), rows=['id', 'price'], id='id')\n"
    )
    (tmp_path / "paid.test.yaml").write_text(
        "tests:\n  - name: each order is a row\n    given:\n      - rows: [{id: a, price: 3, at: 13:05}]\n"
        "    expect:\n      panes: [{id: a, price: 3, event_time: 13:05}]\n      current: [{id: a}]\n"
        "  - name: a row more\n    given:\n      - rows: [{id: a, price: 3, at: 13:05}]\n"
        "    expect:\n      current: []\n"
    )
    passed_test, failed_test = run_tests(find_tests(tmp_path))
    assert (passed_test.verdict, failed_test.verdict) == (Verdict.PASSED, Verdict.FAILED)
    assert "<ON_TIME row 13:05 id='a' price=3>" in failed_test.message
