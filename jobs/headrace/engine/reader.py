"""Data files of a snapshot, read by the tasks that need their rows: the counterpart of ``writer``.

Each task gets its files whole from the store and holds them against the length and checksum of the manifest; rows come
out of the very bytes that were checked. A file that is not what was written ends the job with BrokenObjectError.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.engine.types import DataFrame, SparkSession
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore, open_store


def read_files(spark: SparkSession, store: ObjectStore, files: Sequence[DataFile], schema: t.StructType) -> DataFrame:
    """The rows of ``files``, which have the columns of ``schema``. Nothing is read before a job wants the rows."""
    if not files:
        return spark.createDataFrame([], schema)
    for _ in files:
        store.requests.add("get")  # by the tasks, whose own counts end with them
    tasks = min(len(files), spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(files), 1, tasks)
    return numbers.mapInArrow(_task(store.uri, tuple(files), to_arrow_schema(schema, timezone="UTC")), schema)


def _task(
    root: str, files: Sequence[DataFile], columns: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(root)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                content = pq.ParquetFile(io.BytesIO(verify(store, files[number])))
                for rows in content.iter_batches():
                    yield rows.select(columns.names).cast(columns)

    return read
