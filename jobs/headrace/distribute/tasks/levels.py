"""The levels of tasks of an epoch: the map side, the parts of the ids where duplicates are told, the parts of each
stage. Each task is told what all tasks of the level above said, and says something to all of the level below; what the
last level says goes to the driver, as to the only part of a level below.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from headrace.distribute.tasks.ids import tell_duplicates
from headrace.distribute.tasks.map_side import Bundles, map_rows, map_share
from headrace.distribute.tasks.panes import map_panes
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.exchange import ReceivedMessage
from headrace.distribute.tasks.stages import step_part
from headrace.distribute.tasks.task_environment import EpochTask, TaskEnvironment
from headrace.distribute.tasks.task_results import (
    Message,
    PanesOutput,
    TaskOutput,
    TaskResult,
    UpstreamResults,
    attempted,
)

Ran = tuple[TaskOutput | None, Bundles]


def levels_below(work: TaskEnvironment, first_stage: int = 0) -> int:
    """How many levels a job that begins with that stage has below the first."""
    stages = next(stages for stages in work.chain.jobs() if stages.start == first_stage)
    return len(stages) + _tells_ids(work, first_stage)


def _tells_ids(work: TaskEnvironment, first_stage: int) -> bool:
    return first_stage == 0 and work.pipeline.deduplicate is not None


def tasks_above(plan: EpochPlan, level: int) -> int:
    """How many tasks at least speak to the level number ``level`` below the map side."""
    if level:
        return plan.parts
    return 1 if plan.first_stage else len(plan.shares)


def parts_below(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many parts the level number ``level`` below the map side speaks to."""
    return 1 if level == levels_below(work, plan.first_stage) - 1 else plan.parts


def share_task(work: TaskEnvironment, plan: EpochPlan, number: int) -> Message:
    """What share ``number`` of the input says."""
    return mapped_by(map_share, work, plan, number)


def mapped_by(run: Callable[[EpochTask], Ran], work: TaskEnvironment, plan: EpochPlan, number: int) -> Message:
    """What share ``number`` of the input says, of which ``run`` gives what ``map_share`` would."""
    task = EpochTask(plan, work, number)
    return _message(task, None, partial(run, task))


def rows_task(
    work: TaskEnvironment, plan: EpochPlan, name: str, number: int, rows: Sequence[pa.RecordBatch]
) -> Message:
    """What task ``number`` says of ``rows``, which a user's own code made of records of input ``name`` (or of panes, if
    the plan begins with another stage than the first).
    """
    task = EpochTask(plan, work, number)
    run: Callable[[], Ran] = partial(map_panes, task, rows) if plan.first_stage else partial(map_rows, task, name, rows)
    return _message(task, None, run)


def nothing_task(work: TaskEnvironment, plan: EpochPlan) -> Message:
    """Says that there is an epoch to do to stages whose elements go through a user's own code, and may be none."""
    return _message(EpochTask(plan, work, 0), None, lambda: (PanesOutput(), {}))


def part_task(
    work: TaskEnvironment, plan: EpochPlan, level: int, part: int, messages: Sequence[ReceivedMessage]
) -> Message:
    """What ``part`` of the level number ``level`` below the map side says of the ``messages`` that it received."""
    task, upstream = EpochTask(plan, work, part), UpstreamResults.of(messages)
    bundles = [message.rows for message in messages if message.rows is not None]
    tells_ids = _tells_ids(work, plan.first_stage)

    def run() -> Ran:
        if tells_ids and level == 0:
            return tell_duplicates(task, upstream, bundles)
        return step_part(task, plan.first_stage + level - tells_ids, upstream, bundles)

    return _message(task, upstream, run)


def _message(task: EpochTask, upstream: UpstreamResults | None, run: Callable[[], Ran]) -> Message:
    """What a task says; ``run`` is what it does. Raises RetryError: another attempt may end otherwise; any other typed
    error is said.
    """
    before = task.work.requests()
    error = None if upstream is None else upstream.error
    output: TaskOutput | None = None
    bundles: Bundles = {}
    if error is None:
        ran, error = attempted(run)
        output, bundles = ran or (None, {})
    received, history = (b"", ()) if upstream is None else (upstream.digest, upstream.history(task.number))
    result = TaskResult(output, received, history, error, task.work.requests_since(before))
    return Message(task.number, result, bundles)
