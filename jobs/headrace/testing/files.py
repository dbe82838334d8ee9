"""Records of a test as a file of their source, and what is read of it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from headrace.formats.file_format import ScannedRecords, read_file
from headrace.kernel.expressions.overflowing import column_apart
from headrace.kernel.types import TIMESTAMP, own_arrow_type
from headrace.model.arguments import shown
from headrace.model.changelog import SIGN
from headrace.model.expressions.data_types import DataType, ListType, Schema
from headrace.model.time import Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input, Source
from headrace.pipeline.sources import FilesSource
from headrace.sources.changelogs import as_changes
from headrace.sources.required_columns import required_by
from headrace.sources.validation import EARLIEST, LATEST
from headrace.testing.steps import Record, UnitTestError, spelled


@dataclass(frozen=True)
class ReadRecord:
    """A record as it was read: its columns (Instants for timestamps), or why it does not parse; its line."""

    position: int
    values: Mapping[str, Any]
    unparsed: str | None
    raw: str | None


@dataclass(frozen=True)
class RecordsFile:
    """A file of one input: its content, the records in it, and the newest event time of these, if one has any."""

    input: Input
    content: bytes
    records: tuple[ReadRecord, ...]
    newest: Instant | None


def stand_in(source: Source) -> FilesSource:
    """The files that stand for ``source`` in a unit test: itself as it is read, or JSON lines with its columns."""
    read = source.as_read
    return read if isinstance(read, FilesSource) else hr.json("landing", read.schema)


def written(given: Input, records: Sequence[Record]) -> bytes:
    """``records`` in the format of the source of ``given``. Raises UnitTestError for a column that it does not have,
    and for values that its format has no way to write.
    """
    files, changelog = stand_in(given.source), given.source.changelog
    values: list[dict[str, Any] | str] = []
    for number, record in enumerate(records, 1):
        if isinstance(record, str):
            values.append(record)
            continue
        columns = record if changelog is None else changelog.flat(record, given.source.as_read.fields)
        values.append(_spelled(columns, files.types, f"record {number} of input {given.name}"))
    try:
        content: bytes = files.file_format.written(values, files.fields)
    except ValueError as error:
        raise UnitTestError(f"input {given.name}, {error}") from error
    return content


def landed(pipeline: Pipeline, given: Input, records: Sequence[Record], name: str) -> RecordsFile:
    """``records`` as a file of the input ``given``, read again."""
    content = written(given, records)
    read = read_file(content, stand_in(given.source), required_by(pipeline, given), name)
    result = as_changes(given.source, read)
    columns = {name: _instants(result.columns[name], kind) for name, kind in given.source.types.items()}
    if SIGN in result.columns:
        columns[SIGN] = result.columns[SIGN].to_pylist()
    unparsed = result.unparsed.to_pylist()
    raw = [_text(line) for line in result.raw(np.arange(len(result))).to_pylist()]
    return RecordsFile(
        given,
        content,
        tuple(
            ReadRecord(position, {name: columns[name][row] for name in columns}, unparsed[row], raw[row])
            for row, position in enumerate(result.position.tolist())
        ),
        _newest(given, result),
    )


def _newest(given: Input, records: ScannedRecords) -> Instant | None:
    """The newest event time of ``records`` that can be meant; an overflow is a dead letter."""
    expr = given.event_time.expr
    if expr is None:
        return None
    times, _ = column_apart(expr, records.columns, given.source.columns, len(records))
    at = times.cast(TIMESTAMP).cast(pa.int64()).filter(records.unparsed.is_null())
    newest: int | None = pc.max(at.filter(pc.and_(pc.less_equal(EARLIEST, at), pc.less_equal(at, LATEST)))).as_py()
    return None if newest is None else Instant(newest)


def _text(line: bytes | str | None) -> str | None:
    return line.decode(errors="replace") if isinstance(line, bytes) else line


def _instants(values: pa.Array, kind: DataType | ListType) -> list[Any]:
    return list(values.cast(own_arrow_type(kind)).to_pylist())


def _spelled(record: Mapping[str, Any], schema: Schema, what: str) -> dict[str, Any]:
    unknown = [name for name in record if name not in schema]
    if unknown:
        raise UnitTestError(f"{what} has a column {unknown[0]!r}; its source has {', '.join(schema)}")
    return {name: _value(value, schema[name], f"{what}, column {name}") for name, value in record.items()}


def _value(value: Any, kind: DataType | ListType, what: str) -> Any:
    """``value`` as a producer holds it: times with their day and zone."""
    if isinstance(kind, ListType):
        return [_value(item, kind.item, what) for item in value] if isinstance(value, list) else value
    if kind is DataType.TIMESTAMP and isinstance(value, str):
        return spelled(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UnitTestError(f"{what} is {shown(value)}, which has no time zone; say which one it is in")
    return value
