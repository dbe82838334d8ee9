"""Scenarios as wide as input gets: two inputs in the form of one, splits, asserted watermarks, records ahead of the
clock, files of two formats, lists, fields of other names and in objects, users' own windows, windows that keep their
last elements.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from headrace import FileSource, ListType, field, if_else
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime, Monotonic, Punctuated
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col, lit
from headrace.model.time import Duration
from headrace.pipeline.endpoints import Input
from headrace_lab.reference import Epoch
from tests.building import lengths
from tests.own_windows import Validity
from tests.reference.scenarios import FEW, ROWS, SCHEMA, Scenario, crowds, scenarios

OTHER = "other"
_OWN = {**SCHEMA, "mark": DataType.TIMESTAMP, "tags": ListType(DataType.INT)}
_SECOND = {**{name: kind for name, kind in _OWN.items() if name != "user"}, "who": DataType.STRING}
_TIMES = st.integers(-20, 60) | st.none()
_TAGS = st.none() | st.lists(st.none() | st.integers(1, 3), max_size=3)
_OWN_ROWS = st.builds(lambda row, mark, tags: {**row, "mark": mark, "tags": tags}, ROWS, _TIMES, _TAGS)
_SECOND_ROWS = st.builds(lambda row: {"who": row["user"], **{n: v for n, v in row.items() if n != "user"}}, _OWN_ROWS)
_OWN_BUNDLES, _SECOND_BUNDLES = st.lists(_OWN_ROWS, max_size=FEW), st.lists(_SECOND_ROWS, max_size=4)
_OWN_CROWDS = crowds(_OWN_ROWS)


_TIMEOUTS = st.none() | lengths(1, 30)
_EVENT_TIMES = st.builds(
    EventTime,
    st.just(col("at")),
    st.builds(BoundedOutOfOrderness, lengths(0, 30), _TIMEOUTS)
    | st.builds(Monotonic, _TIMEOUTS)
    | st.builds(Punctuated, st.just(col("mark")), _TIMEOUTS),
    st.sampled_from([None, col("word"), if_else(col("x") > 3, "fast", "slow")]),
    st.none() | st.sampled_from([Duration(0), Duration(10), Duration(86_400_000_000)]),
)
_FORMATS = st.sampled_from(["json", "parquet"])
_PLACES = st.sampled_from(["{}", "{}", "_{}", "in.{}", "in.deep.{}", "out.{}"])
_FILTERS = st.sampled_from(
    [
        col("tags").contains(2),
        ~col("tags").contains(1),
        (col("tags").length() > 1) | col("tags").is_null(),
        col("tags").length() + col("x") > 2,
    ]
)
_COLUMNS: list[Mapping[str, Any]] = [
    {"user": col("who")},
    {"user": col("who"), "x": col("x") * 2, "word": lit("b")},
    {"user": lit("cid"), "at": col("mark")},
]


@st.composite
def _place_columns(draw: st.DrawFn, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The columns of ``schema``, some of them called otherwise in the records, or in an object there."""
    return {name: field(draw(_PLACES).format(name), kind) for name, kind in schema.items()}


@st.composite
def wider_scenarios(draw: st.DrawFn) -> Scenario:
    """A scenario with more to read."""
    scenario = draw(scenarios())
    plain, parts = scenario.pipeline, {}
    parts["input"] = Input(FileSource("nowhere", draw(_FORMATS), draw(_place_columns(_OWN))), draw(_EVENT_TIMES))
    if draw(st.booleans()):
        second = FileSource("elsewhere", draw(_FORMATS), draw(_place_columns(_SECOND)))
        parts["union"] = (Input(second, draw(_EVENT_TIMES), OTHER, draw(st.sampled_from(_COLUMNS))),)
    if draw(st.integers(0, 2)) == 0:
        parts["filter"] = draw(_FILTERS)
    if draw(st.integers(0, 3)) == 0:
        parts["how"] = replace(plain.how, keep_last=draw(st.integers(1, 3)))
    if draw(st.integers(0, 4)) == 0:
        parts["where"] = Validity(draw(st.integers(1, 15)))
    try:
        pipeline = replace(plain, **parts)
    except PipelineError:
        assume(False)
        raise
    epochs = [
        Epoch(
            epoch.processing_time,
            draw(_OWN_CROWDS if len(epoch.records) > FEW else _OWN_BUNDLES),
            epoch.is_last,
            epoch.signals,
            union={OTHER: draw(_SECOND_BUNDLES)} if pipeline.union else {},
        )
        for epoch in scenario.epochs
    ]
    return Scenario(pipeline, epochs)
