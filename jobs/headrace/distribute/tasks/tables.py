"""The tables of a snapshot as a task sees them, and panes on their way to a later job.

Tables are layers, of which a task opens what its part of the keys needs, and puts its own on top.

Panes go to a stage in a later job: the tasks of the stage that gave them store them, and others read them again. They
are read as rows for a user's own Spark code, and what that made of them comes back (``map_panes``). Or they are read as
what an output gave, for those that read it (``map_output``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.distribute.chain import upstream_of
from headrace.distribute.tasks.exchange import ShuffleInput, shuffle_elements, sides_by_part
from headrace.distribute.tasks.map_side import Bundles, cast_columns, store_rows
from headrace.distribute.tasks.plan import EpochTask, TaskEnvironment, address_bundles, file_name
from headrace.distribute.tasks.task_results import (
    BundleOutput,
    Failure,
    Files,
    PanesOutput,
    StoredLayer,
    isolate_failure,
)
from headrace.distribute.views import dead_panes, rejected_panes
from headrace.kernel.columns import ARROW_TYPES, arrow_type
from headrace.kernel.delta import Accounting, Disposition, fates_of, judge_rows, reject_overflows
from headrace.kernel.expressions.evaluation import column_apart
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult
from headrace.model.accumulation import EVENT_TIME
from headrace.model.expressions.data_types import Schema
from headrace.model.time import GLOBAL_WINDOW_END, NEVER, Instant
from headrace.pipeline.parts import Upstream
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.state.chunks import key_group_ranges
from headrace.state.file_cache import RunWriter, StoredRun, put_runs
from headrace.state.layers import open_rows
from headrace.state.sorted_file import StateLayer
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import REJECTED


def open_layers(
    work: TaskEnvironment, layers: Sequence[Layer], schema: pa.Schema, part: int, number: int
) -> tuple[StateLayer, ...]:
    """Stored ``layers``, oldest first, as far as ``part`` of the keys goes, out of so many."""
    keys = key_group_ranges(number)[part]
    return tuple(open_rows(work.rows, work.store, schema, layer, keys) for layer in layers)


def open_own(task: EpochTask, layers: Sequence[Layer], schema: pa.Schema, parts: int) -> tuple[StateLayer, ...]:
    """Stored ``layers`` of a table, oldest first, as far as the task's part goes, out of so many."""
    return open_layers(task.work, layers, schema, task.number, parts)


def run_writer(work: TaskEnvironment, prefix: str, table: str, part: int) -> RunWriter:
    """To store rows of a ``part`` of a ``table`` as they come, in the order of their hashes."""
    return RunWriter(work.store, work.rows, file_name(prefix, table, part))


def put_batches(
    work: TaskEnvironment, prefix: str, table: str, part: int, batches: Iterable[pa.RecordBatch]
) -> tuple[StoredRun, ...]:
    """Store rows of a ``part`` that come in the order of their hashes."""
    return put_runs(work.store, work.rows, file_name(prefix, table, part), batches)


def files_of(runs: Iterable[StoredRun]) -> Files:
    return tuple(run.file for run in runs)


def layers_after(
    layers: Sequence[Layer], watermark: Instant, epoch: int, tops: Sequence[StoredLayer]
) -> tuple[Layer, ...]:
    """The ``layers`` of a table after ``epoch``, of which tasks stored ``tops``: those that still count at
    ``watermark``, and one more unless nothing was stored.
    """
    stored_tops = [top for top in tops if top.files]
    files = tuple(file for top in stored_tops for file in top.files)
    ends = [top.expires for top in stored_tops]
    left = layers[expired_prefix(layers, watermark) :]
    if not files:
        return tuple(left)
    return (*left, Layer.from_files(files, epoch, epoch, None if NEVER in ends else int(max(ends))))


def expired_prefix(layers: Sequence[Layer], watermark: Instant) -> int:
    """How many of the oldest count no more. Newer ones stay while something older does, which they may hide."""
    number_expired = 0
    for layer in layers:
        if layer.expires is None or watermark <= layer.expires:
            break
        number_expired += 1
    return number_expired


