"""Combiners that users write: what they give, what is refused when they are declared, what becomes of their errors."""

from dataclasses import dataclass
from typing import Any

import pytest

from headrace import (
    Aggregate,
    CustomCombiner,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    Input,
    ListType,
    Pipeline,
    col,
    discarding,
    lit,
)
from headrace.errors import PipelineError
from headrace.model.combiners import Accumulator, Combiner
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.expressions.typing import output_type
from headrace.testing import fingerprint
from headrace_lab.reference import combine
from tests.building import written_again
from tests.own_combiners import Bins, Longest, Nearness, Refusing, Span, UntilCombiner

X = col("x")


def combine_values(combiner: CustomCombiner, *values: Any) -> Any:
    return combine(X.combine(combiner), [(value, 1) for value in values])


@pytest.mark.parametrize(
    ("combiner", "values", "expected", "of_nothing"),
    [
        (Span(), (4, None, 9, 2), 7, None),
        (Bins(3), (0, 4, None, 1), (1, 2, 0, 3), (0, 0, 0, 0)),
        (Nearness(), (0.0, -1.0, None), 0.75, None),
        (Longest(), ("ab", "c", "aa"), ("aa", "ab"), ()),
        (UntilCombiner(100), (3, 40, None), 60, None),
    ],
)
def test_values_and_identities(combiner: CustomCombiner, values: Any, expected: Any, of_nothing: Any) -> None:
    assert combine_values(combiner, *values) == expected
    assert combine_values(combiner) == combine_values(combiner, None) == of_nothing


def test_a_value_is_removed_or_left_out() -> None:
    bag = [(5, 1), (1, -2), (7, 2)]
    assert combine(X.combine(Bins(2)), bag) == (0, 1, 1), "removed before it came: owed"
    assert combine(X.combine(Span()), bag) == 2, "without remove what is not there is left out"
    assert (X.combine(Bins(2)).invertible, X.combine(Span()).invertible) == (True, False)


def test_its_result_is_of_the_type_that_it_declares() -> None:
    schema = {"x": DataType.INT}
    assert output_type(X.combine(Bins(2)), schema) == ListType(DataType.INT)
    with pytest.raises(PipelineError, match="no column 'y'"):
        output_type(col("y").combine(Span()), schema)
    with pytest.raises(PipelineError, match="bare NULL"):
        output_type(lit(None).combine(Span()), schema)


@pytest.mark.parametrize("late", [False, True])
def test_what_its_code_raises_names_it(late: bool) -> None:
    with pytest.raises(PipelineError, match=rf"Refusing\(late={late}\) could not .* ValueError\('bad luck'\)"):
        combine_values(Refusing(late), 1, 13)


@dataclass
class Unfrozen:
    number: int


@dataclass(frozen=True)
class Forgetful(Span):
    def create(self) -> Accumulator:
        return {"low": None}


@dataclass(frozen=True)
class UntypedSpan(Span):
    result_type = complex


@dataclass(frozen=True)
class Empty(Span):
    accumulator_types = {}


@dataclass(frozen=True)
class NeedsValues(Span):
    def extract(self, accumulator: Accumulator) -> Any:
        return accumulator["high"] - accumulator["low"]


@pytest.mark.parametrize(
    ("combiner", "message"),
    [
        (Unfrozen(3), "subclass CustomCombiner as a frozen dataclass"),
        (Forgetful(), "an accumulator with the fields low; it declares high, low"),
        (UntypedSpan(), r"UntypedSpan\(result_type=.*\): write one of str, int"),
        (Empty(), "declares no field"),
        (NeedsValues(), "could not give a result for no values: TypeError"),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_declared(combiner: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        X.combine(combiner)


def test_a_class_that_is_no_frozen_dataclass_is_refused() -> None:
    class Plain(CustomCombiner):
        accumulator_types = {"n": DataType.INT}
        result_type = DataType.INT

        def create(self) -> Accumulator:
            return {"n": 0}

        def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
            return accumulator

        def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
            return left

        def extract(self, accumulator: Accumulator) -> Any:
            return 0

    with pytest.raises(PipelineError, match="must be a frozen dataclass"):
        X.combine(Plain())
    with pytest.raises(PipelineError, match="not a combiner of your own"):
        Aggregate(Combiner.CUSTOM, X)


def build(combiner: CustomCombiner) -> Pipeline:
    return Pipeline(
        name="own",
        input=Input(
            FileSource("nowhere", "json", {"at": DataType.TIMESTAMP, "x": DataType.INT}),
            EventTime(col("at"), BoundedOutOfOrderness("0s")),
        ),
        key={"x": X},
        where=FixedWindows("10us"),
        when=Default(),
        how=discarding("0s"),
        what={"own": X.combine(combiner)},
    )


def test_a_fingerprint_tells_its_fields_and_its_accumulators_apart() -> None:
    fingerprint_before, same_again = fingerprint(build(Bins(2))), fingerprint(build(Bins(2)))
    same_class, other = (
        written_again(Bins, accumulator_types={**Bins.accumulator_types, "values": kind})
        for kind in (int, DataType.FLOAT)
    )
    assert (fingerprint_before == same_again, fingerprint_before == fingerprint(build(other(2)))) == (True, False)
    assert fingerprint(build(same_class(2))) == fingerprint_before, "a class goes by its name"
    assert len({fingerprint(build(combiner)) for combiner in (Bins(2), Bins(3), Span(), UntilCombiner(3))}) == 4
