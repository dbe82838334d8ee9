"""Words for what any trigger waits for, in any state."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import DataType, Trigger
from headrace.distribute.chain import StageClocks
from headrace.kernel.columns import ARROW_TYPES
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant
from headrace.pipeline.stages import Stage
from headrace.program import columns as c
from headrace.read.open_windows import Readiness, TriggerCondition, waits_for
from tests.reference.strategies import TRIGGERS, examples

END = 3_600_000_000
TIMES = st.integers(0, 2 * END)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    DataType.INT: st.integers(0, 5),
    DataType.BOOL: st.booleans(),
    DataType.FLOAT: st.floats(0, 5),
}


@st.composite
def rows(draw: st.DrawFn, stage: CompiledStage) -> pa.RecordBatch:
    """State of three windows of an hour, as the trigger may have left it."""
    columns: dict[str, pa.Array] = {
        c.WINDOW_START: pa.array([0, 0, 0]),
        c.WINDOW_END: pa.array([END, END, END]),
        c.NEW: pa.array([1, 1, 1]),
    }
    for field in stage.trigger.fields:
        value = st.none() | TIMES if field.is_deadline else VALUES[field.type]
        columns[field.name] = pa.array(draw(st.lists(value, min_size=3, max_size=3)), ARROW_TYPES[field.type])
    return pa.RecordBatch.from_pydict(columns)


@examples(60)
@given(st.data(), TRIGGERS, TIMES, TIMES)
def test_every_trigger_has_words_in_every_state(data: st.DataObject, when: Trigger, watermark: int, now: int) -> None:
    aggregation = hr.Aggregation(what={"n": hr.count()}, where=hr.FixedWindows("1h"), when=when)
    stage = CompiledStage(Stage(aggregation, {"end": DataType.BOOL, "number": DataType.INT}))
    readiness, clocks = Readiness(stage), StageClocks(Instant(watermark), Instant(now))
    state = data.draw(rows(stage))
    conditions = [readiness.trigger_condition(facts) for facts in readiness.facts_of_windows(state, clocks)]
    assert readiness.describe_waits(state, clocks) == [waits_for(each) for each in conditions]
    for each in conditions:
        check(each)


def check(condition: TriggerCondition) -> None:
    """Whether what is said of a node fits what is said of its parts."""
    assert isinstance(condition.is_met, bool)
    assert condition.condition
    if condition.condition == "any of these" and any(part.is_met for part in condition.parts):
        assert condition.is_met
    if condition.condition == "all of these at the same moment" and all(part.is_met for part in condition.parts):
        assert condition.is_met
    if condition.condition == "again and again":
        (part,) = condition.parts
        assert condition.waits_for == part.waits_for
    if condition.is_met and condition.condition not in ("around the end of the window", "again and again"):
        assert condition.waits_for is None
    for part in condition.parts:
        check(part)
