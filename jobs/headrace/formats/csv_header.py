"""The header of a CSV file: its names, where the columns of the source are; and which dialect it seems to be of, where
it names none of them.
"""

import codecs
import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

from headrace.formats.csv_quoting import Quoting
from headrace.formats.errors import DialectError, FileColumnsError, UnreadableFileError
from headrace.formats.lines import cut
from headrace.formats.text_layout import UTF8, TextLayout
from headrace.model.expressions.fields import SourceFields
from headrace.pipeline.csv_dialect import CsvDialect

HEADER_BYTES = 1024 * 1024
"""How long a header may be."""

DELIMITERS, QUOTES = ",;\t|", "\"'"
_PREAMBLE_BYTES, _PREAMBLE_LINES = 65536, 50


@dataclass(frozen=True)
class Header:
    """The first line of a file: its bytes, its names, and where the columns of the source are."""

    line: bytes
    names: list[str]
    stored: dict[str, int]

    @property
    def width(self) -> int:
        """How many fields it has."""
        return len(self.names)


def header_of(line: bytes, fields: SourceFields, dialect: CsvDialect, path: str) -> Header:
    """The header ``line`` of a file. Raises UnreadableFileError if it is none, FileColumnsError if it names a column
    twice, DialectError if it names a column in another dialect, and none in this one.
    """
    if len(line) > HEADER_BYTES:
        raise UnreadableFileError(path, f"its header does not end within {HEADER_BYTES} bytes")
    try:
        names = Quoting(dialect).header(line.decode())
    except UnicodeDecodeError as error:
        mark = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        advice = ', and begins as UTF-16 does: write encoding="utf-16" in the source' if mark else ""
        raise DialectError(path, f"its header is not {_called(dialect)}{advice}") from error
    except csv.Error as error:
        raise UnreadableFileError(path, f"its header is not a line of CSV ({error})") from error
    places = {name: field.place for name, field in fields.items()}
    for place in places.values():
        if names.count(place) > 1:
            raise FileColumnsError(path, f"its header names column {place} {names.count(place)} times")
    stored = {name: names.index(place) for name, place in places.items() if place in names}
    if not stored:
        _check_dialect(line.decode(), {*places.values()}, dialect, path)
    return Header(line, names, stored)


def check_preamble(text: bytes, layout: TextLayout, dialect: CsvDialect, fields: SourceFields, path: str) -> None:
    """Raise DialectError if the first line of ``text`` names no column of the source, and another near it does."""
    places = {field.place for field in fields.values()}
    head = cut(text[:_PREAMBLE_BYTES], layout=replace(layout, skip_lines=0, quotes=None)).first(_PREAMBLE_LINES)
    by_line = {
        position: named(line.decode(errors="replace"), places, dialect)
        for position, line in zip(head.position.tolist(), head.text.to_pylist(), strict=True)
    }
    read_as_header = next((position for position in by_line if position >= dialect.skip_lines), None)
    likeliest = max(by_line, key=lambda position: by_line[position], default=0)
    if read_as_header is not None and not by_line[read_as_header] and by_line[likeliest]:
        raise DialectError(
            path, f"its header seems to be line {likeliest + 1}: write skip_lines={likeliest} in the source"
        )


def _check_dialect(line: str, places: Collection[str], dialect: CsvDialect, path: str) -> None:
    """Raise DialectError for a header that names columns in another dialect; as it is read it names none."""
    if "\0" in line:
        bare = line.replace("\0", "")
        if _likeliest(bare, places, dialect) is not None or named(bare, places, dialect):
            encoding = "utf-16-be" if line.startswith("\0") else "utf-16-le"
            raise DialectError(path, f'its header looks like UTF-16: write encoding="{encoding}" in the source')
    if (other := _likeliest(line, places, dialect)) is not None:
        options = ", ".join(f"{name}={literal(value)}" for name, value in changed(dialect, other))
        count = named(line, places, other)
        columns = f"{count} columns" if count > 1 else "a column"
        raise DialectError(
            path, f"its header names {columns} of the source if read otherwise, and none as it is: write {options}"
        )


def _likeliest(line: str, places: Collection[str], dialect: CsvDialect) -> CsvDialect | None:
    """The dialect in which ``line`` names most of ``places``; None if it names none in any."""
    quotes = [dialect.quote, *(quote for quote in QUOTES if quote != dialect.quote)]
    delimiters = [dialect.delimiter, *(one for one in DELIMITERS if one != dialect.delimiter)]
    others = [
        replace(dialect, delimiter=delimiter, quote=quote)
        for quote, delimiter in product(quotes, delimiters)
        if delimiter not in (quote, dialect.escape) and quote != dialect.escape
    ]
    best = max(others, key=lambda other: named(line, places, other))
    return best if named(line, places, best) else None


def named(line: str, places: Collection[str], dialect: CsvDialect) -> int:
    """How many of ``places`` are in a header."""
    try:
        return len({*Quoting(dialect).header(line)} & {*places})
    except (csv.Error, StopIteration):
        return 0


def changed(one: CsvDialect, other: CsvDialect) -> Sequence[tuple[str, str | None]]:
    """Which characters the ``other`` dialect has in place of those of ``one``, by option."""
    options = ("delimiter", "quote", "escape")
    return [(name, getattr(other, name)) for name in options if getattr(other, name) != getattr(one, name)]


def literal(value: str | None) -> str:
    """A character as it is written in a source."""
    return {'"': "'\"'", "\t": '"\\t"', "\\": r'"\\"'}.get(value or "", f'"{value}"')


def _called(dialect: CsvDialect) -> str:
    return "UTF-8" if dialect.encoding == UTF8 else dialect.encoding
