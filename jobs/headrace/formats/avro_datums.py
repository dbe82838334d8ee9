"""Data of one Avro schema, side by side: the same field of all is read at once, where each of them has come to.

Numbers and pieces are read at many places of a buffer at once. ``read_varints`` reads zigzag integers of seven bits a
byte, ``slice_bytes`` bytes behind their length. Avro and Kafka write both alike.

A datum is *bad* that is cut, or says what cannot be. What is read of it counts for nothing, and it stays at its end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.columns import Ints, entries_of, having_items, to_maps

UInt8s = NDArray[np.uint8]

_MOST_SHIFT = 63


def read_varints(octets: UInt8s, positions: Ints) -> tuple[Ints, Ints]:
    """The numbers at ``positions`` (zigzag, seven bits a byte), and where each ends. One has ten bytes at most: of a
    longer one, which nobody writes, the rest is left.
    """
    octet = octets[positions]
    number = (octet & 0x7F).astype(np.uint64)
    end = positions + 1
    more = np.flatnonzero(octet & 0x80)
    shift = 7
    while len(more) and shift <= _MOST_SHIFT:
        octet = octets[end[more]]
        number[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        end[more] += 1
        more, shift = more[(octet & 0x80) != 0], shift + 7
    return (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64), end


def slice_bytes(data: bytes, begin: Ints, length: Ints) -> pa.Array:
    """The bytes of ``data`` from each ``begin`` on, NULL where the ``length`` is negative. Begins ascend, so they and
    what lies between them are one binary column, of which every other value is taken.
    """
    bounds = np.empty(2 * len(begin), np.int32)
    bounds[0::2], bounds[1::2] = begin, begin + np.maximum(length, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.binary(), max(len(bounds) - 1, 0), buffers)
    places = np.arange(0, len(bounds), 2)
    is_null = length < 0
    return every.take(pa.array(places, mask=is_null) if is_null.any() else pa.array(places))


WantedFields = Mapping[str, "WantedFields"]
"""The fields of a record that are wanted, and of each what is wanted in it; a field with none is wanted as a whole."""

ColumnAndEnd = tuple[pa.Array, Ints]
"""Values, and where each of them ends."""

_PADDING = 32
_DECIMAL_BYTES = 16
_MOST_OF_NUMBER = 10
"""An integer has so many bytes at most."""

_NO_COLUMN = pa.month_day_nano_interval()
"""Stands for what no column can be."""


class Data:
    """The data in ``octets`` that end at the places ``limits``."""

    def __init__(self, octets: bytes, limits: Ints) -> None:
        self.data = octets + bytes(_PADDING)  # what is cut is read into the padding, and is bad then
        self.octets: UInt8s = np.frombuffer(self.data, np.uint8)
        self.limits = limits
        self.is_bad: NDArray[np.bool_] = np.zeros(len(limits), np.bool_)

    def mark_bad(self, rows: Ints, which: NDArray[np.bool_]) -> None:
        self.is_bad[rows[which]] = True

    def clamp_positions(self, rows: Ints, positions: Ints) -> Ints:
        """Where ``rows`` have come to: those that are beyond their end are bad, and stay there."""
        is_beyond = positions > self.limits[rows]
        if is_beyond.any():
            self.mark_bad(rows, is_beyond)
            positions = np.where(is_beyond, self.limits[rows], positions)
        return positions

    def read_integers(self, rows: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """An integer of each of ``rows``, 0 of those that are cut."""
        numbers, end = read_varints(self.octets, positions)
        is_long = end - positions == _MOST_OF_NUMBER
        if is_long.any():
            self.mark_bad(rows, is_long & (self.octets[end - 1] > 1))  # more than 64 bits
        clamped_end = self.clamp_positions(rows, end)
        return (numbers if clamped_end is end else np.where(clamped_end == end, numbers, 0)), clamped_end

    def read_spans(self, rows: Ints, positions: Ints) -> tuple[Ints, Ints, Ints]:
        """Bytes behind their length: begin, length, and where they end."""
        length, begin = self.read_integers(rows, positions)
        is_wrong = (length < 0) | (length > self.limits[rows] - begin)
        if is_wrong.any():
            self.mark_bad(rows, is_wrong)
            length = np.where(is_wrong, 0, length)
        return begin, length, begin + length

    def read_fixed_bytes(self, rows: Ints, positions: Ints, size: int) -> tuple[NDArray[np.uint8], Ints]:
        """``size`` bytes of each of ``rows``, a row of them each."""
        end = self.clamp_positions(rows, positions + size)
        begin = np.minimum(positions, len(self.octets) - max(size, 1))
        return self.octets[begin[:, None] + np.arange(size)], end


class AvroType(ABC):
    """A type of Avro. ``arrow`` is its type as a column."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType:
        """What values are as a column."""

    @property
    def least_bytes(self) -> int:
        """So many bytes a value has at least."""
        return 1

    @abstractmethod
    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        """The values of ``rows``, which have come to ``positions``, and where they are then. Where ``wanted_fields`` is
        None, a value is only passed: its values are NULL.
        """


