"""Formats of text, whose records are lines: decompressed, and cut into lines before anybody parses them.

Cutting them first keeps a bad line from failing its block. A layout says how lines are told apart: encoding, what comes
before the first, and quotes (``TextLayout``).

A line break in quotes ends no record (RFC 4180, 2.6). The line goes on behind it, and is numbered like the one where it
begins. A quote opens at the beginning of a field alone, and the next one that is not doubled closes it. Python's
``csv`` and all else that reads CSV does so. A quote inside a field that has none at its beginning is a character like
others.

A run of quotes says what it does by the byte before it and by its length. An even one leaves open what is open, and
closed what is closed. An odd one at the beginning of a field opens if nothing is open, and closes if something is; an
odd one elsewhere closes. So what is open behind a run is a sum over those since the last that closes, wherever a piece
of a file begins. Python looks at no byte.
"""

import codecs
import re
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats import file_format
from headrace.formats.compression import is_packed_by_name, unpack_file, unpacked_by_name
from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy
from headrace.model.expressions.columns import SourceFields
from headrace.this_process import Size
from headrace_snapshots.names import relanded_file

UInt8s = NDArray[np.uint8]

_LINE_FEED, _CARRIAGE_RETURN, _OTHER = 10, 13, ord("x")
_LINE_BREAK: Final = re.compile(rb"\r\n?|\n")
WINDOW_BYTES: Final = Size(2**18)
"""How many bytes are looked at together: as many as fit into a cache of the processor."""