ORDER = "_order_"
"""Columns by which panes are in the order in which they are emitted begin so."""


def leaving_panes(result: StageResult) -> pa.RecordBatch:
    """The panes of a part of a stage as elements, with their order."""
    panes = result.emitted_elements()
    order = {f"{ORDER}{name}": values for name, values in panes.order.items()}
    return pa.RecordBatch.from_pydict({**panes.elements, **order}, schema=leaving_schema(result.stage))


def leaving_schema(stage: CompiledStage) -> pa.Schema:
    """The columns of ``leaving_panes``."""
    node = stage.stage
    if node.gives_rows:  # which say by themselves in which order they left
        return pa.schema([(f"{ORDER}{c.SEQUENCE}", pa.int64())])
    columns = {name: arrow_type(kind) for name, kind in {**node.key_types, **node.pane_schema}.items()}
    long = pa.int64()
    order = {c.MOMENT: long, c.WINDOW_END: long, c.WINDOW_START: long}
    order |= {name: ARROW_TYPES[kind] for name, kind in node.key_types.items()}
    order[c.SEQUENCE] = long
    places = {f"{ORDER}{name}": kind for name, kind in order.items()}
    return pa.schema([*columns.items(), (c.EVENT_TIME, long), (c.SIGN, long), *places.items()])


def read_panes(task: EpochTask) -> Iterator[pa.RecordBatch]:
    """The panes in the files that the plan names for the task."""
    for file in task.plan.elements[task.number].files:
        content = read_verified(task.work.store, file)
        yield from pq.read_table(pa.BufferReader(content), use_threads=False).combine_chunks().to_batches()


def map_panes(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> tuple[PanesOutput, Bundles]:
    """``batches``, which a user's own code made of panes of the chain, as elements of its first stage in the job."""
    errors: dict[int, Failure] = {}
    with isolate_failure(errors, task.of_chain, isolates=task.plan.isolates):
        shuffle_input, rejected_files = _shuffle_made_rows(task, batches)
        output = PanesOutput({task.of_chain: shuffle_input.aggregated.accounting}, {task.of_chain: rejected_files})
        return output, address_bundles(task.plan, task.job, 0, task.of_chain, shuffle_input.parts)
    return PanesOutput(errors=errors), {}


def _shuffle_made_rows(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> tuple[ShuffleInput, Files]:
    plan, number = task.plan, task.job.stage_at(task.of_chain, 0)
    stage = task.chain.stages[number]
    rows = pa.concat_batches(list(batches))
    order_columns = [name for name in rows.schema.names if name.startswith(ORDER)]
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in order_columns]))
    elements = cast_columns(rows, stage.stage.schema)
    elements |= {name: rows.column(name).cast(pa.int64()) for name in (c.EVENT_TIME, c.SIGN)}
    judged_rows = judge_rows(stage, elements)
    shuffle_input = shuffle_elements(task, number, judged_rows, {name: rows.column(name) for name in order_columns})
    origin, output = f"aggregation {number}", task.chain.names.output
    dead = dead_panes(stage, origin, elements, judged_rows, plan.epoch, output=output)
    return shuffle_input, task.store_rows(f"{REJECTED}-{number}", dead)


