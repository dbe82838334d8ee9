"""Random whole pipelines of one and two aggregations with input for them: what any executor must give alike."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from headrace import Aggregation, Deduplicate, FileSource, Pipeline, Signal, count
from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.combiners import Combiner, Outer
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Monotonic
from headrace.model.expressions.columns import coalesce
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Aggregate, Expr, col
from headrace.model.time import Instant
from headrace.model.windows import (
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    WindowFn,
)
from headrace_lab.reference import Epoch
from tests.building import lengths, pipeline
from tests.own_combiners import Bins, Longest, Span
from tests.reference.strategies import triggers

SCHEMA = {
    "user": DataType.STRING,
    "at": DataType.TIMESTAMP,
    "x": DataType.INT,
    "part": DataType.FLOAT,
    "word": DataType.STRING,
    "end": DataType.BOOL,
    "id": DataType.STRING,
    "day": DataType.DATE,
    "octets": DataType.BYTES,
    "price": DataType.DECIMAL,
}


@dataclass(frozen=True)
class Scenario:
    """A pipeline and its input; the last epoch ends it."""

    pipeline: Pipeline
    epochs: Sequence[Epoch]


PLAIN_WINDOWS: st.SearchStrategy[WindowFn] = st.one_of(
    st.builds(FixedWindows, lengths(1, 20), lengths(-5, 25)),
    st.builds(SlidingWindows, lengths(1, 20), lengths(2, 12), lengths(-5, 15)),
    st.builds(Sessions, lengths(1, 12), st.booleans()),
    st.just(GlobalWindows()),
    st.just(CalendarWindows("day", "Europe/Berlin")),
)
WINDOWS = PLAIN_WINDOWS | st.builds(ShiftedOutputTime, PLAIN_WINDOWS, lengths(0, 9))

HOWS = st.builds(
    lambda how, *behaviour: How(how[0], *behaviour, elide_unchanged=how[1]),
    st.sampled_from([*((accumulation, False) for accumulation in Accumulation), (Accumulation.RETRACTING, True)]),
    st.none() | lengths(0, 30),
    st.sampled_from(Firing),
    st.sampled_from(Firing),
    st.sampled_from(TimestampCombiner),
)


def of_any_type(value: Expr) -> list[Aggregate]:
    """The combiners that take values of every type."""
    any_of = ("count", "min", "max", "first", "last", "collect", "distinct", "approx_distinct", "distinct_sketch")
    return [*(getattr(value, method_name)() for method_name in any_of), value.top(2), value.pairs(value)]


def aggregates(
    number: Expr, text: Expr, fraction: Expr, *more: Aggregate
) -> st.SearchStrategy[Mapping[str, Aggregate]]:
    """A count ``n``, a sum ``total`` and a float ``share``, and some of the other combiners over an int, a string and a
    float, or of ``more``.
    """
    others = [
        *more,
        number.count(),
        number.min(),
        text.max(),
        number.mean(),
        number.variance(),
        text.first(),
        number.last(),
        text.collect(),
        number.top(2),
        text.distinct(),
        number.approx_distinct(),
        number.quantile(0.5),
        fraction.quantile_sketch(),
        number.pairs(text, Outer.BOTH),
        number.combine(Span()),
        number.combine(Bins(3)),
        text.combine(Longest()),
        *[
            getattr(fraction, method)()
            for method in ("count", "min", "max", "mean", "variance", "first", "collect", "distinct")
        ],
        fraction.top(2),
        fraction.quantile(0.5),
    ]
    share = st.sampled_from([fraction.sum(), fraction.mean(), fraction.last()])
    some = st.lists(st.sampled_from(others), max_size=3, unique_by=id)
    return st.builds(
        lambda further_aggregates, share: {
            "n": count(),
            "total": number.sum(),
            "share": share,
            **{f"a{i}": a for i, a in enumerate(further_aggregates)},
        },
        some,
        share,
    )


RESULTS: Sequence[Mapping[str, Expr]] = [
    {},
    {},
    {"rate": col("total") / col("n")},
    {"over": col("rate") > col("share"), "rate": col("total") / (col("n") - 1)},
    {"since": col("window_start").plus(seconds=col("n")), "later": coalesce(col("window_end"), col("window_start"))},
]
"""Columns of results over what ``aggregates`` gives."""

CONDITIONS = [None, None, col("n") > 1, col("total") % 2 == 0, col("total") / col("n") < 2, col("share") > 0]


def with_results(what: st.SearchStrategy[Mapping[str, Aggregate]]) -> st.SearchStrategy[Mapping[str, Aggregate | Expr]]:
    """``what``, and perhaps columns of results before, and after."""
    return st.builds(
        lambda aggregates, of_rows: {
            **dict([*of_rows.items()][:1]),
            **aggregates,
            **of_rows,
            **_lengths_of_lists(aggregates),
        },
        what,
        st.sampled_from(RESULTS),
    )


def _lengths_of_lists(what: Mapping[str, Aggregate]) -> dict[str, Expr]:
    lists = [name for name, aggregate in what.items() if aggregate.combiner in (Combiner.COLLECT, Combiner.TOP)]
    return {f"{name}_length": col(name).length() for name in lists}


OF_OTHER_TYPES = (
    *[each for name in ("day", "octets", "price") for each in of_any_type(col(name))],
    col("price").sum(),
    col("price").mean(),
    (col("price") * col("x") / 7).sum(),
    col("price").quantile(0.5),
    count().where(col("end")),
    col("price").sum().where(col("end")),
    col("x").pairs(col("word"), Outer.BOTH).where(col("x") > 0),
)
KEYS: list[dict[str, Expr]] = [
    *[{"user": col("user")}] * 3,
    {"user": col("user"), "day": col("day")},
    {"octets": col("octets"), "user": col("user"), "price": col("price")},
]
_TIMEOUTS = st.none() | lengths(1, 30)
# here, not where they are drawn: making a strategy takes longer than drawing from it
_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "event_time": st.builds(
        EventTime,
        st.just(col("at")),
        st.builds(BoundedOutOfOrderness, lengths(0, 30), _TIMEOUTS) | st.builds(Monotonic, _TIMEOUTS),
        st.none() | st.just(col("word")),
    ),
    "where": WINDOWS,
    "when": triggers(col("end"), col("x")),
    "how": HOWS,
    "key": st.sampled_from(KEYS),
    "what": with_results(aggregates(col("x"), col("word"), col("part"), *OF_OTHER_TYPES)),
    "having": st.sampled_from(CONDITIONS),
    "filter": st.sampled_from([None, col("x") != 0, col("day").plus(days=col("x")) > date(2013, 1, 1)]),
    "null_keys": st.booleans(),
    "deduplicate": st.none() | st.builds(Deduplicate, st.just(col("id")), lengths(0, 40)),
}

SECOND = st.builds(
    Aggregation,
    key=st.sampled_from([{"sum": col("total")}, {"number": col("n"), "low": col("total") % 2}, {"user": col("user")}]),
    where=WINDOWS,
    when=st.none() | triggers(col("n") > 1, col("total")),
    how=HOWS,
    what=with_results(aggregates(col("total"), col("user"), col("share"))),
    having=st.sampled_from(CONDITIONS),
    filter=st.none() | st.just(col("n") < 5),
)

ROWS = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ann", "bob", None]),
        "at": st.integers(-20, 60) | st.none(),
        "x": st.none() | st.integers(-3, 9),
        "part": st.none() | st.floats(-4, 4, width=16) | st.sampled_from([-0.0, math.inf, -math.inf, math.nan]),
        "word": st.none() | st.sampled_from(["", "a", "b", "ä"]),
        "end": st.none() | st.booleans(),
        "id": st.sampled_from("abcdefgh"),
        "octets": st.sampled_from([None, b"", b"\xff\x00", b"abc"]),
        "price": st.sampled_from([None, *map(Decimal, ("0", "19.99", "-0.01", "1e-9", "12345678901234567890.5"))]),
        "day": st.sampled_from([None, date(2013, 1, 1), date(2012, 12, 31), date(1969, 7, 20)]),
    }
)

SIGNALS = st.sampled_from(
    [
        (),
        (),
        (Signal("go"),),
        (Signal("go", key=("ann",)), Signal("go", key=(None,))),
        (Signal("go"), Signal("stop", key=("bob",))),
        (
            Signal("go", key=("ann", date(2013, 1, 1))),
            Signal("go", key=("ann", None)),
            Signal("go", key=("YWJj", "ann", "19.99")),
        ),
    ]
)


FEW = 6
"""The most rows of a bundle that is not crowded."""


def crowds(rows: st.SearchStrategy[Mapping[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """20 to 60 rows of few values, each with columns of any of ``rows``: where equal elements of a sort keep their
    order only because they are few, these show it.
    """
    return st.builds(cross_rows, st.lists(rows, min_size=2, max_size=4), st.integers(20, 60), st.integers(0, 2**16))


def cross_rows(rows: Sequence[Mapping[str, Any]], number: int, seed: int) -> list[dict[str, Any]]:
    """So many rows, each with columns of any of ``rows``."""
    rng = random.Random(seed)
    return [{name: rng.choice(rows)[name] for name in rows[0]} for _ in range(number)]


_FEW_ROWS = st.lists(ROWS, max_size=FEW)
_BUNDLES = st.lists(_FEW_ROWS, min_size=1, max_size=5)
_BUNDLES_WITH_CROWD = st.builds(
    lambda crowd, others, place: [*others[:place], crowd, *others[place:]],
    crowds(ROWS),
    st.lists(_FEW_ROWS, max_size=1),
    st.integers(0, 1),
)
_ANY_BUNDLES = st.one_of(*[_BUNDLES] * 4, _BUNDLES_WITH_CROWD)


@st.composite
def epochs(draw: st.DrawFn) -> list[Epoch]:
    """Bundles of rows at times that need not rise; of some, one is crowded."""
    parts = draw(_ANY_BUNDLES)
    times = draw(st.lists(st.integers(0, 60), min_size=len(parts), max_size=len(parts)))
    return [
        Epoch(Instant(time), part, is_last=i == len(parts) - 1, signals=draw(SIGNALS))
        for i, (time, part) in enumerate(zip(times, parts, strict=True))
    ]


@st.composite
def scenarios(draw: st.DrawFn, stages: int = 2) -> Scenario:
    """A pipeline of at most ``stages`` aggregations that the static checks accept."""
    parts: dict[str, Any] = {
        "name": "scenario",
        "source": FileSource("nowhere", "json", SCHEMA),
        **{name: draw(part) for name, part in _PARTS.items()},
        "then": tuple(draw(st.lists(SECOND, max_size=stages - 1))),
        "allow_finishing": True,
        "allow_double_counting": True,
    }
    try:
        own_pipeline = pipeline(**parts)
    except PipelineError:
        assume(False)
        raise
    return Scenario(own_pipeline, draw(epochs()))
