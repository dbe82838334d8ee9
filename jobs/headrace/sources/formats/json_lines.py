"""JSON lines: a record is one JSON object on one line (docs/judging.md).

A block of lines is parsed at once. Where that fails it is cut in half, down to the lines that are to blame, each of
which is then looked at for its reason: so Python sees the lines that do not parse, and few others.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from headrace.kernel.expressions.decimals import SHORT
from headrace.kernel.expressions.text_casts import read_text
from headrace.kernel.grouping import Ints, truths
from headrace.kernel.types import ARROW_TYPES
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import constant_to_json
from headrace.sources.formats.fields import typed
from headrace.sources.formats.lines import TextLines
from headrace.sources.formats.scan import NOT_UTF8, Scanned, misfit
from headrace.sources.formats.text_format import TextFormat
from headrace.sources.required_columns import Required, nearest

_NO_OBJECT, _LONE = "not a JSON object", "a lone surrogate"
_FROM_TEXT = (DataType.TIMESTAMP, DataType.DATE, DataType.BYTES)
_STORED = {**ARROW_TYPES, **dict.fromkeys(_FROM_TEXT, pa.string())}
_LIMIT = 2**63
_LONGEST = 300
"""So many characters are an integer that a double can be near to."""

_WHOLE = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_DEEPEST = 600
"""How deep a record may be nested: its parser takes more, others do not."""

_STRING = re.compile(rb'"(\\.|[^"\\])*"')
_NOT_FINITE = r"[:,\[]\s*-?(NaN|Inf)"
"""What JSON has no words for."""

_LONG_NUMBER = rf'[0-9.]{{{SHORT + 1}}}|[:\s"][+-]?[0-9.]+[eE]\+?[0-9]|\\u00'
"""Numbers, and strings that may be some, of which the parser of blocks makes other ones if a decimal does not hold
them: it wraps.
"""


class JsonLines(TextFormat):
    """JSON lines. A record may leave out what is NULL, so no column is required of a file."""

    name, suffix = "JSON", ".jsonl"

    def read_lines(
        self, lines: TextLines, header: bytes | None, schema: Schema, required: Required, path: str
    ) -> Scanned:
        """``lines`` as records, which say what of the ``required`` columns none of them has."""
        records = _records(lines, schema)
        return replace(records, lacks=_lacking(records, required.columns, lines))

    def written(self, records: Sequence[Mapping[str, Any] | str], schema: Schema) -> bytes:
        """An object on each line, or the text of the line."""
        return "".join(f"{_spelled(record)}\n" for record in records).encode(errors="surrogateescape")


JSON: Final = JsonLines()


def _records(lines: TextLines, schema: Schema) -> Scanned:
    stored = pa.schema([(name, _STORED[kind]) for name, kind in schema.items()])
    parsed = _Reading(lines, schema, stored).columns()
    columns, unparsed = typed(parsed.columns, parsed.unparsed, schema, _FROM_TEXT)
    return Scanned(columns, unparsed, lines.position, lambda rows: lines.text.take(pa.array(rows)))


def _lacking(records: Scanned, wanted: Collection[str], lines: TextLines) -> dict[str, str | None] | None:
    """The ``wanted`` columns that no record has, not even as null, each with the most similar name in the first record.
    None if no record parses, which says nothing. ``records`` were parsed from ``lines``.
    """
    parses = np.flatnonzero(records.unparsed.is_null().to_numpy(zero_copy_only=False))
    if not len(parses):
        return None
    empty = [name for name in wanted if records.columns[name].null_count == len(records)]
    missing = [name for name in empty if not _is_written(name, lines)]
    names = json.loads(lines.text[int(parses[0])].as_py()) if missing else {}
    return {name: nearest(name, names) for name in missing}


def _is_written(name: str, lines: TextLines) -> bool:
    """Whether ``name`` stands in quotes in any of ``lines``."""
    written = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    return any(pc.any(pc.match_substring(lines.text, text.encode())).as_py() for text in written)


@dataclass(frozen=True)
class _Found:
    columns: dict[str, pa.Array]
    unparsed: pa.Array


class _Reading:
    """Lines on their way to columns: those that a block gave, and those that were looked at alone."""

    def __init__(self, lines: TextLines, schema: Schema, stored: pa.Schema) -> None:
        self.lines, self.schema, self.stored = lines, schema, stored
        self.tables: list[pa.Table] = []
        self.rows: list[Ints] = []
        self.alone: list[int] = []

    def columns(self) -> _Found:
        may_be_whole = self._may_be_whole()
        self.alone += np.flatnonzero(~may_be_whole).tolist()
        self._parse(np.flatnonzero(may_be_whole))
        judged = [_judged(self.lines.text[row].as_py(), self.schema) for row in self.alone]
        values = [record if isinstance(record, dict) else {} for record in judged]
        reasons = [record if isinstance(record, str) else None for record in judged]
        alone = [pa.array([value.get(f.name) for value in values], f.type) for f in self.stored]
        order = np.argsort(np.concatenate([*self.rows, np.array(self.alone, np.int64)]), kind="stable")
        parsed = sum(len(rows) for rows in self.rows)
        unparsed = pa.concat_arrays([pa.nulls(parsed, pa.string()), pa.array(reasons, pa.string())])
        in_order = None if (np.diff(order) == 1).all() else pa.array(order)
        columns = {}
        for field, own in zip(self.stored, alone, strict=True):
            chunks = [chunk for table in self.tables for chunk in table.column(field.name).chunks]
            whole = pa.concat_arrays([*chunks, own])
            columns[field.name] = whole if in_order is None else whole.take(in_order)
        return _Found(columns, unparsed if in_order is None else unparsed.take(in_order))

    def _may_be_whole(self) -> NDArray[np.bool_]:
        """Which lines look like an object; the parser of blocks would take, or choke on, some of the others."""
        text = self.lines.text
        like = pc.and_(pc.starts_with(text, b"{"), pc.ends_with(text, b"}"))
        candidates: NDArray[np.bool_] = self.lines.is_utf8 & truths(like)
        if (spaced := self.lines.is_utf8 & ~candidates).any():  # blanks around it
            trimmed = pc.ascii_trim(text.filter(pa.array(spaced)).cast(pa.string()), " \t")
            like = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
            candidates[spaced] = like.to_numpy(zero_copy_only=False)
        brackets = pc.add(pc.count_substring(text, b"["), pc.count_substring(text, b"{"))
        candidates &= pc.less_equal(brackets, _DEEPEST).to_numpy(zero_copy_only=False)
        for pattern in (_NOT_FINITE, _LONG_NUMBER) if DataType.DECIMAL in self.schema.values() else (_NOT_FINITE,):
            if candidates.any():
                odd = pc.match_substring_regex(text.filter(pa.array(candidates)).cast(pa.string()), pattern)
                candidates[candidates] = ~odd.to_numpy(zero_copy_only=False)
        return candidates

    def _parse(self, rows: Ints) -> None:
        if not len(rows):
            return
        table = self._block(rows)
        if table is not None:
            self.tables.append(table)
            self.rows.append(rows)
        elif len(rows) == 1:
            self.alone.append(int(rows[0]))
        else:
            middle = len(rows) // 2
            self._parse(rows[:middle])
            self._parse(rows[middle:])

    def _block(self, rows: Ints) -> pa.Table | None:
        """The table of a block of lines, None if some of them are not one record each."""
        text = self.lines.text if len(rows) == len(self.lines) else self.lines.text.take(pa.array(rows))
        broken = pc.binary_join_element_wise(text, b"\n", b"")
        start = broken.offset
        offsets = np.frombuffer(broken.buffers()[1], np.int32)
        block = broken.buffers()[2].slice(int(offsets[start]), int(offsets[start + len(broken)] - offsets[start]))
        read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse = pj.ParseOptions(explicit_schema=self.stored, unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(pa.BufferReader(block), read_options=read, parse_options=parse)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return table if table.num_rows == len(rows) else None


# --- for unit tests


def _spelled(record: Mapping[str, Any] | str) -> str:
    return record if isinstance(record, str) else json.dumps(record, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, date | bytes | Decimal):  # a datetime is a date
        return str(constant_to_json(value))
    raise ValueError(f"{shown(value)} cannot be written as JSON; write it as a file of the source would hold it")


# --- one line


def _judged(line: bytes, schema: Schema) -> dict[str, Any] | str:
    """The columns of one line, or why it is not a record."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
    if _HALF.search(_WHOLE.sub(" ", text)):
        return _LONE
    try:
        record = _parsed(text) if _depth(line) <= _DEEPEST else None
    except ValueError:
        return _NO_OBJECT
    if not isinstance(record, dict):
        return _NO_OBJECT
    for name, kind in schema.items():
        if not _FITS[kind](record.get(name)):
            return misfit(name, kind)
    return {name: _value(record.get(name), kind) for name, kind in schema.items()}


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_Float, parse_int=_integer)


