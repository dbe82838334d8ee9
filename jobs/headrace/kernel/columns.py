"""Columns of the kernel: their Arrow types, and what numpy does to groups of their rows.

A TIMESTAMP is microseconds in UTC; users' own objects see an Instant. Stored rows may have columns that were called
something else when they were written, or were not there yet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.model.expressions import data_types
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT

TIMESTAMP = pa.timestamp("us", tz="UTC")
DATE = pa.date32()
DECIMAL = pa.decimal128(data_types.PRECISION, data_types.SCALE)

ARROW_TYPES: dict[data_types.DataType, pa.DataType] = {
    data_types.DataType.STRING: pa.string(),
    data_types.DataType.INT: pa.int64(),
    data_types.DataType.FLOAT: pa.float64(),
    data_types.DataType.BOOL: pa.bool_(),
    data_types.DataType.TIMESTAMP: TIMESTAMP,
    data_types.DataType.DATE: DATE,
    data_types.DataType.BYTES: pa.binary(),
    data_types.DataType.DECIMAL: DECIMAL,
}


def arrow_type(
    kind: data_types.ValueType, types: Mapping[data_types.DataType, pa.DataType] = ARROW_TYPES
) -> pa.DataType:
    """The Arrow type of a column or of a pane value, where that of what is in it is one of ``types``."""
    match kind:
        case data_types.ListType(item):
            return pa.list_(arrow_type(item, types))
        case data_types.PairsType(left, right):
            return pa.list_(pa.struct([("left", arrow_type(left, types)), ("right", arrow_type(right, types))]))
        case data_types.StructType(fields):
            return pa.struct([(name, arrow_type(own, types)) for name, own in fields])
        case data_types.MapType(value):
            return pa.map_(pa.string(), arrow_type(value, types))
    return types[kind]


def own_arrow_type(kind: data_types.ColumnType) -> pa.DataType:
    """The Arrow type of a value as users' own objects see it: timestamps are Instants."""
    return arrow_type(kind, _OWN_TYPES)


_OWN_TYPES = {**ARROW_TYPES, data_types.DataType.TIMESTAMP: pa.int64()}
_CONSTANT_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}


def arrow_scalar(value: bool | float | str | bytes) -> pa.Scalar:
    """A value beside columns, of a type that Arrow need not look for: it imports pandas to do so."""
    return pa.scalar(value, _CONSTANT_TYPES[type(value)])


def to_timestamps(granules: pa.Array) -> pa.Array:
    """Instants as timestamps, NULL where they are not finite."""
    begin, end = arrow_scalar(int(MIN_INSTANT)), arrow_scalar(int(GLOBAL_WINDOW_END) - 1)
    finite = pc.and_(pc.greater(granules, begin), pc.less(granules, end))
    return pc.if_else(finite, granules, pa.scalar(None, granules.type)).cast(TIMESTAMP)


Names = Mapping[str, str | None]
"""What columns are called in rows as they were written, None: they are not there. Others have the name of today."""


def names_there(schema: pa.Schema, names: Names) -> list[str]:
    """The columns of rows as they were written that ``schema`` has under the names of today."""
    todays_names = (names.get(name, name) for name in schema.names)
    return [name for name in todays_names if name is not None]


def as_now(rows: pa.Table, schema: pa.Schema, names: Names) -> pa.Table:
    """Rows as they were written with the columns of ``schema``; what was not there is NULL."""

    def cast_column(field: pa.Field) -> pa.Array:
        name = names.get(field.name, field.name)
        return pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name).cast(field.type)

    return pa.table([cast_column(field) for field in schema], schema=schema)


