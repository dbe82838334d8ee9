"""A chain: the aggregations of one output, one below the other, with their tables and clocks.

A pipeline has what is apart from it once: its inputs with their clocks (``input_clocks``), processing time, and the ids
by which duplicates are told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from headrace.distribute.stage_clocks import StageClocks
from headrace.kernel.stage import CompiledStage
from headrace.pipeline.pipeline import Pipeline
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
    """The compiled ``stages``, and the ``names`` of the tables and logs of their output. Each process compiles its own:
    tasks are sent only a ``ChainState``.
    """

    stages: tuple[CompiledStage, ...]
    names: OutputTables = UNNAMED

    @classmethod
    def each_of(cls, pipeline: Pipeline) -> "tuple[Chain, ...]":
        """The chain of each output of ``pipeline``."""
        return tuple(cls.of(alone, OutputTables(output)) for output, alone in pipeline.by_output.items())

    @classmethod
    def of(cls, pipeline: Pipeline, names: OutputTables = UNNAMED) -> "Chain":
        """The chain of ``pipeline``, which has one output, with these ``names``."""
        return cls(tuple(CompiledStage(stage) for stage in pipeline.stages), names)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables of state, one for each stage."""
        return self.names.states(len(self.stages))

    def stage_of(self, table: str) -> CompiledStage:
        """The stage whose state is in ``table``."""
        return self.stages[self.tables.index(table)]

    def goes_through_spark(self, stage: int) -> bool:
        """Whether panes go through a user's own Spark code before they come to that stage."""
        return self.stages[stage].stage.aggregation.transform is not None

    def jobs(self) -> list[range]:
        """The stages of each job of an epoch."""
        count = len(self.stages)
        first_stages = [0, *(stage for stage in range(1, count) if self.goes_through_spark(stage))]
        return [range(first, end) for first, end in pairwise([*first_stages, count])]

    def begun(self) -> ChainState:
        """The chain before its first epoch."""
        return ChainState(tuple(StageClocks() for _ in self.stages), dict.fromkeys(self.tables, ()))

    def state(self, clocks: tuple[StageClocks, ...], tables: Mapping[str, Sequence[Layer]]) -> ChainState:
        """The chain at ``clocks``, with its own of ``tables``."""
        return ChainState(clocks, {name: tuple(tables.get(name, ())) for name in self.tables})

    def clocks(self, clocks: EpochClocks, inputs: Mapping[str, SourceClock]) -> tuple[StageClocks, ...]:
        """The clocks of each stage as an epoch left them, by those that it stored and those of the ``inputs``."""
        own = clocks.chains.get(self.names.output)  # none before the first epoch
        outputs = () if own is None else own.output_watermarks
        if not outputs:
            return self.begun().clocks
        first, *later = (
            StageClocks(watermark, clocks.processing_time, output)
            for watermark, output in zip((clocks.watermark, *outputs), outputs, strict=False)
        )
        looked_at = self.stages[0].trigger.percentiles
        percentiles = {q: min(clock.percentile(q) for clock in inputs.values()) for q in looked_at}
        return (replace(first, percentiles=percentiles), *later)
