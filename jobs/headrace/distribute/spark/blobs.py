"""Rows of blobs from level to level of an epoch, as plain jobs of Spark without a plan of SQL.

To Spark a row is bytes: one batch of ``exchange.SCHEMA``, of one row, and the part that it is for. So nothing is
planned, optimised or compiled for it. The first job of a process costs a third of the CPU of one with such a plan, and
a later one half. A row waits nowhere: each is handed to the JVM by itself, which writes it into the file of its part.

PySpark's own ``partitionBy`` does the same with its private names, and keeps up to a thousand rows in Python for each
batch that it sends.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import RDD, InheritableThread, SparkContext
from pyspark.serializers import NoOpSerializer, pack_long
from pyspark.util import _load_from_socket

from headrace.distribute.tasks.exchange import SCHEMA

TaskFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

Rows = RDD[pa.RecordBatch]

R = TypeVar("R")

_CALL_SITE: Final = "callSite.short"
"""The local property of what Spark's pages call the stages of a job."""


@dataclass(frozen=True)
class PlainJobs:
    """Makes jobs of levels of tasks in an application. Levels have the ``name`` that Spark's pages give their stage."""

    context: SparkContext

    def number_tasks(self, count: int, *, first: int = 0) -> Rows:
        """The numbers of so many tasks, each in a partition of its own."""
        return self.context.parallelize(range(first, first + count), count).mapPartitions(_number_batches)

    def run_tasks(self, name: str, rows: Rows, task_function: TaskFunction) -> Rows:
        """What the tasks say of ``rows``, a task for each partition."""
        del name
        return rows.mapPartitions(task_function)

    def shuffle_rows(self, name: str, rows: Rows, parts: int) -> Rows:
        """``rows`` in so many partitions, each in the one whose number its part is."""
        keyed_rows: Any = rows.mapPartitions(_part_and_blob)
        keyed_rows._bypass_serializer = True
        context: Any = self.context
        jvm = context._jvm
        with _stage_called(context, name):
            pairs = jvm.PairwiseRDD(keyed_rows._jrdd.rdd()).asJavaPairRDD()
            shuffled_pairs = pairs.partitionBy(jvm.PythonPartitioner(parts, 0))
        # Java's stream holds all that it has written, a hundred blobs of 1 MB, unless it is told to forget each
        conf = context._jsc.getConf().set("spark.serializer.objectStreamReset", "1")
        shuffled_pairs.rdd().setSerializer(jvm.org.apache.spark.serializer.JavaSerializer(conf))
        blobs: RDD[bytes] = RDD(jvm.PythonRDD.valueOfPair(shuffled_pairs), context, NoOpSerializer())
        return blobs.mapPartitions(_read_blobs)

    def collect_rows(self, name: str, rows: Rows) -> list[pa.RecordBatch]:
        """Run the job, and give its ``rows``."""
        blobs: Any = rows.mapPartitions(_to_blobs)
        blobs._bypass_serializer = True
        context: Any = self.context
        with _stage_called(context, name):
            rdd = blobs._jrdd.rdd()
            served_socket = _wait_outside_py4j(lambda: context._jvm.PythonRDD.collectAndServe(rdd))
        with _load_from_socket(served_socket, NoOpSerializer()) as stream:
            return [*_read_blobs(stream)]


def _wait_outside_py4j(run: Callable[[], R]) -> R:
    """What ``run`` gives, called in a thread of its own that has this one's local properties.

    An exception that a signal raises amidst a call of the JVM leaves the answer to it for the next call of the thread.
    Ctrl-C itself makes such a call, to cancel all jobs. So this thread must not wait in one as long as a job takes.
    """
    result: Future[R] = Future()

    def settle_result() -> None:
        try:
            result.set_result(run())
        except BaseException as error:
            result.set_exception(error)

    # a daemon: what a process that is told to end no longer waits for must not keep it
    InheritableThread(target=settle_result, name="job", daemon=True).start()
    return result.result()


def _number_batches(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([*numbers], pa.int64())], ["number"])


def _part_and_blob(rows: Iterable[pa.RecordBatch]) -> Iterator[bytes | pa.Buffer]:
    """Each row as two records: its part, as the JVM reads it, and its blob."""
    for row in rows:
        yield pack_long(row.column("part")[0].as_py())  # type: ignore[no-untyped-call]
        yield row.serialize()


def _to_blobs(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    return (row.serialize() for row in rows)


def _read_blobs(blobs: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    return (pa.ipc.read_record_batch(pa.py_buffer(blob), SCHEMA) for blob in blobs)


@contextmanager
def _stage_called(context: Any, name: str) -> Iterator[None]:
    """While inside, stages that begin in this thread have that ``name``."""
    name_before = context.getLocalProperty(_CALL_SITE)
    context.setLocalProperty(_CALL_SITE, name)
    try:
        yield
    finally:
        context.setLocalProperty(_CALL_SITE, name_before)
