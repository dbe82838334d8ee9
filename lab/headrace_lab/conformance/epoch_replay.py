"""Replaying cases on executors that run pipelines in epochs: each step of a case is one epoch of its pipeline.

``StageRunner`` is what such an executor is asked for; ``EpochReplay`` says which pipeline a case configures, and
drives it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from headrace import json as source
from headrace.model.accumulation import accumulating, discarding
from headrace.model.combiners import Combiner
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Aggregate, Expr, col, count, lit
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.triggers.elementary import Always
from headrace.model.windows import FixedWindows, GlobalWindows, Window
from headrace.pipeline.output import Output
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.stages import Aggregation, Stage
from headrace_lab.conformance.cases import (
    DEFAULT_KEY,
    RESULT,
    AdvanceProcessingTime,
    AdvanceWatermark,
    BundleStep,
    Case,
    CaseElement,
    CaseStage,
    ExpectAssigned,
    ExpectCombined,
    ExpectMerged,
    ExpectOutputWatermark,
    StageLink,
    Step,
)
from headrace_lab.conformance.loops import loop_pipeline
from headrace_lab.conformance.replay import CaseReplay, StepOutcome
from headrace_lab.conformance.rows import KEY, VALUE, row_record, rows_pipeline
from headrace_lab.reference.elements import Pane

_SIGN = "sign of the element"


class StageElement(NamedTuple):
    """An element of the first stage; ``sign`` -1 withdraws it."""

    record: Mapping[str, Any]
    timestamp: Instant
    sign: int
    size: int


class StagesOutcome(NamedTuple):
    """What an epoch of all stages did: panes of the last one, drops of all of them by cause."""

    panes: Sequence[Pane]
    dropped: Mapping[str, int]


class StageRunner(Protocol):
    """The stages of a case on an executor."""

    def run(
        self,
        epoch: int,
        elements: Sequence[StageElement],
        *,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant],
        is_batch: bool,
    ) -> StagesOutcome:
        """One epoch (semantics 12.1); clocks that lie behind change nothing. ``is_batch``: it is all there is."""

    def output_watermarks(self) -> tuple[Instant, ...]:
        """The output watermark of each stage."""


Start = Callable[[Pipeline], StageRunner]
"""Makes a runner of a fresh pipeline."""


def replay_case(start: Start, case: Case) -> CaseReplay:
    """``case`` on runners that ``start`` makes."""
    try:
        return CaseReplay(tuple(EpochReplay(start, case).outcomes()))
    except Exception as error:  # of whatever kind: the other cases run on
        return CaseReplay(error=f"{type(error).__name__}: {error}")


@dataclass
class EpochReplay:
    """One case between two steps."""

    start: Start
    case: Case
    pipeline: Pipeline = field(init=False)
    schema: Schema = field(init=False)
    runner: StageRunner = field(init=False)
    clock: Instant = field(init=False)
    epoch: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.pipeline = _pipeline(self.case)
        self.schema = next(iter(self.pipeline.of_records.values())).stages[0].schema
        self.runner = self.start(self.pipeline)
        self.clock = self.case.initial_processing_time

    def outcomes(self) -> Iterator[StepOutcome]:
        """What each step did."""
        self._epoch(watermark=self.case.initial_watermark)
        for step in self.case.steps:
            panes = self._perform(step)
            asks = isinstance(step, ExpectOutputWatermark)
            watermarks = self.runner.output_watermarks() if asks else ()
            yield StepOutcome(panes, dict(self.dropped), watermarks, _answer(self.start, self.case, step))

    def _perform(self, step: Step) -> tuple[Pane, ...]:
        match step:
            case BundleStep(elements, is_batch):
                watermark = MAX_INSTANT if is_batch else MIN_INSTANT
                return self._epoch([*map(self._element, elements)], watermark, is_batch=is_batch)
            case AdvanceWatermark(to, percentiles):
                return self._epoch(watermark=to, percentiles=percentiles)
            case AdvanceProcessingTime(to):
                self.clock = Instant(max(self.clock, to))
                return self._epoch()
        return ()

    def _element(self, element: CaseElement) -> StageElement:
        first = self.case.stages[0]
        if first.rows is not None:
            record: Mapping[str, Any] = row_record(element)
        else:
            record = element.edge or _record(self.schema, element, collects=first.combine is None)
        return StageElement(record, element.timestamp, -1 if element.is_retraction else 1, element.size)

    def _epoch(
        self,
        elements: Sequence[StageElement] = (),
        watermark: Instant = MIN_INSTANT,
        percentiles: Mapping[float, Instant] | None = None,
        *,
        is_batch: bool = False,
    ) -> tuple[Pane, ...]:
        outcome = self.runner.run(
            self.epoch,
            elements,
            processing_time=self.clock,
            watermark=watermark,
            percentiles=percentiles or {},
            is_batch=is_batch,
        )
        self.epoch += 1
        self.dropped.update(outcome.dropped)
        return tuple(_decode_pane(self.case, pane) for pane in outcome.panes)


# --- the configuration of a case as a pipeline ------------------------------------------------------------------------


class _StagesPipeline(Pipeline):
    """The stages of a case, as they are, with an input that stands for its elements."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        elements = source("elements", {"at": datetime}).event_time("at", bound="0s")
        super().__init__("conformance", elements, what={"elements": count()}, where=FixedWindows("1h"))
        object.__setattr__(self, "stages", tuple(stages))


