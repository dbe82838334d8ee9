"""JSON: lines, and files of other shapes. A record is one JSON object.

JSON that is not lines of one record each: arrays, records over several lines or one behind the other, other
encodings. Such a file is refused, since its records would be one dead letter together, or one for each line.

JSON lines: a record is one JSON object on one line (docs/judging.md).

A block of lines is parsed at once. Where that fails it is cut in half, down to the lines that are to blame, each of
which is then looked at for its reason: so Python sees the lines that do not parse, and few others.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from headrace.formats import fields as formats_fields
from headrace.formats import file_format
from headrace.formats.compression import what_is
from headrace.formats.fields import parsed
from headrace.formats.lines import JoinedLines, TextFormat, TextLines, cut_together
from headrace.kernel.columns import Ints, as_numpy, constant, truths
from headrace.kernel.expressions.decimals import SHORT
from headrace.kernel.expressions.string_bytes import are_text
from headrace.model.arguments import shown
from headrace.model.expressions.columns import SourceField, SourceFields, in_objects
from headrace.model.expressions.data_types import DataType, ListType
from headrace.model.expressions.typing import constant_to_json
from headrace_snapshots.names import relanded

_ONE_A_LINE: Final = "land each record on a line of its own (jq -c {})"
_ARRAY_OF_OBJECTS: Final = re.compile(rb"\s*\[\s*\{")
_BEHIND_EACH_OTHER: Final = re.compile(rb"\}[ \t,]*\{")
_BETWEEN: Final = re.compile(r"[ \t\r,]*")
_STRING: Final = re.compile(rb'"(?:\\.|[^"\\])*"')
_LONG: Final = 65536
"""A line that begins as an array of records and is so long is one of several."""

_GOES_ON: Final = (b"{", b"[", b",")
"""How a line ends on which a record does not."""

_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"\0\0\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")


def check_json_lines(lines: TextLines, first: TextLines, path: str) -> None:
    """Raise UnreadableFileError if the ``first`` line of a file, or one of the ``lines`` that were cut of it, is more
    than one record, or a part of a larger value.
    """
    if len(first):
        _check_first(first.text[0].as_py(), path)
        if len(lines) == 1 and lines.position[0] == first.position[0]:
            _check_only(lines.text[0].as_py(), path)
    for row in _arrays(lines):
        if (count := _records_in(lines.text[int(row)].as_py())) is not None:
            raise file_format.UnreadableFileError(
                path,
                f"its line {lines.position[row]} is an array of {count} records: {_ONE_A_LINE.format(repr('.[]'))}",
            )


def _doubtful_files(joined: JoinedLines) -> list[int]:
    """The files that ``check_json_lines`` may refuse; it finds nothing in the others."""
    filled = np.flatnonzero(joined.lengths)
    starts = joined.starts
    first = joined.lines.text.take(pa.array(starts[filled]))
    is_plain = truths(pc.and_(pc.starts_with(first, b"{"), pc.ends_with(first, b"}")))
    is_plain &= ~truths(pc.starts_with(first, b"{\0"))
    doubtful = {*filled[~is_plain].tolist()}
    doubtful |= {*(np.searchsorted(starts, _arrays(joined.lines), "right") - 1).tolist()}
    for number in np.flatnonzero(joined.lengths == 1).tolist():
        if _BEHIND_EACH_OTHER.search(joined.lines.text[int(starts[number])].as_py()):
            doubtful.add(number)
    return sorted(doubtful)


def stands_alone(line: bytes) -> bool:
    """Whether a file in which a ``line`` stands, first or alone or behind others, is lines of records."""
    lines = TextLines(pa.array([line], pa.binary()), np.zeros(1, np.int64), np.ones(1, np.bool_))
    try:
        check_json_lines(lines, lines, "")
    except file_format.UnreadableFileError:
        return False
    return what_is(line) is None


def _check_first(line: bytes, path: str) -> None:
    if line.startswith(_OTHER_ENCODINGS):
        raise file_format.UnreadableFileError(path, "it is UTF-16 or UTF-32, and JSON is read as UTF-8")
    line = line.strip(b" \t")
    is_array = line.startswith(b"[")
    if (is_array or (line.startswith(b"{") and line.endswith(_GOES_ON))) and _goes_on(line):
        what, filter_ = ("an array", ".[]") if is_array else ("an object", ".")
        raise file_format.UnreadableFileError(
            path, f"it is JSON of which {what} goes over several lines: {_ONE_A_LINE.format(repr(filter_))}"
        )


def _check_only(line: bytes, path: str) -> None:
    """Raise UnreadableFileError if the only line of a file is several records, one behind the other."""
    if _BEHIND_EACH_OTHER.search(line) and (count := sum(1 for _ in _objects(line))) > 1:
        raise file_format.UnreadableFileError(
            path, f"its only line has {count} records one behind the other: {_ONE_A_LINE.format('.')}"
        )


def _goes_on(line: bytes) -> bool:
    """Whether brackets are open at the end of a line."""
    if len(line) > _LONG and _ARRAY_OF_OBJECTS.match(line):
        return False  # as one line of several records it is found later
    marks = _STRING.sub(b"", line)
    return marks.count(b"{") + marks.count(b"[") > marks.count(b"}") + marks.count(b"]")


def _arrays(lines: TextLines) -> Ints:
    """The lines that begin as an array."""
    text = lines.text
    like = truths(pc.starts_with(text, b"["))
    blank = truths(pc.or_(pc.starts_with(text, b" "), pc.starts_with(text, b"\t")))
    blank &= lines.is_utf8
    if blank.any():
        rest = pc.ascii_ltrim(text.filter(pa.array(blank)).cast(pa.string()), " \t")
        like[blank] = truths(pc.starts_with(rest, "["))
    return np.flatnonzero(like & lines.is_utf8)


def _objects(line: bytes) -> Iterator[Any]:
    """The objects that stand one behind the other in ``line``, as far as it is JSON; blanks and commas between them."""
    decoder, at = json.JSONDecoder(), 0
    try:
        text = line.decode()
        while at < len(text):
            value, at = decoder.raw_decode(text, _BETWEEN.match(text, at).end())  # type: ignore[union-attr]
            if isinstance(value, dict):
                yield value
    except (ValueError, RecursionError):
        return


def _records_in(line: bytes) -> int | str | None:
    """How many records a line is that begins as an array; None: one at most, or no JSON."""
    if not _ARRAY_OF_OBJECTS.match(line):
        return None
    if len(line) > _LONG:
        return "many"
    try:
        values = parsed(line.decode())
    except ValueError:
        return None
    count = sum(isinstance(value, dict) for value in values)
    return count if count > 1 else None


_NO_OBJECT, _LONE = "not a JSON object", "a lone surrogate"
_NOT_FINITE = r"[:,\[]\s*-?(NaN|Inf)"
"""What JSON has no words for."""

_LONG_NUMBER = rf'[0-9.]{{{SHORT + 1}}}|[:,\[\s"][+-]?[0-9.]+[eE]\+?[0-9]|\\u00'
"""Numbers, and strings that may be some, of which the parser of blocks makes other ones if a decimal does not hold
them: it wraps.
"""


@dataclass(frozen=True)
class JsonLines(TextFormat):
    """JSON lines. A record may leave out what is NULL, so no column is required of a file."""

    name, suffix, rules = "JSON", ".jsonl", 1
    of_rules: int = 1

    @property
    def is_as_before(self) -> bool:
        """By the first rules."""
        return self.of_rules == 0

    def by_rules(self, rules: int) -> "JsonLines":
        """Files as they were read up to 0.1.2."""
        return replace(self, of_rules=rules)

    def read_lines(
        self,
        lines: TextLines,
        header: bytes | None,
        fields: SourceFields,
        required: file_format.RequiredColumns,
        path: str,
    ) -> file_format.ScannedRecords:
        """``lines`` as records, which say what of the ``required`` columns none of them has."""
        records = _records(lines, fields, is_iso_alone=self.is_as_before)
        return replace(records, lacks=_lacking(records, {name: fields[name] for name in required.columns}, lines))

    def read_together(
        self, files: Sequence[tuple[str, bytes]], fields: SourceFields, required: file_format.RequiredColumns
    ) -> file_format.ScannedFiles:
        """Small files as one text, but for those that are read as up to 0.1.2, or are large once they are unpacked."""
        texts, unreadable = (None, {}) if self.is_as_before else self.texts_of(files)
        if texts is None:
            return super().read_together(files, fields, required)
        joined = cut_together(texts)
        for number in _doubtful_files(joined):
            if relanded(files[number][0]) is None:
                own = joined.of(number)
                try:
                    self.check_lines(own, own.first(1), files[number][0])
                except file_format.UnreadableFileError as error:
                    unreadable[number] = error
        joined = joined.without(unreadable)
        if not len(joined.lines):
            return file_format.ScannedFiles(
                file_format.nothing(fields), joined.lengths, (None,) * len(files), unreadable
            )
        records = _records(joined.lines, fields, is_iso_alone=False)
        wanted = {name: fields[name] for name in required.columns}
        return file_format.ScannedFiles(records, joined.lengths, _lacking_by_file(records, wanted, joined), unreadable)

    def check_lines(self, lines: TextLines, first: TextLines, path: str) -> None:
        """Raise UnreadableFileError for JSON that is not a record on each line."""
        check_json_lines(lines, first, path)

    def stands_alone(self, record: bytes) -> bool:
        """Whether a file with the ``record`` in it is lines of records."""
        return stands_alone(record)

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """An object on each line, or the text of the line."""
        return "".join(f"{_spelled(record, fields)}\n" for record in records).encode(errors="surrogateescape")


JSON: Final = JsonLines()


def _records(lines: TextLines, fields: SourceFields, *, is_iso_alone: bool) -> file_format.ScannedRecords:
    read = _Reading(lines, fields, is_iso_alone).columns()
    columns, unparsed = formats_fields.typed(
        read.columns, read.unparsed, fields, formats_fields.FROM_TEXT, is_iso_alone=is_iso_alone
    )
    return file_format.ScannedRecords(columns, unparsed, lines.position, lambda rows: lines.text.take(pa.array(rows)))


def _lacking(
    records: file_format.ScannedRecords, wanted: SourceFields, lines: TextLines
) -> dict[str, str | None] | None:
    """The ``wanted`` columns that no record has, not even as null, each with the most similar name in the first record,
    in the object where it would be. None if no record parses, which says nothing. ``records`` were parsed from
    ``lines``.
    """
    parses = np.flatnonzero(as_numpy(records.unparsed.is_null()))
    if not len(parses):
        return None
    empty = [name for name in wanted if records.columns[name].null_count == len(records)]
    missing = [name for name in empty if not all(_is_written(part, lines) for part in wanted[name].path)]
    first = json.loads(lines.text[int(parses[0])].as_py()) if missing else {}
    return {name: file_format.nearest(wanted[name].path[-1], _object_of(wanted[name], first)) for name in missing}


def _lacking_by_file(
    records: file_format.ScannedRecords, wanted: SourceFields, joined: JoinedLines
) -> tuple[dict[str, str | None] | None, ...]:
    """What ``_lacking`` says of each file. A column of which some record has a value need not be looked for."""
    filled = np.flatnonzero(joined.lengths)
    starts = joined.starts[filled]
    some_parse = np.logical_or.reduceat(truths(records.unparsed.is_null()), starts)
    lacks: list[dict[str, str | None] | None] = [None] * len(joined.lengths)
    for number in filled[some_parse].tolist():
        lacks[number] = {}
    empty = np.zeros(len(filled), np.bool_)
    for name in wanted:
        if records.columns[name].null_count:
            empty |= ~np.logical_or.reduceat(truths(records.columns[name].is_valid()), starts)
    for place in np.flatnonzero(empty & some_parse).tolist():
        number = int(filled[place])
        rows = slice(int(starts[place]), int(starts[place] + joined.lengths[number]))
        own = replace(
            records,
            columns={name: records.columns[name][rows] for name in wanted},
            unparsed=records.unparsed[rows],
            position=records.position[rows],
        )
        lacks[number] = _lacking(own, wanted, joined.of(number))
    return tuple(lacks)


def _object_of(field: SourceField, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object of ``record`` that would have ``field``; an empty one if there is none."""
    for name in field.path[:-1]:
        record = record.get(name) or {}
    return record


