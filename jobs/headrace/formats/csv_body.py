"""What the first records of a CSV file say of its dialect, where its header says nothing: an encoding, quotes.

A file is judged at its beginning, whichever piece of it is read. One that is bad in part keeps its dead letters.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.csv_header import DELIMITERS, QUOTES, changed, literal, named
from headrace.formats.csv_quoting import Quoting, layout_of
from headrace.formats.errors import DialectError
from headrace.formats.lines import TextLines, cut
from headrace.formats.text_layout import UTF8, TextLayout
from headrace.pipeline.csv_dialect import CsvDialect

_SAMPLE_BYTES: Final = 65536
_MOST, _LEAST = 100, 20
"""How many records are looked at, and how many say something."""

_OTHER_ENCODING: Final = "cp1252"


def check_body(text: bytes, header: bytes, dialect: CsvDialect, places: Collection[str], path: str) -> None:
    """Raise DialectError if the first records of ``text`` behind its ``header`` are of another dialect. ``places`` are
    columns of the source.
    """
    records = _records(text, header, layout_of(dialect))
    if len(records) < _LEAST:
        return
    _check_encoding(records, dialect, path)
    other = _fitting_dialect(text, header, records, dialect)
    if other is not None:
        raise _wrong_fields(header, dialect, other, places, path)


def _records(text: bytes, header: bytes, layout: TextLayout) -> TextLines:
    """The records at the beginning of a file that end there."""
    begin = layout.begin(text)
    end = min(begin + _SAMPLE_BYTES, len(text))
    lines = cut(text, (begin, end), layout)
    whole = lines if end == len(text) else lines.first(max(len(lines) - 1, 0))
    return whole.where(pc.not_equal(whole.text, header).to_numpy(zero_copy_only=False)).first(_MOST)


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
            path, f'{wrong_encoding}: write encoding="{_OTHER_ENCODING}" in the source, or what they are'
        )
    raise DialectError(path, f"{wrong_encoding}: write the encoding= in the source that they have")


def _is_text(record: bytes) -> bool:
    try:
        record.decode(_OTHER_ENCODING)
    except UnicodeDecodeError:
        return False
    return True


def _fitting_dialect(text: bytes, header: bytes, records: TextLines, dialect: CsvDialect) -> CsvDialect | None:
    """The dialect in which all records have the fields of the header, if most have not in this one."""
    wanted = len(Quoting(dialect).header(header.decode()))
    if wanted < 2 or _fitting(records, dialect, wanted) * 2 >= len(records):
        return None
    for other in _others(dialect):
        read = _records(text, header, layout_of(other))
        if len(read) >= _LEAST and _fitting(read, other, wanted) == len(read):
            return other
    return None


def _wrong_fields(
    header: bytes, dialect: CsvDialect, other: CsvDialect, places: Collection[str], path: str
) -> DialectError:
    options = ", ".join(f"{name}={literal(value)}" for name, value in changed(dialect, other))
    most = "most of its first records have not as many fields as the header"
    if named(header.decode(), places, other):
        return DialectError(path, f"{most}, and all have if read otherwise: write {options}")
    return DialectError(path, f"{most}, and all have with {options}, by which the header names no column of the source")


def _others(dialect: CsvDialect) -> Iterator[CsvDialect]:
    """Dialects near this one, the nearest first."""
    delimiters = [dialect.delimiter, *(one for one in DELIMITERS if one != dialect.delimiter)]
    quotes = [dialect.quote, *(one for one in QUOTES if one != dialect.quote)]
    for delimiter, quote, escape in product(delimiters, quotes, dict.fromkeys((dialect.escape, "\\"))):
        if len({delimiter, quote, escape}) == 3 and (quote is not None or escape is None):
            other = replace(dialect, delimiter=delimiter, quote=quote, escape=escape)
            if other != dialect:
                yield other


def _fitting(records: TextLines, dialect: CsvDialect, wanted: int) -> int:
    """How many records have as many fields as are ``wanted``."""
    quoting = Quoting(dialect)
    texts = records.text.filter(pa.array(records.is_utf8)).to_pylist()
    return sum(len(quoting.fields(record.decode())) == wanted for record in texts)
