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
from headrace.distribute.tasks.parts import parts_of
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
    stages = next(stages for stages in work.jobs if stages.start == first_stage)
    return len(stages) + _tells_ids(work, first_stage)


def _tells_ids(work: TaskEnvironment, first_stage: int) -> bool:
    return first_stage == 0 and work.tells_ids


def tasks_at(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many tasks the level number ``level`` below the map side has."""
    tells_ids = _tells_ids(work, plan.first_stage)
    if tells_ids and level == 0:
        return plan.id_parts
    return len(parts_of(plan, work.chains, plan.first_stage + level - tells_ids))


def tasks_above(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many tasks at least speak to the level number ``level`` below the map side."""
    if level:
        return tasks_at(work, plan, level - 1)
    return 1 if plan.first_stage else len(plan.shares)


def parts_below(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many parts the level number ``level`` below the map side speaks to, which itself is number -1."""
    return 1 if level == levels_below(work, plan.first_stage) - 1 else tasks_at(work, plan, level + 1)


def share_task(work: TaskEnvironment, plan: EpochPlan, number: int) -> Message:
    """What share ``number`` of the input says."""
    return mapped_by(map_share, work, plan, number)


def mapped_by(run: Callable[[EpochTask], Ran], work: TaskEnvironment, plan: EpochPlan, number: int) -> Message:
    """What share ``number`` of the input says, of which ``run`` gives what ``map_share`` would."""
    task = EpochTask(plan, work, number)
    return _message(work, number, None, partial(run, task))


def rows_task(
    work: TaskEnvironment, plan: EpochPlan, name: str, number: int, rows: Sequence[pa.RecordBatch]
) -> Message:
    """What task ``number`` says of ``rows``, which a user's own code made of records of input ``name`` (or of panes, if
    the plan begins with another stage than the first).
    """
    task = EpochTask(plan, work, number)
    run: Callable[[], Ran] = partial(map_panes, task, rows) if plan.first_stage else partial(map_rows, task, name, rows)
    return _message(work, number, None, run)


def nothing_task(work: TaskEnvironment, plan: EpochPlan) -> Message:
    """Says that there is an epoch to do to stages whose elements go through a user's own code, and may be none."""
    del plan
    return _message(work, 0, None, lambda: (PanesOutput(), {}))


def part_task(
    work: TaskEnvironment, plan: EpochPlan, level: int, number: int, messages: Sequence[ReceivedMessage]
) -> Message:
    """What task ``number`` of the level number ``level`` below the map side says of the ``messages`` to it."""
    upstream = UpstreamResults.of(messages)
    bundles = [message.rows for message in messages if message.rows is not None]
    tells_ids = _tells_ids(work, plan.first_stage)

    def run() -> Ran:
        if tells_ids and level == 0:
            return tell_duplicates(EpochTask(plan, work, number), upstream, bundles)
        stage = plan.first_stage + level - tells_ids
        part = parts_of(plan, work.chains, stage)[number]
        return step_part(EpochTask(plan, work, part.part, part.chain), stage, upstream, bundles)

    return _message(work, number, upstream, run)


def _message(work: TaskEnvironment, task: int, upstream: UpstreamResults | None, run: Callable[[], Ran]) -> Message:
    """What a task of that number says; ``run`` is what it does. Raises RetryError: another attempt may end otherwise;
    any other typed error is said.
    """
    before = work.requests()
    error = None if upstream is None else upstream.error
    output: TaskOutput | None = None
    bundles: Bundles = {}
    if error is None:
        ran, error = attempted(run)
        output, bundles = ran or (None, {})
    received, history = (b"", ()) if upstream is None else (upstream.digest, upstream.history(task))
    result = TaskResult(output, received, history, error, work.requests_since(before))
    return Message(task, result, bundles)
