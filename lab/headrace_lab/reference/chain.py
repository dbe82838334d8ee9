"""Groupings one after another: panes flow down as one bundle, ahead of the watermark that they were held for (7.2)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace_lab.reference.elements import Element, Output, Pane
from headrace_lab.reference.operator import Grouping, Operator

PaneToElements = Callable[[Pane], Iterable[Element]]
"""How a pane becomes elements of the next grouping, one as a rule: with the pane's timestamp and its ``is_retraction``.
None at all if it goes no further."""


class Chain:
    """Operators in a row, driven like one: ``step`` is one epoch of all of them, its panes are the last one's.

    ``drops`` of a step are those of all operators. Raises PipelineError when a retracting grouping feeds merging
    windows: a withdrawn element may have bridged two sessions, and sessions never split (12.6).
    """

    def __init__(self, groupings: Sequence[Grouping], links: Sequence[PaneToElements]) -> None:
        for upper, lower in pairwise(groupings):
            if upper.how.accumulation is Accumulation.RETRACTING and lower.where.merges:
                raise PipelineError(
                    f"{lower.where!r} is downstream of a retracting grouping; use windows that do not merge"
                )
        self.operators = [Operator(grouping) for grouping in groupings]
        self._links = list(links)

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        processing_time: Instant | None = None,
        watermark: Instant | None = None,
        percentiles: Mapping[float, Instant] | None = None,
        signals: Sequence[Signal] = (),
        is_batch: bool = False,
        is_last: bool = False,
    ) -> Output:
        """Steps every operator as ``Operator.step`` does; each lower operator gets the panes above it, then
        the output watermark above it.

        Percentile watermarks are the source's: they end at the first operator. Signals are heard by all. ``is_last``:
        the input ends here, which a loop wants to know.
        """
        first, *rest = self.operators
        output = first.step(
            elements,
            processing_time=processing_time,
            watermark=watermark,
            percentiles=percentiles,
            signals=signals,
            is_batch=is_batch,
        )
        drops = output.drops
        for upper, to_element, operator in zip(self.operators, self._links, rest, strict=False):
            bundle = [element for pane in output.panes for element in to_element(pane)]
            mark = upper.output_watermark
            output = operator.step(
                bundle, processing_time=processing_time, watermark=mark, signals=signals, is_batch=is_batch
            )
            drops += output.drops
        return Output(output.panes, drops)

    @property
    def watermark(self) -> Instant:
        """The watermark of the first operator."""
        return self.operators[0].clocks.watermark

    @property
    def in_flight(self) -> dict[tuple[Any, Window], Any]:
        """What is on a back-edge: nothing, without a loop."""
        return {}

    @property
    def output_watermarks(self) -> list[Instant]:
        """The output watermark of each operator, first to last."""
        return [operator.output_watermark for operator in self.operators]
