"""Rows that leave as results: one of each element, or what is taken or computed of a group.

``RowsRun`` gives rows as they are, one of each element: nothing is kept between two epochs but the watermark.

``GroupRowsRun`` gives rows of a group: what is taken, or computed, of all rows that it has, less what left before. SQL
is asked of DuckDB, for one group at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

import duckdb

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, StructType
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, is_finite, to_instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.pipeline.loading.code_digests import load_function
from headrace.pipeline.queries import sql_type
from headrace.pipeline.rows import Distinct, Every, GroupFunction, GroupQuery, GroupRows, Top
from headrace.pipeline.stages import Stage
from headrace_lab.reference.chain import Chain
from headrace_lab.reference.contents import Contents
from headrace_lab.reference.elements import Element, Output, Pane
from headrace_lab.reference.evaluate import Record, evaluate, identity_key, nulls_first
from headrace_lab.reference.operator import Grouping


class RowsRun:
    """What a chain of aggregations is elsewhere. A row is a pane of the window of its instant, which has no key."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.watermark = MIN_INSTANT

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        processing_time: Instant | None = None,
        watermark: Instant | None = None,
        percentiles: Mapping[float, Instant] | None = None,
        signals: Sequence[Signal] = (),
        is_batch: bool = False,
        is_last: bool = False,
    ) -> Output:
        """One epoch: its elements under the watermark before it."""
        del processing_time, percentiles, signals, is_batch, is_last
        panes = tuple(self._row(element) for element in elements)
        self.watermark = self.watermark if watermark is None else max(self.watermark, watermark)
        return Output(panes, ())

    def _row(self, element: Element) -> Pane:
        timestamp, stage = element.timestamp, self._stage
        return Pane(
            key=(),
            window=Window(timestamp, Instant(timestamp + 1)),
            values=tuple(identity_key(_value(expr, element.record, stage)) for expr in stage.row_columns.values()),
            timestamp=timestamp,
            timing=Timing.LATE if timestamp < self.watermark else Timing.ON_TIME,
            index=0,
            nonspeculative_index=0,
            is_first=True,
            is_last=True,
            is_retraction=element.is_retraction,
        )

    @property
    def output_watermarks(self) -> list[Instant]:
        """The watermark of its input, as that of its output."""
        return [self.watermark]

    @property
    def in_flight(self) -> dict[tuple[Any, Window], Any]:
        """Nothing."""
        return {}


def _value(expr: Any, record: Any, stage: Stage) -> Any:
    return evaluate(expr, record, stage.schema)


def group_entry(stage: Stage, record: Record, timestamp: Instant) -> tuple[Any, ...]:
    """What a group keeps of an element: what its row goes by, its event time, whether it is deleted, its columns."""
    assert isinstance(stage.aggregation, GroupRows)
    taken_by, unless = stage.aggregation.take.by, stage.aggregation.take.unless
    columns = tuple(identity_key(_value(expr, record, stage)) for expr in stage.row_columns.values())
    is_deleted = None if unless is None else _value(unless, record, stage)
    return tuple(identity_key(_value(one, record, stage)) for one in taken_by), timestamp, is_deleted, columns


def take_rows(aggregation: GroupRows) -> Callable[[Contents], tuple[Any, ...]]:
    """The value of a pane: the rows of a window that leave, each its event time and its columns."""

    def extract(contents: Contents) -> tuple[Any, ...]:
        pairs_there = [(row, times) for row, times in contents.net if times > 0]
        if isinstance(aggregation.take, Distinct):
            first: dict[tuple[Any, ...], Instant] = {}
            for (_, timestamp, _, columns), _ in pairs_there:
                first[columns] = min(timestamp, first.get(columns, timestamp))
            return (tuple((timestamp, columns) for columns, timestamp in first.items()),)
        copies = [row for row, times in pairs_there for _ in range(times)]
        copies.sort(key=_order, reverse=True)
        number = len(copies) if isinstance(aggregation.take, Every) else 1
        number = aggregation.take.number if isinstance(aggregation.take, Top) else number
        return (
            tuple(
                (timestamp, columns) for _, timestamp, is_deleted, columns in copies[:number] if is_deleted is not True
            ),
        )

    return extract


def compute_rows(stage: Stage, take: GroupFunction | GroupQuery) -> Callable[[Contents], tuple[Any, ...]]:
    """The same where ``take`` makes other rows of those of a window. An event time of None is that of its end."""

    def extract(contents: Contents) -> tuple[Any, ...]:
        copies = [row for row, times in contents.net for _ in range(times)]
        if not copies:
            return ((),)
        copies.sort(key=_order)
        with duckdb.connect(config={"threads": "1"}) as connection:
            connection.execute("set TimeZone = 'UTC'")
            _fill(connection, stage, copies)
            rows = [dict(row) for row in _apply_take(connection, stage, take)]
        keys = dict(zip(stage.row_columns, copies[0][3], strict=True))
        return (tuple((row.get(EVENT_TIME), _columns({**keys, **row}, stage)) for row in rows),)

    return extract


def _fill(connection: duckdb.DuckDBPyConnection, stage: Stage, rows: Sequence[tuple[Any, ...]]) -> None:
    """Give the database the table ``rows``."""
    kinds = stage.given_types
    declared_text = ", ".join(f'"{name}" {sql_type(kind)}' for name, kind in kinds.items())
    connection.execute(f"create table rows ({declared_text})")
    for _, timestamp, _, columns in rows:
        event_time = timestamp if timestamp < GLOBAL_WINDOW_END - 1 else None
        values: list[Any] = []
        pairs = zip([*columns, event_time], kinds.values(), strict=True)
        marks = ", ".join(_marks(value, kind, values) for value, kind in pairs)
        connection.execute(f"insert into rows values ({marks})", values)


