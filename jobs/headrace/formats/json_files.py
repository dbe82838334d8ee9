"""JSON that is not lines of one record each: arrays, records over several lines or one behind the other, other
encodings. Such a file is refused, since its records would be one dead letter together, or one for each line.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.compression import what_is
from headrace.formats.errors import UnreadableFileError
from headrace.formats.json_values import parsed
from headrace.formats.lines import TextLines
from headrace.kernel.grouping import Ints, truths

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
            raise UnreadableFileError(
                path,
                f"its line {lines.position[row]} is an array of {count} records: {_ONE_A_LINE.format(repr('.[]'))}",
            )


def stands_alone(line: bytes) -> bool:
    """Whether a file in which a ``line`` stands, first or alone or behind others, is lines of records."""
    lines = TextLines(pa.array([line], pa.binary()), np.zeros(1, np.int64), np.ones(1, np.bool_))
    try:
        check_json_lines(lines, lines, "")
    except UnreadableFileError:
        return False
    return what_is(line) is None


def _check_first(line: bytes, path: str) -> None:
    if line.startswith(_OTHER_ENCODINGS):
        raise UnreadableFileError(path, "it is UTF-16 or UTF-32, and JSON is read as UTF-8")
    line = line.strip(b" \t")
    is_array = line.startswith(b"[")
    if (is_array or (line.startswith(b"{") and line.endswith(_GOES_ON))) and _goes_on(line):
        what, filter_ = ("an array", ".[]") if is_array else ("an object", ".")
        raise UnreadableFileError(
            path, f"it is JSON of which {what} goes over several lines: {_ONE_A_LINE.format(repr(filter_))}"
        )


def _check_only(line: bytes, path: str) -> None:
    """Raise UnreadableFileError if the only line of a file is several records, one behind the other."""
    if _BEHIND_EACH_OTHER.search(line) and (count := sum(1 for _ in _objects(line))) > 1:
        raise UnreadableFileError(
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
