"""Migration: state that another definition left gets the columns of this one. Rows stay what they are and where they
are.

Columns of aggregates are named by their number, so an aggregate that is called something else is stored as before. One
that is new has nothing stored of it, which is NULL: what its state is before the first element (``kernel.aggregates``).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from headrace.kernel.renamed_columns import Names, as_now
from headrace.kernel.stage import CompiledStage
from headrace.pipeline.identity.renaming import Formerly
from headrace.program import columns as c
from headrace.state.datafiles.cache import RowCache
from headrace.state.datafiles.files import stored
from headrace.state.datafiles.writer import put_runs
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.store import ObjectStore

_AT_ONCE = 4
"""Files in memory at a time, each several times its size."""


@dataclass(frozen=True)
class StateNames:
    """What another definition calls the columns of the state of ``stage``, and aggregates in panes that it
    remembers; None: they are new.
    """

    stage: CompiledStage
    columns: Names
    values: Names
    remembers_others: bool

    @classmethod
    def of(cls, stage: CompiledStage, formerly: Formerly) -> "StateNames":
        """Where ``formerly`` says what columns of the stage were called."""
        columns: dict[str, str | None] = dict(formerly.keys)
        if stage.how.keep_last is None:
            columns |= _parts(stage, [*formerly.values])
        then = formerly.values
        values = {name: then.get(name) for name in stage.stage.value_types}
        return cls(stage, columns, values, stage.remembers and [*values] != [*then.values()])

    @property
    def differ(self) -> bool:
        """Whether stored rows have to be written again."""
        return self.remembers_others or any(name != then for name, then in self._known.items())

    @property
    def _known(self) -> Names:
        return {name: self.columns.get(name, name) for name in self.stage.state_schema.names}

    def migrated(self, rows: pa.Table) -> pa.RecordBatch:
        """Stored ``rows`` with the columns of the stage."""
        schema = self.stage.state_schema
        if self.remembers_others:
            place = rows.schema.get_field_index(c.LIVE)
            panes = _panes(rows.column(c.LIVE).combine_chunks(), schema.field(c.LIVE).type, self.values)
            rows = rows.set_column(place, schema.field(c.LIVE), panes)
        (batch,) = as_now(rows, schema, self.columns).combine_chunks().to_batches()
        return batch


def _parts(stage: CompiledStage, order: Sequence[str]) -> dict[str, str | None]:
    """What the parts of aggregates were called when these had that ``order``."""
    names: dict[str, str | None] = {}
    for number, (name, accumulator) in enumerate(stage.accumulators.items()):
        for part in accumulator.parts:
            ending = part.name.removeprefix(f"_a{number}")
            names[part.name] = f"_a{order.index(name)}{ending}" if name in order else None
    return names


def _panes(lists: pa.ListArray, kind: pa.ListType, names: Names) -> pa.ListArray:
    """Lists of panes with the fields of ``kind``."""
    panes = lists.values
    columns = []
    for field in kind.value_type:
        name = names.get(field.name, field.name)
        columns.append(pa.nulls(len(panes), field.type) if name is None else panes.field(name))
    made = pa.StructArray.from_arrays(columns, fields=[*kind.value_type])
    return pa.ListArray.from_arrays(lists.offsets, made, type=kind, mask=lists.is_null())


def migrated(
    store: ObjectStore, cache: RowCache, names: StateNames, layers: Sequence[Layer], prefix: str
) -> tuple[Layer, ...]:
    """``layers`` with the columns of the stage, stored as files called ``prefix`` and numbers.

    Raises BrokenObjectError.
    """
    files = [file for layer in layers for file in layer.files]

    def rewritten(number: int) -> tuple[DataFile, ...]:
        rows = names.migrated(stored(verify(store, files[number])))
        return tuple(stored.file for stored in put_runs(store, cache, f"{prefix}-{number:05}", [rows]))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="migrate") as threads:
        made: Mapping[str, tuple[DataFile, ...]] = dict(
            zip((file.path for file in files), threads.map(rewritten, range(len(files))), strict=True)
        )
    return tuple(layer.replace(files=tuple(new for file in layer.files for new in made[file.path])) for layer in layers)
