"""Chains: the aggregations of one output, one below the other; their tables and clocks, and the jobs of an epoch.

``StageClocks`` say where the clocks of a stage go in an epoch, by what is above it. They say the same wherever it is
worked out: in every task of the stage, and where the epoch is committed.

A pipeline has once what is apart from its chains: inputs with their clocks (``stages.input_clocks``), processing time,
and the ids by which duplicates are told.

The jobs of an epoch come one after another (``jobs_of``). The first one reads the input; each later one reads what
earlier ones stored: panes that go through a user's own code, or panes of outputs that others read.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING

import msgspec

from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import SparkFunction
from headrace.pipeline.output import upstream_first
from headrace.pipeline.parts import Upstream
from headrace.pipeline.pipeline import Pipeline
from headrace.program.firing import FiringClocks
from headrace.sources.progress import EpochClocks
from headrace.sources.source_clock import SourceClock
from headrace.state.layers import compiled_joins
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import UNNAMED, OutputTables

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoin, CompiledJoins
    from headrace.kernel.loops import CompiledLoop


@dataclass(frozen=True)
class StageClocks:
    """The clocks of one stage between two epochs: its watermark, its output watermark, and processing time.
    ``percentiles`` are the watermarks of the fastest q % of the input that its trigger looks at (semantics 9.2).
    """

    watermark: Instant = MIN_INSTANT
    processing_time: Instant = MIN_INSTANT
    output_watermark: Instant = MIN_INSTANT
    percentiles: Mapping[float, Instant] = field(default_factory=dict)

    def advance_to(
        self, stage: CompiledStage, processing_time: Instant, watermark: Instant, percentiles: Mapping[float, Instant]
    ) -> "tuple[FiringClocks, StageClocks]":
        """The step of an epoch to ``watermark``, and the clocks after it, but for the output watermark, which its
        windows decide. Clocks never go back.
        """
        clocks_after = replace(
            self,
            watermark=Instant(max(self.watermark, watermark)),
            processing_time=Instant(max(self.processing_time, processing_time)),
        )
        steps: dict[float, tuple[Instant, Instant]] = {}
        new_percentiles = dict(self.percentiles)
        for q in sorted(stage.trigger.percentiles):
            old = self.percentiles.get(q, MIN_INSTANT)
            new_percentiles[q] = Instant(max(old, percentiles.get(q, old)))
            steps[q] = (Instant(max(old, self.watermark)), Instant(max(new_percentiles[q], clocks_after.watermark)))
        step = FiringClocks(
            watermark_before=self.watermark,
            watermark_after=clocks_after.watermark,
            previous_processing_time=self.processing_time,
            processing_time=clocks_after.processing_time,
            percentiles=steps,
        )
        return step, replace(clocks_after, percentiles=new_percentiles)


class ChainState(msgspec.Struct, frozen=True):
    """A chain between two epochs: the ``clocks`` of each stage, the layers of each table of state, by its name."""

    clocks: tuple[StageClocks, ...]
    tables: Mapping[str, tuple[Layer, ...]]


@dataclass(frozen=True)
class Chain:
    """The compiled ``stages``, and the ``names`` of the tables and logs of their output. ``upstream``: the outputs
    whose panes the first stage takes; none: it takes records, or what a ``loop`` makes of them, or ``joins``. Each
    process compiles its own: tasks are sent only a ``ChainState``.
    """

    stages: tuple[CompiledStage, ...]
    names: OutputTables = UNNAMED
    upstream: tuple[Upstream[Pipeline], ...] = ()
    loop: "CompiledLoop | None" = None
    joins: "CompiledJoins | None" = None

    @classmethod
    def each_of(cls, pipeline: Pipeline) -> "tuple[Chain, ...]":
        """The chain of each output: of those that read records first, then each after those that it reads."""
        by_output = pipeline.by_output
        order = sorted(upstream_first(pipeline.outputs) or by_output, key=lambda name: bool(by_output[name].upstream))
        return tuple(cls.from_pipeline(by_output[output], OutputTables(output)) for output in order)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, names: OutputTables = UNNAMED) -> "Chain":
        """The chain of ``pipeline``, which has one output, with these ``names``."""
        stages = tuple(CompiledStage(stage) for stage in pipeline.stages)
        loop = None
        if pipeline.loop is not None and pipeline.edges is not None:
            from headrace.kernel.loops import CompiledLoop  # which few pipelines need

            loop = CompiledLoop.from_loop(pipeline.loop, pipeline.edges, stages[0])
        return cls(stages, names, pipeline.upstream, loop, compiled_joins(pipeline))

    @property
    def of_records(self) -> CompiledStage:
        """The stage for which records are grouped, where it takes any: the first, or edges of the loop."""
        return self.stages[0] if self.loop is None else self.loop.edges

    @property
    def judging(self) -> "CompiledStage | CompiledJoins":
        """For what records are judged: ``of_records``, or the sides of its joins."""
        return self.of_records if self.joins is None else self.joins

    def behind_joins(self, watermark: Instant) -> Instant:
        """The first stage's watermark, given its input's: that of a source, or the least one of what it reads."""
        return watermark if self.joins is None else self.joins.delayed_watermark(watermark)

    def watermark_before(self, join: "CompiledJoin", watermark: Instant) -> Instant:
        """The watermark that comes to one of its joins, where ``watermark`` comes to the first of them."""
        return watermark if self.joins is None else self.joins.watermark_of(join.number + 1, watermark)

    def before_joins(self, watermark: Instant) -> Instant:
        """The watermark with which, above its joins, ``watermark`` comes to its first stage."""
        return watermark if self.joins is None else self.joins.awaited_watermark(watermark)

    @property
    def is_stateless(self) -> bool:
        """Whether elements leave as rows where they are read: its only stage has no part of the keys, and no state."""
        return self.stages[0].stage.is_stateless

    @property
    def steps(self) -> int:
        """How many of its stages have tasks of their own."""
        return 0 if self.is_stateless else len(self.stages)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables of state, one for each stage that has any."""
        return self.names.state_tables(self.steps)

    @cached_property
    def all_tables(self) -> tuple[str, ...]:
        """The names of all tables that an epoch continues from."""
        if self.joins is not None:
            return (*self.tables, *(table for sides in self.sides for table in sides))
        return self.tables if self.loop is None else (*self.tables, self.names.edges, self.names.in_flight)

    @cached_property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """The names of the tables of the left and the right side of each of its joins."""
        numbers = range(0 if self.joins is None else len(self.joins))
        return tuple((self.names.join_left(number), self.names.join_right(number)) for number in numbers)

    def side_in(self, table: str) -> "tuple[CompiledJoin, bool] | None":
        """The join of which ``table`` holds a side, and whether that is the left one; None if it holds none."""
        for join, (left, right) in zip(() if self.joins is None else self.joins.joins, self.sides, strict=True):
            if table in (left, right):
                return join, table == left
        return None

    def goes_through_spark(self, stage: int) -> bool:
        """Whether panes go through a user's own Spark code before they come to that stage."""
        return isinstance(self.stages[stage].stage.aggregation.transform, SparkFunction)

    def initial_state(self) -> ChainState:
        return ChainState(tuple(StageClocks() for _ in self.stages), dict.fromkeys(self.all_tables, ()))

    def state_at_clocks(self, clocks: tuple[StageClocks, ...], tables: Mapping[str, Sequence[Layer]]) -> ChainState:
        """The chain at ``clocks``, with its own of ``tables``."""
        return ChainState(clocks, {name: tuple(tables.get(name, ())) for name in self.all_tables})

    def stage_clocks(self, clocks: EpochClocks, inputs: Mapping[str, SourceClock]) -> tuple[StageClocks, ...]:
        """The clocks of each stage as an epoch left them, by those that it stored and those of the ``inputs``."""
        own = clocks.chains.get(self.names.output)  # none before the first epoch
        outputs = () if own is None else own.output_watermarks
        if not outputs:
            return self.initial_state().clocks
        input_watermark = clocks.watermark_of(own)
        first, *later_clocks = (
            StageClocks(watermark, clocks.processing_time, output)
            for watermark, output in zip((input_watermark, *outputs), outputs, strict=False)
        )
        looked_at = () if self.upstream else self.stages[0].trigger.percentiles
        percentiles = {q: min(clock.percentile_watermark(q) for clock in inputs.values()) for q in looked_at}
        return (replace(first, percentiles=percentiles), *later_clocks)


