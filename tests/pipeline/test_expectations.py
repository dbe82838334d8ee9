"""Expectations are checked when they are written, against what the installed Great Expectations knows."""

import json
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineError
from scripts.expectations import FILE, read_installed
from tests.pipeline.test_validation import build


@pytest.mark.slow
def test_the_table_is_that_of_the_installed_library() -> None:
    assert json.loads(FILE.read_text()) == read_installed(), "run python -m scripts.expectations"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("column_values_to_be_betwen", {"column": "n"}, "did you mean 'expect_column_values_to_be_between'"),
        ("column_values_to_be_between", {"column": "n", "minimum": 3}, r"\(minimum=3\): there is no such argument"),
        ("column_values_to_be_between", {"min_value": 3}, "the argument column is missing"),
        ("column_values_to_be_between", {"column": 5}, r"\(column=5\): write text"),
        ("column_values_to_be_between", {"column": "n", "min_value": [3]}, "write a number or text"),
        ("column_values_to_be_between", {"column": "n", "strict_min": 1}, "write True or False"),
        ("column_values_to_be_in_set", {"column": "n", "value_set": "abc"}, "write a list"),
        (
            "compound_columns_to_be_unique",
            {"column_list": ["n"], "ignore_row_if": "x"},
            "write 'all_values_are_missing'",
        ),
        (
            "column_to_exist",
            {"column": "n", "view": "late"},
            r"expect\(view='late'\): write one of \"panes\", \"current\"",
        ),
        ("column_values_to_be_in_set", {"column": "n", "value_set": [float("nan")]}, "must be text, numbers"),
        ("column_values_to_be_between", {"column": "n"}, "give min_value, max_value or both"),
        ("nothing_like_it", {}, "Great Expectations has no expect_nothing_like_it"),
        (5, {}, r"expect\(name=5\): write text"),
    ],
)
def test_what_does_not_fit_is_told(name: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        hr.expect(name, **arguments)


@pytest.mark.parametrize(
    "wrong",
    [
        hr.expect("column_values_to_not_be_null", column="amount"),
        hr.expect("column_pair_values_to_be_equal", column_A="n", column_B="m"),
        hr.expect("compound_columns_to_be_unique", column_list=["user", "window"], view="panes"),
    ],
)
def test_a_column_that_the_output_does_not_have_is_told_when_the_pipeline_is_built(wrong: hr.Expectation) -> None:
    with pytest.raises(PipelineError, match=r"the view has no column .*; it has user, n, window_start"):
        build(expectations=[wrong])
