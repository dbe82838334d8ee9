"""The reference interpreter as an executor of conformance cases."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.accumulation import with_upstream_lateness
from headrace.model.combiners import Combiner
from headrace.model.expressions.columns import in_order
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Aggregate, Expr
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.conformance.cases import (
    DEFAULT_KEY,
    RESULT,
    AdvanceProcessingTime,
    AdvanceWatermark,
    BundleStep,
    Case,
    CaseElement,
    CaseOutput,
    CaseStage,
    ExpectAssigned,
    ExpectCombined,
    ExpectMerged,
    StageLink,
    Step,
)
from headrace_lab.conformance.loops import ENDS, loop_pipeline
from headrace_lab.conformance.replay import CaseReplay, StepOutcome
from headrace_lab.conformance.rows import (
    VALUE,
    by_input,
    last_output,
    read_value,
    row_record,
    rows_of_panes,
    rows_pipeline,
)
from headrace_lab.reference import Chain, Contents, Element, Extract, Grouping, Operator, Output, collect, combine
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.loop import LoopedChain, LoopRun
from headrace_lab.reference.pipeline import Epoch, OutputsRun
from headrace_lab.reference.stages import Entrance
from headrace_lab.reference.windows import assign, merge


class ReferenceExecutor:
    """Runs cases one after another on ``headrace_lab.reference``."""

    def replay(self, cases: Sequence[Case]) -> Iterator[CaseReplay]:
        for case in cases:
            try:
                yield CaseReplay(tuple(_Run(case).outcomes()))
            except Exception as error:  # of whatever kind: the other cases run on
                yield CaseReplay(error=f"{type(error).__name__}: {error}")


@dataclass
class _Run:
    """One case between two steps."""

    case: Case
    chain: "Chain | _Outputs | _Rows" = field(init=False)
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        first = self.case.stages[0]
        elements_between = [] if self.case.between is None else [_to_elements(self.case.between, first.names)]
        groupings = [_grouping(stage) for stage in _with_lateness(self.case)]
        if first.rows is not None:
            self.chain = _Rows(self.case)
        elif first.loop is not None:
            self.chain = _looped_chain(loop_pipeline(first))
        else:
            self.chain = (
                _Outputs(groupings, self.case.outputs) if self.case.outputs else Chain(groupings, elements_between)
            )

    def outcomes(self) -> Iterator[StepOutcome]:
        initial = self.case
        self.chain.step(watermark=initial.initial_watermark, processing_time=initial.initial_processing_time)
        for step in self.case.steps:
            output = self._perform(step)
            self.dropped.update(drop.cause.value for drop in output.drops)
            watermarks = tuple(self.chain.output_watermarks)
            yield StepOutcome(output.panes, dict(self.dropped), watermarks, _answer(self.case, step))

    def _perform(self, step: Step) -> Output:
        match step:
            case BundleStep(elements, is_batch):
                watermark = MAX_INSTANT if is_batch else None
                bundle = map(self._element, elements)
                return self.chain.step(bundle, watermark=watermark, is_batch=is_batch)
            case AdvanceWatermark(to, percentiles):
                return self.chain.step(watermark=to, percentiles=percentiles)
            case AdvanceProcessingTime(to):
                return self.chain.step(processing_time=to)
        return Output()

    def _element(self, element: CaseElement) -> Element:
        stage_element, case_rows = _element(element), self.case.stages[0].rows
        if case_rows is None:
            return stage_element
        record = row_record(element)
        if case_rows.value_type is not None:
            record[VALUE] = read_value(element.value, case_rows.value_type)
        return replace(stage_element, record=record)


def _with_lateness(case: Case) -> list[CaseStage]:
    """The stages; one of an output that reads others is at least as patient as each of these (5.2)."""
    stages = [*case.stages]
    for number, output in enumerate(case.outputs):
        for upstream in output.of:
            stages[number] = replace(
                stages[number], how=with_upstream_lateness(stages[upstream].how, stages[number].how)
            )
    return stages


class _Outputs:
    """Operators of outputs, each after those that it reads, driven as a ``Chain`` is."""

    def __init__(self, groupings: Sequence[Grouping], outputs: Sequence[CaseOutput]) -> None:
        self.operators = [Operator(grouping) for grouping in groupings]
        self._outputs = outputs

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        processing_time: Instant | None = None,
        watermark: Instant | None = None,
        percentiles: Mapping[float, Instant] | None = None,
        is_batch: bool = False,
    ) -> Output:
        """One epoch of all outputs (12.18); the panes are those of the last one."""
        arrived_elements = [*elements]
        steps: list[Output] = []
        for own, operator in zip(self._outputs, self.operators, strict=True):
            if own.of:
                bundle = [
                    _as_element(pane, is_negated=upstream in own.minus)
                    for upstream in own.of
                    for pane in steps[upstream].panes
                ]
                mark = min(self.operators[upstream].output_watermark for upstream in own.of)
                steps.append(operator.step(bundle, processing_time=processing_time, watermark=mark, is_batch=is_batch))
                continue
            taken_elements = [
                element for element in arrived_elements if own.only is None or element.record.get(own.only) is True
            ]
            steps.append(
                operator.step(
                    taken_elements,
                    processing_time=processing_time,
                    watermark=watermark,
                    percentiles=percentiles,
                    is_batch=is_batch,
                )
            )
        return Output(steps[-1].panes, tuple(drop for step in steps for drop in step.drops))

    @property
    def output_watermarks(self) -> list[Instant]:
        """The output watermark of each output."""
        return [operator.output_watermark for operator in self.operators]


class _Rows:
    """The pipeline of a case of rows, driven as a ``Chain`` is."""

    def __init__(self, case: Case) -> None:
        self._pipeline = rows_pipeline(case)
        self._run = OutputsRun(self._pipeline)
        self._clock = MIN_INSTANT
        self.output_watermarks: list[Instant] = []

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        processing_time: Instant | None = None,
        watermark: Instant | None = None,
        percentiles: Mapping[float, Instant] | None = None,
        is_batch: bool = False,
    ) -> Output:
        """One epoch; with ``is_batch`` the first and the last one."""
        del percentiles
        self._clock = max(self._clock, processing_time or self._clock)
        if is_batch:
            self._run = OutputsRun(self._pipeline)
        elif watermark is not None:
            self._run.pass_watermark({given_input.name: watermark for given_input in self._pipeline.inputs})
        sides = by_input((element.record for element in elements), self._pipeline)
        results = [*self._run.run(Epoch(self._clock, sides.pop(OWN, []), is_last=is_batch, union=sides)).values()]
        self.output_watermarks = [*results[-1].output_watermarks]
        drops = tuple(drop for result in results for drop in result.drops)
        return Output(rows_of_panes(results[-1].panes, last_output(self._pipeline)), drops)


def _as_element(pane: Pane, *, is_negated: bool) -> Element:
    result, *_ = pane.values
    value = -result if is_negated and result is not None else result
    return Element(key=pane.key, timestamp=pane.timestamp, value=value, is_retraction=pane.is_retraction)


def _answer(case: Case, step: Step) -> object:
    where = case.stages[0].where
    match step:
        case ExpectAssigned(timestamp, _):
            return frozenset(assign(where, timestamp))
        case ExpectMerged(timestamps, _):
            windows = {window for timestamp in timestamps for window in assign(where, timestamp)}
            became = {source: group.result for group in merge(where, windows) for source in group.sources}
            return frozenset(became.get(window, window) for window in windows)
        case ExpectCombined(combiner, groups, uncombine):
            bag = Contents([(value, 1) for group in groups for value in group])
            for value in uncombine:
                bag.add(value, -1)
            return _combine_contents(combiner, bag)
    return None


def _looped_chain(pipeline: Pipeline) -> LoopedChain:
    stage = pipeline.stages[0]
    if pipeline.edges is None or pipeline.loop is None:
        raise ValueError(f"{pipeline!r} has no loop")
    return LoopedChain(LoopRun(pipeline.edges, stage, pipeline.loop), [Entrance(stage).grouping], [])


def _grouping(stage: CaseStage) -> Grouping:
    extract = collect if stage.combine is None else _extract([stage.combine, *stage.aggregates.values()])
    grouping = Grouping(stage.where, stage.when, stage.how, extract, stage.schema, compute=_compute(stage))
    return grouping if stage.having is None else replace(grouping, having=_fulfilling(stage.having, stage.names))


def _fulfilling(condition: Expr, names: Sequence[str]) -> Callable[[Pane], bool]:
    types = dict.fromkeys(names, DataType.FLOAT)
    return lambda pane: evaluate(condition, dict(zip(names, pane.values, strict=True)), types) is True


def _extract(combiners: Sequence[Combiner]) -> Extract:
    return lambda contents: tuple(_combine_contents(combiner, contents) for combiner in combiners)


def _compute(stage: CaseStage) -> Callable[[tuple[Any, ...], Window, tuple[Any, ...]], tuple[Any, ...]]:
    """What makes the values of a row of results of its aggregates (8.4)."""
    types = dict.fromkeys(stage.names, DataType.FLOAT)

    def compute(key: tuple[Any, ...], window: Window, aggregates: tuple[Any, ...]) -> tuple[Any, ...]:
        row = dict(zip(stage.names, aggregates, strict=False))
        for name, expr in in_order(stage.computed_columns).items():
            row[name] = evaluate(expr, row, types)
        return (*aggregates, *(row[name] for name in stage.computed_columns))

    return compute


def _combine_contents(combiner: Combiner, contents: Contents) -> Any:
    kept_net = contents.net
    if combiner is Combiner.COUNT:  # of elements, whatever their value: null too
        kept_net = tuple((True, times) for _, times in kept_net)
    return combine(Aggregate(combiner), kept_net)


def _element(element: CaseElement) -> Element:
    return Element(
        key=tuple(element.edge[end] for end in ENDS) if element.edge else (element.key,),
        timestamp=element.timestamp,
        value=element.value,
        is_retraction=element.is_retraction,
        record=element.edge or element.attributes,
        size=element.size,
    )


def _to_elements(link: StageLink, names: Sequence[str]) -> Callable[[Pane], Iterable[Element]]:
    def to_elements(pane: Pane) -> Iterable[Element]:
        row = dict(zip(names, pane.values, strict=True))
        yield Element(
            key=(str(row[RESULT]) if link.key_is_value else DEFAULT_KEY,),
            timestamp=pane.timestamp,
            value=1 if link.value_is_one else row[link.column],
            is_retraction=pane.is_retraction,
        )

    return to_elements
