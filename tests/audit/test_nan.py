"""NaN in columns that something is expected of: a value above all numbers, on Spark and without (Semantics 12.23)."""

import math
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace import Expectation, expect
from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.gx_library import ExpectationNotEvaluatedError
from headrace.audit.store import Finding
from headrace.pipeline.quality import ExpectationView
from tests.process.executors import ExecutorUnderTest, on_both, on_spark

NAN, INFINITY = math.nan, math.inf
RATES = [1.0, NAN, None, -0.0, NAN, INFINITY]


def evaluate(executor: ExecutorUnderTest, rows: pa.Table, expectations: Sequence[Expectation]) -> tuple[Finding, ...]:
    """What is found in ``rows``, which are held as an audit holds them."""
    from headrace.audit.gx_runner import evaluate_expectations  # four seconds that other tests need not wait for

    if executor.spark is None:
        return evaluate_expectations(ExpectationView.CURRENT, expectations, ArrowFrame(rows), ["id"]).findings
    frame = executor.spark.createDataFrame(rows).persist()
    try:
        assert frame.count() == len(rows)
        return evaluate_expectations(ExpectationView.CURRENT, expectations, frame, ["id"]).findings
    finally:
        frame.unpersist()


def table(**columns: Sequence[float | None]) -> pa.Table:
    """Numbered rows."""
    (length,) = {len(values) for values in columns.values()}
    floats = {name: pa.array(values, pa.float64()) for name, values in columns.items()}
    return pa.table({"id": [*range(length)], **floats})


VALUES: list[tuple[str, dict[str, Any], list[int]]] = [
    ("column_values_to_not_be_null", {}, [2]),
    ("column_values_to_be_null", {}, [0, 1, 3, 4, 5]),
    ("column_values_to_be_between", {"min_value": 0}, []),
    ("column_values_to_be_between", {"min_value": 2}, [0, 3]),
    ("column_values_to_be_between", {"max_value": 2}, [1, 4, 5]),
    ("column_values_to_be_between", {"min_value": 0, "max_value": 2, "strict_min": True}, [1, 3, 4, 5]),
    ("column_values_to_be_in_set", {"value_set": [0, 1]}, [1, 4, 5]),
    ("column_values_to_not_be_in_set", {"value_set": [0]}, [3]),
    ("column_values_to_be_unique", {}, [1, 4]),
    ("column_value_z_scores_to_be_less_than", {"threshold": 3, "double_sided": True}, [0, 1, 3, 4, 5]),
]
"""The ids of the rows that fail."""

AGGREGATES: list[tuple[str, dict[str, Any], bool, Any]] = [
    ("column_max_to_be_between", {"min_value": 0}, False, None),
    ("column_min_to_be_between", {"min_value": 0}, True, 0.0),
    ("column_mean_to_be_between", {"min_value": 0}, False, None),
    ("column_sum_to_be_between", {"min_value": 0}, False, None),
    ("column_stdev_to_be_between", {"min_value": 0}, False, None),
    ("column_median_to_be_between", {"min_value": 1, "max_value": 1}, True, 1.0),
    ("column_unique_value_count_to_be_between", {"min_value": 4, "max_value": 4}, True, 4),
    ("column_proportion_of_non_null_values_to_be_between", {"min_value": 0.8}, True, 5 / 6),
    ("column_distinct_values_to_be_in_set", {"value_set": [0, 1]}, False, None),
    ("column_distinct_values_to_contain_set", {"value_set": [0, 1]}, True, None),
]


@on_both
def test_what_nan_means_to_an_expectation(executor: ExecutorUnderTest) -> None:
    rows = table(rate=RATES)
    expectations = [expect(name, column="rate", **arguments) for name, arguments, *_ in [*VALUES, *AGGREGATES]]
    findings = evaluate(executor, rows, expectations)
    for finding, (_, _, ids) in zip(findings, VALUES, strict=False):
        assert finding.unexpected_count == len(ids), finding
        assert finding.success is not bool(ids), finding
        assert sorted(row["id"] for row in finding.failing) == ids, finding
        for row in finding.failing:
            text_of_id = {1: "nan", 4: "nan", 5: "inf", 2: None, 3: 0.0, 0: 1.0}[row["id"]]
            assert row["rate"] == text_of_id
    for finding, (_, _, success, aggregate) in zip(findings[len(VALUES) :], AGGREGATES, strict=True):
        assert (finding.success, finding.observed) == (success, aggregate), finding
    distinct = findings[-2]
    assert sorted(str(row["rate"]) for row in distinct.failing) == ["inf", "nan"]


@on_both
def test_a_float_has_no_one_text(executor: ExecutorUnderTest) -> None:
    with pytest.raises(ExpectationNotEvaluatedError, match=r"it looks at text, and rate is a float"):
        evaluate(executor, table(rate=RATES), [expect("column_values_to_match_regex", column="rate", regex="^1")])


@on_both
def test_the_rows_of_a_pair_show_nan(executor: ExecutorUnderTest) -> None:
    rows = table(low=[NAN, 1.0, None, NAN], high=[2.0, NAN, 1.0, NAN])
    greater, unique = evaluate(
        executor,
        rows,
        [
            expect("column_pair_values_a_to_be_greater_than_b", column_A="high", column_B="low", or_equal=True),
            expect("compound_columns_to_be_unique", column_list=["low", "high"]),
        ],
    )
    assert sorted(greater.failing, key=lambda row: row["id"] or 0) == [
        {"id": 0, "high": 2.0, "low": "nan"},
        {"id": 2, "high": 1.0, "low": None},
    ]
    assert unique.success


