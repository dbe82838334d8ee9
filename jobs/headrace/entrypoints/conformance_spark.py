"""The Spark engine as an executor of conformance cases: each step of a case is an epoch of its operators.

Cases run side by side in one application; a step that touches nothing and makes nothing due starts no Spark job.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.elements import judge
from headrace.engine.operator import EMPTY, Operator, TakenIn, run_stages
from headrace.engine.session import interpreting, spark_session
from headrace.engine.types import DataFrame, SparkSession
from headrace.engine.values import element_rows, emitted
from headrace.entrypoints.conformance_cases import (
    DEFAULT_KEY,
    AdvanceProcessingTime,
    AdvanceWatermark,
    Between,
    Case,
    CaseElement,
    ExpectAssigned,
    ExpectCombined,
    ExpectMerged,
    ExpectOutputWatermark,
    Input,
    Step,
)
from headrace.entrypoints.conformance_cases import Stage as CaseStage
from headrace.entrypoints.conformance_replay import Outcome, Replay
from headrace.model.accumulation import Accumulation, accumulating, discarding
from headrace.model.combiners import Aggregate, Combiner
from headrace.model.expr import DataType, Expr, Schema, cast, col, lit
from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.triggers import Always
from headrace.model.windows import GlobalWindows, Window
from headrace.pipeline.graph import Aggregation, Stage

_CASES_AT_ONCE = (os.cpu_count() or 1) + 1
"""One more than the cores: while a case waits for its answer another is planned."""

KEY, VALUE, RESULT, BYTES = "key", "value", "result", "_size"


class SparkExecutor:
    """Runs cases on a small local session of its own, or on ``spark``."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._borrowed = spark

    def replay(self, cases: Sequence[Case]) -> Iterator[Replay]:
        spark = self._borrowed or _session()
        try:
            session = interpreting(spark)
            with ThreadPoolExecutor(_CASES_AT_ONCE) as pool:
                yield from pool.map(lambda case: _replay(session, case), cases)
        finally:
            if self._borrowed is None:
                spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    conf = {"spark.log.level": "ERROR", "spark.driver.memory": "3g"}
    return spark_session("headrace conformance", root_uri="file:///", conf=conf)


def _replay(spark: SparkSession, case: Case) -> Replay:
    try:
        return Replay(tuple(_Run(spark, case).outcomes()))
    except Exception as error:  # of whatever kind: the other cases run on
        return Replay(error=f"{type(error).__name__}: {error}")


@dataclass
class _Run:
    """One case between two steps."""

    spark: SparkSession
    case: Case
    operators: list[Operator] = field(init=False)
    clock: Instant = field(init=False)
    epoch: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.operators = [Operator(stage, partitions=1) for stage in _stages(self.case)]
        self.clock = self.case.initial_processing_time

    def outcomes(self) -> Iterator[Outcome]:
        self._epoch(EMPTY, self.case.initial_watermark)
        for step in self.case.steps:
            panes = self._perform(step)
            watermarks = self._watermarks() if isinstance(step, ExpectOutputWatermark) else ()
            yield Outcome(panes, dict(self.dropped), watermarks, _answer(self.spark, self.case, step))

    def _watermarks(self) -> tuple[Instant, ...]:
        return tuple(operator.output_watermark for operator in self.operators)

    def _perform(self, step: Step) -> tuple[Pane, ...]:
        first = self.operators[0]
        match step:
            case Input(elements, is_batch):
                taken = first.take_in(self._bundle(elements)) if elements else EMPTY
                return self._epoch(taken, MAX_INSTANT if is_batch else first.watermark, is_batch=is_batch)
            case AdvanceWatermark(to, percentiles):
                return self._epoch(EMPTY, to, percentiles)
            case AdvanceProcessingTime(to):
                self.clock = Instant(max(self.clock, to))
                return self._epoch(EMPTY, first.watermark)
        return ()

    def _bundle(self, elements: Sequence[CaseElement]) -> DataFrame:
        first = self.operators[0]
        schema = {**first.stage.schema, **({BYTES: DataType.INT} if first.plan.reads_size else {})}
        collects = self.case.stages[0].combine is None
        rows = [(_record(first.stage, e, collects), e.timestamp, -1 if e.is_retraction else 1) for e in elements]
        return judge(first.plan, element_rows(self.spark, schema, rows))

    def _epoch(
        self,
        taken: TakenIn,
        watermark: Instant,
        percentiles: Mapping[float, Instant] | None = None,
        *,
        is_batch: bool = False,
    ) -> tuple[Pane, ...]:
        done = run_stages(
            self.operators,
            self.epoch,
            taken,
            processing_time=self.clock,
            watermark=watermark,
            percentiles=percentiles,
            is_batch=is_batch,
        )
        self.epoch += 1
        for stepped in done:
            self.dropped.update(late=stepped.late, closed=stepped.closed, retraction=stepped.dropped_retractions)
        last = done[-1]
        panes = emitted(last.step) if last.step is not None and last.has_panes else []
        return tuple(_decoded(self.case, pane) for pane in panes)


