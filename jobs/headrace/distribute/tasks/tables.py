"""The tables of a snapshot as a task sees them: the layers of its part of the keys opened, and put on top of."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.distribute.tasks.task_environment import EpochTask, TaskEnvironment, file_name
from headrace.distribute.tasks.task_results import Files, Stored
from headrace.model.time import NEVER, Instant
from headrace.state.datafiles.writer import RunWriter, StoredRun, put_runs
from headrace.state.key_groups import parts
from headrace.state.layer_reader import open_rows
from headrace.state.open_layer import StateLayer
from headrace_snapshots.format.files import Layer


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