def random_rows(seed: int) -> pa.Table:
    draw = random.Random(seed).choice
    kinds = {
        "x": [NAN, None, 0.0, -0.0, 1.0, 2.5, -3.0, 7.0, INFINITY, -INFINITY],
        "y": [NAN, None, 0.0, 1.0, -0.0],
        "z": [1.0, 2.0, 4.0, None, 10.0],
        "null": [None],
    }
    return table(**{name: [draw(values) for _ in range(14)] for name, values in kinds.items()})


def many_expectations(columns: Sequence[str]) -> Iterator[Expectation]:
    ranges = {"quantiles": [0.25, 0.5, 0.9], "value_ranges": [[0, 1], [0, 3], [1, None]]}
    for column in columns:
        for name in ("min", "max", "mean", "sum", "stdev", "median"):
            yield expect(f"column_{name}_to_be_between", column=column, min_value=0)
        for name in ("values_to_be_in_set", "most_common_value_to_be_in_set", "distinct_values_to_equal_set"):
            yield expect(f"column_{name}", column=column, value_set=[-0.0, *range(3, 16)])
        yield expect("column_values_to_be_between", column=column, min_value=0, max_value=2, mostly=0.4)
        yield expect("column_values_to_be_unique", column=column)
        yield expect("column_unique_value_count_to_be_between", column=column, max_value=4)
        yield expect("column_quantile_values_to_be_between", column=column, quantile_ranges=ranges)
        yield expect("column_values_to_not_be_outliers", column=column, method="iqr")
    for name in ("sum", "max"):
        yield expect(f"column_{name}_to_be_between", column="null", max_value=1)
    for left, right in (("x", "y"), ("z", "y")):
        for name in ("a_to_be_greater_than_b", "to_be_equal"):
            yield expect(f"column_pair_values_{name}", column_A=left, column_B=right, ignore_row_if="neither")
        for name in ("compound_columns_to_be_unique", "multicolumn_values_to_be_equal"):
            yield expect(name, column_list=[left, right], ignore_row_if="never")
        yield expect("select_column_values_to_be_unique_within_record", column_list=[left, right])
        yield expect("multicolumn_sum_to_equal", column_list=[left, right], sum_total=1)


def comparable(finding: Finding) -> tuple[Any, ...]:
    """What both engines must give; where more rows fail than are kept, they keep others."""
    count = finding.unexpected_count
    rows = sorted(map(str, finding.failing)) if count is not None and count <= 5 else len(finding.failing)
    value = finding.observed
    digits = round(value, 9) if isinstance(value, float) and math.isfinite(value) else value
    return finding.describe(), finding.success, digits, count, finding.element_count, rows


COLUMNS = ("x", "y") if "HEADRACE_EXAMPLES" in os.environ else ("x",)
"""Each of them with as many expectations as take ten seconds on Spark; x has all values of y, and more."""


@on_spark
@pytest.mark.slow
@pytest.mark.hypothesis  # make fuzz looks at both columns
@pytest.mark.parametrize("seed", [1])
def test_spark_finds_what_is_found_without_it(executor: ExecutorUnderTest, seed: int) -> None:
    rows, expectations = random_rows(seed), [*many_expectations(COLUMNS)]
    on_local = evaluate(ExecutorUnderTest("local"), rows, expectations)
    by_spark = evaluate(executor, rows, expectations)
    assert [*map(comparable, by_spark)] == [*map(comparable, on_local)]


def test_quantiles_are_among_the_values(caplog: pytest.LogCaptureFixture) -> None:
    ranges = {"quantiles": [0.0, 0.5, 1.0], "value_ranges": [[0, 0], [1, 1], [2, 2]]}
    expectation = expect("column_quantile_values_to_be_between", column="rate", quantile_ranges=ranges)
    (finding,) = evaluate(ExecutorUnderTest("local"), table(rate=[2.0, NAN, 0.0, None, 1.0]), [expectation])
    assert finding.success
    assert caplog.records == [], "the page shows them"


def test_an_integer_beside_null_is_compared() -> None:
    rows = pa.table({"id": [1, 2], "low": pa.array([1, None], pa.int64()), "high": [2, 3]})
    expectation = expect("column_pair_values_a_to_be_greater_than_b", column_A="high", column_B="low")
    (finding,) = evaluate(ExecutorUnderTest("local"), rows, [expectation])
    assert [*finding.failing] == [{"id": 2, "high": 3, "low": None}]


@pytest.mark.parametrize("values", [[], [None], [5], [5, 5, None]], ids=str)
def test_integers_that_do_not_deviate_have_no_score_and_pass(values: list[int | None]) -> None:
    rows = pa.table({"id": [*range(len(values))], "count": pa.array(values, pa.int64())})
    expectation = expect("column_value_z_scores_to_be_less_than", column="count", threshold=3, double_sided=True)
    (finding,) = evaluate(ExecutorUnderTest("local"), rows, [expectation])
    assert finding.success


def test_what_else_uses_great_expectations_keeps_its_own_rules() -> None:
    import great_expectations as gx

    nulls = table(left=[1.0, None], right=[1.0, None])
    both = {"column_A": "left", "column_B": "right", "ignore_row_if": "neither"}
    [ours] = evaluate(ExecutorUnderTest("local"), nulls, [expect("column_pair_values_to_be_equal", **both)])
    assert ours.success
    source = gx.get_context(mode="ephemeral").data_sources.add_pandas("theirs")
    batch = (
        source.add_dataframe_asset("rows")
        .add_batch_definition_whole_dataframe("all")
        .get_batch({"dataframe": nulls.to_pandas()})
    )
    assert not batch.validate(gx.expectations.ExpectColumnPairValuesToBeEqual(**both)).success
