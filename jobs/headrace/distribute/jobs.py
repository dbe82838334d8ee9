"""The jobs of an epoch, one after another. The first one reads the input; each later one reads what earlier ones
stored: panes that go through a user's own code, or panes of outputs that others read.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from operator import add

from headrace.distribute.chain import Chain

LOOP = -1
"""The number of a loop among the stages of its chain: it comes before the first."""


@dataclass(frozen=True)
class Job:
    """One job. ``stages``: those that it computes of each chain, by the number of the chain; the loop of a chain is one
    of them (``LOOP``). First stages of all chains are side by side at its first step, and so on.
    """

    stages: Mapping[int, range]

    def without(self, chains: Set[int]) -> "Job":
        """The job without some chains."""
        return Job({number: own for number, own in self.stages.items() if number not in chains})

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return max((len(own) for own in self.stages.values()), default=0)

    def chains_at(self, step: int) -> list[int]:
        """The numbers of the chains that have a stage at that step."""
        return [number for number, own in self.stages.items() if step < len(own)]

    def stage_at(self, chain: int, step: int) -> int:
        """The number of the stage of a chain at that step."""
        return self.stages[chain][step]

    def step_of(self, chain: int, stage: int) -> int:
        """The step at which a stage of a chain is."""
        return self.stages[chain].index(stage)


def jobs_of(chains: Sequence[Chain]) -> tuple[Job, ...]:
    """The jobs of an epoch of ``chains``: each begins one job after the last of those whose panes it reads, and goes on
    in a further job after each step through a user's own Spark code.
    """
    cuts = [_cut_by_spark(chain) for chain in chains]
    first_jobs: list[int] = []
    for chain in chains:  # which come after those that they read
        first_jobs.append(max((first_jobs[up] + len(cuts[up]) for up in upstream_of(chains, chain)), default=0))
    jobs: list[dict[int, range]] = [{} for _ in range(max(map(add, first_jobs, map(len, cuts))))]
    for number, (first, cut) in enumerate(zip(first_jobs, cuts, strict=True)):
        for job, stages in enumerate(cut, first):
            jobs[job][number] = stages
    return tuple(map(Job, jobs))


def _cut_by_spark(chain: Chain) -> list[range]:
    count = len(chain.stages)
    first_stages = [_stages(chain).start, *(stage for stage in range(1, count) if chain.goes_through_spark(stage))]
    return [range(first, end) for first, end in pairwise([*first_stages, count])]


def _stages(chain: Chain) -> range:
    return range(0 if chain.loop is None else LOOP, len(chain.stages))


def with_downstream(chains: Sequence[Chain], numbers: Set[int]) -> frozenset[int]:
    """The chains of these ``numbers``, and those that read panes of any of them."""
    reached = {*numbers}
    for number, chain in enumerate(chains):  # which come after those that they read
        if reached.intersection(upstream_of(chains, chain)):
            reached.add(number)
    return frozenset(reached)


def with_upstream(chains: Sequence[Chain], numbers: Set[int]) -> frozenset[int]:
    """The chains of these ``numbers``, and those whose panes they need."""
    reached = {*numbers}
    for number in reversed(range(len(chains))):
        if number in reached:
            reached.update(upstream_of(chains, chains[number]))
    return frozenset(reached)


def upstream_of(chains: Sequence[Chain], chain: Chain) -> list[int]:
    """The numbers of the chains whose panes ``chain`` reads, in its order."""
    numbers = {other.names.output: number for number, other in enumerate(chains)}
    return [numbers[above.output] for above in chain.upstream]
