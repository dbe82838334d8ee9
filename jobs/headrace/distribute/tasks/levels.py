"""The levels of tasks of an epoch, and their functions where an exchange lies between tasks.

Duplicates are told apart by a task for each part of the ids, which sees all records of an id (semantics 12.10).

The levels are the map side, the parts of the ids where duplicates are told, and the parts of each stage. Each task is
told what all tasks of the level above said, and says something to all of the level below. What the last level says goes
to the driver, as to the only part of a level below.

``map_level`` and the functions after it, also for merges and folds, turn rows of one exchange into those of the next
one. An engine calls them that runs tasks in processes of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from headrace.distribute.epoch import DivergedError, RecomputedEpoch
from headrace.distribute.tasks import plan as task_plan
from headrace.distribute.tasks import task_results
from headrace.distribute.tasks.background import FoldPlan, MergePlan, fold_task, merge_task
from headrace.distribute.tasks.exchange import ReceivedMessage, ShippedRecords, receive_messages
from headrace.distribute.tasks.map_side import Bundles, into_chains, map_rows, map_share
from headrace.distribute.tasks.stages import StagePart, turn_rounds
from headrace.distribute.tasks.tables import files_of, map_output, map_panes, open_own, put_batches
from headrace.kernel.columns import true_mask, valid_mask
from headrace.kernel.delta import Columns, takes_part
from headrace.program import columns as c
from headrace.state.layers import RememberedIds
from headrace_snapshots.format.manifest import IDS


def tell_duplicates(
    task: task_plan.EpochTask, upstream: task_results.UpstreamResults, rows: list[pa.RecordBatch]
) -> tuple[task_results.IdsOutput, Bundles]:
    """What becomes of ``rows``, the records of a part of the ids, and those that count for each part of the keys."""
    plan, pipeline = task.plan, task.work.pipeline
    remembered_ids = RememberedIds.from_pipeline(pipeline, plan.watermark)
    remembered_ids = replace(remembered_ids, layers=open_own(task, plan.ids, remembered_ids.schema, plan.id_parts))
    if not rows:
        return task_results.IdsOutput(), {}
    records = ShippedRecords.from_batches(
        task, rows, {n: error.rebuild_error() for n, error in upstream.errors.items()}
    )
    records = records.with_columns({c.ID_FATE: remembered_ids.find_duplicates(records.columns)})
    ids = task_results.StoredLayer()
    if plan.recomputed_epoch is None:
        ids = _store_new_ids(task, remembered_ids, records.columns)
    else:
        records = records.with_errors(_divergence_errors(task, plan.recomputed_epoch, remembered_ids, records))
    chains, errors, bundles = into_chains(task, records, lambda: records.place)
    return task_results.IdsOutput(chains, ids, errors), bundles


def _divergence_errors(
    task: task_plan.EpochTask, recomputed_epoch: RecomputedEpoch, remembered_ids: RememberedIds, records: ShippedRecords
) -> dict[int, DivergedError]:
    """An error for each chain that now takes records which are the first of their id. No output took them when the
    epoch was recorded. Nobody remembers their ids, so their duplicates would count in later epochs.
    """
    ids_then = replace(
        remembered_ids, layers=open_own(task, recomputed_epoch.told_layers, remembered_ids.schema, task.plan.id_parts)
    )
    is_first, is_told = records.columns[c.ID_FATE].is_null(), ids_then.find_duplicates(records.columns).is_valid()
    untold = true_mask(is_first) & ~true_mask(is_told) & valid_mask(records.columns[c.ID])
    name = task.work.pipeline.name
    error = DivergedError(
        f"records of epoch {task.plan.epoch} would count now that no output took when it was recorded. So nobody "
        f"remembers their ids, and duplicates of them would count too. Run `headrace backfill {name} --promote`, which "
        "computes all outputs again"
    )
    chains = ((own.of_chain, records.chains[own.of_chain]) for own in task.for_each_reader())
    return {number: error for number, judged_rows in chains if (untold & takes_part(judged_rows)).any()}


def _store_new_ids(
    task: task_plan.EpochTask, remembered_ids: RememberedIds, judged_rows: Columns
) -> task_results.StoredLayer:
    rows = remembered_ids.new_rows(judged_rows, task.plan.epoch)
    if not rows.num_rows:
        return task_results.StoredLayer()
    runs = put_batches(task.work, task.plan.prefix, IDS, task.number, [rows])
    return task_results.StoredLayer(files_of(runs), remembered_ids.expiry_watermark(rows))


Ran = tuple[task_results.TaskOutput | None, Bundles]


def levels_below(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan) -> int:
    """How many levels the job of ``plan`` has below the first."""
    return task_plan.job_of(work, plan).steps + _tells_ids(work, plan)


def _tells_ids(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan) -> bool:
    return plan.job == 0 and work.tells_ids


def tasks_at(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, level: int) -> int:
    """How many tasks the level number ``level`` below the map side has."""
    tells_ids = _tells_ids(work, plan)
    if tells_ids and level == 0:
        return plan.id_parts
    return len(task_plan.parts_of(plan, task_plan.job_of(work, plan), level - tells_ids))


def tasks_above(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, level: int) -> int:
    """How many tasks at least speak to the level number ``level`` below the map side."""
    return tasks_at(work, plan, level - 1) if level else task_plan.tasks_of_first_level(work, plan)


def parts_below(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, level: int) -> int:
    """How many parts the level number ``level`` below the map side speaks to, which itself is number -1."""
    return 1 if level == levels_below(work, plan) - 1 else tasks_at(work, plan, level + 1)


def share_task(work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, number: int) -> task_results.Message:
    """What share ``number`` says of what the job reads: of the input, or of panes of outputs."""
    if plan.job and not task_plan.panes_of_outputs(work, plan):  # there is an epoch to do all the same
        return run_task(work, 0, lambda: (task_results.PanesOutput(), {}))
    return run_task(
        work, number, partial(map_output if plan.job else map_share, task_plan.EpochTask(plan, work, number))
    )


def rows_task(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, name: str, number: int, rows: Sequence[pa.RecordBatch]
) -> task_results.Message:
    """The message of task ``number``, for ``rows`` that a user's own code made of records of input ``name``. In a job
    after the first, ``name`` is an output, and rows are made of its panes.
    """
    task = task_plan.EpochTask(plan, work, number)
    if plan.job:
        return run_task(work, number, partial(map_panes, task.for_chain(work.number_of(name)), rows))
    return run_task(work, number, partial(map_rows, task, name, rows))


def part_task(
    work: task_plan.TaskEnvironment,
    plan: task_plan.EpochPlan,
    level: int,
    number: int,
    messages: Sequence[ReceivedMessage],
) -> task_results.Message:
    """What task ``number`` of the level number ``level`` below the map side says of the ``messages`` to it. A task that
    lets go of their rows frees them, unless the caller holds the messages.
    """
    upstream = task_results.UpstreamResults.from_messages(messages)
    rows = [message.rows for message in messages if message.rows is not None]
    del messages
    tells_ids = _tells_ids(work, plan)
    if tells_ids and level == 0:
        return run_task(
            work, number, partial(tell_duplicates, task_plan.EpochTask(plan, work, number), upstream, rows), upstream
        )
    job, step = task_plan.job_of(work, plan), level - tells_ids
    part = task_plan.parts_of(plan, job, step)[number]
    task, stage = task_plan.EpochTask(plan, work, part.part, part.chain), job.stage_at(part.chain, step)
    run: Callable[[], Ran] = partial(StagePart(task, stage).run, upstream, rows)
    if part.chain in upstream.errors:
        run = _run_nothing
    elif job.is_loop(part.chain, step):
        run = partial(turn_rounds, task, rows)
    elif stage < 0:
        from headrace.distribute.tasks.joins import JoinPart  # which few pipelines need

        run = partial(JoinPart(task, len(task.chain.sides) + stage).run, upstream, rows)
    return run_task(work, number, run, upstream, isolated_chain=part.chain if plan.isolates else None)


def _run_nothing() -> Ran:
    return task_results.StageOutput(), {}


def run_task(
    work: task_plan.TaskEnvironment,
    number: int,
    run: Callable[[], Ran],
    upstream: task_results.UpstreamResults | None = None,
    *,
    isolated_chain: int | None = None,
) -> task_results.Message:
    """What task ``number`` says, which does ``run`` unless a task ``upstream`` has failed. An error is said too, that
    of an ``isolated_chain`` as the chain's own. Raises RetryError: another attempt may end otherwise.
    """
    requests_before = work.request_counts()
    output: task_results.TaskOutput | None = None
    bundles: Bundles = {}
    errors = [] if upstream is None or upstream.error is None else [upstream.error]
    own: dict[int, task_results.Failure] = {}
    if not errors:
        with (
            work.landing.keep_connected(),
            task_results.collect_failure(errors),
            task_results.isolate_failure(own, isolated_chain or 0, isolates=isolated_chain is not None),
        ):
            output, bundles = run()
    if own:
        output = task_results.StageOutput(errors=own)
    received_digest, history = (b"", ()) if upstream is None else (upstream.digest, upstream.history_for_task(number))
    result = task_results.TaskResult(
        output, received_digest, history, next(iter(errors), None), work.requests_since(requests_before)
    )
    return task_results.Message(number, result, bundles)


RowBatches = Iterable[pa.RecordBatch]
"""Rows of an exchange (``exchange.SCHEMA``), or numbers of tasks in a first column."""

MapLevel = Callable[[task_plan.TaskEnvironment, task_plan.EpochPlan, RowBatches], Iterator[pa.RecordBatch]]
"""What the tasks of the first level say, as ``map_level`` does."""


def numbers_in(batches: RowBatches) -> Iterator[int]:
    """The numbers of tasks."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def map_level(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, numbers: RowBatches
) -> Iterator[pa.RecordBatch]:
    """What shares of the input say."""
    for number in numbers_in(numbers):
        yield from share_task(work, plan, number).to_blobs(parts_below(work, plan, -1))


