"""What readers see beside panes: the newest records, as ``current``; late records, and dead letters."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.distribute.records import Records
from headrace.formats.fields import as_json
from headrace.kernel.aggregates.ordering import to_comparable
from headrace.kernel.columns import (
    ARROW_TYPES,
    TIMESTAMP,
    Groups,
    Ints,
    arrow_scalar,
    as_numpy,
    to_timestamps,
    valid_mask,
)
from headrace.kernel.delta import Columns, Disposition, takes_part
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.kernel.keys import group_by_key, hash_keys
from headrace.kernel.stage import CompiledStage
from headrace.kernel.windows import AssignedRows
from headrace.model.accumulation import EVENT_TIME
from headrace.model.expressions.data_types import ColumnType, ListType, MapType, StructType
from headrace.model.expressions.expr import Expr
from headrace.model.time import MIN_INSTANT
from headrace.program import columns as c
from headrace.state.files import decode_table
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED
from headrace_snapshots.store import ObjectStore

_LARGEST_INT = 2**63 - 1


def newest_records(stage: CompiledStage, panes: pa.RecordBatch) -> pa.RecordBatch:
    """The newest record of each (key, window), retraction or not."""
    if not panes.num_rows:
        return panes
    keys = [panes.column(name) for name in stage.keys]
    window = [
        as_numpy(panes.column(name).cast(pa.int64()).fill_null(int(MIN_INSTANT)))
        for name in ("window_start", "window_end")
    ]
    groups = group_by_key(hash_keys(keys, panes.num_rows), keys, *window)
    return panes.take(pa.array(_last_rows(groups, *(as_numpy(panes.column(name)) for name in ("epoch", "sequence")))))


def summed_rows(stage: CompiledStage, rows: pa.RecordBatch) -> pa.RecordBatch:
    """What stands of ``rows`` once withdrawals are taken off: the oldest; or retractions, where these are more."""
    if not rows.num_rows:
        return rows
    columns = [to_comparable(rows.column(name)) for name in (*stage.stage.value_types, EVENT_TIME)]
    groups = group_by_key(hash_keys(columns), columns)
    order = np.arange(rows.num_rows) if groups.order is None else groups.order
    signs = np.where(as_numpy(rows.column("is_retraction"))[order], -1, 1)
    left = np.repeat(groups.reduce(np.add, signs, 0), groups.sizes)
    is_alike = signs == np.sign(left)
    alike_before = np.concatenate([[0], np.cumsum(is_alike)])
    rank = alike_before[1:] - np.repeat(alike_before[groups.offsets[:-1]], groups.sizes)
    return rows.take(pa.array(np.sort(order[is_alike & (rank <= np.abs(left))])))


def readable_columns(columns: pa.Schema) -> dict[str, ColumnType]:
    """The columns that expressions can read; a list of pairs is one of structs."""
    kinds = {field.name: _kind_of(field.type) for field in columns}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind_of(arrow: pa.DataType) -> ColumnType | None:
    if pa.types.is_list(arrow):
        item = _kind_of(arrow.value_type)
        return None if item is None else ListType(item)
    if pa.types.is_map(arrow):
        value = _kind_of(arrow.item_type)
        return None if value is None else MapType(value)
    if pa.types.is_struct(arrow):
        fields = [(field.name, _kind_of(field.type)) for field in arrow]
        return StructType(tuple((name, kind) for name, kind in fields if kind is not None))
    return _KIND_OF_ARROW.get(arrow)


_KIND_OF_ARROW = {arrow: kind for kind, arrow in ARROW_TYPES.items()}


def condition_mask(condition: Expr, columns: pa.Schema, rows: Mapping[str, pa.Array], length: int) -> pa.Array:
    """For each of so many ``rows`` whether ``condition`` is TRUE. ``rows`` has what it reads, ``columns``
    what it could.

    Raises IntegerOverflowError.
    """
    read = {name: values.cast(columns.field(name).type) for name, values in rows.items()}
    return pc.fill_null(evaluate_column(condition, read, readable_columns(columns), length).cast(pa.bool_()), False)


def _last_rows(groups: Groups, epoch: Ints, sequence: Ints) -> Ints:
    """The row of each group with the greatest (epoch, sequence); no two rows have the same."""
    places = int(sequence.max()) + 1
    if (int(epoch.max()) + 1) * places > _LARGEST_INT:
        # in one number they would leave 64 bits, and their ranks do not
        return _last_rows(groups, *(np.unique(numbers, return_inverse=True)[1] for numbers in (epoch, sequence)))
    ranks = epoch * places + sequence
    ordered_ranks = ranks if groups.order is None else ranks[groups.order]
    greatest = groups.reduce(np.maximum, ordered_ranks, 0)
    rows = np.flatnonzero(ordered_ranks == np.repeat(greatest, groups.sizes))
    return rows if groups.order is None else groups.order[rows]


def late_rows(
    stage: CompiledStage, records: Records, judged_rows: Columns, late: AssignedRows | None, epoch: int
) -> pa.RecordBatch | None:
    """Dropped (record, window) pairs of ``records``, which are ``judged_rows`` of ``stage``: keys, event time, window,
    the reason, input, file, the raw record and the epoch.

    The window of a record that is too late to be told from a duplicate is NULL.
    """
    rows, start, end = (np.zeros(0, np.int64),) * 3 if late is None else (late.row, late.start, late.end)
    forgotten = _forgotten_rows(judged_rows)
    dropped_rows = np.concatenate([rows, forgotten])
    if not len(dropped_rows):
        return None
    order = np.argsort(dropped_rows, kind="stable")
    has_window = order < len(rows)
    no_window = np.zeros(len(forgotten), np.int64)
    windows = [pa.array(np.concatenate([ends, no_window])[order], mask=~has_window) for ends in (start, end)]
    ends = [to_timestamps(granules) for granules in windows]
    if stage.stage.aggregation.takes_each:  # whose windows nobody knows
        ends = [pa.nulls(len(order), TIMESTAMP)] * 2
    reasons = pc.if_else(pa.array(has_window), arrow_scalar(WINDOW_EXPIRED), arrow_scalar(BEYOND_HORIZON))
    return _dropped_records(
        records, judged_rows, dropped_rows[order], reasons, keys=stage.record_keys, ends=ends, epoch=epoch
    )


def late_sides(records: Records, judged_rows: Columns, late: NDArray[np.bool_], epoch: int) -> pa.RecordBatch | None:
    """The ``records`` that are ``late`` for a join, or to be told from duplicates, as ``late_rows`` has them. They have
    come to no key and no window; their input says which side they are of.
    """
    dropped_rows = np.union1d(np.flatnonzero(late), _forgotten_rows(judged_rows))
    if not len(dropped_rows):
        return None
    reasons = pc.if_else(pa.array(late[dropped_rows]), arrow_scalar(BEHIND_JOIN), arrow_scalar(BEYOND_HORIZON))
    ends = [pa.nulls(len(dropped_rows), TIMESTAMP)] * 2
    return _dropped_records(records, judged_rows, dropped_rows, reasons, keys=(), ends=ends, epoch=epoch)


WINDOW_EXPIRED, BEYOND_HORIZON = "window expired", "id beyond its horizon"
BEHIND_JOIN = "too late for the join"
OF_WITHDRAWAL = "withdrawal: "
"""What begins the reason why a record was late that would have withdrawn a row."""


def _dropped_records(
    records: Records,
    judged_rows: Columns,
    rows: Ints,
    reasons: pa.Array,
    *,
    keys: Iterable[str],
    ends: Sequence[pa.Array],
    epoch: int,
) -> pa.RecordBatch:
    """Rows for ``late_rows``: those ``rows`` of ``records``, with the ``ends`` of their windows."""
    indices, origins = pa.array(rows), records.origins(rows)
    if c.SIGN in judged_rows:
        withdraws, nothing = pc.less(judged_rows[c.SIGN].take(indices), arrow_scalar(0)), arrow_scalar("")
        beginnings = pc.if_else(withdraws, arrow_scalar(OF_WITHDRAWAL), nothing)
        reasons = pc.binary_join_element_wise(beginnings, reasons, nothing)
    return pa.RecordBatch.from_pydict(
        {
            **{name: judged_rows[name].take(indices) for name in keys},
            "event_time": judged_rows[c.EVENT_TIME].take(indices).cast(TIMESTAMP),
            "window_start": ends[0],
            "window_end": ends[1],
            "reason": reasons,
            "input": origins["input"],
            "file": origins["file"],
            "raw": _decode_text(origins["raw"])[0],
            "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)),
        }
    )


def _forgotten_rows(judged_rows: Columns) -> Ints:
    if c.ID_FATE not in judged_rows:
        return np.zeros(0, np.int64)
    forgotten = pc.equal(judged_rows[c.ID_FATE], arrow_scalar(int(Disposition.FORGOTTEN))).fill_null(False)
    return np.flatnonzero(as_numpy(forgotten) & takes_part(judged_rows))


def rejected_rows(
    records: Records,
    epoch: int,
    *,
    output: str | None,
    judged_rows: Columns | None = None,
    by_none: NDArray[np.bool_] | None = None,
) -> pa.RecordBatch | None:
    """The dead letters that nobody can take: ``input``, ``file``, ``position``, ``reason``, ``raw``, ``raw_bytes``,
    ``epoch``; with the ``judged_rows`` of one ``output`` those that others can take and it cannot. ``by_none``: those
    that nobody can take, where that is not what is judged now. None if all is well.

    ``position`` and ``raw`` are NULL for a file that cannot be read at all. ``raw_bytes`` are those of a record that is
    no text; ``raw`` has U+FFFD in place of some then. Where outputs have names, the column ``output`` says which, NULL:
    nobody can take the record.
    """
    by_none = records.is_rejected if by_none is None else by_none
    reasons = records.columns[c.REJECT] if judged_rows is None else judged_rows[c.REJECT]
    rows = np.flatnonzero(by_none if judged_rows is None else valid_mask(reasons) & ~by_none)
    if not len(rows):
        return None
    return _dead_letters(records.origins(rows), reasons.take(pa.array(rows)), epoch, output)


def dead_letters_of_none(store: ObjectStore, files: Iterable[DataFile]) -> dict[tuple[str, str], list[int | None]]:
    """Positions of dead letters in ``files`` that nobody could take; None: whole files. Raises BrokenObjectError."""
    places: defaultdict[tuple[str, str], list[int | None]] = defaultdict(list)
    for file in files:
        rows = decode_table(read_verified(store, file))
        if "output" in rows.column_names:  # else it is from before outputs had names
            rows = rows.filter(rows["output"].is_null())
        for row in rows.select(["input", "file", "position"]).to_pylist():
            places[row["input"], row["file"]].append(row["position"])
    return places


def dead_panes(
    stage: CompiledStage,
    origin: str,
    panes: Mapping[str, pa.Array],
    judged_rows: Mapping[str, pa.Array],
    epoch: int,
    *,
    output: str,
) -> pa.RecordBatch | None:
    """The ``panes`` of ``origin`` ("aggregation 1") that ``stage`` cannot take, and why; None if it takes all."""
    reasons = judged_rows[c.REJECT]
    if reasons.null_count == len(reasons):
        return None
    names, withdraws = stage.stage.schema, stage.stage.withdrawable
    return rejected_panes(origin, reasons, panes, names, epoch=epoch, output=output, withdraws=withdraws)


def rejected_panes(
    origin: str,
    reasons: pa.Array,
    panes: Mapping[str, pa.Array],
    names: Iterable[str],
    *,
    epoch: int,
    output: str,
    withdraws: bool,
) -> pa.RecordBatch:
    """The ``panes`` of ``origin`` that what is below it cannot take, where there are ``reasons``, as ``rejected_rows``
    gives them, with the columns ``names``. They have no file.
    """
    shown_columns = {name: panes[name] for name in names}
    shown_columns["pane_time"] = panes[c.EVENT_TIME].cast(TIMESTAMP)
    if withdraws:
        shown_columns["is_retraction"] = pc.less(panes[c.SIGN], arrow_scalar(0))
    dead = np.flatnonzero(valid_mask(reasons))
    raw, reasons = as_json(shown_columns, dead), reasons.take(pa.array(dead))
    length = len(reasons)
    places = {
        "input": pa.repeat(arrow_scalar(origin), length),
        "file": pa.nulls(length, pa.string()),
        "position": pa.nulls(length, pa.int64()),
        "raw": raw,
    }
    return _dead_letters(places, reasons, epoch, output)


def _dead_letters(places: Mapping[str, pa.Array], reasons: pa.Array, epoch: int, output: str | None) -> pa.RecordBatch:
    text, octets = _decode_text(places["raw"])
    output_column = (
        {} if output == UNNAMED.output else {"output": pa.repeat(pa.scalar(output, pa.string()), len(reasons))}
    )
    return pa.RecordBatch.from_pydict(
        {
            **output_column,
            "input": places["input"],
            "file": places["file"],
            "position": places["position"],
            "reason": reasons,
            "raw": text,
            "raw_bytes": octets,
            "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), len(reasons)),
        }
    )


def _decode_text(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Records as text, and the bytes of those that are none."""
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values: Sequence[bytes | None] = raw.to_pylist()  # where some are not text: they are dead letters, one by one
        texts = [None if value is None else value.decode(errors="replace") for value in values]
        octets = [None if value is None or _is_text(value) else value for value in values]
        return pa.array(texts, pa.string()), pa.array(octets, pa.binary())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
