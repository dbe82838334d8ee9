"""Work beside the epochs: layers of state are merged, and those of ``current`` folded.

Layers of the view ``current`` merged, a part of the keys at a time.

A task holds all rows of its part once. What it takes beside them to find the newest is that of a piece of the part.

Layers of the tables of state merged beside the epochs, a part of the keys at a time: which layers become one, what a
task does for it, and what the tables are with the layer that came of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from headrace.distribute.views import newest_records, summed_rows
from headrace.kernel.columns import Names
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import together
from headrace.model.time import Instant
from headrace.state.chunks import GROUPS, KeyGroupRange, in_part, some_rows
from headrace.state.chunks import parts as cut
from headrace.state.files import as_stored, put_rows, read_some
from headrace.state.layers import RememberedIds
from headrace.state.migration import merge_ids, merge_layers, merge_rows
from headrace_snapshots.format.files import FANOUT, DataFile, Layer, UnfinishedMerge, plan_next_merge
from headrace_snapshots.format.manifest import IDS

PIECE_ROWS = 1 << 18
"""Rows of all layers in a piece, about."""


@dataclass(frozen=True)
class FoldPlan:
    """``files`` to merge into new ones below ``prefix``: those ``numbers`` of so many ``parts`` of the keys.
    ``bottom``: nothing lies below them, and retractions go. ``names``: what the files call columns, by path, if not by
    their name. They are of the chain with that number.
    """

    prefix: str
    files: task_results.Files
    parts: int
    numbers: range
    bottom: bool
    names: Mapping[str, Names]
    chain: int = 0


def fold_task(work: TaskEnvironment, plan: FoldPlan, number: int, stop: Stop | None = None) -> task_results.Message:
    """What one of the plan's ``numbers`` becomes. Raises CancelledError once ``stop`` is set."""
    before, files = work.requests(), task_results.Files()
    failures: list[task_results.Failure] = []
    with task_results.collect_failure(failures):
        files = _fold(work, plan, plan.numbers[number], stop or Stop())
    result = task_results.TaskResult(
        task_results.Merged(files), error=next(iter(failures), None), requests=work.requests_since(before)
    )
    return task_results.Message(number, result)


