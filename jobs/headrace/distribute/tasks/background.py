"""Work beside the epochs, a part of the keys at a time: layers of ``current`` are folded, and those of state merged.

Folds are of the view ``current``. A task begins with all rows of its part, once. Beside them it takes what it needs to
find the newest rows of one slice of the part, whose rows it then lets go.

Merges are of the tables of state. A merge says which layers become one, what a task does for it, and what the tables
are with the new layer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.process import BackgroundThread, Stop
from headrace.distribute.tasks import task_results
from headrace.distribute.tasks.exchange import ReceivedMessage
from headrace.distribute.tasks.plan import TaskEnvironment, file_name
from headrace.distribute.tasks.tables import files_of, open_layers, put_batches
from headrace.distribute.views import newest_records, summed_rows
from headrace.distribute.watermark_inputs import sum_counts
from headrace.kernel.columns import Names
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import concat_rows
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.state.chunks import GROUPS, KeyGroupRange, in_part, some_rows
from headrace.state.chunks import key_group_ranges as cut
from headrace.state.files import as_stored, put_rows, read_some
from headrace.state.layers import RememberedIds
from headrace.this_process import Size
from headrace_snapshots.format.files import FANOUT, DataFile, Layer, UnfinishedMerge, plan_next_merge
from headrace_snapshots.format.manifest import IDS

SLICE_ROWS: Final = Size(1 << 18)
"""About how many rows of all layers one slice of a part has."""


class FoldPlan(msgspec.Struct, frozen=True):
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
    return _run_task(work, number, lambda: _fold_part(work, plan, plan.numbers[number], stop or Stop()))


def _run_task(work: TaskEnvironment, number: int, run: Callable[[], task_results.Files]) -> task_results.Message:
    """What task ``number`` says, whose files ``run`` stores."""
    requests_before, files = work.request_counts(), task_results.Files()
    failures: list[task_results.Failure] = []
    with task_results.collect_failure(failures):
        files = run()
    result = task_results.TaskResult(
        task_results.MergedLayers(files),
        error=next(iter(failures), None),
        requests=work.requests_since(requests_before),
    )
    return task_results.Message(number, result)


def _fold_part(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> task_results.Files:
    keys = cut(plan.parts)[part]
    chain = work.chains[plan.chain]
    stage = chain.stages[-1]
    if stage.stage.gives_rows and not stage.stage.withdraws:
        return _one_after_another(work, plan, part, stop)
    files = [file for file in plan.files if keys.overlaps(file.groups)]
    slices = keys.split_evenly(1 + sum(file.rows for file in plan.files) // (plan.parts * SLICE_ROWS.value))
    by_slice: list[list[pa.RecordBatch]] = [[] for _ in slices]
    for file in stop.check_each(files):
        for panes in _panes_of(work, plan, file, keys):
            for batches, batch in zip(by_slice, _rows_by_slice(stage, panes, slices), strict=True):
                batches.append(batch)
    by_slice.reverse()  # what a slice has goes once it is folded
    folded_rows = (_newest_rows(stage, by_slice.pop(), bottom=plan.bottom) for _ in slices)
    name = file_name(plan.prefix, chain.names.current, part)
    return put_rows(work.store, name, stop.check_each(folded_rows), stage.hashes_of)


def _one_after_another(work: TaskEnvironment, plan: FoldPlan, part: int, stop: Stop) -> task_results.Files:
    """Rows of which none is withdrawn, as fewer files: each part has some of the files."""
    chain = work.chains[plan.chain]
    schema = chain.stages[-1].pane_schema
    files = plan.files[part * len(plan.files) // plan.parts : (part + 1) * len(plan.files) // plan.parts]
    rows = (rows for file in files for rows in read_some(work.store, file, schema, plan.names.get(file.path, {})))
    return put_rows(work.store, file_name(plan.prefix, chain.names.current, part), stop.check_each(rows))


def _panes_of(work: TaskEnvironment, plan: FoldPlan, file: DataFile, keys: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    """The rows of ``file`` whose keys are in a part, and maybe others: what is not needed for them is not read."""
    schema, names = work.chains[plan.chain].stages[-1].pane_schema, plan.names.get(file.path, {})
    rows = some_rows(work.store, file, in_part(keys)) if plan.parts > 1 else None
    if rows is None:
        yield from read_some(work.store, file, schema, names)
    else:
        yield as_stored(rows, schema, names)


def _rows_by_slice(
    stage: CompiledStage, panes: pa.RecordBatch, slices: Sequence[KeyGroupRange]
) -> list[pa.RecordBatch]:
    """The rows of ``panes`` whose keys are in each of ``slices``."""
    hashes = stage.hashes_of(panes)
    order = np.argsort(hashes, kind="stable")
    ascending = hashes[order]
    return [panes.take(pa.array(order[keys.row_slice(ascending)])) for keys in slices]


def _newest_rows(stage: CompiledStage, batches: Sequence[pa.RecordBatch], *, bottom: bool) -> pa.RecordBatch:
    if stage.stage.gives_rows:  # what was withdrawn before it came stays, also at the bottom
        return summed_rows(stage, concat_rows(stage.pane_schema, batches))
    rows = newest_records(stage, concat_rows(stage.pane_schema, batches))
    return rows.filter(pc.invert(rows.column("is_retraction"))) if bottom else rows


Tables = Mapping[str, tuple[Layer, ...]]

STEP_ROWS: Final = Size(1 << 18)
"""Rows that are merged in a step at least, where there are so many; and about those of a part."""

PACE: Final = Size(3)
"""So many times the rows of an epoch are merged beside it: more than come to all tiers in the long run."""

MOST_GROWTH: Final = 1024
"""An epoch is taken for so many times the one before at most, whatever their inputs say."""


def many_layers() -> int:
    """With more layers steps are twice as long."""
    return 2 * FANOUT.value


def most_layers() -> int:
    """Epochs wait for a merge where a table has more layers, and its steps are as long as it takes."""
    return 4 * FANOUT.value


class MergeStep(msgspec.Struct, frozen=True):
    """The ``parts`` of a ``merge`` that are done together, and the ``layers`` that are merged, oldest first."""

    merge: UnfinishedMerge
    layers: tuple[Layer, ...]
    parts: range

    def finish_step(self, files: Sequence[task_results.Files]) -> UnfinishedMerge:
        """The merge after the step, whose parts became ``files``."""
        return self.merge.with_next(files)


class TableMerges(msgspec.Struct, frozen=True):
    """What is being merged of one table, over several epochs; ``unfinished_merges`` begin with the oldest layers."""

    unfinished_merges: tuple[UnfinishedMerge, ...] = ()

    def with_next(
        self, layers: Sequence[Layer], parts_of: Callable[[Sequence[Layer]], int], watermark: Instant | None = None
    ) -> "TableMerges":
        """The unfinished merges that are still of ``layers``, and the one that is due now, at ``watermark``, if any.
        ``parts_of`` gives the number of parts of what it merges.
        """
        going_on = tuple(merge for merge in self.unfinished_merges if merge.source_layers(layers))
        start = plan_next_merge(layers, going_on)
        if start is None:
            return TableMerges(going_on)
        own = layers[start:]
        next_merge = UnfinishedMerge.from_layers(own, parts_of(own), is_lowest=start == 0, watermark=watermark)
        return TableMerges((*going_on, next_merge))

    def next_steps(self, layers: Sequence[Layer], growth: float | None = None) -> tuple[MergeStep, ...]:
        """What to do of them beside one epoch, the smallest first: its like comes up again soonest. ``growth``: how
        many times the input of the epoch before it reads, None if that is not known.
        """
        rows_left = rows_of_step(layers, growth) * (2 if len(layers) > many_layers() else 1)
        steps: list[MergeStep] = []
        for merge, own in sorted(
            ((m, m.source_layers(layers)) for m in self.unfinished_merges), key=lambda merge: _row_count(merge[1])
        ):
            part_rows = max(_row_count(own) // merge.parts, 1)
            count = len(merge.left) if len(layers) > most_layers() else rows_left // part_rows
            # at least one part a step, or a part with more rows than a step has would never be merged
            count = min(len(merge.left), max(count, 0 if steps else 1))
            if count:
                steps.append(MergeStep(merge, own, merge.left[:count]))
            rows_left -= count * part_rows
        return tuple(steps)

    def with_finished_steps(self, steps: Mapping[MergeStep, Sequence[task_results.Files]]) -> "TableMerges":
        """These once ``steps`` have been done, whose parts became the files."""
        merges_after = {step.merge: step.finish_step(files) for step, files in steps.items()}
        return TableMerges(tuple(merges_after.get(merge, merge) for merge in self.unfinished_merges))

    def apply_finished(self, layers: Sequence[Layer]) -> tuple["TableMerges", tuple[Layer, ...]]:
        """Merges that go on, and ``layers`` with what the others have made of them."""
        for merge in self.unfinished_merges:
            if not merge.left:
                layers = merge.apply_to(layers)
        return TableMerges(tuple(merge for merge in self.unfinished_merges if merge.left)), tuple(layers)


def growth_of_input(input_bytes: int, bytes_before: int) -> float | None:
    """How many times the input of the epoch before it an epoch reads; None if one of the two is nothing, or unknown."""
    return input_bytes / bytes_before if input_bytes and bytes_before else None


def growth_of_table(layers: Sequence[Layer], growth: float | None, epoch: int) -> float | None:
    """``growth`` of what is read after ``epoch``, as far as it goes for a table of ``layers``. Where ``epoch`` gave the
    table nothing, the newest layer is of other input: that much more is read than in ``epoch`` says nothing of it.
    """
    if growth is None or (layers and layers[-1].last_epoch == epoch):
        return growth
    return min(growth, 1)


def expected_rows(layers: Sequence[Layer], growth: float | None) -> int:
    """About how many rows the next epoch adds to a table: as the newest layer, if ``growth`` is not known. So a small
    epoch behind a large one does not pay for that one.
    """
    if not layers:
        return 0
    return int(layers[-1].rows * (1 if growth is None else min(growth, MOST_GROWTH)))


def rows_of_step(layers: Sequence[Layer], growth: float | None) -> int:
    """About how many rows of ``layers`` are merged beside an epoch. ``growth`` as in ``TableMerges.next_steps``."""
    return max(STEP_ROWS.value, PACE.value * expected_rows(layers, growth))


def count_parts_of(layers: Sequence[Layer], part_rows: int) -> int:
    """In how many parts of the keys ``layers`` are merged, each of so many rows at least."""
    return min(_row_count(layers) // part_rows, GROUPS)


def _row_count(layers: Sequence[Layer]) -> int:
    return sum(layer.rows for layer in layers)


class MergePart(msgspec.Struct, frozen=True):
    """A ``part`` of a ``step`` of a merge of the ``table``."""

    table: str
    step: MergeStep
    part: int


class MergePlan(msgspec.Struct, frozen=True):
    """What to merge into files below ``prefix``, a task for each of the ``parts``. ``watermark``: that of the first
    stage, or of one behind it that takes what a loop makes of records.
    """

    prefix: str
    watermark: Instant
    parts: tuple[MergePart, ...]


def merge_task(work: TaskEnvironment, plan: MergePlan, number: int, stop: Stop | None = None) -> task_results.Message:
    """What becomes of the part with that number. Raises CancelledError once ``stop`` is set."""
    return _run_task(work, number, lambda: _merge(work, plan, plan.parts[number], stop or Stop()))


def _merge(work: TaskEnvironment, plan: MergePlan, merging: MergePart, stop: Stop) -> task_results.Files:
    from headrace.state.migration import merge_ids, merge_layers, merge_rows, sorted_ranges  # few epochs merge

    name, merge, stored_layers, part = merging.table, merging.step.merge, merging.step.layers, merging.part
    stop.raise_if_set()
    if name == IDS:
        remembered_ids = RememberedIds.from_pipeline(work.pipeline, plan.watermark)
        layers = open_layers(work, stored_layers, remembered_ids.schema, part, merge.parts)
        batches = merge_ids(remembered_ids.schema, layers, remembered_ids.unexpired_mask)
    elif (loop := work.chain_of(name).loop) is not None and name == work.chain_of(name).names.edges:
        layers = open_layers(work, stored_layers, loop.edge_schema, part, merge.parts)
        batches = merge_rows(layers, partial(loop.distinct_edges, watermark=plan.watermark))
    elif (side := work.chain_of(name).side_in(name)) is not None:
        from headrace.kernel.joins.merge import merge_side  # which few pipelines need

        join, is_left = side
        layers = open_layers(work, stored_layers, join.left_schema if is_left else join.right_schema, part, merge.parts)
        merge_watermark = MIN_INSTANT if merge.watermark is None else Instant(merge.watermark)
        watermark = work.chain_of(name).watermark_before(join, merge_watermark) if merge.is_lowest else MIN_INSTANT
        batches = merge_side(join, sorted_ranges(layers, c.EVENT_TIME), watermark)
    else:
        chain = work.chain_of(name)
        stage = chain.stages[chain.tables.index(name)]
        layers = open_layers(work, stored_layers, stage.state_schema, part, merge.parts)
        batches = merge_layers(stage, layers, is_lowest=merge.is_lowest)
    return files_of(put_batches(work, plan.prefix, f"{name}-merged", part, stop.check_each(batches)))


NO_MERGES: Mapping[str, Sequence[UnfinishedMerge]] = {}
NO_WATERMARKS: Mapping[str, Instant] = {}


class Merger(Protocol):
    """Where the tasks of a merge run."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether they run in other processes, whose requests only they count."""

    def task_count(self, size: int) -> int:
        """How many tasks share work on so many bytes."""

    def run_merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What they say. Raises an error soon after ``stop`` was set."""


class Merges:
    """What is merged between two restores. ``merges_by_table``: what was begun before them, by table."""

    def __init__(self, runner: Merger, merges_by_table: Mapping[str, Sequence[UnfinishedMerge]] = NO_MERGES) -> None:
        self._runner = runner
        self._merge_thread = BackgroundThread[tuple[MergePlan, Sequence[ReceivedMessage]]]("merge")
        self._requests: dict[str, int] = {}
        self._tables = {table: TableMerges(tuple(merges)) for table, merges in merges_by_table.items()}

    def begin_step(
        self,
        prefix: str,
        tables: Tables,
        watermark: Instant,
        by_table: Mapping[str, Instant] = NO_WATERMARKS,
        *,
        epoch: int,
        growth: float | None = None,
    ) -> None:
        """Begin a step of what is to be merged of ``tables``, into files below ``prefix``, unless one is under way. All
        are at ``watermark``, but those that have one ``by_table``. ``growth``: how many times the input of ``epoch``,
        the last one, is read next; None if that is not known.
        """
        if self._merge_thread.is_running:
            return
        for table, layers in tables.items():
            merges = self._tables.get(table, TableMerges())
            self._tables[table] = merges.with_next(layers, self._parts_of, by_table.get(table, watermark))
        steps = [
            (table, step)
            for table, layers in tables.items()
            for step in self._tables[table].next_steps(layers, growth_of_table(layers, growth, epoch))
        ]
        parts = tuple(MergePart(table, step, part) for table, step in steps for part in step.parts)
        if not parts:
            return
        plan = MergePlan(prefix, watermark, parts)
        self._merge_thread.begin(lambda stop: (plan, self._runner.run_merge(plan, stop)))

    def adopt_finished(self, tables: Tables, *, wait: bool) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with what was merged meanwhile. ``wait``: for a step under way. Raises the error that ended it."""
        wait = wait or any(len(layers) > most_layers() for layers in tables.values())
        if not (self._merge_thread.is_done or (wait and self._merge_thread.is_running)):
            return dict(tables)
        plan, messages = self._merge_thread.take_result()
        results = task_results.UpstreamResults.from_messages(messages)
        if results.error is not None:
            raise results.error.rebuild_error()
        if self._runner.is_elsewhere:
            self._requests = sum_counts([self._requests, *(result.requests for result in results.results)])
        files: dict[str, dict[MergeStep, list[task_results.Files]]] = {}
        for part, result in zip(plan.parts, results.results, strict=True):
            assert isinstance(result.output, task_results.MergedLayers)
            files.setdefault(part.table, {}).setdefault(part.step, []).append(result.output.files)
        tables_after = dict(tables)
        for table, steps in files.items():
            merges = self._tables[table].with_finished_steps(steps)
            self._tables[table], tables_after[table] = merges.apply_finished(tables[table])
        return tables_after

    def _parts_of(self, layers: Sequence[Layer]) -> int:
        return max(
            self._runner.task_count(sum(layer.bytes for layer in layers)),
            count_parts_of(layers, STEP_ROWS.value),
        )

    @property
    def merges_by_table(self) -> dict[str, tuple[UnfinishedMerge, ...]]:
        """What goes on with the next epoch, by table."""
        return {table: merges.unfinished_merges for table, merges in self._tables.items() if merges.unfinished_merges}

    def close(self) -> None:
        """End the step that is under way, if one is, and wait until it writes nothing more."""
        self._merge_thread.close()

    def take_requests(self) -> Mapping[str, int]:
        """Storage requests of the steps adopted since the last call, without those that an epoch has counted."""
        requests, self._requests = self._requests, {}
        return requests
