"""Layers written again: merged in bounded memory, or with the columns of another definition.

``merge_layers`` goes range by range of the order that all runs share.

``migrate_layers`` gives state that another definition left the columns of this one. Rows stay what they are and where
they are. Columns of aggregates are named by their number, so an aggregate that is called something else is stored as
before. One that is new has nothing stored of it, which is NULL: what its state is before the first element
(``kernel.aggregates``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.columns import Ints, Names, as_now, as_numpy
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import concat_rows, newest_rows, present_rows
from headrace.pipeline.identity import Formerly
from headrace.program import columns as c
from headrace.state.chunks import Hashes
from headrace.state.file_cache import RowCache, put_runs
from headrace.state.files import decode_table
from headrace.state.sorted_file import SortedFile, StateLayer
from headrace.this_process import Size
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.store import ObjectStore

RANGE_BYTES: Final = Size(16 * 1024 * 1024)
"""What a range holds of all runs, about; it takes some times as much to merge it."""

SAMPLES: Final = Size(32)
"""Rows by which a range is measured, in all runs together."""


def merge_layers(stage: CompiledStage, layers: Sequence[StateLayer], *, is_lowest: bool) -> Iterator[pa.RecordBatch]:
    """Yields the newest row of every (key, window) in the order of (hash, window). ``layers`` stand oldest first.
    Rows that say that a window is gone are left out if the oldest layer ``is_lowest``: there is nothing to hide.
    """
    for batches in _ordered_ranges([run for layer in layers for run in layer.runs], c.WINDOW_START):
        rows = newest_rows(stage, batches)
        if is_lowest:
            rows = present_rows(rows)
        if rows.num_rows:
            yield rows


def merge_ids(
    schema: pa.Schema, layers: Sequence[StateLayer], counts: Callable[[pa.RecordBatch], NDArray[np.bool_]]
) -> Iterator[pa.RecordBatch]:
    """The rows of all ``layers`` that still count, in the order of their hashes."""
    for batches in _ordered_ranges([run for layer in layers for run in layer.runs], None):
        rows = concat_rows(schema, batches)
        order = np.argsort(as_numpy(rows.column(c.HASH)), kind="stable")
        kept_rows = order[counts(rows)[order]]
        if len(kept_rows):
            yield rows.take(pa.array(kept_rows))


def merge_rows(
    layers: Sequence[StateLayer], keep_rows: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What ``keep_rows`` keeps of all ``layers``, given the rows of some hashes at a time, in their order."""
    for rows in sorted_ranges(layers, None):
        kept_rows = keep_rows(rows)
        if kept_rows.num_rows:
            yield kept_rows


