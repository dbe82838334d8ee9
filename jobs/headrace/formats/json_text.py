"""Records that never were text, as text: what dead letters and late records show of them."""

import json
from base64 import b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.expressions.decimals import spelled
from headrace.kernel.grouping import Ints
from headrace.kernel.types import DATE, DECIMAL, TIMESTAMP
from headrace.model.time import iso_8601


def as_json(columns: Mapping[str, pa.Array], rows: Ints, *, for_all: bool = False) -> pa.Array:
    """Some rows as JSON: NULLs included, lists as arrays, timestamps to the microsecond, decimals as text, bytes in
    base64. ``for_all``: so that every reader of JSON takes them, with NaN and infinities as text.
    """
    names = list(columns)
    taken = [_plain(columns[name].take(pa.array(rows))) for name in names]
    if for_all:
        taken = [
            _finite(values) if _has_floats(columns[name].type) else values
            for name, values in zip(names, taken, strict=True)
        ]
    objects = [
        json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) for values in zip(*taken, strict=True)
    ]
    return pa.array([text.encode(errors="replace") for text in objects], pa.binary())


def _has_floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind.value_type if pa.types.is_list(kind) else kind))


def _finite(values: list[Any]) -> list[Any]:
    return [
        _finite(one) if isinstance(one, list) else one if one is None or isfinite(one) else _WORDS[str(one)]
        for one in values
    ]


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_list(values.type):
        items = iter(_plain(pc.list_flatten(values)))
        lengths = pc.list_value_length(values).to_pylist()
        return [None if length is None else [next(items) for _ in range(length)] for length in lengths]
    if values.type == TIMESTAMP:
        return [None if at is None else iso_8601(at) for at in values.cast(pa.int64()).to_pylist()]
    if values.type == DATE:
        return list(values.cast(pa.string()).to_pylist())
    if values.type == DECIMAL:
        return list(spelled(values).to_pylist())
    if values.type == pa.binary():
        return [None if octets is None else b64encode(octets).decode() for octets in values.to_pylist()]
    return list(values.to_pylist())
