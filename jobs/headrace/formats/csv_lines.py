"""CSV: a record is a line with as many fields as the header has, also over line breaks in quotes (docs/judging.md)."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from numpy.typing import NDArray

from headrace.formats import csv_dialect, file_format
from headrace.formats.fields import typed
from headrace.formats.file_format import RequiredColumns, ScannedFiles, ScannedRecords, Span
from headrace.formats.lines import (
    UTF8,
    JoinedLines,
    Quotes,
    TextFormat,
    TextLayout,
    TextLines,
    can_cut_together,
    cut_together,
)
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy, true_mask
from headrace.model.expressions.columns import SourceFields
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.typing import constant_to_json
from headrace.pipeline.sources import CsvDialect
from headrace_snapshots.names import relanded_file


@dataclass(frozen=True)
class CsvLines(TextFormat):
    """CSV with a header, which names the columns, in a ``dialect``. Where records do not ``span_lines`` each line break
    ends one.
    """

    name, suffix, has_header, rules = "CSV", ".csv", True, 1
    dialect: CsvDialect = field(default_factory=CsvDialect)
    span_lines: bool = True

    @property
    def layout(self) -> TextLayout:
        return csv_dialect.layout_of(self.dialect, span_lines=self.span_lines)

    @property
    def _quotes(self) -> Quotes | None:
        return self.layout.quotes

    @property
    def is_as_before(self) -> bool:
        """Where records do not span lines."""
        return not self.span_lines

    def by_rules(self, rules: int) -> "CsvLines":
        """Up to 0.1.2 records were lines."""
        return replace(self, span_lines=False)

    def in_dialect(self, dialect: CsvDialect) -> "CsvLines":
        return replace(self, dialect=dialect)

    def read(
        self, data: bytes, fields: SourceFields, required: RequiredColumns, path: str, span: Span
    ) -> ScannedRecords:
        """The records of ``span``. Raises DialectError for a file of another dialect, too."""
        try:
            return super().read(data, fields, required, path, span)
        except file_format.DialectError:
            raise
        except file_format.FileColumnsError:
            text = self.layout.decode_file(self.unpacked(data, path), path)
            csv_dialect.check_preamble(text, self.layout, self.dialect, fields, path)
            raise

    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: RequiredColumns, path: str
    ) -> ScannedRecords:
        """``lines`` as records. Raises FileColumnsError if the header names a column of ``fields`` twice, too."""
        assert header is not None
        if self._quotes is not None and self._quotes.are_open_behind(header):
            raise file_format.UnreadableFileError(path, "a quote in its header is not closed")
        columns = csv_dialect.header_of(header, fields, self.dialect, path)
        required.check(columns.names, columns.stored, path, "header")
        return self._scan_records(lines, columns, fields)

    def read_together(
        self, files: Sequence[tuple[str, bytes]], fields: SourceFields, required: RequiredColumns
    ) -> ScannedFiles:
        """Small files as one text for each header that several of them have. Alone are read those whose header is
        wrong, that leave a quote open or escape something.
        """
        texts = None if self.is_as_before else self.texts_of(files)[0]
        if texts is None:
            return super().read_together(files, fields, required)
        records = cut_together([text if can_cut_together(text, self.layout) else b"" for text in texts], self.layout)
        by_header: dict[bytes, list[int]] = {}
        nonempty_files = np.flatnonzero(records.lengths)
        headers = records.lines.text.take(pa.array(records.starts[nonempty_files])).to_pylist()
        for number, line in zip(nonempty_files.tolist(), headers, strict=True):
            by_header.setdefault(line, []).append(number)
        lone_files = {*range(len(files))}
        parts: list[tuple[Sequence[int], ScannedFiles]] = []
        for line, numbers in by_header.items():
            header = self._find_header(line, fields, required) if len(numbers) > 1 else None
            if header is not None:
                own = [(files[number][0], texts[number]) for number in numbers]
                parts.append((numbers, self._scan_joined(own, records.select_files(numbers), header, fields)))
                lone_files.difference_update(numbers)
        rest = sorted(lone_files)
        if rest:
            parts.append((rest, super().read_together([files[number] for number in rest], fields, required)))
        return file_format.join_scanned_files(parts)

    def _find_header(
        self, line: bytes, fields: SourceFields, required_columns: RequiredColumns
    ) -> csv_dialect.Header | None:
        """The header ``line``; None where it is wrong, which each file says of itself."""
        try:
            header = csv_dialect.header_of(line, fields, self.dialect, "")
            required_columns.check(header.names, header.stored, "", "header")
        except file_format.UnreadableFileError:
            return None
        return header

    def _scan_joined(
        self,
        texts: Sequence[tuple[str, bytes]],
        joined_lines: JoinedLines,
        header: csv_dialect.Header,
        fields: SourceFields,
    ) -> ScannedFiles:
        """Files with one ``header``, of which these are names, ``texts``, and the ``joined_lines`` lines."""
        unreadable: dict[int, file_format.UnreadableFileError] = {}
        for number in np.flatnonzero(
            joined_lines.lengths > csv_dialect.FEW_RECORDS
        ).tolist():  # the beginning of others says nothing
            path, text = texts[number]
            try:
                if relanded_file(path) is None:
                    self.check_beginning(text, header.line, fields, path)
            except file_format.UnreadableFileError as error:
                unreadable[number] = error
        joined_lines = joined_lines.without_files(unreadable)
        joined_lines = joined_lines.where(true_mask(pc.not_equal(joined_lines.lines.text, header.line)))
        records = self._scan_records(joined_lines.lines, header, fields)
        return ScannedFiles(records, joined_lines.lengths, (None,) * len(texts), unreadable)

    def check_beginning(self, text: bytes, header: bytes, fields: SourceFields, path: str) -> None:
        csv_dialect.check_body(text, header, self.dialect, {field.place for field in fields.values()}, path)

    def _scan_records(self, lines: TextLines, header: csv_dialect.Header, fields: SourceFields) -> ScannedRecords:
        """Records of the lines after ``header``; a repetition of it is not a record either."""
        lines = lines.where(as_numpy(pc.not_equal(lines.text, arrow_scalar(header.line))))
        if not len(lines):
            return file_format.nothing(fields)
        not_text = file_format.NOT_UTF8 if self.dialect.encoding == UTF8 else f"not {self.dialect.encoding}"
        parse_errors = pc.if_else(pa.array(lines.is_utf8), pa.scalar(None, pa.string()), arrow_scalar(not_text))
        quoting = csv_dialect.Quoting(self.dialect)
        judged_lines = csv_dialect.JudgedLines.from_lines(lines, quoting, self._quotes)
        for reason, rows in judged_lines.misread.items():
            if rows.any():
                parse_errors = pc.if_else(pa.array(rows), arrow_scalar(reason), parse_errors)
        reading = _CsvReading(lines, header, quoting)
        is_read = true_mask(parse_errors.is_null())
        reading.parse_lines(np.flatnonzero(is_read & judged_lines.is_plain))
        reading.parse_alone(np.flatnonzero(is_read & ~judged_lines.is_plain))
        fits = reading.has_fields()
        misfits = as_numpy(parse_errors.is_null()) & ~fits
        if misfits.any():
            why = arrow_scalar(f"not {header.width} fields, as the header has")
            parse_errors = pc.if_else(pa.array(misfits), why, parse_errors)
        texts = plain_numbers({name: reading.text_column(name) for name in fields}, fields, self.dialect)
        columns, parse_errors = typed(texts, parse_errors, fields, list(DataType), is_iso_alone=self.is_as_before)
        return ScannedRecords(columns, parse_errors, lines.position, lambda rows: lines.text.take(pa.array(rows)))

    def stands_alone(self, record: bytes) -> bool:
        """Whether the ``record`` leaves no quote open, in which others would be, and the encoding has its letters."""
        is_closed = self._quotes is None or not self._quotes.are_open_behind(record)
        return is_closed and self.layout.can_store(record)

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """The places of ``fields`` as header, and a line for each record."""
        try:
            header = self._format_row([field.place for field in fields.values()])
            lines = [header, *(self._format_record(record, fields, header) for record in records)]
        except csv.Error as error:
            raise ValueError(f"a value cannot be written in this dialect of CSV: {error}") from error
        return self.layout.encode_lines("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))

    def _format_record(self, record: Mapping[str, Any] | str, fields: SourceFields, header: str) -> str:
        if isinstance(record, str):
            return record
        values = [self._format_value(record.get(name)) for name in fields]
        line = self._format_row(values)
        is_record = line.strip(self.layout.blanks) and line != header  # in quotes it is one
        return line if is_record or self.dialect.quote is None else self._format_row(values, csv.QUOTE_ALL)

    def _format_row(self, values: Sequence[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> str:
        line, dialect = io.StringIO(), self.dialect
        csv.writer(
            line,
            lineterminator="\r\n",  # what is in it is put in quotes
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            escapechar=dialect.escape,
            quoting=csv.QUOTE_NONE if dialect.quote is None else quoting,
        ).writerow(values)
        return line.getvalue().removesuffix("\r\n")

    def _format_value(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, list):
            return json.dumps(value, ensure_ascii=False, allow_nan=False, default=constant_to_json)
        if isinstance(value, bool):
            return "true" if value else "false"
        text = str(constant_to_json(value))
        return text.replace(".", self.dialect.decimal) if isinstance(value, float | Decimal) else text


CSV: Final = CsvLines()


class _CsvReading:
    """Lines on their way to columns of text."""

    def __init__(self, lines: TextLines, header: csv_dialect.Header, quoting: csv_dialect.Quoting) -> None:
        self.lines, self.header, self.quoting = lines, header, quoting
        self.nulls = ["", *quoting.dialect.nulls]
        self.tables: list[pa.Table] = []
        self.rows: list[Ints] = []

    def parse_lines(self, rows: Ints) -> None:
        """Parse those lines, each of which holds its quotes."""
        if not len(rows):
            return
        block = self._parse_block(rows)
        if block is not None:
            table, fits = block
            self.tables.append(table)
            self.rows.append(rows[fits])
        elif len(rows) > 1:
            middle = len(rows) // 2
            self.parse_lines(rows[:middle])
            self.parse_lines(rows[middle:])

    def parse_alone(self, rows: Ints) -> None:
        """Parse those lines one by one."""
        records = [self.quoting.split_record(self.lines.text[row].as_py().decode()) for row in rows.tolist()]
        fits = np.array([len(fields) == self.header.width for fields in records], np.bool_)
        if fits.any():
            columns = zip(*(fields for fields in records if len(fields) == self.header.width), strict=True)
            arrays = [
                pa.array([None if value in self.nulls else value for value in column], pa.string())
                for column in columns
            ]
            self.tables.append(pa.table(arrays, names=[_field_name(i) for i in range(self.header.width)]))
            self.rows.append(rows[fits])

    def has_fields(self) -> NDArray[np.bool_]:
        """Which lines have as many fields as the header."""
        fits = np.zeros(len(self.lines), np.bool_)
        for rows in self.rows:
            fits[rows] = True
        return fits

    def text_column(self, name: str) -> pa.Array:
        """A column of text, NULL in lines that were not parsed."""
        if name not in self.header.stored or not self.tables:
            return pa.nulls(len(self.lines), pa.string())
        chunks = [
            chunk for table in self.tables for chunk in table.column(_field_name(self.header.stored[name])).chunks
        ]
        whole = pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
        rows = np.concatenate(self.rows)
        if len(rows) == len(self.lines) and (np.diff(rows) == 1).all():
            return whole
        place = np.full(len(self.lines), -1, np.int64)
        place[rows] = np.arange(len(rows))
        return whole.take(pa.array(place, mask=place < 0))

    def _parse_block(self, rows: Ints) -> tuple[pa.Table, NDArray[np.bool_]] | None:
        """The records of a block of lines, and which lines have its fields; None if lines ran together."""
        text = self.lines.text if len(rows) == len(self.lines) else self.lines.text.take(pa.array(rows))
        joined_text = pc.binary_join_element_wise(text, arrow_scalar(b"\n"), arrow_scalar(b""))
        offsets = np.frombuffer(joined_text.buffers()[1], np.int32)[joined_text.offset :]
        block = joined_text.buffers()[2].slice(int(offsets[0]), int(offsets[len(joined_text)] - offsets[0]))
        fits = np.ones(len(rows), np.bool_)
        odd: list[int] = []

        def skip_misfit(row: pcsv.InvalidRow) -> str:
            odd.append(row.number)
            return "skip"

        dialect = self.quoting.dialect
        names = [_field_name(i) for i in range(self.header.width)]
        # no name at all would mean all columns
        wanted_names = [_field_name(i) for i in sorted(set(self.header.stored.values()))] or names[:1]
        try:
            table = pcsv.read_csv(
                pa.BufferReader(block),
                read_options=pcsv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
                parse_options=pcsv.ParseOptions(
                    delimiter=dialect.delimiter,
                    quote_char=dialect.quote or False,
                    escape_char=dialect.escape or False,
                    ignore_empty_lines=False,
                    invalid_row_handler=skip_misfit,
                ),
                convert_options=pcsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=self.nulls,
                    strings_can_be_null=True,
                    include_columns=wanted_names,
                    check_utf8=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows + len(odd) != len(rows):
            return None
        fits[np.array(odd, np.int64) - 1] = False
        return table, fits


def _field_name(number: int) -> str:
    return f"_c{number}"


_NO_NUMBER = "?"
_NUMBER_KINDS = (DataType.INT, DataType.FLOAT, DataType.DECIMAL)


def plain_numbers(texts: Mapping[str, pa.Array], fields: SourceFields, dialect: CsvDialect) -> dict[str, pa.Array]:
    """``texts`` with numbers of columns of numbers as they are written with a point and without groups."""
    if (dialect.decimal, dialect.thousands) == (".", None):
        return {**texts}
    return {
        name: _plain_number_texts(text, dialect) if fields[name].type in _NUMBER_KINDS else text
        for name, text in texts.items()
    }


def _plain_number_texts(text: pa.Array, dialect: CsvDialect) -> pa.Array:
    if dialect.thousands is not None:
        group = re.escape(dialect.thousands)
        grouped_number = rf"^\s*[+-]?[0-9]{{1,3}}({group}[0-9]{{3}})+({re.escape(dialect.decimal)}[0-9]*)?\s*$"
        is_grouped = pc.match_substring_regex(text, grouped_number)
        text = pc.if_else(is_grouped, pc.replace_substring(text, dialect.thousands, ""), text)
    if dialect.decimal == ",":
        has_point = pc.match_substring(text, ".")  # which parts nothing here
        text = pc.if_else(has_point, arrow_scalar(_NO_NUMBER), pc.replace_substring(text, ",", "."))
    return text
