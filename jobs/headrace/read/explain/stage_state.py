"""The state of one aggregation in a snapshot: its windows, and the clocks under which they wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.distribute.chain import Chain
from headrace.distribute.input_clocks import source_clocks
from headrace.distribute.stage_clocks import StageClocks
from headrace.errors import FixConfigError
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import newest, there
from headrace.model.time import Instant
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import named
from headrace.read.definition_plan import plan
from headrace.read.snapshots.progress import StoredProgress, progress_of
from headrace.sources.source_clock import SourceClock
from headrace.state.datafiles.cache import RowCache
from headrace.state.key_groups import KeyGroupRange, parts
from headrace.state.layer_reader import open_rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED

PART_ROWS, PART_BYTES = 200_000, 16 * 2**20
"""Rows, and bytes of their files, that are looked at at a time."""


class StateDefinitionError(FixConfigError, code="config.state_definition"):
    """State can be read only with the definition of the pipeline that made it."""


@dataclass(frozen=True)
class StageState:
    """The state of aggregation ``number``, counted from 1, of a pipeline at ``manifest``, which ``pipeline`` made."""

    catalog: Catalog
    manifest: Manifest
    pipeline: Pipeline
    number: int

    def __post_init__(self) -> None:
        check_number(self.pipeline, self.number)
        if self.manifest.fingerprint != fingerprint(self.pipeline):
            changed = named(plan(self.pipeline, self.manifest).changes)
            raise StateDefinitionError(
                f"pipeline {self.pipeline.name} has changed since snapshot {self.manifest.snapshot_id} (epoch "
                f"{self.manifest.epoch}): {changed}. Its state can be read only by the definition that made it: take "
                "the change back to look at it"
            )

    @cached_property
    def stage(self) -> CompiledStage:
        """The aggregation."""
        return CompiledStage(self.pipeline.stages[self.number - 1])

    @property
    def clocks(self) -> StageClocks:
        """Its clocks behind the snapshot's epoch."""
        return self._all_clocks[self.number - 1]

    @cached_property
    def _inputs(self) -> Mapping[str, SourceClock]:
        return source_clocks(self.pipeline, progress_of(self.catalog, self.manifest).inputs)

    @cached_property
    def _all_clocks(self) -> tuple[StageClocks, ...]:
        """The clocks of all aggregations."""
        return Chain.of(self.pipeline).clocks(progress_of(self.catalog, self.manifest), self._inputs)

    @cached_property
    def progress(self) -> StoredProgress:
        """All clocks of the snapshot."""
        return StoredProgress.of(self.manifest)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its table, oldest layer first."""
        return self.manifest.tables.get(UNNAMED.state(self.number - 1), ())

    @property
    def bytes(self) -> int:
        """The length of its files."""
        return sum(file.bytes for layer in self.layers for file in layer.files)

    @property
    def parts(self) -> tuple[KeyGroupRange, ...]:
        """All keys, in parts that fit into memory."""
        rows = sum(layer.rows for layer in self.layers)
        return parts(1 + max(rows // PART_ROWS, self.bytes // PART_BYTES))

    def windows(self, cache: RowCache, part: KeyGroupRange) -> pa.RecordBatch:
        """The rows of the windows of ``part``, open and closed. Raises BrokenObjectError."""
        schema = self.stage.state_schema
        opened = [open_rows(cache, self.catalog.store, schema, layer, part) for layer in self.layers]
        return there(newest(self.stage, [run.rows for layer in opened for run in layer.runs]))

    @property
    def held_back(self) -> str | None:
        """Who holds the watermark of the aggregation back, in words; None where nobody is known to."""
        outputs = self.progress.chain.output_watermarks
        watermarks = (self.progress.watermark_of(self.progress.chain), *outputs)
        for number in range(self.number, 1, -1):  # of aggregation n it is what n - 1 lets through
            if outputs and watermarks[number - 1] < watermarks[number - 2]:
                return f"windows of aggregation {number - 1} that wait"
        if self._waits_for_loop:
            return "what is in flight in the loop"
        held_to = self.progress.held_to
        if held_to is not None and self.progress.watermark >= held_to.watermark:
            return "main, whose watermark a backfill does not pass"
        holder = self.progress.held_back_by
        if holder is None:
            return None
        (event_time,) = [given.event_time for given in self.pipeline.inputs if given.name == holder.input]
        split = "" if holder.split is None or event_time.split is None else f"split {holder.split!r} of "
        return f"{split}input {holder.input!r}"

    @property
    def held_since(self) -> Instant | None:
        """The processing time at which who holds the inputs' watermark back last moved it on, None if nobody did, or
        they do not hold back what the aggregation goes by.
        """
        holder = None if self._waits_for_loop else self.progress.held_back_by
        return None if holder is None else holder.since

    @property
    def _waits_for_loop(self) -> bool:
        """Whether something is in flight in a window that the inputs have passed (13.5)."""
        if self.pipeline.loop is None or not self.manifest.tables.get(UNNAMED.in_flight):
            return False
        return self._all_clocks[0].watermark < min(clock.watermark for clock in self._inputs.values())


def check_number(pipeline: Pipeline, number: int) -> None:
    """Raise StateDefinitionError unless ``pipeline`` has an aggregation of that number."""
    there_are = len(pipeline.stages)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= there_are:
        raise StateDefinitionError(
            f"stage={number!r} is none of the aggregations of {pipeline.name}: they are counted from 1 to {there_are}"
        )