@dataclass(frozen=True)
class Quotes:
    """The bytes of a ``quote``, of the ``delimiter`` between fields, and of what escapes the byte behind it."""

    quote: int = ord('"')
    delimiter: int = ord(",")
    escape: int | None = None

    def mask_escapes(self, data: bytes) -> bytes:
        """``data`` with escaped bytes, and what escapes them, as others, which mean nothing."""
        if self.escape is None or self.escape not in data:
            return data
        octets = np.frombuffer(data, np.uint8).copy()
        escapes = np.flatnonzero(octets == self.escape)
        first = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
        lengths = np.diff(first, append=len(escapes))
        escaped_places = (escapes[first] + lengths)[lengths % 2 == 1]
        octets[escapes] = _OTHER
        octets[escaped_places[escaped_places < len(octets)]] = _OTHER
        return octets.tobytes()

    def open_at(self, octets: UInt8s, places: Ints) -> NDArray[np.bool_]:
        """At which ``places`` of a text, which ascend, quotes are open; none is where it begins."""
        is_open, window_start, was_open = np.zeros(len(places), np.bool_), 0, False
        while window_start < len(octets):
            stop = self._behind_run(octets, min(window_start + WINDOW_BYTES.value, len(octets)))
            runs, states = self._quote_states(octets, window_start, stop, was_open)
            chosen_places = slice(*np.searchsorted(places, (window_start, stop)))
            is_open[chosen_places] = np.append(was_open, states)[np.searchsorted(runs, places[chosen_places])]
            window_start, was_open = stop, bool(states[-1]) if len(states) else was_open
        is_open[np.searchsorted(places, len(octets)) :] = was_open
        return is_open

    def are_open_behind(self, data: bytes) -> bool:
        """Whether quotes are open where ``data`` ends; none is where it begins. It looks back to one that closes."""
        marks = self.mask_escapes(data)
        return self._open_behind(marks, np.frombuffer(marks, np.uint8), 0, len(marks))

    def record_bounds(self, data: bytes, span: Span) -> tuple[int, int]:
        """Where the records of ``span`` begin and end in ``data``: pieces end after the first newline outside quotes at
        or after their share.
        """
        data = self.mask_escapes(data)
        begin = self._record_begin(data, span.of, span.first, 0)
        return begin, self._record_begin(data, span.of, span.after, begin)

    def _record_begin(self, data: bytes, pieces: int, number: int, known_begin: int) -> int:
        """Where the first record of a piece begins. The one at ``known_begin``, before it, begins a record."""
        position = len(data) * number // pieces
        if position <= known_begin or position == len(data):
            return max(position, known_begin)
        octets = np.frombuffer(data, np.uint8)
        position = self._run_begin(octets, position)
        is_open = self._open_behind(data, octets, known_begin, position)
        if position == 0 or (octets[position - 1] == _LINE_FEED and not is_open):
            return position
        while position < len(octets):
            stop = self._behind_run(octets, min(position + WINDOW_BYTES.value, len(octets)))
            runs, states = self._quote_states(octets, position, stop, is_open)
            newlines = position + np.flatnonzero(octets[position:stop] == _LINE_FEED)
            newlines_outside = newlines[~np.append(is_open, states)[np.searchsorted(runs, newlines)]]
            if len(newlines_outside):
                return int(newlines_outside[0]) + 1
            position, is_open = stop, bool(states[-1]) if len(states) else is_open
        return len(octets)

    def _open_behind(self, data: bytes, octets: UInt8s, begin: int, end: int) -> bool:
        turns = 0
        while (end := data.rfind(self.quote, begin, end) + 1) > 0:
            start = self._run_begin(octets, max(end - WINDOW_BYTES.value, begin))
            runs, begins = self._odd_runs(octets, start, end)
            closing = np.flatnonzero(~begins)
            if len(closing):
                turns += len(runs) - 1 - int(closing[-1])
                break
            turns, end = turns + len(runs), start
        return turns % 2 == 1

    def _run_begin(self, octets: UInt8s, position: int) -> int:
        """Where the run of quotes begins that ``position`` would cut; ``position`` if none does."""
        while position > 0 and octets[position - 1] == self.quote:
            start = max(position - WINDOW_BYTES.value, 0)
            others = np.flatnonzero(octets[start:position] != self.quote)
            position = start + int(others[-1]) + 1 if len(others) else start
        return position

    def _behind_run(self, octets: UInt8s, position: int) -> int:
        """Where the run of quotes ends that ``position`` would cut; ``position`` if none does."""
        while position < len(octets) and octets[position - 1] == octets[position] == self.quote:
            others = np.flatnonzero(octets[position : position + WINDOW_BYTES.value] != self.quote)
            position = position + int(others[0]) if len(others) else min(position + WINDOW_BYTES.value, len(octets))
        return position

    def _odd_runs(self, octets: UInt8s, begin: int, end: int) -> tuple[Ints, NDArray[np.bool_]]:
        """The runs from ``begin`` to ``end`` with an odd number of quotes, and which of them begin a field."""
        quotes = np.flatnonzero(octets[begin:end] == self.quote)
        first = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
        # pairs of quotes change nothing
        if len(first) < len(quotes):
            quotes = quotes[first[np.diff(first, append=len(quotes)) % 2 == 1]]
        runs = quotes + begin
        byte_before = octets[runs - 1]  # the last byte, at the beginning of the text
        return runs, (byte_before == self.delimiter) | (byte_before == _LINE_FEED) | (
            byte_before == _CARRIAGE_RETURN
        ) | (runs == 0)

    def _quote_states(self, octets: UInt8s, begin: int, end: int, is_open: bool) -> tuple[Ints, NDArray[np.bool_]]:
        """The odd runs, and whether quotes are open behind each; ``is_open`` says whether they are before the first."""
        runs, begins = self._odd_runs(octets, begin, end)
        # a quote behind other text always closes; one where a field begins turns what was
        turns = np.cumsum(begins) + is_open
        last_begin: Ints = np.maximum.accumulate(np.where(begins, 0, turns))
        states: NDArray[np.bool_] = np.not_equal((turns - last_begin) % 2, 0)
        return runs, states


UTF8: Final = "utf-8"


