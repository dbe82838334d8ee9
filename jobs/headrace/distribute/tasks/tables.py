"""The tables of a snapshot as a task sees them: the layers of its part of the keys opened, put on top of, and merged
where the epoch merges them.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.distribute.tasks.found import Files
from headrace.distribute.tasks.work import Task, file_name
from headrace.model.time import Instant
from headrace.state.cache import default_cache
from headrace.state.groups import parts
from headrace.state.layering import StateLayer
from headrace.state.stored import open_rows
from headrace.state.storing import put_runs
from headrace_snapshots.format.files import Layer


def open_table(task: Task, table: str, schema: pa.Schema) -> tuple[StateLayer, ...]:
    """The layers of ``table``, oldest first, as far as the task's part of the keys goes."""
    own = parts(task.plan.parts)[task.number]
    return tuple(open_rows(default_cache(), task.work.store, schema, layer, own) for layer in task.plan.tables[table])


def put_table(task: Task, table: str, pieces: Iterable[pa.RecordBatch]) -> Files:
    """Store rows that come in the order of their hashes."""
    name = file_name(task.plan.prefix, table, task.number)
    return tuple(stored.file for stored in put_runs(task.work.store, default_cache(), name, pieces))


def merged_from(task: Task, table: str, gone: int) -> int | None:
    """The first of the layers of ``table`` that the epoch merges, if it merges some; the ``gone`` oldest count no
    more.
    """
    start = task.plan.merges.get(table)
    count = len(task.plan.tables[table])
    return None if start is None or max(start, gone) >= count else max(start, gone)


def gone_from(layers: Sequence[Layer], watermark: Instant) -> int:
    """How many of the oldest count no more. Newer ones stay while something older does, which they may hide."""
    gone = 0
    for layer in layers:
        if layer.expires is None or watermark <= layer.expires:
            break
        gone += 1
    return gone
