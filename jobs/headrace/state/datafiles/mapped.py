"""The working form of a data file: uncompressed Arrow on the local disk, mapped into memory where it is looked at.

A file in the format of Arrow IPC has one record batch of one row: the rows of the run as a list of structs. Beside them
are sorted columns of what is dear to compute from many rows: when they want activations, and what they hold. Notes say
which columns have one value in all rows.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.program import columns as c
from headrace.state.datafiles.resident import release
from headrace.state.datafiles.sorted_file import DeadlineIndex, Deadlines, SortedFile

FORM = 2
"""Changes with whatever would be read as something else."""

_ROWS, _CONSTANT = "rows", "constant"
_INDEXES = ("event", "time", "hold")


def write_run(path: Path, run: SortedFile, notes: Mapping[str, str]) -> None:
    """Write ``run`` to the file ``path``, with some ``notes``."""
    columns = {_ROWS: _one(pa.StructArray.from_arrays(run.rows.columns, fields=list(run.rows.schema)))}
    if c.DUE_EVENT in run.rows.schema.names:
        for name in _INDEXES:
            index: DeadlineIndex = getattr(run.deadlines, name)
            columns |= {f"{name}_times": _one(pa.array(index.times)), f"{name}_rows": _one(pa.array(index.rows))}
    metadata = {**notes, _CONSTANT: json.dumps(_constant(run.rows))}
    batch = pa.RecordBatch.from_pydict(columns).replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def open_run(path: Path, schema: pa.Schema) -> tuple[SortedFile, Mapping[str, str]] | None:
    """The run in the file ``path``, mapped, and its notes; None if it holds no run of rows of ``schema``."""
    with suppress(OSError, ValueError, pa.ArrowException):
        with pa.memory_map(str(path)) as source:  # what is mapped stays mapped as long as somebody looks at it
            batch = pa.ipc.open_file(source).get_batch(0)
            source.seek(0)
            file = source.read_buffer()
        notes = {name.decode(): text.decode() for name, text in (batch.schema.metadata or {}).items()}
        constant = json.loads(notes.pop(_CONSTANT, "[]"))
        if batch.schema.remove_metadata() == _form(schema):
            run = _run(batch, schema, constant, file)
            release(file)
            return run, notes
    return None


def stored_rows(path: Path) -> pa.RecordBatch | None:
    """The rows of the run in the file ``path``, whatever their schema; None if it holds none."""
    with suppress(OSError, ValueError, KeyError, pa.ArrowException), pa.memory_map(str(path)) as source:
        values = pa.ipc.open_file(source).get_batch(0).column(_ROWS).values
        return pa.RecordBatch.from_arrays(values.flatten(), schema=pa.schema(list(values.type)))
    return None


def _run(batch: pa.RecordBatch, schema: pa.Schema, constant: Sequence[str], file: pa.Buffer) -> SortedFile:
    rows = pa.RecordBatch.from_arrays(batch.column(_ROWS).values.flatten(), schema=schema)
    values = {name: rows.column(name)[0] for name in constant}
    if c.DUE_EVENT not in schema.names:
        return SortedFile(rows, None, file, values)
    return SortedFile(rows, Deadlines(*(_index(batch, name, rows.num_rows) for name in _INDEXES)), file, values)


def _constant(rows: pa.RecordBatch) -> list[str]:
    """The columns of whole numbers, times and truths that have one value in all ``rows``, if there are several."""
    several = rows.num_rows > 1
    return [
        field.name for field in rows.schema if several and _is_exact(field.type) and _is_one(rows.column(field.name))
    ]


def _is_exact(kind: pa.DataType) -> bool:
    """Whether equal values are the same ones, and of one size: 0.0 and -0.0 are equal, and not the same."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _is_one(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    first = column[0]
    return bool(column[-1] == first and pc.all(pc.equal(column, first)).as_py())


def _index(batch: pa.RecordBatch, name: str, length: int) -> DeadlineIndex:
    times, rows = (batch.column(f"{name}_{what}").values.to_numpy() for what in ("times", "rows"))
    return DeadlineIndex(times, rows, 0, length)


def _form(schema: pa.Schema) -> pa.Schema:
    fields = [(_ROWS, pa.large_list(pa.struct(list(schema))))]
    if c.DUE_EVENT in schema.names:
        for name in _INDEXES:
            fields += [(f"{name}_times", pa.large_list(pa.int64())), (f"{name}_rows", pa.large_list(pa.uint32()))]
    return pa.schema(fields)


def _one(values: pa.Array) -> pa.Array:
    """A column of one row that holds all ``values``."""
    return pa.LargeListArray.from_arrays(pa.array(np.array([0, len(values)])), values)