def _fold(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> task_results.Files:
    keys = cut(plan.parts)[part]
    chain = work.chains[plan.chain]
    stage = chain.stages[-1]
    if stage.stage.gives_rows and not stage.stage.withdraws:
        return _one_after_another(work, plan, part, stop)
    files = [file for file in plan.files if keys.overlaps(file.groups)]
    pieces = keys.cut(1 + sum(file.rows for file in plan.files) // (plan.parts * PIECE_ROWS))
    by_piece: list[list[pa.RecordBatch]] = [[] for _ in pieces]
    for file in stop.checked(files):
        for panes in _panes_of(work, plan, file, keys):
            for batches, batch in zip(by_piece, _cut(stage, panes, pieces), strict=True):
                batches.append(batch)
    folded = (_newest(stage, batches, bottom=plan.bottom) for batches in by_piece)
    name = file_name(plan.prefix, chain.names.current, part)
    return put_rows(work.store, name, stop.checked(folded), stage.hashes_of)


def _one_after_another(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> task_results.Files:
    """Rows of which none is withdrawn, as fewer files: each part has some of the files."""
    chain = work.chains[plan.chain]
    schema = chain.stages[-1].pane_schema
    files = plan.files[part * len(plan.files) // plan.parts : (part + 1) * len(plan.files) // plan.parts]
    rows = (rows for file in files for rows in read_some(work.store, file, schema, plan.names.get(file.path, {})))
    return put_rows(work.store, file_name(plan.prefix, chain.names.current, part), stop.checked(rows))


def _panes_of(work: TaskEnvironment, plan: FoldPlan, file: DataFile, keys: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    """The rows of ``file`` whose keys are in a part, and maybe others: what is not needed for them is not read."""
    schema, names = work.chains[plan.chain].stages[-1].pane_schema, plan.names.get(file.path, {})
    rows = some_rows(work.store, file, in_part(keys)) if plan.parts > 1 else None
    if rows is None:
        yield from read_some(work.store, file, schema, names)
    else:
        yield as_stored(rows, schema, names)


def _cut(stage: CompiledStage, panes: pa.RecordBatch, pieces: Sequence[KeyGroupRange]) -> list[pa.RecordBatch]:
    """The rows of ``panes`` whose keys are in each of ``pieces``."""
    hashed = stage.hashes_of(panes)
    order = np.argsort(hashed, kind="stable")
    ascending = hashed[order]
    return [panes.take(pa.array(order[piece.span(ascending)])) for piece in pieces]


def _newest(stage: CompiledStage, batches: Sequence[pa.RecordBatch], *, bottom: bool) -> pa.RecordBatch:
    if stage.stage.gives_rows:  # what was withdrawn before it came stays, also at the bottom
        return summed_rows(stage, together(stage.pane_schema, batches))
    rows = newest_records(stage, together(stage.pane_schema, batches))
    return rows.filter(pc.invert(rows.column("is_retraction"))) if bottom else rows


Tables = Mapping[str, tuple[Layer, ...]]

STEP_ROWS = 1 << 18
"""Rows that are merged in a step at least, where there are so many; and about those of a part."""

PACE = 3
"""So many times the rows of the newest layer are merged in a step: more than come to all tiers in the long run."""

CROWDED = 32
"""With more layers steps are twice as long."""

MOST_LAYERS = 4 * FANOUT
"""Epochs wait for a merge where a table has more layers, and its steps are as long as it takes."""


@dataclass(frozen=True)
class MergeStep:
    """The ``parts`` of a ``merge`` that are done together, and the ``layers`` that are merged, oldest first."""

    merge: UnfinishedMerge
    layers: tuple[Layer, ...]
    parts: range

    def done(self, files: Sequence[task_results.Files]) -> UnfinishedMerge:
        """The merge after the step, whose parts became ``files``."""
        return self.merge.with_next(files)


@dataclass(frozen=True)
class TableMerges:
    """What is being merged of one table, over several epochs: ``unfinished``, those of the oldest layers first."""

    unfinished: tuple[UnfinishedMerge, ...] = ()

    def with_next(self, layers: Sequence[Layer], parts_of: Callable[[Sequence[Layer]], int]) -> "TableMerges":
        """These as far as they are of ``layers``, and the one that is due now, if one is, in as many parts as
        ``parts_of`` what it merges.
        """
        going_on = tuple(merge for merge in self.unfinished if merge.sources(layers))
        start = plan_next_merge(layers, going_on)
        if start is None:
            return TableMerges(going_on)
        own = layers[start:]
        return TableMerges((*going_on, UnfinishedMerge.of(own, parts_of(own), is_lowest=start == 0)))

    def steps(self, layers: Sequence[Layer]) -> tuple[MergeStep, ...]:
        """What to do of them beside one epoch, the smallest first: its like comes up again soonest."""
        rows_left = max(STEP_ROWS, PACE * layers[-1].rows if layers else 0) * (2 if len(layers) > CROWDED else 1)
        steps: list[MergeStep] = []
        for merge, own in sorted(((m, m.sources(layers)) for m in self.unfinished), key=lambda merge: _rows(merge[1])):
            part_rows = max(_rows(own) // merge.parts, 1)
            count = len(merge.left) if len(layers) > MOST_LAYERS else rows_left // part_rows
            count = min(len(merge.left), max(count, 0 if steps else 1))
            if count:
                steps.append(MergeStep(merge, own, merge.left[:count]))
            rows_left -= count * part_rows
        return tuple(steps)

    def after(self, steps: Mapping[MergeStep, Sequence[task_results.Files]]) -> "TableMerges":
        """These once ``steps`` have been done, whose parts became the files."""
        done = {step.merge: step.done(files) for step, files in steps.items()}
        return TableMerges(tuple(done.get(merge, merge) for merge in self.unfinished))

    def applied(self, layers: Sequence[Layer]) -> tuple["TableMerges", tuple[Layer, ...]]:
        """Merges that go on, and ``layers`` with what the others have made of them."""
        for merge in self.unfinished:
            if not merge.left:
                layers = merge.applied(layers)
        return TableMerges(tuple(merge for merge in self.unfinished if merge.left)), tuple(layers)


def _rows(layers: Sequence[Layer]) -> int:
    return sum(layer.rows for layer in layers)


@dataclass(frozen=True)
class MergePart:
    """A ``part`` of a ``step`` of a merge of the ``table``."""

    table: str
    step: MergeStep
    part: int


@dataclass(frozen=True)
class MergePlan:
    """What to merge into files below ``prefix``, a task for each of the ``parts``. ``watermark``: that of the first
    stage, or of one behind it that takes what a loop makes of records.
    """

    prefix: str
    watermark: Instant
    parts: tuple[MergePart, ...]


def merge_task(work: TaskEnvironment, plan: MergePlan, number: int, stop: Stop | None = None) -> task_results.Message:
    """What becomes of the part with that number. Raises CancelledError once ``stop`` is set."""
    before, merged = work.requests(), None
    failures: list[task_results.Failure] = []
    with task_results.collect_failure(failures):
        merged = task_results.Merged(_merge(work, plan, plan.parts[number], stop or Stop()))
    return task_results.Message(
        number, task_results.TaskResult(merged, error=next(iter(failures), None), requests=work.requests_since(before))
    )


def _merge(work: TaskEnvironment, plan: MergePlan, merging: MergePart, stop: Stop) -> task_results.Files:
    name, merge, stored, part = merging.table, merging.step.merge, merging.step.layers, merging.part
    stop.check()
    if name == IDS:
        remembered = RememberedIds.of(work.pipeline, plan.watermark)
        layers = open_layers(work, stored, remembered.schema, part, merge.parts)
        pieces = merge_ids(remembered.schema, layers, remembered.counts)
    elif (loop := work.chain_of(name).loop) is not None and name == work.chain_of(name).names.edges:
        layers = open_layers(work, stored, loop.edge_schema, part, merge.parts)
        pieces = merge_rows(layers, partial(loop.distinct_edges, watermark=plan.watermark))
    else:
        stage = work.chain_of(name).stage_of(name)
        layers = open_layers(work, stored, stage.state_schema, part, merge.parts)
        pieces = merge_layers(stage, layers, is_lowest=merge.is_lowest)
    return files_of(put_pieces(work, plan.prefix, f"{name}-merged", part, stop.checked(pieces)))


NO_MERGES: Mapping[str, Sequence[UnfinishedMerge]] = {}


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
    """What is merged between two restores. ``unfinished``: what was begun before them, by table."""

    def __init__(self, runner: Merger, unfinished: Mapping[str, Sequence[UnfinishedMerge]] = NO_MERGES) -> None:
        self._runner = runner
        self._beside = Beside[tuple[MergePlan, Sequence[ReceivedMessage]]]("merge")
        self._requests: dict[str, int] = {}
        self._tables = {table: TableMerges(tuple(merges)) for table, merges in unfinished.items()}

    def begin(self, prefix: str, tables: Tables, watermark: Instant) -> None:
        """Begin a step of what is to be merged of ``tables``, into files below ``prefix``, unless one is under way."""
        if self._beside.is_running:
            return
        for table, layers in tables.items():
            merges = self._tables.get(table, TableMerges())
            self._tables[table] = merges.with_next(layers, self._parts_of)
        steps = [(table, step) for table, layers in tables.items() for step in self._tables[table].steps(layers)]
        parts = tuple(MergePart(table, step, part) for table, step in steps for part in step.parts)
        if not parts:
            return
        plan = MergePlan(prefix, watermark, parts)
        self._beside.begin(lambda stop: (plan, self._runner.merge(plan, stop)))

    def adopted(self, tables: Tables, *, wait: bool) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with what was merged meanwhile. ``wait``: until the step that is under way, if one is, is done.
        Raises the error that ended it.
        """
        wait = wait or any(len(layers) > MOST_LAYERS for layers in tables.values())
        if not (self._beside.is_done or (wait and self._beside.is_running)):
            return dict(tables)
        plan, messages = self._beside.result()
        results = task_results.UpstreamResults.of(messages)
        if results.error is not None:
            raise results.error.error()
        if self._runner.is_elsewhere:
            self._requests = task_results.summed([self._requests, *(result.requests for result in results.results)])
        files: dict[str, dict[MergeStep, list[task_results.Files]]] = {}
        for part, result in zip(plan.parts, results.results, strict=True):
            assert isinstance(result.output, task_results.Merged)
            files.setdefault(part.table, {}).setdefault(part.step, []).append(result.output.files)
        adopted = dict(tables)
        for table, steps in files.items():
            merges = self._tables[table].after(steps)
            self._tables[table], adopted[table] = merges.applied(tables[table])
        return adopted

    def _parts_of(self, layers: Sequence[Layer]) -> int:
        return max(self._runner.tasks(sum(layer.bytes for layer in layers)), min(_rows(layers) // STEP_ROWS, GROUPS))

    @property
    def unfinished(self) -> dict[str, tuple[UnfinishedMerge, ...]]:
        """What goes on with the next epoch, by table."""
        return {table: merges.unfinished for table, merges in self._tables.items() if merges.unfinished}

    def close(self) -> None:
        """End the step that is under way, if one is, and wait until it writes nothing more."""
        self._beside.close()

    def requests(self) -> Mapping[str, int]:
        """Storage requests of the steps adopted since the last call, without those that an epoch has counted."""
        requests, self._requests = self._requests, {}
        return requests
