"""Duplicates told apart: a task for each part of the ids sees all records of an id (semantics 12.10)."""

from dataclasses import replace

import pyarrow as pa

from headrace.distribute.tasks.map_side import Bundles, into_chains
from headrace.distribute.tasks.shuffle.row_locations import ShippedRecords
from headrace.distribute.tasks.tables import files_of, open_own, put_table
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import IdsOutput, Stored, UpstreamResults
from headrace.kernel.elements import Columns
from headrace.program import columns as c
from headrace.state.ids import RememberedIds
from headrace_snapshots.format.table_names import IDS


def tell_duplicates(
    task: EpochTask, upstream: UpstreamResults, rows: list[pa.RecordBatch]
) -> tuple[IdsOutput, Bundles]:
    """What becomes of ``rows``, the records of a part of the ids, and those that count for each part of the keys."""
    plan, pipeline = task.plan, task.work.pipeline
    assert pipeline.deduplicate is not None
    remembered = RememberedIds(pipeline.deduplicate, pipeline.schema, (), task.state.clocks[0].watermark)
    remembered = replace(remembered, layers=open_own(task, plan.ids, remembered.schema, plan.id_parts))
    if not rows:
        return IdsOutput(), {}
    records = ShippedRecords.arrived(task, rows)
    records = records.having({c.SEEN: remembered.seen(records.columns)})
    ids = _stored(task, remembered, records.columns)
    chains, bundles = into_chains(task, records, lambda: records.place)
    return IdsOutput(chains, ids), bundles


def _stored(task: EpochTask, remembered: RememberedIds, judged: Columns) -> Stored:
    rows = remembered.new(judged, task.plan.epoch)
    return Stored(files_of(put_table(task, IDS, [rows])), remembered.expiry(rows)) if rows.num_rows else Stored()
