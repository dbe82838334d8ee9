"""Data files of a snapshot, written by the tasks that hold the rows.

Each task turns its Arrow batches into Parquet in memory and puts each file once, under a name of its own: no rename,
no copy, no listing, and path, rows, bytes and checksum are known when the task ends. A task that Spark runs twice
leaves garbage that no manifest names. Arrow arrives in batches, so there is no Python per row.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as t

from headrace.engine.types import DataFrame
from headrace.program import columns as c
from headrace.state.files import parquet_files
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import open_store

_BATCH_BYTES, _NO_LIMIT = 64 * 1024 * 1024, 2**31 - 1

_RESULT = t.StructType(
    [
        t.StructField("path", t.StringType()),
        t.StructField("rows", t.LongType()),
        t.StructField("bytes", t.LongType()),
        t.StructField("sha256", t.StringType()),
    ]
)


def write_files(rows: DataFrame, root: str, prefix: str, table: str) -> tuple[DataFile, ...]:
    """Write ``rows`` as Parquet under ``prefix`` of the store at ``root`` (one Spark job); the files in order of
    partition.
    """
    # Spark weighs a batch after every row, which costs more than filling it: only where rows can be large
    limit = _BATCH_BYTES if any(map(_can_be_large, rows.schema.fields)) else _NO_LIMIT
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(limit))
    written = rows.mapInArrow(_task(root, prefix, table), _RESULT).collect()
    files = [DataFile(path=r["path"], rows=r["rows"], bytes=r["bytes"], sha256=r["sha256"]) for r in written]
    return tuple(sorted(files, key=lambda file: file.path))


def _can_be_large(field: t.StructField) -> bool:
    """Whether a value of ``field`` may hold all values of a window, or a sketch of them."""
    match field.dataType:
        case t.StructType() as record:
            return any(map(_can_be_large, record.fields))
        case t.ArrayType(elementType=t.StructType() as record) if field.name == c.LIVE:
            return any(map(_can_be_large, record.fields))
    return isinstance(field.dataType, t.ArrayType | t.MapType | t.BinaryType)


def _task(root: str, prefix: str, table: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        attempt = 0 if context is None else context.taskAttemptId()
        name = f"{prefix}/{table}-{task:05d}-{attempt}"
        store = open_store(root)
        files = []
        for part, data, count in parquet_files(batches):
            path = f"{name}-{part}.parquet"
            store.write(path, data)
            files.append((path, count, len(data), hashlib.sha256(data).hexdigest()))
        columns = [list(column) for column in zip(*files, strict=True)] or [[], [], [], []]
        kinds = [pa.string(), pa.int64(), pa.int64(), pa.string()]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=_RESULT.names)

    return write
