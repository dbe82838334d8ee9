"""Every combiner on Arrow equals the reference: in bundles, gathered in any grouping, with values withdrawn."""

import math
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headrace.errors import IntegerOverflowError, PipelineError
from headrace.kernel.aggregates.accumulators import compile_aggregates
from headrace.kernel.aggregates.bags import KEPT_AT, KeptPart, unpack_parts
from headrace.kernel.aggregates.sums import CountPart, Elements
from headrace.kernel.columns import Groups
from headrace.kernel.expressions.evaluation import arrow_type_of
from headrace.model.combiners import Combiner
from headrace.model.expressions.expr import Aggregate, Column, col, count
from headrace.model.expressions.typing import output_type
from tests.kernel.folding import (
    SCHEMA,
    Row,
    accumulator,
    elements,
    expected,
    fold_rows,
    gather_parts,
    over_bundles,
    results,
    same,
)
from tests.own_combiners import Bins, Longest, Nearness, Refusing, Span, UntilCombiner
from tests.reference.strategies import examples

INTEGERS = [0, 1, 2, 3, 5, 5, -7, 10**12, None]
EXTREMES = [*INTEGERS, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]
FRACTIONS = [0.0, -0.0, 0.25, 0.5, -3.5, 1024.75, None]
EVERY_FLOAT = [*FRACTIONS, math.nan, math.inf, -math.inf]
STRINGS = ["", "a", "b", "ab", "ü", "\U0001f30a", "\uffff", "z" * 20, None]
DECIMALS = [None, *map(Decimal, ("0", "0.01", "0.02", "-7.5", "19.99", "1e-9", "123456789.5"))]
EXTREME_DECIMALS = [*DECIMALS, *(Decimal(f"{sign}{10**38 - 1}e-9") for sign in "+-"), Decimal("5e28"), Decimal("1e28")]
GROUPS = 5

VALUE_AND_ORDER = ["ix", "xi", "sb", "bs", "ts", "st", "dm", "md", "yd", "iy", "jj"]
"""Values, and what they go by."""

WHAT: dict[str, Aggregate] = {
    "elements": count(),
    **{f"known {name}": col(name).count() for name in SCHEMA},
    "sum of integers": col("i").sum(),
    "sum of floats": col("x").sum(),
    "sum of decimals": col("m").sum(),
    "mean of decimals": col("m").mean(),
    "mean of integers": col("i").mean(),
    "mean of floats": col("x").mean(),
    **{f"{how} {name}": getattr(col(name), how)() for name in "ixsbtdym" for how in ("min", "max", "first", "last")},
    **{f"{how} {name}": getattr(col(name), how)() for name in "ixsbtdym" for how in ("collect", "distinct")},
    **{f"approx {name}": col(name).approx_distinct() for name in "ixsbtdym"},
    **{f"distinct sketch {name}": col(name).distinct_sketch() for name in "ixsbtdym"},
    **{f"quantile sketch {name}": col(name).quantile_sketch() for name in "ixm"},
    **{
        f"top {k} {name}": col(name).top(k)
        for k, name in ((1, "i"), (2, "x"), (3, "s"), (2, "t"), (2, "d"), (1, "y"), (3, "m"))
    },
    **{f"quantile {q} {name}": col(name).quantile(q) for q in (0.0, 0.1, 1.0) for name in "ixm"},
    **{f"pairs {outer}": col("s").pairs(col("t"), outer) for outer in ("none", "left", "right", "both")},
    **{
        f"{how} of {value} by {order}": getattr(col(value), how)(col(order))
        for how in ("max_by", "min_by")
        for value, order in VALUE_AND_ORDER
    },
    **{
        f"first {k} of {value} by {order}": col(value).list_agg(k, col(order))
        for k in (1, 3)
        for value, order in VALUE_AND_ORDER
    },
    **{f"{order} by {value}": col(value).map_agg(col(order)) for value, order in VALUE_AND_ORDER},
    "all of b": col("b").bool_and(),
    "one of b": col("b").bool_or(),
    **{f"mode {name}": col(name).mode() for name in "ixsbtdym"},
    **{f"quantiles {name}": col(name).quantiles([1.0, 0.0, 0.1]) for name in "ixm"},
    "span": col("j").combine(Span()),
    "bins": col("j").combine(Bins(3)),
    "longest": col("s").combine(Longest()),
    "until": col("t").combine(UntilCombiner(100)),
}


