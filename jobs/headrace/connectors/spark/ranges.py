"""Ranges as a user's class reads them: its columns, its calls, and the files that a job of Spark writes of one.

Whether a DataFrame has the columns that a source says, before anything of it is landed.

The object of a user that says which ranges there are, and reads them. What it raises becomes an error by name.

The job that writes the rows of a DataFrame as files of some 64 MB as Arrow: each task as many as its partition
takes. A task that runs twice writes twice, under names of its own; those of the one that Spark counts are reported.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connections import Connection
from headrace.connectors.spark.definition import SparkSource
from headrace.connectors.spark.errors import RangeColumnsError, RangeFunctionError
from headrace.connectors.spark.failures import named_failures
from headrace.connectors.spark.session import ConnectedSession
from headrace.distribute.spark.application import bring_packages
from headrace.distribute.spark.task_payload import travels
from headrace.distribute.spark.types import DataFrame, SparkSession
from headrace.ext.sources import SourceSplit
from headrace.formats.errors import FileColumnsError
from headrace.formats.parquet import places, stored_columns
from headrace.pipeline.loading.code_digests import named_function
from headrace.pipeline.source import OnMissing
from headrace.sources.landed.lander import encoded
from headrace.sources.landed.ranges import digest_of
from headrace_snapshots.store import ObjectExistsError, ObjectStore, UnknownOutcomeError, open_store, scheme_of


def check_columns(frame: DataFrame, source: SparkSource) -> None:
    """Raise RangeColumnsError, which names each column of ``frame`` that is not as ``source`` says."""
    names = frame.columns
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RangeColumnsError(
            f"{source}: read() gives column {twice[0]} {names.count(twice[0])} times: name each once (alias, drop)"
        )
    if dotted := [name for name in names if "." in name]:
        raise RangeColumnsError(
            f"{source}: read() gives column {dotted[0]}, and Spark takes what is before a dot for an object: give it "
            "another name (alias), or leave it out"
        )
    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except PySparkException as error:  # a type that has no form outside of Spark
        raise RangeColumnsError(
            f"{source}: read() gives a column that cannot be landed ({error}): cast it, or leave it out"
        ) from error
    if empty := [field.name for field in schema if _is_empty(field.type)]:
        raise RangeColumnsError(
            f"{source}: read() gives column {empty[0]}, an object without fields, which Parquet cannot hold: "
            "leave it out"
        )
    if wrong := [*_misfits(schema, source)]:
        raise RangeColumnsError(
            f"{source}: what read() gives does not fit the schema: {'; '.join(wrong)}. It has "
            f"{', '.join(f'{field.name} ({field.type})' for field in schema)}. Nothing was landed: correct the schema, "
            "or cast and name the columns in read()"
        )


def _is_empty(kind: pa.DataType) -> bool:
    """Whether somewhere in it there is an object that has no field."""
    is_object = pa.types.is_struct(kind)
    return (is_object and not kind.num_fields) or any(_is_empty(kind.field(n).type) for n in range(kind.num_fields))


def _misfits(schema: pa.Schema, source: SparkSource) -> Iterator[str]:
    fields = source.as_read.fields
    there = {*places(schema, fields)}
    for name, field in fields.items():
        try:
            stored_columns(schema, {name: field}, str(source))
        except FileColumnsError as error:
            yield error.reason
        else:
            if field.place not in there and source.missing is OnMissing.FAIL:
                yield f"there is no column {field.named(name)}"


class Ranges(Protocol):
    """What the function of a source gives."""

    def ends(self, begin: str | None) -> Iterable[str]:
        """Where ranges end that are new behind ``begin``, in order, each where the next begins; None: from the start.
        The last one again, or nothing: there is nothing new.
        """

    def read(self, begin: str | None, end: str) -> "DataFrame":
        """The records behind ``begin``, up to ``end``."""


@dataclass(frozen=True)
class NamedRanges:
    """The ``ranges`` of a ``source``, with its name in whatever they raise, and no secret of its connection."""

    source: SparkSource
    ranges: Ranges
    session: ConnectedSession

    def ends(self, begin: str | None) -> list[str]:
        """Where new ranges end. Raises RangeFunctionError, RangeRefusedError, RangeFailedError."""
        with named_failures(self.source, self.session.connection):
            given: Any = self.ranges.ends(begin)
            is_several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
            ends = [*given] if is_several else [given]
        wrong = [end for end in ends if not isinstance(end, str) or not end]
        if wrong or not is_several:
            raise RangeFunctionError(
                f"{self.source}: ends({begin!r}) gives {(wrong or ends)[0]!r:.100}: give a list of texts, each where a "
                "range ends and the next one begins; an empty list where nothing is new"
            )
        return ends

    def read(self, begin: str | None, end: str) -> "DataFrame":
        """The records of a range. Raises RangeFunctionError, RangeRefusedError, RangeFailedError."""
        _ = self.session.spark  # functions of pyspark.sql ask for a session that is there
        with named_failures(self.source, self.session.connection):
            frame = self.ranges.read(begin, end)
        if not isinstance(frame, DataFrame) and not hasattr(frame, "mapInArrow"):
            raise RangeFunctionError(f"{self.source}: read() gives {type(frame).__name__}, and must give a DataFrame")
        return frame


@contextmanager
def ranges_of(source: SparkSource, connection: Connection | None) -> Iterator[NamedRanges]:
    """The ranges of a ``source``, whose session ends with this, or where sessions are kept with what keeps them. Raises
    RangeFunctionError, RangeFailedError.
    """
    session = ConnectedSession(connection, "landing")
    try:
        with named_failures(source, connection):
            named = named_function(str(source), source.function, source.package, RangeFunctionError)
            travels(named.module)  # with its own functions for rows
            ranges: Any = named.function(session)
        for method in ("ends", "read"):
            if not callable(getattr(ranges, method, None)):
                raise RangeFunctionError(f"{source}: it gives {type(ranges).__name__}, which has no method {method}()")
        yield NamedRanges(source, ranges, session)
    finally:
        session.leave()


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
