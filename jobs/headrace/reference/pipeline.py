"""A whole ``headrace.pipeline.Pipeline`` over epochs of records: what every engine must give, pane for pane."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace.pipeline.graph import Pipeline
from headrace.reference.contents import extract_with, read
from headrace.reference.evaluate import Record, evaluate
from headrace.reference.operator import Drop, Element, Grouping, Operator


@dataclass(frozen=True)
class Epoch:
    """One micro-batch: when it started, and its records in arrival order.

    A record maps column names to values (int, float, str, bool, Instants for timestamps); a column it lacks is NULL.
    ``is_last`` says that the input ends here: the watermark goes to +inf (batch mode is one such epoch).
    """

    processing_time: Instant
    records: Sequence[Record] = ()
    is_last: bool = False


@dataclass(frozen=True)
class Rejected:
    """A record without an event time or a key; ``column`` is ``event_time`` or the name of the key that is NULL."""

    record: Record
    column: str


@dataclass(frozen=True)
class EpochResult:
    """What one epoch gave. ``panes`` are in order of emission, retractions included.

    ``drops`` are elements of expired and of closed windows (``drop.cause``), ``drop.element.record`` being the record.
    """

    panes: tuple[Pane, ...]
    drops: tuple[Drop, ...]
    rejected: tuple[Rejected, ...]
    watermark: Instant


@dataclass
class PipelineRun:
    """A pipeline between two epochs: its operator's state and the progress of its splits."""

    pipeline: Pipeline
    operator: Operator = field(init=False)
    watermark: Instant = MIN_INSTANT
    _split_maxima: dict[Any, Instant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.pipeline
        aggregates = list(p.what.values())
        self.operator = Operator(Grouping(p.where, p.when, p.how, extract_with(aggregates), p.schema))

    def run(self, epoch: Epoch) -> EpochResult:
        """One epoch, with the clocks of semantics 12.1: evaluated under the watermark that the last one left."""
        elements: list[Element] = []
        rejected: list[Rejected] = []
        for record in epoch.records:
            missing = self._missing(record)
            if missing is not None:
                rejected.append(Rejected(record, missing))
                continue
            self._observe(record)
            if self._passes_filter(record):
                elements.append(self._element(record))
        self.watermark = MAX_INSTANT if epoch.is_last else self._next_watermark()
        output = self.operator.step(elements, processing_time=epoch.processing_time, watermark=self.watermark)
        return EpochResult(output.panes, output.drops, tuple(rejected), self.watermark)

    def _missing(self, record: Record) -> str | None:
        if evaluate(self.pipeline.event_time.expr, record, self.pipeline.schema) is None:
            return "event_time"
        keys = self.pipeline.key.items()
        return next((name for name, expr in keys if evaluate(expr, record, self.pipeline.schema) is None), None)

    def _observe(self, record: Record) -> None:
        """Every accepted record moves the watermark of its split, the filtered and the late ones too."""
        event_time, schema = self.pipeline.event_time, self.pipeline.schema
        split = None if event_time.split is None else evaluate(event_time.split, record, schema)
        timestamp = evaluate(event_time.expr, record, schema)
        self._split_maxima[split] = max(timestamp, self._split_maxima.get(split, timestamp))

    def _next_watermark(self) -> Instant:
        return self.pipeline.event_time.watermark.watermark(self.watermark, list(self._split_maxima.values()))

    def _passes_filter(self, record: Record) -> bool:
        condition = self.pipeline.filter
        return condition is None or evaluate(condition, record, self.pipeline.schema) is True

    def _element(self, record: Record) -> Element:
        p = self.pipeline
        timestamp = evaluate(p.event_time.expr, record, p.schema)
        return Element(
            key=tuple(evaluate(expr, record, p.schema) for expr in p.key.values()),
            timestamp=timestamp,
            value=tuple(read(aggregate, record, p.schema, timestamp) for aggregate in p.what.values()),
            record=record,
        )


def run_pipeline(pipeline: Pipeline, epochs: Iterable[Epoch]) -> list[EpochResult]:
    """Run ``pipeline`` over ``epochs`` from the beginning. Raises IntegerOverflowError if a result leaves 64 bits."""
    run = PipelineRun(pipeline)
    return [run.run(epoch) for epoch in epochs]


def fold_current(panes: Iterable[Pane]) -> dict[tuple[tuple[Any, ...], Window], Pane]:
    """The ``current`` view of panes in order of emission: the newest per (key, window), unless it is a retraction."""
    newest: dict[tuple[tuple[Any, ...], Window], Pane] = {}
    for pane in panes:
        newest[pane.key, pane.window] = pane
    return {place: pane for place, pane in newest.items() if not pane.is_retraction}
