"""Sketches of few values, byte by byte: none of them has begun to forget."""

import math
import struct
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import xxhash

from headrace.model.expressions.data_types import DataType, to_billionths

_TAGS = [
    DataType.INT,
    DataType.FLOAT,
    DataType.STRING,
    DataType.BOOL,
    DataType.TIMESTAMP,
    DataType.DATE,
    DataType.BYTES,
    DataType.DECIMAL,
]


def distinct_sketch(values: Sequence[Any], kind: DataType) -> bytes:
    """The hashes of the different ``values``."""
    hashes = sorted({xxhash.xxh64_intdigest(_encode_value(value, kind)) >> 1 for value in values})
    assert len(hashes) <= 512
    return b"HRD\x01\x00" + b"".join(struct.pack("<Q", value_hash) for value_hash in hashes)


def quantile_sketch(values: Sequence[Any], kind: DataType) -> bytes:
    """The ``values``, ascending, all on the first level."""
    assert len(values) <= 600
    spell: dict[DataType, Callable[[Any], bytes]] = {
        DataType.INT: _int,
        DataType.FLOAT: _float,
        DataType.DECIMAL: _decimal,
    }
    number = list(spell).index(kind)
    body = b"".join(spell[kind](value) for value in values)
    return b"HRQ\x01" + bytes([number]) + struct.pack("<I", len(values)) + bytes(len(values)) + body


def _encode_value(value: Any, kind: DataType) -> bytes:
    tag = struct.pack("<Q", _TAGS.index(kind) + 1)
    match kind:
        case DataType.FLOAT:
            return tag + _float(value)
        case DataType.STRING | DataType.BYTES:
            octets = value.encode() if isinstance(value, str) else value
            return tag + struct.pack("<q", len(octets)) + octets + bytes(-len(octets) % 8)
        case DataType.DATE:
            return tag + _int((value - date(1970, 1, 1)).days)
        case DataType.DECIMAL:
            return tag + _decimal(value)
    return tag + _int(int(value))


def _int(value: int) -> bytes:
    return struct.pack("<q", value)


def _float(value: float) -> bytes:
    return struct.pack("<Q", 0x7FF8000000000000) if math.isnan(value) else struct.pack("<d", value + 0.0)


def _decimal(value: Decimal) -> bytes:
    units = to_billionths(value)
    assert units is not None
    return units.to_bytes(16, "little", signed=True)
