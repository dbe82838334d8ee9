"""What the levels of an epoch do, in words, for people who watch a run; and where in them it is."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headrace.distribute.chain import LOOP, Job
from headrace.distribute.tasks.parts import job_of
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.pipeline.executors import LevelProgress

_NAMED: Final = 3
"""So many outputs that have a stage at the same level are named."""


def level_names(work: TaskEnvironment, plan: EpochPlan) -> list[str]:
    """What each level of the job of ``plan`` does, the first one first."""
    job = job_of(work, plan)
    return [*_above_stages(work, plan), *(_step_name(work, job, step) for step in range(job.steps))]


def progress_at(work: TaskEnvironment, plan: EpochPlan, level: int, done: int, tasks: int) -> LevelProgress:
    """Where the epoch of ``plan`` is if its job is at ``level``, counted from 0."""
    names = level_names(work, plan)
    counts = [_levels(work, replace(plan, job=number)) for number in range(len(work.jobs))]
    before = sum(counts[: plan.job])
    return LevelProgress(plan.epoch, before + level + 1, sum(counts), names[level], done, tasks)


def _levels(work: TaskEnvironment, plan: EpochPlan) -> int:
    """How many levels the job of ``plan`` has; a later one without any stage is left out."""
    return 0 if plan.job and not job_of(work, plan).stages else len(level_names(work, plan))


def _above_stages(work: TaskEnvironment, plan: EpochPlan) -> Iterator[str]:
    yield "reading panes" if plan.job else "reading input"
    if plan.job == 0 and work.tells_ids:
        yield "telling duplicates"


def _step_name(work: TaskEnvironment, job: Job, step: int) -> str:
    numbers = job.chains_at(step)
    outputs = [work.chains[number].names.output for number in numbers]
    if len(numbers) > 1:
        more = f" and {len(outputs) - _NAMED} more" if len(outputs) > _NAMED else ""
        return f"stages of outputs {', '.join(outputs[:_NAMED])}{more}"
    (number,), (output,) = numbers, outputs
    stage, of_output = job.stage_at(number, step), f" of output {output}" if output else ""
    if stage == LOOP:
        return f"rounds of the loop{of_output}"
    return f"stage {stage + 1} of {len(work.chains[number].stages)}{of_output}"
