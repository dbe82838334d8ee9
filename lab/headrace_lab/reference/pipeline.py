"""A whole ``headrace.pipeline.Pipeline`` over epochs of records: what every engine must give, pane for pane."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace.errors import PipelineError
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal, Trigger
from headrace.model.triggers.elementary import AfterPercentileWatermark
from headrace.model.windows import Window
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.output import upstream_first
from headrace.pipeline.parts import Upstream
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference.chain import Chain
from headrace_lab.reference.elements import DropCause, DroppedElement, Element, Pane
from headrace_lab.reference.evaluate import OverflowsInRecordError, Record, evaluate_of
from headrace_lab.reference.intake import EpochInput, Intake, RejectedRecord
from headrace_lab.reference.joins import LEFT, JoinsRun, Row, check_key
from headrace_lab.reference.loop import LoopedChain, LoopRun
from headrace_lab.reference.rows import GroupRowsRun, RowsRun
from headrace_lab.reference.stages import Entrance, pane_record


@dataclass(frozen=True)
class Epoch:
    """One micro-batch: when it started, and its records in arrival order.

    A record maps column names to values (int, float, str, bool, Instants for timestamps); a column it lacks is NULL.
    ``is_last`` says that the input ends here: the watermark goes to +inf. An epoch that is first and last is a batch,
    in which each window gives one pane (12.1). ``signals`` came since the epoch before; every aggregation learns of
    them, after its bundle. ``union`` holds the records of the pipeline's other inputs by name: they arrive after
    ``records``, in the order in which the inputs are declared.
    """

    processing_time: Instant
    records: Sequence[Record] = ()
    is_last: bool = False
    signals: Sequence[Signal] = ()
    union: Mapping[str, Sequence[Record]] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochResult:
    """What one epoch gave. ``panes`` are the last aggregation's in order of emission, retractions included.

    ``drops`` are duplicates, and elements of expired and of closed windows (``drop.cause``), ``drop.element.record``
    being the record. ``ahead`` are records too far ahead of processing time to move a watermark. ``watermark`` is the
    source's. An output that reads others has the least of theirs, a loop the one that waits for what is in flight.
    ``output_watermarks`` has one for each aggregation. ``in_flight`` is what a loop has not delivered: a value for a
    vertex of a window.
    """

    panes: tuple[Pane, ...]
    drops: tuple[DroppedElement, ...]
    rejected: tuple[RejectedRecord, ...]
    watermark: Instant
    output_watermarks: tuple[Instant, ...] = ()
    ahead: tuple[Record, ...] = ()
    in_flight: Mapping[tuple[Any, Window], Any] = field(default_factory=dict)


JOINED_ROWS = "joined rows"
"""What dead letters of joins are of."""

Functions = Mapping[str, Callable[[Record], Sequence[Record]]]
"""What batch functions between aggregations make of a pane, by name. What they make of records is read."""

NO_FUNCTIONS: Functions = {}


class OutputsRun:
    """A pipeline between two epochs: the progress of its inputs, and the state of the aggregations of each output."""

    def __init__(self, pipeline: Pipeline, functions: Functions = NO_FUNCTIONS) -> None:
        if pipeline.spark_functions:
            raise PipelineError(f"pipeline {pipeline.name} calls Spark functions, which the reference does not run")
        transforms_between = [
            stage.aggregation.transform for own in pipeline.by_output.values() for stage in own.stages
        ]
        for function in transforms_between:
            if function is not None and function.name not in functions:
                raise PipelineError(f"pipeline {pipeline.name}: the reference is not told what {function.name} gives")
        self.pipeline = pipeline
        stages = [value_alone.stages[0] for value_alone in pipeline.of_records.values()]
        self._intake = Intake(pipeline, set[float]().union(*(_percentiles(stage.when) for stage in stages)))
        self._processing_time = MIN_INSTANT
        self._is_new = True
        order = upstream_first(pipeline.outputs) or [*pipeline.by_output]
        self._outputs = {output: _OutputRun(pipeline.by_output[output], functions) for output in order}

    def pass_watermark(self, watermarks: Mapping[str, Instant]) -> None:
        """Let the watermarks of these inputs be at least so far, as if their sources had said so."""
        for name, watermark in watermarks.items():
            self._intake.pass_watermark(name, watermark)

    def run(self, epoch: Epoch) -> dict[str, EpochResult]:
        """One epoch of each output, with the clocks of semantics 12.1: evaluated under the watermark that the last one
        left.
        """
        is_first, self._is_new = self._is_new, False
        now = self._processing_time = max(self._processing_time, epoch.processing_time)
        taken_by_output = {output: EpochInput() for output in self._outputs}
        for given_input in self.pipeline.inputs:
            records = epoch.records if given_input.name == OWN else epoch.union.get(given_input.name, ())
            self._intake.take(given_input.name, records, now, taken_by_output)
        self._intake.advance(now, epoch.is_last)
        is_batch = is_first and epoch.is_last
        results: dict[str, EpochResult] = {}
        for output, run in self._outputs.items():
            run.take(taken_by_output[output], self._intake, results)
            results[output] = run.run(
                taken_by_output[output], now, epoch.signals, is_batch=is_batch, is_last=epoch.is_last
            )
        return {output: results[output] for output in self.pipeline.by_output}


class _OutputRun:
    """The aggregations of one output between two epochs."""

    def __init__(self, pipeline: Pipeline, functions: Functions) -> None:
        self._stages, self._upstream, self._functions = pipeline.stages, pipeline.upstream, functions
        self._entrances = [Entrance(stage) for stage in pipeline.stages]
        links = [partial(self._pass_on, stage) for stage in range(1, len(self._entrances))]
        groupings = [entrance.grouping for entrance in self._entrances]
        self._chain: Chain | RowsRun = Chain(groupings, links)
        if pipeline.take is not None:
            self._chain = GroupRowsRun(pipeline.stages[0], groupings[0])
        elif pipeline.rows:
            self._chain = RowsRun(pipeline.stages[0])
        if pipeline.loop is not None and pipeline.edges is not None:
            loop = LoopRun(pipeline.edges, pipeline.stages[0], pipeline.loop)
            self._chain = LoopedChain(loop, groupings, links)
        self._joins = JoinsRun(pipeline) if pipeline.join else None
        self._sides, self._left = pipeline.join, pipeline.left_schema if pipeline.join else {}
        self._rejected_records: list[RejectedRecord] = []
        self._watermark = MIN_INSTANT
        self._percentiles: dict[float, Instant] = {}

    def take(self, epoch_input: EpochInput, intake: Intake, upstream_results: Mapping[str, EpochResult]) -> None:
        """Take what comes in this epoch: records, which ``epoch_input`` has, at the clocks of ``intake``; or the
        panes of ``upstream_results``, which are added to it, at the least of their output watermarks.
        """
        if not self._upstream:
            expected = _percentiles(self._stages[0].when)
            self._watermark = intake.watermark
            if self._joins is not None:
                self._take_joined(self._joins, epoch_input)
            self._percentiles = {q: mark for q, mark in intake.percentiles.items() if q in expected}
            return
        for upstream in self._upstream:
            for pane in upstream_results[upstream.output].panes:
                if self._joins is None:
                    self._take_pane(upstream, pane, epoch_input)
                else:
                    self._take_side(upstream, pane, epoch_input)
        self._watermark = min(upstream_results[upstream.output].output_watermarks[-1] for upstream in self._upstream)
        if self._joins is not None:
            self._take_joined(self._joins, epoch_input)

    def _take_side(self, upstream: Upstream[Pipeline], pane: Pane, epoch_input: EpochInput) -> None:
        """A pane of an output as a row of the side that this is on."""
        own = pane_record(upstream.stage, pane)
        schema, record = upstream.stage.pane_schema, dict(own)
        try:
            if upstream.side:
                side = self._sides[upstream.side - 1]
                for purpose, expr in side.expressions():
                    evaluate_of(purpose, expr, own, schema)
            else:
                columns = upstream.expressions(self._left)
                record = {name: evaluate_of(f"column {name}", expr, own, schema) for name, expr in columns.items()}
                check_key(self._sides[0], record, self._left)
        except OverflowsInRecordError as error:
            epoch_input.rejected.append(RejectedRecord(record, error.what, of=upstream.output, why=str(error)))
            return
        name = self._sides[upstream.side - 1].name if upstream.side else LEFT
        epoch_input.sides.setdefault(name, []).append(Row(pane.timestamp, record, pane.is_retraction))

    def _take_joined(self, joins: JoinsRun, epoch_input: EpochInput) -> None:
        rows, late, dead = joins.step(epoch_input.sides, self._watermark)
        epoch_input.rejected += [
            RejectedRecord(row.record, error.what, of=JOINED_ROWS, why=str(error)) for row, error in dead
        ]
        self._watermark = joins.watermark
        for row in late:
            element = Element((), row.timestamp, None, row.is_retraction, row.record)
            epoch_input.drops.append(DroppedElement(element, None, DropCause.LATE, is_late=True))
        entrance = self._entrances[0]
        for row in rows:
            try:
                missing = entrance.missing(row.record)
                if missing is None and entrance.admits(row.record):
                    missing = entrance.unfit(row.record)
            except OverflowsInRecordError as error:
                epoch_input.rejected.append(RejectedRecord(row.record, error.what, of=JOINED_ROWS, why=str(error)))
                continue
            if missing is not None:
                epoch_input.rejected.append(RejectedRecord(row.record, missing, of=JOINED_ROWS))
            elif entrance.admits(row.record):
                epoch_input.elements.append(entrance.element(row.record, row.timestamp, row.is_retraction))

    def _take_pane(self, upstream: Upstream[Pipeline], pane: Pane, epoch_input: EpochInput) -> None:
        own = pane_record(upstream.stage, pane)
        columns = upstream.expressions(self._stages[0].schema)
        schema, record = upstream.stage.pane_schema, dict(own)
        try:
            record = {name: evaluate_of(f"column {name}", expr, own, schema) for name, expr in columns.items()}
            missing = self._entrances[0].missing(record)
        except OverflowsInRecordError as error:
            epoch_input.rejected.append(RejectedRecord(record, error.what, of=upstream.output, why=str(error)))
            return
        if missing is not None:
            epoch_input.rejected.append(RejectedRecord(record, missing, of=upstream.output))
        elif self._entrances[0].admits(record):
            epoch_input.elements.append(self._entrances[0].element(record, pane.timestamp, pane.is_retraction))

    def run(
        self, epoch_input: EpochInput, now: Instant, signals: Sequence[Signal], *, is_batch: bool, is_last: bool
    ) -> EpochResult:
        """What becomes of the elements of ``epoch_input``."""
        self._rejected_records = epoch_input.rejected
        output = self._chain.step(
            epoch_input.elements,
            processing_time=now,
            watermark=self._watermark,
            percentiles=self._percentiles,
            signals=signals,
            is_batch=is_batch,
            is_last=is_last,
        )
        return EpochResult(
            panes=output.panes,
            drops=(*epoch_input.drops, *output.drops),
            rejected=tuple(self._rejected_records),
            watermark=self._chain.watermark,
            output_watermarks=tuple(self._chain.output_watermarks),
            ahead=tuple(epoch_input.ahead),
            in_flight=self._chain.in_flight,
        )

    def _pass_on(self, stage: int, pane: Pane) -> Iterator[Element]:
        """A pane of the aggregation before ``stage`` as elements of it."""
        record = pane_record(self._stages[stage - 1], pane)
        entrance, function = self._entrances[stage], self._stages[stage].aggregation.transform
        for made_record in [record] if function is None else self._functions[function.name](record):
            try:
                missing = entrance.missing(made_record)
            except OverflowsInRecordError as error:
                self._rejected_records.append(RejectedRecord(made_record, error.what, stage, why=str(error)))
                continue
            if missing is not None:
                self._rejected_records.append(RejectedRecord(made_record, missing, stage))
            elif entrance.admits(made_record):
                yield entrance.element(made_record, pane.timestamp, pane.is_retraction)


class PipelineRun:
    """A pipeline with one output between two epochs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        pipeline.stages  # noqa: B018 - which says so where there are several outputs
        self._run = OutputsRun(pipeline)

    def pass_watermark(self, watermarks: Mapping[str, Instant]) -> None:
        """Let the watermarks of these inputs be at least so far, as if their sources had said so."""
        self._run.pass_watermark(watermarks)

    def run(self, epoch: Epoch) -> EpochResult:
        """One epoch (``OutputsRun.run``)."""
        (result,) = self._run.run(epoch).values()
        return result


