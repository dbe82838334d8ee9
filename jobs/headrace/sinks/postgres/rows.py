"""Rows as PostgreSQL's COPY reads them (CSV): NULL is nothing, everything else is quoted. No Python sees a row."""

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.value_types import ListType, PairsType, ValueType
from headrace.read.views.database import identifier, without_rows
from headrace.sinks.open_sink import UndeliverableError

if TYPE_CHECKING:
    import pyarrow as pa

TYPES: Mapping[DataType, str] = {
    DataType.STRING: "text",
    DataType.INT: "bigint",
    DataType.FLOAT: "double precision",
    DataType.BOOL: "boolean",
    DataType.TIMESTAMP: "timestamp with time zone",
    DataType.DATE: "date",
    DataType.BYTES: "bytea",
    DataType.DECIMAL: "numeric(38, 9)",
}


INDEX_BYTES: Final = 2704
"""The longest entry of an index, if it cannot be compressed."""


def column_type(name: str, kind: ValueType) -> str:
    """The type of a column in PostgreSQL. Raises UndeliverableError for lists of pairs."""
    match kind:
        case ListType(item):
            return f"{TYPES[item]}[]"
        case PairsType():
            raise UndeliverableError(
                f"column {name!r} is a list of pairs, for which PostgreSQL has no type: leave it out of the output "
                "that has this sink, or take it apart in a further aggregation"
            )
    return TYPES[kind]


def longest(batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]) -> tuple[str, int]:
    """The column with the longest text or octets, and how many bytes that has."""
    import pyarrow.compute as pc

    of_bytes = [name for name, kind in columns.items() if kind in (DataType.STRING, DataType.BYTES)]
    lengths = [
        (name, pc.max(pc.binary_length(batch.column(name))).as_py() or 0) for batch in batches for name in of_bytes
    ]
    return max(lengths, key=lambda one: one[1], default=("", 0))


def csv_of(batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]) -> Iterator[tuple[int, bytes]]:
    """The rows of each batch as CSV, in the order of ``columns``, and how many these are."""
    import pyarrow as pa
    from pyarrow import csv

    texts = ", ".join(f"{_text(identifier(name), kind)} as {identifier(name)}" for name, kind in columns.items())
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with without_rows() as connection:
        for batch in batches:
            connection.register("batch", pa.table(batch))
            lines = connection.sql(f"select {texts} from batch").to_arrow_table()
            connection.unregister("batch")
            text = io.BytesIO()
            csv.write_csv(lines, text, options)
            yield batch.num_rows, text.getvalue()


def _text(column: str, kind: ValueType) -> str:
    """SQL of DuckDB: a column as PostgreSQL writes it."""
    match kind:
        case ListType(item):
            value = f"replace(replace({_text('item', item)}, '\\', '\\\\'), '\"', '\\\"')"
            items = f"list_transform({column}, lambda item: coalesce('\"' || {value} || '\"', 'NULL'))"
            return f"'{{' || array_to_string({items}, ',') || '}}'"
        case DataType.BYTES:
            return f"'\\x' || hex({column})"
        case DataType.TIMESTAMP:
            # microseconds since 1970, which neither era nor zone nor rounding can touch
            return f"strftime({column} at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f+00')"
    return f"cast({column} as varchar)"
