"""The tasks of an epoch in this process, one after another, with an exchange between levels as on Spark: what they
say is cut into blobs, which are sorted by part.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import pyarrow as pa

from headrace.distribute.epoch import Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.exchange import Heard, hear
from headrace.distribute.tasks.fold import FoldPlan
from headrace.distribute.tasks.levels import levels_below
from headrace.distribute.tasks.merge import MergePlan
from headrace.distribute.tasks.over_exchange import fold_level, level_below, map_level, merge_level
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.work import Work

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Blobs:
    """Runs ``number`` tasks of ``work`` at each level."""

    work: Work
    number: int
    is_elsewhere = False

    def tasks(self, size: int) -> int:
        """As many, whatever there is to do."""
        return self.number

    def epoch(self, plan: EpochPlan) -> Sequence[Heard]:
        """What the tasks of the last level say."""
        rows: Iterable[pa.RecordBatch] = map_level(self.work, plan, numbers(len(plan.shares)))
        for level in range(levels_below(self.work)):
            rows = self._level(plan, level, rows)
        return hear(rows, plan.parts)

    def _level(self, plan: EpochPlan, level: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for batch in rows:
            parts[batch.column("part")[0].as_py()].append(batch)
        for part in sorted(parts):
            yield from level_below(self.work, plan, level, parts[part])

    def merge(self, plan: MergePlan) -> Sequence[Heard]:
        """What the tasks of a merge say."""
        return hear(merge_level(self.work, plan, numbers(plan.parts)), plan.parts)

    def fold(self, plan: FoldPlan) -> Sequence[Heard]:
        """What the tasks of a fold say."""
        return hear(fold_level(self.work, plan, numbers(plan.parts)), plan.parts)


def numbers(count: int) -> list[pa.RecordBatch]:
    """Those of so many tasks."""
    return [pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=["id"])]


class OverBlobs(TasksEngine):
    """An engine over ``Blobs``."""

    executor = "tasks"

    def __init__(self, work: Work, attempts: Attempts, number: int) -> None:
        super().__init__(work, attempts, Blobs(work, number))

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` itself."""
        return run
