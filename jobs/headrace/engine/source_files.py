"""What the driver must know of a file before Spark reads it: the columns of a Parquet file, the header of a CSV file.

Reads a few kilobytes per file through Hadoop's file systems: with the same credentials, names and errors as Spark's own
reads. JSON lines need none of this.
"""

import codecs
import csv
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError

from headrace.engine.errors import translate_spark_error
from headrace.engine.types import SparkSession
from headrace.model.expr import DataType, Expr
from headrace.pipeline.sources import FileFormat, FileSource
from headrace.sources.errors import FileColumnsError, UnreadableFileError
from headrace.sources.planning import InputFile
from headrace.sources.required import check_required

_TAIL_BYTES = 64 * 1024
_HEADER_BYTES = 1024 * 1024
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class FileColumns:
    """How a file holds the columns of the schema; files that hold them alike are read by one scan.

    ``stored``: for Parquet, the name of Spark's type of every column that the file has; for CSV, the position of it.
    ``width`` and ``header``: fields and text of a CSV header; 0 and empty for other formats.
    """

    stored: tuple[tuple[str, str], ...] = ()
    width: int = 0
    header: str = ""


def file_columns(
    spark: SparkSession, source: FileSource, required: Mapping[str, Expr], file: InputFile, uri: str
) -> FileColumns | None:
    """How ``file`` (at ``uri``, unescaped) holds the columns of ``source``; None if it has no rows. What is
    ``required`` of a record (by purpose, such as "event time") must not be NULL for want of a column.

    Raises UnreadableFileError if it is no file of its format, FileColumnsError naming the column that does not fit.
    """
    if file.size == 0:
        return None
    match source.format:
        case FileFormat.JSON:
            return FileColumns()
        case FileFormat.CSV:
            return _csv_columns(source, required, file, _head(spark, file, uri))
        case FileFormat.PARQUET:
            return _parquet_columns(
                source, required, file, lambda start, length: _range(spark, file, uri, start, length)
            )


def _range(spark: SparkSession, file: InputFile, uri: str, start: int, length: int) -> bytes:
    with _opened(spark, file, uri) as stream:
        stream.seek(start)
        return _take(spark, stream, length)


def _head(spark: SparkSession, file: InputFile, uri: str) -> bytes:
    """The beginning of the file, decompressed if its name says that it is compressed."""
    with _opened(spark, file, uri) as stream:
        hadoop = _jvm(spark).org.apache.hadoop
        codec = hadoop.io.compress.CompressionCodecFactory(_configuration(spark)).getCodec(hadoop.fs.Path(uri))
        return _take(spark, stream if codec is None else codec.createInputStream(stream), _HEADER_BYTES)


@contextmanager
def _opened(spark: SparkSession, file: InputFile, uri: str) -> Iterator[Any]:
    """A stream of Hadoop over the file; what goes wrong with it is an error that names the file."""
    try:
        path = _jvm(spark).org.apache.hadoop.fs.Path(uri)
        stream = path.getFileSystem(_configuration(spark)).open(path)
        try:
            yield stream
        finally:
            stream.close()
    except Py4JError as error:
        raise translate_spark_error(error, file.path) from error


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _configuration(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def _take(spark: SparkSession, stream: Any, length: int) -> bytes:
    io = _jvm(spark).org.apache.commons.io
    return bytes(io.IOUtils.toByteArray(io.input.BoundedInputStream(stream, length)))


# --- CSV


def _csv_columns(source: FileSource, required: Mapping[str, Expr], file: InputFile, head: bytes) -> FileColumns | None:
    lines = re.split(rb"\r\n|\r|\n", head.removeprefix(codecs.BOM_UTF8))
    line = next((line for line in lines if line.strip()), b"")
    if not line:
        return None
    if len(head) == _HEADER_BYTES and len(lines) == 1:
        raise UnreadableFileError(file.path, f"its header does not end within {_HEADER_BYTES} bytes")
    try:
        header = line.decode()
        names = next(csv.reader([header]))
    except UnicodeDecodeError as error:
        raise UnreadableFileError(file.path, "its header is not UTF-8") from error
    except csv.Error as error:
        raise UnreadableFileError(file.path, f"its header is no line of CSV ({error})") from error
    stored = []
    for name in source.schema:
        if names.count(name) > 1:
            raise FileColumnsError(file.path, f"its header names column {name} {names.count(name)} times")
        if name in names:
            stored.append((name, str(names.index(name))))
    check_required(required, dict(stored), file.path, "header")
    return FileColumns(tuple(stored), len(names), header)


# --- Parquet


def _parquet_columns(
    source: FileSource, required: Mapping[str, Expr], file: InputFile, read: Callable[[int, int], bytes]
) -> FileColumns | None:
    footer = _parquet_footer(file, read)
    schema = footer.schema.to_arrow_schema()
    stored = []
    for name, wanted in source.schema.items():
        if name not in schema.names:
            continue
        if schema.names.count(name) > 1:
            raise FileColumnsError(file.path, f"its schema names column {name} {schema.names.count(name)} times")
        found = schema.field(name).type
        if pa.types.is_null(found):  # a column without any value: as good as missing
            continue
        spark_type = _spark_type(found, wanted)
        if spark_type is None:
            raise FileColumnsError(file.path, f"its column {name} is {found}, and the source says {wanted}")
        stored.append((name, spark_type))
    check_required(required, dict(stored), file.path, "schema")
    return FileColumns(tuple(stored)) if footer.num_rows else None


def _parquet_footer(file: InputFile, read: Callable[[int, int], bytes]) -> pq.FileMetaData:
    """Schema and number of rows, read with one request, or two when the footer is long."""
    tail = read(max(0, file.size - _TAIL_BYTES), _TAIL_BYTES)
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        raise UnreadableFileError(file.path, "it has no Parquet footer")
    length = struct.unpack("<I", tail[-8:-4])[0] + 8
    if length > file.size - 4:
        raise UnreadableFileError(file.path, "its Parquet footer is longer than the file")
    if length > len(tail):
        tail = read(file.size - length, length)
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))
    except UnicodeDecodeError as error:
        raise UnreadableFileError(file.path, "a column of it has a name that is not UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(file.path, f"its Parquet footer is broken ({error})") from error


NANOSECONDS = "nanoseconds"
"""The stored type of timestamps that Spark reads as a long of nanoseconds."""

_WIDENED: Mapping[DataType, tuple[tuple[Callable[[Any], bool], str], ...]] = {
    DataType.STRING: (
        (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"),
        (pa.types.is_string_view, "string"),
    ),
    DataType.INT: (
        (pa.types.is_signed_integer, "bigint"),
        (lambda kind: pa.types.is_unsigned_integer(kind) and kind != pa.uint64(), "bigint"),
    ),
    DataType.FLOAT: (
        (pa.types.is_float64, "double"),
        (pa.types.is_float32, "double"),
        (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), "bigint"),
    ),
    DataType.BOOL: ((pa.types.is_boolean, "boolean"),),
    DataType.TIMESTAMP: (
        (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns", NANOSECONDS),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_date, "date"),
    ),
}


def _spark_type(found: pa.DataType, wanted: DataType) -> str | None:
    """The type as which Spark reads a column that is ``found`` in the file; None if it cannot become ``wanted``."""
    value = found.value_type if pa.types.is_dictionary(found) else found
    return next((name for fits, name in _WIDENED[wanted] if fits(value)), None)
