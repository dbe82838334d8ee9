"""A chain: the aggregations of one output, one below the other, with their tables and clocks.

A pipeline has what is apart from it once: its inputs with their clocks (``input_clocks``), processing time, and the ids
by which duplicates are told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.distribute.stage_clocks import StageClocks
from headrace.kernel.loops.compiled import CompiledLoop
from headrace.kernel.stage import CompiledStage
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.upstream import Upstream, upstream_first
from headrace.sources.progress import EpochClocks
from headrace.sources.source_clock import SourceClock
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.table_names import UNNAMED, OutputTables


@dataclass(frozen=True)
class ChainState:
    """A chain between two epochs: the ``clocks`` of each stage, the layers of each table of state, by its name."""

    clocks: tuple[StageClocks, ...]
    tables: Mapping[str, tuple[Layer, ...]]


@dataclass(frozen=True)
class Chain:
    """The compiled ``stages``, and the ``names`` of the tables and logs of their output. ``upstream``: the outputs
    whose panes the first stage takes; none: it takes records, or what a ``loop`` makes of them. Each process compiles
    its own: tasks are sent only a ``ChainState``.
    """

    stages: tuple[CompiledStage, ...]
    names: OutputTables = UNNAMED
    upstream: tuple[Upstream, ...] = ()
    loop: CompiledLoop | None = None

    @classmethod
    def each_of(cls, pipeline: Pipeline) -> "tuple[Chain, ...]":
        """The chain of each output of ``pipeline``: of those that read records first, each of others after those that
        it reads.
        """
        by_output = pipeline.by_output
        order = sorted(upstream_first(pipeline.outputs) or by_output, key=lambda name: bool(by_output[name].upstream))
        return tuple(cls.of(by_output[output], OutputTables(output)) for output in order)

    @classmethod
    def of(cls, pipeline: Pipeline, names: OutputTables = UNNAMED) -> "Chain":
        """The chain of ``pipeline``, which has one output, with these ``names``."""
        stages = tuple(CompiledStage(stage) for stage in pipeline.stages)
        loop = None
        if pipeline.loop is not None and pipeline.edges is not None:
            loop = CompiledLoop.of(pipeline.loop, pipeline.edges, stages[0])
        return cls(stages, names, pipeline.upstream, loop)

    @property
    def of_records(self) -> CompiledStage:
        """The stage for which records are judged and grouped, where it takes any: the first, or edges of the loop."""
        return self.stages[0] if self.loop is None else self.loop.edges

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables of state, one for each stage."""
        return self.names.states(len(self.stages))

    @cached_property
    def all_tables(self) -> tuple[str, ...]:
        """The names of all tables that an epoch continues from."""
        return self.tables if self.loop is None else (*self.tables, self.names.edges, self.names.in_flight)

    def stage_of(self, table: str) -> CompiledStage:
        """The stage whose state is in ``table``."""
        return self.stages[self.tables.index(table)]

    def goes_through_spark(self, stage: int) -> bool:
        """Whether panes go through a user's own Spark code before they come to that stage."""
        return self.stages[stage].stage.aggregation.transform is not None

    def begun(self) -> ChainState:
        """The chain before its first epoch."""
        return ChainState(tuple(StageClocks() for _ in self.stages), dict.fromkeys(self.all_tables, ()))

    def state(self, clocks: tuple[StageClocks, ...], tables: Mapping[str, Sequence[Layer]]) -> ChainState:
        """The chain at ``clocks``, with its own of ``tables``."""
        return ChainState(clocks, {name: tuple(tables.get(name, ())) for name in self.all_tables})

    def clocks(self, clocks: EpochClocks, inputs: Mapping[str, SourceClock]) -> tuple[StageClocks, ...]:
        """The clocks of each stage as an epoch left them, by those that it stored and those of the ``inputs``."""
        own = clocks.chains.get(self.names.output)  # none before the first epoch
        outputs = () if own is None else own.output_watermarks
        if not outputs:
            return self.begun().clocks
        given = clocks.watermark_of(own)
        first, *later = (
            StageClocks(watermark, clocks.processing_time, output)
            for watermark, output in zip((given, *outputs), outputs, strict=False)
        )
        looked_at = () if self.upstream else self.stages[0].trigger.percentiles
        percentiles = {q: min(clock.percentile(q) for clock in inputs.values()) for q in looked_at}
        return (replace(first, percentiles=percentiles), *later)
