"""The Spark engine as an executor of conformance cases.

Cases run side by side in one application; a step that touches nothing and makes nothing due starts no Spark job.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.conformance.cases import Case
from headrace.conformance.on_operators import EpochOutcome, StageElement, replay_case
from headrace.conformance.replay import Replay
from headrace.engine.elements import judge
from headrace.engine.operator import EMPTY, Operator, run_stages
from headrace.engine.session import interpreting, spark_session
from headrace.engine.types import SparkSession
from headrace.engine.values import element_rows, emitted
from headrace.model.expr import DataType
from headrace.model.time import Instant
from headrace.pipeline.graph import Stage
from headrace.program import columns as c

_CASES_AT_ONCE = (os.cpu_count() or 1) + 1
"""One more than the cores: while a case waits for its answer another is planned."""


class SparkExecutor:
    """Runs cases on a small local session of its own, or on ``spark``."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._borrowed = spark

    def replay(self, cases: Sequence[Case]) -> Iterator[Replay]:
        spark = self._borrowed or _session()
        try:
            session = interpreting(spark)
            with ThreadPoolExecutor(_CASES_AT_ONCE) as pool:
                yield from pool.map(lambda case: replay_case(lambda stages: _OnSpark(session, stages), case), cases)
        finally:
            if self._borrowed is None:
                spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    conf = {"spark.log.level": "ERROR", "spark.driver.memory": "3g"}
    return spark_session("headrace conformance", root_uri="file:///", conf=conf)


class _OnSpark:
    """The stages of a case as operators of the Spark engine."""

    def __init__(self, spark: SparkSession, stages: Sequence[Stage]) -> None:
        self._spark = spark
        self._operators = [Operator(stage, partitions=1) for stage in stages]

    def run(
        self,
        epoch: int,
        elements: Sequence[StageElement],
        *,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant],
        is_batch: bool,
    ) -> EpochOutcome:
        first, taken = self._operators[0], EMPTY
        if elements:
            schema = {**first.stage.schema, **({c.SIZE: DataType.INT} if first.plan.reads_size else {})}
            rows = [({**e.record, c.SIZE: e.size}, e.timestamp, e.sign) for e in elements]
            taken = first.take_in(judge(first.plan, element_rows(self._spark, schema, rows)))
        done = run_stages(
            self._operators,
            epoch,
            taken,
            processing_time=processing_time,
            watermark=watermark,
            percentiles=percentiles,
            is_batch=is_batch,
        )
        dropped = {
            "late": sum(stepped.late for stepped in done),
            "closed": sum(stepped.closed for stepped in done),
            "retraction": sum(stepped.dropped_retractions for stepped in done),
        }
        last = done[-1]
        return EpochOutcome(emitted(last.step) if last.step is not None and last.has_panes else [], dropped)

    def output_watermarks(self) -> tuple[Instant, ...]:
        return tuple(operator.output_watermark for operator in self._operators)
