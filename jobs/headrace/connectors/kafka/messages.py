"""The values of messages as records, and the registry that says with which schema one was written.

A registry of Avro schemas, by Confluent's protocol: what number stands for which schema never changes.

What is fetched of a topic keeps the schemas of its values with it, in the metadata of the table, and so does what is
landed: to read it again nobody is asked.

What messages of Kafka mean: their values as records, and what Kafka says of them as columns asked for by name.
"""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import urllib3
from urllib3.util import Retry

from headrace.connections import Connection, connection, variable
from headrace.connectors.kafka.definition import AvroValues, KafkaSource, RegistryRefusedError, RegistryUnreachableError
from headrace.connectors.kafka.offsets import UnreadableBatchError
from headrace.formats.avro_datums import RecordType
from headrace.formats.avro_messages import AvroSchemaError, read_avro, record_of, schema_ids
from headrace.formats.file_format import NO_VALUE, NOT_UTF8, RequiredColumns, ScannedRecords, misfit, nothing
from headrace.formats.json_lines import read_json
from headrace.formats.parquet import values_as
from headrace.kernel.columns import Ints, arrow_type
from headrace.kernel.expressions.string_bytes import text_of
from headrace.model.expressions.columns import ColumnType
from headrace.model.expressions.data_types import DataType

_logger = logging.getLogger(__name__)
logging.getLogger("urllib3").setLevel(logging.INFO)

_KEPT: Final = b"headrace.avro."
_NAMED: Final = re.compile(rb"headrace\.avro\.([0-9]+)")
_ASKED: Final = b"headrace.avro"
"""What was fetched says so that a registry was asked."""

_NO_SUCH_SCHEMA: Final = 40403
_SECONDS: Final = 10.0
_TRIES: Final = 4

_known: dict[tuple[str, int], str] = {}
"""Schemas of this process, by the place of their registry and their number."""


def with_schemas(fetched: pa.Table, registry: str) -> pa.Table:
    """What was ``fetched``, with the schemas of its values. Raises MissingConnectionError, RegistryRefusedError,
    RegistryUnreachableError.
    """
    known = schemas(connection(registry, kind="registry"), _numbers(fetched))
    kept = {_KEPT + str(one).encode(): text.encode() for one, text in known.items()}
    return fetched.replace_schema_metadata({_ASKED: b"1", **kept})


def kept_schemas(fetched: pa.Table, registry: str) -> dict[int, RecordType | None]:
    """The schemas that ``fetched`` keeps, by number; None: one that is no record. What was landed before the source was
    said to be in Avro keeps none: then the registry is asked. Raises what ``with_schemas`` raises.
    """
    if _ASKED not in (fetched.schema.metadata or {}):
        fetched = with_schemas(fetched, registry)
    kept = fetched.schema.metadata.items()
    return {int(named[1]): _record(text.decode()) for key, text in kept if (named := _NAMED.fullmatch(key))}


def _numbers(fetched: pa.Table) -> set[int]:
    return {int(one) for chunk in fetched.column("value").chunks for one in set(schema_ids(chunk)) if one >= 0}


def _record(text: str) -> RecordType | None:
    try:
        return record_of(text)
    except AvroSchemaError as error:
        _logger.warning("values have a schema that is no record in Avro: %s", error)
        return None


def schemas(registry: Connection, numbers: Collection[int]) -> dict[int, str]:
    """The schemas with these ``numbers``, as far as the registry has them. Raises RegistryRefusedError,
    RegistryUnreachableError.
    """
    if registry.scheme not in ("http", "https"):
        raise RegistryRefusedError(f"{registry}: a schema registry needs http://host:port or https://host:port")
    place = str(registry)
    lacking = [one for one in sorted(numbers) if (place, one) not in _known]
    if lacking:
        with _pool(registry) as pool:
            for one in lacking:
                if (schema := _schema(pool, registry, one)) is not None:
                    _known[place, one] = schema
    return {one: schema for one in numbers if (schema := _known.get((place, one))) is not None}


