"""Each method of expressions shows in its docstring what it gives: ``col("n").abs()`` of ``-3`` is ``3``.

Columns have the types of ``SCHEMA``. Values are one record's, or of an aggregation those of several records. Records of
several columns are written ``n=1, m=2`` and stand apart by semicolons. Times are text in ISO 8601.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.testing import rows, run, watermark

SCHEMA: dict[str, Any] = {"n": int, "x": float, "text": str, "at": datetime, "flag": bool, "words": list[str]}
SCHEMA |= {"place": {"city": str}, "marks": dict[str, int]}
EVENT_TIME = hr.coalesce(hr.col("at"), hr.lit(datetime(2026, 1, 1, tzinfo=UTC)))
EXAMPLE = re.compile(r'``(col\("(\w+)"\)[^`]*)``\s+of\s+``([^`]*)``\s+is\s+``([^`]*)``')
WITHOUT_EXAMPLE = ("combine", "distinct_sketch", "quantile_sketch")
"""Methods that take an object of the user's own, or give bytes."""
METHODS = sorted(name for name in dir(hr.Expr) if not name.startswith("_") and callable(getattr(hr.Expr, name)))


@pytest.mark.parametrize("name", sorted({*METHODS} - {*WITHOUT_EXAMPLE}))
def test_a_method_gives_what_its_docstring_says(name: str) -> None:
    examples = EXAMPLE.findall(getattr(hr.Expr, name).__doc__ or "")
    assert examples, f"Expr.{name}: its docstring has no example; write ``col(...)`` of ``value`` is ``result``"
    for code, column, values, result in examples:
        assert f".{name}(" in code
        expected = eval(result)
        outcome = _plain(_evaluate_example(eval(code, {"col": hr.col, "int": int}), [*_records(values, column)]))
        assert outcome == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_each_method_without_an_example_is_there() -> None:
    assert {*WITHOUT_EXAMPLE} <= {*METHODS}


def _records(values: str, column: str) -> Iterator[dict[str, Any]]:
    """One record for each value of ``column``, or as they are written with the names of columns."""
    if re.match(r"\w+=", values):
        yield from (eval(f"dict({record})") for record in values.split(";"))
    else:
        yield from ({column: value} for value in eval(f"({values},)"))


def _evaluate_example(expression: Any, records: list[dict[str, Any]]) -> Any:
    """What an expression over one record, or an aggregate of several, gives."""
    source = hr.json("landing/examples", SCHEMA).event_time(EVENT_TIME, bound="1h")
    steps = [rows(*records), watermark("2099-01-01")]
    if isinstance(expression, hr.Aggregate):
        where = hr.FixedWindows("10000d")
        pipeline = hr.Pipeline("examples", source, key={"all": hr.lit(1)}, what={"outcome": expression}, where=where)
        return run(pipeline, steps).panes[-1]["outcome"]
    return run(hr.Pipeline("examples", source, rows={"outcome": expression}), steps).panes[0]["outcome"]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, date):
        return value.isoformat()
    return [_plain(one) for one in value] if isinstance(value, list) else value
