"""JSON lines: a record is one JSON object on one line (docs/judging.md). Files of JSON in other shapes are refused.

Other shapes are arrays, records over several lines or one behind the other, and other encodings. The records of such a
file would be one dead letter together, or one for each line (``check_lines``).

A block of lines is parsed at once. Where that fails it is cut in half, down to the lines that are to blame. Each of
these is then looked at for its reason: so Python sees the lines that do not parse, and few others.
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
from headrace.formats.fields import parse_json
from headrace.formats.file_format import RequiredColumns, ScannedFiles, ScannedRecords
from headrace.formats.lines import MOST_BYTES, JoinedLines, TextFormat, TextLines, cut_together
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy, true_mask
from headrace.kernel.expressions.decimals import SHORT
from headrace.kernel.expressions.string_bytes import are_text, entries_type, may_hold_map, with_entries
from headrace.model.arguments import short_repr
from headrace.model.expressions.columns import SourceField, SourceFields, in_objects
from headrace.model.expressions.data_types import DataType, parts_of
from headrace.model.expressions.typing import constant_to_json
from headrace_snapshots.names import relanded_file

_ONE_A_LINE: Final = "land each record on a line of its own (jq -c {})"
_ARRAY_OF_OBJECTS: Final = re.compile(rb"\s*\[\s*\{")
_BEHIND_EACH_OTHER: Final = re.compile(rb"\}[ \t,]*\{")
_BLANKS_AND_COMMAS: Final = re.compile(r"[ \t\r,]*")
_STRING: Final = re.compile(rb'"(?:\\.|[^"\\])*"')
_LONG_LINE_BYTES: Final = 65536
"""A line that begins as an array of records and is so long is one of several."""

_GOES_ON: Final = (b"{", b"[", b",")
"""How a line ends on which a record does not."""

_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"\0\0\xfe\xff", b"{\0", b"[\0", b"\0{", b"\0[")


def _doubtful_files(joined_lines: JoinedLines) -> list[int]:
    """The files that ``check_lines`` may refuse; it finds nothing in the others."""
    nonempty = np.flatnonzero(joined_lines.lengths)
    starts = joined_lines.starts
    first = joined_lines.lines.text.take(pa.array(starts[nonempty]))
    is_plain = true_mask(pc.and_(pc.starts_with(first, b"{"), pc.ends_with(first, b"}")))
    is_plain &= ~true_mask(pc.starts_with(first, b"{\0"))
    doubtful = {*nonempty[~is_plain].tolist()}
    doubtful |= {*(np.searchsorted(starts, _array_lines(joined_lines.lines), "right") - 1).tolist()}
    for number in np.flatnonzero(joined_lines.lengths == 1).tolist():
        if _BEHIND_EACH_OTHER.search(joined_lines.lines.text[int(starts[number])].as_py()):
            doubtful.add(number)
    return sorted(doubtful)


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
    if _BEHIND_EACH_OTHER.search(line) and (count := sum(1 for _ in _objects_in_line(line))) > 1:
        raise file_format.UnreadableFileError(
            path, f"its only line has {count} records one behind the other: {_ONE_A_LINE.format('.')}"
        )


def _goes_on(line: bytes) -> bool:
    """Whether brackets are open at the end of a line."""
    if len(line) > _LONG_LINE_BYTES and _ARRAY_OF_OBJECTS.match(line):
        return False  # as one line of several records it is found later
    marks = _STRING.sub(b"", line)
    return marks.count(b"{") + marks.count(b"[") > marks.count(b"}") + marks.count(b"]")


def _array_lines(lines: TextLines) -> Ints:
    """The lines that begin as an array."""
    text = lines.text
    like = true_mask(pc.starts_with(text, b"["))
    blank = true_mask(pc.or_(pc.starts_with(text, b" "), pc.starts_with(text, b"\t")))
    blank &= lines.is_utf8
    if blank.any():
        rest = pc.ascii_ltrim(text.filter(pa.array(blank)).cast(pa.string()), " \t")
        like[blank] = true_mask(pc.starts_with(rest, "["))
    return np.flatnonzero(like & lines.is_utf8)


def _objects_in_line(line: bytes) -> Iterator[Any]:
    """The objects that stand one behind the other in ``line``, as far as it is JSON; blanks and commas between them."""
    decoder, position = json.JSONDecoder(), 0
    try:
        text = line.decode()
        while position < len(text):
            value, position = decoder.raw_decode(text, _BLANKS_AND_COMMAS.match(text, position).end())  # type: ignore[union-attr]
            if isinstance(value, dict):
                yield value
    except (ValueError, RecursionError):
        return


def _records_in(line: bytes) -> int | str | None:
    """How many records a line is that begins as an array; None: one at most, or no JSON."""
    if not _ARRAY_OF_OBJECTS.match(line):
        return None
    if len(line) > _LONG_LINE_BYTES:
        return "many"
    try:
        values = parse_json(line.decode())
    except ValueError:
        return None
    count = sum(isinstance(value, dict) for value in values)
    return count if count > 1 else None


_NO_OBJECT, _LONE = "not a JSON object", "a lone surrogate"
_NOT_FINITE_PATTERN = r"[:,\[]\s*-?(NaN|Inf)"
_NOT_FINITE_WORDS = (re.compile(rb"NaN"), re.compile(rb"Inf"))
"""What JSON has no words for, and what each of these has in it: all lines are looked through for that at once."""

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
        return replace(self, of_rules=rules)

    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: RequiredColumns, path: str
    ) -> ScannedRecords:
        """``lines`` as records, which say what of the ``required`` columns none of them has."""
        records = _scan_records(lines, fields, is_iso_alone=self.is_as_before)
        wanted_fields = {name: fields[name] for name in required.columns}
        (lacks,) = _missing_by_file(records, wanted_fields, JoinedLines(lines, np.array([len(lines)])))
        return replace(records, lacks=lacks)

    def read_together(
        self, files: Sequence[tuple[str, bytes]], fields: SourceFields, required: RequiredColumns
    ) -> ScannedFiles:
        """Small files as one text, but for those that are read as up to 0.1.2, or are large once they are unpacked."""
        texts, unreadable = (None, {}) if self.is_as_before else self.texts_of(files)
        if texts is None:
            return super().read_together(files, fields, required)
        joined_lines = cut_together(texts)
        for number in _doubtful_files(joined_lines):
            if relanded_file(files[number][0]) is None:
                own = joined_lines.lines_of_file(number)
                try:
                    self.check_lines(own, own.first(1), files[number][0])
                except file_format.UnreadableFileError as error:
                    unreadable[number] = error
        joined_lines = joined_lines.without_files(unreadable)
        if not len(joined_lines.lines):
            return ScannedFiles(file_format.nothing(fields), joined_lines.lengths, (None,) * len(files), unreadable)
        records = _scan_records(joined_lines.lines, fields, is_iso_alone=False)
        wanted_fields = {name: fields[name] for name in required.columns}
        return ScannedFiles(
            records, joined_lines.lengths, _missing_by_file(records, wanted_fields, joined_lines), unreadable
        )

    def check_lines(self, lines: TextLines, first: TextLines, path: str) -> None:
        """Raise UnreadableFileError if the ``first`` line of a file, or one of the ``lines`` cut from it, is no single
        record. Such a line has more than one record, or a part of a larger value.
        """
        if len(first):
            _check_first(first.text[0].as_py(), path)
            if len(lines) == 1 and lines.position[0] == first.position[0]:
                _check_only(lines.text[0].as_py(), path)
        for row in _array_lines(lines):
            if (count := _records_in(lines.text[int(row)].as_py())) is not None:
                raise file_format.UnreadableFileError(
                    path,
                    f"its line {lines.position[row]} is an array of {count} records: {_ONE_A_LINE.format(repr('.[]'))}",
                )

    def stands_alone(self, record: bytes) -> bool:
        """Whether a file in which the ``record`` stands, first or alone or behind others, is lines of records."""
        lines = TextLines(pa.array([record], pa.binary()), np.zeros(1, np.int64), np.ones(1, np.bool_))
        try:
            self.check_lines(lines, lines, "")
        except file_format.UnreadableFileError:
            return False
        return what_is(record) is None

    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """An object on each line, or the text of the line."""
        return "".join(f"{_format_record(record, fields)}\n" for record in records).encode(errors="surrogateescape")


JSON: Final = JsonLines()


def _scan_records(lines: TextLines, fields: SourceFields, *, is_iso_alone: bool) -> ScannedRecords:
    columns, parse_errors = _JsonReading(lines, fields, is_iso_alone).read_columns()
    columns, parse_errors = formats_fields.typed(
        columns, parse_errors, fields, formats_fields.FROM_TEXT, is_iso_alone=is_iso_alone
    )
    return ScannedRecords(columns, parse_errors, lines.position, lambda rows: lines.text.take(pa.array(rows)))


def _missing_by_file(
    records: ScannedRecords, wanted_fields: SourceFields, joined_lines: JoinedLines
) -> tuple[dict[str, str | None] | None, ...]:
    """The ``wanted_fields`` that no record of a file has, not even as null. Each comes with the most similar name
    in the first record, in the object where it would be. None of a file of which no record parses, which says nothing.
    ``records`` were parsed from ``joined_lines``, of which there are some.
    """
    nonempty_files = np.flatnonzero(joined_lines.lengths)
    starts = joined_lines.starts[nonempty_files]
    parses = true_mask(records.unparsed.is_null())
    some_parse = np.logical_or.reduceat(parses, starts)
    missing: dict[int, list[str]] = {place: [] for place in np.flatnonzero(some_parse).tolist()}
    for name, field in wanted_fields.items():
        if not records.columns[name].null_count:  # a column with values everywhere need not be looked for
            continue
        is_empty = some_parse & ~np.logical_or.reduceat(true_mask(records.columns[name].is_valid()), starts)
        for part in field.path if is_empty.any() else ():
            is_written = np.logical_or.reduceat(_has_name(joined_lines.lines.text, part), starts)
            for place in np.flatnonzero(is_empty & ~is_written).tolist():
                missing[place].append(name)
            is_empty &= is_written
    lacks: list[dict[str, str | None] | None] = [None] * len(joined_lines.lengths)
    for place, names in missing.items():
        number = int(nonempty_files[place])
        row = int(starts[place]) + int(np.argmax(parses[starts[place] :]))
        first = json.loads(joined_lines.lines.text[row].as_py()) if names else {}
        lacks[number] = {
            name: file_format.nearest_name(wanted_fields[name].path[-1], _object_of(wanted_fields[name], first))
            for name in names
        }
    return tuple(lacks)


def _object_of(field: SourceField, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object of ``record`` that would have ``field``; an empty one if there is none."""
    for name in field.path[:-1]:
        value = record.get(name) or {}
        record = next((item for item in value if item), {}) if isinstance(value, list) else value
    return record