Ints = NDArray[np.int64]
_ITEM_LIMIT = 2**31
"""No list has so many items."""
_DIGIT_BITS = 16
"""Bits by which numpy sorts without comparing."""

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Groups:
    """Groups of rows. ``order`` names the rows group by group, those of one group in their own order (None: they stand
    so already); group ``i`` is ``order[offsets[i]:offsets[i + 1]]``, and may be empty.
    """

    offsets: Ints
    order: Ints | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        return np.diff(self.offsets)

    @cached_property
    def of_row(self) -> Ints:
        """The group of each row, in the order of ``arrange_column``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    @cached_property
    def of_each(self) -> Ints:
        """The group of each row, in the order in which the rows stand."""
        if self.order is None:
            return self.of_row
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = self.of_row
        return numbers

    @property
    def first_rows(self) -> Ints:
        """The first row of each group, none of which is empty."""
        starts = self.offsets[:-1]
        return starts if self.order is None else self.order[starts]

    def arrange_column(self, column: pa.Array) -> pa.Array:
        """``column`` with the rows of each group together."""
        return column if self.order is None else column.take(pa.array(self.order))

    def first_values(self, column: pa.Array) -> pa.Array:
        """The value of the first row of each group, none of which is empty."""
        starts = self.offsets[:-1]
        return column.take(pa.array(starts if self.order is None else self.order[starts]))

    def reduce(self, fold: np.ufunc, values: NDArray[T], empty: object) -> NDArray[T]:
        """``fold`` over the values of each group, which are arranged; ``empty`` for a group without rows."""
        has_rows = self.sizes > 0
        if len(self) and has_rows.all():
            return cast("NDArray[T]", fold.reduceat(values, self.offsets[:-1]))
        result = np.full(len(self), empty, dtype=values.dtype)
        if has_rows.any():
            result[has_rows] = fold.reduceat(values, self.offsets[:-1][has_rows])
        return result

    def without_nulls(self, column: pa.Array) -> "tuple[pa.Array, Groups]":
        """The values of ``column``, which is arranged, that are not NULL, and their groups."""
        if not column.null_count:
            return column, self if self.order is None else Groups(self.offsets)
        return column.drop_null(), self.filter_rows(valid_mask(column))

    def filter_rows(self, is_chosen: NDArray[np.bool_]) -> "Groups":
        """The groups of those arranged rows that ``is_chosen`` marks."""
        ends = np.zeros(len(is_chosen) + 1, np.int64)
        np.cumsum(is_chosen, out=ends[1:])
        return Groups(ends[self.offsets])

    def end_rows(self, k: int, *, are_last: bool) -> "tuple[Ints, Groups]":
        """The rows of the last ``k`` of each group from the end on, or of the first ``k``; and their groups."""
        ends = Groups(np.append(0, np.cumsum(np.minimum(self.sizes, k))))
        place = np.arange(ends.offsets[-1]) - np.repeat(ends.offsets[:-1], ends.sizes)
        if are_last:
            return np.repeat(self.offsets[1:] - 1, ends.sizes) - place, ends
        return np.repeat(self.offsets[:-1], ends.sizes) + place, ends

    def flatten_lists(self, lists: pa.Array) -> "tuple[pa.Array, Groups]":
        """The items of all lists of each group, one list after another; ``lists`` are arranged."""
        items, inner = of_lists(lists)
        return items, Groups(inner.offsets[self.offsets])


@dataclass(frozen=True)
class NumberedGroups:
    """Groups of rows by the ``number`` that each row has, in the order of numbers, which are below ``limit``; one that
    no row has is no group. What commutes is folded without putting rows in order.
    """

    number: Ints
    limit: int

    @cached_property
    def _counts(self) -> Ints:
        return np.bincount(self.number, minlength=self.limit)

    @cached_property
    def numbers(self) -> Ints:
        return np.flatnonzero(self._counts)

    @cached_property
    def arranged_groups(self) -> Groups:
        """The groups of rows that stand in their order."""
        return Groups(np.append(np.int64(0), np.cumsum(self._counts[self.numbers])))

    @cached_property
    def groups(self) -> Groups:
        """The same by the order of rows, which takes longer."""
        # numpy sorts 16 bits by radix, which is faster than comparing
        order = np.argsort(self.number.astype(np.uint16), kind="stable")
        for shift in range(_DIGIT_BITS, self.limit.bit_length(), _DIGIT_BITS):
            digit = (self.number >> shift).astype(np.uint16)
            order = order[np.argsort(digit[order], kind="stable")]
        return Groups(self.arranged_groups.offsets, order)

    def reduce(self, fold: np.ufunc, values: Ints) -> Ints:
        """A ``fold`` (add, minimum or maximum) over the ``values`` of each group, which stand as the rows do."""
        other = 0 if fold is np.add else values.max(initial=0) if fold is np.minimum else values.min(initial=0)
        result = np.full(self.limit, other, np.int64)
        fold.at(result, self.number, values)
        return result[self.numbers]


def take_rows(column: pa.Array, rows: Ints) -> pa.Array:
    """The ``rows`` of ``column``, in ascending order: the column itself if they are all."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers or booleans in Arrow's memory, booleans in bytes of their own. Raises ArrowInvalid if one is NULL.

    Arrow's own ``to_numpy`` imports pandas, which takes longer than a short run.
    """
    kind = column.type
    is_bool = pa.types.is_boolean(kind)
    if column.null_count or not (is_bool or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return cast("NDArray[Any]", column.to_numpy())
    if not len(column):
        return np.zeros(0, kind.to_pandas_dtype())
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    data, offset = values.buffers()[1], values.offset
    if is_bool:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=offset + len(values), bitorder="little")
        return bits[offset:].view(np.bool_)
    array: NDArray[Any] = np.frombuffer(data, kind.to_pandas_dtype(), len(values), offset * kind.byte_width)
    array.flags.writeable = False  # others look at it, too
    return array


def true_mask(column: pa.Array) -> NDArray[np.bool_]:
    """A column of booleans, NULL as FALSE."""
    return as_numpy(column.fill_null(False) if column.null_count else column)


def of_ids(ids: Ints, number: int) -> Groups:
    """``number`` groups of rows that stand in the order of ``ids``, which say the group of each."""
    offsets = np.zeros(number + 1, np.int64)
    np.cumsum(np.bincount(ids, minlength=number), out=offsets[1:])
    return Groups(offsets)


def valid_mask(column: pa.Array) -> NDArray[np.bool_]:
    return cast("NDArray[np.bool_]", as_numpy(column.is_valid()))


def of_sorted(begins: NDArray[np.bool_], order: Ints | None = None) -> Groups:
    """Groups of rows that stand in order, ``begins`` TRUE where a group does (of the first row always)."""
    starts = np.flatnonzero(begins).astype(np.int64)
    return Groups(np.append(starts, np.int64(len(begins))), order)


def run_begins(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``values`` differ from the one before; the first does."""
    return with_first(values[1:] != values[:-1], len(values))


