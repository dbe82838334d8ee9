"""Fields of one record of CSV, and which records the parser of blocks reads as the rules say (docs/judging.md)."""

import codecs
import csv
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.lines import TextLines
from headrace.formats.quotes import Quotes
from headrace.formats.text_layout import TextLayout
from headrace.kernel.grouping import truths
from headrace.pipeline.csv_dialect import CsvDialect

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
        return self._fields("")

    @cached_property
    def enclosing(self) -> str:
        """The same, with blanks behind quotes."""
        return self._fields(f"[{self.blanks}]*")

    def _fields(self, behind: str) -> str:
        quote, delimiter = re.escape(self.dialect.quote or ""), re.escape(self.dialect.delimiter)
        field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}{behind}|[^{quote}{delimiter}][^{delimiter}]*|)"
        return f"^{field}(?:{delimiter}{field})*$"

    def marks(self, text: pa.Array) -> pa.Array:
        """Records with escaped characters as others, which mean nothing."""
        if self.dialect.escape is None:
            return text
        return pc.replace_substring_regex(text, f"(?s){re.escape(self.dialect.escape)}.", "xx")

    def header(self, line: str) -> list[str]:
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

    def fields(self, record: str) -> list[str]:
        """The fields of one record. Quotes that begin a field and do not enclose it are part of it."""
        escape = self.dialect.escape
        marks = record if escape is None else re.sub(f"(?s){re.escape(escape)}.", "xx", record)
        fields, start = [], 0
        while start <= len(record):
            is_quoted = self.dialect.quote is not None and marks.startswith(self.dialect.quote, start)
            value, end = self._quoted(record, marks, start) if is_quoted else self._plain(record, marks, start)
            fields.append(value if escape is None else re.sub(f"(?s){re.escape(escape)}(.)", r"\1", value))
            start = end + 1
        return fields

    def _plain(self, record: str, marks: str, start: int) -> tuple[str, int]:
        end = marks.find(self.dialect.delimiter, start)
        end = len(marks) if end < 0 else end
        return record[start:end], end

    def _quoted(self, record: str, marks: str, start: int) -> tuple[str, int]:
        """The field that begins with a quote at ``start``, and where it ends."""
        character = self.dialect.quote or ""
        inside, at = "", start + 1
        while (quote := marks.find(character, at)) >= 0:
            inside += record[at:quote]
            if marks.startswith(character, quote + 1):
                inside, at = inside + character, quote + 2
                continue
            behind = quote + 1 + len(marks[quote + 1 :]) - len(marks[quote + 1 :].lstrip(self.blanks))
            if behind == len(marks) or marks[behind] == self.dialect.delimiter:
                return inside, behind
            rest, end = self._plain(record, marks, quote)
            return f"{character}{inside}{rest}", end
        return (inside + record[at:]) or character, len(record)


@dataclass(frozen=True)
class JudgedLines:
    """Which lines that are text the parser of blocks reads as the rules say (``is_plain``), by their quotes; and which
    are ``misread``, by reason.
    """

    is_plain: NDArray[np.bool_]
    misread: dict[str, NDArray[np.bool_]]

    @classmethod
    def of(cls, lines: TextLines, quoting: Quoting, spanning: Quotes | None) -> "JudgedLines":
        """``spanning`` quotes hold line breaks; None: a line break ends each record."""
        is_plain = ~truths(pc.starts_with(lines.text, codecs.BOM_UTF8))  # which the parser leaves out before a block
        is_open, is_loose, is_odd = (np.zeros(len(lines), np.bool_) for _ in range(3))
        if (quote := quoting.dialect.quote) is not None:
            quotes = pc.count_substring(lines.text, quote.encode()).to_numpy(zero_copy_only=False)
            quoted = (quotes > 0) & lines.is_utf8
            if quoted.any():
                if quoting.dialect.escape is not None:
                    marks = quoting.marks(lines.text.filter(pa.array(quoted)).cast(pa.string()))
                    quotes = np.zeros(len(lines), np.int64)
                    quotes[quoted] = pc.count_substring(marks, quote).to_numpy(zero_copy_only=False)
                is_plain &= ~quoted | _match(lines, quoting, quoted, quoting.plain)
                is_loose = _match(lines, quoting, quoted & ~is_plain, r"[\r\n]")
                is_loose &= ~_match(lines, quoting, is_loose, quoting.enclosing)
                is_odd = quoted & (quotes % 2 != 0)
                if spanning is not None and quoted[-1]:  # behind others none is
                    is_open[-1] = spanning.are_open_behind(lines.text[-1].as_py())
        return cls(is_plain, {LOOSE: is_loose, ODD: is_odd, OPEN: is_open})


def _match(lines: TextLines, quoting: Quoting, rows: NDArray[np.bool_], pattern: str) -> NDArray[np.bool_]:
    """Which of ``rows``, which are text, match ``pattern``."""
    matching = rows.copy()
    if rows.any():
        text = lines.text if rows.all() else lines.text.filter(pa.array(rows))
        matching[rows] = truths(pc.match_substring_regex(quoting.marks(text.cast(pa.string())), pattern))
    return matching
