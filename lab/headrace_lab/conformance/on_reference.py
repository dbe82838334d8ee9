"""The reference interpreter as an executor of conformance cases."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.combiners import Aggregate, Combiner
from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT
from headrace.reference import Chain, Contents, Element, Extract, Grouping, Output, collect, combine
from headrace.reference.windows import assign, merge
from headrace_lab.conformance.cases import (
    DEFAULT_KEY,
    AdvanceProcessingTime,
    AdvanceWatermark,
    Between,
    BundleStep,
    Case,
    CaseElement,
    CaseStage,
    ExpectAssigned,
    ExpectCombined,
    ExpectMerged,
    Step,
)
from headrace_lab.conformance.replay import CaseReplay, StepOutcome


class ReferenceExecutor:
    """Runs cases one after another on ``headrace.reference``."""

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
    chain: Chain = field(init=False)
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        between = [] if self.case.between is None else [_to_element(self.case.between)]
        self.chain = Chain([_grouping(stage) for stage in self.case.stages], between)

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
                return self.chain.step(map(_element, elements), watermark=watermark, is_batch=is_batch)
            case AdvanceWatermark(to, percentiles):
                return self.chain.step(watermark=to, percentiles=percentiles)
            case AdvanceProcessingTime(to):
                return self.chain.step(processing_time=to)
        return Output()


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
            return _combined(combiner, bag)
    return None


def _grouping(stage: CaseStage) -> Grouping:
    extract = collect if stage.combine is None else _extract(stage.combine)
    return Grouping(stage.where, stage.when, stage.how, extract, stage.schema)


def _extract(combiner: Combiner) -> Extract:
    return lambda contents: (_combined(combiner, contents),)


def _combined(combiner: Combiner, contents: Contents) -> Any:
    kept = contents.net
    if combiner is Combiner.COUNT:  # of elements, whatever their value: null too
        kept = tuple((True, times) for _, times in kept)
    return combine(Aggregate(combiner), kept)


def _element(element: CaseElement) -> Element:
    return Element(
        key=(element.key,),
        timestamp=element.timestamp,
        value=element.value,
        is_retraction=element.is_retraction,
        record=element.attributes,
        size=element.size,
    )


def _to_element(between: Between) -> Callable[[Pane], Element]:
    def to_element(pane: Pane) -> Element:
        (result,) = pane.values
        return Element(
            key=(str(result) if between.key_is_value else DEFAULT_KEY,),
            timestamp=pane.timestamp,
            value=1 if between.value_is_one else result,
            is_retraction=pane.is_retraction,
        )

    return to_element
