"""Keys: their hash, which never changes between versions, and rows grouped by them.

``xxh64_of_columns`` and ``xxh64_of_lists`` are XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) with seed
0 over rows of 64-bit words, all at once.

The hash of a key is XXH64 with seed 0 over these bytes, made of little-endian words of 64 bits:

1. a byte for each of its columns, and zeros up to a whole word. The byte is 0 for NULL, 1 for an int, 2 a float, 3 a
   string, 4 a bool. It is 5 for a timestamp, 6 a date, 7 bytes, 8 a decimal;
2. a word for each column: the int; the bits of the float (-0.0 as 0.0, NaN as 7FF8000000000000); how many bytes of
   UTF-8 the string has; 0 or 1; the microseconds since 1970 UTC; the days since 1970; how many bytes there are; two
   words for the decimal, the lower half of its billionths (128 bits, two's complement) and the upper; for NULL 0;
3. the bytes of each string, and of bytes, and zeros up to a whole word.

Different keys may have the same hash: every look-up and every grouping by it also compares keys.

A struct, a map or a list is compared as bytes (``to_comparable_bytes``), which never change either. They begin with a
byte that is 0 for NULL, else 1. Then come

1. for a value: its words, as above, and the bytes of a string, or of bytes;
2. for a struct: its fields, each as such bytes; they are NULL if it is;
3. for a list: a word that says how many items it has, then each item as such bytes;
4. for a map: what a list of structs has, each of a key and its value.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel import columns as kernel_columns
from headrace.kernel.expressions.casts import days_of
from headrace.kernel.expressions.decimals import words_of
from headrace.kernel.expressions.string_bytes import Octets, Words, to_octets
from headrace.model.expressions.data_types import ColumnType, DataType, NestedType
from headrace.this_process import Size

UInt64s = NDArray[np.uint64]

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)
_START = (6983438078262162902, 14029467366897019727, 0, 7046029288634856825)  # P1 + P2, P2, 0 and -P1
_STRIPE = len(_START)


def xxh64_of_columns(words: Sequence[UInt64s]) -> UInt64s:
    """The hash of each row of ``words``; a column of one row counts for all rows."""
    whole = len(words) - len(words) % _STRIPE
    lanes = [np.array([start], np.uint64) for start in _START]
    for i in range(0, whole, _STRIPE):
        lanes = [_lane_round(lane, word) for lane, word in zip(lanes, words[i:], strict=False)]
    hashes = (_converge_lanes(lanes) if whole else np.array([_P5])) + np.uint64(8 * len(words))
    for word in words[whole:]:
        hashes = _mix_remaining_word(hashes, word)
    return _avalanche(hashes)


def xxh64_of_lists(words: UInt64s, rows: kernel_columns.Groups) -> UInt64s:
    """The hash of the words of each of the ``rows``, which stand in order, rows of one word or more."""
    longest_first = np.argsort(-rows.sizes, kind="stable")
    starts, sizes = rows.offsets[:-1][longest_first], rows.sizes[longest_first]
    stripes = sizes // _STRIPE
    lanes = [np.full(len(sizes), start, np.uint64) for start in _START]
    for i in range(int(stripes.max(initial=0))):
        active = int(np.searchsorted(-stripes, -i, side="left"))
        word_places = starts[:active] + i * _STRIPE
        for k, lane in enumerate(lanes):
            lane[:active] = _lane_round(lane[:active], words[word_places + k])
    hashes = np.where(stripes > 0, _converge_lanes(lanes), _P5) + (8 * sizes).astype(np.uint64)
    for i in range(_STRIPE - 1):
        rest = np.flatnonzero(sizes % _STRIPE > i)
        hashes[rest] = _mix_remaining_word(hashes[rest], words[starts[rest] + stripes[rest] * _STRIPE + i])
    result = np.empty_like(hashes)
    result[longest_first] = _avalanche(hashes)
    return result


def _rotate_left(value: UInt64s, bits: int) -> UInt64s:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _lane_round(lane: UInt64s, word: UInt64s) -> UInt64s:
    return _rotate_left(lane + word * _P2, 31) * _P1


def _converge_lanes(lanes: Sequence[UInt64s]) -> UInt64s:
    hashes = sum(
        (_rotate_left(lane, bits) for lane, bits in zip(lanes[1:], (7, 12, 18), strict=True)), _rotate_left(lanes[0], 1)
    )
    for lane in lanes:
        hashes = (hashes ^ _mix_word(lane)) * _P1 + _P4
    return hashes


def _mix_word(word: UInt64s) -> UInt64s:
    return _rotate_left(word * _P2, 31) * _P1


def _mix_remaining_word(hashes: UInt64s, word: UInt64s) -> UInt64s:
    return _rotate_left(hashes ^ _mix_word(word), 27) * _P1 + _P4


def _avalanche(hashes: UInt64s) -> UInt64s:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


Flags = NDArray[np.bool_]

_TAGS = {
    DataType.INT: 1,
    DataType.FLOAT: 2,
    DataType.STRING: 3,
    DataType.BOOL: 4,
    DataType.TIMESTAMP: 5,
    DataType.DATE: 6,
    DataType.BYTES: 7,
    DataType.DECIMAL: 8,
}
_OCTETS = (pa.string(), pa.binary())
_COMPARED_TYPES = (*_OCTETS, kernel_columns.DECIMAL)
"""Types whose values no single word tells apart."""
_TAG_OF = {kernel_columns.ARROW_TYPES[kind]: np.uint64(tag) for kind, tag in _TAGS.items()}
SLICE_ROWS: Final = Size(1 << 15)
"""Rows that are hashed at a time: few enough to stay in the processor's cache."""

