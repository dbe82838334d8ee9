"""Duplicates told apart: a task for each part of the ids sees all records of an id (semantics 12.10)."""

from dataclasses import replace

import pyarrow as pa

from headrace.distribute.epoch import Again, DivergedError
from headrace.distribute.tasks.map_side import Bundles, into_chains
from headrace.distribute.tasks.shuffle.row_locations import ShippedRecords
from headrace.distribute.tasks.tables import files_of, open_own, put_pieces
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import IdsOutput, Stored, UpstreamResults
from headrace.kernel.elements import Columns, takes_part
from headrace.kernel.grouping import truths
from headrace.program import columns as c
from headrace.state.ids import RememberedIds
from headrace_snapshots.format.table_names import IDS


def tell_duplicates(
    task: EpochTask, upstream: UpstreamResults, rows: list[pa.RecordBatch]
) -> tuple[IdsOutput, Bundles]:
    """What becomes of ``rows``, the records of a part of the ids, and those that count for each part of the keys."""
    plan, pipeline = task.plan, task.work.pipeline
    remembered = RememberedIds.of(pipeline, plan.watermark)
    remembered = replace(remembered, layers=open_own(task, plan.ids, remembered.schema, plan.id_parts))
    if not rows:
        return IdsOutput(), {}
    records = ShippedRecords.arrived(task, rows, {n: error.error() for n, error in upstream.errors.items()})
    records = records.having({c.SEEN: remembered.seen(records.columns)})
    if plan.again is not None:
        records = records.failing(_diverged(task, plan.again, remembered, records))
    ids = _stored(task, remembered, records.columns) if plan.again is None else Stored()
    chains, errors, bundles = into_chains(task, records, lambda: records.place)
    return IdsOutput(chains, ids, errors), bundles


def _diverged(
    task: EpochTask, again: Again, remembered: RememberedIds, records: ShippedRecords
) -> dict[int, DivergedError]:
    """An error for each chain that takes records which are the first of their id now, and which no output took when the
    epoch was recorded: nobody remembers their ids, so their duplicates would count in later epochs.
    """
    then = replace(remembered, layers=open_own(task, again.told, remembered.schema, task.plan.id_parts))
    is_first, is_told = records.columns[c.SEEN].is_null(), then.seen(records.columns).is_valid()
    untold = truths(is_first) & ~truths(is_told)
    name = task.work.pipeline.name
    error = DivergedError(
        f"records of epoch {task.plan.epoch} would count now that no output took when it was recorded, so nobody "
        f"remembers their ids, and duplicates of them would count too. Run `headrace backfill {name} --promote`, which "
        "computes all outputs again"
    )
    chains = ((own.of_chain, records.chains[own.of_chain]) for own in task.for_each_reader())
    return {number: error for number, judged in chains if (untold & takes_part(judged)).any()}


def _stored(task: EpochTask, remembered: RememberedIds, judged: Columns) -> Stored:
    rows = remembered.new(judged, task.plan.epoch)
    if not rows.num_rows:
        return Stored()
    runs = put_pieces(task.work, task.plan.prefix, IDS, task.number, [rows])
    return Stored(files_of(runs), remembered.expiry(rows))
