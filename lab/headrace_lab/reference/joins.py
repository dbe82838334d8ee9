"""A join, row by row. Every row that was accepted is kept for ever. After each epoch each left row that does not stand
for good yet is joined again (semantics 16). A row that looks up meets what has come, once and for good (16.9).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.model.expressions.data_types import Schema
from headrace.model.time import EARLIEST, MAX_INSTANT, MIN_INSTANT, Duration, Instant
from headrace.pipeline.joins import Join, Meets, joined_schema
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference.evaluate import (
    OverflowsInRecordError,
    Record,
    evaluate,
    evaluate_of,
    identity_key,
    sort_key,
)
from headrace_lab.reference.windows import assign

Values = tuple[Any, ...]

LEFT = ""
"""The side of rows that come, beside those that are joined to them."""


@dataclass(frozen=True)
class Row:
    """A row at its event time; ``is_retraction``: it withdraws an equal one."""

    timestamp: Instant
    record: Record
    is_retraction: bool = False


@dataclass(frozen=True)
class _Right:
    """What counts of a right row: its key, its event time, what it is told apart by, and what comes along."""

    key: Values
    timestamp: Instant
    order: Any
    is_deleted: bool
    carried: Values

    @property
    def rank(self) -> tuple[Any, ...]:
        """By what the greatest of rows at one moment is partners."""
        return (_place(self.order), self.is_deleted, *map(_place, self.carried))


def _place(value: Any) -> tuple[Any, ...]:
    """Where a value is in order: NULL is below all; what is nested goes by its parts, one after another."""
    if value is None:
        return (0,)
    return (1, tuple(map(_place, value)) if isinstance(value, tuple) else sort_key(value))


class JoinRun:
    """One join between two epochs, over rows with the columns ``schema``. ``lateness`` None: nothing is late."""

    def __init__(self, join: Join, schema: Schema, lateness: Duration | None) -> None:
        self.join, self.schema, self.lateness = join, schema, lateness
        self.watermark = MIN_INSTANT
        self._epoch = 0
        self._left: Counter[tuple[Instant, Values]] = Counter()
        self._right: Counter[_Right] = Counter()
        self._left_out: dict[tuple[Instant, Values], Counter[Values]] = {}

    def step(
        self, left: Iterable[Row], right: Iterable[Row], watermark: Instant
    ) -> tuple[list[Row], list[Row], list[Row]]:
        """One epoch to ``watermark``: the rows that leave, and left and right rows that were late."""
        late_left, late_right = [], []
        for row in left:
            if not self.join.outer and None in self._key(row):  # which meets nothing
                continue
            if self._is_past(self.complete(row.timestamp)):
                late_left.append(row)
            else:
                self._left[row.timestamp, self._values(row)] += -1 if row.is_retraction else 1
        for row in right:
            right_row = self._read_right(row)
            if right_row is None:
                continue
            if self.join.by_arrival:
                right_row = replace(right_row, timestamp=Instant(self._epoch))
            if self._is_past(self._last_reachable(row.timestamp)) or (
                row.is_retraction and self._was_let_go(row.timestamp)
            ):
                late_right.append(row)
            else:
                self._right[right_row] += -1 if row.is_retraction else 1
        self._epoch += 1
        leaving = self._looked_up() if self.join.by_arrival else self._differences()
        self.watermark = max(self.watermark, watermark)
        return leaving, late_left, late_right

    def output_watermark(self) -> Instant:
        """The watermark of what comes out of it."""
        mark = self.watermark
        if not MIN_INSTANT < mark < MAX_INSTANT:
            return mark
        if self.join.window is None:
            return Instant(mark - max(0, self.join.end))
        start = self._window(mark)[0]
        if not self.lateness or mark - self.lateness <= EARLIEST:
            return start
        return min(start, Instant(self._window(Instant(mark - self.lateness))[0] + self.lateness))

    def complete(self, timestamp: Instant) -> int:
        """The watermark above which nothing on time changes what a left row meets."""
        if self.join.window is not None:
            return self._window(timestamp)[1] - 1
        return timestamp + max(0, self.join.end)

    def _last_reachable(self, timestamp: Instant) -> int | None:
        """The same of the last left row that a right row could reach; None: there is no last one."""
        if self.join.window is not None:
            return self.complete(timestamp)
        if self.join.begin is None:
            return None
        return timestamp - self.join.begin + max(0, self.join.end)

    def _is_past(self, complete: int | None) -> bool:
        return complete is not None and self.lateness is not None and self.watermark > complete + self.lateness

    def _was_let_go(self, version: Instant) -> bool:
        """Whether nobody need remember what a version at that time hides, so it cannot be withdrawn any more."""
        return self.join.history is not None and self._is_past(version + self.join.history)

    def _window(self, timestamp: Instant) -> tuple[Instant, Instant]:
        assert self.join.window is not None
        (window,) = assign(self.join.window, timestamp, {})
        return window.start, window.end

    def _values(self, row: Row) -> Values:
        return tuple(identity_key(row.record.get(name)) for name in self.schema)

    def _key(self, row: Row) -> Values:
        return key_of(self.join, row.record, self.schema)

    def _read_right(self, row: Row) -> _Right | None:
        """What counts of a right row; None: nothing does."""
        columns = self.join.right.source.columns

        def value(expr: Any) -> Any:
            return None if expr is None else evaluate(expr, row.record, columns)

        key = tuple(value(expr) for expr in self.join.on.values())
        if None in key or (self.join.where is not None and value(self.join.where) is not True):
            return None
        carried_values = tuple(identity_key(value(expr)) for expr in self.join.columns.values())
        return _Right(key, row.timestamp, value(self.join.order), value(self.join.deleted) is True, carried_values)

    def _looked_up(self) -> list[Row]:
        """What the left rows of the epoch meet of all that has come, which nothing changes any more."""
        leaving: list[Row] = []
        for (timestamp, values), count in self._left.items():
            key = key_of(self.join, dict(zip(self.schema, values, strict=True)), self.schema)
            versions = [right for right in self._right if right.key == key and None not in key]
            newest = max(versions, key=lambda right: (right.timestamp, right.rank), default=None)
            partner: Values | None = None if newest is None or newest.is_deleted else newest.carried
            if partner is None and self.join.outer:
                partner = tuple(None for _ in self.join.columns)
            if partner is not None:
                leaving += [self._row(timestamp, (*values, *partner), is_retraction=False)] * count
        self._left.clear()
        return leaving

    def _differences(self) -> list[Row]:
        """What left rows meet now and did not before, and what no more; rows past their bound change nothing."""
        by_key: dict[Values, list[tuple[_Right, int]]] = {}
        for right, count in self._right.items():
            if count > 0:
                by_key.setdefault(right.key, []).append((right, count))
        leaving: list[Row] = []
        for place, count in self._left.items():
            if self._is_past(self.complete(place[0])):
                continue
            now = self._meet_partners(place, max(count, 0), by_key)
            old_counts = self._left_out.get(place, Counter())
            for values in {**old_counts, **now}:
                number = now[values] - old_counts[values]
                leaving += [self._row(place[0], values, is_retraction=number < 0)] * abs(number)
            self._left_out[place] = now
        return leaving

    def _meet_partners(
        self, place: tuple[Instant, Values], count: int, by_key: Mapping[Values, Sequence[tuple[_Right, int]]]
    ) -> Counter[Values]:
        """The values of rows that ``count`` equal left rows give."""
        timestamp, values = place
        record = dict(zip(self.schema, values, strict=True))
        key = key_of(self.join, record, self.schema)
        partners = [] if None in key else [r for r in by_key.get(key, ()) if self._lies_in(r[0].timestamp, timestamp)]
        if self.join.meets is not Meets.ALL and partners:
            ends = [right.timestamp for right, _ in partners]
            meeting_time = max(ends) if self.join.meets is Meets.LAST else min(ends)
            last_partner = max(
                (right for right, _ in partners if right.timestamp == meeting_time), key=lambda right: right.rank
            )
            partners = [] if last_partner.is_deleted else [(last_partner, 1)]
        met_counts: Counter[Values] = Counter()
        for right, times in partners:
            met_counts[(*values, *right.carried)] += count * times
        if not partners and self.join.outer:
            met_counts[(*values, *(None for _ in self.join.columns))] += count
        return +met_counts

    def _lies_in(self, right: Instant, left: Instant) -> bool:
        if self.join.window is not None:
            start, end = self._window(left)
            return start <= right < end
        return right <= left + self.join.end and (self.join.begin is None or right >= left + self.join.begin)

    def _row(self, timestamp: Instant, values: Values, *, is_retraction: bool) -> Row:
        names = (*self.schema, *self.join.columns)
        return Row(timestamp, dict(zip(names, values, strict=True)), is_retraction)


def key_of(join: Join, record: Record, schema: Schema) -> Values:
    """The key for ``join`` of a left row with the columns ``record``."""
    computed_exprs = join.computed
    return tuple(
        evaluate(computed_exprs[name], record, schema) if name in computed_exprs else record.get(name)
        for name in join.on
    )


def check_key(join: Join, record: Record, schema: Schema) -> None:
    """Raise OverflowsInRecordError if what ``join`` compares of a left row cannot be computed."""
    for name, expr in join.computed.items():
        evaluate_of(f"on {name}", expr, record, schema)


class JoinsRun:
    """The joins of an output, one behind the other, between two epochs."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._runs: list[JoinRun] = []
        schema = pipeline.left_schema
        for number, (join, lateness) in enumerate(zip(pipeline.join, pipeline.latenesses, strict=True)):
            self._runs.append(JoinRun(join, joined_schema(pipeline.join[:number], schema), lateness))

    def step(
        self, sides: Mapping[str, Sequence[Row]], watermark: Instant
    ) -> tuple[list[Row], list[Row], list[tuple[Row, OverflowsInRecordError]]]:
        """One epoch to the ``watermark`` that comes to the first of them. It gives what leaves the last one, what was
        late, and joined rows whose key for the next join cannot be computed.
        """
        rows, late, dead = [*sides.get(LEFT, ())], list[Row](), list[tuple[Row, OverflowsInRecordError]]()
        for run in self._runs:
            fit: list[Row] = []
            for row in rows:
                try:
                    check_key(run.join, row.record, run.schema)
                    fit.append(row)
                except OverflowsInRecordError as error:
                    dead.append((row, error))
            rows = fit
            rows, late_left, late_right = run.step(rows, sides.get(run.join.name, ()), watermark)
            late += [*late_left, *late_right]
            watermark = run.output_watermark()
        return rows, late, dead

    @property
    def watermark(self) -> Instant:
        """The watermark of what leaves."""
        return self._runs[-1].output_watermark()
