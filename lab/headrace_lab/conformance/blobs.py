"""The tasks of an epoch in threads of this process, with an exchange between levels as Spark has one. What they say is
cut into blobs, which are sorted by part. For tests and conformance cases; runs hand over what is said as it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from headrace.distribute.process import Stop
from headrace.distribute.tasks.background import FoldPlan, MergePlan
from headrace.distribute.tasks.exchange import ReceivedMessage, receive_messages
from headrace.distribute.tasks.levels import (
    MapLevel,
    fold_level,
    level_below,
    levels_below,
    map_level,
    merge_level,
    tasks_above,
)
from headrace.distribute.tasks.plan import EpochPlan, TaskEnvironment, tasks_of_first_level


@dataclass(frozen=True)
class Blobs:
    """Runs ``number`` tasks of ``work`` at each level; ``mapped`` runs those of the first."""

    work: TaskEnvironment
    number: int
    mapped: MapLevel = map_level
    is_elsewhere = False

    def task_count(self, size: int) -> int:
        """Always ``number`` tasks, whatever the size in bytes."""
        return self.number

    def run_epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        """What the tasks of the last level say."""

        def share(number: int) -> list[pa.RecordBatch]:
            first = map_level if plan.job else self.mapped
            return list(first(self.work, plan, numbers(number, number + 1)))

        with ThreadPoolExecutor(self.number, thread_name_prefix="task") as threads:
            blobs = list(threads.map(share, range(tasks_of_first_level(self.work, plan))))
            for level in range(levels_below(self.work, plan)):

                def part(rows: list[pa.RecordBatch], level: int = level) -> list[pa.RecordBatch]:
                    return list(level_below(self.work, plan, level, rows))

                blobs = list(threads.map(part, by_part(row for rows in blobs for row in rows)))
        return receive_messages(
            (row for rows in blobs for row in rows), tasks_above(self.work, plan, levels_below(self.work, plan))
        )

    def find_level(self) -> None:
        """Nobody watches a case."""

    def run_merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a merge say."""
        del stop  # cases end with what they began
        return receive_messages(merge_level(self.work, plan, numbers(0, len(plan.parts))), len(plan.parts))

    def run_fold(self, plan: FoldPlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a fold say."""
        del stop
        return receive_messages(fold_level(self.work, plan, numbers(0, len(plan.numbers))), len(plan.numbers))


def by_part(rows: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """The ``rows`` of an exchange for each part; not in the order in which they were said, which nothing may go by."""
    parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for row in rows:
        parts[row.column("part")[0].as_py()].append(row)
    return [parts[part][::-1] for part in sorted(parts)]


def numbers(begin: int, end: int) -> list[pa.RecordBatch]:
    """Numbers of the tasks from ``begin`` to before ``end``."""
    return [pa.RecordBatch.from_arrays([pa.array(range(begin, end), pa.int64())], names=["id"])]