@dataclass(frozen=True)
class TextLayout:
    """``quotes`` hold line breaks; None: each line break ends a line. ``skip_lines`` before the first are no lines.
    A line of nothing but ``blanks`` is none either.
    """

    quotes: Quotes | None = None
    encoding: str = UTF8
    skip_lines: int = 0
    blanks: str = " \t"

    @property
    def is_divisible(self) -> bool:
        """Whether pieces of a file can be cut before they are decoded."""
        return self.encoding == UTF8 or is_like_ascii(self.encoding)

    def decode_file(self, data: bytes, path: str) -> bytes:
        """A file as a text that can be cut. Raises UnreadableFileError if it ends within a character."""
        if self.is_divisible:
            return data.removeprefix(codecs.BOM_UTF8)
        try:
            return self._to_utf8(data).removeprefix(codecs.BOM_UTF8)
        except UnicodeError as error:
            raise file_format.UnreadableFileError(path, f"it is not {self.encoding} ({error})") from error

    def decode_piece(self, text: bytes) -> bytes:
        """A piece of what ``decode_file`` gave, as UTF-8. A character that is none in the encoding is no UTF-8
        either.
        """
        return self._to_utf8(text) if self.is_divisible and self.encoding != UTF8 else text

    def first_line_begin(self, text: bytes) -> int:
        position = 0
        for _ in range(self.skip_lines):
            line_break = _LINE_BREAK.search(text, position)
            if line_break is None:
                return len(text)
            position = line_break.end()
        return position

    def encode_lines(self, text: bytes) -> bytes:
        """The content of a file with the lines ``text``, which are in UTF-8 but for characters of which ``piece`` made
        none. Raises ValueError for a character that the encoding does not have.
        """
        text = b"\n" * self.skip_lines + text
        if self.encoding == UTF8:
            return text
        errors = _error_handler(self.encoding)
        return text.decode(UTF8, errors).encode(self.encoding, errors)

    def can_store(self, line: bytes) -> bool:
        """Whether the encoding has what is in a ``line`` that ``encode_lines`` is to hold."""
        try:
            self.encode_lines(line)
        except UnicodeError:
            return False
        return True

    def _to_utf8(self, data: bytes) -> bytes:
        """``data`` as UTF-8; what is no character stays what it is, which is no UTF-8."""
        errors = _error_handler(self.encoding)
        encoding = self.encoding
        if encoding in ("utf-16", "utf-32") and not data.startswith(_MARKS[encoding]):
            encoding = f"{encoding}-le"  # as most write it
        return data.decode(encoding, errors).encode(UTF8, errors)


_MARKS: Final = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


def _error_handler(encoding: str) -> str:
    return "surrogatepass" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


@cache
def is_like_ascii(encoding: str) -> bool:
    """Whether each byte is a character of its own, those of ASCII what they are there."""
    ascii_ = bytes(range(128))
    try:
        if ascii_.decode(encoding) != ascii_.decode("ascii"):
            return False
        # others switch by what stands before
        if not any(len(bytes([byte]).decode(encoding, "ignore")) == 1 for byte in range(128, 256)):
            return False
    except UnicodeError:
        return False
    pairs = (bytes([first, second]) for first in range(256) for second in (0x41, 0x7C, 0xA1))
    return all(len(pair.decode(encoding, "replace")) == 2 for pair in pairs)


LINES: Final = TextLayout()
_A_HEADER = 4096
"""How many bytes mostly hold the first line."""


@dataclass(frozen=True)
class TextLines:
    """Lines without their breaks and without blank ones. ``text`` holds their bytes as they are, also of those that
    ``is_utf8`` says to be no text; ``position`` counts all lines of the file from 0.
    """

    text: pa.Array
    position: Ints
    is_utf8: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.position)

    def where(self, chosen: NDArray[np.bool_]) -> "TextLines":
        """Choose lines. It raises nothing.

        :param chosen: for each line, whether it is wanted.
        :returns: those lines.
        """
        return TextLines(self.text.filter(pa.array(chosen)), self.position[chosen], self.is_utf8[chosen])

    def first(self, count: int) -> "TextLines":
        """Choose lines from the beginning. It raises nothing.

        :param count: how many.
        :returns: so many of them, or all.
        """
        return TextLines(self.text[:count], self.position[:count], self.is_utf8[:count])


