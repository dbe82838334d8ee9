"""The lines of a text file, cut before anybody parses them: so one bad line never fails a block."""

import codecs
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints
from headrace.sources.formats.spans import WHOLE_FILE, Span

_NEWLINE, _RETURN = 10, 13


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
        """The lines that ``chosen`` says."""
        return TextLines(self.text.filter(pa.array(chosen)), self.position[chosen], self.is_utf8[chosen])


def cut(data: bytes, span: Span = WHOLE_FILE) -> TextLines:
    """The lines of the ``span`` of ``data``, which end with a newline, a carriage return, or both. A byte order mark is
    no part of the first one; a line of nothing but blanks and tabs is none.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    if span.is_whole:
        return _cut(data, 0)
    begin, end = span.lines(data)
    return _cut(data[begin:end], _breaks(data[:begin]))


def first_line(data: bytes) -> TextLines:
    """The first line of ``data`` that is not blank, or none."""
    end = 0
    while end < len(data):
        end = data.find(b"\n", end) + 1 or len(data)
        if len(lines := cut(data[:end])):
            return lines
    return cut(b"")


def _breaks(data: bytes) -> int:
    """How many lines ``data`` has, which ends after one."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _cut(data: bytes, first: int) -> TextLines:
    """The lines of ``data``, of which the first has number ``first`` in its file."""
    octets = np.frombuffer(data, np.uint8)
    is_break = octets == _NEWLINE
    returns = np.flatnonzero(octets == _RETURN)
    if len(returns):  # one that a newline follows is part of the same break
        last = len(octets) - 1
        alone = octets[np.minimum(returns + 1, last)] != _NEWLINE
        is_break[returns[alone | (returns == last)]] = True
    ends = np.flatnonzero(is_break)
    if len(octets) and (not len(ends) or ends[-1] != len(octets) - 1):
        ends = np.append(ends, len(octets))
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    offsets = np.append(starts, len(octets)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.string(), len(starts), buffers)  # bytes, whatever they are, until they are checked
    text = pc.ascii_rtrim(whole, "\r\n")
    position = np.arange(first, first + len(starts), dtype=np.int64)
    is_utf8 = _are_utf8(data, starts)
    filled = _is_filled(text)
    if not filled.all():
        text, position, is_utf8 = text.filter(pa.array(filled)), position[filled], is_utf8[filled]
    return TextLines(text.cast(pa.binary()), position, is_utf8)


def _is_filled(text: pa.Array) -> NDArray[np.bool_]:
    is_filled: NDArray[np.bool_] = pc.greater(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    blank = pc.or_(pc.starts_with(text, " "), pc.starts_with(text, "\t")).to_numpy(zero_copy_only=False)
    if blank.any():
        rest = pc.ascii_ltrim(text.filter(pa.array(blank)), " \t\r")
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