def rows_level(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, name: str, number: int, batches: RowBatches
) -> Iterator[pa.RecordBatch]:
    """What task ``number`` says of ``batches`` that a user's own code made."""
    rows = [batch for batch in batches if batch.num_rows]
    if rows:
        yield from rows_task(work, plan, name, number, rows).to_blobs(parts_below(work, plan, -1))


def level_below(
    work: task_plan.TaskEnvironment, plan: task_plan.EpochPlan, level: int, batches: RowBatches
) -> Iterator[pa.RecordBatch]:
    """What a part of level ``level`` below the map side says; ``batches``: all rows of the exchange above for it."""
    blobs = [batch for batch in batches if batch.num_rows]
    if blobs:  # every part is told of every task: there is none without rows
        part = blobs[0].column("part")[0].as_py()
        messages = [receive_messages(blobs, tasks_above(work, plan, level))]
        del blobs  # which are as large as the messages
        yield from part_task(work, plan, level, part, messages.pop()).to_blobs(parts_below(work, plan, level))


def merge_level(work: task_plan.TaskEnvironment, plan: MergePlan, numbers: RowBatches) -> Iterator[pa.RecordBatch]:
    for part in numbers_in(numbers):
        yield from merge_task(work, plan, part).to_blobs(1)


def fold_level(work: task_plan.TaskEnvironment, plan: FoldPlan, numbers: RowBatches) -> Iterator[pa.RecordBatch]:
    for part in numbers_in(numbers):
        yield from fold_task(work, plan, part).to_blobs(1)
