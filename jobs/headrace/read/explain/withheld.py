"""Rows that ``having`` withholds (semantics 9.10): which they are, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.kernel.expressions.evaluation import column
from headrace.kernel.grouping import Ints, of_lists
from headrace.kernel.stage import CompiledStage
from headrace.kernel.types import timestamps
from headrace.model.expressions.expr import render
from headrace.model.expressions.traversal import columns_of
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.program import columns as c
from headrace.read.json_values import json_value
from headrace.read.views.arrow_types import python_rows

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Withheld:
    """Why a row does not leave: the ``condition``, which is false or NULL of it, and the ``values`` that it reads."""

    condition: str
    is_null: bool
    values: Mapping[str, Any]

    def __str__(self) -> str:
        read = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"having {self.condition} is {'NULL' if self.is_null else 'false'}{f' of {read}' if read else ''}"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"condition": self.condition, "is_null": self.is_null, "values": json_value(self.values)}


def withheld(stage: CompiledStage, windows: pa.RecordBatch, so_far: Columns) -> list[Withheld | None]:
    """Why a row of what each of the open ``windows`` holds ``so_far`` would not leave; None: it would."""
    window = {WINDOW_START: windows.column(c.WINDOW_START), WINDOW_END: windows.column(c.WINDOW_END)}
    return _verdicts(stage, {**_keys(stage, windows), **so_far, **window}, windows.num_rows)


def newest_withheld(stage: CompiledStage, windows: pa.RecordBatch) -> list[Withheld | None]:
    """Why the newest pane of each of the open ``windows``, as far as they remember it, did not leave; None: it did,
    there is none, or panes are not remembered.
    """
    verdicts: list[Withheld | None] = [None] * windows.num_rows
    if stage.stage.aggregation.having is None or not stage.remembers:
        return verdicts
    panes, groups = of_lists(windows.column(c.LIVE))
    row: Ints = groups.of_row
    keys = {name: values.take(pa.array(row)) for name, values in _keys(stage, windows).items()}
    values = {name: panes.field(name) for name in (*stage.stage.value_types, WINDOW_START, WINDOW_END)}
    for number, verdict in zip(row.tolist(), _verdicts(stage, {**keys, **values}, len(panes)), strict=True):
        verdicts[number] = verdict
    return verdicts


def _keys(stage: CompiledStage, windows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: windows.column(name) for name in stage.keys}


def _verdicts(stage: CompiledStage, rows: Columns, length: int) -> list[Withheld | None]:
    condition = stage.stage.aggregation.having
    if condition is None:
        return [None] * length
    stamped = {name: timestamps(rows[name]) for name in (WINDOW_START, WINDOW_END)}
    row = {**rows, **stamped}
    answers = column(condition, row, stage.stage.pane_schema, length).to_pylist()
    names = sorted(columns_of(condition))
    read = python_rows(pa.RecordBatch.from_pydict({name: row[name] for name in names})) if names else [{}] * length
    return [
        None if answer else Withheld(render(condition), answer is None, values)
        for answer, values in zip(answers, read, strict=True)
    ]