def with_first(others: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    """TRUE for the first of so many rows, if there is one, and then ``others``."""
    return np.concatenate([np.ones(min(length, 1), np.bool_), others])


def of_lists(lists: pa.Array) -> tuple[pa.Array, Groups]:
    """The items of all lists, and the group of each list; NULL is a list without items."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(as_numpy(pc.list_value_length(lists).fill_null(0)), out=offsets[1:])
    return lists.flatten(), Groups(offsets)


def to_lists(items: pa.Array, groups: Groups, *, empty_is_null: bool = False) -> pa.Array:
    """A list of its items for each group; ``items`` are arranged."""
    offsets = pa.array(groups.offsets).cast(pa.int32())  # which refuses more items than a column of lists can have
    mask = pa.array(groups.sizes == 0) if empty_is_null else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def side_by_side(columns: Sequence[pa.Array]) -> pa.Array:
    """A list of its values for each row; an empty one where all are NULL, as they are if one is."""
    valid_rows = np.flatnonzero(valid_mask(columns[0]))
    rows = valid_rows[:, None] + np.arange(len(columns)) * len(columns[0])
    items = pa.concat_arrays(columns).take(pa.array(rows.ravel()))
    return to_lists(items, of_ids(np.repeat(valid_rows, len(columns)), len(columns[0])))


def list_numbers(lists: pa.Array) -> Ints:
    """The number of the list that holds each item of ``pc.list_flatten(lists)``, which leaves out what NULLs hide."""
    return np.repeat(np.arange(len(lists), dtype=np.int64), _list_lengths(lists))


def items_at(lists: pa.Array, place: int) -> pa.Array:
    """The item at ``place`` of each list, from the end if it is negative; NULL where there is none."""
    items, groups = of_lists(lists)
    place = min(max(place, -_ITEM_LIMIT), _ITEM_LIMIT)
    places = place + (groups.sizes if place < 0 else np.zeros(len(groups), np.int64))
    absent = (places < 0) | (places >= groups.sizes)
    return items.take(pa.array(np.where(absent, 0, groups.offsets[:-1] + places), mask=absent))


def slice_lists(lists: pa.Array, start: int, length: int | None = None) -> pa.Array:
    """Each list with its ``length`` items from ``start`` on, which counts from the end if negative."""
    items, groups = of_lists(lists)
    start, most = (
        min(max(start, -_ITEM_LIMIT), _ITEM_LIMIT),
        _ITEM_LIMIT if length is None else min(length, _ITEM_LIMIT),
    )
    first = np.minimum(np.maximum(groups.sizes + start, 0) if start < 0 else start, groups.sizes)
    part = Groups(np.append(0, np.cumsum(np.minimum(groups.sizes - first, most))))
    rows = np.arange(part.offsets[-1]) + np.repeat(groups.offsets[:-1] + first - part.offsets[:-1], part.sizes)
    offsets = pa.array(part.offsets, pa.int32())
    return pa.ListArray.from_arrays(offsets, items.take(pa.array(rows)), mask=lists.is_null())


def with_items(lists: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """``lists`` with what ``read`` makes of their items; a list is NULL if an item becomes NULL that was not."""
    items = pc.list_flatten(lists)
    new_items = read(items)
    is_null = ~valid_mask(lists)
    is_null[list_numbers(lists)[valid_mask(items) & ~valid_mask(new_items)]] = True
    return having_items(lists, new_items, pa.array(is_null))


def having_items(lists: pa.Array, items: pa.Array, is_null: pa.Array) -> pa.Array:
    """``lists`` with other ``items`` in the place of ``pc.list_flatten(lists)``; NULL where it says so."""
    offsets = pa.array(np.append(0, np.cumsum(_list_lengths(lists))), pa.int32())
    return pa.ListArray.from_arrays(offsets, items, mask=is_null)


def holds_type(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether ``kind`` is wanted, or a type of values in it. Keys of maps are not asked about."""
    if pa.types.is_list(kind):
        inner_types = [kind.value_type]
    elif pa.types.is_map(kind):
        inner_types = [kind.item_type]
    else:
        inner_types = [field.type for field in kind] if pa.types.is_struct(kind) else []
    return bool(is_wanted(kind)) or any(holds_type(inner, is_wanted) for inner in inner_types)


def is_nested(kind: pa.DataType) -> bool:
    """Whether a column of ``kind`` holds several values: a list, a struct or a map."""
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind))


