"""What tasks are sent, once for all epochs.

Users' own modules travel to tasks by value: those need not be able to import them.

What the tasks of a pipeline are sent, once for all epochs, and what they make of it in their processes.
"""

import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from headrace.distribute.process_limits import give_back, share_one_heap
from headrace.distribute.spark.application import runs_here
from headrace.distribute.spark.types import SparkSession
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.pipeline.loading.code_digests import modules_of
from headrace.pipeline.loading.modules import package_of
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace_snapshots.store import open_store, scheme_of


def travels(module: str) -> None:
    """Let what ``module`` defines travel; if it lies beside a pipeline's file, also what the others there define."""
    cloudpickle.register_pickle_by_value(sys.modules[package_of(module) or module])  # type: ignore[no-untyped-call]


_PIPELINES = 8


@dataclass(frozen=True)
class TaskPayload:
    """A pipeline, with what its file and the modules beside it define; the root of the store that its tasks read and
    write; variables that processes on other machines lack, such as the keys of that store.
    """

    pipeline: bytes
    root: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, work: TaskEnvironment) -> "TaskPayload":
        """For tasks in ``spark``. Keys go with the tasks, never into Spark's configuration."""
        for module in modules_of(work.pipeline):
            travels(module)
        pickled: bytes = cloudpickle.dumps(work.pipeline)  # type: ignore[no-untyped-call]
        uris = () if runs_here(spark) else (work.store.uri, *work.landing.uris)
        settings = [scheme_of(uri).settings(os.environ) for uri in uris]
        return cls(pickled, work.store.uri, dict(ChainMap(*settings)))

    def work(self) -> TaskEnvironment:
        """The work of the pipeline: the same object for all tasks of a process."""
        os.environ.update(self.environment)
        return _work(self.pipeline, self.root)

    def calling(self, run: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> Callable[..., Any]:
        """``run`` of the work, of the ``arguments``, and of the rows of a task."""
        return partial(_called, self, run, *arguments)


def _called(
    payload: TaskPayload, run: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
) -> Iterator[pa.RecordBatch]:
    yield from run(payload.work(), *arguments)
    give_back()


@lru_cache(_PIPELINES)
def _work(pickled: bytes, root: str) -> TaskEnvironment:
    share_one_heap()
    pipeline: Pipeline = pickle.loads(pickled)  # noqa: S301 (the driver's own, of this application)
    store = open_store(root)
    return TaskEnvironment.of(pipeline, store, Landing(pipeline, store))
