"""An epoch's elements: judged for a stage, then aggregated per (key, window) before they meet the state.

A judged row has ``_reject`` (why it takes no part, NULL if it does), ``_event_time`` (int64, granules), ``_admitted``
(whether the filter is TRUE), and the key columns, whether it comes from a source or is a pane. It has the inputs of
aggregates and triggers (``CompiledStage.inputs``), and ``_sign`` where elements can be withdrawn, ``_record`` for
users' own window functions and triggers. Rows stand in their order of arrival. Those that become no part of an
aggregate are counted by what became of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from operator import is_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS
from headrace.kernel.aggregates import KEPT_AT, AccumulatorPart, Elements, KeptPart
from headrace.kernel.aggregates.ordering import extreme_value, fold
from headrace.kernel.columns import Groups, Ints, as_numpy, constant, holders, own_arrow_type, to_lists, valid
from headrace.kernel.expressions.evaluation import Overflow, RowOverflowsError, column_apart
from headrace.kernel.keys import Keys
from headrace.kernel.stage import LISTED, PLACE, CompiledStage
from headrace.kernel.windows import Assigned, InSlices, InWindows, assigned, in_windows
from headrace.model.accumulation import TimestampCombiner
from headrace.model.expressions.data_types import DataType, ListType, Schema
from headrace.model.expressions.expr import Expr
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.model.windows import Sessions
from headrace.pipeline.stages import StepTerm
from headrace.program import columns as c
from headrace.program.triggers import ColumnMerge, Measure
from headrace.program.triggers.leaves import AT, RECORD

Columns = Mapping[str, pa.Array]

_SIZES = {DataType.BOOL: 1, DataType.DECIMAL: 16}


def judge(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """``rows`` judged for ``stage``: they have the columns of ``Stage.schema``, ``_event_time`` in granules, perhaps
    ``_sign`` and ``_size``. ``rejects`` says why some of them take no part already.

    A row whose key is NULL is rejected.
    """
    rows = with_size(stage, rows)
    try:
        decided = decide(stage, rows, rejects)
        return {**decided, **inputs_of(stage, rows, decided)}
    except RowOverflowsError as overflows:
        raise overflows.error from None


def decide(stage: CompiledStage, rows: Columns, rejects: pa.Array | None = None) -> dict[str, pa.Array]:
    """Which ``rows`` (``with_size``) take part, with their keys, or the columns of rows that leave as they are: what
    ``judge`` gives but for ``inputs_of``.
    """
    aggregation, typed, length = stage.stage.aggregation, _types(stage), len(rows[c.EVENT_TIME])
    apart = {name: column_apart(expr, rows, typed, length) for name, expr in aggregation.key.items()}
    keys = {name: values for name, (values, _) in apart.items()}
    reject = pa.nulls(length, pa.string()) if rejects is None else rejects
    for name in stage.record_keys:
        reject = rejecting(reject, f"key {name}", apart[name][1])
        reject = _null_key(name, keys[name], reject)
    judged = {c.REJECT: reject, c.EVENT_TIME: rows[c.EVENT_TIME]}
    admitted, overflows = _admitted(aggregation.filter, rows, typed, length)
    _check_overflows("its filter", overflows, reject.is_null(), {**judged, **keys})
    judged[c.ADMITTED] = admitted
    for term in stage.stage.terms:
        values, of_term = apart[term.name]
        judged[c.REJECT] = rejecting(judged[c.REJECT], "value of the edge", of_term, among=admitted)
        judged[c.REJECT] = _wrong_term(term, values, judged)
    columns: dict[str, pa.Array] = {}
    for name, expr in stage.stage.row_columns.items():
        columns[name], overflows = column_apart(expr, rows, typed, length)
        judged[c.REJECT] = rejecting(judged[c.REJECT], f"column {name}", overflows, among=admitted)
    return {**judged, **keys, **columns}


def inputs_of(stage: CompiledStage, rows: Columns, decided: Columns) -> dict[str, pa.Array]:
    """What aggregates, triggers and users' own objects read of ``rows`` (``with_size``), and whether each of them
    withdraws another one. Of rows that take no part, as ``decide`` has ``decided``, it may be NULL.

    Raises RowOverflowsError for the first row that takes part and has a value that its type does not hold.
    """
    typed, length = _types(stage), len(rows[c.EVENT_TIME])
    judged: dict[str, pa.Array] = {}
    if stage.stage.withdrawable:
        judged[c.SIGN] = rows[c.SIGN] if c.SIGN in rows else pa.repeat(pa.scalar(1, pa.int64()), length)
    if stage.reads_records:
        judged[c.RECORD] = _records(stage, rows)
    for name, expr in stage.inputs:
        judged[name], overflows = column_apart(expr, rows, typed, length)
        _check_overflows("what is aggregated of it", overflows, pa.array(takes_part(decided)), decided)
    return judged


def rejecting(reason: pa.Array, what: str, overflows: Iterable[Overflow], among: pa.Array | None = None) -> pa.Array:
    """``reason``, or where there is none yet and an expression overflows (in rows ``among`` these), which one does."""
    for overflow in overflows:
        wrong = pc.and_(pa.array(overflow.rows), reason.is_null())
        wrong = wrong if among is None else pc.and_(wrong, among)
        reason = pc.if_else(wrong, constant(f"{what}: {overflow.why}"), reason)
    return reason


def _check_overflows(what: str, overflows: Iterable[Overflow], counting: pa.Array, judged: Columns) -> None:
    for overflow in overflows:
        row = overflow.among(as_numpy(counting))
        if row is not None:
            keys = {name: values[row].as_py() for name, values in judged.items() if not name.startswith("_")}
            key = ", ".join(f"{name}={value!r}" for name, value in keys.items())
            at = judged[c.EVENT_TIME][row].as_py()
            where = f"{what} (key {key or 'none'}{'' if at is None else f', event time {render(Instant(at))}'})"
            raise RowOverflowsError(row, overflow.error(f"{where}: {overflow.why}{OPERANDS}"))


def with_size(stage: CompiledStage, rows: Columns) -> Columns:
    """``rows`` with the size of each element, where ``stage`` reads it."""
    if not stage.reads_size or c.SIZE in rows:
        return rows
    return {**rows, c.SIZE: element_size(rows, stage.stage.schema, len(rows[c.EVENT_TIME]))}


def _types(stage: CompiledStage) -> Schema:
    return {**stage.stage.schema, c.SIZE: DataType.INT}


def _admitted(
    condition: Expr | None, rows: Columns, schema: Schema, length: int
) -> tuple[pa.Array, tuple[Overflow, ...]]:
    if condition is None:
        return pa.repeat(constant(True), length), ()
    values, overflows = column_apart(condition, rows, schema, length)
    return values.fill_null(False), overflows


def _null_key(name: str, values: pa.Array, reason: pa.Array) -> pa.Array:
    """``reason``, or where there is none yet, that the part ``name`` of a key is NULL."""
    if not values.null_count:
        return reason
    return pc.if_else(pc.and_(values.is_null(), reason.is_null()), constant(f"key is null: {name}"), reason)


def _wrong_term(term: StepTerm, values: pa.Array, judged: Columns) -> pa.Array:
    """Why a row takes no part: what the step of a loop reads of it is NULL, or makes values better on the way."""
    reason, admitted = judged[c.REJECT], judged[c.ADMITTED]
    if values.null_count:
        reason = pc.if_else(pc.and_(pc.and_(values.is_null(), admitted), reason.is_null()), term.of_null, reason)
    if term.sign:
        nothing = pa.scalar(0, pa.int64()).cast(values.type)
        is_wrong = (pc.less if term.sign > 0 else pc.greater)(values, nothing).fill_null(False)
        reason = pc.if_else(pc.and_(pc.and_(is_wrong, admitted), reason.is_null()), term.of_wrong_sign, reason)
    return reason


def _records(stage: CompiledStage, rows: Columns) -> pa.Array:
    """Rows as users' own objects see them: timestamps are Instants (granules)."""
    values = [rows[name].cast(own_arrow_type(kind)) for name, kind in stage.stage.schema.items()]
    return pa.StructArray.from_arrays(values, fields=list(stage.record_type))


