"""An epoch that is cut into shares of its input and parts of its keys gives what it gives whole: whatever the cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace.kernel.delta import aggregate_rows, judge_rows
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult, in_emitted_order, step_stage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.stages import Stage
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.layers import Layers
from headrace.state.sorted_file import SortedFile
from headrace_lab.conformance.values import element_rows
from headrace_lab.reference import evaluate, run_pipeline
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.intake import EpochInput, Intake
from tests.kernel import further_scenarios as further
from tests.kernel.operators import emitted_panes
from tests.panes import by_window, same
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

Columns = dict[str, pa.Array]


@dataclass
class Parts:
    """A stage whose keys are in several parts by the top bits of their hash; each part has a state of its own."""

    stage: Stage
    number: int
    watermark: Instant = MIN_INSTANT
    output_watermark: Instant = MIN_INSTANT
    processing_time: Instant = MIN_INSTANT
    percentiles: dict[float, Instant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compiled_stage = CompiledStage(self.stage)
        self.layers = [Layers(self.compiled_stage) for _ in range(self.number)]

    def run(
        self, epoch: int, shares: Sequence[Columns], clocks: FiringClocks, batch: bool, signals: Any
    ) -> list[StageResult]:
        deltas, place = [], 0
        for share in shares:
            judgements = judge_rows(self.compiled_stage, share)
            bundle = aggregate_rows(self.compiled_stage, judgements, self.watermark, self.output_watermark, place=place)
            place += len(share[c.EVENT_TIME])
            if bundle.delta is not None:
                deltas.append(bundle.delta)
        delta = pa.concat_batches(deltas) if deltas else None
        results = []
        for part in range(self.number):
            own = None if delta is None else delta.filter(pa.array(self._part(delta) == part))
            touched_hashes = np.zeros(0, np.uint64) if own is None else np.unique(own.column(c.HASH).to_numpy())
            state = self.layers[part].affected_rows(touched_hashes, clocks, signals)
            own = own if own is not None and own.num_rows else None
            result = step_stage(
                self.compiled_stage,
                state,
                own,
                clocks,
                epoch,
                output_watermark=self.output_watermark,
                signals=signals,
                is_batch=batch,
            )
            part_layers = self.layers[part]
            self.layers[part] = part_layers.with_layer(
                [] if result is None else [SortedFile(part_layers.changes_to_keep(result.changes))], epoch
            )
            results += [] if result is None else [result]
        self.watermark, self.processing_time = clocks.watermark_after, clocks.processing_time
        self.output_watermark = min(layers.earliest_hold(self.watermark) for layers in self.layers)
        return results

    def _part(self, delta: pa.RecordBatch) -> Any:
        return (delta.column(c.HASH).to_numpy() >> np.uint64(32)) * np.uint64(self.number) >> np.uint64(32)

    def clocks(self, watermark: Instant, now: Instant, percentiles: dict[float, Instant]) -> FiringClocks:
        new_watermark, new_percentiles = Instant(max(self.watermark, watermark)), {}
        for q in sorted(self.compiled_stage.trigger.percentiles):
            old = self.percentiles.get(q, MIN_INSTANT)
            self.percentiles[q] = Instant(max(old, percentiles.get(q, old)))
            new_percentiles[q] = (Instant(max(old, self.watermark)), Instant(max(self.percentiles[q], new_watermark)))
        return FiringClocks(
            self.watermark,
            new_watermark,
            self.processing_time,
            Instant(max(self.processing_time, now)),
            new_percentiles,
        )


def cut(columns: Columns, places: Sequence[int]) -> list[Columns]:
    """Columns in shares that begin at ``places``."""
    length = len(columns[c.EVENT_TIME])
    ends = sorted({0, length, *(place % (length + 1) for place in places)})
    spans = list(pairwise(ends)) or [(0, 0)]
    return [{name: column.slice(a, b - a) for name, column in columns.items()} for a, b in spans]


def run_in_parts(scenario: Scenario, number: int, places: Sequence[int]) -> list[list[Pane]]:
    pipeline = scenario.pipeline
    stages = [Parts(stage, number) for stage in pipeline.stages]
    first, expr = stages[0], pipeline.event_time.expr
    assert expr is not None
    intake = Intake(pipeline, first.compiled_stage.trigger.percentiles)
    clock, panes_by_epoch = MIN_INSTANT, []
    for epoch, given_epoch in enumerate(scenario.epochs):
        clock = Instant(max(clock, given_epoch.processing_time))
        timed_pairs = [(record, evaluate(expr, record, pipeline.schema)) for record in given_epoch.records]
        rows = element_rows(pipeline.schema, [(record, time, 1) for record, time in timed_pairs if time is not None])
        intake.take(OWN, given_epoch.records, clock, {"": EpochInput()})
        intake.advance(clock, given_epoch.is_last)
        watermark, percentiles = intake.watermark, intake.percentiles
        results: list[StageResult] = []
        for number_of_stage, stage in enumerate(stages):
            if number_of_stage:
                bundle = (
                    in_emitted_order([result.emitted_elements() for result in results]).elements if results else None
                )
                watermark, percentiles = stages[number_of_stage - 1].output_watermark, {}
            else:
                bundle = rows
            shares = [] if bundle is None else cut(bundle, places)
            clocks = stage.clocks(watermark, clock, percentiles)
            batch = given_epoch.is_last and epoch == 0
            results = stage.run(epoch, shares, clocks, batch, given_epoch.signals)
        panes_by_epoch.append([pane for result in results for pane in emitted_panes(result)])
    return panes_by_epoch


def check_parts(scenario: Scenario, number: int, places: Sequence[int]) -> None:
    """Whether the reference's panes come out, however an epoch is cut."""
    scenario = replace(scenario, pipeline=replace(scenario.pipeline, deduplicate=None))
    expected = run_pipeline(scenario.pipeline, scenario.epochs)
    for panes, reference in zip(run_in_parts(scenario, number, places), expected, strict=True):
        left, right = by_window(panes), by_window(list(reference.panes))
        assert left.keys() == right.keys(), (panes, reference.panes)
        for place, others in right.items():
            own = left[place]
            assert [replace(p, values=()) for p in own] == [replace(p, values=()) for p in others], (own, others)
            assert all(same(a.values, b.values) for a, b in zip(own, others, strict=True)), (own, others)


@pytest.mark.slow
@given(scenarios(), st.integers(1, 5), st.lists(st.integers(0, 30), max_size=3))
@settings(examples(100), suppress_health_check=list(HealthCheck))
def test_an_epoch_in_shares_and_parts_is_the_whole_one(scenario: Scenario, number: int, places: list[int]) -> None:
    note(f"{scenario.pipeline!r}")
    check_parts(scenario, number, places)


@pytest.mark.slow
@pytest.mark.parametrize("name", further.SCENARIOS)
def test_so_is_one_whose_order_counts(name: str) -> None:
    scenario = Scenario(further.build(*further.SCENARIOS[name]), further.random_epochs(sum(name.encode())))
    check_parts(scenario, 3, [7, 30, 60])
