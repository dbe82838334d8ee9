"""The levels of tasks of an epoch: the map side, the parts of the ids where duplicates are told, the parts of each
stage. Each task is told what all tasks of the level above said, and says something to all of the level below; what the
last level says goes to the driver, as to the only part of a level below.
"""

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from headrace.distribute.jobs import LOOP
from headrace.distribute.tasks.ids import tell_duplicates
from headrace.distribute.tasks.loop import turn_rounds
from headrace.distribute.tasks.map_side import Bundles, map_rows, map_share
from headrace.distribute.tasks.panes import map_output, map_panes
from headrace.distribute.tasks.parts import job_of, panes_of_outputs, parts_of, tasks_of_first_level
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.exchange import ReceivedMessage
from headrace.distribute.tasks.stages import StagePart
from headrace.distribute.tasks.task_environment import EpochTask, TaskEnvironment
from headrace.distribute.tasks.task_results import (
    Failure,
    Message,
    PanesOutput,
    StageOutput,
    TaskOutput,
    TaskResult,
    UpstreamResults,
    collect_failure,
    isolate_failure,
)

Ran = tuple[TaskOutput | None, Bundles]


def levels_below(work: TaskEnvironment, plan: EpochPlan) -> int:
    """How many levels the job of ``plan`` has below the first."""
    return job_of(work, plan).steps + _tells_ids(work, plan)


def _tells_ids(work: TaskEnvironment, plan: EpochPlan) -> bool:
    return plan.job == 0 and work.tells_ids


def tasks_at(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many tasks the level number ``level`` below the map side has."""
    tells_ids = _tells_ids(work, plan)
    if tells_ids and level == 0:
        return plan.id_parts
    return len(parts_of(plan, job_of(work, plan), level - tells_ids))


def tasks_above(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many tasks at least speak to the level number ``level`` below the map side."""
    return tasks_at(work, plan, level - 1) if level else tasks_of_first_level(work, plan)


def parts_below(work: TaskEnvironment, plan: EpochPlan, level: int) -> int:
    """How many parts the level number ``level`` below the map side speaks to, which itself is number -1."""
    return 1 if level == levels_below(work, plan) - 1 else tasks_at(work, plan, level + 1)


def share_task(work: TaskEnvironment, plan: EpochPlan, number: int) -> Message:
    """What share ``number`` says of what the job reads: of the input, or of panes of outputs."""
    if plan.job and not panes_of_outputs(work, plan):  # there is an epoch to do all the same
        return run_task(work, 0, lambda: (PanesOutput(), {}))
    return run_task(work, number, partial(map_output if plan.job else map_share, EpochTask(plan, work, number)))


def rows_task(
    work: TaskEnvironment, plan: EpochPlan, name: str, number: int, rows: Sequence[pa.RecordBatch]
) -> Message:
    """What task ``number`` says of ``rows``, which a user's own code made of records of input ``name`` (or of panes of
    the output of that name, in a later job than the first).
    """
    task = EpochTask(plan, work, number)
    if plan.job:
        return run_task(work, number, partial(map_panes, task.for_chain(work.number_of(name)), rows))
    return run_task(work, number, partial(map_rows, task, name, rows))


def part_task(
    work: TaskEnvironment, plan: EpochPlan, level: int, number: int, messages: Sequence[ReceivedMessage]
) -> Message:
    """What task ``number`` of the level number ``level`` below the map side says of the ``messages`` to it."""
    upstream = UpstreamResults.of(messages)
    rows = [message.rows for message in messages if message.rows is not None]
    tells_ids = _tells_ids(work, plan)
    if tells_ids and level == 0:
        return run_task(work, number, partial(tell_duplicates, EpochTask(plan, work, number), upstream, rows), upstream)
    job, step = job_of(work, plan), level - tells_ids
    part = parts_of(plan, job, step)[number]
    task, stage = EpochTask(plan, work, part.part, part.chain), job.stage_at(part.chain, step)
    run: Callable[[], Ran] = partial(StagePart(task, stage).run, upstream, rows)
    if part.chain in upstream.errors:
        run = _run_nothing
    elif stage == LOOP:
        run = partial(turn_rounds, task, rows)
    return run_task(work, number, run, upstream, isolated=part.chain if plan.isolates else None)


def _run_nothing() -> Ran:
    return StageOutput(), {}


def run_task(
    work: TaskEnvironment,
    number: int,
    run: Callable[[], Ran],
    upstream: UpstreamResults | None = None,
    *,
    isolated: int | None = None,
) -> Message:
    """What task ``number`` says, which does ``run`` unless a task ``upstream`` has failed. An error is said too, one of
    a chain that is ``isolated`` as the chain's own. Raises RetryError: another attempt may end otherwise.
    """
    before = work.requests()
    output: TaskOutput | None = None
    bundles: Bundles = {}
    errors = [] if upstream is None or upstream.error is None else [upstream.error]
    own: dict[int, Failure] = {}
    if not errors:
        with (
            work.landing.connected(),
            collect_failure(errors),
            isolate_failure(own, isolated or 0, isolates=isolated is not None),
        ):
            output, bundles = run()
    if own:
        output = StageOutput(errors=own)
    received, history = (b"", ()) if upstream is None else (upstream.digest, upstream.history(number))
    result = TaskResult(output, received, history, next(iter(errors), None), work.requests_since(before))
    return Message(number, result, bundles)