def _is_written(name: str, lines: TextLines) -> bool:
    """Whether ``name`` stands in quotes in any of ``lines``."""
    written = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    return any(pc.any(pc.match_substring(lines.text, text.encode())).as_py() for text in written)


def _nested(fields: SourceFields) -> pa.Schema:
    """What the parser of blocks reads: the fields, in the objects that hold them."""
    objects: dict[str, Any] = {}
    for field in fields.values():
        *outer, last = field.path
        inside = objects
        for name in outer:
            inside = inside.setdefault(name, {})
        inside[last] = formats_fields.stored_type(field.type)

    def members(inside: Mapping[str, Any]) -> list[tuple[str, pa.DataType]]:
        return [(name, pa.struct(members(kind)) if isinstance(kind, dict) else kind) for name, kind in inside.items()]

    return pa.schema(members(objects))


def _leaf(table: pa.Table, field: SourceField) -> list[pa.Array]:
    """The values of a field, NULL where an object that would hold it is."""
    outermost, *inner = field.path
    chunks = table.column(outermost).chunks
    return [pc.struct_field(chunk, inner) for chunk in chunks] if inner else chunks


@dataclass(frozen=True)
class _Found:
    columns: dict[str, pa.Array]
    unparsed: pa.Array


class _Reading:
    """Lines on their way to columns: those that a block gave, and those that were looked at alone."""

    def __init__(self, lines: TextLines, fields: SourceFields, is_iso_alone: bool) -> None:
        self.lines, self.fields, self.nested = lines, fields, _nested(fields)
        self.is_iso_alone = is_iso_alone
        self.tables: list[pa.Table] = []
        self.rows: list[Ints] = []
        self.alone: list[int] = []

    def columns(self) -> _Found:
        may_be_whole = self._may_be_whole()
        self.alone += np.flatnonzero(~may_be_whole).tolist()
        self._parse(np.flatnonzero(may_be_whole))
        judged = [_judged(self.lines.text[row].as_py(), self.fields, self.is_iso_alone) for row in self.alone]
        values = [record if isinstance(record, dict) else {} for record in judged]
        reasons = [record if isinstance(record, str) else None for record in judged]
        order = np.argsort(np.concatenate([*self.rows, np.array(self.alone, np.int64)]), kind="stable")
        parsed = sum(len(rows) for rows in self.rows)
        unparsed = pa.concat_arrays([pa.nulls(parsed, pa.string()), pa.array(reasons, pa.string())])
        in_order = None if (np.diff(order) == 1).all() else pa.array(order)
        columns = {}
        for name, field in self.fields.items():
            alone = pa.array([value.get(name) for value in values], formats_fields.stored_type(field.type))
            whole = pa.concat_arrays([*(chunk for table in self.tables for chunk in _leaf(table, field)), alone])
            columns[name] = whole if in_order is None else whole.take(in_order)
        return _Found(columns, unparsed if in_order is None else unparsed.take(in_order))

    def _may_be_whole(self) -> NDArray[np.bool_]:
        """Which lines look like an object; the parser of blocks would take, or choke on, some of the others."""
        text = self.lines.text
        like = pc.and_(pc.starts_with(text, b"{"), pc.ends_with(text, b"}"))
        candidates: NDArray[np.bool_] = self.lines.is_utf8 & truths(like)
        if (spaced := self.lines.is_utf8 & ~candidates).any():  # blanks around it
            trimmed = pc.ascii_trim(text.filter(pa.array(spaced)).cast(pa.string()), " \t")
            like = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
            candidates[spaced] = as_numpy(like)
        brackets = pc.add(pc.count_substring(text, b"["), pc.count_substring(text, b"{"))
        candidates &= as_numpy(pc.less_equal(brackets, constant(formats_fields.DEEPEST)))
        kinds = {f.type.item if isinstance(f.type, ListType) else f.type for f in self.fields.values()}
        for pattern in (_NOT_FINITE, _LONG_NUMBER) if DataType.DECIMAL in kinds else (_NOT_FINITE,):
            if candidates.any():
                odd = pc.match_substring_regex(text.filter(pa.array(candidates)).cast(pa.string()), pattern)
                candidates[candidates] = ~as_numpy(odd)
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
        broken = pc.binary_join_element_wise(text, constant(b"\n"), constant(b""))
        start = broken.offset
        offsets = np.frombuffer(broken.buffers()[1], np.int32)
        block = broken.buffers()[2].slice(int(offsets[start]), int(offsets[start + len(broken)] - offsets[start]))
        read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parse = pj.ParseOptions(explicit_schema=self.nested, unexpected_field_behavior="ignore")
        try:
            table = pj.read_json(pa.BufferReader(block), read_options=read, parse_options=parse)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        return table if table.num_rows == len(rows) else None


