"""One epoch of one join: what may change is matched as it was and as it is, and the difference leaves.

``step_join`` is a pure function of Arrow tables. Its cost is in what is affected: the left rows of the epoch, and those
that right rows of the epoch reach; on the right side, what these may meet. A key is never read whole: stored rows are
in the order of (hash, event time), and found by both.

Its result comes in pieces, so memory does not grow with the rows of a key, nor with what they meet. Left rows are
computed some at a time, in the order of (hash, event time), each lot with the right rows that it may meet; what leaves
of a lot is cut again.

Where rows of neither side can be withdrawn, equal ones need not be told from each other: what each gives adds up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import code_values, to_comparable
from headrace.kernel.columns import Ints, arrow_type, as_numpy, run_begins, true_mask, valid_mask
from headrace.kernel.joins import sides
from headrace.kernel.keys import group_by_key, hash_keys, is_shared
from headrace.model.expressions.data_types import DataType
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.joins import Meets
from headrace.program import columns as c
from headrace.this_process import Size

Flags = NDArray[np.bool_]

ANCHOR_ROWS: Final = Size(4)
"""So many rows before the first one that is asked for are read of each file at first, to find the version that held."""

LEFT_ROWS: Final = Size(1 << 16)
"""So many left rows are computed at a time, about."""

RIGHT_ROWS: Final = Size(1 << 18)
"""So many right rows are looked up at a time, unless rows of one key and moment alone may meet more."""

PIECE_ROWS: Final = Size(1 << 17)
"""So many rows leave at a time."""

SAMPLES: Final = Size(32)
"""Rows by which a lot of left rows is measured, in all files together."""


@dataclass(frozen=True)
class JoinResult:
    """A piece of what an epoch did to a part of a join. ``elements``: rows that leave, with the columns of both sides,
    their event time and sign; None: none do. ``left`` and ``right``: what is added to the tables, None: nothing. One
    piece below the other they are in the order of (hash, event time).
    """

    elements: pa.RecordBatch | None = None
    left: pa.RecordBatch | None = None
    right: pa.RecordBatch | None = None


def step_join(
    join: sides.CompiledJoin,
    files: tuple[Sequence[sides.SideFile], Sequence[sides.SideFile]],
    delta: tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]],
    watermark: Instant,
    output_watermark: Instant,
) -> Iterator[JoinResult]:
    """One epoch of ``join``, whose left and right rows so far are in ``files``; ``delta`` are the pieces of those that
    come, none of them late. ``watermark`` is that which the last epoch left, ``output_watermark`` the one that this
    leaves: rows that count no more then are not kept. A piece that is let go takes no memory while the next one is
    computed. Nor do those of ``delta`` once the first one is asked for, unless somebody else holds them.
    """
    left_pieces, right_pieces = delta
    del delta
    left = _SortedRows.from_pieces(join.left_schema, left_pieces)
    del left_pieces
    right = _SortedRows.from_pieces(join.right_schema, right_pieces)
    del right_pieces
    epoch = _Epoch(join, files, left, right, join.first_open(watermark))
    for elements in epoch.emitted_changes():
        yield JoinResult(elements)
        # a name for the piece would keep it in memory while the next one is computed
        del elements
    for rows in kept_rows(join, left.rows, output_watermark, is_left=True):
        yield JoinResult(left=rows)
    for rows in kept_rows(join, right.rows, output_watermark, is_left=False):
        yield JoinResult(right=rows)


def kept_rows(
    join: sides.CompiledJoin, rows: pa.RecordBatch, watermark: Instant, *, is_left: bool
) -> Iterator[pa.RecordBatch]:
    """Rows of one side that count at ``watermark``, of ``rows`` in the order of (hash, event time)."""
    if is_left and join.join.by_arrival:
        return
    times = as_numpy(rows.column(c.EVENT_TIME))
    counts = ~join.late_mask(join.left_completion(times) if is_left else join.right_completion(times), watermark)
    for start in range(0, len(counts) if counts.any() else 0, PIECE_ROWS.value):
        piece = counts[start : start + PIECE_ROWS.value]
        kept_slice = rows.slice(start, PIECE_ROWS.value)
        yield kept_slice if piece.all() else kept_slice.filter(pa.array(piece))


@dataclass(frozen=True)
class _SortedRows:
    """Rows that come, in the order of (hash, event time), as a file has them."""

    rows: pa.RecordBatch
    hashes: sides.Words

    @classmethod
    def from_pieces(cls, schema: pa.Schema, pieces: Sequence[pa.RecordBatch]) -> "_SortedRows":
        """Puts the rows of ``pieces`` in order, column by column: nothing but one column is there three times."""
        nothing = pa.RecordBatch.from_pylist([], schema=schema)

        def join_column(name: str) -> pa.Array:
            return pa.concat_arrays([rows.column(name) for rows in (nothing, *pieces)])

        order = pa.array(sides.in_order(as_numpy(join_column(c.HASH)), as_numpy(join_column(c.EVENT_TIME))))
        rows = pa.RecordBatch.from_arrays([join_column(name).take(order) for name in schema.names], schema=schema)
        return cls(rows, as_numpy(rows.column(c.HASH)))

    def rows_between(self, begin: sides.SidePlace | None, end: sides.SidePlace | None) -> pa.RecordBatch:
        """The rows from ``begin`` to before ``end``, places in their order; None: no such bound."""
        first = 0 if begin is None else self._place(begin)
        return self.rows.slice(first, (len(self.hashes) if end is None else self._place(end)) - first)

    def _place(self, place: sides.SidePlace) -> int:
        low, high = (np.searchsorted(self.hashes, place[0], side) for side in ("left", "right"))
        times = as_numpy(self.rows.column(c.EVENT_TIME))[low:high]
        return int(low) + int(np.searchsorted(times, place[1], "left"))


LEFT_ROW: Final = "_left_row"
MET_AT: Final = "_met_at"


@dataclass(frozen=True)
class _TracedJoin(sides.CompiledJoin):
    """A join whose right rows bring their event time along."""

    @cached_property
    def carried_columns(self) -> Mapping[str, str]:
        return {**{f"_c{number}": name for number, name in enumerate(self.join.columns)}, c.EVENT_TIME: MET_AT}


def find_partners(join: sides.CompiledJoin, left: pa.RecordBatch, right: Sequence[sides.SideFile]) -> pa.RecordBatch:
    """What some ``left`` rows meet of the rows in files of the ``right`` side. There is a row for each pair: the place
    of the left row (``LEFT_ROW``), what comes along, and the right row's event time (``MET_AT``). A left row that meets
    nothing has a row only if the join is outer, without such a time.
    """
    traced_join = _TracedJoin(
        join.number, join.join, {**join.left, LEFT_ROW: DataType.INT}, None, has_signed_left=False
    )
    places = pa.array(np.arange(left.num_rows))
    numbered_columns = {**{name: left.column(name) for name in left.schema.names}, LEFT_ROW: places}
    rows = pa.RecordBatch.from_arrays(
        [numbered_columns[name] for name in traced_join.left_schema.names], schema=traced_join.left_schema
    )
    # the left rows come as new ones and the right rows stay as they are, so what leaves is exactly what they meet
    epoch = _Epoch(
        traced_join,
        ((), right),
        _SortedRows.from_pieces(traced_join.left_schema, [rows]),
        _SortedRows.from_pieces(join.right_schema, []),
        int(MIN_INSTANT),
    )
    return pa.concat_batches([_no_elements(traced_join), *epoch.emitted_changes()])


def _no_elements(join: sides.CompiledJoin) -> pa.RecordBatch:
    columns = {name: arrow_type(kind) for name, kind in join.left.items()}
    columns |= {name: join.right_schema.field(column).type for column, name in join.carried_columns.items()}
    return pa.RecordBatch.from_pylist([], schema=pa.schema({**columns, c.EVENT_TIME: pa.int64(), c.SIGN: pa.int64()}))


@dataclass(frozen=True)
class _Side:
    """Rows of a side, and how often each was there: ``counts_before`` the epoch and ``counts_after`` it."""

    rows: pa.RecordBatch
    counts_before: Ints
    counts_after: Ints

    @classmethod
    def from_stored(cls, stored_rows: Sequence[pa.RecordBatch], delta: pa.RecordBatch, *, is_signed: bool) -> "_Side":
        """The ``stored_rows`` and those that come. Where none ``is_signed`` equal ones stay apart."""
        rows = pa.concat_batches([*stored_rows, delta])
        counts = as_numpy(rows.column(c.COUNT))
        is_old = np.arange(rows.num_rows) < rows.num_rows - delta.num_rows
        counts_before, counts_after = np.where(is_old, counts, 0), counts
        if not is_signed:
            return cls(rows, counts_before, counts_after)
        columns = [to_comparable(rows.column(name)) for name in rows.schema.names if name not in (c.HASH, c.COUNT)]
        groups = group_by_key(hash_keys(columns, rows.num_rows), columns)
        order = slice(None) if groups.order is None else groups.order
        sums = [groups.reduce(np.add, values[order], 0) for values in (counts_before, counts_after)]
        return cls(rows.take(pa.array(groups.first_rows)), *(np.maximum(total, 0) for total in sums))

    @property
    def hashes(self) -> sides.Words:
        values: sides.Words = as_numpy(self.rows.column(c.HASH))
        return values

    @property
    def times(self) -> Ints:
        values: Ints = as_numpy(self.rows.column(c.EVENT_TIME))
        return values


class _Epoch:
    """An epoch of a part of a join. ``first_open``: left rows before it stand for good."""

    def __init__(
        self,
        join: sides.CompiledJoin,
        files: tuple[Sequence[sides.SideFile], Sequence[sides.SideFile]],
        left: _SortedRows,
        right: _SortedRows,
        first_open: int,
    ) -> None:
        self.join, (self.left_files, self.right_files) = join, files
        self.left_delta, self.right_delta = left, right
        self.affected_left = self._affected_left_rows(first_open)

    def _affected_left_rows(self, first_open: int) -> sides.Times:
        """When stored left rows are that right rows of the epoch reach, and those that left ones may withdraw."""
        if not any(file.rows.num_rows for file in self.left_files):
            return sides.Times(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))
        hashes, times = self.right_delta.hashes, as_numpy(self.right_delta.rows.column(c.EVENT_TIME))
        first, last = self.join.left_interval(times)
        parts = [(hashes, np.maximum(first, first_open), last)]
        if self.join.has_signed_left:
            own = as_numpy(self.left_delta.rows.column(c.EVENT_TIME))
            parts.append((self.left_delta.hashes, own, own))
        return sides.Times.from_overlapping(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def emitted_changes(self) -> Iterator[pa.RecordBatch]:
        """The rows that leave: what left rows meet now, without what they met before."""
        bounds = [None, *self._bounds(), None]
        for begin, end in pairwise(bounds):
            affected_times = self.affected_left.keys_between(begin, end)
            files = self.left_files if len(affected_times.hashes) else ()
            stored_rows = [sides.find_times(file, affected_times) for file in files]
            for left in self._lots(stored_rows, self.left_delta.rows_between(begin, end)):
                yield from self._find_matches(left).difference()

    def _bounds(self) -> list[sides.SidePlace]:
        """Places in the order of (hash, event time) that cut the left rows into lots of about ``LEFT_ROWS``."""
        files = self.left_files if len(self.affected_left.hashes) else ()
        spans = [sides.locate_times(file, self.affected_left) for file in files]
        total = len(self.left_delta.hashes) + sum(int((end - first).sum()) for first, end in spans)
        if total <= LEFT_ROWS.value:
            return []
        step = max(LEFT_ROWS.value // SAMPLES.value, 1)
        samples = [_hashes_and_times(self.left_delta, np.arange(step - 1, len(self.left_delta.hashes), step))]
        # where nothing that is stored is affected, no file was asked and there are no spans
        for file, (first, end) in zip(self.left_files, spans, strict=bool(spans)):
            samples.append(_hashes_and_times(file, _every(first, end, step)))
        hashes, times = (np.concatenate(columns) for columns in zip(*samples, strict=True))
        # a sample stands for ``step`` rows, so every so many-th one ends a lot
        order = np.lexsort([times, hashes])[SAMPLES.value - 1 :: SAMPLES.value]
        return [(hashes[place], times[place]) for place in order]

    def _lots(self, stored_rows: Sequence[pa.RecordBatch], delta: pa.RecordBatch) -> Iterator[_Side]:
        """Left rows of some times, in lots of which none may meet more right rows than about ``RIGHT_ROWS``."""
        # where what they met can go, equal rows are one: what an old one loses a new one may gain
        is_signed = self.join.has_signed_left or self.join.has_signed_right
        rows = pa.concat_batches([*stored_rows, delta])
        lots = [(rows, rows.num_rows - delta.num_rows)] if rows.num_rows else []
        while lots:
            rows, old = lots.pop()
            halves = self._halves(rows, old)
            if halves is None:
                yield _Side.from_stored([rows.slice(0, old)], rows.slice(old), is_signed=is_signed)
                continue
            # the first half is pushed last, so it is popped next, and lots come in the order of (hash, event time)
            lots += [(rows.filter(pa.array(half)), int(half[:old].sum())) for half in (~halves, halves)]

    def _halves(self, left: pa.RecordBatch, old: int) -> Flags | None:
        """Which of the ``left`` rows are in the first half by (hash, event time); None if they may meet few enough
        together, or are of one key and moment. The first ones are ``old``.
        """
        hashes, times = (as_numpy(left.column(name)) for name in (c.HASH, c.EVENT_TIME))
        if self._count_near_rows(hashes) <= RIGHT_ROWS.value:  # whatever their keys and times
            return None
        first, last = self.join.right_interval(times)
        if first is None:
            keys = _each_key(hashes, self.join.version_times(times))
            partners = sides.count_most_rows([*self.right_files, self.right_delta], keys)
        else:
            partners = sides.count_most_rows([self.right_delta], sides.Times.from_overlapping(hashes, first, last))
            # an old left row that stays meets only right rows that come or go; stored ones count for the new left rows
            needed_rows = slice(old if self._is_of_changes and not self.join.has_signed_left else 0, None)
            partners += sides.count_most_rows(
                self.right_files,
                sides.Times.from_overlapping(hashes[needed_rows], first[needed_rows], last[needed_rows]),
            )
        if partners <= RIGHT_ROWS.value:
            return None
        order = sides.in_order(hashes, times)
        middle = order[len(order) // 2]
        halves: Flags = (hashes < hashes[middle]) | ((hashes == hashes[middle]) & (times < times[middle]))
        if not halves.any():  # it stands among the first ones
            halves = (hashes == hashes[middle]) & (times == times[middle])
        return None if halves.all() else halves

    def _count_near_rows(self, hashes: sides.Words) -> int:
        """How many right rows have a hash between the least and the greatest of ``hashes``."""
        low, high = hashes.min(), hashes.max()
        ends = (
            (np.searchsorted(file.hashes, low, "left"), np.searchsorted(file.hashes, high, "right"))
            for file in (*self.right_files, self.right_delta)
        )
        return sum(int(end) - int(begin) for begin, end in ends)

    @property
    def _is_of_changes(self) -> bool:
        """Whether a left row that stays needs to know only those right rows that come or go."""
        return self.join.join.meets is Meets.ALL and not self.join.join.outer

    def _find_matches(self, left: _Side) -> "_Matches":
        """Left rows with the right rows that they may meet."""
        hashes, times = left.hashes, left.times
        first, last = self.join.right_interval(times)
        if first is None:
            return self._find_versions(left)
        new = sides.find_times(self.right_delta, sides.Times.from_overlapping(hashes, first, last))
        needs = left.counts_before != left.counts_after if self._is_of_changes else np.ones(len(hashes), np.bool_)
        parts = [(hashes[needs], first[needs], last[needs])]
        if self.join.has_signed_right:
            # a withdrawal among the new rows is added up with the stored row that it withdraws
            own = as_numpy(new.column(c.EVENT_TIME))
            parts.append((as_numpy(new.column(c.HASH)), own, own))
        wanted_times = sides.Times.from_overlapping(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return self._with_right(left, [sides.find_times(file, wanted_times) for file in self.right_files], new)

    def _with_right(self, left: _Side, stored_rows: Sequence[pa.RecordBatch], new: pa.RecordBatch) -> "_Matches":
        right = _Side.from_stored(stored_rows, new, is_signed=self.join.has_signed_right)
        return _Matches(self.join, left, right)

    def _find_versions(self, left: _Side) -> "_Matches":
        """Versions at the times of left rows, and of each key the one that held before. Older ones are read until it is
        found: some have been withdrawn, and another key may have the same hash.
        """
        wanted_keys = _each_key(left.hashes, self.join.version_times(left.times))
        place = np.searchsorted(wanted_keys.hashes, left.hashes)
        most = np.full(len(wanted_keys.hashes), ANCHOR_ROWS.value)
        while True:
            versions = [sides.find_versions(file, wanted_keys, most) for file in (*self.right_files, self.right_delta)]
            *stored_rows, new = (rows for rows, _ in versions)
            *stored_bounds, bound_after = (bound for _, bound in versions)
            # what comes was not there before: whatever of it was not read, rows then met stored ones
            bound_before = np.maximum.reduce([*stored_bounds, np.full(len(most), int(MIN_INSTANT))])
            bounds = bound_before[place], np.maximum(bound_before, bound_after)[place]
            matches = self._with_right(left, stored_rows, new)
            is_unsettled = matches.unsettled_left_rows(*bounds)
            if not is_unsettled.any():
                return matches
            # several times as many at once: a key whose newest rows were all withdrawn is found in few rounds
            most[np.unique(place[is_unsettled])] *= ANCHOR_ROWS.value


def _hashes_and_times(file: sides.SideFile, rows: Ints) -> tuple[sides.Words, Ints]:
    """Where some ``rows`` of a ``file`` are in the order of (hash, event time)."""
    times: Ints = as_numpy(file.rows.column(c.EVENT_TIME))
    return file.hashes[rows], times[rows]


def _every(first: Ints, end: Ints, step: int) -> Ints:
    """Every ``step``-th of the places in some ranges, one range behind the other."""
    ends: Ints = np.cumsum(end - first)
    numbers: Ints = np.arange(step - 1, int(ends[-1]) if len(ends) else 0, step, dtype=np.int64)
    places = np.searchsorted(ends, numbers, "right")
    every: Ints = end[places] - (ends[places] - numbers)
    return every


def _each_key(hashes: sides.Words, times: Ints) -> sides.Times:
    """From the first to the last of the ``times`` of each hash."""
    groups = group_by_key(hashes, ())
    ordered_times = times if groups.order is None else times[groups.order]
    keys = hashes[groups.first_rows]
    order = np.argsort(keys)
    first, last = (groups.reduce(end, ordered_times, 0)[order] for end in (np.minimum, np.maximum))
    return sides.Times(keys[order], first, last)


class _Matches:
    """Left rows and the right rows that each may meet. These go from ``first`` to before ``end`` in the ``order`` of
    right rows by (key, time, which of them counts).
    """

    def __init__(self, join: sides.CompiledJoin, left: _Side, right: _Side) -> None:
        self.join, self.left, self.right = join, left, right
        self.is_deleted = true_mask(right.rows.column(sides.IS_DELETED)) if join.join.deleted is not None else None
        keys = [left.rows.column(name) for name in join.keys]
        self.has_key = np.ones(left.rows.num_rows, np.bool_)
        for column in keys:
            if column.null_count:
                self.has_key &= valid_mask(column)
        others = [right.rows.column(name) for name in join.right_keys]
        order, begin, end = _order_by_word(left.hashes, right.hashes, right.times)
        # the hash stands for the key, unless two keys share one: then all keys get numbers of their own
        codes = right.hashes
        if _are_mixed(keys, others, right.hashes, (order, begin, end)):
            both = [pa.concat_arrays(pair) for pair in zip(keys, others, strict=True)]
            words = group_by_key(np.concatenate([left.hashes, right.hashes]), both).of_each.astype(np.uint64)
            of_left, codes = np.split(words, [len(left.hashes)])
            order, begin, end = _order_by_word(of_left, codes, right.times)
        self.order = self._settle_ties(order, codes, right.times)
        self.times = right.times[self.order]
        # a key with NULL meets nothing: its range is empty
        end = np.where(self.has_key, end, begin)
        first, last = join.right_interval(left.times)
        self.first = begin if first is None else sides.search_within(self.times, begin, end, first, is_after=False)
        self.end = sides.search_within(self.times, begin, end, last, is_after=True)

    def _settle_ties(self, order: Ints, codes: sides.Words, times: Ints) -> Ints:
        """``order`` with right rows of one key and moment in the order in which they count; none where all count."""
        if self.join.join.meets is Meets.ALL or not len(order):
            return order
        ordered_codes, ordered_times = codes[order], times[order]
        same = np.concatenate(
            [[False], (ordered_codes[1:] == ordered_codes[:-1]) & (ordered_times[1:] == ordered_times[:-1])]
        )
        if not same.any():
            return order
        is_tied = same | np.append(same[1:], False)
        tied = order[is_tied]
        order = order.copy()
        # ranks compare values, which is dear, so only rows that are tied get some
        order[is_tied] = tied[np.lexsort((*self._tie_ranks(tied), times[tied], codes[tied]))]
        return order

    def _tie_ranks(self, rows: Ints) -> list[Ints]:
        """By what ``rows`` of one moment are in order, the least first: what comes along, deleted, the order."""
        places = pa.array(rows)
        of_row = self.right.rows
        # lexsort goes by its last key first: the order decides, then what is deleted, then what comes along
        ranks = [_rank_values(of_row.column(name).take(places)) for name in self.join.carried_columns][::-1]
        ranks += [] if self.is_deleted is None else [self.is_deleted[rows].astype(np.int64)]
        if self.join.join.order is not None:
            ranks.append(_rank_values(of_row.column(sides.ORDER).take(places)))
        return ranks

    def difference(self) -> Iterator[pa.RecordBatch]:
        """The rows that leave: what left rows meet now, without what they met before; ``PIECE_ROWS`` at a time."""
        if self.join.join.meets is Meets.ALL:
            for changes in self._changes():
                yield from self._elements(*self._settled_up(*changes))
            return
        now = self.matched_pairs(self.left.counts_after, self.right.counts_after)
        *old, number = self.matched_pairs(self.left.counts_before, self.right.counts_before)
        both = (np.concatenate(columns) for columns in zip(now, (*old, -number), strict=True))
        yield from self._elements(*self._settled_up(*both))

    def _changes(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Left rows, the right row that each meets (-1: none), and how much more often now, where all are met. A left
        row that stays is given with right rows that come or go, others with all; some left rows come at a time.
        """
        counts_before, counts_after = (
            counts[self.order] for counts in (self.right.counts_before, self.right.counts_after)
        )
        stays = self.left.counts_before == self.left.counts_after
        any_there, any_change = (counts_before > 0) | (counts_after > 0), counts_before != counts_after
        # first the right rows that are there, behind them those that change: left rows that stay go by the second part
        places = np.concatenate([np.flatnonzero(any_there), np.flatnonzero(any_change)])
        first, end = (
            np.where(
                stays, any_there.sum() + _count_before(any_change)[range_places], _count_before(any_there)[range_places]
            )
            for range_places in (self.first, self.end)
        )
        present_sums = (
            [_count_before(counts > 0) for counts in (counts_before, counts_after)] if self.join.join.outer else []
        )
        sums = np.cumsum(end - first)
        begin = 0
        while begin < len(sums):
            pairs_before = int(sums[begin - 1]) if begin else 0
            # one left row alone may meet more than a piece has
            stop = max(int(np.searchsorted(sums, pairs_before + PIECE_ROWS.value, "right")), begin + 1)
            lot = slice(begin, stop)
            left = np.repeat(np.arange(begin, stop), end[lot] - first[lot])
            right_rows = self.order[places[sides.expand_ranges(first[lot], end[lot])]]
            number = self._difference(left, right_rows)
            if present_sums:
                had, has = (counts[self.end[lot]] > counts[self.first[lot]] for counts in present_sums)
                left, right_rows = (
                    np.append(left, np.arange(begin, stop)),
                    np.append(right_rows, np.full(stop - begin, -1)),
                )
                number = np.append(number, self.left.counts_after[lot] * ~has - self.left.counts_before[lot] * ~had)
            changes = number != 0
            yield left[changes], right_rows[changes], number[changes]
            begin = stop

    def _difference(self, left: Ints, right_rows: Ints) -> Ints:
        """How much more often pairs of rows are there now."""
        now: Ints = self.left.counts_after[left] * self.right.counts_after[right_rows]
        return now - self.left.counts_before[left] * self.right.counts_before[right_rows]

    def _settled_up(self, left: Ints, right_rows: Ints, number: Ints) -> tuple[Ints, Ints, Ints]:
        """Pairs that came and went, added up for left rows of which something goes."""
        goes = np.zeros(self.left.rows.num_rows, np.bool_)
        goes[left[number < 0]] = True
        settles = goes[left]
        if not settles.any():
            return left, right_rows, number
        others = (column[~settles] for column in (left, right_rows, number))
        settled_pairs = self.added_up(left[settles], right_rows[settles], number[settles])
        left, right_rows, number = (np.concatenate(columns) for columns in zip(others, settled_pairs, strict=True))
        return left, right_rows, number

    def _elements(self, left: Ints, right_rows: Ints, number: Ints) -> Iterator[pa.RecordBatch]:
        """Pairs of a left row and what it met (-1: nothing), each so many times, as elements."""
        ends = np.cumsum(np.abs(number))
        for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_ROWS.value):
            pair_numbers = np.searchsorted(
                ends, np.arange(start, min(start + PIECE_ROWS.value, int(ends[-1]))), "right"
            )
            of_left, of_right = (
                pa.array(left[pair_numbers]),
                pa.array(right_rows[pair_numbers], mask=right_rows[pair_numbers] < 0),
            )
            rows, others = self.left.rows, self.right.rows
            columns = {name: rows.column(name).take(of_left) for name in self.join.left}
            columns |= {
                name: others.column(column).take(of_right) for column, name in self.join.carried_columns.items()
            }
            columns[c.EVENT_TIME] = rows.column(c.EVENT_TIME).take(of_left)
            columns[c.SIGN] = pa.array(np.sign(number[pair_numbers]).astype(np.int64))
            yield pa.RecordBatch.from_pydict(columns)

    def matched_pairs(self, left_counts: Ints, right_counts: Ints) -> tuple[Ints, Ints, Ints]:
        """Left rows, the one right row that each meets (-1: none), and how often; rows have these counts."""
        lefts = np.flatnonzero(left_counts > 0)
        present, first, end = self._match_ranges(lefts, right_counts)
        has_met = first < end
        chosen_rows = self._choose_right_rows(first, end, present)
        left, right_rows = lefts[has_met], chosen_rows[has_met]
        if self.is_deleted is not None:
            stays = ~self.is_deleted[right_rows]
            left, right_rows = left[stays], right_rows[stays]
        if self.join.join.outer:
            unmatched_rows = np.setdiff1d(lefts, left)
            left, right_rows = (
                np.concatenate([left, unmatched_rows]),
                np.concatenate([right_rows, np.full(len(unmatched_rows), -1)]),
            )
        return left, right_rows, left_counts[left]

    def _match_ranges(self, lefts: Ints, right_counts: Ints) -> tuple[Ints, Ints, Ints]:
        """The places in the order of those right rows that are there, and where among these stand those that each of
        ``lefts`` may meet.
        """
        is_there = right_counts[self.order] > 0
        number_before = _count_before(is_there)
        return np.flatnonzero(is_there), number_before[self.first[lefts]], number_before[self.end[lefts]]

    def _choose_right_rows(self, first: Ints, end: Ints, present: Ints) -> Ints:
        """The right row that counts of each range, any where it is empty."""
        if not len(present):
            return np.full(len(first), -1)
        last = np.maximum(end - 1, 0)
        if self.join.join.meets is Meets.FIRST:
            times = self.times[present]
            # an empty range may begin behind the last row
            begin = np.minimum(first, len(present) - 1)
            # of rows at the first moment the last one counts, as ties are in order
            last = np.maximum(sides.search_within(times, begin, end, times[begin], is_after=True) - 1, 0)
        chosen_rows: Ints = self.order[present[last]]
        return chosen_rows

    def unsettled_left_rows(self, bounds_before: Ints, bounds_after: Ints) -> Flags:
        """Which left rows may have met, or may meet, a version that was not read: older ones than at these bounds."""
        is_unsettled = np.zeros(len(bounds_after), np.bool_)
        of_time = (
            (self.left.counts_before, self.right.counts_before, bounds_before),
            (self.left.counts_after, self.right.counts_after, bounds_after),
        )
        for left_counts, counts, bounds in of_time:
            may_be_older = np.flatnonzero((left_counts > 0) & (bounds > int(MIN_INSTANT)) & self.has_key)
            if not len(may_be_older):
                continue
            present, first, end = self._match_ranges(may_be_older, counts)
            chosen_rows = self._choose_right_rows(first, end, present)
            times = (
                np.where(first < end, self.right.times[chosen_rows], int(MIN_INSTANT)) if len(present) else first * 0
            )
            is_known = (first < end) & (times > bounds[may_be_older])
            is_unsettled[may_be_older[~is_known]] = True
        return is_unsettled

    def added_up(self, left: Ints, right_rows: Ints, number: Ints) -> tuple[Ints, Ints, Ints]:
        """Pairs with how often each is there after what went and what came: of right rows what comes along counts."""
        codes, of_nothing = self._codes
        right_codes = np.full(len(right_rows), of_nothing)
        right_codes[right_rows >= 0] = codes[right_rows[right_rows >= 0]]
        kept_pairs, totals = _added_up_pairs(left, right_codes, number)
        return left[kept_pairs], right_rows[kept_pairs], totals

    @cached_property
    def _codes(self) -> tuple[Ints, int]:
        """By what comes along of them right rows look the same; and what looks the same as nothing."""
        carried_columns = [self.right.rows.column(name) for name in self.join.carried_columns]
        count = self.right.rows.num_rows
        columns = [to_comparable(column) for column in carried_columns]
        codes = group_by_key(hash_keys(columns, count), columns).of_each if count else np.zeros(0, np.int64)
        is_null = np.logical_and.reduce(
            [np.ones(count, np.bool_), *(~valid_mask(column) for column in carried_columns)]
        )
        return codes, int(codes[is_null][0]) if is_null.any() else -1