def takes_part(judged: Columns) -> NDArray[np.bool_]:
    """Which judged rows are neither rejected nor filtered, and have an event time."""
    takes = pc.and_(pc.and_(judged[c.REJECT].is_null(), judged[c.ADMITTED]), judged[c.EVENT_TIME].is_valid())
    taken: NDArray[np.bool_] = as_numpy(takes)
    return taken


def element_size(rows: Columns, schema: Schema, length: int) -> pa.Array:
    """Bytes of each element (semantics 9.5): 8 for a number, timestamp or date, 16 for a decimal, 1 for a bool, their
    length for bytes and strings in UTF-8, nothing for NULL; a list is as large as its items.
    """
    total = pa.repeat(pa.scalar(0, pa.int64()), length)
    for name, kind in schema.items():
        values = rows[name]
        if isinstance(kind, ListType):
            sizes = as_numpy(_sizes(pc.list_flatten(values), kind.item))
            size = pa.array(np.bincount(holders(values), sizes, minlength=length).astype(np.int64))
        else:
            size = _sizes(values, kind)
        total = pc.add(total, size)
    return total


def _sizes(values: pa.Array, kind: DataType) -> pa.Array:
    if kind in (DataType.STRING, DataType.BYTES):
        return pc.binary_length(values).cast(pa.int64()).fill_null(0)
    return pc.multiply(pc.is_valid(values).cast(pa.int64()), _SIZES.get(kind, 8))


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
        """Combines the accounting of all ``shares``."""
        counts = list(shares)
        rows: dict[Disposition, int] = {}
        for count in counts:
            for fate, number in count.rows.items():
                rows[fate] = rows.get(fate, 0) + number
        return cls(
            rows=rows,
            late=sum(count.late for count in counts),
            late_retractions=sum(count.late_retractions for count in counts),
            max_event_time=_most([count.max_event_time for count in counts]),
            min_accepted=min((share.min_accepted for share in counts if share.min_accepted is not None), default=None),
            max_accepted=_most([count.max_accepted for count in counts]),
        )