# --- for unit tests


def _spelled(record: Mapping[str, Any] | str, fields: SourceFields) -> str:
    if isinstance(record, str):
        return record
    return json.dumps(in_objects(record, fields), ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, date | bytes | Decimal):  # a datetime is a date
        return str(constant_to_json(value))
    raise ValueError(f"{shown(value)} cannot be written as JSON; write it as a file of the source would hold it")


# --- one line


def _judged(line: bytes, fields: SourceFields, is_iso_alone: bool) -> dict[str, Any] | str:
    """The columns of one line, or why it is not a record."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return file_format.NOT_UTF8
    if formats_fields.has_lone_surrogate(text):
        return _LONE
    try:
        record = parsed(text)
    except ValueError:
        return _NO_OBJECT
    return _values(record, fields, is_iso_alone) if isinstance(record, dict) else _NO_OBJECT


def _values(record: Mapping[str, Any], fields: SourceFields, is_iso_alone: bool) -> dict[str, Any] | str:
    """The columns of a parsed record, or why it does not have them."""
    values: dict[str, Any] = {}
    for name, field in fields.items():
        value: Any = record
        for depth, part in enumerate(field.path):
            if not isinstance(value, dict | None):
                no_object = f"column {field.named(name)}: {'.'.join(field.path[:depth])} is not an object"
                return _misread(values, fields, is_iso_alone) or no_object
            value = None if value is None else value.get(part)
        if not formats_fields.fits(value, field.type):
            return _misread(values, fields, is_iso_alone) or file_format.misfit(name, field)
        values[name] = formats_fields.stored_value(value, field.type)
    return values


def _misread(values: Mapping[str, Any], fields: SourceFields, is_iso_alone: bool) -> str | None:
    """Why the columns before one that does not fit do not read themselves: the first counts."""
    before = {name: fields[name] for name in values}
    columns = {name: pa.array([values[name]], formats_fields.stored_type(field.type)) for name, field in before.items()}
    reason: str | None = formats_fields.typed(
        columns, pa.nulls(1, pa.string()), before, formats_fields.FROM_TEXT, is_iso_alone=is_iso_alone
    )[1][0].as_py()
    return reason


def read_json(
    messages: pa.Array,
    position: Ints,
    fields: SourceFields,
    required: file_format.RequiredColumns,
    path: str,
    *,
    rules: int = JSON.rules,
) -> file_format.ScannedRecords:
    """Read messages, each one JSON object, as records. An empty one, or NULL, does not parse.

    :param messages: a binary column.
    :param position: the number of each message, for dead letters.
    :param fields: the columns that are wanted, and where each is in an object.
    :param required: the columns that must be there.
    :param path: the name of the split, for errors.
    :param rules: the number of the rules of ``JSON`` by which they are judged.
    :returns: the records.
    :raises FileColumnsError: they lack what is required.
    """
    if not len(messages):
        return file_format.nothing(fields)
    octets = messages.fill_null(b"") if messages.null_count else messages
    judge = JSON if rules >= JSON.rules else JSON.by_rules(rules)
    return judge.read_lines(TextLines(octets, position, _is_utf8(octets)), None, fields, required, path)


def _is_utf8(octets: pa.Array) -> NDArray[np.bool_]:
    try:
        pc.cast(octets, pa.string())
    except pa.ArrowInvalid:
        return are_text(octets)
    return np.ones(len(octets), np.bool_)