@dataclass(frozen=True)
class NullType(AvroType):
    """Nothing."""

    least_bytes = 0
    arrow = pa.null()

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        return pa.nulls(len(rows)), positions


@dataclass(frozen=True)
class BooleanType(AvroType):
    """One byte, 0 or 1."""

    arrow = pa.bool_()

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        octets, end = data.read_fixed_bytes(rows, positions, 1)
        data.mark_bad(rows, octets[:, 0] > 1)
        return pa.array(octets[:, 0] == 1), end


@dataclass(frozen=True)
class IntegerType(AvroType):
    """``int`` and ``long``, also as times and dates: ``arrow`` is a type of 64 bits, or a date."""

    arrow_type: pa.DataType

    @property
    def arrow(self) -> pa.DataType:
        return self.arrow_type

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        numbers, end = data.read_integers(rows, positions)
        if pa.types.is_date32(self.arrow_type):
            days = numbers.astype(np.int32)
            data.mark_bad(rows, days != numbers)
            return pa.array(days).cast(self.arrow_type), end
        return pa.array(numbers).cast(self.arrow_type), end


@dataclass(frozen=True)
class FloatType(AvroType):
    """``float`` and ``double``: 4 or 8 bytes, the least first."""

    size: int

    @property
    def arrow(self) -> pa.DataType:
        return pa.float32() if self.size == 4 else pa.float64()

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        octets, end = data.read_fixed_bytes(rows, positions, self.size)
        return pa.array(np.ascontiguousarray(octets).view(f"<f{self.size}")[:, 0]), end


@dataclass(frozen=True)
class BytesType(AvroType):
    """``bytes``, or ``string`` if it ``is_text``."""

    is_text: bool = False

    @property
    def arrow(self) -> pa.DataType:
        return pa.string() if self.is_text else pa.binary()

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        begin, length, end = data.read_spans(rows, positions)
        if wanted_fields is None:
            return pa.nulls(len(rows)), end
        values = slice_bytes(data.data, begin, length)
        return (values.view(pa.string()) if self.is_text else values), end


@dataclass(frozen=True)
class FixedType(AvroType):
    """So many bytes."""

    size: int
    arrow = pa.binary()

    @property
    def least_bytes(self) -> int:
        return self.size

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        end = data.clamp_positions(rows, positions + self.size)
        return (
            pa.nulls(len(rows)) if wanted_fields is None else slice_bytes(data.data, positions, end - positions)
        ), end


@dataclass(frozen=True)
class DecimalType(AvroType):
    """The digits of a decimal as a number in bytes, the largest first: behind their length, or ``size`` of them."""

    precision: int
    scale: int
    size: int | None = None

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        if self.size is None:
            begin, length, end = data.read_spans(rows, positions)
        else:
            end = data.clamp_positions(rows, positions + self.size)
            begin, length = positions, end - positions
        if wanted_fields is None:
            return pa.nulls(len(rows)), end
        sign = np.where((length > 0) & (data.octets[begin] >= 0x80), 0xFF, 0).astype(np.uint8)[:, None]
        most = max(_DECIMAL_BYTES, int(length.max(initial=0)))
        place = np.arange(most)
        is_digit = place < length[:, None]
        digits = data.octets[np.where(is_digit, begin[:, None] + length[:, None] - 1 - place, 0)]
        octets = np.where(is_digit, digits, sign)
        if most > _DECIMAL_BYTES:  # what is more repeats the sign
            is_wide = (octets[:, _DECIMAL_BYTES:] != sign).any(axis=1)
            data.mark_bad(rows, is_wide | ((octets[:, _DECIMAL_BYTES - 1] >= 0x80) != (sign[:, 0] == 0xFF)))
        decimal_bytes = np.ascontiguousarray(octets[:, :_DECIMAL_BYTES])
        return pa.Array.from_buffers(self.arrow, len(rows), [None, pa.py_buffer(decimal_bytes)]), end


