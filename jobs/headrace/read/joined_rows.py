"""What rows of joins meet, and for how long that may change: found out from a snapshot, and said in words.

A join keeps its left rows until nothing changes what they meet (semantics 16.5). So it is known which right rows the
kept left rows met, and what they wait for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.aggregates.ordering import to_comparable
from headrace.kernel.columns import Ints, arrow_type, as_numpy
from headrace.kernel.expressions.evaluation import column_apart
from headrace.kernel.joins.merge import newest_kept
from headrace.kernel.joins.sides import CompiledJoin, CompiledJoins, Words
from headrace.kernel.joins.step import LEFT_ROW, MET_AT, find_partners
from headrace.kernel.keys import hash_keys
from headrace.model.expressions.typing import columns_of
from headrace.model.time import END_OF_CALENDAR, MIN_INSTANT, NEVER, Instant, is_finite, render
from headrace.program import columns as c
from headrace.read.open_windows import PART_BYTES, PART_ROWS, StageState
from headrace.read.shown_values import json_value
from headrace.read.views.arrow_types import python_rows
from headrace.state.chunks import KeyGroupRange, groups_of, key_group_ranges
from headrace.state.layers import some_of
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.manifest import UNNAMED

SHOWN_ROWS, SHOWN_PARTNERS = 20, 5
_SECOND_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Partner:
    """A right row that a left row meets: its event time, and what of it comes along."""

    at: Instant
    values: Mapping[str, Any]


@dataclass(frozen=True)
class LeftRow:
    """A left row that a join keeps, which is there ``count`` times, and what it meets. Nothing on time changes that
    once the watermark of the join exceeds ``complete``, and nothing at all once it exceeds ``final`` (NEVER: always).
    """

    at: Instant
    values: Mapping[str, Any]
    count: int
    partners: Sequence[Partner]
    complete: Instant
    final: Instant

    def lines(self, join: "JoinExplained") -> Iterator[str]:
        """In words."""
        times = "" if self.count == 1 else f", {self.count:,} times"
        yield f"row of {render(self.at)}{times}: {_values_in_words(self.values)}"
        for partner in self.partners[:SHOWN_PARTNERS]:
            yield f"  meets the row of {join.name} of {render(partner.at)}: {_values_in_words(partner.values)}"
        if len(self.partners) > SHOWN_PARTNERS:
            yield f"  and {len(self.partners) - SHOWN_PARTNERS:,} others"
        if not self.partners:
            yield f"  meets nothing, so it {'leaves with NULLs' if join.is_outer else 'does not leave'}"
        yield f"  {self._wait(join)}"

    def _wait(self, join: "JoinExplained") -> str:
        """For how long what it meets may change."""
        if join.watermark <= self.complete:
            progress = (
                "" if join.right_watermark is None else f"; {join.name} {_watermark_in_words(join.right_watermark)}"
            )
            return (
                f"waits for {join.name} until the watermark {_exceeds(self.complete)}: what comes on time may still "
                f"change what it meets{progress}"
            )
        ends = "for ever" if self.final >= NEVER else f"until the watermark {_exceeds(self.final)}"
        return f"waits for nothing on time; what comes late still changes what it meets, {ends}"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "event_time": render(self.at),
            "values": json_value(self.values),
            "count": self.count,
            "partners": [{"event_time": render(one.at), "values": json_value(one.values)} for one in self.partners],
            "complete": _time(self.complete),
            "final": _time(self.final),
        }


@dataclass(frozen=True)
class JoinExplained:
    """A join with the input ``name``, at its ``watermark``, which ``held_back_by`` holds back; that input has come to
    ``right_watermark`` (None: it is an output, and the snapshot of another does not say it). ``rows``: the newest left
    rows that it keeps of those that were asked for, None where they cannot be told by what was asked; ``earlier``: how
    many others it keeps. ``looks_up``: it keeps none.
    """

    name: str
    made_by: str
    is_outer: bool
    watermark: Instant
    right_watermark: Instant | None
    held_back_by: str | None
    rows: Sequence[LeftRow] | None
    earlier: int = 0
    looks_up: bool = False

    def lines(self) -> Iterator[str]:
        """In words."""
        holder = "" if self.held_back_by is None else f", held back by {self.held_back_by}"
        yield f"{self.made_by} {self.name}: its watermark stands at {render(self.watermark)}{holder}"
        if self.right_watermark is not None and self.right_watermark <= MIN_INSTANT:
            yield (
                f"  {self.name} has given no event time yet. All that waits for the watermark waits for it, until it "
                "does or is idle (idle= of its event_time)"
            )
        if self.looks_up:
            yield "  keeps no rows: what each met when it was read stands for good"
            return
        if self.rows is None:
            yield "  which of its rows are of this key is known behind it alone: explain another output by its columns"
            return
        for row in self.rows:
            yield from (f"  {line}" for line in row.lines(self))
        if self.earlier:
            yield f"  {self.earlier:,} earlier rows are kept; ask for one of them by its columns or its time"
        if not self.rows:
            yield "  keeps no such row: none came in time, or what it met stands for good"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "input": self.name,
            "join": self.made_by,
            "watermark": render(self.watermark),
            "input_watermark": None if self.right_watermark is None else render(self.right_watermark),
            "held_back_by": self.held_back_by,
            "rows": None if self.rows is None else [row.to_json() for row in self.rows],
            "earlier": self.earlier,
        }


def _values_in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values.items()) or "no columns"


def _exceeds(time: Instant) -> str:
    """What a watermark does that is greater than ``time``."""
    if time >= END_OF_CALENDAR:
        return "passes the year 9999"
    is_end = (time + 1) % _SECOND_MICROSECONDS == 0
    return f"passes {render(Instant(time + 1))}" if is_end else f"is above {render(time)}"


def _watermark_in_words(watermark: Instant) -> str:
    return "has given no event time yet" if watermark <= MIN_INSTANT else f"is at {render(watermark)}"


def _time(time: Instant) -> str | None:
    return render(Instant(time + 1)) if is_finite(time) and time < END_OF_CALENDAR else None


@dataclass(frozen=True)
class AskedRows:
    """Left rows whose columns have these ``values``, with event times from ``begin`` to before ``end``, if given."""

    values: Mapping[str, Any]
    begin: Instant | None = None
    end: Instant | None = None

    def select_rows(self, join: CompiledJoin, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are asked for, of ``rows``."""
        for name, value in self.values.items():
            rows = rows.filter(equals_value(rows.column(name), pa.scalar(value, arrow_type(join.left[name]))))
        times = as_numpy(rows.column(c.EVENT_TIME))
        is_asked = np.ones(len(times), np.bool_)
        if self.begin is not None:
            is_asked &= times >= int(self.begin)
        if self.end is not None:
            is_asked &= times < int(self.end)
        return rows.filter(pa.array(is_asked))

    def hashes_in(self, join: CompiledJoin) -> Words | None:
        """Their hashes in ``join``, one for each place of a spread key; None where the values do not say the key."""
        columns = [self._key_column(join, name) for name in join.join.on]
        key_columns = [column for column in columns if column is not None]
        if len(key_columns) < len(columns):
            return None
        spread = join.join.spread
        keys = [pa.repeat(column[0], spread) for column in key_columns]
        if spread > 1:
            keys.append(pa.array(np.arange(spread)))
        hashes: Words = hash_keys(keys, spread)
        return hashes

    def _key_column(self, join: CompiledJoin, name: str) -> pa.Array | None:
        """What they have in the column ``name`` of the key, which may be computed; None: nobody can tell."""
        expr = join.join.computed.get(name)
        if not ({name} if expr is None else columns_of(expr)) <= self.values.keys():
            return None
        kinds = {own: arrow_type(join.left[own]) for own in self.values}
        columns = {own: pa.array([self.values[own]], kind) for own, kind in kinds.items()}
        return columns[name] if expr is None else column_apart(expr, columns, join.left, 1)[0]