def sorted_ranges(layers: Sequence[StateLayer], order_column: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of all ``layers``, each in the order of hashes and then of ``order_column``, in ranges of that order. A
    range has about ``RANGE_BYTES``, and rows that are equal in the order share one. Rows within a range are in no
    order.
    """
    for batches in _ordered_ranges([run for layer in layers for run in layer.runs], order_column):
        yield pa.concat_batches(batches)


def _ordered_ranges(runs: Sequence[SortedFile], within_column: str | None) -> Iterator[list[pa.RecordBatch]]:
    """The rows of ``runs``, each in the order of its hashes and of ``within_column`` within them, in ranges of that
    order. A range has the batches that are not empty, in the order of the runs. Equal rows of the order are in one
    range.
    """
    ordered_runs = [_OrderedRun(run, within_column) for run in runs if run.rows.num_rows]
    begins = [0] * len(ordered_runs)
    for bound in _range_bounds(ordered_runs):
        ends = [run.count_up_to(bound) for run in ordered_runs]
        batches = [run.rows.slice(a, b - a) for run, a, b in zip(ordered_runs, begins, ends, strict=True) if a < b]
        if batches:
            yield batches
        begins = ends
        for run in runs:
            run.release_memory()


_Place = tuple[np.uint64, np.int64]


class _OrderedRun:
    """A run and the columns of its order."""

    def __init__(self, run: SortedFile, order_column: str | None) -> None:
        self.run, self.rows = run, run.rows
        self.hashes = run.hashes
        self.order_values: Ints | None = None if order_column is None else as_numpy(run.rows.column(order_column))

    def sample_places(self, step: int) -> tuple[Hashes, Ints]:
        """Where every so many-th row is in the common order."""
        rows = np.arange(step - 1, len(self.hashes), step)
        places = (
            self.hashes[rows],
            np.zeros(len(rows), np.int64) if self.order_values is None else self.order_values[rows],
        )
        self.run.release_memory()
        return places

    def count_up_to(self, bound: _Place | None) -> int:
        """How many rows are at ``bound`` or before it."""
        if bound is None:
            return len(self.hashes)
        end = int(np.searchsorted(self.hashes, bound[0], "right"))
        if self.order_values is None:
            return end
        first = int(np.searchsorted(self.hashes, bound[0], "left"))
        return first + int(np.searchsorted(self.order_values[first:end], bound[1], "right"))


def _range_bounds(runs: Sequence[_OrderedRun]) -> Iterator[_Place | None]:
    """The last places of ranges of about RANGE_BYTES; None: the last range has all that is left."""
    total = sum(len(run.hashes) for run in runs)
    width = sum(run.rows.nbytes for run in runs) / max(total, 1)
    step = max(int(RANGE_BYTES.value / max(width, 1)) // SAMPLES.value, 1)
    samples = [run.sample_places(step) for run in runs]
    hashes, within_values = (np.concatenate(arrays) for arrays in zip(*samples, strict=True)) if samples else ((), ())
    order = np.lexsort([within_values, hashes])
    for place in order[SAMPLES.value - 1 :: SAMPLES.value]:
        yield hashes[place], within_values[place]
    yield None


_FILES_IN_MEMORY = 4
"""Files in memory at a time, each several times its size."""


@dataclass(frozen=True)
class StateNames:
    """What another definition calls columns of ``stage``'s state, and aggregates in remembered panes; None: new."""

    stage: CompiledStage
    columns: Names
    values: Names
    remembers_others: bool

    @classmethod
    def from_former_names(cls, stage: CompiledStage, formerly: Formerly) -> "StateNames":
        """Where ``formerly`` says what columns of the stage were called."""
        columns: dict[str, str | None] = dict(formerly.keys)
        if stage.rows_part is not None:  # which has rows by the places of their columns
            return cls(stage, columns, {}, remembers_others=False)
        if stage.how.keep_last is None:
            columns |= _former_parts(stage, [*formerly.values])
        old_names = formerly.values
        values = {name: old_names.get(name) for name in stage.stage.value_types}
        return cls(stage, columns, values, stage.remembers and [*values] != [*old_names.values()])

    @property
    def differ(self) -> bool:
        """Whether stored rows have to be written again."""
        return self.remembers_others or any(name != old_name for name, old_name in self._known_names.items())

    @property
    def _known_names(self) -> Names:
        return {name: self.columns.get(name, name) for name in self.stage.state_schema.names}

    def migrate_rows(self, rows: pa.Table) -> pa.RecordBatch:
        """Stored ``rows`` with the columns of the stage."""
        schema = self.stage.state_schema
        if self.remembers_others:
            place = rows.schema.get_field_index(c.LIVE)
            panes = _migrate_panes(rows.column(c.LIVE).combine_chunks(), schema.field(c.LIVE).type, self.values)
            rows = rows.set_column(place, schema.field(c.LIVE), panes)
        (batch,) = as_now(rows, schema, self.columns).combine_chunks().to_batches()
        return batch


def _former_parts(stage: CompiledStage, order: Sequence[str]) -> dict[str, str | None]:
    """What the parts of aggregates were called when these had that ``order``."""
    names: dict[str, str | None] = {}
    for number, (name, accumulator) in enumerate(stage.accumulators.items()):
        for part in accumulator.parts:
            ending = part.name.removeprefix(f"_a{number}")
            names[part.name] = f"_a{order.index(name)}{ending}" if name in order else None
    return names


def _migrate_panes(lists: pa.ListArray, kind: pa.ListType, names: Names) -> pa.ListArray:
    """Lists of panes with the fields of ``kind``."""
    panes = lists.values
    columns = []
    for field in kind.value_type:
        name = names.get(field.name, field.name)
        columns.append(pa.nulls(len(panes), field.type) if name is None else panes.field(name))
    pane_structs = pa.StructArray.from_arrays(columns, fields=[*kind.value_type])
    return pa.ListArray.from_arrays(lists.offsets, pane_structs, type=kind, mask=lists.is_null())


def migrate_layers(
    store: ObjectStore, cache: RowCache, names: StateNames, layers: Sequence[Layer], prefix: str
) -> tuple[Layer, ...]:
    """``layers`` with the columns of the stage, stored as files called ``prefix`` and numbers.

    Raises BrokenObjectError.
    """
    files = [file for layer in layers for file in layer.files]

    def rewrite_file(number: int) -> tuple[DataFile, ...]:
        rows = names.migrate_rows(decode_table(read_verified(store, files[number])))
        return tuple(stored_run.file for stored_run in put_runs(store, cache, f"{prefix}-{number:05}", [rows]))

    with ThreadPoolExecutor(_FILES_IN_MEMORY, thread_name_prefix="migrate") as threads:
        new_files: Mapping[str, tuple[DataFile, ...]] = dict(
            zip((file.path for file in files), threads.map(rewrite_file, range(len(files))), strict=True)
        )
    return tuple(
        layer.stored_as(tuple(new for file in layer.files for new in new_files[file.path])) for layer in layers
    )