@dataclass(frozen=True)
class EnumType(AvroType):
    """One of ``symbols``, by its number."""

    symbols: tuple[str, ...]

    arrow = pa.string()

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        numbers, end = data.read_integers(rows, positions)
        is_wrong = (numbers < 0) | (numbers >= len(self.symbols))
        data.mark_bad(rows, is_wrong)
        symbols = pa.array(self.symbols, pa.string())
        return symbols.take(pa.array(np.where(is_wrong, 0, numbers), mask=is_wrong)), end


@dataclass(frozen=True)
class RecordType(AvroType):
    """Fields, one after the other."""

    fields: Mapping[str, AvroType]

    @property
    def least_bytes(self) -> int:
        return sum(kind.least_bytes for kind in self.fields.values())

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([(name, kind.arrow) for name, kind in self.fields.items()])

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        values: dict[str, pa.Array] = {}
        for name, kind in self.fields.items():
            is_wanted = wanted_fields is not None and (not wanted_fields or name in wanted_fields)
            wanted_members = wanted_fields.get(name, {}) if is_wanted and wanted_fields is not None else None
            read, positions = kind.read(data, rows, positions, wanted_members)
            if is_wanted:
                values[name] = read
        if not values:
            return pa.nulls(len(rows)), positions
        return pa.StructArray.from_arrays([*values.values()], names=[*values]), positions


@dataclass(frozen=True)
class UnionType(AvroType):
    """One of several types, by its number. It is a column if it is one type, or NULL."""

    branches: tuple[AvroType, ...]

    @property
    def _values(self) -> list[AvroType]:
        return [branch for branch in self.branches if not isinstance(branch, NullType)]

    @property
    def arrow(self) -> pa.DataType:
        if not self._values:
            return pa.null()
        return self._values[0].arrow if len(self._values) == 1 else _NO_COLUMN

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        numbers, positions = data.read_integers(rows, positions)
        is_wrong = (numbers < 0) | (numbers >= len(self.branches))
        data.mark_bad(rows, is_wrong)
        only_branch = self._values[0] if len(self._values) == 1 else None
        values = pa.nulls(len(rows))
        for number, branch in enumerate(self.branches):
            chosen_rows = np.flatnonzero(numbers == number)
            if not len(chosen_rows):
                continue
            read, end = branch.read(
                data, rows[chosen_rows], positions[chosen_rows], wanted_fields if branch is only_branch else None
            )
            positions = positions.copy()
            positions[chosen_rows] = end
            if branch is only_branch and wanted_fields is not None:
                place = np.full(len(rows), -1, np.int64)
                place[chosen_rows] = np.arange(len(chosen_rows))
                values = read.take(pa.array(place, mask=place < 0)) if len(chosen_rows) < len(rows) else read
        return values, positions


