"""What each combiner makes of a window's values, retracted ones included; types are those of the declarations."""

import math
from fractions import Fraction
from statistics import pvariance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Aggregate, ListType, count, if_else
from headrace.errors import PipelineError
from headrace.model.combiners import BY_ANOTHER, Combiner
from headrace.model.expressions.data_types import DataType, PairsType
from headrace.model.expressions.expr import col, lit
from headrace.model.expressions.typing import output_type
from headrace.model.time import Instant
from headrace_lab.reference import Contents, combine, read
from tests.own_combiners import Bins, Span
from tests.reference.strategies import examples

X = col("x")
ODD, EVEN = if_else(X % 2 == 1, X, None), if_else(X % 2 == 0, X, None)
SCHEMA = {"x": DataType.INT, "word": DataType.STRING, "part": DataType.FLOAT}


def combine_values(aggregate: Aggregate, *values: Any, withdrawn: tuple[Any, ...] = ()) -> Any:
    """``aggregate`` over ``values`` at times 0, 1, 2 ...; ``withdrawn`` ones are retracted at the time they came."""
    kept_values = [read(aggregate, {"x": value}, SCHEMA, Instant(time)) for time, value in enumerate(values)]
    bag = Contents([(value, 1) for value in kept_values])
    for value in withdrawn:
        bag.add(kept_values[values.index(value)], -1)
    return combine(aggregate, bag.net)


@pytest.mark.parametrize(
    ("aggregate", "expected", "of_nothing"),
    [
        (count(), 6, 0),
        (X.count(), 5, 0),
        (X.sum(), 17, 0),
        (X.mean(), 17 / 5, None),
        (X.variance(), pvariance([4, 1, 4, 7, 1]), None),
        (X.min(), 1, None),
        (X.max(), 7, None),
        (X.first(), 4, None),
        (X.last(), 1, None),
        (X.collect(), (1, 1, 4, 4, 7), ()),
        (X.top(3), (7, 4, 4), ()),
        (X.top(9), (7, 4, 4, 1, 1), ()),
        (X.distinct(), 3, 0),
        (X.approx_distinct(), 3, 0),
        (EVEN.pairs(ODD), ((4, 1), (4, 1), (4, 7), (4, 1), (4, 1), (4, 7)), ()),
        (EVEN.pairs(ODD, "both"), ((4, 1), (4, 1), (4, 7), (4, 1), (4, 1), (4, 7)), ()),
        (X.quantile(0), 1, None),
        (X.quantile(0.4), 1, None),
        (X.quantile(0.41), 4, None),
        (X.quantile(1), 7, None),
    ],
    ids=lambda value: value.combiner.value if isinstance(value, Aggregate) else None,
)
def test_values_and_identities(aggregate: Aggregate, expected: Any, of_nothing: Any) -> None:
    assert combine_values(aggregate, 4, 1, None, 4, 7, 1) == (
        pytest.approx(expected) if isinstance(expected, float) else expected
    )
    assert combine_values(aggregate) == of_nothing
    if aggregate.input is not None:
        assert combine_values(aggregate, None) == of_nothing


ALL = [
    *[X.count(), X.sum(), X.mean(), X.variance(), X.min(), X.max(), X.first(), X.last()],
    *[X.collect(), X.top(2), X.distinct(), X.approx_distinct(), X.quantile(0.3)],
    *[X.distinct_sketch(), X.quantile_sketch()],
    *[
        X.max_by(-X % 3),
        X.min_by(X % 3),
        X.list_agg(2, X % 3),
        X.map_agg(X % 3),
        (X > 0).bool_and(),
        (X > 0).bool_or(),
        X.mode(),
    ],
    X.quantiles([0.3, 0.9]),
    ODD.pairs(EVEN, "left"),
    X.combine(Bins(3)),
    X.combine(Span()),
]


@pytest.mark.parametrize("aggregate", ALL, ids=lambda a: a.combiner.value)
@examples(40)
@given(st.lists(st.integers(-5, 5), max_size=8), st.data())
def test_what_is_withdrawn_was_never_there(aggregate: Aggregate, values: list[int], data: st.DataObject) -> None:
    times = [read(aggregate, {"x": value}, SCHEMA, Instant(time)) for time, value in enumerate(values)]
    withdrawn_indexes = data.draw(st.sets(st.sampled_from(range(len(values))))) if values else set()
    changes = data.draw(st.permutations([*[(v, 1) for v in times], *[(times[i], -1) for i in withdrawn_indexes]]))
    left = combine(aggregate, [(v, 1) for i, v in enumerate(times) if i not in withdrawn_indexes], DataType.INT)
    result = combine(aggregate, Contents(changes).net, DataType.INT)
    assert result == (pytest.approx(left) if isinstance(left, float) else left), "in any order, retraction first too"


@pytest.mark.parametrize(
    ("outer", "only_left", "only_right"),
    [("none", (), ()), ("left", ((1, None),), ()), ("right", (), ((None, 2),)), ("both", ((1, None),), ((None, 2),))],
)
def test_a_join_keeps_what_has_no_partner_if_told_to(outer: str, only_left: Any, only_right: Any) -> None:
    join = ODD.pairs(EVEN, outer)
    assert (combine_values(join, 1), combine_values(join, 2), combine_values(join, 1, 2)) == (
        only_left,
        only_right,
        ((1, 2),),
    )
    assert combine_values(join, 1, 2, withdrawn=(2,)) == only_left


