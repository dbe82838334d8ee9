"""Duplicates told apart: a task for each part of the ids sees all records of an id (semantics 12.10)."""

from dataclasses import replace

import pyarrow as pa

from headrace.distribute.side_outputs import late_rows
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.shuffle.row_locations import ShippedRecords
from headrace.distribute.tasks.shuffle.shuffle_input import bundle
from headrace.distribute.tasks.tables import files_of, open_own, put_table
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import IdsFound, Stored, UpstreamResults
from headrace.program import columns as c
from headrace.state.ids import RememberedIds
from headrace_snapshots.format.table_names import IDS


def tell_duplicates(task: EpochTask, above: UpstreamResults, rows: list[pa.RecordBatch]) -> tuple[IdsFound, Bundles]:
    """What becomes of ``rows``, the records of a part of the ids, and those that count for each part of the keys."""
    plan, work = task.plan, task.work
    first, deduplicate = work.chain.stages[0], work.pipeline.deduplicate
    assert deduplicate is not None
    watermark = plan.state.clocks[0].watermark
    known = RememberedIds(deduplicate, work.pipeline.schema, (), watermark)
    known = replace(known, layers=open_own(task, plan.ids, known.schema))
    if not rows:
        return IdsFound(), {}
    records = ShippedRecords.arrived(task, rows)
    records = records.having({c.SEEN: known.seen(records.columns)})
    order, judged = records.places if first.is_ordered else None, records.judged
    made = bundle(first, judged, order, watermark, task.behind(), share=task.number, number=plan.parts)
    late = late_rows(first, records, made.aggregated.late, plan.epoch)
    return (
        IdsFound(
            accounting=made.aggregated.accounting,
            ids=_remembered(task, known, judged),
            late=task.put(work.chain.names.late, late, keyed=True),
        ),
        made.parts,
    )


def _remembered(task: EpochTask, known: RememberedIds, judged: dict[str, pa.Array]) -> Stored:
    rows = known.new(judged, task.plan.epoch)
    return Stored(files_of(put_table(task, IDS, [rows])), known.expiry(rows)) if rows.num_rows else Stored()