def _has_name(texts: pa.Array, name: str) -> NDArray[np.bool_]:
    """In which of ``texts`` a ``name`` stands in quotes."""
    spellings = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    has_name: NDArray[np.bool_] = np.logical_or.reduce(
        [true_mask(pc.match_substring(texts, text.encode())) for text in spellings]
    )
    return has_name


def _content_of(text: pa.Array) -> memoryview:
    """All of ``text``, one value behind the other."""
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset :]
    begin, end = int(offsets[0]), int(offsets[len(text)])
    return memoryview(text.buffers()[2])[begin:end]


def _nested_schema(fields: SourceFields) -> pa.Schema:
    """What the parser of blocks reads: the fields, in the objects that hold them."""
    kinds = {name: formats_fields.stored_type(field.type) for name, field in fields.items()}
    item_kinds = {name: kind.value_type if fields[name].through else kind for name, kind in kinds.items()}
    objects = in_objects(item_kinds, {name: replace(field, through=0) for name, field in fields.items()})
    lists = {field.path[: field.through] for field in fields.values() if field.through}

    def member_fields(members: Mapping[str, Any], path: tuple[str, ...]) -> list[tuple[str, pa.DataType]]:
        return [(name, member_type(kind, (*path, name))) for name, kind in members.items()]

    def member_type(kind: Any, path: tuple[str, ...]) -> pa.DataType:
        own = pa.struct(member_fields(kind, path)) if isinstance(kind, dict) else kind
        return pa.list_(own) if path in lists else own

    return pa.schema(member_fields(objects, ()))