class JoinedLines(msgspec.Struct, frozen=True):
    """Lines of several files, one file behind the other. ``lengths`` says how many each file has; the ``position`` of a
    line counts in its file.
    """

    lines: TextLines
    lengths: Ints

    @property
    def starts(self) -> Ints:
        """The first line of each file among all."""
        starts: Ints = np.cumsum(self.lengths) - self.lengths
        return starts

    def lines_of_file(self, number: int) -> TextLines:
        begin = int(self.lengths[:number].sum())
        rows = slice(begin, begin + int(self.lengths[number]))
        return TextLines(self.lines.text[rows], self.lines.position[rows], self.lines.is_utf8[rows])

    def without_files(self, numbers: Collection[int]) -> "JoinedLines":
        if not numbers:
            return self
        is_kept = np.ones(len(self.lengths), np.bool_)
        is_kept[list(numbers)] = False
        return self.where(np.repeat(is_kept, self.lengths))

    def select_files(self, numbers: Sequence[int]) -> "JoinedLines":
        """The lines of some files alone, whose ``numbers`` ascend."""
        is_kept = np.zeros(len(self.lengths), np.bool_)
        is_kept[list(numbers)] = True
        if is_kept.all():
            return self
        return JoinedLines(self.lines.where(np.repeat(is_kept, self.lengths)), self.lengths[is_kept])

    def where(self, is_chosen: NDArray[np.bool_]) -> "JoinedLines":
        file = np.repeat(np.arange(len(self.lengths)), self.lengths)[is_chosen]
        return JoinedLines(self.lines.where(is_chosen), np.bincount(file, minlength=len(self.lengths)))


def can_cut_together(text: bytes, layout: TextLayout) -> bool:
    """Whether others can be cut behind a whole ``text``: no quote is open where it ends, and no escape may be there."""
    quotes = layout.quotes
    if quotes is None:
        return True
    rest = _skip_lines(text, layout)
    escapes = quotes.escape is not None and quotes.escape in rest
    return not escapes and (quotes.quote not in rest or not quotes.are_open_behind(rest))


def cut_together(texts: Sequence[bytes], layout: TextLayout = LINES) -> JoinedLines:
    """The lines of whole ``texts``, as ``decode_file`` gives them, cut at once; each of them ``can_cut_together``."""
    skipped_line_counts = np.array([_count_lines(text, layout.first_line_begin(text)) for text in texts], np.int64)
    rests = (_skip_lines(text, layout) for text in texts)
    ended_texts = [rest if not rest or rest.endswith(b"\n") else rest + b"\n" for rest in rests]
    lines = _lines_from_bytes(b"".join(ended_texts), 0, layout)
    first = np.cumsum([0, *(_count_lines(text, len(text)) for text in ended_texts)])
    lengths = np.diff(np.searchsorted(lines.position, first))
    lines_before = np.repeat(first[:-1] - skipped_line_counts, lengths)
    return JoinedLines(replace(lines, position=lines.position - lines_before), lengths)


def _skip_lines(text: bytes, layout: TextLayout) -> bytes:
    """The lines of a ``text``, as UTF-8."""
    begin = layout.first_line_begin(text)
    return layout.decode_piece(text[begin:] if begin else text)


def line_bounds(text: bytes, span: Span, layout: TextLayout) -> tuple[int, int]:
    """Where the lines of ``span`` begin and end in ``text``."""
    first_begin = layout.first_line_begin(text)
    rest = text[first_begin:] if first_begin else text
    begin, end = span.lines(rest) if layout.quotes is None else layout.quotes.record_bounds(rest, span)
    return first_begin + begin, first_begin + end


