"""Rows of blobs reach the part that they are for, whole and once, whatever their size and however many parts are."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.blobs import PlainJobs
from headrace.distribute.spark.errors import SparkJobError
from headrace.distribute.spark.failures import spark_errors
from headrace.distribute.tasks.exchange import SCHEMA
from headrace.sources.file_planning import VanishedFileError

pytestmark = pytest.mark.spark

TASKS = 3


def row(part: int, task: int, number: int, blob: bytes) -> pa.RecordBatch:
    values = [part, task, number, b"digest", blob]
    columns = [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def blob_of(part: int, task: int, number: int, size: int) -> bytes:
    return bytes([part % 251, task, number]) * size


def send(parts: int, blobs: int, size: int, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for task in batch.column(0).to_pylist():
            for part in range(parts):
                for number in range(blobs):
                    yield row(part, task, number, blob_of(part, task, number, size))


def check(blobs: int, size: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say of a part what it got, once it was looked at; a part that got nothing says nothing."""
    rows = [batch.to_pylist()[0] for batch in batches]
    for got in rows:
        assert got["blob"] == blob_of(got["part"], got["task"], got["number"], size)
        assert got["digest"] == b"digest"
    if rows:
        assert sorted((got["task"], got["number"]) for got in rows) == [
            (task, number) for task in range(TASKS) for number in range(blobs)
        ]
        (part,) = {got["part"] for got in rows}
        yield row(part, part, len(rows), b"")


@pytest.mark.parametrize(
    ("parts", "blobs", "size"),
    [
        pytest.param(1, 1, 0, id="empty blobs"),
        pytest.param(3, 40, 300_000, id="many blobs of a megabyte"),
        pytest.param(201, 2, 5, id="more parts than Spark gives a file each"),
    ],
)
def test_each_part_gets_its_rows_whole_and_once(spark: SparkSession, parts: int, blobs: int, size: int) -> None:
    jobs = PlainJobs(spark.sparkContext)
    sent_rows = jobs.run_tasks("sending", jobs.number_tasks(TASKS), partial(send, parts, blobs, size))
    received_rows = jobs.run_tasks(
        "checking", jobs.shuffle_rows("sending", sent_rows, parts), partial(check, blobs, size)
    )
    told_counts = [got for batch in jobs.collect_rows("checking", received_rows) for got in batch.to_pylist()]
    assert Counter(got["part"] for got in told_counts) == dict.fromkeys(range(parts), 1)
    assert {got["number"] for got in told_counts} == {TASKS * blobs}


def fail(error: Exception, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()
    raise error


@pytest.mark.parametrize(
    ("task_error", "expected"),
    [(VanishedFileError("a.json"), VanishedFileError), (ValueError("nobody knows this"), SparkJobError)],
)
def test_what_a_task_raises_is_raised_as_ever(
    spark: SparkSession, task_error: Exception, expected: type[Exception]
) -> None:
    jobs = PlainJobs(spark.sparkContext)
    with pytest.raises(expected, match=r"a\.json|nobody knows this"), spark_errors():
        jobs.collect_rows("failing", jobs.run_tasks("failing", jobs.number_tasks(1), partial(fail, task_error)))


def sleep_long(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(60)
        yield batch


class ToldToEndError(Exception):
    """What the handler of a signal raises."""


def test_a_signal_ends_the_wait_for_a_job_and_the_session_goes_on(spark: SparkSession) -> None:
    """Inside a call of the JVM it left the answer for the next one: Ctrl-C cancelled nothing, later calls failed."""

    def tell_to_end(*_: object) -> None:
        raise ToldToEndError

    def signal_when_running() -> None:
        while not tracker.getJobIdsForGroup("signalled"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    context, jobs = spark.sparkContext, PlainJobs(spark.sparkContext)
    tracker = context.statusTracker()
    handler_before = signal.signal(signal.SIGUSR1, tell_to_end)
    context.setJobGroup("signalled", "a long job", interruptOnCancel=True)
    try:
        rows = jobs.run_tasks("sleeping", jobs.number_tasks(1), sleep_long)
        with ThreadPoolExecutor(1) as pool, pytest.raises(ToldToEndError):
            pool.submit(signal_when_running)
            jobs.collect_rows("sleeping", rows)
        context.cancelJobGroup("signalled")
        assert context.defaultParallelism > 0
    finally:
        signal.signal(signal.SIGUSR1, handler_before)
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_a_callers_name_for_its_stages_stays(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("callSite.short", "a caller's")
    try:
        jobs = PlainJobs(context)
        jobs.collect_rows("sending", jobs.run_tasks("sending", jobs.number_tasks(1), partial(send, 1, 1, 1)))
        assert context.getLocalProperty("callSite.short") == "a caller's"
    finally:
        context.setLocalProperty("callSite.short", None)  # type: ignore[arg-type]
