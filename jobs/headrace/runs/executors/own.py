"""Headrace's own executors. Each is imported only by runs that take it."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.ext.executors import Executor
from headrace.installed import require_extra

if TYPE_CHECKING:
    from headrace.ext.executors import Execution, ExecutorRun


def _on_spark(run: "ExecutorRun", given_session: Any) -> "Execution":
    from headrace.runs.executors.on_spark import SparkExecution

    return SparkExecution(run.pipeline, run.store, run.landing, run.run_id, run.note, given_session)


def _on_local(run: "ExecutorRun", given_session: Any) -> "Execution":
    from headrace.runs.executors.on_local import LocalExecution

    return LocalExecution(run.pipeline, run.store, run.landing)


_ADVICE = "take the executor local, which needs no JVM (--executor local)"

SPARK: Final = Executor(
    "a Spark application", _on_spark, partial(require_extra, "spark", "the executor spark", _ADVICE), is_submitted=True
)
LOCAL: Final = Executor("a process of the task's own, without Spark", _on_local)
