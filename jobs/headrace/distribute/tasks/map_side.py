"""The map side: a share of an epoch's input read, judged, and aggregated for the keys of the first stage, or sent to
the tasks that tell duplicates.

Records of an input that goes through a user's own Spark code are only read here (``read_rows``), but for those that do
not parse; what that code makes of the others comes back (``map_rows``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.distribute.records import FileRecords, read_one, read_records
from headrace.distribute.side_outputs import late_rows, rejected_rows
from headrace.distribute.tasks.shuffle.row_locations import PLACE, ShippedRecords, in_arrival_order, places, travelling
from headrace.distribute.tasks.shuffle.shuffle_input import bundle, by_part
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import ShareFound
from headrace.distribute.watermark_inputs import InputObservations, ObservationContext, said
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


def map_share(task: EpochTask) -> tuple[ShareFound, Bundles]:
    """What a share gives, and rows for each part of the level below: of the ids where duplicates are told, else of the
    keys. Raises UnreadableFileError where a source says FAIL.
    """
    plan, work = task.plan, task.work
    pieces = plan.shares[task.number]
    share = read_records(work.pipeline, work.chain.stages[0], work.landing, pieces, plan.processing_time)
    records = share.records
    if records is None:
        return ShareFound(InputObservations(newest_read=share.handed_on)), {}
    found, bundles = _mapped(task, records, records.columns, lambda: places(records, task.number))
    newest = later_of(found.said.newest_read, share.handed_on)
    return replace(found, said=replace(found.said, newest_read=newest)), bundles


def read_rows(task: EpochTask, name: str) -> Iterator[pa.RecordBatch]:
    """The records of input ``name`` in a share, for a user's own Spark code: those that parse, with their ``PLACE``."""
    work = task.work
    given = next(each for each in work.pipeline.inputs if each.name == name)
    for number, piece in enumerate(task.plan.shares[task.number]):
        if piece.input != name:
            continue
        try:
            found = read_one(work.pipeline, work.landing, given, piece).records
        except DividedFileError:  # which the map side says (``map_share``)
            found = None
        if found is None:
            continue
        position = pa.array(found.position)
        place = [pa.repeat(pa.scalar(at, pa.int64()), len(position)) for at in (task.number, number)]
        rows = pa.RecordBatch.from_pydict({**dict(zip(PLACE, (*place, position), strict=True)), **found.columns})
        yield rows.filter(found.unparsed.is_null())


def map_rows(task: EpochTask, name: str, batches: Iterable[pa.RecordBatch]) -> tuple[ShareFound, Bundles]:
    """What ``batches`` give, which a user's own code made of records of input ``name``."""
    plan, work = task.plan, task.work
    given = next(each for each in work.pipeline.inputs if each.name == name)
    rows = in_arrival_order(pa.concat_batches(list(batches)))
    columns = typed(rows, given.source.columns)
    place = {each: rows.column(each) for each in PLACE}
    parsed = Scanned(columns, pa.nulls(rows.num_rows, pa.string()), rows.column(PLACE[-1]).to_numpy(), _no_raw)
    found = judged(work.pipeline, work.chain.stages[0], given, parsed, plan.processing_time)
    return _mapped(task, ShippedRecords(task, {**found, **place}), found, lambda: place)


def _no_raw(rows: object) -> pa.Array:
    raise NotImplementedError("what a user's code made has no text of its own")


def typed(rows: pa.RecordBatch, schema: Schema) -> dict[str, pa.Array]:
    """Columns of Spark's as those of ``schema``."""
    return {name: rows.column(name).cast(ARROW_TYPES[kind]) for name, kind in schema.items()}


def _mapped(
    task: EpochTask, records: FileRecords | ShippedRecords, judged: Columns, place: Callable[[], Columns]
) -> tuple[ShareFound, Bundles]:
    plan, work = task.plan, task.work
    first = work.chain.stages[0]
    heard = ObservationContext(plan.clocks, plan.processing_time, frozenset(first.trigger.percentiles), plan.newest)
    found = said(work.pipeline, records, heard)
    rejected = task.put(REJECTED, rejected_rows(records, plan.epoch))
    if work.pipeline.deduplicate is not None:
        counts = takes_part(judged)
        others = {name: values.filter(pa.array(~counts)) for name, values in judged.items()}
        accounting = aggregate(first, others, plan.state.clocks[0].watermark).accounting
        rows = travelling(judged, place(), counts)
        return ShareFound(found, accounting, (), rejected), by_part(rows, [c.ID], plan.parts)
    made = bundle(
        first,
        judged,
        place() if work.arrives_in_turns else None,
        plan.state.clocks[0].watermark,
        task.behind(),
        share=task.number,
        number=plan.parts,
    )
    late = task.put(work.chain.names.late, late_rows(first, records, made.aggregated.late, plan.epoch), keyed=True)
    return ShareFound(found, made.aggregated.accounting, late, rejected), made.parts
