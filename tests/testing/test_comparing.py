"""What ``assert_panes`` and its like take for equal, and what they say where it is not."""

from typing import Any

import pytest

import headrace as hr
from headrace.testing import (
    UnitTestError,
    assert_current,
    assert_late,
    assert_panes,
    assert_rejected,
    rows,
    run,
    watermark,
)
from headrace.testing.results import matches_expected
from tests.testing.pipelines import delays, flight

RESULT = run(delays(), [rows(flight("13:05", 5), flight("14:05", 7)), watermark("14:00")])


def test_order_does_not_count_and_neither_do_columns_left_out() -> None:
    assert_current(RESULT, [{"worst": 7}, {"worst": 5}])
    assert_panes(RESULT, [{}, {"timing": "ON_TIME"}, {"timing": "EARLY"}, {"is_retraction": True}])


def test_as_many_as_possible_find_their_pane() -> None:
    """The first could take either, and must leave the second the only one that it can have."""
    assert_current(RESULT, [{"flights": 1}, {"worst": 5}])
    assert_current(RESULT, [{"flights": 1}, {"worst": 7}])


def test_a_pane_that_is_expected_twice_is_there_twice() -> None:
    with pytest.raises(AssertionError, match="current: 2 expected, 2 found"):
        assert_current(RESULT, [{"worst": 5}, {"worst": 5}])


def test_what_does_not_say_so_is_no_retraction() -> None:
    with pytest.raises(AssertionError, match="is_retraction: False expected, True found"):
        assert_panes(RESULT, [{"worst": 5}, {"worst": 5}, {"worst": 7}, {"worst": 5}])


def test_the_difference_shows_the_closest_pane_and_what_is_wrong_with_it() -> None:
    with pytest.raises(AssertionError) as error:
        assert_current(
            RESULT, [{"window": ["13:00", "14:00"], "worst": 6, "flights": 1}, {"window": ["14:00", "15:00"]}]
        )
    assert str(error.value).splitlines() == [
        "current: 2 expected, 2 found",
        "  - expected {window: ['13:00', '14:00'], worst: 6, flights: 1}",
        "  + found    <ON_TIME #1 [13:00, 14:00) origin='JFK' flights=1 worst=5>",
        "      worst: 6 expected, 5 found",
    ]


def test_what_is_missing_and_what_is_too_much_is_told() -> None:
    with pytest.raises(
        AssertionError, match=r"panes: none expected, 4 found\n  \+ found    <EARLY.*which was not expected"
    ):
        assert_panes(RESULT, [])
    with pytest.raises(AssertionError, match=r"late: 1 expected, none found\n  - expected \{origin: 'JFK'\}"):
        assert_late(RESULT, [{"origin": "JFK"}])
    bad = run(delays(), [rows({})])
    with pytest.raises(AssertionError, match="reason: 'x' expected, 'event time is null' found"):
        assert_rejected(bad, [{"reason": "x", "position": 0}])


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ([{"flight": 1}], "current have no column 'flight'; did you mean 'flights'"),
        (["JFK"], r"assert_current\(expected\[0\]='JFK'\): write {"),
        ([{"timing": "soon"}], "expected timing is 'soon'; write one of EARLY, ON_TIME, LATE"),
        ([{"window": "13:00"}], r"expected window is '13:00'; write both ends"),
        ([{"window_start": 13}], "expected window_start is 13; write a time"),
    ],
)
def test_an_expectation_that_cannot_be_meant_says_what_to_write(expected: Any, message: str) -> None:
    with pytest.raises(UnitTestError, match=message):
        assert_current(RESULT, expected)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (1, 1, True),
        (1.0, 1, True),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.31, 0.3, False),
        (float("nan"), float("nan"), True),
        (True, 1, False),
        (1, True, False),
        (1, 1.5, False),
        (None, None, True),
        (None, 0, False),
        (0, None, False),
        ("a", "a", True),
        (["a", 1], [("a"), 1.0], True),
        ([[1, None]], [(1, None)], True),
        (["a"], ["a", "b"], False),
        ("ab", ["a", "b"], False),
        ("1", 1, False),
    ],
)
def test_values_are_the_same(expected: Any, actual: Any, same: bool) -> None:
    assert matches_expected(expected, actual, "x") is same


def test_only_gives_plain_dicts() -> None:
    assert RESULT.current.only("origin", "worst") == [{"origin": "JFK", "worst": 5}, {"origin": "JFK", "worst": 7}]
    assert RESULT.current[1:].only("worst") == [{"worst": 7}]
    assert RESULT.current == list(RESULT.current)
    assert RESULT.current != RESULT.panes
    with pytest.raises(KeyError):
        RESULT.current.only("flight")
    assert isinstance(hr.testing.Panes([]), hr.testing.Panes)