HASH_BITS: Final = Size(2**64 - 1)
"""The bits of a key's hash that count: fewer only in tests of keys whose hashes are equal."""

_SAMPLE_NUMBERS, _FEW_DISTINCT = 1024, 256
"""The size of a sample of numbers, and how many different ones in it count as few."""

_OF_NOTHING = np.uint64(0xEF46DB3751D8E999)
"""The hash of no bytes: of a key without columns."""

_NAN = np.uint64(0x7FF8000000000000)


def hash_keys(columns: Sequence[pa.Array], rows: int | None = None) -> Words:
    """The hash of the key in each row of ``columns``; where there may be none of them, of so many ``rows``."""
    return whole_hashes(columns, rows) & np.uint64(HASH_BITS.value)


def whole_hashes(columns: Sequence[pa.Array], rows: int | None = None) -> Words:
    """Hashes of whole rows, for callers that take values of one hash for one value (``hashes`` has the theory)."""
    length = len(columns[0]) if rows is None else rows
    if not columns:
        return np.full(length, _OF_NOTHING)
    slices = [[column[i : i + SLICE_ROWS.value] for column in columns] for i in range(0, length, SLICE_ROWS.value)]
    return (
        np.concatenate([_hash_columns(rows_of_slice) for rows_of_slice in slices]) if slices else np.zeros(0, np.uint64)
    )


def _hash_columns(columns: Sequence[pa.Array]) -> Words:
    texts = [to_octets(column) for column in columns if column.type in _OCTETS]
    fixed_words = [*_tag_words(columns), *chain.from_iterable(map(_encoding_words, columns))]
    if not texts:
        return np.ascontiguousarray(np.broadcast_to(xxh64_of_columns(fixed_words), len(columns[0])))
    return xxh64_of_lists(*_laid_out(fixed_words, texts, len(columns[0])))


def _tag_words(columns: Sequence[pa.Array]) -> list[Words]:
    words = []
    for i in range(0, len(columns), 8):
        word = np.zeros(1, np.uint64)
        for place, column in enumerate(columns[i : i + 8]):
            tag = np.full(1, _TAG_OF[column.type])
            word = word | (np.where(_null_mask(column), np.uint64(0), tag) << np.uint64(8 * place))
        words.append(word)
    return words


def _null_mask(column: pa.Array) -> Flags:
    """Which rows are NULL; FALSE for all of them if none is."""
    return kernel_columns.as_numpy(column.is_null()) if column.null_count else np.zeros(1, np.bool_)


def _encoding_words(column: pa.Array) -> list[Words]:
    """What stands for the values of ``column`` in the middle of the encoding."""
    if column.type == kernel_columns.DECIMAL:
        return [np.ascontiguousarray(half).view(np.uint64) for half in words_of(column).T]
    return [_value_words(column)]


def _value_words(column: pa.Array) -> Words:
    """Words that stand for the values of ``column``: equal values are equal words, different ones are different words.
    For strings and bytes the word is only the length.
    """
    if column.type == pa.float64():
        return _float_word(kernel_columns.as_numpy(column.fill_null(0.0)))
    if column.type == kernel_columns.DATE:
        column = days_of(column)
    numbers = pc.binary_length(column) if column.type in _OCTETS else column
    return kernel_columns.as_numpy(numbers.cast(pa.int64()).fill_null(0)).view(np.uint64)


