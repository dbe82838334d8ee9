"""Users' tests of pipelines with joins, in Python and in YAML, on the kernel and on the interpreter."""

from pathlib import Path

import pytest

from headrace import col
from headrace.testing import rows, run, together, watermark
from headrace.testing.suite import Verdict, find_tests, run_tests
from tests.joins.trades import as_of, rate, rated_pipeline, trade

EXECUTORS = pytest.mark.parametrize("executor", ["local", "reference"])


@EXECUTORS
def test_a_step_gives_rows_of_either_side(executor: str) -> None:
    steps = [together(rows(trade("a", 5)), rows(rate(0, 1), of="rates")), rows(rate(3, 2), of="rates")]
    result = run(rated_pipeline(as_of()), steps, executor=executor)
    assert sorted((row["rate"], row["is_retraction"]) for row in result.panes) == [(1, False), (1, True), (2, False)]
    assert result.current.only("id", "rate") == [{"id": "a", "rate": 2}]


@EXECUTORS
def test_what_is_late_for_a_join_is_late(executor: str) -> None:
    pipeline = rated_pipeline(as_of(max_age="5m", lateness="0s"))
    steps = [watermark("2026-05-01T02:00:00Z"), rows(trade("a", 5)), rows(rate(3, 2), of="rates")]
    result = run(pipeline, steps, executor=executor)
    assert [row["reason"] for row in result.late] == ["too late for the join"] * 2
    assert not result.panes


@EXECUTORS
def test_joined_rows_that_cannot_give_a_column_are_rejected(executor: str) -> None:
    pipeline = rated_pipeline(as_of(), rows={"large": col("rate") * 2**60})
    steps = [together(rows(trade("a", 5)), rows(rate(0, 64), of="rates"))]
    (letter,) = run(pipeline, steps, executor=executor).rejected
    assert letter["reason"].startswith("column large: ")
    assert letter["input"] == "joined rows"


def test_yaml(tmp_path: Path) -> None:
    (tmp_path / "rated.py").write_text(
        "from datetime import datetime\n\nimport headrace as hr\n\n"
        "trades = hr.json('landing/trades', {'id': str, 'ccy': str, 'at': datetime}).event_time('at', bound='0s')\n"
        "rates = hr.json('landing/rates', {'ccy': str, 'rate': int, 'at': datetime}).event_time('at', bound='0s')\n"
        "rated = hr.Pipeline('rated', trades, join=[hr.as_of(rates.named('rates'), 'ccy')], rows=['id'])\n"
    )
    (tmp_path / "rated.test.yaml").write_text(
        "tests:\n  - name: a trade meets its rate\n    given:\n"
        "      - rows: {rates: [{ccy: usd, rate: 3, at: 13:00}]}\n      - rows: [{id: a, ccy: usd, at: 13:05}]\n"
        "    expect:\n      current: [{id: a}]\n"
    )
    (passed_test,) = run_tests(find_tests(tmp_path))
    assert passed_test.verdict is Verdict.PASSED
