"""The dialect of a CSV file: how it quotes, its header, and whether its body is in what a source says.

``check_body`` tells what the first records say of the dialect where the header says nothing: an encoding, quotes. A
file is judged at its beginning, whichever piece of it is read. One that is bad in part keeps its dead letters.
"""

import codecs
import csv
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.file_format import DialectError, FileColumnsError, UnreadableFileError
from headrace.formats.lines import UTF8, Quotes, TextLayout, TextLines, split_lines
from headrace.kernel.columns import arrow_scalar, as_numpy, true_mask
from headrace.model.expressions.columns import SourceFields
from headrace.pipeline.sources import CsvDialect

ODD, OPEN = "a quote is not closed on its line", "a quote is not closed before the file ends"
LOOSE = "quotes with a line break in them do not enclose their field"


def layout_of(dialect: CsvDialect, *, span_lines: bool = True) -> TextLayout:
    """How records in a ``dialect`` are told apart, which may go on behind line breaks or not."""
    quotes = None
    if dialect.quote is not None and span_lines:
        escape = None if dialect.escape is None else ord(dialect.escape)
        quotes = Quotes(ord(dialect.quote), ord(dialect.delimiter), escape)
    return TextLayout(quotes, dialect.encoding, dialect.skip_lines, " \t".replace(dialect.delimiter, ""))


@dataclass(frozen=True)
class Quoting:
    """How records in a ``dialect`` become fields."""

    dialect: CsvDialect

    @property
    def blanks(self) -> str:
        """What may stand behind a closing quote."""
        return " \t".replace(self.dialect.delimiter, "")

    @cached_property
    def plain(self) -> str:
        """Records whose quotes, if they begin a field, enclose it: others are read one by one."""
        return self._fields_pattern("")

    @cached_property
    def enclosing(self) -> str:
        """The same, with blanks behind quotes."""
        return self._fields_pattern(f"[{self.blanks}]*")

    def _fields_pattern(self, suffix: str) -> str:
        quote, delimiter = re.escape(self.dialect.quote or ""), re.escape(self.dialect.delimiter)
        field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}{suffix}|[^{quote}{delimiter}][^{delimiter}]*|)"
        return f"^{field}(?:{delimiter}{field})*$"

    def mask_escapes(self, text: pa.Array) -> pa.Array:
        """Records with escaped characters as others, which mean nothing."""
        if self.dialect.escape is None:
            return text
        return pc.replace_substring_regex(text, f"(?s){re.escape(self.dialect.escape)}.", "xx")

    def header_names(self, line: str) -> list[str]:
        """The names in a header. Raises csv.Error."""
        quote = self.dialect.quote
        reader = csv.reader(
            [line],
            delimiter=self.dialect.delimiter,
            quotechar=quote,
            quoting=csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
            escapechar=self.dialect.escape,
        )
        return next(reader)

    def split_record(self, record: str) -> list[str]:
        """The fields of one record. Quotes that begin a field and do not enclose it are part of it."""
        escape = self.dialect.escape
        marks = record if escape is None else re.sub(f"(?s){re.escape(escape)}.", "xx", record)
        fields, start = [], 0
        while start <= len(record):
            is_quoted = self.dialect.quote is not None and marks.startswith(self.dialect.quote, start)
            read_field = self._read_quoted_field if is_quoted else self._read_plain_field
            value, end = read_field(record, marks, start)
            fields.append(value if escape is None else re.sub(f"(?s){re.escape(escape)}(.)", r"\1", value))
            start = end + 1
        return fields

    def _read_plain_field(self, record: str, marks: str, start: int) -> tuple[str, int]:
        end = marks.find(self.dialect.delimiter, start)
        end = len(marks) if end < 0 else end
        return record[start:end], end

    def _read_quoted_field(self, record: str, marks: str, start: int) -> tuple[str, int]:
        """The field that begins with a quote at ``start``, and where it ends."""
        character = self.dialect.quote or ""
        content, position = "", start + 1
        while (quote := marks.find(character, position)) >= 0:
            content += record[position:quote]
            if marks.startswith(character, quote + 1):
                content, position = content + character, quote + 2
                continue
            field_end = quote + 1 + len(marks[quote + 1 :]) - len(marks[quote + 1 :].lstrip(self.blanks))
            if field_end == len(marks) or marks[field_end] == self.dialect.delimiter:
                return content, field_end
            rest, end = self._read_plain_field(record, marks, quote)
            return f"{character}{content}{rest}", end
        return (content + record[position:]) or character, len(record)


