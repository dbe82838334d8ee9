"""Which bytes are UTF-8, a column at a time (RFC 3629)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_Octets = NDArray[np.uint8]

_FOLLOW = np.zeros(256, np.int8)
"""How many bytes follow the first one of a character."""
_FOLLOW[0xC2:0xE0], _FOLLOW[0xE0:0xF0], _FOLLOW[0xF0:0xF5] = 1, 2, 3

_NEVER = np.zeros(256, np.bool_)
_NEVER[[0xC0, 0xC1, *range(0xF5, 0x100)]] = True

_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
"""First bytes after which not every second one may stand."""

_END = bytes(3)
"""Stands behind each value: a character that is cut there lacks three bytes at most, and takes none of the next one."""


def text_of(values: pa.Array) -> pa.Array:
    """Bytes as strings, NULL where they are not UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        known = pc.if_else(pa.array(are_text(values)), values, pa.scalar(None, values.type))
        return pc.cast(known, pa.string())


def are_text(values: pa.Array) -> NDArray[np.bool_]:
    """Which values of a binary column are UTF-8; NULL is."""
    joined = pc.binary_join_element_wise(values.cast(pa.binary()).fill_null(b""), _END, b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    octets = np.frombuffer(joined.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    wrong = np.concatenate([_wrong(octets), [False]])
    valid: NDArray[np.bool_] = ~np.logical_or.reduceat(wrong, offsets[:-1] - offsets[0]) if len(values) else wrong[:0]
    return valid


def _wrong(octets: _Octets) -> NDArray[np.bool_]:
    """Where a byte stands that cannot stand there; none of a value is past its end."""
    follow = _FOLLOW[octets]
    wanted = np.zeros(len(octets) + 3, np.bool_)
    for distance in (1, 2, 3):
        wanted[distance : distance + len(octets)] |= follow >= distance
    wrong: NDArray[np.bool_] = ((octets & 0xC0) == 0x80) != wanted[: len(octets)]
    wrong |= _NEVER[octets]
    second = octets[1:]
    for first, (low, high) in _SECOND.items():
        wrong[1:] |= (octets[:-1] == first) & ((second < low) | (second > high))
    return wrong
