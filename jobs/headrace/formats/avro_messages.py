"""Messages that are data of Avro, one each: their schemas, and their columns, judged as rows of Parquet are.

A schema is text of JSON, as the writer of a message had it (the specification of Avro 1.12). Messages become columns of
a source, and docs/judging.md says how they are judged.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixConfigError
from headrace.formats import avro_datums, file_format
from headrace.formats.parquet import column_places, describe_misfit, is_read, type_there, values_as
from headrace.kernel.columns import Ints, arrow_type, as_numpy
from headrace.model.expressions.columns import SourceField, SourceFields

_TIME_TYPES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_MOST_DECIMAL_DIGITS: Final = 38


class AvroSchemaError(FixConfigError, code="config.avro_schema"):
    """A schema of Avro is none, or has what cannot be read."""


@lru_cache(maxsize=256)
def record_of(text: str) -> avro_datums.RecordType:
    """The record that ``text`` is a schema of. Raises AvroSchemaError."""
    try:
        kind = _SchemaParser().parse_type(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AvroSchemaError(f"it is no schema of Avro ({error!r}): {text[:200]}") from error
    if not isinstance(kind, avro_datums.RecordType):
        raise AvroSchemaError(f"it is no record, and columns are fields of a record: {text[:200]}")
    return kind


class _SchemaParser:
    """Types that have names are known by them from their definition on."""

    def __init__(self) -> None:
        self.types_by_name: dict[str, avro_datums.AvroType | None] = {}

    def parse_type(self, schema: Any, namespace: str) -> avro_datums.AvroType:
        """The type that ``schema`` means. Raises AvroSchemaError, or what any error in it raises."""
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return avro_datums.UnionType(tuple(self.parse_type(branch, namespace) for branch in schema))
        kind: Any = schema["type"]
        if isinstance(kind, dict | list):
            return self.parse_type(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._parse_definition(schema, kind, namespace)
        if kind in ("array", "map"):
            return avro_datums.ItemsType(
                self.parse_type(schema["items" if kind == "array" else "values"], namespace), is_map=kind == "map"
            )
        return _with_logical_type(schema, self._by_name(kind, namespace), None)

    def _by_name(self, name: str, namespace: str) -> avro_datums.AvroType:
        if name in avro_datums.PRIMITIVE:
            return avro_datums.PRIMITIVE[name]()
        full = _full_name(name, namespace)
        if full not in self.types_by_name:
            raise AvroSchemaError(f"it names a type {name!r}, which it does not define: only whole schemas are read")
        kind = self.types_by_name[full]
        if kind is None:
            raise AvroSchemaError(f"type {full} is in itself: a column has no such type")
        return kind

    def _parse_definition(self, schema: Mapping[str, Any], kind: str, namespace: str) -> avro_datums.AvroType:
        full = _full_name(schema["name"], schema.get("namespace", namespace))
        inner = full.rpartition(".")[0]
        # until it is whole: whoever finds it meanwhile is in it
        self.types_by_name[full] = None
        if kind == "enum":
            avro_type: avro_datums.AvroType = avro_datums.EnumType(tuple(map(str, schema["symbols"])))
        elif kind == "fixed":
            avro_type = _with_logical_type(schema, avro_datums.FixedType(int(schema["size"])), int(schema["size"]))
        else:
            avro_type = avro_datums.RecordType(
                {str(one["name"]): self.parse_type(one["type"], inner) for one in schema["fields"]}
            )
        self.types_by_name[full] = avro_type
        return avro_type


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical_type(schema: Mapping[str, Any], kind: avro_datums.AvroType, size: int | None) -> avro_datums.AvroType:
    """``kind`` as its logical type says; one that is not known, or does not fit, means nothing, as Avro has it."""
    logical = schema.get("logicalType")
    if logical == "decimal" and (isinstance(kind, avro_datums.FixedType) or kind == avro_datums.BytesType()):
        precision, scale = (schema.get(name, 0) for name in ("precision", "scale"))
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= _MOST_DECIMAL_DIGITS:
            return avro_datums.DecimalType(precision, scale, size) if precision else kind
    time = _TIME_TYPES.get(logical or "")
    return avro_datums.IntegerType(time) if isinstance(kind, avro_datums.IntegerType) and time is not None else kind


PREFIX_BYTES: Final = 5
"""So many bytes say which schema of a registry a message has: a zero, and its number."""

NO_SCHEMA: Final = "no Avro message of a schema registry"
_NOT_AVRO: Final = "not Avro of its schema"


def schema_ids(messages: pa.Array) -> Ints:
    """The number of the schema of each message, as Confluent's serializers write it before the datum; -1: none."""
    octets, begin, end = _message_bounds(messages)
    has_one = (end - begin >= PREFIX_BYTES) & as_numpy(messages.is_valid())
    ids = np.full(len(messages), -1, np.int64)
    rows = np.flatnonzero(has_one)
    head = (
        octets[begin[rows][:, None] + np.arange(PREFIX_BYTES)] if len(rows) else np.zeros((0, PREFIX_BYTES), np.uint8)
    )
    numbers = np.ascontiguousarray(head[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    ids[rows] = np.where(head[:, 0] == 0, numbers, -1)
    return ids


def read_avro(
    messages: pa.Array,
    position: Ints,
    fields: SourceFields,
    required_columns: file_format.RequiredColumns,
    schemas: Mapping[int, avro_datums.RecordType | None] | avro_datums.RecordType,
) -> file_format.ScannedRecords:
    """``messages``, a binary column, as records of ``fields``; ``position`` numbers them. ``schemas``: those of a
    registry by number, which stands before each datum (None: one that cannot be read); or the one that all have, of
    which nothing is said before them.
    """
    if not len(messages):
        return file_format.nothing(fields)
    by_id: Mapping[int, avro_datums.RecordType | None]
    if isinstance(schemas, avro_datums.RecordType):
        ids, prefix_length, by_id = np.zeros(len(messages), np.int64), 0, {0: schemas}
    else:
        ids, prefix_length, by_id = schema_ids(messages), PREFIX_BYTES, schemas
    parts: list[_Messages] = []
    known_records: list[avro_datums.RecordType] = []
    for one in map(int, np.unique(ids)):
        rows, record = np.flatnonzero(ids == one), by_id.get(one)
        if record is not None:
            known_records.append(record)
            parts.append(_Data(_select_messages(messages, rows), rows, prefix_length, record, fields))
        else:
            what = "is no record in Avro" if one in by_id else "the registry does not have"
            parts.append(_Messages(rows, fields, NO_SCHEMA if one < 0 else f"schema {one}, which {what}"))
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    columns = {name: _join_parts([part.columns[name] for part in parts], order) for name in fields}
    parse_errors = _join_parts([part.parse_errors for part in parts], order)
    if parse_errors.null_count < len(parse_errors):
        parses = parse_errors.is_null()
        columns = {name: pc.if_else(parses, column, pa.scalar(None, column.type)) for name, column in columns.items()}
    lacks = None if not known_records else _missing_columns(required_columns, fields, known_records)
    return file_format.ScannedRecords(
        columns, parse_errors, position, lambda rows: messages.take(pa.array(rows)), lacks
    )


def _join_parts(parts: Sequence[pa.Array], order: Ints) -> pa.Array:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts).take(pa.array(order))


def _select_messages(messages: pa.Array, rows: Ints) -> pa.Array:
    own = messages if len(rows) == len(messages) else messages.take(pa.array(rows))
    return own.fill_null(b"") if own.null_count else own


class _Messages:
    """The messages ``rows``: columns of NULL, and why they do not parse (None: they do)."""

    def __init__(self, rows: Ints, fields: SourceFields, reason: str | None = None) -> None:
        self.rows = rows
        self.columns = {name: pa.nulls(len(rows), arrow_type(field.type)) for name, field in fields.items()}
        self.parse_errors = pa.array([reason] * len(rows), pa.string())


class _Data(_Messages):
    """``messages``, those of ``rows``, which have the schema ``record``."""

    def __init__(
        self, messages: pa.Array, rows: Ints, skipped_bytes: int, record: avro_datums.RecordType, fields: SourceFields
    ) -> None:
        super().__init__(rows, fields)
        octets, begin, end = _message_bounds(messages)
        data = avro_datums.Data(octets.tobytes(), end)
        every = np.arange(len(rows))
        values, ends = record.read(data, every, np.minimum(begin + skipped_bytes, end), _wanted_fields(fields))
        data.mark_bad(every, ends != end)
        self._refuse_rows(pa.array(data.is_bad), _NOT_AVRO)
        schema = pa.schema([*record.arrow])
        for name, field in fields.items():
            if (column := self._read_column(name, field, schema, values)) is not None:
                self.columns[name] = column

    def _refuse_rows(self, which: pa.Array, reason: str) -> None:
        self.parse_errors = pc.if_else(pc.and_(which, self.parse_errors.is_null()), reason, self.parse_errors)

    def _read_column(self, name: str, field: SourceField, schema: pa.Schema, values: pa.Array) -> pa.Array | None:
        """The values of a field, None if there are none. Where the schema has it otherwise than the source says, no
        message is a record.
        """
        try:
            existing_type = type_there(schema, field, "")
            fits = existing_type is None or pa.types.is_null(existing_type) or is_read(existing_type, field.type)
        except file_format.FileColumnsError:  # something in it would be a record, and is none
            fits = False
        if not fits:
            self._refuse_rows(pa.array(np.ones(len(self.rows), np.bool_)), file_format.misfit(name, field))
            return None
        if existing_type is None or pa.types.is_null(existing_type):
            return None
        member_values = values
        for part in field.path:
            if pa.types.is_null(member_values.type):
                break
            member_values = pc.struct_field(member_values, [part])
        if pa.types.is_null(member_values.type):  # no message has a value
            return None
        read, bad = values_as(member_values, field.type)
        if bad is not None:
            self._refuse_rows(bad, describe_misfit(name, field))
        return read


def _message_bounds(messages: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Ints, Ints]:
    """All bytes of ``messages``, and where each begins and ends in them."""
    _, offsets, data = messages.buffers()
    bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
    octets = np.frombuffer(b"" if data is None else data, np.uint8)
    return octets, bounds[:-1], bounds[1:]


def _wanted_fields(fields: SourceFields) -> avro_datums.WantedFields:
    wanted_fields: dict[str, Any] = {}
    for field in fields.values():
        reduce(lambda parent, part: parent.setdefault(part, {}), field.path, wanted_fields)
    return wanted_fields


def _missing_columns(
    required_columns: file_format.RequiredColumns, fields: SourceFields, records: Sequence[avro_datums.RecordType]
) -> dict[str, str | None]:
    """The columns that something reads and no schema has, each with the name there that is most like it."""
    names = {name for record in records for name in column_places(pa.schema([*record.arrow]), fields)}
    lacking = [name for name in required_columns.columns if name in fields and fields[name].place not in names]
    return {name: file_format.nearest_name(fields[name].place, names) for name in lacking}
