"""CSV: a record is a line with as many fields as the header has, which goes on behind line breaks in quotes
(docs/judging.md).
"""

import codecs
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints, truths
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.fields import SourceFields
from headrace.model.expressions.identity import constant_to_json
from headrace.sources.formats.errors import FileColumnsError, UnreadableFileError
from headrace.sources.formats.fields import typed
from headrace.sources.formats.lines import TextLines
from headrace.sources.formats.quotes import Quotes
from headrace.sources.formats.scan import NOT_UTF8, Scanned, nothing
from headrace.sources.formats.text_format import TextFormat
from headrace.sources.required_columns import Required

QUOTES: Final = Quotes()

HEADER_BYTES = 1024 * 1024
"""How long a header may be."""

_FIELD = r'(?:"(?:[^"]|"")*"|[^",][^,]*|)'
_PLAIN = f"^{_FIELD}(?:,{_FIELD})*$"
"""Lines whose quotes, if they begin a field, enclose it: others are read one by one."""

_BLANKS_BEHIND = r'(?:"(?:[^"]|"")*"[ \t]*|[^",][^,]*|)'
_ENCLOSING = f"^{_BLANKS_BEHIND}(?:,{_BLANKS_BEHIND})*$"
"""The same, with blanks behind quotes."""

_ODD, _OPEN = "a quote is not closed on its line", "a quote is not closed before the file ends"
_LOOSE = "quotes with a line break in them do not enclose their field"


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


@dataclass(frozen=True)
class CsvLines(TextFormat):
    """CSV with a header, which names the columns. Without ``quotes`` each line break ends a record."""

    name, suffix, has_header, rules = "CSV", ".csv", True, 1
    quotes: Quotes | None = QUOTES

    def by_rules(self, rules: int) -> "CsvLines":
        """Up to 0.1.2 records were lines."""
        return replace(self, quotes=None)

    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: Required, path: str
    ) -> Scanned:
        """``lines`` as records. Raises FileColumnsError if the header names a column of ``fields`` twice, too."""
        assert header is not None
        if self.quotes is not None and self.quotes.are_open_behind(header):
            raise UnreadableFileError(path, "a quote in its header is not closed")
        columns = _header(header, fields, path)
        required.check(columns.names, columns.stored, path, "header")
        return _records(lines, columns, fields, self.quotes)

    def stands_alone(self, record: bytes) -> bool:
        """Whether no quote of the ``record`` is left open, in which others would be."""
        return not QUOTES.are_open_behind(record)

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """The places of ``fields`` as header, and a line for each record."""
        header = _row([field.place for field in fields.values()])
        lines = [header, *(_spelled(record, fields, header) for record in records)]
        return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


CSV: Final = CsvLines()


def _header(line: bytes, fields: SourceFields, path: str) -> Header:
    if len(line) > HEADER_BYTES:
        raise UnreadableFileError(path, f"its header does not end within {HEADER_BYTES} bytes")
    try:
        names = next(csv.reader([line.decode()]))
    except UnicodeDecodeError as error:
        raise UnreadableFileError(path, "its header is not UTF-8") from error
    except csv.Error as error:
        raise UnreadableFileError(path, f"its header is not a line of CSV ({error})") from error
    places = {name: field.place for name, field in fields.items()}
    for place in places.values():
        if names.count(place) > 1:
            raise FileColumnsError(path, f"its header names column {place} {names.count(place)} times")
    return Header(line, names, {name: names.index(place) for name, place in places.items() if place in names})