def _most(times: Sequence[Instant | None]) -> Instant | None:
    return max((at for at in times if at is not None), default=None)


@dataclass(frozen=True)
class AggregatedBundle:
    """A bundle, aggregated and counted: ``delta`` is None if nothing of it was accepted. ``late`` are the judged rows
    that were dropped, with the windows that they were too late for (None: none were).
    """

    delta: pa.RecordBatch | None = None
    accounting: Accounting = field(default_factory=Accounting)
    late: Assigned | None = None


def aggregate(
    stage: CompiledStage,
    judged: Columns,
    watermark: Instant,
    output_watermark: Instant = MIN_INSTANT,
    *,
    place: int = 0,
    hashed: "KeyHashes | None" = None,
) -> AggregatedBundle:
    """Judged rows (``elements``) as the delta of an epoch, under the watermark that the last epoch left. ``place`` is
    that of the first row in the order of arrival: an epoch may be aggregated in shares, whose deltas stand one below
    the other in that order.

    The delta has a row for each (key, window), or for each gap-aligned part of a session, in the order of (hash,
    window): ``_h``, keys, ``_ws``, ``_we``, ``_n``, parts of accumulators, ``CompiledStage.carried``. Late is judged by
    the own window of an element (semantics 3.1a). ``hashed``: those of keys of the same rows, for other stages.
    """
    hashed = KeyHashes() if hashed is None else hashed
    fates = fates_of(judged)
    placed = _placed(stage, judged, fates)
    windows = placed.windows
    is_late = stage.expired(windows.end, watermark)
    accepted = ~is_late
    accounting = _account(judged, fates, placed, is_late)
    late = placed.each(is_late) if is_late.any() else None
    if not accepted.any():
        return AggregatedBundle(None, accounting, late)
    if isinstance(placed, InSlices):
        of_slices = _Bundle(
            stage, judged, placed.in_one_each(accepted), output_watermark, place=place, known=hashed
        ).delta()
        return AggregatedBundle(in_windows(stage, of_slices, watermark), accounting, late)
    taken = windows if accepted.all() else windows.where(accepted)
    return AggregatedBundle(
        _Bundle(stage, judged, taken, output_watermark, place=place, known=hashed).delta(), accounting, late
    )