@dataclass(frozen=True)
class ItemsType(AvroType):
    """``array``: items in blocks, each behind its number; the last block has none. ``map``: each item has a name before
    it (``is_map``).
    """

    item: AvroType
    is_map: bool = False

    @property
    def _parts(self) -> tuple[AvroType, ...]:
        return (BytesType(is_text=True), self.item) if self.is_map else (self.item,)

    @property
    def arrow(self) -> pa.DataType:
        if self.is_map:
            return pa.map_(pa.string(), self.item.arrow)
        return pa.list_(self.item.arrow)

    def read(self, data: Data, rows: Ints, positions: Ints, wanted_fields: WantedFields | None) -> ColumnAndEnd:
        left, positions = self._read_block_count(data, rows, positions)
        positions, sizes = positions.copy(), np.zeros(len(rows), np.int64)
        of_row: list[Ints] = []
        items: list[pa.Array] = []
        keys: list[pa.Array] = []
        parts, turn = self._parts, np.flatnonzero(left > 0)
        while len(turn):
            for part in parts:
                read, positions[turn] = part.read(data, rows[turn], positions[turn], wanted_fields)
                if part is not self.item and wanted_fields is not None:
                    keys.append(read)
            if wanted_fields is not None:
                of_row.append(turn)
                items.append(read)
            sizes[turn] += 1
            left[turn] -= 1
            is_whole = ~data.is_bad[rows[turn]]
            ended_rows = turn[(left[turn] == 0) & is_whole]
            if len(ended_rows):
                left[ended_rows], positions[ended_rows] = self._read_block_count(
                    data, rows[ended_rows], positions[ended_rows]
                )
            turn = turn[(left[turn] > 0) & is_whole]
        if wanted_fields is None:
            return pa.nulls(len(rows)), positions
        offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
        if not items:
            of_row, items, keys = [np.zeros(0, np.int64)], [pa.nulls(0)], [pa.nulls(0, pa.string())]
        # items came in turns, one of each row at a time
        order = np.argsort(np.concatenate(of_row), kind="stable")
        kind = _wanted_type(self.item.arrow, wanted_fields)
        ordered_items = pa.concat_arrays([_with_type(one, kind) for one in items]).take(pa.array(order))
        if self.is_map:
            return pa.MapArray.from_arrays(
                offsets, pa.concat_arrays(keys).take(pa.array(order)), ordered_items
            ), positions
        return pa.ListArray.from_arrays(offsets, ordered_items), positions

    def _read_block_count(self, data: Data, rows: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """How many items come next; 0: that was all. An item has a byte at least, unless it is nothing at all."""
        number, positions = data.read_integers(rows, positions)
        is_sized = np.flatnonzero(number < 0)  # its length in bytes comes behind its number
        if len(is_sized):
            positions = positions.copy()
            _, positions[is_sized] = data.read_integers(rows[is_sized], positions[is_sized])
            number = np.abs(number)
        has_bytes = self.is_map or self.item.least_bytes > 0
        room = np.maximum(data.limits[rows] - positions, 0 if has_bytes else _EMPTY_ITEMS)
        is_wrong = (number < 0) | (number > room)
        data.mark_bad(rows, is_wrong)
        return np.where(is_wrong | data.is_bad[rows], 0, number), positions


def _wanted_type(kind: pa.DataType, wanted_fields: WantedFields) -> pa.DataType:
    """The type of what is read of a type ``kind`` of which these are the ``wanted_fields``."""
    if pa.types.is_struct(kind):
        fields = [field for field in kind if not wanted_fields or field.name in wanted_fields]
        if not fields:
            return pa.null()
        return pa.struct(
            [(field.name, _wanted_type(field.type, wanted_fields.get(field.name, {}))) for field in fields]
        )
    if pa.types.is_list(kind):
        return pa.list_(_wanted_type(kind.value_type, wanted_fields))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _wanted_type(kind.item_type, wanted_fields))
    return pa.null() if kind == _NO_COLUMN else kind


def _with_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """``values`` as ``kind``: where none of them is there, they have another type in it, that of NULL."""
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_struct(kind):
        parts = [_with_type(part, field.type) for part, field in zip(values.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=[*kind], mask=values.is_null())
    if pa.types.is_map(kind):
        lists = entries_of(values)
        keys, items = pc.list_flatten(lists).flatten()
        return to_maps(lists, keys, _with_type(items, kind.item_type), np.zeros(len(keys), np.bool_))
    return having_items(values, _with_type(pc.list_flatten(values), kind.value_type), values.is_null())


_EMPTY_ITEMS = 1_000
"""An array has so many items without a byte at most."""

PRIMITIVE: Mapping[str, Callable[[], AvroType]] = {
    "null": NullType,
    "boolean": BooleanType,
    "int": lambda: IntegerType(pa.int64()),
    "long": lambda: IntegerType(pa.int64()),
    "float": lambda: FloatType(4),
    "double": lambda: FloatType(8),
    "bytes": BytesType,
    "string": lambda: BytesType(is_text=True),
}
"""The types that need no definition, by name."""
