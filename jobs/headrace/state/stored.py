"""Layers of a snapshot, opened for a part of the keys."""

import pyarrow as pa

from headrace.kernel.stage import CompiledStage
from headrace.model.time import NEVER, Instant
from headrace.state.cache import LayerCache
from headrace.state.groups import WHOLE, Part
from headrace.state.layering import StateLayer
from headrace_snapshots.format.files import Layer
from headrace_snapshots.store import ObjectStore


def open_layer(
    cache: LayerCache, store: ObjectStore, stage: CompiledStage, stored: Layer, part: Part = WHOLE
) -> StateLayer:
    """The rows of ``stored`` whose keys are in ``part``: mapped, none copied. Files that have none are not looked at.

    Raises BrokenObjectError, for a file that is read and is not what was written.
    """
    return open_rows(cache, store, stage.state_schema, stored, part)


def open_rows(
    cache: LayerCache, store: ObjectStore, schema: pa.Schema, stored: Layer, part: Part = WHOLE
) -> StateLayer:
    """The same of rows of any ``schema`` that have a hash, such as remembered ids."""
    runs = []
    for file in stored.files:
        if part.overlaps(file.groups):
            run = cache.run(store, file, schema)
            runs.append(run if part.holds(file.groups) else run.cut(part))
    expires = NEVER if stored.expires is None else Instant(stored.expires)
    filled = tuple(run for run in runs if run.rows.num_rows)
    return StateLayer(filled, stored.first_epoch, stored.last_epoch, expires)
