"""The tasks of a level of stages: the parts of the keys of each chain that has such a stage, chain after chain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.distribute.chain import Chain
from headrace.distribute.tasks.plan import EpochPlan

T = TypeVar("T")


@dataclass(frozen=True)
class ChainPart:
    """A ``part`` of the keys of the chain with that number."""

    chain: int
    part: int


def parts_of(plan: EpochPlan, chains: Sequence[Chain], stage: int) -> list[ChainPart]:
    """The tasks of the level of ``stage``, in the order of their numbers."""
    having = [number for number, chain in enumerate(chains) if stage < len(chain.stages)]
    return [ChainPart(number, part) for number in having for part in range(plan.parts[number])]


def of_chain(plan: EpochPlan, chains: Sequence[Chain], stage: int, chain: int, level: Sequence[T]) -> tuple[T, ...]:
    """What tasks of the ``level`` of a stage said for that ``chain``."""
    return tuple(
        result for own, result in zip(parts_of(plan, chains, stage), level, strict=False) if own.chain == chain
    )


def addressed(
    plan: EpochPlan, chains: Sequence[Chain], stage: int, chain: int, bundles: Mapping[int, T]
) -> dict[int, T]:
    """``bundles`` for parts of the keys of a ``chain``, by the numbers of the tasks of its ``stage``."""
    before = sum(own.chain < chain for own in parts_of(plan, chains, stage))
    return {before + part: rows for part, rows in bundles.items()}
