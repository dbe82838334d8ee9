"""Epochs of one pipeline in threads of this process, without a JVM.

The libraries that do the work of tasks let go of the interpreter meanwhile. What one task says to another is handed
over as it is. Rows that wait for many tasks wait on the disk, so that an epoch takes no more memory where it is larger.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

from headrace.distribute.epoch import Attempts
from headrace.distribute.process import Stop, give_back, stated_tasks
from headrace.distribute.tasks.background import FoldPlan, MergePlan, fold_task, merge_task
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.exchange import ReceivedMessage, as_stream
from headrace.distribute.tasks.levels import levels_below, part_task, share_task, tasks_at
from headrace.distribute.tasks.plan import EpochPlan, TaskEnvironment, progress_at, tasks_of_first_level
from headrace.distribute.tasks.task_results import Message
from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import LevelProgress
from headrace.sources.landing import Landing
from headrace.state.file_cache import RowCache, ScratchFile
from headrace.this_process import Size
from headrace_snapshots.store import ObjectStore

TASK_BYTES: Final = Size(2**22)
"""Work on fewer bytes is not shared."""

HELD_BYTES: Final = Size(2**28)
"""Rows that tasks of a level send to the next one are in memory up to so many bytes; what comes then is on the disk."""


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Level(msgspec.Struct, frozen=True):
    """Level number ``level``, from 0, of the job of ``plan``, under way. ``ended_tasks``: those of its ``tasks``."""

    plan: EpochPlan
    level: int
    tasks: int
    ended_tasks: list[int] = msgspec.field(default_factory=list)


class _SpilledMessage(msgspec.Struct, frozen=True):
    """A ``message`` whose rows wait in ``file``: those for each part in a span of bytes."""

    message: Message
    file: ScratchFile
    spans: Mapping[int, slice]

    def received_by(self, part: int) -> ReceivedMessage:
        """The message for ``part``; its rows are in memory only while somebody looks at them."""
        message = self.message.received_by(part)
        if part not in self.spans:
            return message
        with pa.ipc.open_stream(self.file.read_span(self.spans[part])) as reader:
            return replace(message, rows=reader.read_next_batch())


class _Exchange:
    """What the tasks of a level say to those of the next. Its threads share it. Rows beyond ``HELD_BYTES`` go into a
    file without a name in the folder of ``cache``.
    """

    def __init__(self, cache: RowCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._file: ScratchFile | None = None
        self._held_bytes = 0

    def keep_message(self, message: Message) -> "Message | _SpilledMessage":
        """``message``, until it is received. Raises CacheFolderError if the disk has no room for its rows."""
        size = sum(rows.nbytes for rows in message.bundles.values())
        with self._lock:
            if not size or self._held_bytes + size <= HELD_BYTES.value:
                self._held_bytes += size
                return message
            file = self._file = self._cache.scratch_file() if self._file is None else self._file
        spans = {part: file.append(as_stream(rows)) for part, rows in message.bundles.items() if rows.num_rows}
        return _SpilledMessage(msgspec.structs.replace(message, bundles={}), file, spans)


@dataclass
class Threads:
    """Runs the tasks of ``work``, up to ``most`` beside each other."""

    work: TaskEnvironment
    most: int
    is_elsewhere = False

    def __post_init__(self) -> None:
        self._under_way: _Level | None = None

    def task_count(self, size: int) -> int:
        """One task for each ``TASK_BYTES`` begun, at most ``most``."""
        return min(self.most, 1 + size // TASK_BYTES.value)

    def run_epoch(self, plan: EpochPlan) -> Sequence[ReceivedMessage]:
        work = self.work
        tasks = [partial(share_task, work, plan, share) for share in range(tasks_of_first_level(work, plan))]
        try:
            messages = self._run_level(plan, 0, tasks)
            is_large = len(tasks) > 1
            for level in range(levels_below(work, plan)):
                parts = range(tasks_at(work, plan, level))
                sizes = [sum(_count_bytes(message, part) for message in messages) for part in parts]
                senders = {part: [_sender(message, part) for message in messages] for part in parts}
                messages.clear()
                tasks = [partial(self._run_part, plan, level, part, senders) for part in parts]
                messages = self._run_level(plan, level + 1, tasks, sizes)
        finally:
            self._under_way = None
        if is_large:  # what is free among rows in use never goes by itself: it was twice as much as these
            give_back()
        return [message.received_by(0) for message in messages]

    def _run_part(
        self, plan: EpochPlan, level: int, part: int, senders: dict[int, list[Callable[[], ReceivedMessage]]]
    ) -> Message:
        # nobody but the task holds what it has received, and it lets rows go that it has in another form
        return part_task(self.work, plan, level, part, [send() for send in senders.pop(part)])

    def find_level(self) -> LevelProgress | None:
        level = self._under_way
        if level is None:
            return None
        return progress_at(self.work, level.plan, level.level, len(level.ended_tasks), level.tasks)

    def run_merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a merge say, one after another: the cores are for the epoch being computed."""
        return [merge_task(self.work, plan, number, stop).received_by(0) for number in range(len(plan.parts))]

    def run_fold(self, plan: FoldPlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What the tasks of a fold say, one after another, as those of a merge."""
        messages = [fold_task(self.work, plan, number, stop).received_by(0) for number in range(len(plan.numbers))]
        if plan.parts > 1:  # a part of many rows
            give_back()
        return messages

    def _run_level(
        self, plan: EpochPlan, number: int, tasks: Sequence[Callable[[], Message]], sizes: Sequence[int] = ()
    ) -> "list[Message | _SpilledMessage]":
        """What ``tasks`` say, in their order. The largest by their ``sizes`` begin first."""
        level = self._under_way = _Level(plan, number, len(tasks))
        if len(tasks) == 1:
            return [tasks[0]()]
        exchange = _Exchange(self.work.rows)

        def run_task(task: Callable[[], Message]) -> "Message | _SpilledMessage":
            message = task()
            level.ended_tasks.append(message.task)
            return exchange.keep_message(message)

        order = sorted(range(len(tasks)), key=sizes.__getitem__, reverse=True) if sizes else range(len(tasks))
        with ThreadPoolExecutor(self.most, thread_name_prefix="task") as threads:
            messages = dict(zip(order, threads.map(run_task, [tasks[place] for place in order]), strict=True))
        return [messages[place] for place in range(len(tasks))]


def _count_bytes(message: Message | _SpilledMessage, part: int) -> int:
    if isinstance(message, _SpilledMessage):
        span = message.spans.get(part, slice(0, 0))
        return int(span.stop - span.start)
    return int(message.bundles[part].nbytes) if part in message.bundles else 0


def _sender(message: Message | _SpilledMessage, part: int) -> Callable[[], ReceivedMessage]:
    """Gives ``message`` to ``part``: held in memory for that part alone, or read when its task begins."""
    if isinstance(message, _SpilledMessage):
        return partial(message.received_by, part)
    received_message = message.received_by(part)
    return lambda: received_message


P = ParamSpec("P")
R = TypeVar("R")


class LocalTransformError(FixConfigError, code="config.needs_spark"):
    """A pipeline names Spark code of its own, which needs Spark."""


class LocalEngine(TasksEngine):
    """The state of one pipeline in this process; ``cache`` holds its rows, None: that of the process."""

    executor = "local"

    def __init__(
        self,
        pipeline: Pipeline,
        store: ObjectStore,
        landing: Landing,
        attempts: Attempts,
        cache: RowCache | None = None,
    ) -> None:
        for function in pipeline.spark_functions:
            raise LocalTransformError(
                f"pipeline {pipeline.name} sends rows through {function.name}, which is Spark code: "
                "run it with --executor spark"
            )
        work = TaskEnvironment.from_pipeline(pipeline, store, landing, cache)
        super().__init__(work, attempts, Threads(work, stated_tasks() or available_cores()))

    def in_background(self, run: Callable[P, R]) -> Callable[P, R]:
        """``run`` itself."""
        return run
