"""Rows that leave as they are, one of each element: nothing is kept between two epochs but the watermark."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.model.accumulation import Pane, Timing
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.pipeline.stages import Stage
from headrace_lab.reference.elements import Element, Output
from headrace_lab.reference.evaluate import evaluate


class RowsRun:
    """What a chain of aggregations is elsewhere. A row is a pane of the window of its instant, which has no key."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.watermark = MIN_INSTANT

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
        """One epoch: its elements under the watermark before it."""
        del processing_time, percentiles, signals, is_batch, is_last
        panes = tuple(self._row(element) for element in elements)
        self.watermark = self.watermark if watermark is None else max(self.watermark, watermark)
        return Output(panes, ())

    def _row(self, element: Element) -> Pane:
        at, stage = element.timestamp, self._stage
        return Pane(
            key=(),
            window=Window(at, Instant(at + 1)),
            values=tuple(_value(expr, element.record, stage) for expr in stage.row_columns.values()),
            timestamp=at,
            timing=Timing.LATE if at < self.watermark else Timing.ON_TIME,
            index=0,
            nonspeculative_index=0,
            is_first=True,
            is_last=True,
            is_retraction=element.is_retraction,
        )

    @property
    def output_watermarks(self) -> list[Instant]:
        """The watermark of its input, as that of its output."""
        return [self.watermark]

    @property
    def in_flight(self) -> dict[tuple[Any, Window], Any]:
        """Nothing."""
        return {}


def _value(expr: Any, record: Any, stage: Stage) -> Any:
    return evaluate(expr, record, stage.schema)
