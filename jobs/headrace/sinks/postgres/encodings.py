"""Texts that a database cannot hold: those with U+0000, and where it is not UTF-8 those with characters that its
encoding lacks, or takes for others (EUC_JP has one wave for two).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import psycopg

from headrace.model.expressions.data_types import DataType, ListType, ValueType

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE: Final = ("UTF8", "SQL_ASCII")
"""Encodings of databases that keep what they get as UTF-8: the second one keeps any bytes."""

_AT_ONCE: Final = 10_000


class ServerEncoding:
    """The encoding of the database that ``server`` is connected to, which is asked itself what it keeps."""

    def __init__(self, server: psycopg.Connection) -> None:
        self._server = server
        self.name = server.info.parameter_status("server_encoding") or ""
        self.is_whole = self.name in _WHOLE

    def keeps(self, text: str) -> bool:
        """Whether ``text`` comes back as it is."""
        if self.is_whole or text.isascii():
            return "\x00" not in text
        octets = text.encode()
        query = "select convert_to(convert_from(%(octets)s, 'UTF8'), 'UTF8') = %(octets)s"
        try:
            with self._server.transaction():
                row = self._server.execute(query, {"octets": octets}).fetchone()
        except psycopg.DataError:
            return False
        return row == (True,)

    def first_lost(
        self, batches: "Iterator[pa.RecordBatch]", columns: Mapping[str, ValueType]
    ) -> tuple[str, str] | None:
        """The column and the text of a value that does not come back as it is; None if all do."""
        names = [name for name, kind in columns.items() if DataType.STRING in (kind, getattr(kind, "item", None))]
        for batch in batches:
            for name in names:
                texts = _texts(batch, name, columns[name])
                for start in range(0, len(texts), _AT_ONCE):
                    if (lost := self._lost(texts[start : start + _AT_ONCE])) is not None:
                        return name, lost
        return None

    def _lost(self, texts: Sequence[str]) -> str | None:
        """One of the ``texts`` that is not kept, found by halves."""
        if self.keeps("\n".join(texts)):
            return None
        while len(texts) > 1:
            first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
            texts = second if self.keeps("\n".join(first)) else first
        return texts[0]


def _texts(batch: "pa.RecordBatch", name: str, kind: ValueType) -> list[str]:
    """The different texts of a column."""
    import pyarrow.compute as pc

    column = batch.column(name)
    flat = pc.list_flatten(column) if isinstance(kind, ListType) else column
    return [text for text in flat.unique().to_pylist() if text is not None]