def split_lines(text: bytes, piece: tuple[int, int] | None = None, layout: TextLayout = LINES) -> TextLines:
    """The lines of a ``piece`` of ``text``, or of all of it. A line ends with a newline, a carriage return, or both,
    outside of quotes. A byte order mark is no part of the first one; a line of nothing but blanks is none.
    """
    if piece is None:
        text = text.removeprefix(codecs.BOM_UTF8)
    begin, end = (layout.first_line_begin(text), len(text)) if piece is None else piece
    return _lines_from_bytes(layout.decode_piece(text[begin:end]), _count_lines_before(text, begin, layout), layout)


def first_line(text: bytes, layout: TextLayout = LINES) -> TextLines:
    """The first line of ``text`` that is not blank, or none."""
    begin = layout.first_line_begin(text)
    size = _A_HEADER
    while size < len(text) - begin and len(split_lines(text, (begin, begin + size), layout)) < 2:
        size *= 4
    return split_lines(text, (begin, begin + size), layout).first(1)


def _count_lines_before(text: bytes, end: int, layout: TextLayout) -> int:
    """How many lines ``text`` has before ``end``, where one ends; a line break that is escaped ends none."""
    quotes = layout.quotes
    if quotes is None or quotes.escape is None:
        return _count_lines(text, end)
    first_begin = min(layout.first_line_begin(text), end)  # what is skipped before it has no escapes
    marks = quotes.mask_escapes(text[first_begin:end])
    return _count_lines(text, first_begin) + _count_lines(marks, len(marks))


def _count_lines(text: bytes, end: int) -> int:
    """How many lines ``text`` has before ``end``, where one ends."""
    returns = text.count(b"\r", 0, end)
    both = text.count(b"\r\n", 0, end) if returns else 0
    return text.count(b"\n", 0, end) + returns - both


def _lines_from_bytes(data: bytes, first: int, layout: TextLayout) -> TextLines:
    """The lines of ``data``, of which the first has number ``first`` in its file."""
    quotes = layout.quotes
    marks = data if quotes is None else quotes.mask_escapes(data)
    octets = np.frombuffer(marks, np.uint8)
    is_break = octets == _LINE_FEED
    returns = np.flatnonzero(octets == _CARRIAGE_RETURN)
    if len(returns):  # one that a newline follows is part of the same break
        last = len(octets) - 1
        is_lone = octets[np.minimum(returns + 1, last)] != _LINE_FEED
        is_break[returns[is_lone | (returns == last)]] = True
    ends = np.flatnonzero(is_break)
    if len(octets) and (not len(ends) or ends[-1] != len(octets) - 1):
        ends = np.append(ends, len(octets))
    position = np.arange(first, first + len(ends), dtype=np.int64)
    if quotes is not None and quotes.quote in marks:
        is_end = ~quotes.open_at(octets, ends)
        is_end[-1:] = True
        ends, position = ends[is_end], position[np.append(True, is_end[:-1])]
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    offsets = np.append(starts, len(octets)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.string(), len(starts), buffers)  # bytes, whatever they are, until they are checked
    text = pc.ascii_rtrim(whole, "\r\n")
    if marks is not data:
        text = _with_escaped_ends(text, data, marks, starts, ends)
    is_utf8 = _are_utf8(data, starts)
    is_filled_line = _is_filled(text, layout.blanks)
    if not is_filled_line.all():
        text, position, is_utf8 = (
            text.filter(pa.array(is_filled_line)),
            position[is_filled_line],
            is_utf8[is_filled_line],
        )
    return TextLines(text.cast(pa.binary()), position, is_utf8)


def _with_escaped_ends(text: pa.Array, data: bytes, marks: bytes, starts: Ints, ends: Ints) -> pa.Array:
    """``text`` where a line ends with a line break that is escaped, and was trimmed with its own."""
    octets, mask_octets = (np.frombuffer(content, np.uint8) for content in (data, marks))
    places_before_ends = np.maximum(ends - 1, 0)
    is_feed = mask_octets[np.minimum(ends, len(mask_octets) - 1)] == _LINE_FEED
    stops = ends - (is_feed & (mask_octets[places_before_ends] == _CARRIAGE_RETURN))
    last = np.maximum(stops - 1, 0)
    ends_escaped = (
        (stops > starts) & (mask_octets[last] == _OTHER) & np.isin(octets[last], (_LINE_FEED, _CARRIAGE_RETURN))
    )
    if not ends_escaped.any():
        return text
    values = [data[starts[line] : stops[line]] for line in np.flatnonzero(ends_escaped)]
    full_lines = pc.replace_with_mask(text.cast(pa.binary()), pa.array(ends_escaped), pa.array(values, pa.binary()))
    return full_lines.view(pa.string())


