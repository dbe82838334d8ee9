"""A whole ``headrace.pipeline.Pipeline`` over epochs of records: what every engine must give, pane for pane."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.pipeline.graph import Pipeline
from headrace.reference.chain import Chain
from headrace.reference.evaluate import Record, evaluate
from headrace.reference.operator import Drop, Element
from headrace.reference.stages import Entrance, pane_record


@dataclass(frozen=True)
class Epoch:
    """One micro-batch: when it started, and its records in arrival order.

    A record maps column names to values (int, float, str, bool, Instants for timestamps); a column it lacks is NULL.
    ``is_last`` says that the input ends here: the watermark goes to +inf (batch mode is one such epoch). ``signals``
    came since the epoch before; every aggregation hears of them, behind its bundle.
    """

    processing_time: Instant
    records: Sequence[Record] = ()
    is_last: bool = False
    signals: Sequence[Signal] = ()


@dataclass(frozen=True)
class Rejected:
    """A record without an event time or a key; ``column`` is ``event_time`` or the name of the key that is NULL.

    Behind the first aggregation (``stage`` 0) it is what a pane became; its retraction is rejected as well.
    """

    record: Record
    column: str
    stage: int = 0


@dataclass(frozen=True)
class EpochResult:
    """What one epoch gave. ``panes`` are the last aggregation's in order of emission, retractions included.

    ``drops`` are elements of expired and of closed windows (``drop.cause``), ``drop.element.record`` being the record.
    ``watermark`` is the source's, ``output_watermarks`` has one for each aggregation.
    """

    panes: tuple[Pane, ...]
    drops: tuple[Drop, ...]
    rejected: tuple[Rejected, ...]
    watermark: Instant
    output_watermarks: tuple[Instant, ...] = ()


@dataclass
class PipelineRun:
    """A pipeline between two epochs: the state of its aggregations and the progress of its splits."""

    pipeline: Pipeline
    watermark: Instant = MIN_INSTANT
    _split_maxima: dict[Any, Instant] = field(default_factory=dict)
    _rejected: list[Rejected] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._entrances = [Entrance(stage) for stage in self.pipeline.stages]
        between = [partial(self._pass_on, stage) for stage in range(1, len(self._entrances))]
        self._chain = Chain([entrance.grouping for entrance in self._entrances], between)

    def run(self, epoch: Epoch) -> EpochResult:
        """One epoch, with the clocks of semantics 12.1: evaluated under the watermark that the last one left."""
        self._rejected = []
        elements = [element for record in epoch.records if (element := self._accept(record)) is not None]
        self.watermark = MAX_INSTANT if epoch.is_last else self._next_watermark()
        output = self._chain.step(
            elements, processing_time=epoch.processing_time, watermark=self.watermark, signals=epoch.signals
        )
        marks = tuple(self._chain.output_watermarks)
        return EpochResult(output.panes, output.drops, tuple(self._rejected), self.watermark, marks)

    def _accept(self, record: Record) -> Element | None:
        """A record of the source as an element. Every one with an event time and a key moves the watermark of its
        split, the filtered and the late ones too."""
        timestamp = evaluate(self.pipeline.event_time.expr, record, self.pipeline.schema)
        first = self._entrances[0]
        missing = "event_time" if timestamp is None else first.missing(record)
        if missing is not None:
            self._rejected.append(Rejected(record, missing))
            return None
        self._observe(record, timestamp)
        return first.element(record, timestamp) if first.admits(record) else None

    def _pass_on(self, stage: int, pane: Pane) -> Element | None:
        """A pane of the aggregation before ``stage`` as an element of it."""
        record = pane_record(self.pipeline.stages[stage - 1], pane)
        entrance = self._entrances[stage]
        missing = entrance.missing(record)
        if missing is not None:
            self._rejected.append(Rejected(record, missing, stage))
            return None
        return entrance.element(record, pane.timestamp, pane.is_retraction) if entrance.admits(record) else None

    def _observe(self, record: Record, timestamp: Instant) -> None:
        split = self.pipeline.event_time.split
        name = None if split is None else evaluate(split, record, self.pipeline.schema)
        self._split_maxima[name] = max(timestamp, self._split_maxima.get(name, timestamp))

    def _next_watermark(self) -> Instant:
        return self.pipeline.event_time.watermark.watermark(self.watermark, list(self._split_maxima.values()))


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