def _pipeline(case: Case) -> Pipeline:
    first = case.stages[0]
    if first.rows is not None:
        return rows_pipeline(case)
    if first.loop is not None:
        return loop_pipeline(first)
    return _with_outputs(case) if case.outputs else _StagesPipeline(_stages(case))


def _with_outputs(case: Case) -> Pipeline:
    """The outputs of a case over an input that stands for its elements, with a changelog if it withdraws some."""
    readers = [stage for stage, output in zip(case.stages, case.outputs, strict=True) if not output.of]
    given_elements = [element for step in case.steps if isinstance(step, BundleStep) for element in step.elements]
    values = [element.value for element in given_elements]
    is_signed = any(element.is_retraction for element in given_elements)
    attributes = {name: kind for stage in readers for name, kind in stage.schema.items()}
    attributes |= {output.only: DataType.BOOL for output in case.outputs if output.only is not None}
    numeric = next((stage.combine for stage in readers if stage.combine is not Combiner.COUNT), Combiner.COUNT)
    attributes |= {_SIGN: DataType.INT} if is_signed else {}
    columns: Schema = {KEY: DataType.STRING, VALUE: _value_type(numeric, values), **attributes}
    landed_source = source("elements", {**columns, "at": DataType.TIMESTAMP}, changelog=_SIGN if is_signed else None)
    elements = landed_source.event_time("at", bound="0s")
    outputs: dict[str, Output] = {}
    for stage, own in zip(case.stages, case.outputs, strict=True):
        aggregation = _aggregation(stage, {KEY: col(KEY)}, col(RESULT if own.of else VALUE))
        outputs[own.name] = Output(
            of=[case.outputs[upstream].name for upstream in own.of],
            columns={case.outputs[upstream].name: {RESULT: -col(RESULT)} for upstream in own.minus},
            key=aggregation.key,
            what=aggregation.what,
            where=stage.where,
            when=stage.when,
            how=stage.how,
            filter=None if own.only is None else col(own.only),
            having=stage.having,
            allow_finishing=True,
            allow_double_counting=True,
        )
    return Pipeline("conformance", elements, outputs=outputs)


def _stages(case: Case) -> list[Stage]:
    elements = [element for step in case.steps if isinstance(step, BundleStep) for element in step.elements]
    first, *rest = case.stages
    kind = _value_type(first.combine, [element.value for element in elements])
    schema: Schema = {KEY: DataType.STRING, VALUE: kind, **first.schema}
    key: dict[str, Expr] = {KEY: col(KEY)}
    stages = [Stage(_aggregation(first, key, col(VALUE)), schema, any(e.is_retraction for e in elements))]
    for stage in rest:
        stage_above = stages[-1]
        link = case.between or StageLink(key_is_value=False, value_is_one=False)
        key = {KEY: col(RESULT).cast(DataType.STRING) if link.key_is_value else lit(DEFAULT_KEY)}
        value = lit(1) if link.value_is_one else col(link.column)
        stages.append(Stage(_aggregation(stage, key, value), stage_above.pane_schema, stage_above.withdraws))
    return stages


