"""The executor that a test's runs are computed by: ``local``, and ``spark`` too for a few tests (``on_both``)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headrace import Pipeline
from headrace.runs.backfill.backfill import backfill
from headrace.runs.options import RunOptions
from headrace.runs.process import audit, process
from headrace.runs.recover import recover
from headrace.runs.reporting.results import RunResult

_SPARK = pytest.param("spark", marks=pytest.mark.spark)
on_both = pytest.mark.parametrize("executor", ["local", _SPARK], indirect=True)
"""The test runs on Spark too."""
on_spark = pytest.mark.parametrize("executor", [_SPARK], indirect=True)
"""The test runs on Spark alone."""


@dataclass(frozen=True)
class Executed:
    """Runs on one executor; ``spark`` is the session of the tests, None on ``local``."""

    executor: str
    spark: Any = None

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


LOCAL = Executed("local")
"""What sets the scene for a test on both, or is compared with it: an epoch on Spark takes twenty times as long."""
