"""Rows of any table of PostgreSQL, as text: COPY gives CSV, and Arrow reads it as it comes."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from headrace.sinks.failures import check_columns
from headrace.sinks.postgres.session import reading

if TYPE_CHECKING:
    import psycopg


_BLOCK_BYTES: Final = 2**24
"""A row is no longer than that."""


class _Text(io.RawIOBase):
    """What COPY gives, as a file."""

    def __init__(self, copy: "psycopg.Copy") -> None:
        self._copy, self._left = copy, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override] # what io gives is one
        if not self._left:
            self._left = memoryview(self._copy.read())
        number = min(len(buffer), len(self._left))
        buffer[:number] = self._left[:number]
        self._left = self._left[number:]
        return number


@contextmanager
def rows_as_text(server: "psycopg.Connection", table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatchReader]:
    """``columns`` of a ``table`` as PostgreSQL writes them, times in UTC. Raises SinkRefusedError."""
    with reading(server):
        of = sql.Identifier(*table.split(".", 1))
        described = server.execute(sql.SQL("select * from {} limit 0").format(of)).description or ()
        check_columns(table, columns, [column.name for column in described])
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns)
        query = sql.SQL("copy (select {} from {}) to stdout (format csv)").format(texts, of)
        names = [*columns]
        with server.cursor() as cursor, cursor.copy(query) as copy:
            text = io.BufferedReader(_Text(copy))
            if not text.peek(1):  # Arrow takes no table without a row
                yield pa.RecordBatchReader.from_batches(pa.schema([(name, pa.string()) for name in names]), iter(()))
                return
            yield csv.open_csv(
                text,
                csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK_BYTES),
                csv.ParseOptions(newlines_in_values=True),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