class _Float(float):
    """A number with a fraction, or with more digits than doubles have, and how it is written."""

    def __new__(cls, written: str) -> Self:
        number = super().__new__(cls, written)
        number.written = written
        return number

    written: str


class _Int(int):
    """An integer, and how it is written: ``-0`` is a float with a sign."""

    def __new__(cls, written: str) -> Self:
        number = super().__new__(cls, written)
        number.written = written
        return number

    written: str


def _integer(written: str) -> _Int | _Float:
    """An integer; one that no column of integers holds is a float at once."""
    return _Int(written) if len(written) <= _LONGEST else _Float(written)


def _depth(line: bytes) -> int:
    """How deep the brackets of a line are nested, those in strings left out."""
    octets = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens, closes = np.isin(octets, [ord("["), ord("{")]), np.isin(octets, [ord("]"), ord("}")])
    return int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int) and -_LIMIT <= value < _LIMIT


def _decimal_of(value: Any) -> Decimal | None:
    """The decimal that a number, or a string, says."""
    text = value if isinstance(value, str) else value.written
    decimal: Decimal | None = read_text(pa.array([text]), DataType.DECIMAL)[0].as_py()
    return decimal


def _is_decimal(value: Any) -> bool:
    return (_is_number(value) or isinstance(value, str)) and _decimal_of(value) is not None


def _or_null(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_FITS: dict[DataType, Callable[[Any], bool]] = {
    DataType.STRING: _or_null(lambda value: isinstance(value, str)),
    DataType.INT: _or_null(_is_int),
    DataType.FLOAT: _or_null(_is_number),
    DataType.BOOL: _or_null(lambda value: isinstance(value, bool)),
    DataType.DECIMAL: _or_null(_is_decimal),
    **dict.fromkeys(_FROM_TEXT, _or_null(lambda value: isinstance(value, str))),
}


def _value(value: Any, kind: DataType) -> Any:
    if kind is DataType.DECIMAL and value is not None:
        return _decimal_of(value)
    return float(value.written) if kind is DataType.FLOAT and value is not None else value
