"""Layers of a snapshot, opened for a part of the keys."""

from collections.abc import Mapping

import pyarrow as pa

from headrace.kernel.loops.compiled import CompiledLoop
from headrace.kernel.stage import CompiledStage
from headrace.model.time import NEVER, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.state.datafiles.cache import RowCache
from headrace.state.datafiles.chunks import in_part, some_rows
from headrace.state.datafiles.files import as_stored, decoded
from headrace.state.ids import RememberedIds
from headrace.state.key_groups import WHOLE, KeyGroupRange
from headrace.state.open_layer import StateLayer
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.table_names import IDS, OutputTables
from headrace_snapshots.store import ObjectStore


def open_rows(
    cache: RowCache, store: ObjectStore, schema: pa.Schema, stored: Layer, part: KeyGroupRange = WHOLE
) -> StateLayer:
    """The rows of ``stored``, which have a hash, whose keys are in ``part``: mapped, none copied. Files that have none
    are not looked at. Raises BrokenObjectError, for a file that is read and is not what was written.
    """
    runs = []
    for file in stored.files:
        if part.overlaps(file.groups):
            run = cache.run(store, file, schema)
            runs.append(run if part.holds(file.groups) else run.cut(part))
    expires = NEVER if stored.expires is None else Instant(stored.expires)
    filled = tuple(run for run in runs if run.rows.num_rows)
    return StateLayer(filled, stored.first_epoch, stored.last_epoch, expires)


def some_of(store: ObjectStore, schema: pa.Schema, stored: Layer, part: KeyGroupRange) -> list[pa.RecordBatch]:
    """The rows of ``stored``, which have a hash, by file and in its order: of those whose keys are in ``part`` all, and
    few others. What is not needed for them is not read. Raises BrokenObjectError.
    """
    batches = []
    for file in stored.files:
        if part.overlaps(file.groups):
            rows = some_rows(store, file, in_part(part))
            batches.append(decoded(verify(store, file), schema) if rows is None else as_stored(rows, schema))
    return batches


def state_schemas(pipeline: Pipeline) -> Mapping[str, pa.Schema]:
    """What a row is of each table that holds state."""
    schemas = {
        OutputTables(output).state(number): CompiledStage(stage).state_schema
        for output, alone in pipeline.by_output.items()
        for number, stage in enumerate(alone.stages)
    }
    for output, alone in pipeline.by_output.items():
        if alone.loop is not None and alone.edges is not None:
            loop = CompiledLoop.of(alone.loop, alone.edges, CompiledStage(alone.stages[0]))
            names = OutputTables(output)
            schemas |= {names.edges: loop.edge_schema, names.in_flight: loop.message_schema}
    if pipeline.deduplicate is not None:
        schemas[IDS] = RememberedIds.of(pipeline).schema
    return schemas