def _marks(value: Any, kind: ColumnType, values: list[Any]) -> str:
    """``value`` in SQL, with marks for what is added to ``values``. A struct is the tuple, or the dict, of its fields;
    a map is its pairs.
    """
    if value is None:
        return f"null::{sql_type(kind)}"
    match kind:
        case ListType(item):
            return f"[{', '.join(_marks(one, item, values) for one in value)}]::{sql_type(kind)}"
        case StructType(fields):
            parts = zip(value.values() if isinstance(value, dict) else value, fields, strict=True)
            members = (f'"{name}" := {_marks(one, own, values)}' for one, (name, own) in parts)
            return f"struct_pack({', '.join(members)})"
        case MapType(own):
            keys = _marks([key for key, _ in value], ListType(DataType.STRING), values)
            items = ", ".join(_marks(one, own, values) for _, one in value)
            return f"map({keys}, [{items}]::{sql_type(own)}[])"
    values.append(value)
    return "make_timestamp(?)" if kind is DataType.TIMESTAMP else "?"


def _apply_take(connection: duckdb.DuckDBPyConnection, stage: Stage, take: GroupFunction | GroupQuery) -> Iterator[Any]:
    """What is made of the table ``rows``, each row as pairs of a name and a value."""
    kinds = stage.computed_types
    assert kinds is not None
    if isinstance(take, GroupQuery):
        source = f"({take.sql}\n)"
    else:
        connection.register("made", load_function(take, PipelineError)(connection.sql("from rows").to_arrow_table()))
        source = "made"
    read = ", ".join(f'"{name}"::{sql_type(kind)}::{_zoneless(kind)}' for name, kind in kinds.items())
    _check_times(connection.sql(f"select {read} from {source}"), take)
    for row in connection.execute(f"select {read} from {source}").fetchall():
        pairs = zip(row, kinds.values(), strict=True)
        yield zip(kinds, (_written_alike(value, kind) for value, kind in pairs), strict=True)


def _check_times(answer: duckdb.DuckDBPyRelation, take: GroupFunction | GroupQuery) -> None:
    """Raise PipelineError for a time that no calendar has: Python would have infinity as the last one of the year 9999.
    Arrow has it as another number.
    """
    try:
        answer.to_arrow_table().to_pylist()
    except OverflowError:
        raise PipelineError(f"{take} gave a time outside of the years 1 to 9999") from None


def _zoneless(kind: ColumnType) -> str:
    """The type of ``kind`` in SQL, in which times are of no zone: Python has them by itself."""
    return sql_type(kind).replace(sql_type(DataType.TIMESTAMP), "TIMESTAMP")


def _written_alike(value: Any, kind: ColumnType, *, is_part: bool = False) -> Any:
    """``value`` as equal ones are: keys of maps ascend, in structs and maps 0.0 has no sign, times are Instants."""
    if value is None:
        return None
    match kind:
        case StructType(fields):
            return {name: _written_alike(value[name], own, is_part=True) for name, own in fields}
        case MapType(own):
            return [(key, _written_alike(value[key], own, is_part=True)) for key in sorted(value)]
        case ListType(item):
            return [_written_alike(one, item, is_part=is_part or not isinstance(item, DataType)) for one in value]
        case DataType.TIMESTAMP:
            return to_instant(value.replace(tzinfo=UTC))
    return value + 0.0 if kind is DataType.FLOAT and is_part else value


def _columns(row: Mapping[str, Any], stage: Stage) -> tuple[Any, ...]:
    return tuple(identity_key(row[name]) for name in stage.leaving_types)


def _order(row: tuple[Any, ...]) -> Any:
    order_values, timestamp, is_deleted, columns = row
    return tuple(map(nulls_first, order_values)), timestamp, nulls_first(is_deleted), tuple(map(nulls_first, columns))


def window_record(window: Window) -> Record:
    """The ends of ``window`` as columns, NULL for one that is infinite, or where a global window ends."""
    ends = {WINDOW_START: window.start, WINDOW_END: window.end}
    return {name: end if is_finite(end) and end < GLOBAL_WINDOW_END - 1 else None for name, end in ends.items()}


class GroupRowsRun(Chain):
    """A grouping whose panes are rows of a group: each leaves as what is new in them."""

    def __init__(self, stage: Stage, grouping: Grouping) -> None:
        super().__init__([grouping], [])
        self._stage = stage

    def step(self, elements: Iterable[Element] = (), **clocks: Any) -> Output:
        """One epoch."""
        output = super().step(elements, **clocks)
        return Output(tuple(self._rows(output.panes)), output.drops)

    def _rows(self, panes: Sequence[Pane]) -> list[Pane]:
        net: Counter[Any] = Counter()
        last: dict[Any, Pane] = {}
        for pane in panes:
            for timestamp, columns in pane.values[0]:
                moment = Instant(pane.window.end - 1) if timestamp is None else timestamp
                row = (pane.key, pane.window, moment, columns)
                net[row] += -1 if pane.is_retraction else 1
                last[row, pane.is_retraction] = pane
        return [self._row(row, last[row, number < 0]) for row, number in net.items() for _ in range(abs(number))]

    def _row(self, row: tuple[Any, ...], pane: Pane) -> Pane:
        _, window, timestamp, columns = row
        ends = tuple(window_record(window).values()) if self._stage.shows_windows else ()
        values, own = (*columns, *ends), Window(timestamp, Instant(timestamp + 1))
        return replace(pane, key=(), window=own, values=values, timestamp=timestamp, index=0, nonspeculative_index=0)
