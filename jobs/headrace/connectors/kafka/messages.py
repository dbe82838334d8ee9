"""What messages of Kafka mean: their values as records, by the schema that each was written with, keys and headers.

A registry of Avro schemas is asked by Confluent's protocol: what number stands for which schema never changes. What is
fetched of a topic keeps the schemas of its values with it, in the metadata of the table. So does what is landed: nobody
is asked for them when it is read again.

``scan_messages`` gives values as records, and what Kafka says of them as columns asked for by name. Where records are
versions of rows, one without a value deletes the row that its key says.
"""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import urllib3
from urllib3.util import Retry

from headrace.connections import Connection, connection, variable_name
from headrace.connectors.kafka.definition import AvroValues, KafkaSource, RegistryRefusedError, RegistryUnreachableError
from headrace.connectors.kafka.offsets import UnreadableBatchError
from headrace.formats.avro_datums import RecordType
from headrace.formats.avro_messages import AvroSchemaError, read_avro, record_of, schema_ids
from headrace.formats.file_format import NO_VALUE, NOT_UTF8, RequiredColumns, ScannedRecords, misfit, nothing
from headrace.formats.json_lines import read_json
from headrace.formats.parquet import values_as
from headrace.kernel.columns import Ints, arrow_type
from headrace.kernel.expressions.string_bytes import text_of
from headrace.model.changelog import TOMBSTONE_AT, Versions
from headrace.model.expressions.columns import ColumnType, SourceField, SourceFields
from headrace.model.expressions.data_types import DataType
from headrace.this_process import Size

_logger = logging.getLogger(__name__)
logging.getLogger("urllib3").setLevel(logging.INFO)

_SCHEMA_METADATA_PREFIX: Final = b"headrace.avro."
_SCHEMA_METADATA_KEY: Final = re.compile(rb"headrace\.avro\.([0-9]+)")
_REGISTRY_ASKED_KEY: Final = b"headrace.avro"
"""What was fetched says so that a registry was asked."""

_NO_SUCH_SCHEMA: Final = 40403
REGISTRY_SECONDS: Final = Size(10.0)
REGISTRY_TRIES: Final = Size(4)

_known_schemas: dict[tuple[str, int], str] = {}
"""Schemas of this process, by the place of their registry and their number."""


def with_schemas(messages: pa.Table, registry: str, *, of_keys: bool = False) -> pa.Table:
    """The ``messages``, with the schemas of their values; and ``of_keys`` of messages without one. Raises
    MissingConnectionError, RegistryRefusedError, RegistryUnreachableError.
    """
    numbers = _schema_numbers(messages.column("value"))
    if of_keys:
        numbers |= _schema_numbers(messages.column("key").filter(messages.column("value").is_null()))
    known_schemas = fetch_schemas(connection(registry, kind="registry"), numbers)
    schema_metadata = {
        _SCHEMA_METADATA_PREFIX + str(one).encode(): text.encode() for one, text in known_schemas.items()
    }
    return messages.replace_schema_metadata({_REGISTRY_ASKED_KEY: b"1", **schema_metadata})


def kept_schemas(messages: pa.Table, registry: str, *, of_keys: bool = False) -> dict[int, RecordType | None]:
    """The schemas that ``messages`` keeps, by number; None: one that is no record. What was landed before the source
    was said to be in Avro keeps none: then the registry is asked. Raises what ``with_schemas`` raises.
    """
    if _REGISTRY_ASKED_KEY not in (messages.schema.metadata or {}):
        messages = with_schemas(messages, registry, of_keys=of_keys)
    metadata_items = messages.schema.metadata.items()
    return {
        int(name_match[1]): _parse_record_type(text.decode())
        for key, text in metadata_items
        if (name_match := _SCHEMA_METADATA_KEY.fullmatch(key))
    }


def _schema_numbers(messages: pa.ChunkedArray) -> set[int]:
    return {int(one) for chunk in messages.chunks for one in set(schema_ids(chunk)) if one >= 0}


def _parse_record_type(text: str) -> RecordType | None:
    try:
        return record_of(text)
    except AvroSchemaError as error:
        _logger.warning("values have a schema that is no record in Avro: %s", error)
        return None


