"""The lines of a text file, cut before anybody parses them: so one bad line never fails a block. Where quotes can hold
line breaks a line goes on behind them, and is numbered like the one where it begins.
"""

import codecs
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.scan import Span
from headrace.formats.text_layout import TextLayout
from headrace.kernel.grouping import Ints

_NEWLINE, _RETURN = 10, 13
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


def bounds(text: bytes, span: Span, layout: TextLayout) -> tuple[int, int]:
    """Where the lines of ``span`` begin and end in ``text``."""
    before = layout.begin(text)
    rest = text[before:] if before else text
    begin, end = span.lines(rest) if layout.quotes is None else layout.quotes.bounds(rest, span)
    return before + begin, before + end


def cut(text: bytes, piece: tuple[int, int] | None = None, layout: TextLayout = LINES) -> TextLines:
    """The lines of a ``piece`` of ``text``, or of all of it, which end with a newline, a carriage return, or both, that
    is not in quotes. A byte order mark is no part of the first one; a line of nothing but blanks is none.
    """
    if piece is None:
        text = text.removeprefix(codecs.BOM_UTF8)
    begin, end = (layout.begin(text), len(text)) if piece is None else piece
    return _cut(layout.piece(text[begin:end]), _breaks(text, begin), layout)


def first_line(text: bytes, layout: TextLayout = LINES) -> TextLines:
    """The first line of ``text`` that is not blank, or none."""
    begin = layout.begin(text)
    size = _A_HEADER
    while size < len(text) - begin and len(cut(text, (begin, begin + size), layout)) < 2:
        size *= 4
    return cut(text, (begin, begin + size), layout).first(1)


def _breaks(text: bytes, end: int) -> int:
    """How many lines ``text`` has before ``end``, where one ends."""
    returns = text.count(b"\r", 0, end)
    both = text.count(b"\r\n", 0, end) if returns else 0
    return text.count(b"\n", 0, end) + returns - both


def _cut(data: bytes, first: int, layout: TextLayout) -> TextLines:
    """The lines of ``data``, of which the first has number ``first`` in its file."""
    quotes = layout.quotes
    marks = data if quotes is None else quotes.marks(data)
    octets = np.frombuffer(marks, np.uint8)
    is_break = octets == _NEWLINE
    returns = np.flatnonzero(octets == _RETURN)
    if len(returns):  # one that a newline follows is part of the same break
        last = len(octets) - 1
        alone = octets[np.minimum(returns + 1, last)] != _NEWLINE
        is_break[returns[alone | (returns == last)]] = True
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
    is_utf8 = _are_utf8(data, starts)
    filled = _is_filled(text, layout.blanks)
    if not filled.all():
        text, position, is_utf8 = text.filter(pa.array(filled)), position[filled], is_utf8[filled]
    return TextLines(text.cast(pa.binary()), position, is_utf8)


def _is_filled(text: pa.Array, blanks: str) -> NDArray[np.bool_]:
    is_filled: NDArray[np.bool_] = pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    blank = np.zeros(len(text), np.bool_)
    for character in blanks:
        blank |= pc.starts_with(text, character).to_numpy(zero_copy_only=False)
    if blank.any():
        rest = pc.ascii_ltrim(text.filter(pa.array(blank)), f"{blanks}\r")
        is_filled[blank] = pc.greater(pc.binary_length(rest), 0).to_numpy(zero_copy_only=False)
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