@dataclass(frozen=True)
class JudgedLines:
    """Which lines that are text the parser of blocks reads as the rules say (``is_plain``), by their quotes; and which
    are ``misread``, by reason (docs/judging.md).
    """

    is_plain: NDArray[np.bool_]
    misread: dict[str, NDArray[np.bool_]]

    @classmethod
    def from_lines(cls, lines: TextLines, quoting: Quoting, spanning: Quotes | None) -> "JudgedLines":
        """``spanning`` quotes hold line breaks; None: a line break ends each record."""
        is_plain = ~true_mask(pc.starts_with(lines.text, codecs.BOM_UTF8))  # which the parser leaves out before a block
        is_open, is_loose, is_odd = (np.zeros(len(lines), np.bool_) for _ in range(3))
        if (quote := quoting.dialect.quote) is not None:
            quotes = as_numpy(pc.count_substring(lines.text, quote.encode()))
            has_quotes = (quotes > 0) & lines.is_utf8
            if has_quotes.any():
                if quoting.dialect.escape is not None:
                    marks = quoting.mask_escapes(lines.text.filter(pa.array(has_quotes)).cast(pa.string()))
                    quotes = np.zeros(len(lines), np.int64)
                    quotes[has_quotes] = as_numpy(pc.count_substring(marks, quote))
                is_plain &= ~has_quotes | _matching_rows(lines, quoting, has_quotes, quoting.plain)
                is_loose = _matching_rows(lines, quoting, has_quotes & ~is_plain, r"[\r\n]")
                is_loose &= ~_matching_rows(lines, quoting, is_loose, quoting.enclosing)
                is_odd = has_quotes & (quotes % 2 != 0)
                if spanning is not None and has_quotes[-1]:  # behind others none is
                    is_open[-1] = spanning.are_open_behind(lines.text[-1].as_py())
        return cls(is_plain, {LOOSE: is_loose, ODD: is_odd, OPEN: is_open})


def _matching_rows(lines: TextLines, quoting: Quoting, rows: NDArray[np.bool_], pattern: str) -> NDArray[np.bool_]:
    """Which of ``rows``, which are text, match ``pattern``."""
    matching = rows.copy()
    if rows.any():
        text = lines.text if rows.all() else lines.text.filter(pa.array(rows))
        matching[rows] = true_mask(pc.match_substring_regex(quoting.mask_escapes(text.cast(pa.string())), pattern))
    return matching


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
        return len(self.names)


def header_of(line: bytes, fields: SourceFields, dialect: CsvDialect, path: str) -> Header:
    """The header ``line`` of a file. Raises UnreadableFileError if it is none, and FileColumnsError if it names a
    column twice. Raises DialectError if it names columns only when it is read in another dialect.
    """
    if len(line) > HEADER_BYTES:
        raise UnreadableFileError(path, f"its header does not end within {HEADER_BYTES} bytes")
    try:
        names = Quoting(dialect).header_names(line.decode())
    except UnicodeDecodeError as error:
        mark = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        advice = ', and begins as UTF-16 does: write encoding="utf-16" in the source' if mark else ""
        raise DialectError(path, f"its header is not {_encoding_name(dialect)}{advice}") from error
    except csv.Error as error:
        raise UnreadableFileError(path, f"its header is not a line of CSV ({error})") from error
    places = {name: field.place for name, field in fields.items()}
    for place in places.values():
        if names.count(place) > 1:
            raise FileColumnsError(path, f"its header names column {place} {names.count(place)} times")
    column_numbers = {name: names.index(place) for name, place in places.items() if place in names}
    if not column_numbers:
        _check_dialect(line.decode(), {*places.values()}, dialect, path)
    return Header(line, names, column_numbers)


