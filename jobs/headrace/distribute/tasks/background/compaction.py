"""Layers of the view ``current`` merged, a part of the keys at a time.

A task holds all rows of its part once. What it takes beside them to find the newest is that of a piece of the part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.tasks.background.thread import Stop
from headrace.distribute.tasks.task_environment import TaskEnvironment, file_name
from headrace.distribute.tasks.task_results import Failure, Files, Folded, Message, TaskResult, collect_failure
from headrace.distribute.views import newest_records
from headrace.kernel.renamed_columns import Names
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import together
from headrace.state.datafiles.files import put_rows, read_some
from headrace.state.key_groups import KeyGroupRange
from headrace.state.key_groups import parts as cut

PIECE_ROWS = 1 << 18
"""Rows of all layers in a piece, about."""


@dataclass(frozen=True)
class FoldPlan:
    """``files`` to merge into new ones below ``prefix``. ``bottom``: nothing lies below them, and retractions go.
    ``names``: what the files call columns, by path, if not by their name. They are of the chain with that number.
    """

    prefix: str
    files: Files
    parts: int
    bottom: bool
    names: Mapping[str, Names]
    chain: int = 0


def fold_task(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop | None = None) -> Message:
    """What a part becomes. Raises CancelledError once ``stop`` is set."""
    before, files = work.requests(), Files()
    failures: list[Failure] = []
    with collect_failure(failures):
        files = _fold(work, plan, part, stop or Stop())
    result = TaskResult(Folded(files), error=next(iter(failures), None), requests=work.requests_since(before))
    return Message(part, result)


def _fold(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> Files:
    keys = cut(plan.parts)[part]
    chain = work.chains[plan.chain]
    stage = chain.stages[-1]
    files = [file for file in plan.files if keys.overlaps(file.groups)]
    pieces = keys.cut(1 + sum(file.rows for file in plan.files) // (plan.parts * PIECE_ROWS))
    by_piece: list[list[pa.RecordBatch]] = [[] for _ in pieces]
    for file in stop.checked(files):
        for panes in read_some(work.store, file, stage.pane_schema, plan.names.get(file.path, {})):
            for batches, batch in zip(by_piece, _cut(stage, panes, pieces), strict=True):
                batches.append(batch)
    folded = (_newest(stage, batches, bottom=plan.bottom) for batches in by_piece)
    name = file_name(plan.prefix, chain.names.current, part)
    return put_rows(work.store, name, stop.checked(folded), stage.hashes_of)


def _cut(stage: CompiledStage, panes: pa.RecordBatch, pieces: Sequence[KeyGroupRange]) -> list[pa.RecordBatch]:
    """The rows of ``panes`` whose keys are in each of ``pieces``."""
    hashed = stage.hashes_of(panes)
    order = np.argsort(hashed, kind="stable")
    ascending = hashed[order]
    return [panes.take(pa.array(order[piece.span(ascending)])) for piece in pieces]


def _newest(stage: CompiledStage, batches: Sequence[pa.RecordBatch], *, bottom: bool) -> pa.RecordBatch:
    rows = newest_records(stage, together(stage.pane_schema, batches))
    return rows.filter(pc.invert(rows.column("is_retraction"))) if bottom else rows
