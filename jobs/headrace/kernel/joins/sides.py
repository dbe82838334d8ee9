"""The two sides of a join as columns: what of records travels to it and is stored, and for how long it counts.

A row of a side has the hash of its key, its event time, its columns, and how often it is there. That is below zero
where it withdraws. Left rows are those that come, with their own columns. Right rows have their key, what comes along,
and what versions at one moment are told apart by.

The watermark of a join is that of the source. ``W`` has passed a left row once nothing that is on time could change
what it meets; it is late, and stands for good, once the lateness is over, too. A right row is late once every left row
that it could reach is (semantics 16.3 to 16.5).

Stored rows are in the order of (hash, event time), and found by both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.columns import Ints, arrow_type, as_numpy, is_nested, run_begins, true_mask
from headrace.kernel.delta import Accounting, Columns, Disposition, fates_of, reject_overflows
from headrace.kernel.expressions.evaluation import Overflow, column_apart
from headrace.kernel.keys import group_by_key, hash_keys
from headrace.kernel.windows import assign_windows
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import kind_of
from headrace.model.time import EARLIEST, LATEST, MAX_INSTANT, MIN_INSTANT, NEVER, Duration, Instant
from headrace.model.windows import WindowFn
from headrace.pipeline.joins import Join, joined_schema
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.this_process import Size

Words = NDArray[np.uint64]

SIDE: Final = "_side"
"""Which side a judged record is of: 0 is the left one, ``n`` the right one of the ``n``-th join."""

PLACE: Final = "_place"
"""At which of the places that its key is spread over a row is, where it is spread."""

ORDER: Final = "_order"
IS_DELETED: Final = "_deleted"

LONG_PART: Final = Size(1 << 8)
"""A part of so many values is searched by itself, if as many as ``SHARED_BY`` are looked up in it."""

SHARED_BY: Final = Size(1 << 6)

_LONG, _BOOL = pa.int64(), pa.bool_()


@dataclass(frozen=True)
class CompiledJoin:
    """The join with that ``number``, counted from 0, of rows with the columns ``left``, which may be withdrawn if it
    ``has_signed_left``. ``lateness`` None: nothing is ever late.
    """

    number: int
    join: Join
    left: Schema
    lateness: Duration | None
    has_signed_left: bool

    @property
    def condition(self) -> str:
        """What a dead letter says whose key cannot be computed."""
        return f"on of {self.join.made_by} {self.join.name}"

    @property
    def has_signed_right(self) -> bool:
        """Whether right rows can be withdrawn."""
        return self.join.right.source.changelog is not None

    @property
    def withdraws(self) -> bool:
        """Whether rows that left can be withdrawn again."""
        return self.has_signed_left or self.has_signed_right or self.join.withdraws

    @property
    def right(self) -> Schema:
        """The columns of the source on the right."""
        return self.join.right.source.columns

    @cached_property
    def left_columns(self) -> Schema:
        """What is kept of left rows: their columns, and what is computed of them to compare."""
        return {**self.left, **self.join.computed_types(self.left)}

    def with_computed(self, rows: Columns, length: int) -> tuple[dict[str, pa.Array], list[Overflow]]:
        """The columns of left rows with what is computed of them; and where that overflows."""
        columns, overflows = {name: rows[name] for name in self.left}, list[Overflow]()
        for name, expr in self.join.computed.items():
            columns[name], wrong = column_apart(expr, columns, self.left, length)
            overflows += wrong
        return columns, overflows

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of a left row that are its key as it travels: those of the join, and its place."""
        return (*self.join.on, *self._place)

    @cached_property
    def _place(self) -> dict[str, pa.DataType]:
        return {PLACE: _LONG} if self.join.spread > 1 else {}

    @cached_property
    def right_columns(self) -> Mapping[str, tuple[Expr, pa.DataType]]:
        """What is kept of right rows, by column: their key, what comes along, and what decides which of them counts."""
        exprs = {f"_k{number}": expr for number, expr in enumerate(self.join.on.values())}
        exprs |= {f"_c{number}": expr for number, expr in enumerate(self.join.columns.values())}
        exprs |= {} if self.join.order is None else {ORDER: self.join.order}
        exprs |= {} if self.join.deleted is None else {IS_DELETED: self.join.deleted}
        return {name: (expr, arrow_type(kind_of(expr, self.right))) for name, expr in exprs.items()}  # type: ignore[arg-type]

    @cached_property
    def right_keys(self) -> tuple[str, ...]:
        """The same of a right row, in the same order."""
        return (*(name for name in self.right_columns if name.startswith("_k")), *self._place)

    @cached_property
    def carried_columns(self) -> Mapping[str, str]:
        """What comes along: its name behind the join, by the column that it has on the right side."""
        return {f"_c{number}": name for number, name in enumerate(self.join.columns)}

    @cached_property
    def left_schema(self) -> pa.Schema:
        """A left row, as it travels and is stored."""
        columns = {name: arrow_type(kind) for name, kind in self.left_columns.items()}
        return _of_side({**columns, **self._place})

    @cached_property
    def right_schema(self) -> pa.Schema:
        """A right row, as it travels and is stored."""
        return _of_side({**{name: kind for name, (_, kind) in self.right_columns.items()}, **self._place})

    def left_rows(self, times: pa.Array, columns: Columns, signs: pa.Array) -> pa.RecordBatch:
        """Left rows with these ``columns``, each at the place of its digest: a withdrawal goes to where the row is."""
        side_columns = dict(columns)
        if self.join.spread > 1:
            # what is nested has no hash that stays; rows that differ in it alone are at one place
            plain = (columns[name] for name in self.left if not is_nested(columns[name].type))
            digests = hash_keys([times, *plain], len(times))
            side_columns[PLACE] = pa.array((digests % np.uint64(self.join.spread)).astype(np.int64))
        return side_rows(self.left_schema, self.keys, times, side_columns, signs)

    def right_rows(self, times: pa.Array, columns: Columns, signs: pa.Array) -> pa.RecordBatch:
        """Right rows with these ``columns``, at each place."""
        spread = self.join.spread
        if spread > 1:
            rows = pa.array(np.tile(np.arange(len(times)), spread))
            places = pa.array(np.repeat(np.arange(spread, dtype=np.int64), len(times)))
            columns = {**{name: columns[name].take(rows) for name in self.right_columns}, PLACE: places}
            times, signs = times.take(rows), signs.take(rows)
        return side_rows(self.right_schema, self.right_keys, times, columns, signs)

    @property
    def reach(self) -> int:
        """How far behind a left row's event time its interval ends, if that is later."""
        return max(0, int(self.join.end))

    def left_completion(self, times: Ints) -> Ints:
        """The watermark above which nothing that is on time changes what left rows at these times meet."""
        if self.join.window is not None:
            return self._window_bounds(self.join.window, times)[1] - 1
        return times + self.reach

    def right_completion(self, times: Ints) -> Ints:
        """The same of the last left row that right rows at these times could reach."""
        if self.join.window is not None:
            return self.left_completion(times)
        if self.join.begin is None:
            return np.full(len(times), int(NEVER))
        return times - int(self.join.begin) + self.reach

    def late_mask(self, completion_times: Ints, watermark: Instant) -> NDArray[np.bool_]:
        """Which rows, which are ``left_completion`` or ``right_completion`` so, are late at ``watermark``."""
        if self.lateness is None:
            return np.zeros(len(completion_times), np.bool_)
        is_late: NDArray[np.bool_] = completion_times + int(self.lateness) < int(watermark)
        return is_late

    def late_right(self, times: Ints, counts: Ints, watermark: Instant) -> NDArray[np.bool_]:
        """Which right rows at these times are late at ``watermark``. A withdrawal (``counts`` below zero) is late, too,
        if its version may have been let go.
        """
        return self.late_mask(self.right_completion(times), watermark) | (counts < 0) & (
            times < self.held_from(watermark)
        )

    def held_from(self, watermark: Instant) -> int:
        """The event time from which on versions can be withdrawn yet: of those before it the newest holds for good."""
        if self.join.by_arrival:
            return int(MAX_INSTANT)
        if not self.has_signed_right:
            return self.first_open(watermark) + 1
        first = self.first_open(watermark)
        return int(MIN_INSTANT) if self.join.history is None else max(int(MIN_INSTANT), first - int(self.join.history))

    def expiry_watermark(self, completion_times: Ints) -> Instant:
        """The watermark to exceed for all rows that are complete at ``completion_times`` to count no more."""
        if not len(completion_times):
            return MIN_INSTANT
        latest = int(completion_times.max())
        return NEVER if self.lateness is None or latest >= NEVER else Instant(latest + int(self.lateness))

    def first_open(self, watermark: Instant) -> int:
        """The least event time of a left row that is not late at ``watermark``."""
        if self.lateness is None or watermark <= MIN_INSTANT:
            return int(MIN_INSTANT)
        if watermark >= MAX_INSTANT:
            return int(MAX_INSTANT)
        instant = int(watermark) - int(self.lateness)
        if self.join.window is None:
            return instant - self.reach
        if instant <= EARLIEST:
            return int(MIN_INSTANT)
        return int(self._window_bounds(self.join.window, np.array([instant]))[0][0])

    def delayed_watermark(self, watermark: Instant) -> Instant:
        """The watermark of what comes out of it: that of the source, as far behind as a left row may wait; for windows
        no further than a left row that is not late, with the lateness of what takes it.
        """
        if self._is_beyond(watermark):
            return watermark
        if self.join.window is None:
            return Instant(int(watermark) - self.reach)
        start = int(self._window_bounds(self.join.window, np.array([int(watermark)]))[0][0])
        if not self.lateness or watermark - self.lateness <= EARLIEST:
            return Instant(start)
        return Instant(min(start, self.first_open(watermark) + int(self.lateness)))

    def awaited_watermark(self, watermark: Instant) -> Instant:
        """The least watermark of the source with which ``delayed_watermark`` comes to ``watermark`` or above it."""
        if self._is_beyond(watermark) or (self.join.window is not None and watermark >= LATEST):
            return watermark
        if self.join.window is None:
            return Instant(int(watermark) + self.reach)
        if not self.lateness or watermark - self.lateness <= EARLIEST:
            return Instant(self._first_start(self.join.window, int(watermark)))
        window_end = self._first_start(self.join.window, int(watermark) - int(self.lateness)) + int(self.lateness)
        return Instant(max(self._first_start(self.join.window, int(watermark)), window_end))

    def _first_start(self, window: WindowFn, moment: int) -> int:
        """When the first window begins that does not begin before ``moment``."""
        start, end = self._window_bounds(window, np.array([moment]))
        return int(start[0] if start[0] == moment else end[0])

    def _is_beyond(self, watermark: Instant) -> bool:
        """Whether a ``watermark`` is at an end of time, or before the years of event times, where no window waits."""
        return not (MIN_INSTANT if self.join.window is None else EARLIEST) < watermark < MAX_INSTANT

    def right_interval(self, times: Ints) -> tuple[Ints | None, Ints]:
        """The first and the last event time of right rows that left rows at these times may meet; None: any before."""
        if self.join.by_arrival:
            return None, self.version_times(times)
        if self.join.window is not None:
            start, end = self._window_bounds(self.join.window, times)
            return start, end - 1
        return None if self.join.begin is None else times + int(self.join.begin), times + int(self.join.end)

    def version_times(self, times: Ints) -> Ints:
        """Up to which time versions count for left rows at ``times``: of a lookup all that have come."""
        return np.full(len(times), int(MAX_INSTANT)) if self.join.by_arrival else times

    def left_interval(self, times: Ints) -> tuple[Ints, Ints]:
        """The first and the last event time of stored left rows that right rows at these times may be met by."""
        if self.join.by_arrival:  # none is stored: the first is after the last
            return np.full(len(times), int(MAX_INSTANT)), np.full(len(times), int(MIN_INSTANT))
        if self.join.window is not None:
            start, end = self._window_bounds(self.join.window, times)
            return start, end - 1
        begin = self.join.begin
        last = np.full(len(times), int(MAX_INSTANT)) if begin is None else times - int(begin)
        return times - int(self.join.end), last

    def _window_bounds(self, window: WindowFn, times: Ints) -> tuple[Ints, Ints]:
        windows = assign_windows(window, pa.array(times, pa.int64()), {}, {})
        return windows.start, windows.end