def _count_before(flags: Flags) -> Ints:
    """How many are set before each place, and before the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])


def _order_by_word(of_left: sides.Words, of_right: sides.Words, times: Ints) -> tuple[Ints, Ints, Ints]:
    """The places of right rows by (word, time), and from where to where in it each left one's word stands."""
    order = sides.in_order(of_right, times)
    ordered_words = of_right[order]
    begin, end = (np.searchsorted(ordered_words, of_left, side).astype(np.int64) for side in ("left", "right"))
    return order, begin, end


def _are_mixed(
    keys: Sequence[pa.Array], others: Sequence[pa.Array], hashes: sides.Words, word_order: tuple[Ints, Ints, Ints]
) -> bool:
    """Whether different keys of left and right rows, whose ``word_order`` is that of hashes, have one hash."""
    order, begin, end = word_order
    if is_shared(others, order, run_begins(hashes[order])):
        return True
    rows = np.flatnonzero(begin < end)
    columns = [
        pa.concat_arrays([own.take(pa.array(rows)), other.take(pa.array(order[begin[rows]]))])
        for own, other in zip(keys, others, strict=True)
    ]
    in_pairs = np.arange(2 * len(rows)).reshape(2, -1).T.ravel()
    is_first = np.arange(2 * len(rows)) % 2 == 0
    return is_shared(columns, in_pairs, is_first)


def _added_up_pairs(left: Ints, right_rows: Ints, number: Ints) -> tuple[Ints, Ints]:
    """One place of each pair that is there, or is missing, and how often it is."""
    order = sides.in_order(left.view(np.uint64), right_rows)
    starts = np.flatnonzero(run_begins(left[order]) | run_begins(right_rows[order]))
    totals = np.add.reduceat(number[order], starts) if len(starts) else number[order]
    is_kept = totals != 0
    return order[starts[is_kept]], totals[is_kept]


def _rank_values(values: pa.Array) -> Ints:
    """The places of ``values`` in order, NULL below all."""
    values = to_comparable(values)
    is_there = valid_mask(values)
    ranks = np.full(len(values), np.iinfo(np.int64).min)
    ranks[is_there] = code_values(values.drop_null()).codes
    return ranks
