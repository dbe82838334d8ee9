"""Rows as PostgreSQL's COPY reads them (CSV): NULL is nothing, everything else is quoted. No Python sees a row."""

import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.ext.sinks import UndeliverableError
from headrace.model.expressions.data_types import DataType, ListType, PairsType, ValueType
from headrace.read.views.database import identifier, without_rows

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
"""The longest entry of an index, once each of its columns is compressed."""


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


@dataclass(frozen=True)
class LongKey:
    """A key that is too long for an index: the bytes of each column of text or octets, and how it begins. ``rows`` have
    one as long, before anything is compressed.
    """

    lengths: Mapping[str, int]
    begins: str
    rows: int

    def describe(self) -> str:
        """Which columns, and how long they are."""
        parts = [(name, length) for name, length in self.lengths.items() if length]
        if len(parts) == 1:
            ((name, length),) = parts
            return f"column {name!r} has a key of {length:,} bytes ({self.begins})"
        columns = " and ".join(f"{name!r} ({length:,})" for name, length in parts)
        return f"columns {columns} have a key of {sum(self.lengths.values()):,} bytes together ({self.begins})"


def long_key(batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]) -> LongKey | None:
    """The key that stays longest in an index on ``columns``, in which each one is compressed by itself; None if none is
    too long.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    of_bytes = [name for name, kind in columns.items() if kind in (DataType.STRING, DataType.BYTES)]
    others = 8 + 16 * len(columns)  # what an entry has beside its bytes, or more
    rows, greatest = 0, 0
    longest: tuple[bytes | None, ...] | None = None
    for batch in batches:
        values = [batch.column(name).cast(pa.large_binary()) for name in of_bytes]
        total = sum((pc.fill_null(pc.binary_length(column), 0).to_numpy() for column in values), start=0)
        long_rows = np.flatnonzero(np.asarray(total) > INDEX_BYTES - others)
        rows += len(long_rows)
        for key in zip(*(column.take(pa.array(long_rows)).to_pylist() for column in values), strict=True):
            packed = sum(min(len(part), len(zlib.compress(part, 1))) for part in key if part is not None)
            if packed > greatest:
                longest, greatest = key, packed
    if longest is None:
        return None
    first = next(part for part in longest if part)
    lengths = {name: len(part or b"") for name, part in zip(of_bytes, longest, strict=True)}
    return LongKey(lengths, f"{first[:40].decode(errors='replace')!r}...", rows)


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
