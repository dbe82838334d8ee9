"""The job that writes the rows of a DataFrame as files of some 64 MB as Arrow: each task as many as its partition
takes. A task that runs twice writes twice, under names of its own; those of the one that Spark counts are reported.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from headrace.distribute.spark.application import bring_packages
from headrace.distribute.spark.types import DataFrame, SparkSession
from headrace.ext.sources import SourceSplit
from headrace.sources.landed.lander import encoded
from headrace.sources.landed.ranges import digest_of
from headrace_snapshots.store import ObjectExistsError, ObjectStore, UnknownOutcomeError, open_store, scheme_of

MOST_BYTES: Final = 64 * 2**20
"""A file has so many bytes of rows as Arrow, and what is left of the batch that reached it."""

_WRITTEN: Final = "partition int, number int, path string, size long, digest string"


def written(spark: SparkSession, frame: DataFrame, root: str, folder: str) -> list[SourceSplit]:
    """Write the rows of ``frame`` as Parquet files in a ``folder`` below ``root``, which tasks reach by that URI. What
    they are, in the order of its partitions; the ETag of each is the digest of its content.
    """
    bring_packages(spark)
    write = partial(_write, root, scheme_of(root).settings(os.environ), folder)
    files: list[dict[str, Any]] = frame.mapInArrow(write, _WRITTEN).toArrow().to_pylist()
    in_order = sorted(files, key=lambda file: (file["partition"], file["number"]))
    return [SourceSplit(file["path"], file["size"], file["digest"]) for file in in_order]


def _write(
    root: str, settings: Mapping[str, str], folder: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    os.environ.update(settings)
    store = open_store(root)
    task: Any = TaskContext.get()
    for number, rows in enumerate(_parts(batches)):
        path = f"{folder}{task.partitionId():05d}-{number:05d}-{task.taskAttemptId()}.parquet"
        data = encoded(rows)
        _put(store, path, data)
        report = (pa.array([task.partitionId()], pa.int32()), pa.array([number], pa.int32()), [path], [len(data)])
        yield pa.RecordBatch.from_pydict(
            dict(zip(("partition", "number", "path", "size", "digest"), (*report, [digest_of(data)]), strict=True))
        )


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    taken: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            taken.append(batch)
            size += batch.nbytes
        if size >= MOST_BYTES:
            yield pa.Table.from_batches(taken)
            taken, size = [], 0
    if taken:
        yield pa.Table.from_batches(taken)


def _put(store: ObjectStore, path: str, data: bytes) -> None:
    """Nobody else writes there: what is there after an answer was lost is this."""
    try:
        store.create(path, data)
    except UnknownOutcomeError:
        try:
            store.create(path, data)
        except ObjectExistsError:
            return