def random_rows(rng: Random, *, withdrawable: bool, floats: list[Any] = EVERY_FLOAT) -> list[Row]:
    integers, decimals = rng.choice([INTEGERS, EXTREMES]), rng.choice([DECIMALS, EXTREME_DECIMALS])
    rows: list[Row] = []
    for _ in range(rng.choice([0, 1, 5, 40])):
        additions = [row for row in rows if row.sign > 0]
        if withdrawable and additions and rng.random() < 0.3:
            row = rng.choice(additions)
            rows.append(Row(row.group, row.record, row.at, -1))
            continue
        record = {
            "i": rng.choice(integers),
            "x": rng.choice(floats),
            "s": rng.choice(STRINGS),
            "b": rng.choice([True, False, None]),
            "t": rng.choice([None, 0, -1, 10**15 + rng.randrange(3)]),
            "d": rng.choice([None, date.min, date(1969, 12, 31), date(2013, 1, 1 + rng.randrange(3)), date.max]),
            "y": rng.choice([None, b"", b"a", b"\xff", b"a\x00", b"b" * 20]),
            "m": rng.choice(decimals),
            "j": rng.choice(INTEGERS),
        }
        sign = -1 if withdrawable and rng.random() < 0.2 else 1
        rows.append(Row(rng.randrange(GROUPS), record, rng.randrange(-3, 4), sign))
    rng.shuffle(rows)
    return rows


def check(aggregate: Aggregate, rows: list[Row], rng: Random, *, withdrawable: bool) -> None:
    made_accumulator = accumulator(aggregate, withdrawable=withdrawable)
    parts = {p.name: over_bundles(p, rows, GROUPS, rng, withdrawable=withdrawable) for p in made_accumulator.parts}
    scale = sum(abs(row.record["x"]) for row in rows if math.isfinite(row.record["x"] or 0.0) and row.record["x"])
    expected_values = expected(aggregate, rows, GROUPS)
    for result, value in zip(results(made_accumulator, parts), expected_values, strict=True):
        assert same(result, value, scale), (aggregate, result, value)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@examples(6)
def test_every_combiner_equals_the_reference(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, withdrawable=False)
    for aggregate in WHAT.values():
        check(aggregate, rows, rng, withdrawable=False)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@examples(6)
def test_values_can_be_withdrawn_also_before_they_come(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, withdrawable=True)
    # an element of a join has a value on one side
    joined_rows = [Row(row.group, {**row.record, rng.choice("st"): None}, row.at, row.sign) for row in rows]
    for aggregate in WHAT.values():
        check(aggregate, joined_rows if aggregate.combiner is Combiner.PAIRS else rows, rng, withdrawable=True)


@given(seed=st.integers(0, 2**32), withdrawable=st.booleans())
@examples(20)
def test_users_combiners_of_floats(seed: int, withdrawable: bool) -> None:
    rng = Random(seed)
    rows = random_rows(rng, withdrawable=withdrawable, floats=[0.5, 1.25, -3.0, None])
    check(col("x").combine(Nearness()), rows, rng, withdrawable=withdrawable)


# --- the last elements


@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(WHAT)))
@examples(60)
def test_of_the_last_elements(seed: int, name: str) -> None:
    rng, aggregate = Random(seed), WHAT[name]
    rows, number = random_rows(rng, withdrawable=False), rng.randint(1, 6)
    made_accumulator = accumulator(aggregate, all_kept=True)
    inputs = {str(part.input): part.input for part in made_accumulator.parts if part.input is not None}
    types = [(read, arrow_type_of(expr, SCHEMA)) for read, expr in inputs.items()]
    fields = [("_", pa.bool_()), *types, (KEPT_AT, pa.int64())]
    kept_part = KeptPart("kept", pa.list_(pa.struct(fields)), None, number)

    def bundle(rows: list[Row]) -> pa.Array:
        columns: dict[str, pa.Array] = {}
        for read, expr in inputs.items():
            element, groups = elements(CountPart.from_value("", expr), rows, GROUPS, withdrawable=False)
            columns[read] = element.value
        element, groups = elements(kept_part, rows, GROUPS, withdrawable=False)
        columns = {"_": pa.repeat(pa.scalar(True), len(element.event_times)), **columns, KEPT_AT: element.event_times}
        value = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
        return kept_part.fold(Elements(value, element.event_times, None), groups)

    cut = rng.randint(0, len(rows))
    state = gather_parts(kept_part, [bundle(rows[:cut]), bundle(rows[cut:])], GROUPS)

    def field_of(expr: Any) -> str:
        return str(expr)

    last = [row for group in range(GROUPS) for row in [r for r in rows if r.group == group][-number:]]
    expected_values = expected(aggregate, last, GROUPS)
    for result, value in zip(
        results(made_accumulator, unpack_parts(state, made_accumulator.parts, field_of)), expected_values, strict=True
    ):
        assert same(result, value, 1e4), (result, value)


def test_the_last_elements_do_not_stand_behind_retractions() -> None:
    kept_part = KeptPart("kept", pa.list_(pa.struct([("_", pa.bool_())])), None, 2)
    value, times = pa.array([{"_": True}]), pa.array([0])
    with pytest.raises(PipelineError, match="retractions"):
        kept_part.fold(Elements(value, times, pa.array([1])), Groups(np.array([0, 1])))