def equals_value(values: pa.Array | pa.ChunkedArray, value: pa.Scalar) -> pa.Array | pa.ChunkedArray:
    """Which of ``values`` are that ``value``, which may be NULL."""
    return pc.equal(values, value) if value.is_valid else values.is_null()


def explain_joins(state: StageState, asked_rows: AskedRows | None) -> list[JoinExplained]:
    """What each join keeps, on the left, of ``asked_rows`` (None: nobody can tell). Raises BrokenObjectError."""
    joins = state.joins
    return [] if joins is None else [_KeptRows(state, joins, join).explain(asked_rows) for join in joins.joins]


@dataclass(frozen=True)
class _File:
    rows: pa.RecordBatch

    @property
    def hashes(self) -> Words:
        values: Words = as_numpy(self.rows.column(c.HASH))
        return values


@dataclass(frozen=True)
class _KeptRows:
    """What a ``join`` keeps in a snapshot."""

    state: StageState
    joins: CompiledJoins
    join: CompiledJoin

    def explain(self, asked_rows: AskedRows | None) -> JoinExplained:
        join, name = self.join.join, self.join.join.name
        rows, earlier = ((), 0) if join.by_arrival else (None, 0) if asked_rows is None else self._left_rows(asked_rows)
        return JoinExplained(
            name,
            join.made_by,
            join.outer,
            self._watermark,
            None if join.is_of_output else self.state.watermark_of(name),
            self.state.inputs_held_back,
            rows,
            earlier,
            join.by_arrival,
        )

    @property
    def _watermark(self) -> Instant:
        return self.joins.watermark_of(self.join.number + 1, self.state.watermark_above_joins)

    def _layers(self, table: str) -> tuple[Layer, ...]:
        return self.state.manifest.tables.get(table, ())

    def _left_rows(self, asked_rows: AskedRows) -> tuple[list[LeftRow], int]:
        """The newest of those that are kept, in order, and how many others are."""
        table = UNNAMED.join_left(self.join.number)
        newest, number = self.join.left_schema.empty_table(), 0
        for part in self._parts(table, asked_rows):
            pieces = some_of(self.state.catalog.store, self.join.left_schema, self._layers(table), part)
            rows_asked = [
                self._rows_in_part(part, self._open(asked_rows.select_rows(self.join, rows))) for rows in pieces
            ]
            if not any(rows.num_rows for rows in rows_asked):
                continue
            rows = newest_kept(self.join, pa.concat_batches(rows_asked), MIN_INSTANT)
            rows = rows.filter(pc.greater(rows.column(c.COUNT), 0))
            number += rows.num_rows
            newest = self._sort_rows(pa.concat_tables([newest, pa.Table.from_batches([rows])]), "descending")
            newest = newest.slice(0, SHOWN_ROWS)
        shown_rows = self._sort_rows(newest, "ascending").combine_chunks()
        if not len(shown_rows):
            return [], 0
        return self._with_partners(shown_rows.to_batches()[0]), number - len(shown_rows)

    def _open(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """``rows`` without those that stand for good: what withdrew them last, or what they met, is not stored."""
        completions = self.join.left_completion(as_numpy(rows.column(c.EVENT_TIME)))
        return rows.filter(pa.array(~self.join.late_mask(completions, self._watermark)))

    def _sort_rows(self, rows: pa.Table, direction: str) -> pa.Table:
        """``rows`` by event time, then by their columns, whatever order files have them in."""
        names = (c.EVENT_TIME, *self.join.left)
        keys = pa.table({name: to_comparable(rows.column(name).combine_chunks()) for name in names})
        return rows.take(pc.sort_indices(keys, sort_keys=[(name, direction) for name in names]))

    def _parts(self, table: str, asked_rows: AskedRows) -> Sequence[KeyGroupRange]:
        """The parts of the keys in which asked rows may be, each of which fits into memory."""
        hashes = asked_rows.hashes_in(self.join)
        if hashes is not None:
            return sorted({_groups_of(hashes[[place]]) for place in range(len(hashes))}, key=lambda part: part.first)
        layers = self._layers(table)
        rows, size = sum(layer.rows for layer in layers), sum(layer.bytes for layer in layers)
        return key_group_ranges(1 + max(rows // PART_ROWS.value, size // PART_BYTES))

    def _rows_in_part(self, part: KeyGroupRange, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The part of ``rows``, which are in the order of hashes, that is in ``part``: a file may give others, too."""
        span = part.row_slice(as_numpy(rows.column(c.HASH)))
        return rows.slice(span.start, span.stop - span.start)

    def _with_partners(self, rows: pa.RecordBatch) -> list[LeftRow]:
        """``rows`` with what each meets. Right rows are read by key, and held if their times may meet."""
        hashes = as_numpy(rows.column(c.HASH))
        first, last = self.join.right_interval(as_numpy(rows.column(c.EVENT_TIME)))
        begin, end = int(MIN_INSTANT) if first is None else first.min(), last.max()

        def select_near_rows(right: pa.RecordBatch) -> pa.RecordBatch:
            times = as_numpy(right.column(c.EVENT_TIME))
            is_near = (times >= begin) & (times <= end) & np.isin(as_numpy(right.column(c.HASH)), hashes)
            return right.filter(pa.array(is_near))

        schema, layers = self.join.right_schema, self._layers(UNNAMED.join_right(self.join.number))
        files = [
            _File(select_near_rows(self._rows_in_part(part, right)))
            for part in {_groups_of(hashes[[place]]) for place in range(len(hashes))}
            for right in some_of(self.state.catalog.store, schema, layers, part)
        ]
        partners: dict[int, list[Partner]] = {}
        pairs = find_partners(self.join, rows, files)
        names = [*self.join.join.columns]
        carried_rows = python_rows(pairs.select(names)) if names else [{}] * pairs.num_rows
        places, times = (pairs.column(name).to_pylist() for name in (LEFT_ROW, MET_AT))
        for place, time, values in sorted(
            zip(places, times, carried_rows, strict=True), key=lambda pair: (pair[0], pair[1] or 0, str(pair[2]))
        ):
            if time is not None:
                partners.setdefault(place, []).append(Partner(Instant(time), values))
        moments: Ints = as_numpy(rows.column(c.EVENT_TIME))
        complete = self.join.left_completion(moments)
        late = NEVER if self.join.lateness is None else self.join.lateness
        counts, left_rows = rows.column(c.COUNT).to_pylist(), python_rows(rows.select([*self.join.left]))
        return [
            LeftRow(
                Instant(time),
                left_rows[place],
                counts[place],
                partners.get(place, []),
                Instant(bound),
                Instant(min(NEVER, bound + late)),
            )
            for place, (time, bound) in enumerate(zip(moments.tolist(), complete.tolist(), strict=True))
        ]


def _groups_of(hashes: Words) -> KeyGroupRange:
    groups = groups_of(hashes)
    assert groups is not None
    return KeyGroupRange(*groups)
