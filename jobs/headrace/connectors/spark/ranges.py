"""Ranges as a user's class reads them: its session, its errors, its columns, its calls, and the files that land.

A ``ConnectedSession`` is what code of users gets that reads or writes through Spark: a connection, and a session once
it asks for one.

``named_failures`` tells what goes wrong behind Spark in words for a person: in a user's code, in Spark, and in the
systems that they ask. What is raised becomes an error by what the caller does, with the name of the source, and without
the secrets of its connection. ``answer_of_database`` finds what a database has said to Java's driver, or to Python's.

``check_columns`` looks whether a DataFrame has the columns that a source says, before anything of it is landed.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connections import Connection, SqlAnswer, answer_of, describe_failure, hide_secrets, in_a_line
from headrace.connectors.spark.definition import (
    RangeColumnsError,
    RangeFailedError,
    RangeFunctionError,
    RangeRefusedError,
    SparkSource,
)
from headrace.distribute.spark.application import DataFrame, SparkSession, bring_packages, ship_module
from headrace.distribute.spark.errors import SparkJobError
from headrace.distribute.spark.failures import translate_spark_error
from headrace.errors import HeadraceError
from headrace.ext.sources import SourceSplit
from headrace.formats.file_format import FileColumnsError
from headrace.formats.parquet import column_places, stored_columns
from headrace.pipeline.endpoints import OnMissing
from headrace.pipeline.loading.code_digests import named_function
from headrace.sources.landed.files import encode_table
from headrace.sources.landed.ranges import digest_of
from headrace.this_process import Staying
from headrace_snapshots.store import ObjectExistsError, ObjectStore, UnknownOutcomeError, open_store, scheme_of


@dataclass
class ConnectedSession:
    """A ``connection``, if one is named, and a session of Spark; ``purpose`` is in the name of a new one."""

    connection: Connection | None
    purpose: str = field(repr=False)
    _borrowed: "list[tuple[SparkSession, Callable[[], object]]]" = field(default_factory=list, repr=False)

    @property
    def spark(self) -> "SparkSession":
        """The session of this process, or a new one, which ends with ``stop``. Raises what ``spark_session`` raises."""
        if not self._borrowed:
            from headrace.distribute.spark.session import borrowed_session

            self._borrowed.append(borrowed_session(self.purpose))
        session, _ = self._borrowed[0]
        return session

    def leave(self) -> None:
        """Nobody needs the session for now: it ends, or stays as long as ``SESSIONS`` are kept."""
        with SESSIONS.shared_exit_stack() as exit_stack:
            if exit_stack is not None:
                exit_stack.callback(self.stop)
                return
        self.stop()

    def stop(self) -> None:
        """End the session, if it was started here."""
        while self._borrowed:
            _, end = self._borrowed.pop()
            end()


SESSIONS: Final = Staying()
"""A session that lands stays as long as a run lasts: for all ranges, and for epochs that are Spark jobs."""


def answer_of_database(error: Exception, connection: Connection | None) -> tuple[SqlAnswer, str] | None:
    """What a database means and says to a driver of Python or Java, in a line; None if it is no error of one."""
    if hasattr(error, "sqlstate"):  # psycopg's; None where nothing was connected
        text = describe_failure(error, connection)
        return answer_of(error.sqlstate or "", text), text
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)  # as py4j or PySpark has it
    with suppress(Py4JError):  # a JVM that is gone
        while java is not None:
            with suppress(Py4JError):  # it is no SQLException
                state, text = java.getSQLState() or "", in_a_line(java.getMessage(), connection)
                return answer_of(state, text), text
            java = java.getCause()
    return None


@contextmanager
def named_failures(source: SparkSource, connection: Connection | None) -> Iterator[None]:
    """Inside, what the code of ``source`` and Spark raise beside Headrace's errors becomes an error of this source."""
    try:
        yield
    except HeadraceError as error:
        if connection is not None:
            hide_secrets(error, connection)
        raise
    except Exception as error:
        # without what was caught: it may quote a secret
        raise _error_with_source(source, connection, error) from None


def _error_with_source(source: SparkSource, connection: Connection | None, error: Exception) -> HeadraceError:
    place = str(source) if connection is None else f"{source} ({connection})"
    answer = answer_of_database(error, connection)
    if answer is not None:
        meaning, text = answer
        if meaning in (SqlAnswer.LOGIN, SqlAnswer.REFUSED):  # it would say the same again
            return RangeRefusedError(f"{place}: the database refuses: {text}. Nothing of it was landed")
    elif isinstance(error, AnalysisException):
        reason = in_a_line(str(error).partition(";")[0], connection)
        return RangeFunctionError(f"{place}: Spark refuses its DataFrame: {reason}. Correct read()")
    elif isinstance(error, PySparkException | Py4JError):
        own_error = translate_spark_error(error)
        text = in_a_line(str(own_error), connection)
        if not isinstance(own_error, SparkJobError):
            own_error.args = (f"{place}: {text}",)
            return own_error
    else:
        text = describe_failure(error, connection)
    return RangeFailedError(f"{place} failed: {text}. Nothing of it was landed; the next run begins there again")