LOOP = -1
"""The number of a loop among the stages of its chain: it comes before the first. So do joins, of which the last one has
this number, in a chain that has no loop.
"""


class Job(msgspec.Struct, frozen=True):
    """One job. ``stages``: those that it computes of each chain, by the number of the chain; the loop of a chain is one
    of them (``LOOP``), and so are joins. First stages of all chains are side by side at its first step, and so on.
    ``looped``: the chains that have a loop.
    """

    stages: Mapping[int, range]
    looped: frozenset[int] = frozenset()

    def without_chains(self, chains: Set[int]) -> "Job":
        return Job({number: own for number, own in self.stages.items() if number not in chains}, self.looped)

    def is_loop(self, chain: int, step: int) -> bool:
        """Whether the rounds of the loop of a chain are at that step."""
        return chain in self.looped and self.stage_at(chain, step) == LOOP

    @property
    def steps(self) -> int:
        return max((len(own) for own in self.stages.values()), default=0)

    def chains_at(self, step: int) -> list[int]:
        """The numbers of the chains that have a stage at that step."""
        return [number for number, own in self.stages.items() if step < len(own)]

    def stage_at(self, chain: int, step: int) -> int:
        return self.stages[chain][step]

    def step_of(self, chain: int, stage: int) -> int:
        return self.stages[chain].index(stage)