def _aggregation(stage: CaseStage, key: Mapping[str, Expr], value: Expr) -> Aggregation:
    combiner = stage.combine or Combiner.COLLECT
    what: dict[str, Aggregate | Expr] = {
        name: Aggregate(function, None if function is Combiner.COUNT else value)
        for name, function in {RESULT: combiner, **stage.aggregates}.items()
    }
    what |= stage.computed_columns
    return Aggregation(key=key, where=stage.where, when=stage.when, how=stage.how, what=what, having=stage.having)


def _value_type(combine: Combiner | None, values: Sequence[Any]) -> DataType:
    """Collected values may be anything: they travel as JSON."""
    if combine in (None, Combiner.COUNT) or any(isinstance(value, str) for value in values):
        return DataType.STRING
    return DataType.FLOAT if any(isinstance(value, float) for value in values) else DataType.INT


def _record(schema: Schema, element: CaseElement, *, collects: bool) -> dict[str, Any]:
    value = element.value
    if schema[VALUE] is DataType.STRING and (collects or not isinstance(value, str)):
        value = json.dumps(value)
    return {**element.attributes, KEY: element.key, VALUE: value}


def _decode_pane(case: Case, pane: Pane) -> Pane:
    first = case.stages[0]
    if len(case.stages) > 1 or first.combine is not None or first.loop is not None or first.rows is not None:
        return pane
    return replace(pane, values=(tuple(json.loads(value) for value in pane.values[0]),))


# --- steps that only ask for an answer --------------------------------------------------------------------------------


def _answer(start: Start, case: Case, step: Step) -> object:
    match step:
        case ExpectAssigned(timestamp, _):
            return _windows(start, case, [timestamp])
        case ExpectMerged(timestamps, _):
            return _windows(start, case, timestamps)
        case ExpectCombined():
            return _combine_groups(start, step)
    return None


def _windows(start: Start, case: Case, timestamps: Sequence[Instant]) -> frozenset[Window]:
    """The windows of panes that a bundle of elements at ``timestamps`` gives at once: assigned, and merged."""
    stage = replace(case.stages[0], when=Always(), how=discarding(None), combine=Combiner.COUNT)
    elements = tuple(CaseElement(DEFAULT_KEY, None, timestamp) for timestamp in timestamps)
    return frozenset(pane.window for pane in _last_panes(start, stage, [BundleStep(elements)]))


def _combine_groups(start: Start, step: ExpectCombined) -> Any:
    """The groups as bundles of one window; an element that came and went lets even nothing have a pane."""
    stage = CaseStage(GlobalWindows(), Always(), accumulating(None), step.combiner)
    values = [value for group in (*step.groups, step.uncombine) for value in group]
    zero = values[0] if values else 0

    def bundle(group: Sequence[Any], *, withdrawn: bool = False) -> tuple[CaseElement, ...]:
        return tuple(CaseElement(DEFAULT_KEY, value, Instant(0), withdrawn) for value in group)

    bundles = [bundle([zero]) + bundle([zero], withdrawn=True), *map(bundle, step.groups)]
    bundles.append(bundle(step.uncombine, withdrawn=True))
    panes = _last_panes(start, stage, [BundleStep(elements) for elements in bundles if elements])
    return panes[-1].values[0]


def _last_panes(start: Start, stage: CaseStage, steps: Sequence[BundleStep]) -> tuple[Pane, ...]:
    case = Case("", (stage,), None, tuple(steps), MIN_INSTANT, Instant(0), strict=False, expect_failure=None)
    *_, last = EpochReplay(start, case).outcomes()
    return last.panes
