"""The kernel without tasks: a stage with its layers and clocks in memory, and what an epoch makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import dropwhile
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.distribute.chain import StageClocks
from headrace.distribute.epoch import StageOutcome
from headrace.kernel.delta import Accounting, AggregatedBundle, Columns, aggregate_rows, judge_rows
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult, in_emitted_order, step_stage
from headrace.model.accumulation import Timing
from headrace.model.time import MIN_INSTANT, Instant, to_instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.pipeline.stages import Stage
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.layers import Layers
from headrace.state.sorted_file import SortedFile
from headrace_lab.conformance.values import plain_value
from headrace_lab.reference.elements import Pane

NOTHING = AggregatedBundle()


@dataclass(frozen=True)
class StageStep:
    """What one epoch did to a stage; ``result`` None: nothing changed."""

    clocks: FiringClocks
    accounting: Accounting
    result: StageResult | None

    @property
    def outcome(self) -> StageOutcome:
        """Its counts."""
        result = self.result
        return StageOutcome(
            self.accounting, result.counts if result else None, result.changes.num_rows if result else 0
        )


@dataclass
class Operator:
    """A stage with its state and clocks. Nothing here is lost between epochs that a restore would not bring back."""

    stage: Stage
    clocks: StageClocks = field(default_factory=StageClocks)

    def __post_init__(self) -> None:
        self.compiled_stage = CompiledStage(self.stage)
        self.layers = Layers(self.compiled_stage)
        self._output_watermark: Instant | None = self.clocks.output_watermark

    @property
    def watermark(self) -> Instant:
        """That of its input."""
        return self.clocks.watermark

    def restore(self, layers: Layers, clocks: StageClocks) -> None:
        """Go on from a snapshot: its layers and clocks."""
        self.layers, self.clocks, self._output_watermark = layers, clocks, clocks.output_watermark

    def take_in(self, rows: Columns) -> AggregatedBundle:
        """Judge, aggregate and count rows of ``Stage.schema`` under the watermark that the last epoch left."""
        judgements = judge_rows(self.compiled_stage, rows)
        output_watermark_behind = self.output_watermark if self.compiled_stage.stamps_elements else MIN_INSTANT
        return aggregate_rows(self.compiled_stage, judgements, self.watermark, output_watermark_behind)

    def step(
        self,
        epoch: int,
        bundle: AggregatedBundle,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant] | None = None,
        *,
        signals: Sequence[Signal] = (),
        is_batch: bool = False,
    ) -> StageStep:
        """One epoch (semantics 12.1): ``bundle`` under the old watermark, due deadlines, ``signals``, then the step to
        ``watermark``. ``is_batch``: it is all there is, and each window gives one pane, in that step. Clocks never go
        back.
        """
        output_watermark_behind = self.output_watermark if self.compiled_stage.stamps_merged else MIN_INSTANT
        clocks, self.clocks = self.clocks.advance_to(self.compiled_stage, processing_time, watermark, percentiles or {})
        touched_numpy = np.zeros(0, np.uint64) if bundle.delta is None else bundle.delta.column(c.HASH).to_numpy()
        state = self.layers.affected_rows(touched_numpy, clocks, signals)
        result = step_stage(
            self.compiled_stage,
            state,
            bundle.delta,
            clocks,
            epoch,
            output_watermark=output_watermark_behind,
            signals=signals,
            is_batch=is_batch,
        )
        left = tuple(dropwhile(lambda layer: self.watermark > layer.expires, self.layers.layers))
        layers_below = Layers(self.compiled_stage, left)
        self.layers = layers_below.with_layer(
            [SortedFile(layers_below.changes_to_keep(result.changes))] if result else [], epoch
        )
        self._output_watermark = None
        return StageStep(clocks, bundle.accounting, result)

    @property
    def output_watermark(self) -> Instant:
        """O = min(W, every hold) (semantics 7.1); it never goes back, since no new hold may lie behind it (6.2).

        Where each window fires when W passes its end and holds are at the ends, nothing can hold it back.
        """
        if self._output_watermark is None:
            self._output_watermark = self.watermark
            if self.compiled_stage.stamps_elements or not self.compiled_stage.trigger.ready_past_end:
                self._output_watermark = self.layers.earliest_hold(self.watermark)
        return self._output_watermark


def run_stages(
    operators: Sequence[Operator],
    epoch: int,
    bundle: AggregatedBundle,
    *,
    processing_time: Instant,
    watermark: Instant,
    percentiles: Mapping[float, Instant] | None = None,
    signals: Sequence[Signal] = (),
    is_batch: bool = False,
) -> tuple[StageStep, ...]:
    """One epoch of a chain: each operator gets the panes above it as one bundle under its old watermark, then the
    output watermark above it (semantics 7.2, 12.1). ``bundle``, ``watermark``, ``percentiles`` are those of the first;
    ``signals`` reach all, and a batch is one to all.
    """
    steps: list[StageStep] = []
    for operator in operators:
        if steps:
            result_above = steps[-1].result
            bundle = NOTHING
            if result_above is not None and len(result_above.emission.row):
                bundle = operator.take_in(in_emitted_order([result_above.emitted_elements()]).elements)
            watermark = operators[len(steps) - 1].output_watermark
        source = None if steps else percentiles
        step = operator.step(epoch, bundle, processing_time, watermark, source, signals=signals, is_batch=is_batch)
        steps.append(step)
    return tuple(steps)


def emitted_panes(result: StageResult | None) -> list[Pane]:
    """What an epoch emitted, retractions included, ordered by the emitting window's (end, start), then key, as a step's
    output is (semantics 3.2).
    """
    if result is None:
        return []
    emission = result.emission
    keys = [result.rows[name].take(pa.array(emission.row)).to_pylist() for name in result.stage.keys]
    own = [result.rows[name].to_numpy()[emission.row].tolist() for name in (c.WINDOW_END, c.WINDOW_START)]
    panes = emission.panes.to_pylist()
    names = list(result.stage.stage.value_types)
    rows = zip(
        *own, zip(*keys, strict=True), emission.sequence.tolist(), panes, emission.is_retraction.tolist(), strict=True
    )
    ordered_rows = sorted(rows, key=lambda row: (*row[:2], [(part is None, part) for part in row[2]], row[3]))
    return [_pane(key, names, pane, withdrawn) for _, _, key, _, pane, withdrawn in ordered_rows]


def _value(value: Any) -> Any:
    """A value as the reference has it: times are instants."""
    return to_instant(value) if isinstance(value, datetime) else plain_value(value)


def _pane(key: tuple[Any, ...], names: Sequence[str], pane: Mapping[str, Any], is_retraction: bool) -> Pane:
    return Pane(
        key=key,
        window=Window(Instant(pane["window_start"]), Instant(pane["window_end"])),
        values=tuple(_value(pane[name]) for name in names),
        timestamp=Instant(pane["pane_time"]),
        timing=Timing(pane["timing"]),
        index=pane["pane_index"],
        nonspeculative_index=pane["nonspeculative_index"],
        is_first=pane["is_first"],
        is_last=pane["is_last"],
        is_retraction=is_retraction,
    )