def _percentiles(trigger: Trigger) -> set[float]:
    own = {trigger.percentile} if isinstance(trigger, AfterPercentileWatermark) else set()
    return own.union(*map(_percentiles, trigger.children))


def run_pipeline(pipeline: Pipeline, epochs: Iterable[Epoch]) -> list[EpochResult]:
    """Run ``pipeline`` over ``epochs`` from the beginning. Raises IntegerOverflowError if a result leaves 64 bits."""
    run = PipelineRun(pipeline)
    return [run.run(epoch) for epoch in epochs]


def run_outputs(
    pipeline: Pipeline, epochs: Iterable[Epoch], functions: Functions = NO_FUNCTIONS
) -> dict[str, list[EpochResult]]:
    """The same for each output of ``pipeline``, by name, with what its ``functions`` make of panes."""
    run = OutputsRun(pipeline, functions)
    results = [run.run(epoch) for epoch in epochs]
    return {output: [result[output] for result in results] for output in pipeline.by_output}


def fold_current(panes: Iterable[Pane]) -> dict[tuple[tuple[Any, ...], Window], Pane]:
    """The ``current`` view of panes in order of emission: the newest per (key, window), unless it is a retraction."""
    newest: dict[tuple[tuple[Any, ...], Window], Pane] = {}
    for pane in panes:
        newest[pane.key, pane.window] = pane
    return {place: pane for place, pane in newest.items() if not pane.is_retraction}
