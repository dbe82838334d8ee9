"""The tables of a snapshot as a task sees them, and panes on their way to a later job.

The tables of a snapshot as a task sees them: the layers of its part of the keys opened, and put on top of.

Panes on their way to a stage in a later job: stored by the tasks of the stage that gave them, and read again.

They are read as rows for a user's own Spark code, and what that made of them comes back (``map_panes``); or as what an
output gave, for those that read it (``map_output``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.distribute.chain import upstream_of
from headrace.distribute.tasks.exchange import ShuffleInput, bundle
from headrace.distribute.tasks.map_side import Bundles, store_rows, typed
from headrace.distribute.tasks.plan import EpochTask, TaskEnvironment, addressed, file_name
from headrace.distribute.tasks.task_results import BundleOutput, Failure, Files, PanesOutput, Stored, isolate_failure
from headrace.distribute.views import dead_panes
from headrace.kernel.columns import ARROW_TYPES, arrow_type
from headrace.kernel.delta import Accounting, judge, rejecting
from headrace.kernel.expressions.evaluation import column_apart
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult
from headrace.model.accumulation import EVENT_TIME
from headrace.model.time import GLOBAL_WINDOW_END, NEVER, Instant
from headrace.program import columns as c
from headrace.state.chunks import parts
from headrace.state.file_cache import RunWriter, StoredRun, put_runs
from headrace.state.layers import open_rows
from headrace.state.sorted_file import StateLayer
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import REJECTED


def open_layers(
    work: TaskEnvironment, layers: Sequence[Layer], schema: pa.Schema, part: int, number: int
) -> tuple[StateLayer, ...]:
    """Stored ``layers``, oldest first, as far as ``part`` of the keys goes, out of so many."""
    keys = parts(number)[part]
    return tuple(open_rows(work.rows, work.store, schema, layer, keys) for layer in layers)


def open_own(task: EpochTask, layers: Sequence[Layer], schema: pa.Schema, parts: int) -> tuple[StateLayer, ...]:
    """Stored ``layers`` of a table, oldest first, as far as the task's part goes, out of so many."""
    return open_layers(task.work, layers, schema, task.number, parts)


def run_writer(work: TaskEnvironment, prefix: str, table: str, part: int) -> RunWriter:
    """To store rows of a ``part`` of a ``table`` as they come, in the order of their hashes."""
    return RunWriter(work.store, work.rows, file_name(prefix, table, part))


def put_pieces(
    work: TaskEnvironment, prefix: str, table: str, part: int, pieces: Iterable[pa.RecordBatch]
) -> tuple[StoredRun, ...]:
    """Store rows of a ``part`` that come in the order of their hashes."""
    return put_runs(work.store, work.rows, file_name(prefix, table, part), pieces)


def files_of(runs: Iterable[StoredRun]) -> Files:
    """The files that ``runs`` are stored in."""
    return tuple(run.file for run in runs)


def layers_after(layers: Sequence[Layer], watermark: Instant, epoch: int, tops: Sequence[Stored]) -> tuple[Layer, ...]:
    """The ``layers`` of a table after ``epoch``, of which tasks stored ``tops``: those that still count at
    ``watermark``, and one more unless nothing was stored.
    """
    stored = [top for top in tops if top.files]
    files = tuple(file for top in stored for file in top.files)
    ends = [top.expires for top in stored]
    left = layers[expired_prefix(layers, watermark) :]
    if not files:
        return tuple(left)
    return (*left, Layer.of(files, epoch, epoch, None if NEVER in ends else int(max(ends))))


def expired_prefix(layers: Sequence[Layer], watermark: Instant) -> int:
    """How many of the oldest count no more. Newer ones stay while something older does, which they may hide."""
    expired = 0
    for layer in layers:
        if layer.expires is None or watermark <= layer.expires:
            break
        expired += 1
    return expired


ORDER = "_order_"
"""Columns by which panes are in the order in which they are emitted begin so."""


