"""Random pipelines over records of both signs: withdrawals of what came, of what never came, and no sign at all."""

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

import headrace as hr
from headrace import FileSource, col
from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.endpoints import Input
from headrace_lab.reference import Epoch
from tests.building import lengths
from tests.reference.scenarios import _PARTS, FEW, ROWS, SCHEMA, SECOND, Scenario, cross_rows, epochs

OTHER = "other"
_SIGNED_SCHEMA = {**SCHEMA, "sign": DataType.INT}
_SIGNS = st.sampled_from([*[1, -1] * 6, 0, None])
_ROWS = st.lists(
    st.builds(
        lambda row, user, moment, x, no: {**row, "user": user, "at": moment, "x": x, **dict.fromkeys(no)},
        ROWS,
        st.sampled_from(["a", "b", "b", None]),
        st.integers(0, 40),
        st.integers(-3, 9),
        st.sampled_from([(), (), (), (), (), ("user",), ("at",)]),
    ),
    min_size=2,
    max_size=6,
)
_CHANGES = st.lists(st.tuples(st.integers(0, 5), _SIGNS), min_size=2, max_size=9)
"""Numbers of rows, and what becomes of them."""
_CROWD = st.lists(st.tuples(st.integers(0, 19), _SIGNS), min_size=20, max_size=60)
_PLAIN = st.lists(ROWS, max_size=3)
_FORMATS = st.sampled_from(["json", "parquet"])
_WINDOWS = st.one_of(
    st.builds(hr.FixedWindows, lengths(1, 20), lengths(-5, 25)),
    st.builds(hr.SlidingWindows, lengths(1, 20), lengths(2, 12), lengths(-5, 15)),
    st.just(hr.GlobalWindows()),
    st.just(hr.CalendarWindows("day", "Europe/Berlin")),
)
_TRIGGERS = st.sampled_from(
    [
        hr.on_update(),
        hr.Default(),
        hr.Repeatedly(hr.AfterCount(2)),
        hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(2)),
        hr.Repeatedly(hr.AfterAny(hr.AfterCount(3), hr.AfterProcessingTime("9us"))),
        hr.OrFinally(hr.Repeatedly(hr.AfterSignal("go")), hr.Never()),
        hr.Repeatedly(hr.AfterBytes(100)),
        hr.Repeatedly(hr.AfterPercentileWatermark(60)),
    ]
)
_HOWS = st.builds(
    lambda lateness, *behaviour, elide: How(Accumulation.RETRACTING, lateness, *behaviour, elide_unchanged=elide),
    st.none() | lengths(0, 30),
    st.sampled_from(Firing),
    st.sampled_from(Firing),
    st.sampled_from(TimestampCombiner),
    elide=st.booleans(),
)


@st.composite
def signed_scenarios(draw: st.DrawFn) -> Scenario:
    """A pipeline with a changelog, and perhaps a second input without one."""
    parts: dict[str, Any] = {name: draw(part) for name, part in _PARTS.items() if name != "event_time"}
    parts |= {"where": draw(_WINDOWS), "when": draw(_TRIGGERS), "how": draw(_HOWS), "allow_double_counting": True}
    parts["key"] = draw(st.sampled_from([{"user": col("user")}, {"user": col("user"), "x": col("x")}]))
    for part in ("deduplicate", "having", "filter"):
        parts[part] = parts[part] if draw(st.integers(0, 2)) == 2 else None
    source = FileSource("nowhere", draw(_FORMATS), _SIGNED_SCHEMA, changelog=col("sign"))
    has_other = draw(st.booleans())
    if has_other:
        other = FileSource("elsewhere", "json", SCHEMA)
        parts["union"] = [Input(other, draw(_PARTS["event_time"]), OTHER, {"sign": hr.lit(7)})]
    try:
        definition = hr.Pipeline(
            "scenario",
            Input(source, draw(_PARTS["event_time"])),
            then=tuple(draw(st.lists(SECOND, max_size=1))),
            allow_finishing=True,
            **parts,
        )
    except PipelineError:
        assume(False)
        raise
    rows, times = draw(_ROWS), draw(epochs())
    if any(len(epoch.records) > FEW for epoch in times):
        rows = cross_rows(rows, 20, draw(st.integers(0, 2**16)))
    bundles = [
        Epoch(
            epoch.processing_time,
            [
                {**rows[number % len(rows)], "sign": sign}
                for number, sign in draw(_CROWD if len(epoch.records) > FEW else _CHANGES)
            ],
            epoch.is_last,
            epoch.signals,
            union={OTHER: draw(_PLAIN)} if has_other else {},
        )
        for epoch in times
    ]
    return Scenario(definition, bundles)