def fetch_schemas(registry: Connection, numbers: Collection[int]) -> dict[int, str]:
    """The schemas with these ``numbers`` that there are. Raises RegistryRefusedError, RegistryUnreachableError."""
    if registry.scheme not in ("http", "https"):
        raise RegistryRefusedError(f"{registry}: a schema registry needs http://host:port or https://host:port")
    place = str(registry)
    # a number stands for one schema for ever, so it is asked for once
    lacking = [one for one in sorted(numbers) if (place, one) not in _known_schemas]
    if lacking:
        with _connection_pool(registry) as pool:
            for one in lacking:
                if (schema := _fetch_schema(pool, registry, one)) is not None:
                    _known_schemas[place, one] = schema
    return {one: schema for one in numbers if (schema := _known_schemas.get((place, one))) is not None}


def _connection_pool(registry: Connection) -> urllib3.PoolManager:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if registry.user or registry.password:
        pair = f"{registry.user}:{registry.password}".encode()
        headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
    retry = Retry(
        REGISTRY_TRIES.value,
        backoff_factor=0.2,
        status_forcelist=(429, 500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,  # whatever it says is waited for
    )
    ca = registry.options.get("cafile")
    return urllib3.PoolManager(headers=headers, retries=retry, timeout=REGISTRY_SECONDS.value, ca_certs=ca)


def _fetch_schema(pool: urllib3.PoolManager, registry: Connection, number: int) -> str | None:
    port = "" if registry.port is None else f":{registry.port}"
    path = f"{registry.database.rstrip('/')}/" if registry.database else ""
    host = f"[{registry.host}]" if ":" in registry.host else registry.host
    url = f"{registry.scheme}://{host}{port}/{path}schemas/ids/{number}"
    try:
        answer = pool.request("GET", url, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        reason = registry.without_secrets(str(getattr(error, "reason", None) or error))
        raise RegistryUnreachableError(f"{registry} does not answer: {reason}") from error
    if answer.status >= 500 or answer.status == 429:
        raise RegistryUnreachableError(f"{registry} answers with {answer.status}")
    if answer.status in (401, 403):
        raise RegistryRefusedError(
            f"{registry} does not let in: correct user and password in {variable_name(registry.name)}"
        )
    if answer.status == 404 and _says_none(answer):
        return None
    try:
        text = answer.json()["schema"] if answer.status == 200 else None
        kind = answer.json().get("schemaType", "AVRO") if text is not None else None
    except (ValueError, KeyError, TypeError, AttributeError):
        text = kind = None
    if not isinstance(text, str):
        raise RegistryRefusedError(f"{registry}: what answers ({answer.status}) is no schema registry")
    return text if kind == "AVRO" else json.dumps(f"{kind}, and not Avro")


def _says_none(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether it is a registry that says so, and not something else at that place."""
    try:
        return bool(answer.json()["error_code"] == _NO_SUCH_SCHEMA)
    except (ValueError, KeyError, TypeError):
        return False


_WITH_SCHEMA: Final = {"schema", "payload"}
"""What an object has that carries its schema."""

MESSAGE_BYTES: Final = Size(2**30)
"""So many bytes of messages become columns at once: places in them have 32 bits."""


def scan_messages(
    messages: pa.Table, source: KafkaSource, required_columns: RequiredColumns, path: str, rules: int
) -> ScannedRecords:
    """Fetched ``messages`` as records of ``source`` by ``rules``, numbered by offset. Raises UnreadableBatchError."""
    if not len(messages):
        return nothing(source.fields)
    if len(messages) > 1 and messages.nbytes > MESSAGE_BYTES.value:
        middle = len(messages) // 2
        first, second = (messages.slice(0, middle), messages.slice(middle))
        first_records = scan_messages(first, source, required_columns, path, rules)
        return _join_records(first_records, scan_messages(second, source, required_columns, path, rules), path)
    columns = {name: _combine_chunks(messages.column(name)) for name in messages.column_names}
    values, offsets = columns["value"], columns["offset"].to_numpy()
    of_value = {name: field for name, field in source.fields.items() if name not in source.metadata}
    if of_value:
        needed_columns = {name: reader for name, reader in required_columns.columns.items() if name in of_value}
        value_columns = replace(required_columns, columns=needed_columns)
        if source.values is None:
            records = read_json(values, offsets, of_value, value_columns, path, rules=rules)
        else:
            records = read_avro(values, offsets, of_value, value_columns, _writer_schemas(messages, source.values))
        parse_errors = records.unparsed
        if values.null_count:  # a compacted topic says so that a key is deleted
            parse_errors = pc.if_else(values.is_null(), NO_VALUE, parse_errors)
    else:
        records, parse_errors = nothing({}), pa.nulls(len(values), pa.string())
    read = dict(records.columns)
    if source.versions is not None and source.versions.take_messages_without_value:
        read, parse_errors = _with_deletions(source, source.versions, messages, read, parse_errors)
    for name, kind in source.metadata.items():
        read[name] = _METADATA[name](columns, kind)
        stored_column = columns[_STORED_FIELDS[name]] if name in _STORED_FIELDS else read[name]
        if read[name].null_count > stored_column.null_count:
            is_text = kind is DataType.STRING
            reason = f"column {name}: {NOT_UTF8}" if is_text else misfit(name, source.fields[name])
            misread = pc.and_(pc.and_(stored_column.is_valid(), read[name].is_null()), parse_errors.is_null())
            parse_errors = pc.if_else(misread, reason, parse_errors)
    if parse_errors.null_count < len(parse_errors):
        parses = parse_errors.is_null()
        read = {name: pc.if_else(parses, column, pa.scalar(None, column.type)) for name, column in read.items()}
    in_order = {name: read[name] for name in (*source.fields, TOMBSTONE_AT) if name in read}
    has_text = source.values is None
    return ScannedRecords(
        in_order, parse_errors, offsets, lambda rows: values.take(pa.array(rows)), records.lacks, has_text
    )


def _with_deletions(
    source: KafkaSource, versions: Versions, messages: pa.Table, read: dict[str, pa.Array], parse_errors: pa.Array
) -> tuple[dict[str, pa.Array], pa.Array]:
    """The ``read`` columns of ``messages``, and why some do not parse, where messages without a value delete rows. A
    deletion has the columns of the key as its own key says them, and its own time.
    """
    columns = {name: _combine_chunks(messages.column(name)) for name in ("value", "key", "timestamp")}
    is_gone, times = columns["value"].is_null(), _METADATA["kafka_timestamp"](columns, DataType.TIMESTAMP)
    deleted_at = pc.if_else(is_gone, times, pa.scalar(None, times.type))
    places = [versions.of_key(name) for name in versions.key if name not in source.metadata]
    fields = {place: source.fields[place] for place in places}
    if not pc.any(is_gone).as_py():
        return {**read, TOMBSTONE_AT: deleted_at}, parse_errors
    registry = None if source.values is None else source.values.registry
    known_schemas = {} if registry is None else kept_schemas(messages, registry, of_keys=True)
    keys = key_columns(columns["key"].filter(is_gone), fields, known_schemas)
    reasons = pc.replace_with_mask(parse_errors, is_gone, keys.unparsed)
    timeless = pc.and_(is_gone, pc.and_(deleted_at.is_null(), reasons.is_null()))
    reasons = pc.if_else(timeless, f"{NO_VALUE}, and no time", reasons)
    own = {place: pc.replace_with_mask(read[place], is_gone, values) for place, values in keys.columns.items()}
    return {**read, **own, TOMBSTONE_AT: deleted_at}, reasons


def key_columns(keys: pa.Array, fields: SourceFields, schemas: Mapping[int, RecordType | None]) -> ScannedRecords:
    """The columns ``fields`` as the ``keys`` of messages say them, by their last names. A key is a JSON object, perhaps
    beside its schema, or a record of Avro with a ``schemas`` schema. A key of one column may also be its value, as JSON
    or as plain text.
    """
    own = {place: SourceField(field.path[-1:], field.type) for place, field in fields.items()}
    position = np.arange(len(keys))
    if not own:
        return ScannedRecords({}, pa.nulls(len(keys), pa.string()), position, lambda rows: keys.take(pa.array(rows)))
    (first, *more) = own.values()
    objects = pa.array([_object_of_key(key, None if more else first) for key in keys.to_pylist()], pa.binary())
    read = read_json(objects, position, own, RequiredColumns(), "keys")
    if schemas:
        in_avro = read_avro(keys, position, own, RequiredColumns(), schemas)
        is_avro = in_avro.unparsed.is_null()
        columns = {place: pc.if_else(is_avro, in_avro.columns[place], read.columns[place]) for place in own}
        reasons = pc.if_else(is_avro, pa.scalar(None, pa.string()), read.unparsed)
        read = replace(read, columns=columns, unparsed=reasons)
    lacks = reduce(pc.or_, (values.is_null() for values in read.columns.values()), read.unparsed.is_valid())
    names = ", ".join(field.place for field in own.values())
    why = pc.if_else(lacks, f"{NO_VALUE}, and its key does not say {names}", pa.scalar(None, pa.string()))
    columns = {place: pc.if_else(lacks, pa.scalar(None, one.type), one) for place, one in read.columns.items()}
    return replace(read, columns=columns, unparsed=why)


def _object_of_key(key: bytes | None, only_field: SourceField | None) -> bytes | None:
    """A key as an object of JSON; None if it is none. ``only_field``: the field whose value it may be by itself."""
    try:
        text = "" if key is None else key.decode()
    except UnicodeDecodeError:
        return None
    value = _json_of(text)
    if isinstance(value, dict) and value.keys() == _WITH_SCHEMA:
        value = value["payload"]
        if value is None:
            return None
        text = json.dumps(value)
    if isinstance(value, dict):
        return json.dumps(value).encode()
    if only_field is None or key is None or "\0" in text:  # Avro has such a character in front
        return None
    is_plain = only_field.type is DataType.STRING and not isinstance(value, str)
    return json.dumps({only_field.path[-1]: text if is_plain else value}).encode()


def _json_of(text: str) -> Any:
    """What ``text`` says in JSON, None if that is nothing; numbers with a fraction are decimal, so none is rounded."""
    try:
        return json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return None


def _join_records(first: ScannedRecords, second: ScannedRecords, path: str) -> ScannedRecords:
    """Two parts of what is called ``path``, one after the other."""
    number = len(first)
    try:
        columns = {name: pa.concat_arrays([values, second.columns[name]]) for name, values in first.columns.items()}
    except pa.ArrowInvalid as error:
        raise UnreadableBatchError(
            f"{path}: the records have more than 2 GB in one column of the source: leave out of its schema what is "
            f"that large ({error})"
        ) from error

    def raw_of_rows(rows: Ints) -> pa.Array:
        is_first = rows < number
        texts = pa.concat_arrays([first.raw(rows[is_first]), second.raw(rows[~is_first] - number)])
        return texts.take(pa.array(np.argsort(np.argsort(~is_first, kind="stable"))))

    lacks = second.lacks if first.lacks is None else first.lacks
    if first.lacks is not None and second.lacks is not None:
        lacks = {name: nearest_name for name, nearest_name in first.lacks.items() if name in second.lacks}
    parse_errors = pa.concat_arrays([first.unparsed, second.unparsed])
    position = np.concatenate([first.position, second.position])
    return ScannedRecords(columns, parse_errors, position, raw_of_rows, lacks, first.has_text)


def _writer_schemas(messages: pa.Table, values: AvroValues) -> Mapping[int, RecordType | None] | RecordType:
    """With what the values were written: what they say themselves, or what the definition says of all."""
    if values.schema is not None:
        return record_of(values.schema)

    assert values.registry is not None
    return kept_schemas(messages, values.registry)


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _key_column(columns: Mapping[str, pa.Array], kind: ColumnType) -> pa.Array:
    return text_of(columns["key"]) if kind is DataType.STRING else columns["key"]


def _header_texts(columns: Mapping[str, pa.Array], kind: ColumnType) -> pa.Array:
    """Each header as text, name=value; one that is not UTF-8, or has no value, as its name."""
    headers = columns["headers"]
    pairs = headers.flatten()
    name, value = pairs.field("name"), text_of(pairs.field("value"))
    texts = pc.if_else(value.is_null(), name, pc.binary_join_element_wise(name, value.fill_null(""), "="))
    offsets = pa.array(headers.offsets.to_numpy() - headers.offsets[0].as_py(), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, texts)
    return pc.if_else(headers.is_null(), pa.scalar(None, lists.type), lists).cast(arrow_type(kind))


_METADATA: Final[Mapping[str, Callable[[Mapping[str, pa.Array], ColumnType], pa.Array]]] = {
    "kafka_partition": lambda columns, _: columns["partition"].cast(pa.int64()),
    "kafka_offset": lambda columns, _: columns["offset"],
    "kafka_timestamp": lambda columns, kind: values_as(columns["timestamp"], kind)[0],
    "kafka_key": _key_column,
    "kafka_headers": _header_texts,
}
_STORED_FIELDS: Final = {"kafka_timestamp": "timestamp", "kafka_key": "key"}
"""Fields whose value may not fit the column in a batch: such a value becomes NULL."""