def _of_side(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([(c.HASH, pa.uint64()), (c.EVENT_TIME, _LONG), *columns.items(), (c.COUNT, _LONG)])


@dataclass(frozen=True)
class CompiledJoins:
    """The ``joins`` of a chain, one behind the other: records are judged for the side that their input is on."""

    joins: tuple[CompiledJoin, ...]
    record_keys: tuple[str, ...] = ()
    is_ordered: bool = False
    reads_size: bool = False

    def __len__(self) -> int:
        return len(self.joins)

    @property
    def withdraws(self) -> bool:
        """Whether rows that left can be withdrawn again."""
        return self.joins[-1].withdraws

    def delayed_watermark(self, watermark: Instant) -> Instant:
        """The watermark behind all of them, at that of the source."""
        for join in self.joins:
            watermark = join.delayed_watermark(watermark)
        return watermark

    def awaited_watermark(self, watermark: Instant) -> Instant:
        """The watermark of the source with which the one behind all of them comes to ``watermark``."""
        for join in reversed(self.joins):
            watermark = join.awaited_watermark(watermark)
        return watermark

    def watermark_of(self, side: int, watermark: Instant) -> Instant:
        """The watermark of the join which rows of a ``side`` come to first, at that of the source."""
        for join in self.joins[: max(side - 1, 0)]:
            watermark = join.delayed_watermark(watermark)
        return watermark

    def join_of(self, side: int) -> CompiledJoin:
        """The join which rows of a ``side`` come to first."""
        return self.joins[max(side - 1, 0)]

    def side_of(self, source: str) -> int:
        return next((join.number + 1 for join in self.joins if join.join.name == source), 0)

    def judge_records(self, source: str, rows: Columns, rejects: pa.Array, *, is_left: bool) -> dict[str, pa.Array]:
        """Judge records of the input ``source``: its side and columns, NULL in those of other sides.

        A right row whose key is NULL is not taken. Nor is a left one that nothing would come of, nor one of an input
        that others join. Dead letters have a reason (``rejects``, or an expression overflows).
        """
        return self._judge_rows(self.side_of(source), rows, rejects, is_left=is_left)

    def judge_panes(self, side: int, panes: Columns, rejects: pa.Array) -> dict[str, pa.Array]:
        """Judge ``panes`` of an output, which is on a ``side``, in the same way."""
        return self._judge_rows(side, panes, rejects, is_left=not side) | {c.SIGN: panes[c.SIGN]}

    def _judge_rows(self, side: int, rows: Columns, rejects: pa.Array, *, is_left: bool) -> dict[str, pa.Array]:
        length = len(rows[c.EVENT_TIME])
        columns: dict[str, pa.Array] = {}
        judged_rows: dict[str, pa.Array] = {SIDE: pa.array(np.full(length, side, np.int8))}
        if side:
            rejects, is_admitted = self._judge_right_rows(side, rows, rejects, columns)
        elif not is_left:
            is_admitted = np.zeros(length, np.bool_)
        else:
            first = self.joins[0]
            columns, overflows = first.with_computed(rows, length)
            rejects = reject_overflows(rejects, first.condition, overflows)
            is_admitted = np.ones(length, np.bool_)
            if not first.join.outer:
                is_admitted = has_key([columns[name] for name in first.join.on], length)
        judged_rows |= {c.REJECT: rejects, c.EVENT_TIME: rows[c.EVENT_TIME], c.IS_ADMITTED: pa.array(is_admitted)}
        nulls = _Nulls(length)
        return judged_rows | {
            name: columns[name] if name in columns else nulls.make_column(kind) for name, kind in self._kinds.items()
        }

    def _judge_right_rows(
        self, side: int, rows: Columns, rejects: pa.Array, columns: dict[str, pa.Array]
    ) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Right rows put into ``columns``; why some are dead letters, and which are taken."""
        join, length = self.join_of(side), len(rows[c.EVENT_TIME])
        for name, (expr, kind) in join.right_columns.items():
            values, overflows = column_apart(expr, rows, join.right, length)
            rejects = reject_overflows(rejects, f"{join.join.made_by} {join.join.name}", overflows)
            columns[_right_column_name(side, name)] = values if values.type == kind else values.cast(kind)
        keys = (name for name in join.right_keys if name != PLACE)
        is_admitted = has_key([columns[_right_column_name(side, name)] for name in keys], length)
        if join.join.where is not None:
            values, overflows = column_apart(join.join.where, rows, join.right, length)
            rejects = reject_overflows(rejects, f"where of {join.join.name}", overflows)
            is_admitted &= true_mask(values)
        return rejects, is_admitted

    @cached_property
    def _kinds(self) -> dict[str, pa.DataType]:
        kinds = {name: arrow_type(kind) for name, kind in self.joins[0].left_columns.items()}
        for join in self.joins:
            own = join.right_columns.items()
            kinds |= {_right_column_name(join.number + 1, name): kind for name, (_, kind) in own}
        return kinds

    def late_mask(self, judged_rows: Columns, watermark: Instant) -> NDArray[np.bool_]:
        """Which of ``judged_rows`` that would take part are late under the ``watermark`` that the last epoch left."""
        fates, side = fates_of(judged_rows), as_numpy(judged_rows[SIDE])
        is_late, ones = np.zeros(len(fates), np.bool_), np.ones(len(fates), np.int64)
        signs = as_numpy(judged_rows[c.SIGN]) if c.SIGN in judged_rows else ones
        for number in range(len(self.joins) + 1):
            rows = _slice_adjacent(np.flatnonzero((fates == Disposition.ACCEPTED) & (side == number)))
            times = as_numpy(_take_rows(judged_rows[c.EVENT_TIME], rows))
            if len(times):
                join, old_watermark = self.join_of(number), self.watermark_of(number, watermark)
                if number:
                    is_late[rows] = join.late_right(times, signs[rows], old_watermark)
                else:
                    is_late[rows] = join.late_mask(join.left_completion(times), old_watermark)
        return is_late

    def rows_of(self, judged_rows: Columns, is_taken: NDArray[np.bool_]) -> dict[int, pa.RecordBatch]:
        """The rows of each side among those of ``judged_rows`` that ``is_taken`` marks."""
        side = as_numpy(judged_rows[SIDE])
        rows: dict[int, pa.RecordBatch] = {}
        for number in range(len(self.joins) + 1):
            places = _slice_adjacent(np.flatnonzero(is_taken & (side == number)))
            times = _take_rows(judged_rows[c.EVENT_TIME], places)
            if not len(times):
                continue
            join = self.join_of(number)
            names = join.right_columns if number else join.left_columns
            own = {
                name: _take_rows(judged_rows[_right_column_name(number, name) if number else name], places)
                for name in names
            }
            signs = judged_rows.get(c.SIGN)
            sign = pa.array(np.ones(len(times), np.int64)) if signs is None else _take_rows(signs, places)
            of_side = join.right_rows if number else join.left_rows
            rows[number] = of_side(times, own, sign)
        return rows


def _slice_adjacent(places: Ints) -> Ints | slice:
    """``places``, which ascend, as a slice if they follow one another: its rows are no copy."""
    first, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    return slice(first, end) if end - first == len(places) else places


def _take_rows(column: pa.Array, places: Ints | slice) -> pa.Array:
    return column[places] if isinstance(places, slice) else column.take(pa.array(places))


class _Nulls:
    """Columns of ``length`` rows that are all NULL. Columns of one width share their memory: each is as long as the
    rows of the side that another one is on.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._buffers_by_width: dict[int, list[pa.Buffer]] = {}

    def make_column(self, kind: pa.DataType) -> pa.Array:
        if not pa.types.is_primitive(kind):
            return pa.nulls(self._length, kind)
        if kind.bit_width not in self._buffers_by_width:
            self._buffers_by_width[kind.bit_width] = pa.nulls(self._length, kind).buffers()
        return pa.Array.from_buffers(kind, self._length, self._buffers_by_width[kind.bit_width], self._length)


def _right_column_name(side: int, name: str) -> str:
    """What a column of a right row is called beside those of other sides."""
    return f"_r{side}{name}"


def side_rows(
    schema: pa.Schema, keys: Sequence[str], times: pa.Array, columns: Columns, counts: pa.Array
) -> pa.RecordBatch:
    """Rows of a side, with the hashes of their ``keys``."""
    hashes = pa.array(hash_keys([columns[name] for name in keys], len(times)))
    return pa.RecordBatch.from_arrays(
        [hashes, times, *(columns[name] for name in schema.names[2:-1]), counts], schema=schema
    )


def in_epoch(rows: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """Right ``rows`` of a lookup, whose times are the numbers of epochs: clocks may stand still, and numbers ascend."""
    place = rows.schema.get_field_index(c.EVENT_TIME)
    return rows.set_column(place, rows.schema.field(place), pa.array(np.full(rows.num_rows, epoch, np.int64)))


def has_key(columns: Sequence[pa.Array], length: int) -> NDArray[np.bool_]:
    """Which rows have all ``columns`` of a key: others meet nothing."""
    has = np.ones(length, np.bool_)
    for column in columns:
        if column.null_count:
            has &= as_numpy(column.is_valid())
    return has


def account_of_sides(judged_rows: Columns, late: NDArray[np.bool_]) -> Accounting:
    """What became of ``judged_rows``, of which some are ``late``."""
    fates = fates_of(judged_rows)
    is_rejected = fates == Disposition.REJECTED
    withdrawn = as_numpy(judged_rows[c.SIGN]) < 0 if c.SIGN in judged_rows else np.zeros(len(fates), np.bool_)
    fates[late & ~withdrawn], fates[late & withdrawn] = Disposition.LATE, Disposition.LATE_RETRACTION
    rows = {Disposition(code): int(number) for code, number in enumerate(np.bincount(fates)) if number}
    times = judged_rows[c.EVENT_TIME]
    latest = pc.max(times.filter(pa.array(~is_rejected))).as_py()
    ends = pc.min_max(times.filter(pa.array(fates == Disposition.ACCEPTED))).as_py()
    low, high = (None if ends[end] is None else Instant(ends[end]) for end in ("min", "max"))
    return Accounting(
        rows,
        int((late & ~withdrawn).sum()),
        int((late & withdrawn).sum()),
        None if latest is None else Instant(latest),
        low,
        high,
    )


def compile_joins(pipeline: Pipeline) -> CompiledJoins:
    """The joins of ``pipeline``, which has one output."""
    joins: list[CompiledJoin] = []
    is_signed = pipeline.has_signed_left
    for number, (join, lateness) in enumerate(zip(pipeline.join, pipeline.latenesses, strict=True)):
        left = joined_schema(pipeline.join[:number], pipeline.left_schema)
        joins.append(CompiledJoin(number, join, left, lateness, is_signed))
        # what leaves a join is the left side of the next one
        is_signed = joins[-1].withdraws
    return CompiledJoins(tuple(joins))


class SideFile(Protocol):
    """Rows of a side in the order of (hash, event time)."""

    @property
    def hashes(self) -> Words:
        """The hash of each row."""

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows."""


SidePlace = tuple[np.uint64, np.int64]


@dataclass(frozen=True)
class Times:
    """Times of rows of some keys, each from ``first`` to ``last``; times of one hash do not overlap."""

    hashes: Words
    first: Ints
    last: Ints

    @classmethod
    def from_overlapping(cls, hashes: Words, first: Ints, last: Ints) -> "Times":
        """Makes one of those that overlap."""
        is_nonempty = first <= last
        if not is_nonempty.all():
            hashes, first, last = hashes[is_nonempty], first[is_nonempty], last[is_nonempty]
        order = group_by_key(hashes, (), first).order
        if order is not None:
            hashes, first, last = hashes[order], first[order], last[order]
        if not len(hashes):
            return cls(hashes, first, last)
        begins = run_begins(hashes)
        ascend = (last[1:] >= last[:-1]) | begins[1:]
        greatest_so_far = last if ascend.all() else _running_greatest(last, np.cumsum(begins))
        begins[1:] |= first[1:] > greatest_so_far[:-1]
        starts = np.flatnonzero(begins)
        return cls(hashes[starts], first[starts], np.maximum.reduceat(last, starts))

    def keys_between(self, begin: "SidePlace | None", end: "SidePlace | None") -> "Times":
        """The keys from ``begin`` to before ``end``, places in the order of (hash, time); None: no such bound."""
        low = 0 if begin is None else int(np.searchsorted(self.hashes, begin[0], "left"))
        high = len(self.hashes) if end is None else int(np.searchsorted(self.hashes, end[0], "right"))
        hashes, first, last = self.hashes[low:high], self.first[low:high], self.last[low:high]
        if begin is not None:
            first = np.where(hashes == begin[0], np.maximum(first, begin[1]), first)
        if end is not None:
            last = np.where(hashes == end[0], np.minimum(last, end[1] - 1), last)
        is_nonempty = first <= last
        return Times(hashes[is_nonempty], first[is_nonempty], last[is_nonempty])


def _running_greatest(values: Ints, group: Ints) -> Ints:
    """The greatest of ``values`` so far in each group, which stand one behind the other."""
    # each group's ranks are lifted above those of the groups before it, so that one pass serves all of them
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    greatest_ranks = np.maximum.accumulate(group * len(values) + ranks) - group * len(values)
    ascending = np.sort(values, kind="stable")
    greatest: Ints = ascending[greatest_ranks]
    return greatest


def in_order(hashes: Words, times: Ints) -> Ints:
    """The places of rows in the order of (hash, time, row)."""
    order = group_by_key(hashes, (), times).order
    return np.arange(len(hashes)) if order is None else order


def find_times(file: SideFile, times: Times) -> pa.RecordBatch:
    """The rows of a ``file`` at some ``times``."""
    return file.rows.take(pa.array(expand_ranges(*locate_times(file, times))))


def locate_times(file: SideFile, times: Times) -> tuple[Ints, Ints]:
    """From which row of a ``file`` to before which each of some ``times`` reaches."""
    begin, end = _span_of_keys(file, times.hashes)
    values = as_numpy(file.rows.column(c.EVENT_TIME))
    first = search_within(values, begin, end, times.first, is_after=False)
    return first, search_within(values, begin, end, times.last, is_after=True)


def count_most_rows(files: Sequence[SideFile], times: Times) -> int:
    """How many rows of ``files`` are at some ``times``."""
    spans = (locate_times(file, times) for file in files)
    return sum(int((end - first).sum()) for first, end in spans)


def find_versions(file: SideFile, times: Times, most: Ints) -> tuple[pa.RecordBatch, Ints]:
    """The rows of a ``file`` at some ``times``, and before each at ``most`` so many, the newest; and for each the time
    of the oldest of these, where there are older ones.
    """
    begin, end = _span_of_keys(file, times.hashes)
    values = as_numpy(file.rows.column(c.EVENT_TIME))
    first = np.maximum(begin, search_within(values, begin, end, times.first, is_after=False) - most)
    last = search_within(values, begin, end, times.last, is_after=True)
    bound = np.full(len(begin), int(MIN_INSTANT))
    cut = np.flatnonzero(first > begin)
    bound[cut] = values[first[cut]]
    return file.rows.take(pa.array(expand_ranges(first, last))), bound


def _span_of_keys(file: SideFile, hashes: Words) -> tuple[Ints, Ints]:
    begin, end = (np.searchsorted(file.hashes, hashes, side) for side in ("left", "right"))
    return begin.astype(np.int64), end.astype(np.int64)


def _find_long_parts(begin: Ints, end: Ints) -> Iterator[Ints]:
    """The rows of each long part that many share, as those of a key do that half of all rows have."""
    long_rows = np.flatnonzero(end - begin >= LONG_PART.value)
    if len(long_rows) < SHARED_BY.value:
        return
    long_rows = long_rows[np.argsort(begin[long_rows], kind="stable")]
    starts = np.flatnonzero(run_begins(begin[long_rows]) | run_begins(end[long_rows]))
    stops = np.append(starts[1:], len(long_rows))
    for number in np.flatnonzero(stops - starts >= SHARED_BY.value).tolist():
        yield long_rows[starts[number] : stops[number]]


def search_within(values: Ints, begin: Ints, end: Ints, targets: Ints, *, is_after: bool) -> Ints:
    """Where each of ``targets`` belongs in a part of ascending ``values``: before equal ones, or ``is_after`` them."""
    # numpy searches one ascending array, and here each part ascends for itself
    low, high = begin.copy(), end.copy()
    for rows in _find_long_parts(begin, end):
        part = slice(int(begin[rows[0]]), int(end[rows[0]]))
        low[rows] = part.start + np.searchsorted(values[part], targets[rows], "right" if is_after else "left")
        high[rows] = low[rows]
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        values_at_middle = values[middle]
        is_before = values_at_middle <= targets[open_] if is_after else values_at_middle < targets[open_]
        low[open_[is_before]] = middle[is_before] + 1
        high[open_[~is_before]] = middle[~is_before]
        open_ = open_[low[open_] < high[open_]]
    return low


def expand_ranges(first: Ints, ends: Ints) -> Ints:
    """The places from each ``first`` to before its ``ends``, one range behind the other."""
    sizes = np.maximum(ends - first, 0)
    begins = np.cumsum(sizes) - sizes
    places: Ints = np.repeat(first - begins, sizes)
    places += np.arange(len(places))
    return places
