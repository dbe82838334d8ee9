"""Text of fixed width: a header whose names stand where their columns begin, and a record on each line.

station   level at
Worms       212 2026-01-01T10:00:00Z
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace import DataType
from headrace.ext.formats import (
    NOT_UTF8,
    RequiredColumns,
    ScannedRecords,
    SourceFields,
    TextFormat,
    TextLines,
    UnreadableFileError,
    nothing,
    typed,
)

WIDTH = 30
"""How wide columns are in files that are written here, in characters."""


class FixedWidth(TextFormat):
    """Columns from where their name begins in the header to where the next one does; a field of blanks is NULL."""

    name, suffix, has_header = "fixed-width", ".txt", True

    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: RequiredColumns, path: str
    ) -> ScannedRecords:
        """``lines`` as records, without those that repeat the header."""
        assert header is not None
        try:
            columns = _columns(header.decode())
        except UnicodeDecodeError as error:
            raise UnreadableFileError(path, "its header is not UTF-8") from error
        filled_names = [name for name, field in fields.items() if field.place in columns]
        required.check([*columns], filled_names, path, "header")
        lines = lines.where(pc.not_equal(lines.text, header).to_numpy(zero_copy_only=False))
        if not len(lines):
            return nothing(fields)
        known_array = pa.array(lines.is_utf8)
        text = pc.if_else(known_array, lines.text, pa.scalar(b"")).cast(pa.string())
        places = {name: columns.get(field.place) for name, field in fields.items()}
        texts = {name: pa.nulls(len(text)) if place is None else _field(text, place) for name, place in places.items()}
        reasons = pc.if_else(known_array, pa.scalar(None, pa.string()), NOT_UTF8)
        values, reasons = typed({n: t.cast(pa.string()) for n, t in texts.items()}, reasons, fields, [*DataType])
        return ScannedRecords(values, reasons, lines.position, lambda rows: lines.text.take(pa.array(rows)))

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """Columns of one width each. Raises ValueError for a value that is wider."""
        header = [field.place for field in fields.values()]
        rows = [header, *(r if isinstance(r, str) else [_text(r.get(name)) for name in fields] for r in records)]
        return "".join(f"{row if isinstance(row, str) else _line(row)}\n" for row in rows).encode()


FIXED_WIDTH: Final = FixedWidth()


def _columns(header: str) -> dict[str, tuple[int, int | None]]:
    """Where each column begins and ends; the last one does not end."""
    names = [*re.finditer(r"\S+", header)]
    ends = [*(name.start() for name in names[1:]), None]
    return {name[0]: (name.start(), end) for name, end in zip(names, ends, strict=True)}


def _field(text: pa.Array, column: tuple[int, int | None]) -> pa.Array:
    field = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(text, *column))
    return pc.if_else(pc.equal(field, ""), None, field)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _line(fields: Sequence[str]) -> str:
    if wide := [field for field in fields if len(field) >= WIDTH]:
        raise ValueError(f"{wide[0]!r} is wider than {WIDTH} characters, which a column of this file has")
    return "".join(field.ljust(WIDTH) for field in fields).rstrip()
