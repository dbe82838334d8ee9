"""The tasks of a level of stages: the parts of the keys of each chain that has such a stage, chain after chain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.distribute.chain import LOOP, Job
from headrace.distribute.tasks.plan import EpochPlan, PaneFiles
from headrace.distribute.tasks.task_environment import TaskEnvironment

T = TypeVar("T")


@dataclass(frozen=True)
class ChainPart:
    """A ``part`` of the keys of the chain with that number."""

    chain: int
    part: int


def job_of(work: TaskEnvironment, plan: EpochPlan) -> Job:
    """The job of ``plan``, without chains that are parked."""
    return work.jobs[plan.job].without(plan.parked)


def through_spark(work: TaskEnvironment, plan: EpochPlan) -> list[int]:
    """The numbers of the chains that begin the job of ``plan`` with panes of their own, from a user's own code."""
    return [number for number, own in job_of(work, plan).stages.items() if own.start > 0]


def panes_of_outputs(work: TaskEnvironment, plan: EpochPlan) -> list[PaneFiles]:
    """The panes of outputs, as they were stored, that the job of ``plan`` reads: the first of its elements."""
    own = through_spark(work, plan)
    return [panes for panes in plan.elements if panes.chain not in own]


def tasks_of_first_level(work: TaskEnvironment, plan: EpochPlan) -> int:
    """How many tasks the first level of the job of ``plan`` has, at least: a user's own code may make more."""
    if not plan.job:
        return len(plan.shares)
    return max(1, len(panes_of_outputs(work, plan)))


def parts_of(plan: EpochPlan, job: Job, step: int) -> list[ChainPart]:
    """The tasks of a ``step`` of a job, in the order of their numbers."""
    return [ChainPart(chain, part) for chain in job.chains_at(step) for part in range(parts_at(plan, job, step, chain))]


def parts_at(plan: EpochPlan, job: Job, step: int, chain: int) -> int:
    """How many parts a ``chain`` has at a step of a job: its loop is in one."""
    return 1 if job.stage_at(chain, step) == LOOP else plan.parts[chain]


def of_chain(plan: EpochPlan, job: Job, step: int, chain: int, level: Sequence[T]) -> tuple[T, ...]:
    """What tasks of the ``level`` of a step said for that ``chain``."""
    own = zip(parts_of(plan, job, step), level, strict=False)
    return tuple(result for part, result in own if part.chain == chain)


def addressed(plan: EpochPlan, job: Job, step: int, chain: int, bundles: Mapping[int, T]) -> dict[int, T]:
    """``bundles`` for parts of the keys of a ``chain``, by the numbers of the tasks of a step."""
    before = sum(own.chain < chain for own in parts_of(plan, job, step))
    return {before + part: rows for part, rows in bundles.items()}