def map_output(task: EpochTask) -> tuple[PanesOutput, Bundles]:
    """The panes of an output in the files of the task as elements of each chain of the job that reads it."""
    upstream_number = task.plan.elements[task.number].chain
    panes = _Panes.from_rows(task.work.chains[upstream_number].stages[-1], pa.concat_batches(list(read_panes(task))))
    accounting: dict[int, Accounting] = {}
    rejected_files: dict[int, Files] = {}
    errors: dict[int, Failure] = {}
    bundles: dict[int, pa.RecordBatch] = {}
    rows: dict[int, BundleOutput] = {}
    for number, stages in task.job.stages.items():
        if stages.start > 0:  # it goes on with panes of its own
            continue
        own = task.for_chain(number)
        upstream = upstream_of(task.work.chains, own.chain)
        if upstream_number not in upstream:
            continue
        with isolate_failure(errors, number, isolates=task.plan.isolates):
            if own.chain.joins is not None:
                sides = _SidesOfPanes.from_panes(own, panes, upstream_number)
                accounting[number] = sides.accounting
                rejected_files[number] = own.store_rows(f"{REJECTED}-{own.chain.names.output}", sides.letters)
                bundles |= address_bundles(task.plan, task.job, 0, number, sides_by_part(sides.rows, own.parts))
                continue
            if own.chain.is_stateless:
                rows[number] = _rows_for_chain(own, panes, upstream.index(upstream_number))
                continue
            shuffle_input, dead = _for_chain(own, panes, upstream.index(upstream_number))
        if number not in errors:
            accounting[number] = shuffle_input.aggregated.accounting
            rejected_files[number] = own.store_rows(f"{REJECTED}-{own.chain.names.output}", dead)
            bundles |= address_bundles(task.plan, task.job, 0, number, shuffle_input.parts)
    return PanesOutput(accounting, rejected_files, rows, errors), bundles


class _SidesOfPanes(msgspec.Struct, frozen=True):
    """Panes of an output as ``rows`` of each side that it is on of the joins of a chain; what became of all of them;
    and dead ``letters``, those that the chain cannot take.
    """

    rows: Mapping[int, pa.RecordBatch]
    accounting: Accounting
    letters: pa.RecordBatch | None

    @classmethod
    def from_panes(cls, task: EpochTask, panes: "_Panes", chain: int) -> "_SidesOfPanes":
        """``panes`` of the chain with the number ``chain``, for the chain of the ``task``."""
        from headrace.kernel.joins.sides import account_of_sides  # which few pipelines need

        joins = task.chain.joins
        assert joins is not None
        rows: dict[int, pa.RecordBatch] = {}
        accounts: list[Accounting] = []
        letters: list[pa.RecordBatch] = []
        numbers = upstream_of(task.work.chains, task.chain)
        for upstream in (
            output for output, number in zip(task.chain.upstream, numbers, strict=True) if number == chain
        ):
            elements, rejects = dict(panes.columns), pa.nulls(len(panes.columns[c.EVENT_TIME]), pa.string())
            if not upstream.side:
                elements, rejects = _as_elements(panes, upstream, joins.joins[0].left)
            verdicts = joins.judge_panes(upstream.side, elements, rejects)
            is_late = joins.late_mask(verdicts, task.watermark_before)
            rows |= joins.rows_of(verdicts, (fates_of(verdicts) == Disposition.ACCEPTED) & ~is_late)
            accounts.append(account_of_sides(verdicts, is_late))
            if verdicts[c.REJECT].null_count < len(verdicts[c.REJECT]):
                names = [name for name in elements if name not in (c.EVENT_TIME, c.SIGN)]
                dead = rejected_panes(
                    f"output {upstream.output}",
                    verdicts[c.REJECT],
                    elements,
                    names,
                    epoch=task.plan.epoch,
                    output=task.chain.names.output,
                    withdraws=upstream.stage.withdraws,
                )
                letters.append(dead)
        return cls(rows, Accounting.of_all(accounts), pa.concat_batches(letters) if letters else None)


def _for_chain(task: EpochTask, panes: "_Panes", place: int) -> tuple[ShuffleInput, pa.RecordBatch | None]:
    """``panes`` of the output at ``place``, for the first stage of the chain; dead ones come second."""
    judged_rows, dead = _judged_for_chain(task, panes, place)
    order = _order_in(task, panes, place) if task.chain.stages[0].is_ordered else None
    return shuffle_elements(task, 0, judged_rows, order), dead


