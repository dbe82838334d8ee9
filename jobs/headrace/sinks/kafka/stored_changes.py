"""The changes that a topic has, as columns: a part of a partition at a time, and no Python sees a record."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.ext.sinks import NUMBER, RECORD_AT, RECORD_MISREAD, RECORD_PLACE, SIGN
from headrace.model.expressions.data_types import DataType, ListType, PairsType, ValueType, in_words
from headrace.read.diff.table_comparison import ComparedColumnsError, text_as
from headrace.read.views.arrow_types import schema_of
from headrace.read.views.database import identifier, literal, sql_types, without_rows
from headrace.sources.kafka.client import KafkaClient, Partition, Topic
from headrace.sources.kafka.fetching import records as fetched_records
from headrace.sources.kafka.offsets import OffsetRange

if TYPE_CHECKING:
    import duckdb

_AT_FIRST: Final = 100
"""So many offsets are read at first; then by the length of what came."""

_BYTES: Final = 2**24
"""About so many bytes of records become columns at once."""

_MOST: Final = 50_000


def stored_changes(
    client: KafkaClient, topic: Topic, partitions: Mapping[int, Partition], columns: Mapping[str, ValueType]
) -> pa.RecordBatchReader:
    """All records of ``partitions`` that were committed, with ``columns`` and what StoredRecords says of each; those
    that the topic lets go meanwhile are left out. Raises ComparedColumnsError for lists of pairs.
    """
    about = {RECORD_PLACE: DataType.INT, RECORD_AT: DataType.INT, RECORD_MISREAD: DataType.BOOL}
    schema = schema_of({NUMBER: DataType.INT, SIGN: DataType.INT, **columns, **about})
    query = _query({NUMBER: DataType.INT, SIGN: DataType.INT, **columns})

    def batches() -> Iterator[pa.RecordBatch]:
        with without_rows() as connection:
            for number, there in partitions.items():
                for fetched in _fetched(client, topic, number, there):
                    yield from _read(connection, fetched, query).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _fetched(client: KafkaClient, topic: Topic, number: int, there: Partition) -> Iterator[pa.Table]:
    """The records of a partition, in parts of about one size."""
    at, many = there.first, _AT_FIRST
    while at < there.end:
        end = min(at + many, there.end)
        fetched = fetched_records(client, topic, OffsetRange(number, at, end), skips_lost=True)
        if fetched.num_rows:
            yield fetched
        by_offset = max(1, fetched.nbytes // (end - at))
        many = max(1, min(_BYTES // by_offset, 4 * many, _MOST))
        at = end


def _read(connection: "duckdb.DuckDBPyConnection", fetched: pa.Table, query: str) -> pa.Table:
    connection.register("fetched", fetched.select(["partition", "offset", "value"]))
    try:
        return connection.sql(query).to_arrow_table()
    finally:
        connection.unregister("fetched")


def _query(columns: Mapping[str, ValueType]) -> str:
    """SQL: values of ``columns`` in the objects that were ``fetched``, and whether one is none of its type."""
    names = [*columns]
    texts = [f"text_{number}" for number in range(len(names))]
    members = ", ".join(f"{_in_object(name, columns[name])} as {text}" for name, text in zip(names, texts, strict=True))
    values = {name: _value(name, columns[name], text) for name, text in zip(names, texts, strict=True)}
    misread = " or ".join(
        [
            "object is null",
            *(f"({text} is not null and {value} is null)" for text, value in zip(texts, values.values(), strict=True)),
        ]
    )
    selected = ", ".join(f"{value} as {identifier(name)}" for name, value in values.items())
    return (
        f"select {selected}, partition as {RECORD_PLACE}, offset_ as {RECORD_AT}, {misread} as {RECORD_MISREAD} from "
        f"(select partition, offset_, object, {members} from (select partition, offset_, "
        "case when json_valid(text) and json_type(text) = 'OBJECT' then text end as object from "
        '(select partition, "offset" as offset_, try(decode("value")) as text from fetched)))'
    )


def _in_object(name: str, kind: ValueType) -> str:
    """SQL: what an object has under a name: text, or a list of texts."""
    pointer = literal("/" + name.replace("~", "~0").replace("/", "~1"))
    match kind:
        case PairsType():
            raise ComparedColumnsError(f"column {name!r} is a {in_words(kind)}, which is not read from a topic")
        case ListType():
            return f"try(cast(json_extract(object, {pointer}) as varchar[]))"
    return f"json_extract_string(object, {pointer})"


def _value(name: str, kind: ValueType, text: str) -> str:
    """SQL: a text as a value of a ``kind``; NULL if it is none."""
    if isinstance(kind, ListType):
        item = _value(name, kind.item, "item")
        return f"[{item} for item in {text}]"
    assert isinstance(kind, DataType)
    wanted = sql_types({name: kind})[name]
    match kind:
        case DataType.STRING:
            return text
        case DataType.BYTES:
            return f"try(from_base64({text}))"
        case DataType.INT:  # a cast rounds
            return f"case when regexp_full_match({text}, '-?[0-9]+') then try_cast({text} as {wanted}) end"
    return f"try_cast({text_as(text, kind)} as {wanted})"