def _is_filled(text: pa.Array, blanks: str) -> NDArray[np.bool_]:
    is_filled: NDArray[np.bool_] = as_numpy(pc.greater(pc.binary_length(text), arrow_scalar(0)))
    blank = np.zeros(len(text), np.bool_)
    for character in blanks:
        blank |= as_numpy(pc.starts_with(text, character))
    if blank.any():
        rest = pc.ascii_ltrim(text.filter(pa.array(blank)), f"{blanks}\r")
        is_filled[blank] = as_numpy(pc.greater(pc.binary_length(rest), arrow_scalar(0)))
    return is_filled


def _are_utf8(data: bytes, starts: Ints) -> NDArray[np.bool_]:
    """Which lines are UTF-8; a look at each bad one besides one at the whole."""
    is_utf8 = np.ones(len(starts), np.bool_)
    begin, view = 0, memoryview(data)
    while begin < len(data):
        try:
            codecs.utf_8_decode(view[begin:], "strict", True)
            break
        except UnicodeDecodeError as error:
            line = int(np.searchsorted(starts, begin + error.start, "right")) - 1
            is_utf8[line] = False
            begin = int(starts[line + 1]) if line + 1 < len(starts) else len(data)
    return is_utf8


MOST_BYTES: Final = Size(2**31 - 16)
"""How much text is cut into lines as one piece: offsets of Arrow's strings have 32 bits."""


_MOST_TOGETHER: Final = 64 * 1024 * 1024
"""How many bytes of text files have that are read together."""