def check_preamble(text: bytes, layout: TextLayout, dialect: CsvDialect, fields: SourceFields, path: str) -> None:
    """Raise DialectError if the first line of ``text`` names no column of the source, and another near it does."""
    places = {field.place for field in fields.values()}
    head = split_lines(text[:_PREAMBLE_BYTES], layout=replace(layout, skip_lines=0, quotes=None)).first(_PREAMBLE_LINES)
    by_line = {
        position: count_named(line.decode(errors="replace"), places, dialect)
        for position, line in zip(head.position.tolist(), head.text.to_pylist(), strict=True)
    }
    read_as_header = next((position for position in by_line if position >= dialect.skip_lines), None)
    likeliest = max(by_line, key=lambda position: by_line[position], default=0)
    if read_as_header is not None and not by_line[read_as_header] and by_line[likeliest]:
        raise DialectError(
            path, f"its header seems to be line {likeliest + 1}: write skip_lines={likeliest} in the source"
        )


def _check_dialect(line: str, places: Collection[str], dialect: CsvDialect, path: str) -> None:
    """Raise DialectError for a header that names columns in another dialect; in this dialect it names none."""
    if "\0" in line:
        bare = line.replace("\0", "")
        if _likeliest_dialect(bare, places, dialect) is not None or count_named(bare, places, dialect):
            encoding = "utf-16-be" if line.startswith("\0") else "utf-16-le"
            raise DialectError(path, f'its header looks like UTF-16: write encoding="{encoding}" in the source')
    if (other := _likeliest_dialect(line, places, dialect)) is not None:
        options = _changed_options(dialect, other)
        count = count_named(line, places, other)
        columns = f"{count} columns" if count > 1 else "a column"
        raise DialectError(
            path, f"its header names {columns} of the source if read otherwise, and none as it is: write {options}"
        )


def _likeliest_dialect(line: str, places: Collection[str], dialect: CsvDialect) -> CsvDialect | None:
    """The dialect in which ``line`` names most of ``places``; None if it names none in any."""
    quotes, delimiters = dict.fromkeys((dialect.quote, *QUOTES)), dict.fromkeys((dialect.delimiter, *DELIMITERS))
    others = [
        replace(dialect, delimiter=delimiter, quote=quote)
        for quote, delimiter in product(quotes, delimiters)
        if delimiter not in (quote, dialect.escape) and quote != dialect.escape
    ]
    best = max(others, key=lambda other: count_named(line, places, other))
    return best if count_named(line, places, best) else None


def count_named(line: str, places: Collection[str], dialect: CsvDialect) -> int:
    try:
        return len({*Quoting(dialect).header_names(line)} & {*places})
    except (csv.Error, StopIteration):
        return 0


def _changed_options(one: CsvDialect, other: CsvDialect) -> str:
    """Which characters the ``other`` dialect has in place of those of ``one``, as they are written in a source."""
    values = {name: getattr(other, name) for name in ("delimiter", "quote", "escape")}
    return ", ".join(f"{name}={_literal(value)}" for name, value in values.items() if value != getattr(one, name))


def _literal(value: str | None) -> str:
    return {'"': "'\"'", "\t": '"\\t"', "\\": r'"\\"'}.get(value or "", f'"{value}"')


def _encoding_name(dialect: CsvDialect) -> str:
    return "UTF-8" if dialect.encoding == UTF8 else dialect.encoding


_SAMPLE_BYTES: Final = 65536
_SAMPLE_RECORDS, FEW_RECORDS = 100, 20
"""How many records are looked at, and how many say something."""

_OTHER_ENCODING: Final = "cp1252"


