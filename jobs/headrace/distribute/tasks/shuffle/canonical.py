"""Digests of values by a canonical encoding: equal values have one encoding, in every process and however they share
objects; values of different types never have the same.

Pickles have neither property: an object that occurs twice is written once and referred to, so equal values differ by
which of their parts are the same object.
"""

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum, StrEnum
from functools import singledispatch
from typing import Any

import numpy as np

from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.record import JsonRecord


def canonical_digest(value: Any) -> bytes:
    """SHA-256 of the encoding of ``value``. A DataFile counts by its rows, length and checksum: its name is new in each
    run of a task. Raises TypeError for a type that has no encoding.
    """
    return hashlib.sha256(_encoded(value)).digest()


@singledispatch
def _encoded(value: Any) -> bytes:
    if isinstance(value, JsonRecord):
        names = value.__struct_fields__
    elif is_dataclass(value):
        names = tuple(field.name for field in fields(value))
    else:
        raise TypeError(f"{type(value).__name__} has no canonical encoding: give it one in {__name__}")
    return _tagged("record", _name(type(value)), *(_encoded(getattr(value, name)) for name in names))


@_encoded.register
def _(value: None) -> bytes:
    return _tagged("none")


@_encoded.register
def _(value: bool) -> bytes:
    return _tagged("bool", str(value).encode())


@_encoded.register
def _(value: int) -> bytes:
    return _tagged("int", str(value).encode())


@_encoded.register
def _(value: float) -> bytes:
    return _tagged("float", struct.pack(">d", math.nan if math.isnan(value) else value))


@_encoded.register
def _(value: str) -> bytes:
    return _tagged("text", value.encode(errors="surrogatepass"))


@_encoded.register
def _(value: bytes) -> bytes:
    return _tagged("bytes", value)


@_encoded.register
def _(value: type) -> bytes:
    return _tagged("type", _name(value))


@_encoded.register
def _(value: Enum | IntEnum | StrEnum) -> bytes:
    return _tagged("enum", _name(type(value)), value.name.encode())


@_encoded.register(tuple)
@_encoded.register(list)
def _(value: Sequence[Any]) -> bytes:
    return _tagged("sequence", *map(_encoded, value))


@_encoded.register(Mapping)
def _(value: Mapping[Any, Any]) -> bytes:
    return _tagged("mapping", *sorted(_encoded(item) for item in value.items()))


@_encoded.register(set)
@_encoded.register(frozenset)
def _(value: Set[Any]) -> bytes:
    return _tagged("set", *sorted(map(_encoded, value)))


@_encoded.register
def _(value: np.generic) -> bytes:
    return _encoded(value.item())


@_encoded.register
def _(value: DataFile) -> bytes:
    return _tagged("file", *map(_encoded, (value.rows, value.bytes, value.sha256)))


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _tagged(tag: str, *parts: bytes) -> bytes:
    """``parts`` under a ``tag``, each with its length before it, so that no two ways to cut them look the same."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in (tag.encode(), *parts))
