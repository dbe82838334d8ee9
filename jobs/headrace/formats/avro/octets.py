"""Numbers and pieces in a buffer of bytes, read at many places at once: zigzag integers of seven bits a byte, bytes
behind their length. Avro and Kafka write both alike.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints

Octets = NDArray[np.uint8]

_MOST_SHIFT = 63


def varints(octets: Octets, at: Ints) -> tuple[Ints, Ints]:
    """The numbers ``at`` those places (zigzag, seven bits a byte), and where each ends. One has ten bytes at most: of a
    longer one, which nobody writes, the rest is left.
    """
    octet = octets[at]
    number = (octet & 0x7F).astype(np.uint64)
    end = at + 1
    more = np.flatnonzero(octet & 0x80)
    shift = 7
    while len(more) and shift <= _MOST_SHIFT:
        octet = octets[end[more]]
        number[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        end[more] += 1
        more, shift = more[(octet & 0x80) != 0], shift + 7
    return (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64), end


def pieces(data: bytes, begin: Ints, length: Ints) -> pa.Array:
    """The bytes of ``data`` from each ``begin`` on, NULL where the ``length`` is negative. Begins ascend, so they and
    what lies between them are one binary column, of which every other value is taken.
    """
    bounds = np.empty(2 * len(begin), np.int32)
    bounds[0::2], bounds[1::2] = begin, begin + np.maximum(length, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.binary(), max(len(bounds) - 1, 0), buffers)
    places = np.arange(0, len(bounds), 2)
    is_null = length < 0
    return every.take(pa.array(places, mask=is_null) if is_null.any() else pa.array(places))