# --- written out


def one(aggregate: Aggregate, values: list[Any], *, signs: list[int] | None = None, cut: int = 0) -> Any:
    """The result of the values of one group in two bundles."""
    assert isinstance(aggregate.input, Column)
    name, withdrawable = aggregate.input.name, signs is not None
    rows = [Row(0, {name: value}, 0, sign) for value, sign in zip(values, signs or [1] * len(values), strict=True)]
    made_accumulator = accumulator(aggregate, withdrawable=withdrawable)
    parts = {}
    for part in made_accumulator.parts:
        bundles = [fold_rows(part, some, 1, withdrawable=withdrawable) for some in (rows[:cut], rows[cut:])]
        parts[part.name] = gather_parts(part, bundles, 1)
    (result,) = results(made_accumulator, parts)
    return result


def test_only_a_final_total_that_leaves_64_bits_is_an_error() -> None:
    top = 2**63 - 1
    assert one(col("i").sum(), [top, top, -top], cut=2) == top
    assert one(col("i").sum(), [-(2**63)], signs=[-1]) is not None
    assert one(col("i").sum(), [-(2**63), -(2**63)], signs=[1, -1], cut=1) == 0
    assert one(col("i").mean(), [top] * 4, cut=2) == float(top)
    result = one(col("i").sum(), [top, 1], cut=1)
    assert isinstance(result, IntegerOverflowError)
    assert result.code == "data.integer_overflow"
    assert str(2**63) in str(result)


@pytest.mark.parametrize("signs", [None, [1, 1, 1, 1, 1, 1, -1, -1]])
@pytest.mark.parametrize("base", [0, 3, 2**31, 2**53, 2**62, -(2**62), 2**63 - 8, -(2**63)])
def test_variance_of_integers_is_exact_where_the_mean_is_large(base: int, signs: list[int] | None) -> None:
    values = [base + i for i in (1, 4, 0, 6, 6, 2, 4, 6)]
    values_there = values if signs is None else [base + i for i in (1, 0, 6, 2)]
    mean = sum(v - base for v in values_there) / len(values_there)
    wanted_total = sum((v - base - mean) ** 2 for v in values_there) / len(values_there)
    assert one(col("i").variance(), values, signs=signs, cut=5) == pytest.approx(wanted_total, rel=1e-9)


def test_variance_of_integers_over_all_64_bits() -> None:
    result = one(col("i").variance(), [2**63 - 1, -(2**63)] * 50, cut=31)
    assert result == pytest.approx((2.0**63 - 0.5) ** 2, rel=1e-9)


def test_variance_of_integers_that_are_all_but_equal() -> None:
    values = [2**62 + 300] * 999 + [2**62 + 301]
    assert one(col("i").variance(), values, cut=500) == pytest.approx(0.001 * 0.999, rel=1e-9)


def test_variance_where_what_is_withdrawn_has_not_come() -> None:
    k = 2**60
    for cut in (0, 1, 2):
        result = one(col("i").variance(), [3 * k, 4 * k, 5 * k], signs=[1, 1, -1], cut=cut)
        assert result == pytest.approx((k**2 + (2 * k) ** 2 - (3 * k) ** 2) / 1, rel=1e-9)


