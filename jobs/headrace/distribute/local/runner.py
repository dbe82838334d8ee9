"""The tasks of an epoch in threads of this process: the libraries that do their work let go of the interpreter
meanwhile. What one task says to another is handed over as it is.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from headrace.distribute.tasks.background.compaction import FoldPlan, fold_task
from headrace.distribute.tasks.background.merge import MergePlan, merge_task
from headrace.distribute.tasks.background.thread import Stop
from headrace.distribute.tasks.level_names import progress_at
from headrace.distribute.tasks.levels import levels_below, part_task, share_task, tasks_at
from headrace.distribute.tasks.parts import tasks_of_first_level
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.exchange import ReceivedMessage
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.distribute.tasks.task_results import Message
from headrace.pipeline.executors import LevelProgress

TASK_BYTES = 2**22
"""Work on fewer bytes is not shared."""

T = TypeVar("T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Level:
    """A level under way, number ``level`` of the job of ``plan`` from 0: ``ended`` has a number for each of its
    ``tasks`` that is done.
    """

    plan: EpochPlan
    level: int
    tasks: int
    ended: list[int] = field(default_factory=list)


@dataclass
class Threads:
    """Runs the tasks of ``work``, up to ``most`` beside each other."""

    work: TaskEnvironment
    most: int
    is_elsewhere = False

    def __post_init__(self) -> None:
        self._under_way: _Level | None = None

    def tasks(self, size: int) -> int:
        """One task for each ``TASK_BYTES`` begun, at most ``most``."""
        return min(self.most, 1 + size // TASK_BYTES)

    def epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        """What the tasks of the last level say."""
        try:
            tasks = tasks_of_first_level(self.work, plan)
            messages = self._run(partial(share_task, self.work, plan), _Level(plan, 0, tasks))
            for level in range(levels_below(self.work, plan)):
                part = partial(_part, self.work, plan, level, messages)
                messages = self._run(part, _Level(plan, level + 1, tasks_at(self.work, plan, level)))
        finally:
            self._under_way = None
        return [message.received_by(0) for message in messages]

    def find_level(self) -> LevelProgress | None:
        """The level whose tasks run now."""
        at = self._under_way
        return None if at is None else progress_at(self.work, at.plan, at.level, len(at.ended), at.tasks)

    def merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a merge say, one after another: the cores are for the epoch being computed."""
        return [merge_task(self.work, plan, part, stop).received_by(0) for part in range(plan.parts)]

    def fold(self, plan: FoldPlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a fold say, one after another, as those of a merge."""
        return [fold_task(self.work, plan, part, stop).received_by(0) for part in range(plan.parts)]

    def _run(self, run: Callable[[int], T], level: _Level) -> list[T]:
        self._under_way = level
        if level.tasks == 1:
            return [run(0)]

        def counted(number: int) -> T:
            result = run(number)
            level.ended.append(number)
            return result

        with ThreadPoolExecutor(self.most, thread_name_prefix="task") as threads:
            return list(threads.map(counted, range(level.tasks)))


def _part(work: TaskEnvironment, plan: EpochPlan, level: int, messages: Sequence[Message], part: int) -> Message:
    return part_task(work, plan, level, part, [message.received_by(part) for message in messages])