def fates_of(judged: Columns) -> NDArray[np.int8]:
    """What became of each record before it has windows."""
    fates = np.zeros(len(judged[c.EVENT_TIME]), np.int8)
    if c.SEEN in judged:
        fates = as_numpy(judged[c.SEEN].fill_null(int(Disposition.ACCEPTED))).astype(np.int8)
    out = pc.or_(pc.invert(judged[c.ADMITTED]), judged[c.EVENT_TIME].is_null())
    fates[as_numpy(out)] = Disposition.FILTERED
    if judged[c.REJECT].null_count < len(fates):
        fates[valid(judged[c.REJECT])] = Disposition.REJECTED
    return fates


def _placed(stage: CompiledStage, judged: Columns, fates: NDArray[np.int8]) -> InWindows | InSlices:
    times = judged[c.EVENT_TIME]
    if (fates != Disposition.ACCEPTED).any():
        times = pc.if_else(pa.array(fates == Disposition.ACCEPTED), times, pa.scalar(None, times.type))
    if stage.slides is not None:
        return InSlices.of(stage.slides, times)
    keys = {name: judged[name] for name in stage.keys}
    windows = assigned(stage.where, times, keys, stage.stage.key_types, judged.get(c.RECORD))
    return InWindows(windows, len(times))


def _account(
    judged: Columns, fates: NDArray[np.int8], placed: InWindows | InSlices, is_late: NDArray[np.bool_]
) -> Accounting:
    fated = np.bincount(fates, minlength=len(Disposition)) if fates.any() else [len(fates)]
    rows = {Disposition(code): int(count) for code, count in enumerate(fated) if count}
    accepted = placed.standing(None)
    nowhere = rows.pop(Disposition.ACCEPTED, 0) - int(accepted.sum())
    numbers = {Disposition.ACCEPTED: placed.number(np.ones(len(fates), np.bool_))}
    if is_late.any():
        withdrawn = as_numpy(judged[c.SIGN]) < 0 if c.SIGN in judged else np.zeros(len(fates), np.bool_)
        numbers[Disposition.ACCEPTED] = numbers[Disposition.ACCEPTED] * ~is_late
        numbers[Disposition.LATE] = placed.number(~withdrawn) * is_late
        numbers[Disposition.LATE_RETRACTION] = placed.number(withdrawn) * is_late
    for fate, number in numbers.items():
        if number.any():
            rows[fate] = int(number[placed.windows.is_first].sum())
    if nowhere:
        rows[Disposition.NOWHERE] = nowhere
    judged_times = judged[c.EVENT_TIME]
    if rows.get(Disposition.REJECTED):
        judged_times = judged_times.filter(pa.array(fates != Disposition.REJECTED))
    latest = pc.max(judged_times).as_py()
    low = high = None
    if not is_late.all():
        times = judged[c.EVENT_TIME]
        if is_late.any():
            accepted = placed.standing(~is_late)
        ends = pc.min_max(times if accepted.all() else times.filter(pa.array(accepted))).as_py()
        low, high = Instant(ends["min"]), Instant(ends["max"])
    return Accounting(
        rows=rows,
        late=int(np.sum(numbers.get(Disposition.LATE, 0))),
        late_retractions=int(np.sum(numbers.get(Disposition.LATE_RETRACTION, 0))),
        max_event_time=None if latest is None else Instant(latest),
        min_accepted=low,
        max_accepted=high,
    )


