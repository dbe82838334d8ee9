"""Panes on their way through a user's own Spark code to the stage below: stored by the tasks of the stage above, read
again as rows, and what the code made of them as the elements of a stage.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.distribute.side_outputs import dead_panes
from headrace.distribute.tasks.map_side import Bundles, typed
from headrace.distribute.tasks.shuffle.shuffle_input import bundle
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import PanesOutput
from headrace.kernel.elements import judge
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import StageResult
from headrace.kernel.types import ARROW_TYPES
from headrace.program import columns as c
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.table_names import REJECTED

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
    columns = {name: ARROW_TYPES[kind] for name, kind in {**node.key_types, **node.pane_schema}.items()}
    long = pa.int64()
    order = {c.MOMENT: long, c.WINDOW_END: long, c.WINDOW_START: long}
    order |= {name: ARROW_TYPES[kind] for name, kind in node.key_types.items()}
    order[c.SEQUENCE] = long
    places = {f"{ORDER}{name}": kind for name, kind in order.items()}
    return pa.schema([*columns.items(), (c.EVENT_TIME, long), (c.SIGN, long), *places.items()])


def read_panes(task: EpochTask) -> Iterator[pa.RecordBatch]:
    """The panes in file number ``task.number`` of those that the plan names."""
    content = verify(task.work.store, task.plan.elements[task.number])
    yield from pq.read_table(pa.BufferReader(content), use_threads=False).combine_chunks().to_batches()


def map_panes(task: EpochTask, batches: Iterable[pa.RecordBatch]) -> tuple[PanesOutput, Bundles]:
    """``batches``, which a user's own code made of panes, as elements of the first stage of the plan."""
    plan, number = task.plan, task.plan.first_stage
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
    dead = dead_panes(stage, number, elements, judged, plan.epoch, output=task.chain.names.output)
    return PanesOutput(shuffled.aggregated.accounting, task.put(f"{REJECTED}-{number}", dead)), shuffled.parts