def equal_mask(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Where two columns of one type are equal: NULL equals NULL, and NaN NaN."""
    left_valid, kind = valid_mask(left), left.type
    if pa.types.is_map(kind):
        equal = _same_lists(entries_of(left), entries_of(right))
    elif pa.types.is_list(kind):
        equal = _same_lists(left, right)
    elif pa.types.is_struct(kind):
        equal = np.ones(len(left), np.bool_)
        for i in range(kind.num_fields):
            equal &= equal_mask(left.field(i), right.field(i))
    else:
        equal = true_mask(pc.equal(left, right))
    if pa.types.is_floating(kind):
        equal = equal | true_mask(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    is_equal: NDArray[np.bool_] = ~(left_valid ^ valid_mask(right)) & (~left_valid | equal)
    return is_equal


def _same_lists(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    (items, groups), (others, other_groups) = of_lists(left), of_lists(right)
    equal: NDArray[np.bool_] = groups.sizes == other_groups.sizes
    rows = np.flatnonzero(equal & (groups.sizes > 0))
    (items, groups), (others, _) = of_lists(left.take(pa.array(rows))), of_lists(right.take(pa.array(rows)))
    equal[rows] = groups.reduce(np.minimum, equal_mask(items, others).astype(np.int8), 1) > 0
    return equal


def entries_of(maps: pa.Array) -> pa.Array:
    """Each map as the list of its entries, structs of ``key`` and ``value``."""
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def keys_of(maps: pa.Array) -> pa.Array:
    """Each map as the list of its keys."""
    lists = entries_of(maps)
    return having_items(lists, pc.list_flatten(lists).field("key"), lists.is_null())


def values_of_key(maps: pa.Array, key: str) -> pa.Array:
    """The value of ``key`` in each map, which has it once; NULL where there is none."""
    lists = entries_of(maps)
    entries = pc.list_flatten(lists)
    has_key = np.flatnonzero(true_mask(pc.equal(entries.field("key"), key)))
    places = np.full(len(maps), -1, np.int64)
    places[list_numbers(lists)[has_key]] = has_key
    return entries.field("value").take(pa.array(places, mask=places < 0))


def map_leaves(
    values: pa.Array, kind: data_types.ColumnType, read: Callable[[pa.Array, data_types.DataType], pa.Array]
) -> pa.Array:
    """``values`` of a column of ``kind`` with what ``read`` makes of the values in them; what is nested is NULL if a
    value in it becomes NULL that was not.
    """
    match kind:
        case data_types.ListType(item):
            return with_items(values, lambda items: map_leaves(items, item, read))
        case data_types.StructType():
            return with_fields(values, kind, values.flatten(), lambda part, own: map_leaves(part, own, read))
        case data_types.MapType(value):
            return with_entries(
                values,
                lambda keys: read(keys, data_types.DataType.STRING),
                lambda items: map_leaves(items, value, read),
            )
    return read(values, kind)


def with_fields(
    structs: pa.Array,
    kind: data_types.StructType,
    parts: Sequence[pa.Array],
    read: Callable[[pa.Array, data_types.ColumnType], pa.Array],
) -> pa.Array:
    """``structs`` with what ``read`` makes of ``parts``, one a field; NULL if a value becomes NULL that was not."""
    new_parts = [read(part, own) for part, (_, own) in zip(parts, kind.fields, strict=True)]
    is_lost = as_numpy(structs.is_null())
    for old, new in zip(parts, new_parts, strict=True):
        is_lost = is_lost | (valid_mask(old) & ~valid_mask(new))
    return pa.StructArray.from_arrays(new_parts, names=[name for name, _ in kind.fields], mask=pa.array(is_lost))


def with_entries(
    maps: pa.Array, read_keys: Callable[[pa.Array], pa.Array], read_values: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """``maps`` with what is read of their keys and values; NULL if one of these becomes NULL that was not."""
    lists = entries_of(maps)
    keys, values = pc.list_flatten(lists).flatten()
    new_keys, new_values = read_keys(keys), read_values(values)
    is_lost = ~valid_mask(new_keys) | (valid_mask(values) & ~valid_mask(new_values))
    return to_maps(lists, new_keys, new_values, is_lost)


def canonical_values(values: pa.Array, kind: data_types.ColumnType) -> pa.Array:
    """``values`` so that equal ones are written alike: keys of maps ascend, and 0.0 has no sign, but in a list of
    values. A map in which a key stands twice is NULL, and so is what it is in.
    """
    if isinstance(kind, data_types.NestedType) and not data_types.is_list_of_values(kind):
        return map_leaves(_in_order_of_keys(values, kind), kind, _without_signed_zero)
    return values


def checked_values(values: pa.Array, kind: data_types.ColumnType) -> tuple[pa.Array, tuple[int, str] | None]:
    """``canonical_values`` of what a user's code gave; the first row that no column holds, with what is wrong."""
    canonical = canonical_values(values, kind)
    in_calendar = map_leaves(canonical, kind, _without_foreign_times)
    for values_left, what in ((canonical, "a map in which a key stands twice"), (in_calendar, _FOREIGN_TIME)):
        lost_rows = np.flatnonzero(valid_mask(values) & ~valid_mask(values_left))
        if len(lost_rows):
            return canonical, (int(lost_rows[0]), what)
    return canonical, None


CALENDAR: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999."""
_DAY: Final = 86_400_000_000
_FOREIGN_TIME: Final = "a time outside of the years 1 to 9999"


def _without_foreign_times(values: pa.Array, kind: data_types.DataType) -> pa.Array:
    if kind is data_types.DataType.TIMESTAMP:
        numbers, (first, last) = values.cast(pa.int64()), CALENDAR
    elif kind is data_types.DataType.DATE:
        numbers, (first, last) = values.cast(pa.int32()), (end // _DAY for end in CALENDAR)
    else:
        return values
    is_known = pc.and_(pc.greater_equal(numbers, arrow_scalar(first)), pc.less_equal(numbers, arrow_scalar(last)))
    return pc.if_else(is_known, values, pa.scalar(None, values.type))


def _without_signed_zero(values: pa.Array, kind: data_types.DataType) -> pa.Array:
    return pc.add(values, arrow_scalar(0.0)) if kind is data_types.DataType.FLOAT else values


def _in_order_of_keys(values: pa.Array, kind: data_types.ColumnType) -> pa.Array:
    match kind:
        case data_types.ListType(item) if not isinstance(item, data_types.DataType):
            return with_items(values, lambda items: _in_order_of_keys(items, item))
        case data_types.StructType():
            return with_fields(values, kind, values.flatten(), _in_order_of_keys)
        case data_types.MapType(value):
            lists = entries_of(values)
            numbers = list_numbers(lists)
            keys, items = pc.list_flatten(lists).flatten()
            inner = _in_order_of_keys(items, value)
            order = as_numpy(
                pc.sort_indices(
                    pa.table({"row": numbers, "key": keys}), sort_keys=[("row", "ascending"), ("key", "ascending")]
                )
            ).astype(np.int64)
            ordered_keys = keys.take(pa.array(order))
            is_doubtful = np.zeros(len(order), np.bool_)
            if len(order) > 1:
                is_doubtful[1:] = true_mask(pc.equal(ordered_keys[1:], ordered_keys[:-1])) & (
                    numbers[1:] == numbers[:-1]
                )
            is_doubtful |= (valid_mask(items) & ~valid_mask(inner))[order]
            return to_maps(lists, ordered_keys, inner.take(pa.array(order)), is_doubtful)
    return values


def to_maps(lists: pa.Array, keys: pa.Array, items: pa.Array, is_lost: NDArray[np.bool_]) -> pa.Array:
    """Maps of ``keys`` and ``items``, in the place of what ``lists`` hold; NULL where ``is_lost``."""
    numbers, is_null = list_numbers(lists), ~valid_mask(lists)
    is_null[numbers[is_lost]] = True
    if (is_kept := ~is_null[numbers]).sum() < len(is_kept):
        keys, items = keys.filter(pa.array(is_kept)), items.filter(pa.array(is_kept))
    offsets = pa.array(np.append(0, np.cumsum(np.where(is_null, 0, _list_lengths(lists)))), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, mask=pa.array(is_null))


def _list_lengths(lists: pa.Array) -> Ints:
    lengths: Ints = as_numpy(pc.list_value_length(lists).fill_null(0))
    return lengths
