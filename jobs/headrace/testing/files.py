"""Records of a test as a file of their source, and what is read of it again."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.model.arguments import shown
from headrace.model.expressions.expr import DataType, Schema, constant_to_json
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FileFormat, Input
from headrace.read.views.arrow_types import schema_of
from headrace.sources.formats.reader import read_file
from headrace.sources.required_columns import required_by
from headrace.testing.errors import UnitTestError
from headrace.testing.steps import Record
from headrace.testing.times import moment, spelled


@dataclass(frozen=True)
class ReadRecord:
    """A record as it was read: its columns (Instants for timestamps), or why it does not parse; its line."""

    position: int
    values: Mapping[str, Any]
    unparsed: str | None
    raw: str | None


@dataclass(frozen=True)
class RecordsFile:
    """A file of one input: its content, and the records in it."""

    input: Input
    content: bytes
    records: tuple[ReadRecord, ...]


def written(given: Input, records: Sequence[Record]) -> bytes:
    """``records`` in the format of the source of ``given``. Raises UnitTestError for a column that it does not have,
    and for values that its format has no way to write.
    """
    schema = given.source.schema
    values = [
        record if isinstance(record, str) else _spelled(record, schema, f"record {number} of input {given.name}")
        for number, record in enumerate(records, 1)
    ]
    match given.source.format:
        case FileFormat.JSON:
            return "".join(f"{_json(value)}\n" for value in values).encode(errors="surrogateescape")
        case FileFormat.CSV:
            lines = [_csv(list(schema)), *(_csv_line(value, schema) for value in values)]
            return "".join(lines).encode(errors="surrogateescape")
        case FileFormat.PARQUET:
            return _parquet(given, values)


def landed(pipeline: Pipeline, given: Input, records: Sequence[Record], name: str) -> RecordsFile:
    """``records`` as a file of the input ``given``, read again."""
    content = written(given, records)
    found = read_file(content, given.source, required_by(pipeline, given), name)
    columns = {name: _instants(found.columns[name], kind) for name, kind in given.source.schema.items()}
    unparsed = found.unparsed.to_pylist()
    raw = [_text(line) for line in found.raw(np.arange(len(found))).to_pylist()]
    return RecordsFile(
        given,
        content,
        tuple(
            ReadRecord(position, {name: columns[name][row] for name in columns}, unparsed[row], raw[row])
            for row, position in enumerate(found.position.tolist())
        ),
    )


def _text(line: bytes | str | None) -> str | None:
    return line.decode(errors="replace") if isinstance(line, bytes) else line


def _instants(values: pa.Array, kind: DataType) -> list[Any]:
    return list(values.cast(pa.int64()).to_pylist() if kind is DataType.TIMESTAMP else values.to_pylist())


def _spelled(record: Mapping[str, Any], schema: Schema, what: str) -> dict[str, Any]:
    unknown = [name for name in record if name not in schema]
    if unknown:
        raise UnitTestError(f"{what} has a column {unknown[0]!r}; its source has {', '.join(schema)}")
    return {name: _value(value, schema[name], f"{what}, column {name}") for name, value in record.items()}


def _value(value: Any, kind: DataType, what: str) -> Any:
    """``value`` as a producer holds it: times with their day and zone."""
    if kind is DataType.TIMESTAMP and isinstance(value, str):
        return spelled(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UnitTestError(f"{what} is {shown(value)}, which has no time zone; say which one it is in")
    return value


def _json(value: Mapping[str, Any] | str) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, date | bytes | Decimal):  # a datetime is a date
        return str(constant_to_json(value))
    raise UnitTestError(f"{shown(value)} cannot be written as JSON; write it as a file of the source would hold it")


def _csv_line(value: Mapping[str, Any] | str, schema: Schema) -> str:
    return f"{value}\n" if isinstance(value, str) else _csv([_field(value.get(name)) for name in schema])


def _csv(fields: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(fields)
    return line.getvalue()


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(constant_to_json(value))


def _parquet(given: Input, values: Sequence[Mapping[str, Any] | str]) -> bytes:
    types = schema_of(given.source.schema)
    records: list[Mapping[str, Any]] = []
    for value in values:
        if isinstance(value, str):
            raise UnitTestError(f"input {given.name} is Parquet, which has no lines: write a dict of values by column")
        records.append(value)
    columns = [_column(given, field, [record.get(field.name) for record in records]) for field in types]
    file = io.BytesIO()
    pq.write_table(pa.table(columns, schema=types), file)
    return file.getvalue()


def _column(given: Input, field: pa.Field, values: Sequence[Any]) -> pa.Array:
    what = f"input {given.name}, column {field.name}"
    if pa.types.is_timestamp(field.type):
        values = [moment(value, what) if isinstance(value, str) else value for value in values]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UnitTestError(f"{what}: a Parquet file of this source holds {field.type}, not that ({error})") from error