def jobs_of(chains: Sequence[Chain]) -> tuple[Job, ...]:
    """The jobs of an epoch of ``chains``. Each chain begins one job after the last of the chains whose panes it reads.
    After each step through a user's own Spark code it continues in a further job.
    """
    cuts = [_cut_by_spark(chain) for chain in chains]
    first_jobs: list[int] = []
    for chain in chains:  # which come after those that they read
        ends = (first_jobs[number] + len(cuts[number]) for number in upstream_of(chains, chain))
        first_jobs.append(max(ends, default=0))
    jobs: list[dict[int, range]] = [{} for _ in range(max(map(add, first_jobs, map(len, cuts))))]
    for number, (first, cut) in enumerate(zip(first_jobs, cuts, strict=True)):
        for job, stages in enumerate(cut, first):
            jobs[job][number] = stages
    loop_chains = frozenset(number for number, chain in enumerate(chains) if chain.loop is not None)
    return tuple(Job(job, loop_chains) for job in jobs)


def _cut_by_spark(chain: Chain) -> list[range]:
    first = LOOP if chain.loop is not None else -len(chain.sides)
    later_stages = (stage for stage in range(1, chain.steps) if chain.goes_through_spark(stage))
    return [range(begin, end) for begin, end in pairwise([first, *later_stages, chain.steps])]


def with_downstream(chains: Sequence[Chain], numbers: Set[int]) -> frozenset[int]:
    """The chains of these ``numbers``, and those that read panes of any of them."""
    numbers_reached = {*numbers}
    for number, chain in enumerate(chains):  # which come after those that they read
        if numbers_reached.intersection(upstream_of(chains, chain)):
            numbers_reached.add(number)
    return frozenset(numbers_reached)


def with_upstream(chains: Sequence[Chain], numbers: Set[int]) -> frozenset[int]:
    """The chains of these ``numbers``, and those whose panes they need."""
    numbers_reached = {*numbers}
    for number in reversed(range(len(chains))):
        if number in numbers_reached:
            numbers_reached.update(upstream_of(chains, chains[number]))
    return frozenset(numbers_reached)


def upstream_of(chains: Sequence[Chain], chain: Chain) -> list[int]:
    """The numbers of the chains whose panes ``chain`` reads, in its order."""
    numbers = {other.names.output: number for number, other in enumerate(chains)}
    return [numbers[upstream_output.output] for upstream_output in chain.upstream]