def test_every_combiner_is_tried() -> None:
    assert {aggregate.combiner for aggregate in ALL} == set(Combiner)


PAIR_COMBINERS = (Combiner.FIRST, Combiner.LAST, Combiner.PAIRS, Combiner.MAP_AGG, *BY_ANOTHER)


def test_what_is_withdrawn_before_it_comes_is_owed_to_sums_and_not_there_for_others() -> None:
    owed = [(5, 1), (1, -2), (7, 2)]
    found_by_value = {a.combiner.value: combine(a, owed) for a in ALL if a.combiner not in PAIR_COMBINERS}
    assert (found_by_value["count"], found_by_value["sum"]) == (1, 17)
    assert (found_by_value["min"], found_by_value["max"], found_by_value["distinct"]) == (5, 7, 2)
    assert (found_by_value["collect"], found_by_value["top"], found_by_value["quantile"]) == ((5, 7, 7), (7, 7), 5)
    assert (found_by_value["mode"], found_by_value["quantiles"]) == (7, (5, 7))


def test_what_goes_by_another_breaks_ties_by_value_and_leaves_out_what_lacks_either() -> None:
    def combine_pairs(aggregate: Aggregate, *pairs: tuple[int | None, int | None]) -> Any:
        kinds = {"x": DataType.INT, "by": DataType.INT}
        kept_values = [read(aggregate, {"x": value, "by": rank}, kinds, Instant(0)) for value, rank in pairs]
        return combine(aggregate, [(value, 1) for value in kept_values])

    pairs = ((4, 2), (9, 2), (7, 1), (3, 1), (None, 0), (1, None), (None, 5))
    order = col("by")
    assert (combine_pairs(X.max_by(order), *pairs), combine_pairs(X.min_by(order), *pairs)) == (9, 3)
    assert (combine_pairs(X.list_agg(3, order), *pairs), combine_pairs(X.list_agg(9, order), *pairs)) == (
        (3, 7, 4),
        (3, 7, 4, 9),
    )
    assert combine_pairs(order.map_agg(X), *pairs) == ((1, 7), (2, 9))
    assert (combine_pairs(X.max_by(order)), combine_pairs(X.list_agg(3, order), (None, 1))) == (None, ())


def test_first_and_last_go_by_event_time_and_break_ties_by_value() -> None:
    def combine_timed(aggregate: Aggregate, *pairs: tuple[int, int | None]) -> Any:
        kept_values = [read(aggregate, {"x": value}, SCHEMA, Instant(time)) for time, value in pairs]
        return combine(aggregate, [(value, 1) for value in kept_values])

    assert combine_timed(X.first(), (5, 1), (2, 9), (2, 8), (0, None)) == 8
    assert combine_timed(X.last(), (2, 9), (5, 1), (5, 3), (5, 2), (9, None)) == 3


def test_nan_is_one_value_above_all_others() -> None:
    part = col("part")

    def combine_floats(aggregate: Aggregate) -> Any:
        return combine(aggregate, [(value, 1) for value in (2.0, math.nan, 1.0, float("nan"))])

    assert (combine_floats(part.min()), combine_floats(part.distinct())) == (1.0, 3)
    assert math.isnan(combine_floats(part.max()))
    assert math.isnan(combine_floats(part.top(1))[0])


@examples(100)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(1, 100))
def test_a_quantile_is_the_smallest_value_with_its_part_at_or_below(values: list[int], percent: int) -> None:
    quantile = combine_values(X.quantile(percent / 100), *values)
    at_or_below = {v: Fraction(sum(w <= v for w in values), len(values)) for v in values}
    assert quantile == min(v for v in values if at_or_below[v] >= Fraction(percent, 100))


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (X.variance(), DataType.FLOAT),
        (col("word").first(), DataType.STRING),
        (col("word").collect(), ListType(DataType.STRING)),
        (X.top(2), ListType(DataType.INT)),
        (X.pairs(col("word")), PairsType(DataType.INT, DataType.STRING)),
        (col("word").distinct(), DataType.INT),
        (col("word").approx_distinct(), DataType.INT),
        (X.quantile(0.5), DataType.INT),
        (col("part").quantile(0.5), DataType.FLOAT),
    ],
)
def test_output_types(aggregate: Aggregate, kind: object) -> None:
    assert output_type(aggregate, SCHEMA) == kind


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: output_type(col("word").variance(), SCHEMA), "needs a number"),
        (lambda: output_type(col("word").quantile(0.5), SCHEMA), "needs a number"),
        (lambda: output_type(X.pairs(lit(None)), SCHEMA), "no type"),
        (lambda: output_type(lit(None).first(), SCHEMA), "no type"),
        (lambda: output_type(Aggregate(Combiner.DISTINCT), SCHEMA), "needs an expression"),
        (lambda: X.quantile(1.5), "write a number from 0 to 1"),
        (lambda: X.top(0), "at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(build: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build()


def test_which_combiners_can_be_undone() -> None:
    assert {a.combiner.value for a in ALL if a.custom is None and a.invertible} == {"count", "sum", "mean", "variance"}
