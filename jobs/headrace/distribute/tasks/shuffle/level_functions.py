"""The levels of tasks (``levels``), merges and folds where an exchange lies between tasks: functions from its rows to
those of the next one, for an engine that runs tasks in processes of its own.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from headrace.distribute.tasks.background.compaction import FoldPlan, fold_task
from headrace.distribute.tasks.background.merge import MergePlan, merge_task
from headrace.distribute.tasks.levels import part_task, parts_below, rows_task, share_task, tasks_above
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.exchange import hear
from headrace.distribute.tasks.task_environment import TaskEnvironment

Rows = Iterable[pa.RecordBatch]
"""Those of an exchange (``exchange.SCHEMA``), or numbers of tasks in a first column."""

MapLevel = Callable[[TaskEnvironment, EpochPlan, Rows], Iterator[pa.RecordBatch]]
"""What the tasks of the first level say, as ``map_level`` does."""


def numbers_in(batches: Rows) -> Iterator[int]:
    """The numbers of tasks."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def map_level(work: TaskEnvironment, plan: EpochPlan, numbers: Rows) -> Iterator[pa.RecordBatch]:
    """What shares of the input say."""
    for number in numbers_in(numbers):
        yield from share_task(work, plan, number).blobs(parts_below(work, plan, -1))


def rows_level(
    work: TaskEnvironment, plan: EpochPlan, name: str, number: int, batches: Rows
) -> Iterator[pa.RecordBatch]:
    """What task ``number`` says of ``batches`` that a user's own code made."""
    rows = [batch for batch in batches if batch.num_rows]
    if rows:
        yield from rows_task(work, plan, name, number, rows).blobs(parts_below(work, plan, -1))


def level_below(work: TaskEnvironment, plan: EpochPlan, level: int, batches: Rows) -> Iterator[pa.RecordBatch]:
    """What a part of the level number ``level`` below the map side says: ``batches`` are all the rows of the exchange
    above for it.
    """
    blobs = [batch for batch in batches if batch.num_rows]
    if blobs:  # every part is told of every task: there is none without rows
        part = blobs[0].column("part")[0].as_py()
        messages = hear(blobs, tasks_above(work, plan, level))
        del blobs  # which are as large as the messages
        yield from part_task(work, plan, level, part, messages).blobs(parts_below(work, plan, level))


def merge_level(work: TaskEnvironment, plan: MergePlan, numbers: Rows) -> Iterator[pa.RecordBatch]:
    """What parts of a merge say."""
    for part in numbers_in(numbers):
        yield from merge_task(work, plan, part).blobs(1)


def fold_level(work: TaskEnvironment, plan: FoldPlan, numbers: Rows) -> Iterator[pa.RecordBatch]:
    """What parts of a fold say."""
    for part in numbers_in(numbers):
        yield from fold_task(work, plan, part).blobs(1)
