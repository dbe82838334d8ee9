"""Layers of the view ``current`` merged, a part of the keys at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.tasks.found import Files, Folded, Message, Passed, attempted
from headrace.distribute.tasks.work import Work, file_name
from headrace.distribute.views import newest_records
from headrace.kernel.keys import hashes
from headrace.kernel.renamed import Names
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import together
from headrace.state.files import put_rows, read_rows
from headrace.state.groups import part_of
from headrace.state.groups import parts as cut
from headrace_snapshots.format.files import DataFile


@dataclass(frozen=True)
class FoldPlan:
    """``files`` to merge into new ones below ``prefix``. ``bottom``: nothing lies below them, and retractions go.
    ``names``: what the files call columns, by path, if not by their name.
    """

    prefix: str
    files: Files
    parts: int
    bottom: bool
    names: Mapping[str, Names]


def fold_task(work: Work, plan: FoldPlan, part: int) -> Message:
    """What a part becomes."""
    before = work.requests()
    files, error = attempted(partial(_fold, work, plan, part))
    return Message(part, Passed(Folded(files or ()), error=error, requests=work.requests_since(before)))


def _fold(work: Work, plan: FoldPlan, part: int) -> Files:
    own = cut(plan.parts)[part]
    stage = work.stages[-1]
    files = [file for file in plan.files if own.overlaps(file.groups)]
    held = [_own(stage, _panes(work, stage, file, plan.names), file, plan.parts, part) for file in files]
    rows = newest_records(stage, together(stage.pane_schema, held))
    if plan.bottom:
        rows = rows.filter(pc.invert(rows.column("is_retraction")))
    return put_rows(work.store, file_name(plan.prefix, "current", part), [rows], (own.first, own.last))


def _panes(work: Work, stage: CompiledStage, file: DataFile, names: Mapping[str, Names]) -> pa.RecordBatch:
    return read_rows(work.store, [file], stage.pane_schema, names.get(file.path, {}))


def _own(stage: CompiledStage, rows: pa.RecordBatch, file: DataFile, number: int, part: int) -> pa.RecordBatch:
    """Those of the ``rows`` of ``file`` whose keys are in that part, out of so many."""
    if cut(number)[part].holds(file.groups):
        return rows
    keys = [rows.column(name) for name in stage.keys]
    return rows.filter(pa.array(part_of(hashes(keys, rows.num_rows), number) == part))