def account_of_rows(judged: Columns, fates: NDArray[np.int8], accepted: Ints) -> Accounting:
    """What became of elements, by their ``fates``, where those that are ``accepted`` leave as rows."""
    rows = {Disposition(code): int(number) for code, number in enumerate(np.bincount(fates)) if number}
    times = judged[c.EVENT_TIME]
    latest = pc.max(times.filter(pa.array(fates != Disposition.REJECTED))).as_py()
    ends = pc.min_max(times if len(accepted) == len(fates) else times.take(pa.array(accepted))).as_py()
    low, high = (None if ends[end] is None else Instant(ends[end]) for end in ("min", "max"))
    return Accounting(rows, 0, 0, None if latest is None else Instant(latest), low, high)


class KeyHashes:
    """Keys of some rows, and their hashes, which outputs with the same key have in common: each is hashed once."""

    def __init__(self) -> None:
        self._known: list[tuple[Sequence[pa.Array], Ints, Keys]] = []

    def of(self, columns: Sequence[pa.Array], rows: Ints, *, everything: bool) -> Keys:
        """The keys that ``rows`` have in ``columns``; ``everything``: they are all rows in order."""
        for known_columns, known_rows, keys in self._known:
            is_same = len(known_columns) == len(columns) and all(map(is_, known_columns, columns))
            if is_same and len(known_rows) == len(rows) and (known_rows == rows).all():
                return keys
        places = None if everything else pa.array(rows)
        keys = Keys([column if places is None else column.take(places) for column in columns], len(rows))
        self._known.append((columns, rows, keys))
        return keys