@given(seed=st.integers(0, 2**32), withdrawable=st.booleans(), base=st.sampled_from([0.0, 1e9, -1e6]))
@examples(30)
def test_variance(seed: int, withdrawable: bool, base: float) -> None:
    rng = Random(seed)
    floats = [base + rng.random() for _ in range(9)]
    rows = random_rows(rng, withdrawable=withdrawable, floats=[*floats, None])
    for aggregate in (col("x").variance(), col("j").variance()):
        made_accumulator = accumulator(aggregate, withdrawable=withdrawable)
        parts = {p.name: over_bundles(p, rows, GROUPS, rng, withdrawable=withdrawable) for p in made_accumulator.parts}
        for result, value in zip(results(made_accumulator, parts), expected(aggregate, rows, GROUPS), strict=True):
            assert (result is None) == (value is None)
            assert result is None or result == pytest.approx(value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_that_are_not_finite(value: float) -> None:
    assert one(col("x").sum(), [value, 4.0, value], signs=[1, 1, -1], cut=1) == 4.0
    assert one(col("x").mean(), [value, 4.0, value], signs=[1, 1, -1], cut=1) == 4.0
    assert math.isnan(one(col("x").variance(), [value, 1.0]))
    assert one(col("x").variance(), [value, 1.0, value, 3.0], signs=[-1, 1, 1, 1], cut=1) == 1.0


def test_zeros_are_one_value_and_so_is_nan() -> None:
    zeros = [0.0, -0.0, math.nan, -math.nan, float("nan")]
    assert one(col("x").distinct(), zeros, cut=1) == 2
    assert one(col("x").approx_distinct(), zeros, cut=1) == 2
    assert str(one(col("x").min(), [-0.0])) == "0.0"
    assert str(one(col("x").sum(), [-0.0])) == "0.0"


def test_integers_beyond_2_to_the_53_are_told_apart() -> None:
    numbers = [2**53, 2**53 + 1, 2**62 + 1, 2**62]
    assert one(col("i").collect(), numbers, cut=2) == tuple(sorted(numbers))
    assert one(col("i").quantile(0.5), numbers, cut=2) == 2**53 + 1
    assert one(col("i").top(1), numbers, cut=2) == (2**62 + 1,)


@pytest.mark.parametrize("signs", [None, [1] * 100])
def test_a_quantile_is_the_decimal_as_it_is_written(signs: list[int] | None) -> None:
    assert 0.07 * 100 > 7
    assert one(col("i").quantile(0.07), list(range(1, 101)), signs=signs, cut=40) == 7


def test_an_aggregate_of_nothing_is_its_identity() -> None:
    for aggregate in [*WHAT.values(), col("i").variance(), col("x").variance()]:
        for withdrawable in (False, True):
            made_accumulator = accumulator(aggregate, withdrawable=withdrawable)
            nothing = {part.name: pa.nulls(2, part.type) for part in made_accumulator.parts}
            expected_values = expected(aggregate, [], 2)
            assert all(map(same, results(made_accumulator, nothing), expected_values))
            for part in made_accumulator.parts:
                assert fold_rows(part, [], 2, withdrawable=withdrawable).null_count == 2
                assert gather_parts(part, [pa.nulls(2, part.type)] * 2, 2).null_count == 2
                assert len(part.gather(pa.nulls(0, part.type), Groups(np.array([0])))) == 0


def test_the_types_of_results() -> None:
    from headrace.kernel.columns import arrow_type

    for withdrawable in (False, True):
        for name, compiled_aggregate in compile_aggregates(
            WHAT, SCHEMA, withdrawable=withdrawable, all_kept=False
        ).items():
            nothing = {part.name: pa.nulls(1, part.type) for part in compiled_aggregate.parts}
            assert compiled_aggregate.result(nothing).type == arrow_type(output_type(WHAT[name], SCHEMA)), name


def test_parts_are_named_after_the_place_of_their_aggregate() -> None:
    aggregates = compile_aggregates(
        {"m": col("i").mean(), "p": col("s").pairs(col("t"))}, SCHEMA, withdrawable=False, all_kept=False
    )
    assert [part.name for one in aggregates.values() for part in one.parts] == [
        "_a0_sum", "_a0_count", "_a1_left", "_a1_right",
    ]  # fmt: skip


def test_parts_of_several_rows_of_sliced_columns() -> None:
    for aggregate in WHAT.values():
        made_accumulator = accumulator(aggregate)
        rows = [
            Row(g, {"i": g, "x": g / 2, "s": str(g), "b": True, "t": g, "j": g}) for g in range(4) for _ in range(2)
        ]
        parts = {}
        for part in made_accumulator.parts:
            array = gather_parts(part, [fold_rows(part, rows, 4)] * 2, 4)
            parts[part.name] = part.gather(array.slice(1, 2), Groups(np.array([0, 1, 2])))
        expected_values = expected(aggregate, [*rows, *rows], 4)[1:3]
        assert all(map(same, results(made_accumulator, parts), expected_values))


@pytest.mark.slow
def test_parts_are_plain_data_that_files_of_parquet_hold() -> None:
    top = 2**63 - 1
    records = [{"i": top - g, "x": g - 0.5, "s": str(g), "b": True, "t": g, "j": g} for g in range(3)]
    rows = [Row(g, record) for g, record in enumerate(records) for _ in range(3)]
    for withdrawable in (False, True):
        for aggregate in [*WHAT.values(), col("i").variance(), col("x").variance()]:
            parts = accumulator(aggregate, withdrawable=withdrawable).parts
            table = pa.table({part.name: fold_rows(part, rows, 4, withdrawable=withdrawable) for part in parts})
            sink = pa.BufferOutputStream()
            parquet.write_table(table, sink)
            assert parquet.read_table(pa.BufferReader(sink.getvalue()), use_threads=False).equals(table)


def test_errors_of_users_combiners_name_them() -> None:
    with pytest.raises(PipelineError, match=r"Refusing.*could not add values.*bad luck"):
        one(col("i").combine(Refusing()), [1, 13])
    with pytest.raises(PipelineError, match=r"Refusing.*could not give a result.*bad luck"):
        one(col("i").combine(Refusing(late=True)), [1, 13])
