"""The executor that a test's runs are computed by: ``local``, and ``spark`` too for a few tests (``on_both``)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace import Pipeline
from headrace.distribute.epoch import Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.ext.executors import EXECUTORS, Execution, ExecutorRun
from headrace.runs.executors.on_local import LocalExecution
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import RunResult
from headrace_lab.actions import audit, backfill, recover
from tests.distribute.blobs import OverBlobs

_SPARK = pytest.param("spark", marks=pytest.mark.spark)
on_both = pytest.mark.parametrize("executor", ["local", _SPARK], indirect=True)
"""The test runs on Spark too."""
on_spark = pytest.mark.parametrize("executor", [_SPARK], indirect=True)
"""The test runs on Spark alone."""


@dataclass(frozen=True)
class ExecutorUnderTest:
    """Runs on one executor; ``spark`` is the session of the tests, None on ``local``."""

    executor: str
    spark: Any = None

    def run(self, pipeline: Pipeline, root: str, **options: Any) -> RunResult:
        """As users run it: ``options`` are those of ``PipelineHandle.run``. Spark finds the session of the process."""
        result: RunResult = hr.open(root, create=True)[pipeline].run(executor=self.executor, **options)
        return result

    def process(self, pipeline: Pipeline, root: str, options: RunOptions, **more: Any) -> RunResult:
        return self._run(process, pipeline, root, options, **more)

    def audit(self, pipeline: Pipeline, root: str, options: RunOptions, **more: Any) -> RunResult:
        return self._run(audit, pipeline, root, options, **more)

    def backfill(self, pipeline: Pipeline, root: str, options: RunOptions, **more: Any) -> RunResult:
        return self._run(backfill, pipeline, root, options, **more)

    def recover(self, pipeline: Pipeline, root: str, options: RunOptions, **more: Any) -> RunResult:
        return self._run(recover, pipeline, root, options, **more)

    def _run(
        self, run: Callable[..., RunResult], pipeline: Pipeline, root: str, options: RunOptions, **more: Any
    ) -> RunResult:
        return run(pipeline, root, replace(options, executor=self.executor), spark=self.spark, **more)


LOCAL = ExecutorUnderTest("local")
"""What sets the scene for a test on both, or is compared with it: an epoch on Spark takes twenty times as long."""


class SparkStandIn(LocalExecution):
    """Stands for Spark without a JVM: its engine has an exchange between its three tasks. ``begun``: each start."""

    begun: ClassVar[list[str]] = []

    def begin(self) -> None:
        self.begun.append("begun")

    def engine(self, attempts: Attempts) -> OverBlobs:
        return OverBlobs(TaskEnvironment.from_pipeline(self.pipeline, self.store, self.landing), attempts, 3)

    @classmethod
    @contextmanager
    def stand_in(cls) -> Iterator[list[str]]:
        """Inside, runs take it for Spark; when it began."""
        starts: list[str] = []
        cls.begun = starts
        fake = replace(EXECUTORS["spark"], open=lambda run, _: cls(run.pipeline, run.store, run.landing))
        with EXECUTORS.replace_part("spark", fake):
            yield starts


@contextmanager
def computing(engine: Callable[[LocalExecution, Attempts], TasksEngine]) -> Iterator[None]:
    """Inside, runs on ``local`` have the engine that ``engine`` makes."""

    class Computing(LocalExecution):
        def engine(self, attempts: Attempts) -> Any:
            return engine(self, attempts)

    computing_executor = replace(
        EXECUTORS["local"], open=lambda run, _: Computing(run.pipeline, run.store, run.landing)
    )
    with EXECUTORS.replace_part("local", computing_executor):
        yield


@contextmanager
def no_executor(name: str) -> Iterator[None]:
    """Inside, nothing may be computed by the executor of a name."""

    def refuse(run: ExecutorRun, _: object) -> Execution:
        raise AssertionError(f"the run {run.run_id} with nothing to compute started an executor")

    with EXECUTORS.replace_part(name, replace(EXECUTORS[name], open=refuse)):
        yield
