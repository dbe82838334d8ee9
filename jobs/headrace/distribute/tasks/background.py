"""Work beside the epochs: layers of state are merged, and those of ``current`` folded.

Layers of the view ``current`` merged, a part of the keys at a time.

A task holds all rows of its part once. What it takes beside them to find the newest is that of a piece of the part.

Layers of the tables of state merged beside the epochs, a part of the keys at a time: which layers become one, what a
task does for it, and what the tables are with the layer that came of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.process import Beside, Stop
from headrace.distribute.tasks import task_results
from headrace.distribute.tasks.exchange import ReceivedMessage
from headrace.distribute.tasks.plan import TaskEnvironment, file_name
from headrace.distribute.tasks.tables import files_of, open_layers, put_pieces
from headrace.distribute.views import newest_records
from headrace.kernel.columns import Names
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import together
from headrace.model.time import Instant
from headrace.state.chunks import KeyGroupRange
from headrace.state.chunks import parts as cut
from headrace.state.files import put_rows, read_some
from headrace.state.layers import RememberedIds
from headrace.state.migration import merge_ids, merge_layers, merge_rows
from headrace_snapshots.format.files import FANOUT, Layer, plan_merge
from headrace_snapshots.format.manifest import IDS

PIECE_ROWS = 1 << 18
"""Rows of all layers in a piece, about."""


@dataclass(frozen=True)
class FoldPlan:
    """``files`` to merge into new ones below ``prefix``. ``bottom``: nothing lies below them, and retractions go.
    ``names``: what the files call columns, by path, if not by their name. They are of the chain with that number.
    """

    prefix: str
    files: task_results.Files
    parts: int
    bottom: bool
    names: Mapping[str, Names]
    chain: int = 0


def fold_task(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop | None = None) -> task_results.Message:
    """What a part becomes. Raises CancelledError once ``stop`` is set."""
    before, files = work.requests(), task_results.Files()
    failures: list[task_results.Failure] = []
    with task_results.collect_failure(failures):
        files = _fold(work, plan, part, stop or Stop())
    result = task_results.TaskResult(
        task_results.Folded(files), error=next(iter(failures), None), requests=work.requests_since(before)
    )
    return task_results.Message(part, result)


def _fold(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> task_results.Files:
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


Tables = Mapping[str, tuple[Layer, ...]]


@dataclass(frozen=True)
class LayerMerge:
    """Neighbouring ``layers`` of a table, oldest first. ``is_lowest``: nothing lies below them."""

    layers: tuple[Layer, ...]
    is_lowest: bool

    @property
    def epochs(self) -> tuple[int, int]:
        """Whose rows they hold."""
        return self.layers[0].first_epoch, self.layers[-1].last_epoch

    def merged(self, files: task_results.Files) -> list[Layer]:
        """The layer that they become, none if nothing of them is left."""
        ends = [layer.expires for layer in self.layers]
        expires = None if None in ends else max(end for end in ends if end is not None)
        return [Layer.of(files, *self.epochs, expires)] if files else []

    def replaced(self, layers: Sequence[Layer], files: task_results.Files) -> tuple[Layer, ...]:
        """``layers`` with what they became in their place; the oldest of them may be gone meanwhile."""
        first, last = self.epochs
        merged = [layer for layer in layers if first <= layer.first_epoch and layer.last_epoch <= last]
        if not merged:
            return tuple(layers)
        at = layers.index(merged[0])
        return (*layers[:at], *self.merged(files), *layers[at + len(merged) :])


@dataclass(frozen=True)
class MergePlan:
    """Tables to merge into files below ``prefix``, in so many ``parts``. ``watermark``: that of the first stage, or of
    one behind it that takes what a loop makes of records.
    """

    prefix: str
    parts: int
    watermark: Instant
    tables: Mapping[str, LayerMerge]

    def replaced(self, tables: Tables, results: Sequence[task_results.Merged]) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with the ``results`` of the parts in place of their layers."""
        files = {name: tuple(file for part in results for file in part.files[name]) for name in self.tables}
        changed = {name: merging.replaced(tables[name], files[name]) for name, merging in self.tables.items()}
        return {**tables, **changed}


