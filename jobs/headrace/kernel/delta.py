"""An epoch's elements: judged for a stage, then aggregated per (key, window) before they meet the state.

A judged row has ``_reject`` (why it takes no part, NULL if it does), ``_event_time`` (int64, granules), and
``_admitted`` (whether the filter is TRUE). It has the key columns, whether it comes from a source or is a pane. It has
the inputs of aggregates and triggers (``CompiledStage.inputs``), and ``_sign`` where elements can be withdrawn,
``_record`` for users' own window functions and triggers. Rows stand in their order of arrival. Rows that become no part
of an aggregate are counted by what became of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, reduce
from operator import is_

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS
from headrace.kernel.aggregates.bags import KEPT_AT, KeptPart
from headrace.kernel.aggregates.ordering import extreme_value, fold
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements
from headrace.kernel.columns import (
    Groups,
    Ints,
    arrow_scalar,
    as_numpy,
    entries_of,
    list_numbers,
    own_arrow_type,
    to_lists,
    valid_mask,
)
from headrace.kernel.expressions.evaluation import Overflow, RowOverflowsError, column_apart
from headrace.kernel.keys import Keys
from headrace.kernel.stage import LISTED_ITEM, PLACE, CompiledStage
from headrace.kernel.windows import AssignedRows, InSlices, InWindows, assign_windows, in_windows
from headrace.model.accumulation import TimestampCombiner
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, Schema, StructType
from headrace.model.expressions.expr import Expr
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.model.windows import Sessions
from headrace.pipeline.loops import StepTerm
from headrace.program import columns as c
from headrace.program.triggers.leaves import RECORD, TIME_FIELD
from headrace.program.triggers.node import ColumnMerge, Measure

Columns = Mapping[str, pa.Array]

_VALUE_BYTES = {DataType.BOOL: 1, DataType.DECIMAL: 16}


def judge_rows(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """``rows`` judged for ``stage``: they have the columns of ``Stage.schema``, ``_event_time`` in granules, perhaps
    ``_sign`` and ``_size``. ``rejects`` says why some of them take no part already.

    A row whose key is NULL is rejected, unless the stage has ``null_keys``.
    """
    rows = with_size(stage, rows)
    try:
        participation = decide_participation(stage, rows, rejects)
        return {**participation, **inputs_of(stage, rows, participation)}
    except RowOverflowsError as overflows:
        raise overflows.error from None


def decide_participation(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """Which ``rows`` (``with_size``) take part, with their keys, or the columns of rows that leave as they are: what
    ``judge_rows`` gives but for ``inputs_of``.
    """
    aggregation, column_types, length = stage.stage.aggregation, _column_types(stage), len(rows[c.EVENT_TIME])
    key_columns = {name: column_apart(expr, rows, column_types, length) for name, expr in aggregation.key.items()}
    keys = {name: values for name, (values, _) in key_columns.items()}
    reject = pa.nulls(length, pa.string()) if rejects is None else rejects
    for name in stage.record_keys:
        reject = reject_overflows(reject, f"key {name}", key_columns[name][1])
        reject = reject if stage.stage.null_keys else _null_key(name, keys[name], reject)
    participation = {c.REJECT: reject, c.EVENT_TIME: rows[c.EVENT_TIME]}
    is_admitted, overflows = _evaluate_filter(aggregation.filter, rows, column_types, length)
    _check_overflows("its filter", overflows, reject.is_null(), {**participation, **keys})
    participation[c.IS_ADMITTED] = is_admitted
    for term in stage.stage.terms:
        values, of_term = key_columns[term.name]
        participation[c.REJECT] = reject_overflows(
            participation[c.REJECT], "value of the edge", of_term, is_wanted=is_admitted
        )
        participation[c.REJECT] = _wrong_term(term, values, participation)
    columns: dict[str, pa.Array] = {}
    for name, expr in stage.stage.row_columns.items():
        columns[name], overflows = column_apart(expr, rows, column_types, length)
        participation[c.REJECT] = reject_overflows(
            participation[c.REJECT], f"column {name}", overflows, is_wanted=is_admitted
        )
    return {**participation, **keys, **columns}


def inputs_of(stage: CompiledStage, rows: Columns, judged_rows: Columns) -> dict[str, pa.Array]:
    """What aggregates, triggers and users' own objects read of ``rows`` (``with_size``), and whether each of them
    withdraws another one. It may be NULL for rows that take no part, as ``decide_participation`` has judged them
    (``judged_rows``).

    Raises RowOverflowsError for the first row that takes part and has a value that its type does not hold.
    """
    column_types, length = _column_types(stage), len(rows[c.EVENT_TIME])
    element_inputs: dict[str, pa.Array] = {}
    if stage.stage.withdrawable:
        element_inputs[c.SIGN] = rows[c.SIGN] if c.SIGN in rows else pa.repeat(pa.scalar(1, pa.int64()), length)
    if stage.reads_records:
        element_inputs[c.RECORD] = _record_structs(stage, rows)
    for name, expr in stage.inputs:
        element_inputs[name], overflows = column_apart(expr, rows, column_types, length)
        _check_overflows("what is aggregated of it", overflows, pa.array(takes_part(judged_rows)), judged_rows)
    return element_inputs


def add_reason(reasons: pa.Array, wrong: NDArray[np.bool_], why: str) -> pa.Array:
    """``reasons``, or ``why`` where there is none yet and something is ``wrong``."""
    if not wrong.any():
        return reasons
    return pc.if_else(pc.and_(pa.array(wrong), reasons.is_null()), arrow_scalar(why), reasons)


def reject_overflows(
    reason: pa.Array, what: str, overflows: Iterable[Overflow], is_wanted: pa.Array | None = None
) -> pa.Array:
    """``reason``, or where there is none and an expression overflows (in rows that ``is_wanted``), which one does."""
    for overflow in overflows:
        wrong = pc.and_(pa.array(overflow.rows), reason.is_null())
        wrong = wrong if is_wanted is None else pc.and_(wrong, is_wanted)
        reason = pc.if_else(wrong, arrow_scalar(f"{what}: {overflow.why}"), reason)
    return reason


def _check_overflows(what: str, overflows: Iterable[Overflow], counting: pa.Array, judged_rows: Columns) -> None:
    for overflow in overflows:
        row = overflow.first_row_in(as_numpy(counting))
        if row is not None:
            keys = {name: values[row].as_py() for name, values in judged_rows.items() if not name.startswith("_")}
            key = ", ".join(f"{name}={value!r}" for name, value in keys.items())
            instant = judged_rows[c.EVENT_TIME][row].as_py()
            where = (
                f"{what} (key {key or 'none'}{'' if instant is None else f', event time {render(Instant(instant))}'})"
            )
            raise RowOverflowsError(row, overflow.error(f"{where}: {overflow.why}{OPERANDS}"))


def with_size(stage: CompiledStage, rows: Columns) -> Columns:
    """``rows`` with the size of each element, where ``stage`` reads it."""
    if not stage.reads_size or c.SIZE in rows:
        return rows
    return {**rows, c.SIZE: element_size(rows, stage.stage.schema, len(rows[c.EVENT_TIME]))}


def _column_types(stage: CompiledStage) -> Schema:
    return {**stage.stage.schema, c.SIZE: DataType.INT}


def _evaluate_filter(
    condition: Expr | None, rows: Columns, schema: Schema, length: int
) -> tuple[pa.Array, tuple[Overflow, ...]]:
    if condition is None:
        return pa.repeat(arrow_scalar(True), length), ()
    values, overflows = column_apart(condition, rows, schema, length)
    return values.fill_null(False), overflows


def _null_key(name: str, values: pa.Array, reason: pa.Array) -> pa.Array:
    """``reason``, or where there is none yet, that the part ``name`` of a key is NULL."""
    if not values.null_count:
        return reason
    return pc.if_else(pc.and_(values.is_null(), reason.is_null()), arrow_scalar(f"key is null: {name}"), reason)


def _wrong_term(term: StepTerm, values: pa.Array, judged_rows: Columns) -> pa.Array:
    """Why a row takes no part: what the step of a loop reads of it is NULL, or makes values better on the way."""
    reason, is_admitted = judged_rows[c.REJECT], judged_rows[c.IS_ADMITTED]
    if values.null_count:
        reason = pc.if_else(pc.and_(pc.and_(values.is_null(), is_admitted), reason.is_null()), term.of_null, reason)
    if term.sign:
        nothing = pa.scalar(0, pa.int64()).cast(values.type)
        is_wrong = (pc.less if term.sign > 0 else pc.greater)(values, nothing).fill_null(False)
        reason = pc.if_else(pc.and_(pc.and_(is_wrong, is_admitted), reason.is_null()), term.of_wrong_sign, reason)
    return reason


def _record_structs(stage: CompiledStage, rows: Columns) -> pa.Array:
    """Rows as users' own objects see them: timestamps are Instants (granules)."""
    values = [rows[name].cast(own_arrow_type(kind)) for name, kind in stage.stage.schema.items()]
    return pa.StructArray.from_arrays(values, fields=list(stage.record_type))