def _pool(registry: Connection) -> urllib3.PoolManager:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if registry.user or registry.password:
        pair = f"{registry.user}:{registry.password}".encode()
        headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
    again = Retry(
        _TRIES,
        backoff_factor=0.2,
        status_forcelist=(429, 500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,  # whatever it says is waited for
    )
    ca = registry.options.get("cafile")
    return urllib3.PoolManager(headers=headers, retries=again, timeout=_SECONDS, ca_certs=ca)


def _schema(pool: urllib3.PoolManager, registry: Connection, number: int) -> str | None:
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
            f"{registry} does not let in: correct user and password in {variable(registry.name)}"
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


_AT_ONCE: Final = 2**30
"""So many bytes of messages become columns at once: places in them have 32 bits."""


def scanned(fetched: pa.Table, source: KafkaSource, required: RequiredColumns, path: str, rules: int) -> ScannedRecords:
    """Messages that were ``fetched`` as records of ``source``, by the ``rules`` of that number; the number of a record
    is its offset. Raises UnreadableBatchError.
    """
    if not len(fetched):
        return nothing(source.fields)
    if len(fetched) > 1 and fetched.nbytes > _AT_ONCE:
        middle = len(fetched) // 2
        first, second = (fetched.slice(0, middle), fetched.slice(middle))
        before = scanned(first, source, required, path, rules)
        return _joined(before, scanned(second, source, required, path, rules), path)
    columns = {name: _whole(fetched.column(name)) for name in fetched.column_names}
    values, offsets = columns["value"], columns["offset"].to_numpy()
    of_value = {name: field for name, field in source.fields.items() if name not in source.metadata}
    if of_value:
        needed = {name: reader for name, reader in required.columns.items() if name in of_value}
        asked = replace(required, columns=needed)
        if source.values is None:
            records = read_json(values, offsets, of_value, asked, path, rules=rules)
        else:
            records = read_avro(values, offsets, of_value, asked, _schemas(fetched, source.values))
        unparsed = records.unparsed
        if values.null_count:  # a compacted topic says so that a key is deleted
            unparsed = pc.if_else(values.is_null(), NO_VALUE, unparsed)
    else:
        records, unparsed = nothing({}), pa.nulls(len(values), pa.string())
    read = dict(records.columns)
    for name, kind in source.metadata.items():
        read[name] = _METADATA[name](columns, kind)
        stored = columns[_STORED[name]] if name in _STORED else read[name]
        if read[name].null_count > stored.null_count:
            is_text = kind is DataType.STRING
            reason = f"column {name}: {NOT_UTF8}" if is_text else misfit(name, source.fields[name])
            misread = pc.and_(pc.and_(stored.is_valid(), read[name].is_null()), unparsed.is_null())
            unparsed = pc.if_else(misread, reason, unparsed)
    if unparsed.null_count < len(unparsed):
        parses = unparsed.is_null()
        read = {name: pc.if_else(parses, column, pa.scalar(None, column.type)) for name, column in read.items()}
    in_order = {name: read[name] for name in source.fields}
    has_text = source.values is None
    return ScannedRecords(
        in_order, unparsed, offsets, lambda rows: values.take(pa.array(rows)), records.lacks, has_text
    )


def _joined(first: ScannedRecords, second: ScannedRecords, path: str) -> ScannedRecords:
    """Two parts of what is called ``path``, one after the other."""
    number = len(first)
    try:
        columns = {name: pa.concat_arrays([values, second.columns[name]]) for name, values in first.columns.items()}
    except pa.ArrowInvalid as error:
        raise UnreadableBatchError(
            f"{path}: the records have more than 2 GB in one column of the source: leave out of its schema what is "
            f"that large ({error})"
        ) from error

    def raw(rows: Ints) -> pa.Array:
        is_first = rows < number
        texts = pa.concat_arrays([first.raw(rows[is_first]), second.raw(rows[~is_first] - number)])
        return texts.take(pa.array(np.argsort(np.argsort(~is_first, kind="stable"))))

    lacks = second.lacks if first.lacks is None else first.lacks
    if first.lacks is not None and second.lacks is not None:
        lacks = {name: near for name, near in first.lacks.items() if name in second.lacks}
    unparsed = pa.concat_arrays([first.unparsed, second.unparsed])
    position = np.concatenate([first.position, second.position])
    return ScannedRecords(columns, unparsed, position, raw, lacks, first.has_text)


def _schemas(fetched: pa.Table, values: AvroValues) -> Mapping[int, RecordType | None] | RecordType:
    """With what the values were written: what they say themselves, or what the definition says of all."""
    if values.schema is not None:
        return record_of(values.schema)

    assert values.registry is not None
    return kept_schemas(fetched, values.registry)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _key(columns: Mapping[str, pa.Array], kind: ColumnType) -> pa.Array:
    return text_of(columns["key"]) if kind is DataType.STRING else columns["key"]


def _headers(columns: Mapping[str, pa.Array], kind: ColumnType) -> pa.Array:
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
    "kafka_key": _key,
    "kafka_headers": _headers,
}
_STORED: Final = {"kafka_timestamp": "timestamp", "kafka_key": "key"}
"""Of what a value may not fit the column, where it is in a batch: what does not is NULL."""
