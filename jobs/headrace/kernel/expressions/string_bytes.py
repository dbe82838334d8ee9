"""The bytes of a column of strings, eight at a time, and CRC-32 over them."""

import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints

Words = NDArray[np.uint64]

_PAD = np.zeros(8, np.uint8)
_ONES = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Octets:
    """The bytes of strings. ``words`` has a word for each place in memory: the eight bytes from there on, little
    endian. String ``i`` is ``lengths[i]`` bytes from place ``starts[i]`` on; eight before and after may be read.
    """

    words: Words
    starts: Ints
    lengths: Ints

    def behind(self, rows: Ints, offset: int) -> Words:
        """The eight bytes from ``offset`` on of the strings of ``rows``, which go further; zeros after their ends."""
        words: Words = self.words[self.starts[rows] + offset]
        words &= _ONES >> self._missing(rows, offset)
        return words

    def before(self, rows: Ints, offset: int) -> Words:
        """The eight bytes that end ``offset`` bytes before the end, as ``behind``; zeros before the beginning."""
        words: Words = self.words[self.starts[rows] + self.lengths[rows] - offset - 8]
        words &= _ONES << self._missing(rows, offset)
        return words

    def _missing(self, rows: Ints, offset: int) -> Words:
        """How many of 64 bits from ``offset`` bytes on are not of the string any more."""
        missing: Ints = np.maximum(offset + 8 - self.lengths[rows], 0) * 8
        return missing.astype(np.uint64)


def octets(strings: pa.Array) -> Octets:
    """The bytes of ``strings`` in UTF-8; NULL has none."""
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else _PAD[:0]
    padded = np.concatenate([_PAD, held, _PAD])
    words = np.ndarray((len(held) + 9,), "<u8", padded.data, strides=(1,))
    lengths = np.diff(ends)
    if strings.null_count:
        lengths[strings.is_null().to_numpy(zero_copy_only=False)] = 0
    return Octets(words, ends[:-1] - ends[0] + 8, lengths)


@cache
def _tables() -> list[NDArray[np.uint32]]:
    """What each two of eight bytes add to the register of a CRC-32 after them."""
    single = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        single = np.where(
            single & np.uint32(1), (single >> np.uint32(1)) ^ np.uint32(0xEDB88320), single >> np.uint32(1)
        )
    by_byte = [single]
    for _ in range(7):
        last = by_byte[-1]
        by_byte.append(single[last & np.uint32(0xFF)] ^ (last >> np.uint32(8)))
    pairs = np.arange(1 << 16)
    return [by_byte[7 - i][pairs & 0xFF] ^ by_byte[6 - i][pairs >> 8] for i in (0, 2, 4, 6)]


def crc32(strings: pa.Array) -> pa.Array:
    """CRC-32 of each string in UTF-8, an int from 0 to 2^32 - 1.

    A register of zero stays so over zeros, so strings may begin with as many as make them whole words long; the ones
    that the register begins with come in by the length alone.
    """
    text = octets(strings)
    words = -(-text.lengths // 8)
    longest_first = np.argsort(-words, kind="stable")
    fewer = -words[longest_first]
    register = np.zeros(len(text.lengths), np.uint32)
    tables = _tables()
    for left in range(int(words.max(initial=0)), 0, -1):
        rows = longest_first[: np.searchsorted(fewer, -left, side="right")]
        word = text.before(rows, 8 * (left - 1)) ^ register[rows]
        crc = tables[0][word & np.uint64(0xFFFF)]
        for i in (1, 2, 3):
            crc ^= tables[i][(word >> np.uint64(16 * i)) & np.uint64(0xFFFF)]
        register[rows] = crc
    lengths, which = np.unique(text.lengths, return_inverse=True)
    of_zeros = np.array([zlib.crc32(bytes(int(length))) for length in lengths], np.uint32)
    values = (register ^ of_zeros[which]).astype(np.int64)
    return pa.array(values, mask=strings.is_null().to_numpy(zero_copy_only=False) if strings.null_count else None)
