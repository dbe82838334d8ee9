"""Spark as an executor of conformance cases: the kernel in its workers, many cases at once, each in one task.

A case gives elements and clocks, no files: what crosses between tasks is proven elsewhere, by random runs over files.
"""

from collections.abc import Iterator, Sequence

from headrace.conformance.cases import Case
from headrace.conformance.on_local import LocalExecutor
from headrace.conformance.replay import Replay
from headrace.distribute.spark.each import each
from headrace.distribute.spark.session import spark_session
from headrace.distribute.spark.types import SparkSession


class SparkExecutor:
    """Runs cases on a small local session of its own, or on ``spark``."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._borrowed = spark

    def replay(self, cases: Sequence[Case]) -> Iterator[Replay]:
        spark = self._borrowed or spark_session("headrace conformance", conf={"spark.log.level": "ERROR"})
        try:
            yield from each(spark, _replayed, cases)
        finally:
            if self._borrowed is None:
                spark.stop()


def _replayed(case: Case) -> Replay:
    return next(LocalExecutor().replay([case]))