def leaving(result: StageResult) -> pa.RecordBatch:
    """The panes of a part of a stage as elements, with their order."""
    panes = result.emitted()
    order = {f"{ORDER}{name}": values for name, values in panes.order.items()}
    return pa.RecordBatch.from_pydict({**panes.elements, **order}, schema=leaving_schema(result.stage))


def leaving_schema(stage: CompiledStage) -> pa.Schema:
    """The columns of ``leaving``."""
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
        content = verify(task.work.store, file)
        yield from pq.read_table(pa.BufferReader(content), use_threads=False).combine_chunks().to_batches()


def map_panes(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> tuple[PanesOutput, Bundles]:
    """``batches``, which a user's own code made of panes of the chain, as elements of its first stage in the job."""
    errors: dict[int, Failure] = {}
    with isolate_failure(errors, task.of_chain, isolates=task.plan.isolates):
        shuffled, rejected = _made(task, batches)
        output = PanesOutput({task.of_chain: shuffled.aggregated.accounting}, {task.of_chain: rejected})
        return output, addressed(task.plan, task.job, 0, task.of_chain, shuffled.parts)
    return PanesOutput(errors=errors), {}


def _made(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> tuple[ShuffleInput, Files]:
    plan, number = task.plan, task.job.stage_at(task.of_chain, 0)
    stage = task.chain.stages[number]
    rows = pa.concat_batches(list(batches))
    by = [name for name in rows.schema.names if name.startswith(ORDER)]
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in by]))
    elements = typed(rows, stage.stage.schema)
    elements |= {name: rows.column(name).cast(pa.int64()) for name in (c.EVENT_TIME, c.SIGN)}
    judged = judge(stage, elements)
    order: Mapping[str, pa.Array] | None = {name: rows.column(name) for name in by} if stage.is_ordered else None
    before = task.state.clocks[number].watermark
    shuffled = bundle(stage, judged, order, before, task.output_watermark(number), share=task.number, number=task.parts)
    above, output = f"aggregation {number}", task.chain.names.output
    dead = dead_panes(stage, above, elements, judged, plan.epoch, output=output)
    return shuffled, task.put(f"{REJECTED}-{number}", dead)


def map_output(task: EpochTask) -> tuple[PanesOutput, Bundles]:
    """The panes of an output in the files of the task as elements of each chain of the job that reads it."""
    above = task.plan.elements[task.number].chain
    panes = _Panes.of(task.work.chains[above].stages[-1], pa.concat_batches(list(read_panes(task))))
    accounting: dict[int, Accounting] = {}
    rejected: dict[int, Files] = {}
    errors: dict[int, Failure] = {}
    bundles: dict[int, pa.RecordBatch] = {}
    rows: dict[int, BundleOutput] = {}
    for number, stages in task.job.stages.items():
        if stages.start:  # it goes on with panes of its own
            continue
        own = task.for_chain(number)
        upstream = upstream_of(task.work.chains, own.chain)
        if above not in upstream:
            continue
        with isolate_failure(errors, number, isolates=task.plan.isolates):
            if own.chain.is_stateless:
                rows[number] = _rows_for_chain(own, panes, upstream.index(above))
                continue
            shuffled, dead = _for_chain(own, panes, upstream.index(above))
        if number not in errors:
            accounting[number] = shuffled.aggregated.accounting
            rejected[number] = own.put(f"{REJECTED}-{own.chain.names.output}", dead)
            bundles |= addressed(task.plan, task.job, 0, number, shuffled.parts)
    return PanesOutput(accounting, rejected, rows, errors), bundles