class TextFormat(file_format.FileFormat):
    """A format whose records are lines of UTF-8, compressed or not, whatever the file is called. The header, if files
    have one, is the first line that is not blank. A file of records that landed again is never refused for its records:
    those that are none stay dead letters.
    """

    @property
    def layout(self) -> TextLayout:
        """How lines are told apart. It raises nothing.

        :returns: by default lines of UTF-8 without quotes.
        """
        return LINES

    @property
    def is_as_before(self) -> bool:
        """Whether files are read as up to 0.1.2. Then names say what is compressed, timestamps are ISO 8601 alone, and
        a file is checked for nothing but lines.
        """
        return False

    @abstractmethod
    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: RequiredColumns, path: str
    ) -> ScannedRecords:
        """Make records of lines.

        :param lines: the lines of a part of a file. Lines that equal a header are no records; it may be among them.
        :param header: the first line of the file that is not blank; None: the format has no header.
        :param fields: the columns that are wanted, and where each is in a record.
        :param required: the columns that must be there.
        :param path: the name of the file, for errors.
        :returns: the records.
        :raises UnreadableFileError: the header is none.
        :raises FileColumnsError: the file lacks what is required.
        """

    def read(
        self, data: bytes, fields: SourceFields, required: RequiredColumns, path: str, span: Span
    ) -> ScannedRecords:
        """Take a file out of its compression, cut the lines of a part, and make records of them.

        :param data: the whole content of the file.
        :param fields: the columns that are wanted.
        :param required: the columns that must be there.
        :param path: the name of the file, for errors.
        :param span: the part.
        :returns: the records.
        :raises UnreadableFileError: it is not a whole file of this format.
        :raises FileColumnsError: it lacks what is required.
        :raises LargeFileError: there are more than 2 GB of text.
        """
        text = self.unpacked(data, path)
        if text is not data and not span.is_whole:  # its name did not say so: the first piece has all of it
            if span.first:
                return file_format.nothing(fields)
            span = file_format.WHOLE_FILE
        text = self.layout.decode_file(text, path)
        begin, end = line_bounds(text, span, self.layout)
        if end - begin > MOST_BYTES.value:
            raise file_format.LargeFileError(path, end - begin)
        lines = split_lines(text, (begin, end), self.layout)
        first = lines.first(1) if span.first == 0 and len(lines) else first_line(text, self.layout)
        is_judged = not self.is_as_before and relanded_file(path) is None  # whose records were judged one by one
        if is_judged:
            self.check_lines(lines, first, path)
        if not self.has_header:
            return self.read_lines(lines, None, fields, required, path) if len(lines) else file_format.nothing(fields)
        if not len(first):
            return file_format.nothing(fields)
        records = self.read_lines(lines, _single_line(first), fields, required, path)
        if is_judged:
            self.check_beginning(text, _single_line(first), fields, path)
        return records

    def texts_of(
        self, files: Sequence[tuple[str, bytes]]
    ) -> tuple[list[bytes] | None, dict[int, file_format.UnreadableFileError]]:
        """Take files out of their compression, to cut them together. It raises nothing.

        :param files: name and whole content of each.
        :returns: the text of each, empty for one that cannot be read, and why by its number; None in place of the texts
            if there is too much of them.
        """
        texts: list[bytes] = []
        unreadable: dict[int, file_format.UnreadableFileError] = {}
        size = 0
        for number, (path, data) in enumerate(files):
            text = b""
            try:
                text = self.layout.decode_file(self.unpacked(data, path), path)
            except file_format.UnreadableFileError as error:
                unreadable[number] = error
            texts.append(text)
            size += len(text)
            if size > _MOST_TOGETHER:
                return None, {}
        return texts, unreadable

    def unpacked(self, data: bytes, path: str) -> bytes:
        """Take a file out of its compression.

        :param data: the whole content of the file.
        :param path: its name, for errors.
        :returns: the text in it.
        :raises UnreadableFileError: it is damaged.
        """
        return unpacked_by_name(data, path) if self.is_as_before else unpack_file(data, path)

    def check_lines(self, lines: TextLines, first: TextLines, path: str) -> None:
        """Look whether lines can be records of this format, each at most one; by default they can.

        :param lines: the lines of a part of a file.
        :param first: its first line that is not blank.
        :param path: the name of the file, for errors.
        :raises UnreadableFileError: they cannot.
        """

    def check_beginning(self, text: bytes, header: bytes, fields: SourceFields, path: str) -> None:
        """Look whether the beginning of a file whose header is right says that it is written in another way; by default
        it does not. Each part of the file is asked, and has the same answer.

        :param text: the whole text of the file.
        :param header: its header.
        :param fields: the columns that are wanted.
        :param path: the name of the file, for errors.
        :raises UnreadableFileError: it is written in another way.
        """

    def is_divisible(self, path: str) -> bool:
        """Ask whether a name does not say that its file is compressed, and lines can be cut before they are decoded. It
        raises nothing.

        :param path: the name of the file.
        :returns: whether parts can be read.
        """
        return self.layout.is_divisible and not is_packed_by_name(path)

    def header(self, data: bytes, path: str) -> bytes:
        """Give the first line that is not blank.

        :param data: the whole content of the file.
        :param path: its name, for errors.
        :returns: the line without its break.
        :raises UnreadableFileError: there is none.
        """
        lines = first_line(self.layout.decode_file(self.unpacked(data, path), path), self.layout)
        if not len(lines):
            raise file_format.UnreadableFileError(path, "it has no header")
        return _single_line(lines)

    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """Write lines as they were. It raises nothing.

        :param records: the lines.
        :param fields: the columns of the source.
        :param header: the header that they had.
        :returns: the content of a file with them.
        """
        lines = records if header is None else [header, *records]
        return self.layout.encode_lines(b"".join(line + b"\n" for line in lines))


def _single_line(lines: TextLines) -> bytes:
    line: bytes = lines.text[0].as_py()
    return line
