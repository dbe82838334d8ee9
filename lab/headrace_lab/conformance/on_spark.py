"""Cases on Spark. One case of each kind runs as epochs on Spark do: a job for each, whose blobs cross Spark's own
exchanges between processes (``representatives``). The others run in one task each, many beside each other, with the
levels of tasks and the blobs between them in that process (``on_local``). A job for each of their epochs would take
minutes, and what is in a blob is nothing to Spark.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from headrace.distribute.epoch import Attempts
from headrace.distribute.spark.application import SparkSession, ship_module, tasks_of
from headrace.distribute.spark.engine import SparkRunner
from headrace.distribute.spark.failures import spark_errors
from headrace.distribute.spark.session import spark_session
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.pipeline.loading.code_digests import modules_of
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace_lab.conformance.cases import AdvanceProcessingTime, AdvanceWatermark, BundleStep, Case, Expect
from headrace_lab.conformance.epoch_replay import StageRunner, replay_case
from headrace_lab.conformance.on_local import LocalExecutor
from headrace_lab.conformance.on_tasks import OnTasks, map_elements
from headrace_lab.conformance.replay import CaseReplay
from headrace_snapshots.store import open_store

TASKS = 2
MOST_EPOCHS = 6
_TASKS_PER_CORE = 4


class SparkExecutor:
    """Runs cases on a small local session of its own, or on ``spark``."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._given_session = spark

    def replay(self, cases: Sequence[Case]) -> Iterator[CaseReplay]:
        spark = self._given_session or spark_session("headrace conformance", conf={"spark.log.level": "ERROR"})
        try:
            job_cases = representatives(cases)
            others = iter(_in_tasks(spark, [case for case in cases if case not in job_cases]))
            for case in cases:
                yield _in_jobs(spark, case) if case in job_cases else next(others)
        finally:
            if self._given_session is None:
                spark.stop()


def representatives(cases: Sequence[Case]) -> list[Case]:
    """The cases that run through Spark's exchanges: of each kind, the one that expects the most panes, among those with
    at most MOST_EPOCHS. A kind is one of windows, accumulation, number of stages, outputs or a chain, ``having`` or
    not, and a loop or not. Each kind of rows is one, and so are rows of nested values, joins of inputs, and joins of
    outputs.
    """
    by_kind: dict[object, Case] = {}
    for case in sorted(cases, key=_panes, reverse=True):
        first = case.stages[0]
        has_having = any(stage.having is not None for stage in case.stages)
        if _panes(case) and _epochs(case) <= MOST_EPOCHS:
            kinds = type(first.where), first.how.accumulation, len(case.stages)
            kind: object = (*kinds, bool(case.outputs), has_having, first.loop is not None)
            if first.rows is not None:
                kind = "nested values" if first.rows.value_type is not None else type(first.rows.take)
                if first.rows.join is not None:
                    kind = "join", "outputs" in first.rows.join
            by_kind.setdefault(kind, case)
    return list(by_kind.values())


def _panes(case: Case) -> int:
    return sum(len(step.panes) for step in case.steps if isinstance(step, Expect))


def _epochs(case: Case) -> int:
    return sum(isinstance(step, BundleStep | AdvanceWatermark | AdvanceProcessingTime) for step in case.steps)


def _in_tasks(spark: SparkSession, cases: Sequence[Case]) -> list[CaseReplay]:
    """The ``cases``, each in a task of Spark, in their order. Users' own objects in them travel with their modules."""
    for case in cases:
        for module in modules_of(case):
            ship_module(module)
    numbers = spark.range(0, len(cases), 1, min(len(cases), _TASKS_PER_CORE * tasks_of(spark)) or 1)
    with spark_errors():
        rows: Any = numbers.mapInArrow(partial(_replay_batches, cases), "number long, replay binary").toArrow()
    replays = sorted(zip(rows.column("number").to_pylist(), rows.column("replay").to_pylist(), strict=True))
    return [pickle.loads(replay) for _, replay in replays]  # noqa: S301 (our own, of this application)


def _replay_batches(cases: Sequence[Case], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            replay = pickle.dumps(next(LocalExecutor().replay([cases[number]])))
            yield pa.RecordBatch.from_pydict({"number": pa.array([number]), "replay": pa.array([replay], pa.binary())})


def _in_jobs(spark: SparkSession, case: Case) -> CaseReplay:
    with TemporaryDirectory(prefix="headrace-conformance-") as folder:

        def engine(pipeline: Pipeline, attempts: Attempts) -> TasksEngine:
            store = open_store(f"file://{folder}")
            work = TaskEnvironment.from_pipeline(pipeline, store, Landing(pipeline, store))
            return TasksEngine(work, attempts, SparkRunner(spark, work, TASKS, map_elements))

        def start(pipeline: Pipeline) -> StageRunner:
            return OnTasks(engine, pipeline, TASKS)

        return replay_case(start, case)