def takes_part(judged_rows: Columns) -> NDArray[np.bool_]:
    """Which judged rows are neither rejected nor filtered, and have an event time."""
    takes = pc.and_(
        pc.and_(judged_rows[c.REJECT].is_null(), judged_rows[c.IS_ADMITTED]), judged_rows[c.EVENT_TIME].is_valid()
    )
    takes_part_mask: NDArray[np.bool_] = as_numpy(takes)
    return takes_part_mask


def element_size(rows: Columns, schema: Schema, length: int) -> pa.Array:
    """Bytes of each element (semantics 9.5): 8 for a number, timestamp or date, 16 for a decimal, 1 for a bool, none
    for NULL. Bytes and strings count by their length, in UTF-8; what is nested is as large as the values in it.
    """
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    for name, kind in schema.items():
        total = pc.add(total, _column_sizes(rows[name], kind))
    return total


def _column_sizes(values: pa.Array, kind: ColumnType) -> pa.Array:
    match kind:
        case ListType(item):
            return _sums_of_lists(values, _column_sizes(pc.list_flatten(values), item))
        case StructType(fields):
            sizes = [_column_sizes(part, own) for part, (_, own) in zip(values.flatten(), fields, strict=True)]
            return reduce(pc.add, sizes)
        case MapType(value):
            lists = entries_of(values)
            keys, items = pc.list_flatten(lists).flatten()
            return _sums_of_lists(lists, pc.add(_value_sizes(keys, DataType.STRING), _column_sizes(items, value)))
    return _value_sizes(values, kind)