def check_body(text: bytes, header: bytes, dialect: CsvDialect, places: Collection[str], path: str) -> None:
    """Raise DialectError if the first records of ``text`` behind its ``header`` are of another dialect. ``places`` are
    columns of the source.
    """
    records = _leading_records(text, header, layout_of(dialect))
    if len(records) < FEW_RECORDS:
        return
    _check_encoding(records, dialect, path)
    other = _fitting_dialect(text, header, records, dialect)
    if other is not None:
        raise _wrong_fields(header, dialect, other, places, path)


def _leading_records(text: bytes, header: bytes, layout: TextLayout) -> TextLines:
    """The records at the beginning of a file that end there."""
    begin = layout.first_line_begin(text)
    end = min(begin + _SAMPLE_BYTES, len(text))
    lines = split_lines(text, (begin, end), layout)
    whole = lines if end == len(text) else lines.first(max(len(lines) - 1, 0))
    return whole.where(as_numpy(pc.not_equal(whole.text, arrow_scalar(header)))).first(_SAMPLE_RECORDS)


def _check_encoding(records: TextLines, dialect: CsvDialect, path: str) -> None:
    """Raise DialectError if more than half of the records beyond ASCII are none, and a tenth of all."""
    if dialect.encoding != UTF8:
        return
    octets = [record.as_py() for record in records.text]
    is_beyond = np.array([not record.isascii() for record in octets])
    wrong = int((~records.is_utf8).sum())
    if wrong * 10 < len(records) or wrong * 2 <= int(is_beyond.sum()):
        return
    wrong_encoding = f"{wrong} of its first {len(records)} records are not UTF-8"
    if all(_is_text(record) for record in octets):
        raise DialectError(
            path, f'{wrong_encoding}: write encoding="{_OTHER_ENCODING}" in the source, or the encoding that they have'
        )
    raise DialectError(path, f"{wrong_encoding}: write encoding= in the source, with the encoding that they have")


def _is_text(record: bytes) -> bool:
    try:
        record.decode(_OTHER_ENCODING)
    except UnicodeDecodeError:
        return False
    return True


def _fitting_dialect(text: bytes, header: bytes, records: TextLines, dialect: CsvDialect) -> CsvDialect | None:
    """The dialect in which all records have the fields of the header, if most have not in this one."""
    field_count = len(Quoting(dialect).header_names(header.decode()))
    if field_count < 2 or _count_fitting(records, dialect, field_count) * 2 >= len(records):
        return None
    for other in _nearby_dialects(dialect):
        read = _leading_records(text, header, layout_of(other))
        if len(read) >= FEW_RECORDS and _count_fitting(read, other, field_count) == len(read):
            return other
    return None


def _wrong_fields(
    header: bytes, dialect: CsvDialect, other: CsvDialect, places: Collection[str], path: str
) -> DialectError:
    options = _changed_options(dialect, other)
    most = "most of its first records have not as many fields as the header"
    if count_named(header.decode(), places, other):
        return DialectError(path, f"{most}, and all have if read otherwise: write {options}")
    return DialectError(path, f"{most}, and all have with {options}, by which the header names no column of the source")


def _nearby_dialects(dialect: CsvDialect) -> Iterator[CsvDialect]:
    """Dialects near this one, the nearest first."""
    delimiters, quotes = dict.fromkeys((dialect.delimiter, *DELIMITERS)), dict.fromkeys((dialect.quote, *QUOTES))
    for delimiter, quote, escape in product(delimiters, quotes, dict.fromkeys((dialect.escape, "\\"))):
        if len({delimiter, quote, escape}) == 3 and (quote is not None or escape is None):
            other = replace(dialect, delimiter=delimiter, quote=quote, escape=escape)
            if other != dialect:
                yield other


def _count_fitting(records: TextLines, dialect: CsvDialect, field_count: int) -> int:
    quoting = Quoting(dialect)
    texts = records.text.filter(pa.array(records.is_utf8)).to_pylist()
    return sum(len(quoting.split_record(record.decode())) == field_count for record in texts)