class _JsonReading:
    """Lines on their way to columns: those that a block gave, and those that were looked at alone."""

    def __init__(self, lines: TextLines, fields: SourceFields, is_iso_alone: bool) -> None:
        self.lines, self.fields, self.nested_schema = lines, fields, _nested_schema(fields)
        self.text = lines.text
        schema = pa.schema([(field.name, entries_type(field.type)) for field in self.nested_schema])
        self.parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self.is_iso_alone = is_iso_alone
        self.tables: list[pa.Table] = []
        self.rows: list[Ints] = []
        self.lone_rows: list[int] = []

    def read_columns(self) -> tuple[dict[str, pa.Array], pa.Array]:
        """The columns of all lines, and why lines do not parse."""
        may_be_whole = self._may_be_whole()
        if any(may_hold_map(kind) for kind in self.nested_schema.types) and may_be_whole.any():
            self.text, is_certain = with_entries(self.lines.text, self.nested_schema, MOST_BYTES.value)
            may_be_whole &= is_certain
        self.lone_rows += np.flatnonzero(~may_be_whole).tolist()
        self._parse_lines(np.flatnonzero(may_be_whole))
        lone_records = [
            _judge_line(self.lines.text[row].as_py(), self.fields, self.is_iso_alone) for row in self.lone_rows
        ]
        values = [record if isinstance(record, dict) else {} for record in lone_records]
        reasons = [record if isinstance(record, str) else None for record in lone_records]
        order = np.argsort(np.concatenate([*self.rows, np.array(self.lone_rows, np.int64)]), kind="stable")
        number_in_blocks = sum(len(rows) for rows in self.rows)
        parse_errors = pa.concat_arrays([pa.nulls(number_in_blocks, pa.string()), pa.array(reasons, pa.string())])
        in_order = None if (np.diff(order) == 1).all() else pa.array(order)
        columns = {}
        for name, field in self.fields.items():
            lone_values = pa.array([value.get(name) for value in values], formats_fields.stored_type(field.type))
            whole = pa.concat_arrays(
                [*(formats_fields.field_of(chunk, field) for chunk in self._field_chunks(field)), lone_values]
            )
            columns[name] = whole if in_order is None else whole.take(in_order)
        return columns, parse_errors if in_order is None else parse_errors.take(in_order)

    def _field_chunks(self, field: SourceField) -> Iterator[pa.Array]:
        kind = self.nested_schema.field(field.path[0]).type
        chunks = (chunk for table in self.tables for chunk in table.column(field.path[0]).chunks)
        return (chunk.view(kind) for chunk in chunks) if may_hold_map(kind) else chunks

    def _may_be_whole(self) -> NDArray[np.bool_]:
        """Which lines look like an object; the parser of blocks would take, or choke on, some of the others."""
        text = self.lines.text
        like = pc.and_(pc.starts_with(text, b"{"), pc.ends_with(text, b"}"))
        candidates: NDArray[np.bool_] = self.lines.is_utf8 & true_mask(like)
        if (has_blanks := self.lines.is_utf8 & ~candidates).any():  # blanks around it
            trimmed_text = pc.ascii_trim(text.filter(pa.array(has_blanks)).cast(pa.string()), " \t")
            like = pc.and_(pc.starts_with(trimmed_text, "{"), pc.ends_with(trimmed_text, "}"))
            candidates[has_blanks] = as_numpy(like)
        long = candidates & as_numpy(pc.greater(pc.binary_length(text), arrow_scalar(formats_fields.DEEPEST)))
        if long.any():  # others have not so many brackets
            long_lines = text.filter(pa.array(long))
            brackets = pc.add(pc.count_substring(long_lines, b"["), pc.count_substring(long_lines, b"{"))
            candidates[long] = as_numpy(pc.less_equal(brackets, arrow_scalar(formats_fields.DEEPEST)))
        kinds = {kind for field in self.fields.values() for kind in parts_of(field.type)}
        content = _content_of(text)
        patterns = [_NOT_FINITE_PATTERN] if any(word.search(content) for word in _NOT_FINITE_WORDS) else []
        for pattern in [*patterns, _LONG_NUMBER] if DataType.DECIMAL in kinds else patterns:
            if candidates.any():
                odd = pc.match_substring_regex(text.filter(pa.array(candidates)).cast(pa.string()), pattern)
                candidates[candidates] = ~as_numpy(odd)
        return candidates

    def _parse_lines(self, rows: Ints) -> None:
        if not len(rows):
            return
        table = self._parse_block(rows)
        if table is not None:
            self.tables.append(table)
            self.rows.append(rows)
        elif len(rows) == 1:
            self.lone_rows.append(int(rows[0]))
        else:
            # the parser does not say which line it chokes on, so blocks are halved down to it
            middle = len(rows) // 2
            self._parse_lines(rows[:middle])
            self._parse_lines(rows[middle:])

    def _parse_block(self, rows: Ints) -> pa.Table | None:
        """The table of a block of lines, None if some of them are not one record each."""
        text = self.text if len(rows) == len(self.lines) else self.text.take(pa.array(rows))
        joined_text = pc.binary_join_element_wise(text, arrow_scalar(b"\n"), arrow_scalar(b""))
        block = _content_of(joined_text)
        # one block, for no record may reach over the end of one
        read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            table = pj.read_json(pa.BufferReader(block), read_options=read, parse_options=self.parse)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        # a line with two objects, or none, would shift all rows behind it
        return table if table.num_rows == len(rows) else None


