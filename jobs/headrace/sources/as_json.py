"""Records that never were text, as text: what dead letters and late records show of them."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.kernel.groups import Ints
from headrace.kernel.types import TIMESTAMP
from headrace.model.time import Instant, render


def as_json(columns: Mapping[str, pa.Array], rows: Ints) -> pa.Array:
    """Some rows as JSON: NULLs included, timestamps to the microsecond."""
    names = list(columns)
    taken = [_plain(columns[name].take(pa.array(rows))) for name in names]
    found = [
        json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False) for values in zip(*taken, strict=True)
    ]
    return pa.array([text.encode(errors="replace") for text in found], pa.binary())


def _plain(values: pa.Array) -> list[Any]:
    if values.type == TIMESTAMP:
        return [None if at is None else render(Instant(at)) for at in values.cast(pa.int64()).to_pylist()]
    return list(values.to_pylist())