# --- the configuration of a case as stages of a pipeline --------------------------------------------------------------


def _stages(case: Case) -> list[Stage]:
    elements = [element for step in case.steps if isinstance(step, Input) for element in step.elements]
    first, *rest = case.stages
    kind = _value_type(first.combine, [element.value for element in elements])
    schema: Schema = {KEY: DataType.STRING, VALUE: kind, **first.schema}
    key: dict[str, Expr] = {KEY: col(KEY)}
    stages = [Stage(_aggregation(first, key, col(VALUE)), schema, any(e.is_retraction for e in elements))]
    for stage in rest:
        above = stages[-1]
        between = case.between or Between(key_is_value=False, value_is_one=False)
        key = {KEY: cast(col(RESULT), DataType.STRING) if between.key_is_value else lit(DEFAULT_KEY)}
        value = lit(1) if between.value_is_one else col(RESULT)
        withdrawable = above.aggregation.how.accumulation is Accumulation.RETRACTING
        stages.append(Stage(_aggregation(stage, key, value), above.pane_schema, withdrawable))
    return stages


def _aggregation(stage: CaseStage, key: Mapping[str, Expr], value: Expr) -> Aggregation:
    combiner = stage.combine or Combiner.COLLECT
    what = {RESULT: Aggregate(combiner, None if combiner is Combiner.COUNT else value)}
    return Aggregation(key, stage.where, stage.when, stage.how, what)


def _value_type(combine: Combiner | None, values: Sequence[Any]) -> DataType:
    """Collected values may be anything: they travel as JSON."""
    if combine in (None, Combiner.COUNT) or any(isinstance(value, str) for value in values):
        return DataType.STRING
    return DataType.FLOAT if any(isinstance(value, float) for value in values) else DataType.INT


def _record(stage: Stage, element: CaseElement, collects: bool) -> dict[str, Any]:
    value = element.value
    if stage.schema[VALUE] is DataType.STRING and (collects or not isinstance(value, str)):
        value = json.dumps(value)
    return {**element.attributes, KEY: element.key, VALUE: value, BYTES: element.size}


def _decoded(case: Case, pane: Pane) -> Pane:
    if len(case.stages) > 1 or case.stages[0].combine is not None:
        return pane
    return replace(pane, values=(tuple(json.loads(value) for value in pane.values[0]),))


# --- steps that only ask for an answer --------------------------------------------------------------------------------


def _answer(spark: SparkSession, case: Case, step: Step) -> object:
    match step:
        case ExpectAssigned(timestamp, _):
            return _windows(spark, case, [timestamp])
        case ExpectMerged(timestamps, _):
            return _windows(spark, case, timestamps)
        case ExpectCombined():
            return _combined(spark, step)
    return None


def _windows(spark: SparkSession, case: Case, timestamps: Sequence[Instant]) -> frozenset[Window]:
    """The windows of panes that a bundle of elements at ``timestamps`` gives at once: assigned, and merged."""
    stage = replace(case.stages[0], when=Always(), how=discarding(None), combine=Combiner.COUNT)
    elements = tuple(CaseElement(DEFAULT_KEY, None, at) for at in timestamps)
    return frozenset(pane.window for pane in _last_panes(spark, stage, [Input(elements)]))


def _combined(spark: SparkSession, step: ExpectCombined) -> Any:
    """The groups as bundles of one window; an element that came and went lets even nothing have a pane."""
    stage = CaseStage(GlobalWindows(), Always(), accumulating(None), step.combiner)
    values = [value for group in (*step.groups, step.uncombine) for value in group]
    zero = values[0] if values else 0

    def bundle(group: Sequence[Any], *, withdrawn: bool = False) -> tuple[CaseElement, ...]:
        return tuple(CaseElement(DEFAULT_KEY, value, Instant(0), withdrawn) for value in group)

    bundles = [bundle([zero]) + bundle([zero], withdrawn=True), *map(bundle, step.groups)]
    bundles.append(bundle(step.uncombine, withdrawn=True))
    panes = _last_panes(spark, stage, [Input(elements) for elements in bundles if elements])
    return panes[-1].values[0]


def _last_panes(spark: SparkSession, stage: CaseStage, steps: Sequence[Input]) -> tuple[Pane, ...]:
    case = Case("", (stage,), None, tuple(steps), MIN_INSTANT, Instant(0), strict=False, expect_failure=None)
    *_, last = _Run(spark, case).outcomes()
    return last.panes