def _for_chain(task: EpochTask, panes: "_Panes", place: int) -> tuple[ShuffleInput, pa.RecordBatch | None]:
    """``panes`` of the output at that ``place`` of those that the chain of the task reads, for its first stage; those
    that it cannot take.
    """
    stage = task.chain.stages[0]
    judged, dead = _judged_for_chain(task, panes, place)
    shuffled = bundle(
        stage,
        judged,
        _order_in(task, panes, place) if stage.is_ordered else None,
        task.state.clocks[0].watermark,
        task.output_watermark(),
        share=task.number,
        number=task.parts,
    )
    return shuffled, dead


def _rows_for_chain(task: EpochTask, panes: "_Panes", place: int) -> BundleOutput:
    """The same where the chain of the task gives rows: what leaves of them, stored."""
    judged, dead = _judged_for_chain(task, panes, place)
    output = store_rows(task, judged)
    return replace(output, rejected=task.put(f"{REJECTED}-{task.chain.names.output}", dead))


def _judged_for_chain(
    task: EpochTask, panes: "_Panes", place: int
) -> tuple[dict[str, pa.Array], pa.RecordBatch | None]:
    """``panes`` of the output at that ``place``, judged for the first stage of the chain; those that it cannot take."""
    chain = task.chain
    stage, upstream = chain.stages[0], chain.upstream[place]
    schema, length = upstream.stage.pane_schema, len(panes.columns[c.EVENT_TIME])
    expressions = upstream.expressions(stage.stage.schema)
    elements, rejects = {}, pa.nulls(length, pa.string())
    for name, expr in expressions.items():
        elements[name], overflows = column_apart(expr, panes.columns, schema, length)
        rejects = rejecting(rejects, f"column {name}", overflows)
    elements |= {name: panes.columns[name] for name in (c.EVENT_TIME, c.SIGN)}
    judged = judge(stage, elements, rejects)
    above, output = f"output {upstream.output}", chain.names.output
    return judged, dead_panes(stage, above, elements, judged, task.plan.epoch, output=output)


def _order_in(task: EpochTask, panes: "_Panes", place: int) -> dict[str, pa.Array]:
    """Columns by which the panes of all outputs that the chain of the task reads are in order: the outputs as it names
    them, the panes of each as they were emitted.
    """
    length = len(panes.columns[c.EVENT_TIME])
    order = {c.OUTPUT: pa.repeat(pa.scalar(place, pa.int64()), length)}
    for number, above in enumerate(upstream_of(task.work.chains, task.chain)):
        schema = leaving_schema(task.work.chains[above].stages[-1])
        kinds = [field for field in schema if field.name.startswith(ORDER)]
        own = panes.order if number == place else {field.name: pa.nulls(length, field.type) for field in kinds}
        order |= {f"{number}{name}": values for name, values in own.items()}
    return order


@dataclass(frozen=True)
class _Panes:
    """Panes of a stage: the columns that another one reads, with their event time and sign; columns by which they are
    in the order in which they were emitted, where that is stored.
    """

    columns: Mapping[str, pa.Array]
    order: Mapping[str, pa.Array]

    @classmethod
    def of(cls, stage: CompiledStage, rows: pa.RecordBatch) -> "_Panes":
        """``rows`` of files of ``stage``: as they left it (``leaving``), or as readers see panes."""
        order = {name: rows.column(name) for name in rows.schema.names if name.startswith(ORDER)}
        columns = typed(rows, stage.stage.pane_schema)
        if order:
            return cls(columns | {name: rows.column(name) for name in (c.EVENT_TIME, c.SIGN)}, order)
        # readers see no time where there is none in the calendar, as at the end of the global window
        time = rows.column(EVENT_TIME if stage.stage.gives_rows else "pane_time")
        at = time.cast(pa.int64()).fill_null(GLOBAL_WINDOW_END - 1)
        order = {f"{ORDER}{c.SEQUENCE}": rows.column("sequence")} if stage.stage.gives_rows else {}
        return cls({**columns, c.EVENT_TIME: at, c.SIGN: _signs(rows)}, order)


def _signs(panes: pa.RecordBatch) -> pa.Array:
    return pc.if_else(panes.column("is_retraction"), pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))
