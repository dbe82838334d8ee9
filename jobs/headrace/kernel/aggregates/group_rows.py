"""Rows of a group as a part of its contents, and those that leave: the newest, first few, distinct, or computed ones.

A function, or a query, makes computed rows of all rows of the group (``ComputedRowsPart``).

A row is a struct: what it goes by, if by anything; whether it is deleted, where that is asked; its columns, with its
event time. It is kept with how often it is there, which is below 0 where it is withdrawn before it came. Where no row
can be withdrawn, those that can never leave any more are not kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.kernel import columns as kernel_columns
from headrace.kernel.aggregates.ordering import changed_rows, in_order, rank_rows
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements
from headrace.model.accumulation import EVENT_TIME
from headrace.model.expressions.data_types import ColumnType, DataType, NestedType, in_words
from headrace.model.time import EARLIEST, LATEST
from headrace.pipeline.loading.code_digests import call_on_rows, load_function
from headrace.pipeline.rows import GroupFunction, GroupQuery

TIME_FIELD: Final = "at"
ROW: Final = "row"
TIMES: Final = "times"
"""Fields of an entry."""


@dataclass(frozen=True, kw_only=True)
class RowsPart(AccumulatorPart):
    """Distinct rows of a group in order, with how often each is there, never 0.

    ``orders``: so many fields come first that rows go by, before their event time; ``has_unless``: the next one says of
    which rows nothing leaves; ``are_distinct``: event time comes after all columns, and each row leaves once; else the
    ``number`` largest leave. ``withdrawable``: rows can be withdrawn.
    """

    condenses: ClassVar[bool] = False

    number: int = 0
    orders: int = 0
    has_unless: bool = False
    are_distinct: bool = False
    withdrawable: bool

    @property
    def leaving_type(self) -> pa.ListType:
        """The type of ``emitted_rows``."""
        columns = [*self.type.value_type.field(ROW).type][self.orders + int(self.has_unless) :]
        kinds = [pa.int64(), *(column.type for column in columns)]
        return pa.list_(pa.struct([*zip(_field_names(len(kinds)), kinds, strict=True)]))

    def fold(self, elements: Elements, groups: kernel_columns.Groups) -> pa.Array:
        assert elements.value is not None
        times_of_events, sign = (
            elements.event_times,
            None if elements.sign is None else kernel_columns.as_numpy(elements.sign),
        )
        times = np.ones(len(times_of_events), np.int64) if sign is None else sign
        return self._make_entries(times_of_events, elements.value, times, kernel_columns.Groups(groups.offsets))

    def gather_valid(self, parts: pa.Array, groups: kernel_columns.Groups) -> pa.Array:
        entries, inner = groups.flatten_lists(parts)
        return self._make_entries(entries.field(0), entries.field(1), kernel_columns.as_numpy(entries.field(2)), inner)

    def emitted_rows(self, part: pa.Array) -> pa.Array:
        """The rows that leave of each group, the largest first: lists of structs of event time and columns."""
        entries, groups = kernel_columns.of_lists(part)
        times = kernel_columns.as_numpy(entries.field(2))
        is_there = times > 0
        rows, groups, times = np.flatnonzero(is_there), groups.filter_rows(is_there), times[is_there]
        if self.are_distinct:
            firsts = self._first_of_equal(entries.field(1).take(pa.array(rows)), groups)
            rows, groups = rows[firsts], groups.filter_rows(firsts)
        else:
            # more copies than may leave never do, and a count may be large
            copies = np.minimum(times, self.number)
            copies_before = np.append(0, np.cumsum(copies))
            rows, groups = np.repeat(rows, copies), kernel_columns.Groups(copies_before[groups.offsets])
            ends, groups = groups.end_rows(self.number, are_last=True)
            rows = rows[ends]
        columns = entries.field(1).flatten()[self.orders :]
        if self.has_unless:
            stays = ~kernel_columns.as_numpy(columns.pop(0).take(pa.array(rows)).fill_null(False))
            rows, groups = rows[stays], groups.filter_rows(stays)
        indices = pa.array(rows)
        return kernel_columns.to_lists(
            _make_struct([entries.field(0).take(indices), *(column.take(indices) for column in columns)]), groups
        )

    def _make_entries(
        self, instants: pa.Array, rows: pa.Array, times: kernel_columns.Ints, groups: kernel_columns.Groups
    ) -> pa.Array:
        codes = self._entry_codes(instants, rows)
        order = in_order(groups.of_row, codes)
        ids, ordered_codes = groups.of_row[order], codes[order]
        starts = np.flatnonzero(changed_rows(ids, ordered_codes))
        totals = np.add.reduceat(times[order], starts) if len(starts) else starts
        is_kept = totals != 0
        starts, totals = starts[is_kept], totals[is_kept]
        ids, places = ids[starts], order[starts]
        if not self.withdrawable:
            can_leave = self._can_leave(rows.take(pa.array(places)), kernel_columns.of_ids(ids, len(groups)))
            ids, places, totals = ids[can_leave], places[can_leave], totals[can_leave]
        indices = pa.array(places)
        fields = [instants.take(indices), rows.take(indices), pa.array(totals)]
        entries = pa.StructArray.from_arrays(fields, fields=list(self.type.value_type))
        return kernel_columns.to_lists(entries, kernel_columns.of_ids(ids, len(groups)), empty_is_null=True)

    def _can_leave(self, rows: pa.Array, groups: kernel_columns.Groups) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Which rows, in order, count at some time where none is ever withdrawn."""
        if self.are_distinct:
            return self._first_of_equal(rows, groups)
        can_leave = np.zeros(len(rows), np.bool_)
        can_leave[groups.end_rows(self.number, are_last=True)[0]] = True
        return can_leave

    def _first_of_equal(
        self, rows: pa.Array, groups: kernel_columns.Groups
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """The first of equal rows of each group."""
        return changed_rows(groups.of_row, rank_rows(rows.flatten(), len(rows)))

    def _entry_codes(self, instants: pa.Array, rows: pa.Array) -> kernel_columns.Ints:
        columns = rows.flatten()
        if self.are_distinct:
            return rank_rows([*columns, instants], len(instants))
        return rank_rows([*columns[: self.orders], instants, *columns[self.orders :]], len(instants))


@dataclass(frozen=True, kw_only=True)
class ComputedRowsPart(RowsPart):
    """Rows of a group that are all kept, and of which ``take`` makes those that leave. ``columns``: their names; the
    first ``keys`` are the key. ``returns``: the columns that it gives.
    """

    take: GroupFunction | GroupQuery
    columns: Mapping[str, ColumnType]
    returns: Mapping[str, ColumnType]
    keys: int

    @property
    def leaving_type(self) -> pa.ListType:
        """The type of ``emitted_rows``. The event time is NULL where it is that of the window's end."""
        kinds = [kernel_columns.arrow_type(self.columns[name]) for name in self.key_names]
        kinds = [pa.int64(), *kinds, *(kernel_columns.arrow_type(self.returns[name]) for name in self._own_names)]
        return pa.list_(pa.struct([*zip(_field_names(len(kinds)), kinds, strict=True)]))

    @property
    def key_names(self) -> list[str]:
        """The columns of the key."""
        return [*self.columns][: self.keys]

    @property
    def _own_names(self) -> list[str]:
        return [name for name in self.returns if name != EVENT_TIME and name not in self.key_names]

    def emitted_rows(self, part: pa.Array) -> pa.Array:
        """The rows that ``take`` makes of those of each group that has some. Raises GroupFailedError."""
        rows, groups = self._standing_rows(part)
        compute_rows = _asked_function if isinstance(self.take, GroupFunction) else _asked_query
        computed_table, of_row = compute_rows(self, rows, groups)
        self._check_keys(computed_table, of_row, rows, groups)
        instants = pa.nulls(len(of_row), pa.int64())
        if EVENT_TIME in self.returns:
            instants = _combine_chunks(computed_table.column(EVENT_TIME)).cast(pa.int64())
        firsts = pa.array(groups.offsets[of_row])
        keys = [_combine_chunks(rows.column(name)).take(firsts) for name in self.key_names]
        items = _make_struct(
            [instants, *keys, *(_combine_chunks(computed_table.column(name)) for name in self._own_names)]
        )
        return kernel_columns.to_lists(
            items.cast(self.leaving_type.value_type), kernel_columns.of_ids(of_row, len(groups))
        )

    def _standing_rows(self, part: pa.Array) -> tuple[pa.Table, kernel_columns.Groups]:
        """The rows of each group in their order, as often as they are there."""
        entries, groups = kernel_columns.of_lists(part)
        copies = np.maximum(kernel_columns.as_numpy(entries.field(2)), 0)
        ends = np.append(0, np.cumsum(copies))
        indices = pa.array(np.repeat(np.arange(len(copies)), copies))
        columns = [column.take(indices) for column in entries.field(1).flatten()]
        rows = dict(zip(self.columns, columns, strict=False))
        return pa.table(
            {**rows, EVENT_TIME: kernel_columns.to_timestamps(entries.field(0).take(indices))}
        ), kernel_columns.Groups(ends[groups.offsets])

    def _check_keys(
        self, computed_table: pa.Table, of_row: kernel_columns.Ints, rows: pa.Table, groups: kernel_columns.Groups
    ) -> None:
        """Raise GroupFailedError if a row has another key than its group."""
        for name in self.key_names:
            if name not in computed_table.column_names:
                continue
            result_keys, own = (
                _combine_chunks(computed_table.column(name)),
                _combine_chunks(rows.column(name)).take(pa.array(groups.offsets[of_row])),
            )
            equal = pc.or_(pc.equal(result_keys, own).fill_null(False), pc.and_(result_keys.is_null(), own.is_null()))
            if not pc.all(equal, min_count=0).as_py():
                row = int(np.flatnonzero(~kernel_columns.as_numpy(equal))[0])
                problem = f"gave {name} {result_keys[row]}: rows have the key by themselves, so give it another name"
                raise GroupFailedError(int(of_row[row]), self.take, problem)

    def _can_leave(self, rows: pa.Array, groups: kernel_columns.Groups) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return np.ones(len(rows), np.bool_)


class GroupFunctionError(PipelineError, code="config.group_function"):
    """A function of a group that is missing, fails, gives what it does not declare, or differs when asked again."""


class GroupFailedError(Exception):
    """What is wrong with what was made of the ``group`` of that number, before anybody knows which one it is."""

    def __init__(self, group: int, take: GroupFunction | GroupQuery, problem: str) -> None:
        super().__init__(problem)
        self.group, self.take = group, take

    def to_pipeline_error(self, place: str) -> PipelineError:
        """The error that names the ``place`` of the group."""
        if isinstance(self.take, GroupFunction):
            return GroupFunctionError(f"{self.take.in_words} {self} ({place})")
        from headrace.pipeline.queries import GroupQueryError

        return GroupQueryError(f"query {self.take.sql!r} {self} ({place}). Nothing of this epoch is committed")


def _check_times(take: GroupFunction | GroupQuery, table: pa.Table, of_row: kernel_columns.Ints) -> None:
    """Raise GroupFailedError for a row of ``table`` with a time that no calendar has, or without an event time.
    ``of_row`` numbers the groups that the rows were made of.
    """
    for field in table.schema:
        if not (pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type)):
            continue
        is_event_time, unit = field.name == EVENT_TIME, 1 if pa.types.is_timestamp(field.type) else _DAY_MICROSECONDS
        instants = _combine_chunks(table.column(field.name)).cast(pa.int64() if unit == 1 else pa.int32())
        first, last = (EARLIEST, LATEST) if is_event_time else kernel_columns.CALENDAR
        is_in_range = pc.and_(
            pc.greater_equal(instants, kernel_columns.arrow_scalar(first // unit)),
            pc.less_equal(instants, kernel_columns.arrow_scalar(last // unit)),
        )
        is_in_range = is_in_range.fill_null(not is_event_time)
        if not pc.all(is_in_range, min_count=0).as_py():
            row = int(np.flatnonzero(~kernel_columns.as_numpy(is_in_range))[0])
            years = "1900 to 9998" if is_event_time else "1 to 9999"
            wrong_value = f"a time outside of the years {years}" if instants[row].is_valid else "NULL"
            raise GroupFailedError(int(of_row[row]), take, f"gave {wrong_value} as {field.name}")


_DAY_MICROSECONDS: Final = 86_400_000_000


def _canonical_table(
    take: GroupFunction | GroupQuery, returns: Mapping[str, ColumnType], table: pa.Table, of_row: kernel_columns.Ints
) -> pa.Table:
    """``table``, made of the groups that ``of_row`` numbers, with equal values written alike. Raises GroupFailedError
    for a map in which a key stands twice, and for a time that no calendar has.
    """
    _check_times(take, table, of_row)
    for name, kind in returns.items():
        if isinstance(kind, NestedType):
            canonical, foreign_row = kernel_columns.checked_values(_combine_chunks(table.column(name)), kind)
            if foreign_row is not None:
                row, what = foreign_row
                raise GroupFailedError(int(of_row[row]), take, f"gave {what} in column {name}")
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), canonical)
    return table


_CHECKED_ROWS: Final = 256
"""Groups of so many rows, at least one, are asked for twice."""


def _asked_function(
    part: ComputedRowsPart, rows: pa.Table, groups: kernel_columns.Groups
) -> tuple[pa.Table, kernel_columns.Ints]:
    """What a function makes of each group, and of which group each row is."""
    assert isinstance(part.take, GroupFunction)
    checked_function = _CheckedFunction(
        part.take, load_function(part.take, GroupFunctionError), part.returns, frozenset(part.key_names)
    )
    which = np.flatnonzero(groups.sizes)
    tables = [rows.slice(int(groups.offsets[group]), int(groups.sizes[group])) for group in which]
    results = [checked_function.apply_to_group(int(group), table) for group, table in zip(which, tables, strict=True)]
    of_row = np.repeat(which, np.array([len(table) for table in results], np.int64))
    # the empty table gives the columns where no group has rows
    all_rows = pa.concat_tables([checked_function.schema.empty_table(), *results])
    all_rows = _canonical_table(part.take, part.returns, all_rows, of_row)
    sample_size = max(1, int(np.searchsorted(np.cumsum(groups.sizes[which]), _CHECKED_ROWS, "right")))
    # in another order than at first, which shows a function that keeps something between calls
    for number in reversed(range(min(sample_size, len(which)))):
        checked_function.check_again(int(which[number]), tables[number], results[number])
    return all_rows, of_row


class _CheckedFunction(msgspec.Struct, frozen=True):
    """A ``function`` that is asked for what it makes of groups; it may give ``keys`` back."""

    function: GroupFunction
    call: Callable[[pa.Table], object]
    returns: Mapping[str, ColumnType]
    keys: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        """What it declares."""
        return pa.schema([(name, kernel_columns.arrow_type(kind)) for name, kind in self.returns.items()])

    def apply_to_group(self, group: int, rows: pa.Table) -> pa.Table:
        """What it makes of the ``rows`` of a ``group``. Raises GroupFailedError, and what HeadraceErrors it raises."""
        wrong = partial(GroupFailedError, group, self.function)
        result = call_on_rows(self.call, rows, pa.Table, wrong)
        for problem in self._result_problems(result):
            raise wrong(problem)
        self._check_keys(result, rows, wrong)
        return pa.Table.from_arrays([result.column(name) for name in self.schema.names], schema=self.schema)

    def check_again(self, group: int, rows: pa.Table, first_result: pa.Table) -> None:
        """Hold the ``first_result`` of a group to what it makes now. Raises GroupFailedError."""
        first_rows, second_rows = (  # maps are equal in any order of their keys, and NaN equals itself as text
            sorted(
                map(str, _canonical_table(self.function, self.returns, table, np.repeat(group, len(table))).to_pylist())
            )
            for table in (first_result, self.apply_to_group(group, rows))
        )
        if first_rows != second_rows:
            first_row, second_row = next(
                (a, b) for a, b in zip([*first_rows, "no row"], [*second_rows, "no row"], strict=False) if a != b
            )
            problem = (
                f"gave {first_row} at first, and {second_row} when it was asked again. It may keep nothing between two "
                "calls, use no clock and nothing random, and look at the rows of its group alone"
            )
            raise GroupFailedError(group, self.function, problem)

    def _result_problems(self, result: pa.Table) -> Iterator[str]:
        names = result.schema.names
        if duplicates := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            yield f"gave column {duplicates[0]} twice"
        for name, kind in self.returns.items():
            if name not in names:
                yield f"declares column {name}, and did not give it"
            elif (actual_type := result.schema.field(name).type) != kernel_columns.arrow_type(kind):
                type_text = f"{in_words(kind)}, which is {kernel_columns.arrow_type(kind)} in Arrow"
                yield f"declares column {name} as {type_text}, and gave {actual_type}: cast it"
        for name in names:
            if name not in self.returns and name not in self.keys:
                yield f"gave column {name}, which it does not declare: leave it out, or add it to returns="
        try:
            result.validate(full=True)
        except pa.ArrowInvalid as error:
            yield f"gave a table that is none: {error}"

    def _check_keys(self, result: pa.Table, rows: pa.Table, wrong: Callable[[str], GroupFailedError]) -> None:
        for name in self.keys & {*result.schema.names} - self.returns.keys():
            if result.num_rows and result.column(name).unique().to_pylist() != [rows.column(name)[0].as_py()]:
                raise wrong(
                    f"gave another {name} than that of its group: rows have the key by themselves; leave it out"
                )


def _asked_query(
    part: ComputedRowsPart, rows: pa.Table, groups: kernel_columns.Groups
) -> tuple[pa.Table, kernel_columns.Ints]:
    """What a query makes of each group, and of which group each row is."""
    from headrace.pipeline.queries import GROUP

    assert isinstance(part.take, GroupQuery)
    query = part.take.bind_to({**part.columns, EVENT_TIME: DataType.TIMESTAMP})
    schema = pa.schema(
        [(GROUP, pa.int64()), *((name, kernel_columns.arrow_type(kind)) for name, kind in query.columns.items())]
    )
    if not rows.num_rows:
        return schema.empty_table(), np.empty(0, np.int64)

    def failure_of_group(group: int, error: Exception) -> Exception:
        return GroupFailedError(group, part.take, f"fails: {str(error).splitlines()[0]}")

    with query.open_answers(rows.append_column(GROUP, pa.array(groups.of_row))) as answers:
        answer = answers.answer_groups([int(group) for group in np.flatnonzero(groups.sizes)], failure_of_group)
    answer, of_row = answer.cast(schema), kernel_columns.as_numpy(answer.column(GROUP))
    return _canonical_table(part.take, query.columns, answer, of_row), of_row


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    array: Any = column.combine_chunks()
    return array


def kept_rows_type(kind: pa.DataType) -> pa.ListType:
    """Rows of the struct type ``kind``, as they are kept."""
    return pa.list_(pa.struct([(TIME_FIELD, pa.int64()), (ROW, kind), (TIMES, pa.int64())]))


def _make_struct(columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays([*columns], names=_field_names(len(columns)))


def _field_names(number: int) -> list[str]:
    """The fields of a row that leaves: its event time, then its columns by their place."""
    return [TIME_FIELD, *(str(place) for place in range(number - 1))]