def check_columns(frame: DataFrame, source: SparkSource) -> None:
    """Raise RangeColumnsError, which names each column of ``frame`` that is not as ``source`` says."""
    names = frame.columns
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise RangeColumnsError(
            f"{source}: read() gives column {duplicates[0]} {names.count(duplicates[0])} times: name each once "
            "(alias, drop)"
        )
    if names_with_dots := [name for name in names if "." in name]:
        raise RangeColumnsError(
            f"{source}: read() gives column {names_with_dots[0]}, and Spark takes what is before a dot for an object: "
            "give it another name (alias), or leave it out"
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
    if wrong := [*_misfit_reasons(schema, source)]:
        raise RangeColumnsError(
            f"{source}: what read() gives does not fit the schema: {'; '.join(wrong)}. It has "
            f"{', '.join(f'{field.name} ({field.type})' for field in schema)}. Nothing was landed: correct the schema, "
            "or cast and name the columns in read()"
        )


def _is_empty(kind: pa.DataType) -> bool:
    """Whether somewhere in it there is an object that has no field."""
    is_object = pa.types.is_struct(kind)
    return (is_object and not kind.num_fields) or any(_is_empty(kind.field(n).type) for n in range(kind.num_fields))


def _misfit_reasons(schema: pa.Schema, source: SparkSource) -> Iterator[str]:
    fields = source.as_read.fields
    stored_places = {*column_places(schema, fields)}
    for name, source_field in fields.items():
        try:
            stored_columns(schema, {name: source_field}, str(source))
        except FileColumnsError as error:
            yield error.reason
        else:
            if source_field.place not in stored_places and source.missing is OnMissing.FAIL:
                yield f"there is no column {source_field.named(name)}"


class Ranges(Protocol):
    """What the function of a source gives: an object of the user's that says which ranges there are, and reads them."""

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
            ends_given: Any = self.ranges.ends(begin)
            is_several = isinstance(ends_given, Iterable) and not isinstance(ends_given, str | bytes)
            ends = [*ends_given] if is_several else [ends_given]
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
            ranges_function = named_function(str(source), source.function, source.package, RangeFunctionError)
            ship_module(ranges_function.module)  # with its own functions for rows
            ranges: Any = ranges_function.function(session)
        for method in ("ends", "read"):
            if not callable(getattr(ranges, method, None)):
                raise RangeFunctionError(f"{source}: it gives {type(ranges).__name__}, which has no method {method}()")
        yield NamedRanges(source, ranges, session)
    finally:
        session.leave()


MOST_BYTES: Final = 64 * 2**20
"""A file has so many bytes of rows as Arrow, and what is left of the batch that reached it."""

_WRITTEN_SCHEMA: Final = "partition int, number int, path string, size long, digest string"


def write_frame(spark: SparkSession, frame: DataFrame, root: str, folder: str) -> list[SourceSplit]:
    """Write the rows of ``frame`` as Parquet files in a ``folder`` below ``root``, which tasks reach by that URI. What
    they are, in the order of its partitions; the ETag of each is the digest of its content.

    Each task writes as many files of some 64 MB as Arrow as its partition takes. A task that runs twice writes twice,
    under names of its own; the report has the names written by the task that Spark counts.
    """
    bring_packages(spark)
    write = partial(_write_partition, root, scheme_of(root).settings(os.environ), folder)
    files: list[dict[str, Any]] = frame.mapInArrow(write, _WRITTEN_SCHEMA).toArrow().to_pylist()
    in_order = sorted(files, key=lambda file: (file["partition"], file["number"]))
    return [SourceSplit(file["path"], file["size"], file["digest"]) for file in in_order]


def _write_partition(
    root: str, settings: Mapping[str, str], folder: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    # a worker has an environment of its own, without what the driver knows of the store
    os.environ.update(settings)
    store = open_store(root)
    task: Any = TaskContext.get()
    for number, rows in enumerate(_tables_of_batches(batches)):
        # with the attempt, for Spark may run a task twice, and each run has files of its own
        path = f"{folder}{task.partitionId():05d}-{number:05d}-{task.taskAttemptId()}.parquet"
        data = encode_table(rows)
        _put_object(store, path, data)
        report = (pa.array([task.partitionId()], pa.int32()), pa.array([number], pa.int32()), [path], [len(data)])
        yield pa.RecordBatch.from_pydict(
            dict(zip(("partition", "number", "path", "size", "digest"), (*report, [digest_of(data)]), strict=True))
        )


def _tables_of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    batches_taken: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            batches_taken.append(batch)
            size += batch.nbytes
        if size >= MOST_BYTES:
            yield pa.Table.from_batches(batches_taken)
            batches_taken, size = [], 0
    if batches_taken:
        yield pa.Table.from_batches(batches_taken)


def _put_object(store: ObjectStore, path: str, data: bytes) -> None:
    """Nobody else writes there: what is there after an answer was lost is this."""
    try:
        store.create(path, data)
    except UnknownOutcomeError:
        try:
            store.create(path, data)
        except ObjectExistsError:
            return