def _float_word(values: NDArray[np.float64]) -> Words:
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(np.isnan(values), _NAN, bits)


def _laid_out(fixed_words: list[Words], texts: list[Octets], length: int) -> tuple[Words, kernel_columns.Groups]:
    """The words of all keys, one after another, and where each key has its own."""
    lanes = [-(-text.lengths // 8) for text in texts]
    offsets = np.zeros(length + 1, np.int64)
    np.cumsum(sum(lanes, np.full(length, len(fixed_words), np.int64)), out=offsets[1:])
    words = np.empty(offsets[-1], np.uint64)
    word_places = offsets[:-1].copy()
    for word in fixed_words:
        words[word_places] = word
        word_places += 1
    for text, count in zip(texts, lanes, strict=True):
        rows, lane = np.flatnonzero(count), 0
        while len(rows):
            words[word_places[rows] + lane] = text.words_from_start(rows, 8 * lane)
            lane += 1
            rows = rows[count[rows] > lane]
        word_places += count
    return words, kernel_columns.Groups(offsets)


# --- nested values as bytes


def to_comparable_bytes(values: pa.Array) -> pa.Array:
    """Bytes that are equal where nested ``values`` are (semantics 15.1), NULL where these are; others as they are.
    ``values`` are in their canonical form: keys of maps ascend.
    """
    if not kernel_columns.is_nested(values.type):
        return values
    return pc.if_else(values.is_valid(), _nested_bytes(values), pa.scalar(None, pa.binary()))


def type_of_comparable(kind: ColumnType) -> pa.DataType:
    """The type of what ``to_comparable_bytes`` gives of a column of ``kind``."""
    return pa.binary() if isinstance(kind, NestedType) else kernel_columns.arrow_type(kind)


def _nested_bytes(values: pa.Array) -> pa.Array:
    """The bytes of each value, also of NULL."""
    kind = values.type
    if pa.types.is_map(kind):
        return _nested_bytes(kernel_columns.entries_of(values))
    if pa.types.is_list(kind):
        lengths = kernel_columns.as_numpy(pc.list_value_length(values).fill_null(0)).astype(np.int64)
        items = _nested_bytes(pc.list_flatten(values))
        nothing = pa.array(np.zeros(len(values), np.bool_))
        contents = pc.binary_join(kernel_columns.having_items(values, items, nothing), b"")
        return _join_bytes(_heads(values, [lengths.view(np.uint64)]), contents)
    if pa.types.is_struct(kind):
        return _join_bytes(_heads(values, []), *map(_nested_bytes, values.flatten()))
    texts = [values.cast(pa.binary()).fill_null(b"")] if kind in _OCTETS else []
    return _join_bytes(_heads(values, _encoding_words(values)), *texts)


def _heads(values: pa.Array, words: Sequence[Words]) -> pa.Array:
    """A byte that says whether a value is there, and ``words`` of it, as bytes."""
    width = 1 + 8 * len(words)
    octets = np.zeros((len(values), width), np.uint8)
    octets[:, 0] = kernel_columns.valid_mask(values)
    for place, word in enumerate(words):
        octets[:, 1 + 8 * place : 9 + 8 * place] = word.astype("<u8").view(np.uint8).reshape(-1, 8)
    ends = pa.array(np.arange(len(values) + 1) * width).cast(pa.int32())  # which refuses more than a column can have
    return pa.Array.from_buffers(pa.binary(), len(values), [None, ends.buffers()[1], pa.py_buffer(octets)])


def _join_bytes(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, kernel_columns.arrow_scalar(b"")) if len(parts) > 1 else parts[0]


# --- grouping


def group_by_key(hashes: Words, columns: Sequence[pa.Array], *numbers_within: Any) -> kernel_columns.Groups:
    """Rows by key, which has the ``hashes`` and these ``columns``, and by ``numbers_within``; groups in the order of
    (hash, numbers, key), rows of a group in their own order.
    """
    numbers = _drop_dependent([np.asarray(numbers) for numbers in numbers_within])
    order, begins = None, _group_begins(hashes, numbers)
    if begins is None:
        order, begins = _order_rows(hashes, numbers)
    if is_shared(columns, order, begins):
        ranks = [kernel_columns.as_numpy(pc.rank(_to_rankable(column), tiebreaker="dense")) for column in columns]
        sort_columns = [hashes, *numbers, *ranks]
        order = np.lexsort(sort_columns[::-1])
        begins = np.logical_or.reduce([kernel_columns.run_begins(numbers[order]) for numbers in sort_columns])
    return kernel_columns.of_sorted(begins, order)


def _drop_dependent(number_columns: list[kernel_columns.Ints]) -> list[kernel_columns.Ints]:
    """``number_columns`` without what follows the one before it, as ends of windows of one length do."""
    independent = number_columns[:1]
    for previous, numbers in pairwise(number_columns):
        distance = numbers[:1] - previous[:1]
        if not (numbers is previous or (numbers - previous == distance).all()):
            independent.append(numbers)
    return independent


def _group_begins(hashes: Words, numbers: list[kernel_columns.Ints]) -> Flags | None:
    """Where groups begin if the rows stand in their order already."""
    ties = hashes[1:] == hashes[:-1]
    rises = hashes[1:] > hashes[:-1]
    for column in numbers:
        if not (ties | rises).all():
            return None
        rises |= ties & (column[1:] > column[:-1])
        ties &= column[1:] == column[:-1]
    return kernel_columns.with_first(~ties, len(hashes)) if (ties | rises).all() else None


def _order_rows(hashes: Words, numbers: list[kernel_columns.Ints]) -> tuple[kernel_columns.Ints, Flags]:
    """Rows in the order of (hash, numbers, row), and where groups of them begin.

    A row number is packed after what it is ordered by, for numpy sorts numbers several times faster than places.
    """
    bits = np.uint64(len(hashes).bit_length())
    order = in_order_of_hashes(hashes)
    begins = kernel_columns.run_begins(hashes[order])
    for column in numbers:
        column_in_order = column[order]
        falls = np.flatnonzero((column_in_order[1:] < column_in_order[:-1]) & ~begins[1:])
        if len(falls):
            if not _reorder_runs(order, column_in_order, begins, falls, bits):
                order = np.lexsort([*numbers[::-1], hashes])
                return order, np.logical_or.reduce(
                    [kernel_columns.run_begins(values[order]) for values in (hashes, *numbers)]
                )
            column_in_order = column[order]
        begins |= kernel_columns.run_begins(column_in_order)
    return order, begins


def _reorder_runs(
    order: kernel_columns.Ints,
    column_in_order: kernel_columns.Ints,
    begins: Flags,
    falls: kernel_columns.Ints,
    bits: np.uint64,
) -> bool:
    """Put rows of ``order`` in the order of ``column_in_order``, within runs that start at the rows ``begins``. Only
    runs in which the column ``falls`` behind some rows are ordered. FALSE if that does not fit 64 bits.
    """
    runs = np.cumsum(begins)
    is_wanted = np.zeros(int(runs[-1]) + 1, np.bool_)
    is_wanted[runs[falls]] = True
    places = np.flatnonzero(is_wanted[runs])
    run, (ranks, width) = runs[places], _rank_numbers(column_in_order[places], bits)
    if int(bits) + width + int(runs[-1]).bit_length() > 64:
        return False
    rows = order[places].astype(np.uint64)
    sort_words = (((run.astype(np.uint64) << np.uint64(width)) | ranks) << bits) | rows
    sort_words.sort()
    order[places] = _low_bits(sort_words, bits)
    return True


def in_order_of_hashes(hashes: Words) -> kernel_columns.Ints:
    """The rows in ascending order of their hashes, those of one hash in their own."""
    bits = np.uint64(len(hashes).bit_length())
    rows = np.arange(len(hashes), dtype=np.uint64)
    # small numbers leave room for the row, and lose no bit to it
    small = not (hashes >> (np.uint64(64) - bits)).any()
    sort_words = ((hashes << bits) if small else ((hashes >> bits) << bits)) | rows
    sort_words.sort()
    order = _low_bits(sort_words, bits)
    hashes_in_order = hashes[order]
    if (hashes_in_order[1:] >= hashes_in_order[:-1]).all():
        return order
    return np.argsort(hashes, kind="stable")  # hashes that differ in what the row numbers took the place of


def _distinct_numbers(numbers: kernel_columns.Ints) -> kernel_columns.Ints:
    ascending = np.sort(numbers)
    return ascending[kernel_columns.run_begins(ascending)]


def _is_few(numbers: kernel_columns.Ints) -> bool:
    """Whether few ``numbers`` are different, as starts of windows are."""
    return len(_distinct_numbers(numbers[:: len(numbers) // _SAMPLE_NUMBERS + 1])) < _FEW_DISTINCT


def _encode_numbers(numbers: kernel_columns.Ints) -> tuple[kernel_columns.Ints, kernel_columns.Ints]:
    """The place of each among the different ``numbers``, and these, ascending."""
    dictionary_array = pa.array(numbers).dictionary_encode()
    values = kernel_columns.as_numpy(dictionary_array.dictionary)
    order = np.argsort(values)
    places = np.empty(len(values), np.int64)
    places[order] = np.arange(len(values))
    return places.take(kernel_columns.as_numpy(dictionary_array.indices)), values[order]


def _low_bits(sort_words: Words, bits: np.uint64) -> kernel_columns.Ints:
    return (sort_words & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)


def _rank_numbers(numbers: kernel_columns.Ints, bits: np.uint64) -> tuple[Words, int]:
    """``numbers`` as small ones in the same order, and how many bits they need."""
    if _is_few(numbers):
        codes, values = _encode_numbers(numbers)
        return codes.view(np.uint64), len(values).bit_length()
    least = int(numbers.min())
    if (int(numbers.max()) - least).bit_length() + int(bits) > 64:
        _, inverse = np.unique(numbers, return_inverse=True)
        return inverse.astype(np.uint64), int(inverse.max(initial=0)).bit_length()
    sort_words = ((numbers - least).view(np.uint64) << bits) | np.arange(len(numbers), dtype=np.uint64)
    sort_words.sort()
    ranks = np.empty(len(numbers), np.uint64)
    ranks[_low_bits(sort_words, bits)] = np.cumsum(kernel_columns.run_begins(sort_words >> bits)) - 1
    return ranks, int(ranks.max(initial=0)).bit_length()


# --- keys that many rows have

LEAST_ROWS: Final = Size(1 << 16)
ROWS_OF_A_KEY: Final = Size(4)
NUMBERS_OF_A_ROW: Final = Size(2)
"""Keys get numbers where there are so many rows, and so many of a key; there may be a few numbers for each row."""

_ROWS_LOOKED_AT = 1 << 14


class KeyGroups(msgspec.Struct, frozen=True):
    """Rows by key, and by what they are within. ``hashes`` and ``keys`` are those of groups; ``rows`` has for each
    group one row that is within the same. ``groups`` says which rows are in which. ``numbered_groups``: the same by
    number, if they have one.
    """

    hashes: Words
    keys: list[pa.Array]
    rows: kernel_columns.Ints
    numbered_groups: kernel_columns.NumberedGroups | None
    ordered_groups: kernel_columns.Groups | None = None

    @property
    def groups(self) -> kernel_columns.Groups:
        if self.ordered_groups is None:
            assert self.numbered_groups is not None
            return self.numbered_groups.groups
        return self.ordered_groups


class _DifferentKeys(msgspec.Struct, frozen=True):
    """The different keys of rows, with their ``hashes``, no two of which are equal; ``order`` is theirs by hash, and
    ``of_row`` says which of them each row has.
    """

    columns: list[pa.Array]
    hashes: Words
    order: kernel_columns.Ints
    of_row: NDArray[np.int32]

    def group_by_number(self, number_columns: list[kernel_columns.Ints]) -> KeyGroups | None:
        """Rows by key and the integers ``number_columns``, as ``grouped``; None if it takes too many numbers."""
        numbers, count = np.zeros(len(self.of_row), np.int64), 1
        for column in number_columns:
            if not _is_few(column):
                return None
            codes, values = _encode_numbers(column)
            numbers, count = numbers * len(values) + codes, count * len(values)
        limit = len(self.order) * count
        if limit > NUMBERS_OF_A_ROW.value * len(self.of_row):
            return None
        first, row_of = np.empty(len(self.order), np.int64), np.zeros(count, np.int64)
        first[self.order] = np.arange(0, limit, count)
        row_of[numbers] = np.arange(len(numbers))
        numbered_groups = kernel_columns.NumberedGroups(first.take(self.of_row) + numbers, limit)
        key, number = np.divmod(numbered_groups.numbers, count)
        key = self.order[key]
        columns = [column.take(pa.array(key)) for column in self.columns]
        return KeyGroups(self.hashes[key], columns, row_of[number], numbered_groups)


class Keys:
    """The keys of rows, a column a part. Where many rows share one, it is hashed once, and rows go by its number."""

    def __init__(self, columns: Sequence[pa.Array], rows: int) -> None:
        self.columns, self._rows = columns, rows

    @cached_property
    def key_hashes(self) -> Words:
        return hash_keys(self.columns, self._rows)

    def group_rows(self, *number_columns: Any) -> KeyGroups:
        """The groups of ``grouped``."""
        numbered_groups = self._different and self._different.group_by_number(
            _drop_dependent([np.asarray(column) for column in number_columns])
        )
        if numbered_groups:
            return numbered_groups
        groups = group_by_key(self.key_hashes, self.columns, *number_columns)
        first = groups.first_rows
        return KeyGroups(
            self.key_hashes[first], [column.take(pa.array(first)) for column in self.columns], first, None, groups
        )

    @cached_property
    def _different(self) -> _DifferentKeys | None:
        """None if that does not pay, or does not tell keys apart as ``grouped`` does."""
        if not _keys_repeat(self.columns, self._rows):
            return None
        columns, of_row = _encode_keys(self.columns)
        hashes = hash_keys(columns)
        order = in_order_of_hashes(hashes)
        hashes_in_order = hashes[order]
        has_twice = (hashes_in_order[1:] == hashes_in_order[:-1]).any()
        return None if has_twice else _DifferentKeys(columns, hashes, order, of_row)


def _keys_repeat(columns: Sequence[pa.Array], rows: int) -> bool:
    """Whether keys have ROWS_OF_A_KEY on average, about: some rows tell, by how many of their keys they repeat."""
    if rows < LEAST_ROWS.value or not columns or pa.float64() in [column.type for column in columns]:  # 0.0 equals -0.0
        return False
    looked_at = pa.array(np.arange(0, rows, rows // _ROWS_LOOKED_AT + 1))
    (first, *_), _ = _encode_keys([column.take(looked_at) for column in columns])
    # of n rows with one of k keys each, about n * n / (2 * k) repeat a key, and k is to be rows / ROWS_OF_A_KEY
    return bool(2 * (len(looked_at) - len(first)) * rows >= ROWS_OF_A_KEY.value * len(looked_at) ** 2)


def _encode_keys(columns: Sequence[pa.Array]) -> tuple[list[pa.Array], NDArray[np.int32]]:
    """The different keys, and which of them each row has."""
    different: list[pa.Array] = []
    numbers = np.zeros(0, np.int32)
    for column in columns:
        dictionary_array = column.dictionary_encode(null_encoding="encode")
        keys, own = [dictionary_array.dictionary], kernel_columns.as_numpy(dictionary_array.indices)
        if different:
            both = pa.array(numbers * np.int64(len(dictionary_array.dictionary)) + own).dictionary_encode()
            left_codes, right_codes = np.divmod(
                kernel_columns.as_numpy(both.dictionary), len(dictionary_array.dictionary)
            )
            keys = [
                *(part.take(pa.array(left_codes)) for part in different),
                dictionary_array.dictionary.take(pa.array(right_codes)),
            ]
            own = kernel_columns.as_numpy(both.indices)
        different, numbers = keys, own
    return different, numbers


# --- keys of one hash


def is_shared(columns: Sequence[pa.Array], order: kernel_columns.Ints | None, begins: Flags) -> bool:
    """Whether different keys of the same hash are neighbours in one group."""
    return any((_key_changes(column, order) & ~begins).any() for column in columns)


def _key_changes(column: pa.Array, order: kernel_columns.Ints | None) -> Flags:
    if column.type not in _COMPARED_TYPES:
        words, nulls = _value_words(column), np.broadcast_to(_null_mask(column), len(column))
        if order is not None:
            words, nulls = words[order], nulls[order] if column.null_count else nulls
        return kernel_columns.run_begins(words) | (
            kernel_columns.run_begins(nulls) if column.null_count else np.zeros(1, np.bool_)
        )
    column_in_order = column if order is None else column.take(pa.array(order))
    previous, following = column_in_order[:-1], column_in_order[1:]
    differ = pc.not_equal(previous, following)
    if column.null_count:
        differ = pc.coalesce(differ, pc.not_equal(previous.is_null(), following.is_null()))
    return kernel_columns.with_first(kernel_columns.as_numpy(differ), len(column))


def _to_rankable(column: pa.Array) -> pa.Array:
    """``column`` as what has an order, in which equal keys are equal."""
    if column.type in _COMPARED_TYPES:
        return column
    return pa.array(_value_words(column).view(np.int64), mask=np.broadcast_to(_null_mask(column), len(column)))