def _sums_of_lists(lists: pa.Array, sizes: pa.Array) -> pa.Array:
    return pa.array(np.bincount(list_numbers(lists), as_numpy(sizes), minlength=len(lists)).astype(np.int64))


def _value_sizes(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in (DataType.STRING, DataType.BYTES):
        return pc.binary_length(values).cast(pa.int64()).fill_null(0)
    return pc.multiply(pc.is_valid(values).cast(pa.int64()), _VALUE_BYTES.get(kind, 8))


class Disposition(IntEnum):
    """What became of a record (of a record in one window).

    FORGOTTEN: it is so late that its id would be forgotten already, had it come before (semantics 12.10).
    """

    ACCEPTED = 0
    REJECTED = 1
    FILTERED = 2
    LATE = 3
    NOWHERE = 4
    LATE_RETRACTION = 5
    DUPLICATE = 6
    FORGOTTEN = 7


@dataclass(frozen=True)
class Accounting:
    """Counts of one epoch. ``rows`` counts records by the fate in their first window, ``late`` and ``late_retractions``
    drops (a record in each of its windows); times in granules.
    """

    rows: Mapping[Disposition, int] = field(default_factory=dict)
    late: int = 0
    late_retractions: int = 0
    max_event_time: Instant | None = None
    min_accepted: Instant | None = None
    max_accepted: Instant | None = None

    @classmethod
    def of_all(cls, shares: "Iterable[Accounting]") -> "Accounting":
        counts = list(shares)
        rows: dict[Disposition, int] = {}
        for count in counts:
            for fate, number in count.rows.items():
                rows[fate] = rows.get(fate, 0) + number
        return cls(
            rows=rows,
            late=sum(count.late for count in counts),
            late_retractions=sum(count.late_retractions for count in counts),
            max_event_time=_latest_time([count.max_event_time for count in counts]),
            min_accepted=min((share.min_accepted for share in counts if share.min_accepted is not None), default=None),
            max_accepted=_latest_time([count.max_accepted for count in counts]),
        )


def _latest_time(times: Sequence[Instant | None]) -> Instant | None:
    return max((instant for instant in times if instant is not None), default=None)


class AggregatedBundle(msgspec.Struct, frozen=True):
    """A bundle, aggregated and counted: ``delta`` is None if nothing of it was accepted. ``late`` are the judged rows
    that were dropped, with the windows that they were too late for (None: none were).
    """

    delta: pa.RecordBatch | None = None
    accounting: Accounting = msgspec.field(default_factory=Accounting)
    late: AssignedRows | None = None


def aggregate_rows(
    stage: CompiledStage,
    judged_rows: Columns,
    watermark: Instant,
    output_watermark: Instant = MIN_INSTANT,
    *,
    place: int = 0,
    key_hashes: "KeyHashes | None" = None,
) -> AggregatedBundle:
    """Judged rows (``elements``) as the delta of an epoch, under the watermark that the last epoch left. ``place`` is
    that of the first row in the order of arrival. An epoch may be aggregated in shares, whose deltas stand one below
    the other in that order.

    The delta has a row for each (key, window), or for each gap-aligned part of a session, in the order of (hash,
    window). Its columns are ``_h``, keys, ``_ws``, ``_we``, ``_n``, parts of accumulators, and
    ``CompiledStage.carried_columns``. Late is judged by the own window of an element (semantics 3.1a). ``key_hashes``:
    those of keys of the same rows, for other stages."""
    key_hashes = KeyHashes() if key_hashes is None else key_hashes
    fates = fates_of(judged_rows)
    window_rows = _place_in_windows(stage, judged_rows, fates)
    windows = window_rows.windows
    is_late = stage.expired_mask(windows.end, watermark)
    is_accepted = ~is_late
    accounting = _accounting_of_rows(judged_rows, fates, window_rows, is_late)
    late = window_rows.select_windows(is_late) if is_late.any() else None
    if not is_accepted.any():
        return AggregatedBundle(None, accounting, late)
    if isinstance(window_rows, InSlices):
        of_slices = _Bundle(
            stage,
            judged_rows,
            window_rows.in_one_each(is_accepted),
            output_watermark,
            place=place,
            key_hashes=key_hashes,
        ).to_delta()
        return AggregatedBundle(in_windows(stage, of_slices, watermark), accounting, late)
    accepted_windows = windows if is_accepted.all() else windows.where(is_accepted)
    return AggregatedBundle(
        _Bundle(stage, judged_rows, accepted_windows, output_watermark, place=place, key_hashes=key_hashes).to_delta(),
        accounting,
        late,
    )


def fates_of(judged_rows: Columns) -> NDArray[np.int8]:
    """What became of each record before it has windows."""
    fates = np.zeros(len(judged_rows[c.EVENT_TIME]), np.int8)
    if c.ID_FATE in judged_rows:
        fates = as_numpy(judged_rows[c.ID_FATE].fill_null(int(Disposition.ACCEPTED))).astype(np.int8)
    is_filtered = pc.or_(pc.invert(judged_rows[c.IS_ADMITTED]), judged_rows[c.EVENT_TIME].is_null())
    # the last verdict counts: a record that is rejected is neither filtered nor a duplicate
    fates[as_numpy(is_filtered)] = Disposition.FILTERED
    if judged_rows[c.REJECT].null_count < len(fates):
        fates[valid_mask(judged_rows[c.REJECT])] = Disposition.REJECTED
    return fates


def _place_in_windows(stage: CompiledStage, judged_rows: Columns, fates: NDArray[np.int8]) -> InWindows | InSlices:
    times = judged_rows[c.EVENT_TIME]
    if (fates != Disposition.ACCEPTED).any():
        # what has no time is in no window
        times = pc.if_else(pa.array(fates == Disposition.ACCEPTED), times, pa.scalar(None, times.type))
    if stage.slides is not None:
        return InSlices.from_times(stage.slides, times)
    keys = {name: judged_rows[name] for name in stage.keys}
    windows = assign_windows(stage.where, times, keys, stage.stage.key_types, judged_rows.get(c.RECORD))
    return InWindows(windows, len(times))


def _accounting_of_rows(
    judged_rows: Columns, fates: NDArray[np.int8], window_rows: InWindows | InSlices, is_late: NDArray[np.bool_]
) -> Accounting:
    fate_counts = np.bincount(fates, minlength=len(Disposition)) if fates.any() else [len(fates)]
    rows = {Disposition(code): int(count) for code, count in enumerate(fate_counts) if count}
    accepted_rows = window_rows.rows_in_windows(None)
    number_nowhere = rows.pop(Disposition.ACCEPTED, 0) - int(accepted_rows.sum())
    numbers = {Disposition.ACCEPTED: window_rows.count_per_window(np.ones(len(fates), np.bool_))}
    if is_late.any():
        withdrawn = as_numpy(judged_rows[c.SIGN]) < 0 if c.SIGN in judged_rows else np.zeros(len(fates), np.bool_)
        numbers[Disposition.ACCEPTED] = numbers[Disposition.ACCEPTED] * ~is_late
        numbers[Disposition.LATE] = window_rows.count_per_window(~withdrawn) * is_late
        numbers[Disposition.LATE_RETRACTION] = window_rows.count_per_window(withdrawn) * is_late
    for fate, number in numbers.items():
        if number.any():
            rows[fate] = int(number[window_rows.windows.is_first].sum())
    if number_nowhere:
        rows[Disposition.NOWHERE] = number_nowhere
    judged_times = judged_rows[c.EVENT_TIME]
    if rows.get(Disposition.REJECTED):
        judged_times = judged_times.filter(pa.array(fates != Disposition.REJECTED))
    latest = pc.max(judged_times).as_py()
    low = high = None
    if not is_late.all():
        times = judged_rows[c.EVENT_TIME]
        if is_late.any():
            accepted_rows = window_rows.rows_in_windows(~is_late)
        ends = pc.min_max(times if accepted_rows.all() else times.filter(pa.array(accepted_rows))).as_py()
        low, high = Instant(ends["min"]), Instant(ends["max"])
    return Accounting(
        rows=rows,
        late=int(np.sum(numbers.get(Disposition.LATE, 0))),
        late_retractions=int(np.sum(numbers.get(Disposition.LATE_RETRACTION, 0))),
        max_event_time=None if latest is None else Instant(latest),
        min_accepted=low,
        max_accepted=high,
    )


def account_of_rows(judged_rows: Columns, fates: NDArray[np.int8], accepted_rows: Ints) -> Accounting:
    """What became of elements, by their ``fates``, where ``accepted_rows`` leave."""
    rows = {Disposition(code): int(number) for code, number in enumerate(np.bincount(fates)) if number}
    times = judged_rows[c.EVENT_TIME]
    latest = pc.max(times.filter(pa.array(fates != Disposition.REJECTED))).as_py()
    ends = pc.min_max(times if len(accepted_rows) == len(fates) else times.take(pa.array(accepted_rows))).as_py()
    low, high = (None if ends[end] is None else Instant(ends[end]) for end in ("min", "max"))
    return Accounting(rows, 0, 0, None if latest is None else Instant(latest), low, high)


class KeyHashes:
    """Keys of some rows, and their hashes, which outputs with the same key have in common: each is hashed once."""

    def __init__(self) -> None:
        self._known_keys: list[tuple[Sequence[pa.Array], Ints, Keys]] = []

    def keys_of_rows(self, columns: Sequence[pa.Array], rows: Ints, *, everything: bool) -> Keys:
        """The keys that ``rows`` have in ``columns``; ``everything``: they are all rows in order."""
        for known_columns, known_rows, keys in self._known_keys:
            # the same objects, for to compare values costs as much as to hash them
            is_same = len(known_columns) == len(columns) and all(map(is_, known_columns, columns))
            if is_same and len(known_rows) == len(rows) and (known_rows == rows).all():
                return keys
        places = None if everything else pa.array(rows)
        keys = Keys([column if places is None else column.take(places) for column in columns], len(rows))
        self._known_keys.append((columns, rows, keys))
        return keys


class _Bundle:
    """Accepted elements in their windows, on the way to a delta."""

    def __init__(
        self,
        stage: CompiledStage,
        judged_rows: Columns,
        windows: AssignedRows,
        output_watermark: Instant,
        *,
        place: int,
        key_hashes: KeyHashes,
    ) -> None:
        self.stage, self.windows, self.output_watermark, self.place = stage, windows, output_watermark, place
        everything = len(windows.row) == len(judged_rows[c.EVENT_TIME]) and bool((np.diff(windows.row) == 1).all())
        self._rows = None if everything else pa.array(windows.row)
        self._judged_rows, self._in_groups = judged_rows, dict[str, pa.Array]()
        start, end = windows.start, windows.end
        if isinstance(stage.where, Sessions):
            # elements of one gap-aligned bucket are less than one gap apart, so they are one session already
            gap = int(stage.where.gap)
            instants = as_numpy(
                self._element_column(c.EVENT_TIME)
            )  # NULL where a record was rejected, and no window has that
            start = end = instants // gap * gap
        keys = key_hashes.keys_of_rows([judged_rows[name] for name in stage.keys], windows.row, everything=everything)
        self.keyed_rows = keys.group_rows(start, end)

    @cached_property
    def groups(self) -> Groups:
        """The elements of each group, which stand in order for what is not folded as they stand."""
        return self.keyed_rows.groups

    @cached_property
    def _sizes(self) -> Ints:
        numbered_keys = self.keyed_rows.numbered_groups
        return self.groups.sizes if numbered_keys is None else numbered_keys.arranged_groups.sizes

    def to_delta(self) -> pa.RecordBatch:
        stage, keyed_rows = self.stage, self.keyed_rows
        columns = {
            c.HASH: pa.array(keyed_rows.hashes),
            **dict(zip(stage.keys, keyed_rows.keys, strict=True)),
            **self._window_columns(),
        }
        columns[c.COUNT] = pa.array(self._sizes)
        columns |= {part.name: self._part_column(part) for part in stage.parts}
        columns |= {measure.name: self._measure_column(measure) for measure in stage.trigger.measures}
        columns |= self._stamp_columns()
        if stage.stage.withdrawable:
            withdrawn = (as_numpy(self._arranged_column(c.SIGN)) < 0).astype(np.int64)
            columns[c.RETRACTION_COUNT] = pa.array(self.groups.reduce(np.add, withdrawn, 0))
        return pa.RecordBatch.from_pydict(columns, schema=stage.delta_schema)

    def _element_column(self, name: str) -> pa.Array:
        """A column of the elements, as they stand."""
        return self._judged_rows[name] if self._rows is None else self._judged_rows[name].take(self._rows)

    def _arranged_column(self, name: str) -> pa.Array:
        if name not in self._in_groups:
            column, order = self._judged_rows[name], self._order
            self._in_groups[name] = column if order is None else column.take(order)
        return self._in_groups[name]

    @cached_property
    def _order(self) -> pa.Array | None:
        """The judged rows by group; None: they stand so."""
        order = self.groups.order
        if order is None or self._rows is None:
            return self._rows if order is None else pa.array(order)
        return self._rows.take(pa.array(order))

    def _window_columns(self) -> dict[str, pa.Array]:
        """The window of each group; for a part of a session, the span of its elements."""
        where = self.stage.where
        if isinstance(where, Sessions):
            first, last = self._ends_of_times()
            return {c.WINDOW_START: pa.array(first), c.WINDOW_END: pa.array(last + int(where.gap))}
        rows = self.keyed_rows.rows
        return {c.WINDOW_START: pa.array(self.windows.start[rows]), c.WINDOW_END: pa.array(self.windows.end[rows])}

    def _ends_of_times(self) -> tuple[Ints, Ints]:
        """The first and the last event time of each group."""
        numbered_keys = self.keyed_rows.numbered_groups
        if numbered_keys is not None:
            instants = as_numpy(self._element_column(c.EVENT_TIME))
            return numbered_keys.reduce(np.minimum, instants), numbered_keys.reduce(np.maximum, instants)
        instants = as_numpy(self._arranged_column(c.EVENT_TIME))
        return self.groups.reduce(np.minimum, instants, 0), self.groups.reduce(np.maximum, instants, 0)

    def _part_column(self, part: AccumulatorPart) -> pa.Array:
        numbered_keys = self.keyed_rows.numbered_groups
        if numbered_keys is not None and not self.stage.stage.withdrawable:
            value = None if part.input is None else self._element_column(self.stage.input_column(part.input))
            folded_part = part.fold_numbered(value, numbered_keys)
            if folded_part is not None:
                return folded_part
        instants = self._arranged_column(c.EVENT_TIME)
        if isinstance(part, KeptPart):
            inputs = self.stage.kept_inputs
            present = pa.repeat(arrow_scalar(True), len(instants))
            kept_columns = {"_": present, **{name: self._arranged_column(name) for name, _ in inputs}}
            if self.stage.keeps_times:
                kept_columns[KEPT_AT] = instants
            value = pa.StructArray.from_arrays(list(kept_columns.values()), names=list(kept_columns))
            return part.fold(Elements(value, instants, None), self.groups)
        value = None if part.input is None else self._arranged_column(self.stage.input_column(part.input))
        sign = self._arranged_column(c.SIGN) if self.stage.stage.withdrawable else None
        return part.fold(Elements(value, instants, sign), self.groups)

    def _measure_column(self, measure: Measure) -> pa.Array:
        if measure.input is None:
            instants, record = self._arranged_column(c.EVENT_TIME), self._arranged_column(c.RECORD)
            value = pa.StructArray.from_arrays([instants, record], names=[TIME_FIELD, RECORD])
        else:
            value = self._arranged_column(self.stage.input_column(measure.input))
        if measure.fold is not ColumnMerge.LIST:
            return fold(measure.fold, value, self.groups)
        if self.stage.merging:  # what merges is put in order again
            order = self.groups.order
            place = np.arange(len(value), dtype=np.int64) if order is None else order
            places = pa.array(self.windows.row[place] + self.place)
            value = pa.StructArray.from_arrays([places, value], names=[PLACE, LISTED_ITEM])
        return to_lists(value, self.groups)

    def _stamp_columns(self) -> dict[str, pa.Array]:
        """The timestamp that elements give their pane; behind the output watermark none (semantics 6.1, 6.2)."""
        stage = self.stage
        if not stage.stamps_elements:
            return {}
        if stage.stamps_merged:  # no window is the one that it will be
            return {c.TIMES: to_lists(self._arranged_column(c.EVENT_TIME), self.groups)}
        own = self.windows.stamp
        stamps = self._arranged_column(c.EVENT_TIME) if own is None else self.groups.arrange_column(pa.array(own))
        stamps = pc.add(stamps, arrow_scalar(stage.output_shift))
        pane_times = pc.if_else(
            pc.greater_equal(stamps, arrow_scalar(int(self.output_watermark))), stamps, pa.scalar(None, stamps.type)
        )
        return {
            c.HELD_TIME: extreme_value(pane_times, self.groups, latest=stage.how.timestamp is TimestampCombiner.LATEST)
        }
