"""Duplicates told apart: a task for each part of the ids sees all records of an id (semantics 12.10)."""

from dataclasses import replace

import pyarrow as pa

from headrace.distribute.side_outputs import late_rows
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.shuffle.row_locations import ShippedRecords
from headrace.distribute.tasks.shuffle.shuffle_input import bundle
from headrace.distribute.tasks.tables import files_of, open_own, put_table
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import IdsOutput, Stored, UpstreamResults
from headrace.program import columns as c
from headrace.state.ids import RememberedIds
from headrace_snapshots.format.table_names import IDS


def tell_duplicates(
    task: EpochTask, upstream: UpstreamResults, rows: list[pa.RecordBatch]
) -> tuple[IdsOutput, Bundles]:
    """What becomes of ``rows``, the records of a part of the ids, and those that count for each part of the keys."""
    plan, work = task.plan, task.work
    first, deduplicate = work.chain.stages[0], work.pipeline.deduplicate
    assert deduplicate is not None
    watermark = plan.state.clocks[0].watermark
    remembered = RememberedIds(deduplicate, work.pipeline.schema, (), watermark)
    remembered = replace(remembered, layers=open_own(task, plan.ids, remembered.schema))
    if not rows:
        return IdsOutput(), {}
    records = ShippedRecords.arrived(task, rows)
    records = records.having({c.SEEN: remembered.seen(records.columns)})
    order, judged = records.places if first.is_ordered else None, records.judged
    shuffled = bundle(first, judged, order, watermark, task.output_watermark(), share=task.number, number=plan.parts)
    late = late_rows(first, records, shuffled.aggregated.late, plan.epoch)
    return (
        IdsOutput(
            accounting=shuffled.aggregated.accounting,
            ids=_stored(task, remembered, judged),
            late=task.put(work.chain.names.late, late, keyed=True),
        ),
        shuffled.parts,
    )


def _stored(task: EpochTask, remembered: RememberedIds, judged: dict[str, pa.Array]) -> Stored:
    rows = remembered.new(judged, task.plan.epoch)
    return Stored(files_of(put_table(task, IDS, [rows])), remembered.expiry(rows)) if rows.num_rows else Stored()