def _records(lines: TextLines, header: Header, fields: SourceFields, spanning: Quotes | None) -> Scanned:
    """Records of the lines after ``header``; a repetition of it is not a record either."""
    lines = lines.where(pc.not_equal(lines.text, header.line).to_numpy(zero_copy_only=False))
    if not len(lines):
        return nothing(fields)
    unparsed = pc.if_else(pa.array(lines.is_utf8), pa.scalar(None, pa.string()), NOT_UTF8)
    quotes = _QuotedLines.of(lines, spanning)
    for reason, rows in quotes.misread.items():
        if rows.any():
            unparsed = pc.if_else(pa.array(rows), reason, unparsed)
    reading = _Reading(lines, header)
    is_read = truths(unparsed.is_null())
    reading.parse(np.flatnonzero(is_read & quotes.is_plain))
    reading.parse_alone(np.flatnonzero(is_read & ~quotes.is_plain))
    fits = reading.has_fields()
    misfits = unparsed.is_null().to_numpy(zero_copy_only=False) & ~fits
    if misfits.any():
        unparsed = pc.if_else(pa.array(misfits), f"not {header.width} fields, as the header has", unparsed)
    texts = {name: reading.column(name) for name in fields}
    columns, unparsed = typed(texts, unparsed, fields, list(DataType))
    return Scanned(columns, unparsed, lines.position, lambda rows: lines.text.take(pa.array(rows)))


@dataclass(frozen=True)
class _QuotedLines:
    """Which lines that are text the parser of blocks reads as the rules say (``is_plain``), by their quotes; and which
    are ``misread``, by reason.
    """

    is_plain: NDArray[np.bool_]
    misread: dict[str, NDArray[np.bool_]]

    @classmethod
    def of(cls, lines: TextLines, spanning: Quotes | None) -> "_QuotedLines":
        is_plain = ~truths(pc.starts_with(lines.text, codecs.BOM_UTF8))  # which the parser leaves out before a block
        quotes = pc.count_substring(lines.text, b'"').to_numpy(zero_copy_only=False)
        quoted = (quotes > 0) & lines.is_utf8
        is_open, is_loose = np.zeros(len(lines), np.bool_), np.zeros(len(lines), np.bool_)
        if quoted.any():
            is_plain &= ~quoted | _match(lines, quoted, _PLAIN)
            is_loose = _match(lines, quoted & ~is_plain, r"[\r\n]")
            is_loose &= ~_match(lines, is_loose, _ENCLOSING)
            if spanning is not None and quoted[-1]:  # behind others none is
                is_open[-1] = spanning.are_open_behind(lines.text[-1].as_py())
        return cls(is_plain, {_LOOSE: is_loose, _ODD: quoted & (quotes % 2 != 0), _OPEN: is_open})


def _match(lines: TextLines, rows: NDArray[np.bool_], pattern: str) -> NDArray[np.bool_]:
    """Which of ``rows``, which are text, match ``pattern``."""
    matching = rows.copy()
    if rows.any():
        text = lines.text if rows.all() else lines.text.filter(pa.array(rows))
        matching[rows] = truths(pc.match_substring_regex(text.cast(pa.string()), pattern))
    return matching


