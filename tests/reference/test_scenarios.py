"""What holds of any pipeline: values have their declared types, retractions fit, everything is accounted for."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from hypothesis import given

from headrace.model.accumulation import Accumulation
from headrace.model.expressions.data_types import DataType, ListType, PairsType, ValueType
from headrace.model.windows import WindowFn
from headrace.testing import fingerprint
from headrace_lab.reference import DropCause, DroppedElement, Record, run_pipeline
from headrace_lab.reference.windows import assign
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples
from tests.reference.test_invariants import Live

PYTHON = {
    DataType.STRING: str,
    DataType.INT: int,
    DataType.FLOAT: float,
    DataType.BOOL: bool,
    DataType.TIMESTAMP: int,
    DataType.DATE: date,
    DataType.BYTES: bytes,
    DataType.DECIMAL: Decimal,
}


def has_type(value: Any, kind: ValueType) -> bool:
    match kind:
        case ListType(item):
            return isinstance(value, tuple) and all(type(v) is PYTHON[item] for v in value)
        case PairsType(left, right):
            return all(has_type(v, kind) for pair in value for v, kind in zip(pair, (left, right), strict=True))
        case _:
            return value is None or type(value) is PYTHON[kind]


@examples(80)
@given(scenarios())
def test_panes_hold_what_was_declared(scenario: Scenario) -> None:
    pipeline = scenario.pipeline
    kinds = [*pipeline.key_types.values(), *pipeline.value_types.values()]
    for result in run_pipeline(pipeline, scenario.epochs):
        for pane in result.panes:
            values = [*pane.key, *pane.values]
            assert all(has_type(value, kind) for value, kind in zip(values, kinds, strict=True)), (values, kinds)
            assert pipeline.null_keys or None not in pane.key


@examples(80)
@given(scenarios())
def test_retractions_withdraw_what_is_live(scenario: Scenario) -> None:
    pipeline = scenario.pipeline
    live = Live()
    last = pipeline.stages[-1]
    for result in run_pipeline(pipeline, scenario.epochs):
        for pane in result.panes:
            if last.aggregation.how.accumulation is Accumulation.ACCUMULATING and not pane.is_retraction:
                live.replace(pane)
            elif last.withdraws:
                live.apply(pane)
            assert last.withdraws or not pane.is_retraction


@examples(60)
@given(scenarios(stages=1))
def test_every_record_is_accounted_for(scenario: Scenario) -> None:
    """Counted in a pane, dropped, or rejected; a window that never expires may keep some to itself."""
    how = replace(scenario.pipeline.how, accumulation=Accumulation.DISCARDING, elide_unchanged=False)
    pipeline = replace(scenario.pipeline, how=how, having=None)
    if pipeline.how.allowed_lateness is None or pipeline.filter is not None:
        return
    results = run_pipeline(pipeline, scenario.epochs)
    rows = [row for epoch in scenario.epochs for row in epoch.records]
    counted_total = sum(pane.values[0] for result in results for pane in result.panes)
    drops = [drop for result in results for drop in result.drops]
    unplaced_total = sum(drop.window is None for drop in drops)
    rejected_total = sum(len(result.rejected) for result in results)
    needed_columns = ["at", *(() if pipeline.null_keys else pipeline.key)]
    accepted_rows = [row for row in rows if None not in map(row.get, needed_columns)]
    assert rejected_total == len(rows) - len(accepted_rows)
    assert all(drop.window is None for drop in drops if drop.cause is DropCause.DUPLICATE)
    windows = _windows_per_element(pipeline.where, accepted_rows, drops)
    assert counted_total + len(drops) - unplaced_total == windows


def _windows_per_element(where: WindowFn, rows: list[Record], drops: list[DroppedElement]) -> int:
    """How many (element, window) pairs there are of the rows that were not dropped before they had windows."""
    early = [drop.element.record for drop in drops if drop.window is None]
    return sum(len(assign(where, row["at"])) for row in rows) - sum(len(assign(where, row["at"])) for row in early)


@examples(30)
@given(scenarios())
def test_a_pipeline_is_a_value(scenario: Scenario) -> None:
    pipeline_again = replace(scenario.pipeline, description="again")
    assert fingerprint(pipeline_again) == fingerprint(scenario.pipeline)
    # as text, in which NaN equals itself
    assert repr(run_pipeline(pipeline_again, scenario.epochs)) == repr(run_pipeline(scenario.pipeline, scenario.epochs))
