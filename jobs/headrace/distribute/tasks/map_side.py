"""The map side: a share of an epoch's input read, judged, and aggregated for the keys of the first stage, or sent to
the tasks that tell duplicates.

Records of an input that goes through a user's own Spark code are only read here (``read_rows``), but for those that do
not parse; what that code makes of the others comes back (``map_rows``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.distribute.records import FileRecords, input_named, read_one, read_records
from headrace.distribute.side_outputs import late_rows, rejected_rows
from headrace.distribute.tasks.parts import addressed
from headrace.distribute.tasks.shuffle.row_locations import PLACE, ShippedRecords, in_arrival_order, places, travelling
from headrace.distribute.tasks.shuffle.shuffle_input import bundle, by_part
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import BundleOutput, ShareOutput
from headrace.distribute.watermark_inputs import InputObservations, ObservationContext, observe
from headrace.kernel.delta import aggregate
from headrace.kernel.elements import Columns, takes_part
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.data_types import Schema
from headrace.program import columns as c
from headrace.sources.formats.errors import DividedFileError
from headrace.sources.formats.scan import Scanned
from headrace.sources.progress import later_of
from headrace.sources.validation import judged
from headrace_snapshots.format.table_names import REJECTED

Bundles = Mapping[int, pa.RecordBatch]


def map_share(task: EpochTask) -> tuple[ShareOutput, Bundles]:
    """What a share gives, and rows for each part of the level below: of the ids where duplicates are told, else of the
    keys. Raises UnreadableFileError where a source says FAIL.
    """
    plan, work = task.plan, task.work
    pieces = plan.shares[task.number]
    share = read_records(work.pipeline, work.firsts, work.landing, pieces, plan.processing_time)
    records = share.records
    if records is None:
        return ShareOutput(InputObservations(newest_read=share.handed_on)), {}
    output, bundles = _mapped(task, records, lambda: places(records, task.number))
    newest = later_of(output.observations.newest_read, share.handed_on)
    return replace(output, observations=replace(output.observations, newest_read=newest)), bundles


def read_rows(task: EpochTask, name: str) -> Iterator[pa.RecordBatch]:
    """The records of input ``name`` in a share, for a user's own Spark code: those that parse, with their ``PLACE``."""
    work = task.work
    input_ = input_named(work.pipeline, name)
    for number, piece in enumerate(task.plan.shares[task.number]):
        if piece.input != name:
            continue
        try:
            records = read_one(work.pipeline, work.landing, input_, piece).records
        except DividedFileError:  # which the map side says (``map_share``)
            records = None
        if records is None:
            continue
        position = pa.array(records.position)
        place = [pa.repeat(pa.scalar(at, pa.int64()), len(position)) for at in (task.number, number)]
        rows = pa.RecordBatch.from_pydict({**dict(zip(PLACE, (*place, position), strict=True)), **records.columns})
        yield rows.filter(records.unparsed.is_null())


def map_rows(task: EpochTask, name: str, batches: Iterable[pa.RecordBatch]) -> tuple[ShareOutput, Bundles]:
    """What ``batches`` give, which a user's own code made of records of input ``name``."""
    plan, work = task.plan, task.work
    input_ = input_named(work.pipeline, name)
    rows = in_arrival_order(pa.concat_batches(list(batches)))
    parsed_columns = typed(rows, input_.source.columns)
    place = {column: rows.column(column) for column in PLACE}
    parsed = Scanned(parsed_columns, pa.nulls(rows.num_rows, pa.string()), rows.column(PLACE[-1]).to_numpy(), _no_raw)
    records = judged(work.pipeline, work.firsts, input_, parsed, plan.processing_time)
    return _mapped(task, ShippedRecords(task, records, place), lambda: place)


def _no_raw(rows: object) -> pa.Array:
    raise NotImplementedError("what a user's code made has no text of its own")


def typed(rows: pa.RecordBatch, schema: Schema) -> dict[str, pa.Array]:
    """Columns of Spark's as those of ``schema``."""
    return {name: rows.column(name).cast(ARROW_TYPES[kind]) for name, kind in schema.items()}


def _mapped(
    task: EpochTask, records: FileRecords | ShippedRecords, place: Callable[[], Columns]
) -> tuple[ShareOutput, Bundles]:
    plan, work = task.plan, task.work
    context = ObservationContext(plan.clocks, plan.processing_time, work.percentiles, plan.newest)
    observations = observe(work.pipeline, records, context)
    rejected = task.put(REJECTED, rejected_rows(records, plan.epoch, [*work.pipeline.by_output]))
    if work.tells_ids:
        counts = takes_part(records.columns)
        by_chain = zip(task.for_each_chain(), records.chains, strict=True)
        apart = tuple(_without_ids(own, columns, ~counts) for own, columns in by_chain)
        rows = travelling(records.judged, place(), counts)
        return ShareOutput(observations, apart, rejected), by_part(rows, [c.ID], plan.id_parts)
    chains, bundles = into_chains(task, records, place if work.reads_in_turns else None)
    return ShareOutput(observations, chains, rejected), bundles


def _without_ids(task: EpochTask, judged: Columns, rows: NDArray[np.bool_]) -> BundleOutput:
    """What became of those ``rows`` in a chain whose ids count for nothing, since none takes part."""
    apart = {name: values.filter(pa.array(rows)) for name, values in judged.items()}
    return BundleOutput(aggregate(task.chain.stages[0], apart, task.state.clocks[0].watermark).accounting)


def into_chains(
    task: EpochTask, records: FileRecords | ShippedRecords, place: Callable[[], Columns] | None
) -> tuple[tuple[BundleOutput, ...], Bundles]:
    """What becomes of ``records`` in the first stage of each chain, and what of them goes to which part there.
    ``place``: where they are from, unless the order of tasks is that of records.
    """
    outputs: list[BundleOutput] = []
    bundles: dict[int, pa.RecordBatch] = {}
    for own, columns in zip(task.for_each_chain(), records.chains, strict=True):
        first = own.chain.stages[0]
        shuffled = bundle(
            first,
            columns,
            place() if place is not None and first.is_ordered else None,
            own.state.clocks[0].watermark,
            own.output_watermark(),
            share=task.number,
            number=own.parts,
        )
        late = late_rows(first, records, columns, shuffled.aggregated.late, task.plan.epoch)
        outputs.append(BundleOutput(shuffled.aggregated.accounting, own.put(own.chain.names.late, late, keyed=True)))
        bundles |= addressed(task.plan, task.work.chains, 0, own.of_chain, shuffled.parts)
    return tuple(outputs), bundles
