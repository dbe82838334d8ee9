"""The tasks of an epoch in this process, one after another: what an exchange carries is sorted by part."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.distribute.tasks.fold import FoldPlan, fold_level
from headrace.distribute.tasks.levels import level_below, levels_below, map_level
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.work import work_of
from headrace.pipeline.graph import Pipeline


@dataclass(frozen=True)
class Here:
    """Runs tasks for so many ``shares`` of input and ``parts`` of keys."""

    shares: int = 1
    parts: int = 1

    def pickled(self, pipeline: Pipeline) -> bytes:
        """``pipeline`` so that tasks can load it."""
        return pickle.dumps(pipeline)

    def environment(self) -> dict[str, str]:
        """They have all that this process has."""
        return {}

    def epoch(self, plan: EpochPlan) -> Iterable[pa.RecordBatch]:
        """What the tasks of the last level say."""
        rows = map_level(plan, _numbers(len(plan.shares)))
        for level in range(levels_below(work_of(plan.where))):
            rows = _level(plan, level, rows)
        return rows

    def fold(self, plan: FoldPlan) -> Iterable[pa.RecordBatch]:
        """What the tasks of a fold say."""
        return fold_level(plan, _numbers(plan.parts))


def _numbers(count: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=["id"])]


def _level(plan: EpochPlan, level: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in rows:
        parts[batch.column("part")[0].as_py()].append(batch)
    for part in sorted(parts):
        yield from level_below(plan, level, parts[part])
