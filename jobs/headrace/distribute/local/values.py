"""Rows from and to plain values: for conformance cases and tests, whose data is small."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.kernel.step import StageResult
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expr import Schema
from headrace.model.panes import Pane, Timing
from headrace.model.time import Instant
from headrace.model.windows import Window
from headrace.program import columns as c


def element_rows(
    schema: Schema, elements: Sequence[tuple[Mapping[str, Any], Instant, int]], sizes: Sequence[int] | None = None
) -> dict[str, pa.Array]:
    """Elements as rows for ``Operator.take_in``: their columns, event time (granules) and sign (1, or -1 to withdraw);
    ``sizes`` are their bytes where these are not those of their columns.

    Timestamps among the columns are Instants.
    """
    columns = {
        name: pa.array([row.get(name) for row, _, _ in elements], ARROW_TYPES[kind]) for name, kind in schema.items()
    }
    columns[c.EVENT_TIME] = pa.array([at for _, at, _ in elements], pa.int64())
    columns[c.SIGN] = pa.array([sign for _, _, sign in elements], pa.int64())
    return columns if sizes is None else {**columns, c.SIZE: pa.array(sizes, pa.int64())}


def emitted(result: StageResult | None) -> list[Pane]:
    """What an epoch emitted, retractions included, ordered by the emitting window's (end, start), then key, as a step's
    output is (semantics 3.2).
    """
    if result is None:
        return []
    found = result.emission
    keys = [result.rows[name].take(pa.array(found.row)).to_pylist() for name in result.stage.keys]
    own = [result.rows[name].to_numpy()[found.row].tolist() for name in (c.WINDOW_END, c.WINDOW_START)]
    panes = found.panes.to_pylist()
    names = list(result.stage.stage.value_types)
    rows = zip(*own, zip(*keys, strict=True), found.sequence.tolist(), panes, found.is_retraction.tolist(), strict=True)
    ordered = sorted(rows, key=lambda row: row[:4])
    return [_pane(key, names, pane, withdrawn) for _, _, key, _, pane, withdrawn in ordered]


def _pane(key: tuple[Any, ...], names: Sequence[str], pane: Mapping[str, Any], is_retraction: bool) -> Pane:
    return Pane(
        key=key,
        window=Window(Instant(pane["window_start"]), Instant(pane["window_end"])),
        values=tuple(_value(pane[name]) for name in names),
        timestamp=Instant(pane["pane_time"]),
        timing=Timing(pane["timing"]),
        index=pane["pane_index"],
        nonspeculative_index=pane["nonspeculative_index"],
        is_first=pane["is_first"],
        is_last=pane["is_last"],
        is_retraction=is_retraction,
    )


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(tuple(item.values()) if isinstance(item, dict) else item for item in value)
    return value