def mergings(tables: Tables) -> dict[str, LayerMerge]:
    """What is to be merged of ``tables`` (``format.layers``)."""
    planned = {name: plan_merge([layer.rows for layer in layers]) for name, layers in tables.items()}
    return {name: LayerMerge(tables[name][at:], at == 0) for name, at in planned.items() if at is not None}


def merge_task(work: TaskEnvironment, plan: MergePlan, part: int, stop: Stop | None = None) -> task_results.Message:
    """What becomes of a part of the keys. Raises CancelledError once ``stop`` is set."""
    before, merged = work.requests(), None
    failures: list[task_results.Failure] = []
    with task_results.collect_failure(failures):
        merged = _merge(work, plan, part, stop or Stop())
    return task_results.Message(
        part, task_results.TaskResult(merged, error=next(iter(failures), None), requests=work.requests_since(before))
    )


def _merge(work: TaskEnvironment, plan: MergePlan, part: int, stop: Stop) -> task_results.Merged:
    return task_results.Merged({name: _table(work, plan, part, name, stop) for name in stop.checked(plan.tables)})


def _table(work: TaskEnvironment, plan: MergePlan, part: int, name: str, stop: Stop) -> task_results.Files:
    merging = plan.tables[name]
    if name == IDS:
        remembered = RememberedIds.of(work.pipeline, plan.watermark)
        layers = open_layers(work, merging.layers, remembered.schema, part, plan.parts)
        pieces = merge_ids(remembered.schema, layers, remembered.counts)
    elif (loop := work.chain_of(name).loop) is not None and name == work.chain_of(name).names.edges:
        layers = open_layers(work, merging.layers, loop.edge_schema, part, plan.parts)
        pieces = merge_rows(layers, partial(loop.distinct_edges, watermark=plan.watermark))
    else:
        stage = work.chain_of(name).stage_of(name)
        layers = open_layers(work, merging.layers, stage.state_schema, part, plan.parts)
        pieces = merge_layers(stage, layers, is_lowest=merging.is_lowest)
    return files_of(put_pieces(work, plan.prefix, f"{name}-merged", part, stop.checked(pieces)))


MOST_LAYERS = 4 * FANOUT
"""Epochs wait for a merge where a table has more layers."""


class Merger(Protocol):
    """Where the tasks of a merge run."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether they run in other processes, whose requests only they count."""

    def tasks(self, size: int) -> int:
        """How many tasks share work on so many bytes."""

    def merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What they say. Raises an error soon after ``stop`` was set."""


class Merges:
    """What is merged between two restores."""

    def __init__(self, runner: Merger) -> None:
        self._runner = runner
        self._beside = Beside[tuple[MergePlan, Sequence[ReceivedMessage]]]("merge")
        self._requests: dict[str, int] = {}

    def begin(self, prefix: str, tables: Tables, watermark: Instant) -> None:
        """Begin what is to be merged of ``tables``, into files below ``prefix``, unless a merge is running."""
        planned = {} if self._beside.is_running else mergings(tables)
        if not planned:
            return
        files = [file for merging in planned.values() for layer in merging.layers for file in layer.files]
        parts = self._runner.tasks(sum(file.bytes for file in files))
        plan = MergePlan(prefix, parts, watermark, planned)
        self._beside.begin(lambda stop: (plan, self._runner.merge(plan, stop)))

    def adopted(self, tables: Tables, *, wait: bool) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with what was merged meanwhile. ``wait``: until the merge that is running, if one is, is done.
        Raises the error that ended a merge.
        """
        wait = wait or any(len(layers) > MOST_LAYERS for layers in tables.values())
        if not (self._beside.is_done or (wait and self._beside.is_running)):
            return dict(tables)
        plan, messages = self._beside.result()
        merge = task_results.UpstreamResults.of(messages)
        if merge.error is not None:
            raise merge.error.error()
        if self._runner.is_elsewhere:
            self._requests = task_results.summed([self._requests, *(result.requests for result in merge.results)])
        outputs = (result.output for result in merge.results)
        return plan.replaced(tables, [output for output in outputs if isinstance(output, task_results.Merged)])

    def close(self) -> None:
        """End the merge that is running, if one is, and wait until it writes nothing more."""
        self._beside.close()

    def requests(self) -> Mapping[str, int]:
        """Storage requests of the merges adopted since the last call, without those that an epoch has counted."""
        requests, self._requests = self._requests, {}
        return requests