def _rows_for_chain(task: EpochTask, panes: "_Panes", place: int) -> BundleOutput:
    """The same where the chain of the task gives rows: what leaves of them, stored."""
    judged_rows, dead = _judged_for_chain(task, panes, place)
    output = store_rows(task, judged_rows)
    return replace(output, rejected=task.store_rows(f"{REJECTED}-{task.chain.names.output}", dead))


def _judged_for_chain(
    task: EpochTask, panes: "_Panes", place: int
) -> tuple[dict[str, pa.Array], pa.RecordBatch | None]:
    """``panes`` of the output at ``place``, judged for the chain's first stage; dead ones come second."""
    chain = task.chain
    stage, upstream = chain.stages[0], chain.upstream[place]
    elements, rejects = _as_elements(panes, upstream, stage.stage.schema)
    judged_rows = judge_rows(stage, elements, rejects)
    origin, output = f"output {upstream.output}", chain.names.output
    return judged_rows, dead_panes(stage, origin, elements, judged_rows, task.plan.epoch, output=output)


def _as_elements(
    panes: "_Panes", upstream: Upstream[Pipeline], columns: Schema
) -> tuple[dict[str, pa.Array], pa.Array]:
    """``panes`` of the output ``upstream`` in the ``columns`` of those that it is united with; why some cannot be."""
    schema, length = upstream.stage.pane_schema, len(panes.columns[c.EVENT_TIME])
    elements, rejects = {}, pa.nulls(length, pa.string())
    for name, expr in upstream.expressions(columns).items():
        elements[name], overflows = column_apart(expr, panes.columns, schema, length)
        rejects = reject_overflows(rejects, f"column {name}", overflows)
    return elements | {name: panes.columns[name] for name in (c.EVENT_TIME, c.SIGN)}, rejects


def _order_in(task: EpochTask, panes: "_Panes", place: int) -> dict[str, pa.Array]:
    """Columns that order the panes of all outputs the chain reads: outputs as it names them, panes as emitted."""
    length = len(panes.columns[c.EVENT_TIME])
    order = {c.OUTPUT: pa.repeat(pa.scalar(place, pa.int64()), length)}
    for number, upstream_number in enumerate(upstream_of(task.work.chains, task.chain)):
        schema = leaving_schema(task.work.chains[upstream_number].stages[-1])
        kinds = [field for field in schema if field.name.startswith(ORDER)]
        own = panes.order if number == place else {field.name: pa.nulls(length, field.type) for field in kinds}
        order |= {f"{number}{name}": values for name, values in own.items()}
    return order


class _Panes(msgspec.Struct, frozen=True):
    """Panes of a stage: the columns that another one reads, with their event time and sign; columns by which they are
    in the order in which they were emitted, where that is stored.
    """

    columns: Mapping[str, pa.Array]
    order: Mapping[str, pa.Array]

    @classmethod
    def from_rows(cls, stage: CompiledStage, rows: pa.RecordBatch) -> "_Panes":
        """``rows`` of files of ``stage``: as they left it (``leaving_panes``), or as readers see panes."""
        order = {name: rows.column(name) for name in rows.schema.names if name.startswith(ORDER)}
        columns = cast_columns(rows, stage.stage.pane_schema)
        if order:
            return cls(columns | {name: rows.column(name) for name in (c.EVENT_TIME, c.SIGN)}, order)
        # readers see no time where there is none in the calendar, as at the end of the global window
        time = rows.column(EVENT_TIME if stage.stage.gives_rows else "pane_time")
        event_times = time.cast(pa.int64()).fill_null(GLOBAL_WINDOW_END - 1)
        order = {f"{ORDER}{c.SEQUENCE}": rows.column("sequence")} if stage.stage.gives_rows else {}
        return cls({**columns, c.EVENT_TIME: event_times, c.SIGN: _pane_signs(rows)}, order)


def _pane_signs(panes: pa.RecordBatch) -> pa.Array:
    return pc.if_else(panes.column("is_retraction"), pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))