class _Bundle:
    """Accepted elements in their windows, on the way to a delta."""

    def __init__(
        self,
        stage: CompiledStage,
        judged: Columns,
        windows: Assigned,
        output_watermark: Instant,
        *,
        place: int,
        known: KeyHashes,
    ) -> None:
        self.stage, self.windows, self.behind, self.place = stage, windows, output_watermark, place
        everything = len(windows.row) == len(judged[c.EVENT_TIME]) and bool((np.diff(windows.row) == 1).all())
        self._rows = None if everything else pa.array(windows.row)
        self._judged, self._in_groups = judged, dict[str, pa.Array]()
        start, end = windows.start, windows.end
        if isinstance(stage.where, Sessions):
            # elements of one gap-aligned bucket are less than one gap apart, so they are one session already
            gap = int(stage.where.gap)
            at = as_numpy(self._own(c.EVENT_TIME))  # NULL where a record was rejected, and no window has that
            start = end = at // gap * gap
        keys = known.of([judged[name] for name in stage.keys], windows.row, everything=everything)
        self.keyed = keys.grouped(start, end)

    @cached_property
    def groups(self) -> Groups:
        """The elements of each group, which stand in order for what is not folded as they stand."""
        return self.keyed.groups

    @cached_property
    def _sizes(self) -> Ints:
        numbered = self.keyed.numbered
        return self.groups.sizes if numbered is None else numbered.arranged.sizes

    def delta(self) -> pa.RecordBatch:
        stage, keyed = self.stage, self.keyed
        columns = {c.HASH: pa.array(keyed.hashes), **dict(zip(stage.keys, keyed.keys, strict=True)), **self._extent()}
        columns[c.COUNT] = pa.array(self._sizes)
        columns |= {part.name: self._part(part) for part in stage.parts}
        columns |= {measure.name: self._measure(measure) for measure in stage.trigger.measures}
        columns |= self._stamps()
        if stage.stage.withdrawable:
            withdrawn = (as_numpy(self._arranged(c.SIGN)) < 0).astype(np.int64)
            columns[c.RETRACTED] = pa.array(self.groups.reduce(np.add, withdrawn, 0))
        return pa.RecordBatch.from_pydict(columns, schema=stage.delta_schema)

    def _own(self, name: str) -> pa.Array:
        """A column of the elements, as they stand."""
        return self._judged[name] if self._rows is None else self._judged[name].take(self._rows)

    def _arranged(self, name: str) -> pa.Array:
        if name not in self._in_groups:
            column, order = self._judged[name], self._order
            self._in_groups[name] = column if order is None else column.take(order)
        return self._in_groups[name]

    @cached_property
    def _order(self) -> pa.Array | None:
        """The judged rows by group; None: they stand so."""
        order = self.groups.order
        if order is None or self._rows is None:
            return self._rows if order is None else pa.array(order)
        return self._rows.take(pa.array(order))

    def _extent(self) -> dict[str, pa.Array]:
        """The window of each group; of a part of a session the span of its elements."""
        where = self.stage.where
        if isinstance(where, Sessions):
            first, last = self._ends_of_times()
            return {c.WINDOW_START: pa.array(first), c.WINDOW_END: pa.array(last + int(where.gap))}
        rows = self.keyed.rows
        return {c.WINDOW_START: pa.array(self.windows.start[rows]), c.WINDOW_END: pa.array(self.windows.end[rows])}

    def _ends_of_times(self) -> tuple[Ints, Ints]:
        """The first and the last event time of each group."""
        numbered = self.keyed.numbered
        if numbered is not None:
            at = as_numpy(self._own(c.EVENT_TIME))
            return numbered.reduce(np.minimum, at), numbered.reduce(np.maximum, at)
        at = as_numpy(self._arranged(c.EVENT_TIME))
        return self.groups.reduce(np.minimum, at, 0), self.groups.reduce(np.maximum, at, 0)

    def _part(self, part: AccumulatorPart) -> pa.Array:
        numbered = self.keyed.numbered
        if numbered is not None and not self.stage.stage.withdrawable:
            value = None if part.input is None else self._own(self.stage.input_column(part.input))
            folded = part.fold_numbered(value, numbered)
            if folded is not None:
                return folded
        at = self._arranged(c.EVENT_TIME)
        if isinstance(part, KeptPart):
            inputs = self.stage.kept_inputs
            present = pa.repeat(constant(True), len(at))
            kept = {"_": present, **{name: self._arranged(name) for name, _ in inputs}}
            if self.stage.keeps_times:
                kept[KEPT_AT] = at
            value = pa.StructArray.from_arrays(list(kept.values()), names=list(kept))
            return part.fold(Elements(value, at, None), self.groups)
        value = None if part.input is None else self._arranged(self.stage.input_column(part.input))
        sign = self._arranged(c.SIGN) if self.stage.stage.withdrawable else None
        return part.fold(Elements(value, at, sign), self.groups)

    def _measure(self, measure: Measure) -> pa.Array:
        if measure.input is None:
            at, record = self._arranged(c.EVENT_TIME), self._arranged(c.RECORD)
            value = pa.StructArray.from_arrays([at, record], names=[AT, RECORD])
        else:
            value = self._arranged(self.stage.input_column(measure.input))
        if measure.fold is not ColumnMerge.LIST:
            return fold(measure.fold, value, self.groups)
        if self.stage.merging:  # what merges is put in order again
            order = self.groups.order
            place = np.arange(len(value), dtype=np.int64) if order is None else order
            places = pa.array(self.windows.row[place] + self.place)
            value = pa.StructArray.from_arrays([places, value], names=[PLACE, LISTED])
        return to_lists(value, self.groups)

    def _stamps(self) -> dict[str, pa.Array]:
        """The timestamp that elements give their pane; those behind the output watermark give none (semantics 6.1,
        6.2).
        """
        stage = self.stage
        if not stage.stamps_elements:
            return {}
        if stage.stamps_merged:  # no window is the one that it will be
            return {c.TIMES: to_lists(self._arranged(c.EVENT_TIME), self.groups)}
        own = self.windows.stamp
        stamps = self._arranged(c.EVENT_TIME) if own is None else self.groups.arranged(pa.array(own))
        stamps = pc.add(stamps, constant(stage.output_shift))
        held = pc.if_else(pc.greater_equal(stamps, constant(int(self.behind))), stamps, pa.scalar(None, stamps.type))
        return {c.HELD: extreme_value(held, self.groups, latest=stage.how.timestamp is TimestampCombiner.LATEST)}