# --- for unit tests


def _format_record(record: Mapping[str, Any] | str, fields: SourceFields) -> str:
    if isinstance(record, str):
        return record
    return json.dumps(in_objects(record, fields), ensure_ascii=False, default=_encode_constant)


def _encode_constant(value: object) -> str:
    if isinstance(value, date | bytes | Decimal):  # a datetime is a date
        return str(constant_to_json(value))
    raise ValueError(f"{short_repr(value)} cannot be written as JSON; write it as a file of the source would hold it")


# --- one line


def _judge_line(line: bytes, fields: SourceFields, is_iso_alone: bool) -> dict[str, Any] | str:
    """The columns of one line, or why it is not a record."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return file_format.NOT_UTF8
    if formats_fields.has_lone_surrogate(text):
        return _LONE
    try:
        record = parse_json(text)
    except ValueError:
        return _NO_OBJECT
    return _column_values(record, fields, is_iso_alone) if isinstance(record, dict) else _NO_OBJECT


def _column_values(record: Mapping[str, Any], fields: SourceFields, is_iso_alone: bool) -> dict[str, Any] | str:
    """The columns of a parsed record, or why it does not have them."""
    values: dict[str, Any] = {}
    for name, field in fields.items():
        try:
            value = _value_of(record, field)
        except _NotThereError as error:
            return _misread_reason(values, fields, is_iso_alone) or f"column {field.named(name)}: {error}"
        if not formats_fields.fits_type(value, field.type):
            return _misread_reason(values, fields, is_iso_alone) or file_format.misfit(name, field)
        values[name] = formats_fields.stored_value(value, field.type)
    return values


class _NotThereError(Exception):
    """Why a parsed record cannot have a field."""


def _value_of(record: Mapping[str, Any], field: SourceField) -> Any:
    """The value of ``field`` in a parsed record; a field in a list of objects has a list of values. Raises
    _NotThereError.
    """
    if not field.through:
        return _value_at_path(record, field.path, 0, len(field.path))
    items = _value_at_path(record, field.path, 0, field.through)
    if not isinstance(items, list | None):
        raise _NotThereError(f"{'.'.join(field.path[: field.through])} is not a list of objects")
    return (
        None if items is None else [_value_at_path(item, field.path, field.through, len(field.path)) for item in items]
    )


def _value_at_path(value: Any, path: Sequence[str], begin: int, end: int) -> Any:
    for depth in range(begin, end):
        if not isinstance(value, dict | None):
            raise _NotThereError(
                f"{'.'.join(path[:depth])} is not {'a list of objects' if begin == depth else 'an object'}"
            )
        value = None if value is None else value.get(path[depth])
    return value


def _misread_reason(values: Mapping[str, Any], fields: SourceFields, is_iso_alone: bool) -> str | None:
    """Why the columns before one that does not fit do not read themselves: the first counts."""
    fields_before = {name: fields[name] for name in values}
    columns = {
        name: pa.array([values[name]], formats_fields.stored_type(field.type)) for name, field in fields_before.items()
    }
    reason: str | None = formats_fields.typed(
        columns, pa.nulls(1, pa.string()), fields_before, formats_fields.FROM_TEXT, is_iso_alone=is_iso_alone
    )[1][0].as_py()
    return reason


def read_json(
    messages: pa.Array,
    position: Ints,
    fields: SourceFields,
    required: RequiredColumns,
    path: str,
    *,
    rules: int = JSON.rules,
) -> ScannedRecords:
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
