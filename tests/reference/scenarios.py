"""Random whole pipelines of one and two aggregations with input for them: what any executor must give alike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.combiners import Aggregate, Outer
from headrace.model.expr import DataType, Expr, col
from headrace.model.time import Instant
from headrace.model.watermarks import BoundedOutOfOrderness, Monotonic
from headrace.model.windows import (
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    WindowFn,
)
from headrace.pipeline import (
    Aggregation,
    Deduplicate,
    EventTime,
    FileFormat,
    FileSource,
    Pipeline,
    Signal,
    approx_distinct_of,
    collect_of,
    count,
    custom_of,
    distinct_of,
    first_of,
    last_of,
    max_of,
    mean_of,
    min_of,
    pairs_of,
    quantile_of,
    sum_of,
    top_of,
    variance_of,
)
from headrace.reference import Epoch
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
}


@dataclass(frozen=True)
class Scenario:
    """A pipeline and its input; the last epoch ends it."""

    pipeline: Pipeline
    epochs: Sequence[Epoch]


PLAIN_WINDOWS: st.SearchStrategy[WindowFn] = st.one_of(
    st.builds(FixedWindows, st.integers(1, 20), st.integers(-5, 25)),
    st.builds(SlidingWindows, st.integers(1, 20), st.integers(2, 12), st.integers(-5, 15)),
    st.builds(Sessions, st.integers(1, 12), st.booleans()),
    st.just(GlobalWindows()),
    st.just(CalendarWindows("day", "Europe/Berlin")),
)
WINDOWS = PLAIN_WINDOWS | st.builds(ShiftedOutputTime, PLAIN_WINDOWS, st.integers(0, 9))

HOWS = st.builds(
    lambda how, *behaviour: How(how[0], *behaviour, elide_unchanged=how[1]),
    st.sampled_from([*((accumulation, False) for accumulation in Accumulation), (Accumulation.RETRACTING, True)]),
    st.none() | st.integers(0, 30),
    st.sampled_from(Firing),
    st.sampled_from(Firing),
    st.sampled_from(TimestampCombiner),
)


def aggregates(number: Expr, text: Expr, fraction: Expr) -> st.SearchStrategy[Mapping[str, Aggregate]]:
    """A count ``n``, a sum ``total`` and a float ``share``, and some of the other combiners over an int, a string and a
    float.
    """
    others = [
        count(number),
        min_of(number),
        max_of(text),
        mean_of(number),
        variance_of(number),
        first_of(text),
        last_of(number),
        collect_of(text),
        top_of(number, 2),
        distinct_of(text),
        approx_distinct_of(number),
        quantile_of(number, 0.5),
        pairs_of(number, text, Outer.BOTH),
        custom_of(Span(), number),
        custom_of(Bins(3), number),
        custom_of(Longest(), text),
        *[of(fraction) for of in (count, min_of, max_of, mean_of, variance_of, first_of, collect_of, distinct_of)],
        top_of(fraction, 2),
        quantile_of(fraction, 0.5),
    ]
    share = st.sampled_from([sum_of(fraction), mean_of(fraction), last_of(fraction)])
    some = st.lists(st.sampled_from(others), max_size=3, unique_by=id)
    return st.builds(
        lambda picked, share: {
            "n": count(),
            "total": sum_of(number),
            "share": share,
            **{f"a{i}": a for i, a in enumerate(picked)},
        },
        some,
        share,
    )


_TIMEOUTS = st.none() | st.integers(1, 30)
# here, not where they are drawn: making a strategy takes longer than drawing from it
_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "event_time": st.builds(
        EventTime,
        st.just(col("at")),
        st.builds(BoundedOutOfOrderness, st.integers(0, 30), _TIMEOUTS) | st.builds(Monotonic, _TIMEOUTS),
        st.none() | st.just(col("word")),
    ),
    "where": WINDOWS,
    "when": triggers(col("end"), col("x")),
    "how": HOWS,
    "what": aggregates(col("x"), col("word"), col("part")),
    "filter": st.none() | st.just(col("x") != 0),
    "deduplicate": st.none() | st.builds(Deduplicate, st.just(col("id")), st.integers(0, 40)),
}

SECOND = st.builds(
    Aggregation,
    key=st.sampled_from([{"total": col("total")}, {"n": col("n"), "low": col("total") % 2}]),
    where=WINDOWS,
    when=st.none() | triggers(col("n") > 1, col("total")),
    how=HOWS,
    what=aggregates(col("total"), col("user"), col("share")),
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
    }
)

SIGNALS = st.sampled_from(
    [(), (), (Signal("go"),), (Signal("go", key=("ann",)),), (Signal("go"), Signal("stop", key=("bob",)))]
)


_BUNDLES = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=5)


@st.composite
def epochs(draw: st.DrawFn) -> list[Epoch]:
    """Bundles of rows at times that need not rise."""
    parts = draw(_BUNDLES)
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
        "source": FileSource("nowhere", FileFormat.JSON, SCHEMA),
        "key": {"user": col("user")},
        **{name: draw(part) for name, part in _PARTS.items()},
        "then": tuple(draw(st.lists(SECOND, max_size=stages - 1))),
        "allow_finishing": True,
        "allow_double_counting": True,
    }
    try:
        pipeline = Pipeline(**parts)
    except PipelineError:
        assume(False)
        raise
    return Scenario(pipeline, draw(epochs()))