class _Reading:
    """Lines on their way to columns of text."""

    def __init__(self, lines: TextLines, header: Header) -> None:
        self.lines, self.header = lines, header
        self.tables: list[pa.Table] = []
        self.rows: list[Ints] = []

    def parse(self, rows: Ints) -> None:
        """Parse those lines, each of which holds its quotes."""
        if not len(rows):
            return
        block = self._block(rows)
        if block is not None:
            table, fits = block
            self.tables.append(table)
            self.rows.append(rows[fits])
        elif len(rows) > 1:
            middle = len(rows) // 2
            self.parse(rows[:middle])
            self.parse(rows[middle:])

    def parse_alone(self, rows: Ints) -> None:
        """Parse those lines one by one."""
        records = [_fields(self.lines.text[row].as_py().decode()) for row in rows.tolist()]
        fits = np.array([len(fields) == self.header.width for fields in records], np.bool_)
        if fits.any():
            columns = zip(*(fields for fields in records if len(fields) == self.header.width), strict=True)
            arrays = [pa.array([value or None for value in column], pa.string()) for column in columns]
            self.tables.append(pa.table(arrays, names=[_field(i) for i in range(self.header.width)]))
            self.rows.append(rows[fits])

    def has_fields(self) -> NDArray[np.bool_]:
        """Which lines have as many fields as the header."""
        fits = np.zeros(len(self.lines), np.bool_)
        for rows in self.rows:
            fits[rows] = True
        return fits

    def column(self, name: str) -> pa.Array:
        """A column of text, NULL in lines that were not parsed."""
        if name not in self.header.stored or not self.tables:
            return pa.nulls(len(self.lines), pa.string())
        chunks = [chunk for table in self.tables for chunk in table.column(_field(self.header.stored[name])).chunks]
        whole = pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
        rows = np.concatenate(self.rows)
        if len(rows) == len(self.lines) and (np.diff(rows) == 1).all():
            return whole
        place = np.full(len(self.lines), -1, np.int64)
        place[rows] = np.arange(len(rows))
        return whole.take(pa.array(place, mask=place < 0))

    def _block(self, rows: Ints) -> tuple[pa.Table, NDArray[np.bool_]] | None:
        """The records of a block of lines, and which lines have its fields; None if lines ran together."""
        text = self.lines.text if len(rows) == len(self.lines) else self.lines.text.take(pa.array(rows))
        broken = pc.binary_join_element_wise(text, b"\n", b"")
        offsets = np.frombuffer(broken.buffers()[1], np.int32)[broken.offset :]
        block = broken.buffers()[2].slice(int(offsets[0]), int(offsets[len(broken)] - offsets[0]))
        fits = np.ones(len(rows), np.bool_)
        odd: list[int] = []

        def misfit(row: pcsv.InvalidRow) -> str:
            odd.append(row.number)
            return "skip"

        names = [_field(i) for i in range(self.header.width)]
        wanted = [_field(i) for i in sorted(set(self.header.stored.values()))] or names[:1]
        try:
            table = pcsv.read_csv(
                pa.BufferReader(block),
                read_options=pcsv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
                parse_options=pcsv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=misfit),
                convert_options=pcsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    include_columns=wanted,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows + len(odd) != len(rows):
            return None
        fits[np.array(odd, np.int64) - 1] = False
        return table, fits


def _field(number: int) -> str:
    return f"_c{number}"


def _fields(line: str) -> list[str]:
    """The fields of one line. Quotes that begin a field and do not enclose it are part of it."""
    fields, start = [], 0
    while start <= len(line):
        value, end = _quoted(line, start) if line.startswith('"', start) else _up_to_comma(line, start)
        fields.append(value)
        start = end + 1
    return fields


def _up_to_comma(line: str, start: int) -> tuple[str, int]:
    end = line.find(",", start)
    end = len(line) if end < 0 else end
    return line[start:end], end


def _quoted(line: str, start: int) -> tuple[str, int]:
    """The field that begins with a quote at ``start``, and where it ends."""
    inside, at = "", start + 1
    while (quote := line.find('"', at)) >= 0:
        inside += line[at:quote]
        if line.startswith('"', quote + 1):
            inside, at = inside + '"', quote + 2
            continue
        behind = quote + 1 + len(line[quote + 1 :]) - len(line[quote + 1 :].lstrip(" \t"))
        if behind == len(line) or line[behind] == ",":
            return inside, behind
        rest, end = _up_to_comma(line, quote)
        return f'"{inside}{rest}', end
    return (inside + line[at:]) or '"', len(line)


# --- for unit tests


def _spelled(record: Mapping[str, Any] | str, fields: SourceFields, header: str) -> str:
    if isinstance(record, str):
        return record
    values = [_text(record.get(name)) for name in fields]
    line = _row(values)
    is_record = line.strip(" \t") and line != header  # in quotes it is one
    return line if is_record else _row(values, csv.QUOTE_ALL)


def _row(fields: Sequence[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n", quoting=quoting).writerow(fields)  # what is in a line end is in quotes
    return line.getvalue().removesuffix("\r\n")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=constant_to_json)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(constant_to_json(value))
