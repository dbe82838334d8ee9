"""Keys: a hash that never changes, and groups that are exact whatever the hash is."""

import math
import struct
from datetime import date
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel import keys
from headrace.kernel.columns import Groups, NumberedGroups
from headrace.kernel.delta import KeyHashes
from headrace.kernel.keys import Keys, group_by_key, hash_keys
from headrace.model.expressions.data_types import DataType, to_billionths
from headrace_lab.sizes import set_sizes
from tests.kernel.columns import SPECIAL, VALUES, arrow, numbering_all_keys
from tests.reference.strategies import examples

TAGS = dict(zip(DataType, (3, 1, 2, 4, 5, 6, 7, 8), strict=True))


def pad_bytes(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def encode_key(key: tuple[Any, ...], kinds: list[DataType]) -> bytes:
    """The bytes that are hashed, as the docstring of the module has it."""
    tags = bytes(0 if value is None else TAGS[kind] for value, kind in zip(key, kinds, strict=True))
    words, texts = b"", b""
    for value, kind in zip(key, kinds, strict=True):
        if value is None:
            words += bytes(16 if kind is DataType.DECIMAL else 8)
        elif kind in (DataType.STRING, DataType.BYTES):
            text = value if isinstance(value, bytes) else value.encode()
            words, texts = words + struct.pack("<Q", len(text)), texts + pad_bytes(text)
        elif kind is DataType.FLOAT:
            words += struct.pack("<Q", 0x7FF8 << 48) if math.isnan(value) else struct.pack("<d", value or 0.0)
        elif kind is DataType.DECIMAL:
            words += int(to_billionths(value) or 0).to_bytes(16, "little", signed=True)
        else:
            words += struct.pack("<q", (value - date(1970, 1, 1)).days if kind is DataType.DATE else value)
    return pad_bytes(tags) + words + texts


def columns_of(rows: list[tuple[Any, ...]], kinds: list[DataType]) -> list[pa.Array]:
    return [arrow([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]


def hash_rows(rows: list[tuple[Any, ...]], kinds: list[DataType]) -> list[int]:
    return list(map(int, hash_keys(columns_of(rows, kinds))))


def one_by_one(rows: list[tuple[Any, ...]], kinds: list[DataType]) -> list[int]:
    return [xxhash.xxh64_intdigest(encode_key(row, kinds)) for row in rows]


@pytest.mark.parametrize("kind", list(DataType))
def test_the_hash_of_special_values(kind: DataType) -> None:
    rows = [(value,) for value in SPECIAL[kind]]
    assert hash_rows(rows, [kind]) == one_by_one(rows, [kind])


@examples(150)
@given(st.data())
def test_the_hash_is_xxh64_over_the_encoded_key(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(DataType)), min_size=1, max_size=10))
    rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=6))
    assert hash_rows(rows, kinds) == one_by_one(rows, kinds)


@set_sizes(hash_slice_rows=7)
def test_texts_of_all_lengths() -> None:
    rows = [("é" * (i % 50) + "x" * (i % 7), None if i % 3 else "y" * i) for i in range(100)]
    kinds = [DataType.STRING, DataType.STRING]
    assert hash_rows(rows, kinds) == one_by_one(rows, kinds)
    assert list(hash_keys([column[3:90] for column in columns_of(rows, kinds)])) == one_by_one(rows[3:90], kinds)


def test_the_hash_of_a_key_never_changes() -> None:
    kinds = [DataType.STRING, DataType.INT, DataType.FLOAT, DataType.BOOL, DataType.TIMESTAMP]
    rows = [("ann", 7, 2.5, True, 1_363_000_000_250_000), ("", -1, -0.0, False, 0), (None, None, None, None, None)]
    assert hash_rows(rows, kinds) == [15475738344891921290, 17660220530898859041, 7212482505122059892]
    assert hash_rows([(0,), (1,)], [DataType.INT]) == [7790381849595394832, 17112247933498734332]
    assert hash_rows([(date(2013, 1, 1),)], [DataType.DATE]) == [9252948160091475191]
    kinds, rows = (
        [DataType.BYTES, DataType.DECIMAL],
        [(b"\xff\x00", Decimal("-12.34")), (b"", Decimal(0)), (None, None)],
    )
    assert hash_rows(rows, kinds) == [15645882719321371010, 7293924028792601672, 17791961111430638837]


def test_zeros_are_one_key_and_so_are_nans() -> None:
    payload = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    floats = pa.array(np.array([0.0, -0.0, math.nan, payload, 1.0]))
    hashes = hash_keys([floats])
    assert len(set(hashes.tolist())) == 3
    assert group_by_key(hashes, [floats]).sizes.tolist() == [
        n for _, n in sorted(zip(hashes[[0, 2, 4]], [2, 2, 1], strict=True))
    ]


def in_python(
    rows: list[tuple[Any, ...]], kinds: list[DataType], cut: int, start_columns: list[list[int]]
) -> list[list[int]]:
    """Rows of each group, by the bytes of the key instead of its columns."""
    codes = [encode_key(row, kinds) for row in rows]
    order = [(xxhash.xxh64_intdigest(code) % cut, *(some[i] for some in start_columns)) for i, code in enumerate(codes)]
    places = sorted(range(len(rows)), key=lambda i: (order[i], codes[i], i))
    return [list(some) for _, some in groupby(places, key=lambda i: (order[i], codes[i]))]


@examples(200)
@given(st.data())
def test_groups_are_exact_whatever_the_hash(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(DataType)), min_size=1, max_size=3))
    some = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), min_size=1, max_size=5))
    rows = data.draw(st.lists(st.sampled_from(some), max_size=30))
    starts = st.lists(st.sampled_from([0, 60, -60, 2**62, -(2**61)]), min_size=len(rows), max_size=len(rows))
    start_columns = data.draw(st.lists(starts, max_size=2))
    cut = data.draw(st.sampled_from([2**64, 8, 1]))
    columns = columns_of(rows, kinds)
    hashes = hash_keys(columns)
    hashes = hashes if cut == 2**64 else hashes % np.uint64(cut)
    numbers = [np.array(numbers, np.int64) for numbers in start_columns]
    groups = group_by_key(hashes, columns, *numbers)
    order = np.arange(len(rows)) if groups.order is None else groups.order
    several = [order[a:b].tolist() for a, b in zip(groups.offsets[:-1], groups.offsets[1:], strict=True)]
    expected = in_python(rows, kinds, cut, start_columns)
    assert sorted(several) == sorted(expected)  # keys of one hash may stand in any order
    order_keys = [(int(hashes[rows[0]]), *(some[rows[0]] for some in start_columns)) for rows in several]
    assert order_keys == sorted(order_keys)
    groups_again = group_by_key(
        hashes[order], [column.take(pa.array(order)) for column in columns], *[some[order] for some in numbers]
    )
    assert groups_again.order is None or cut < 2**64
    assert groups_again.sizes.tolist() == groups.sizes.tolist()


def test_keys_of_one_hash_stand_in_an_order_of_their_own() -> None:
    names = ["b", "a", None, "b", "c", "a"]
    for places in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]):
        column = pa.array([names[i] for i in places])
        groups = group_by_key(np.zeros(6, np.uint64), [column])
        assert column.take(pa.array(groups.order[groups.offsets[:-1]])).to_pylist() == ["a", "b", "c", None]


def test_many_rows_with_hashes_that_share_their_upper_bits() -> None:
    """Packed beside row numbers, hashes lose lower bits: the order is right all the same."""
    array = np.array([5, 3, 4, 3, 5] * 1000, np.uint64) + np.uint64(2**63)
    groups = group_by_key(array, [pa.array(array.view(np.int64))])
    assert groups.sizes.tolist() == [2000, 1000, 2000]
    assert array[groups.order].tolist() == sorted(array.tolist())
    assert groups.order[:4].tolist() == [1, 3, 6, 8]
    numbers = np.arange(5000, dtype=np.int64) * 2**40
    assert len(group_by_key(array, [], numbers)) == 5000


def test_rows_that_stand_in_order_stay_where_they_are() -> None:
    array = np.array([1, 1, 2, 2], np.uint64)
    starts = np.array([0, 0, -5, 7], np.int64)
    groups = group_by_key(array, [pa.array([1, 1, 2, 2])], starts, starts + 3)
    assert groups.order is None
    assert groups.offsets.tolist() == [0, 2, 3, 4]
    assert len(group_by_key(np.zeros(0, np.uint64), [pa.array([], pa.int64())], starts[:0])) == 0


def test_stages_with_the_same_key_of_the_same_rows_have_its_hashes_in_common() -> None:
    users, days = pa.array(["a", "b", None, "a"]), pa.array([1, 2, 3, 4])
    known_key_hashes, rows = KeyHashes(), np.array([0, 2, 3])
    taken_keys = known_key_hashes.keys_of_rows([users], rows, everything=False)
    assert taken_keys.columns[0].to_pylist() == ["a", None, "a"]
    assert taken_keys.key_hashes.tolist() == hash_keys([users]).take([0, 2, 3]).tolist()
    assert known_key_hashes.keys_of_rows([users], rows.copy(), everything=False) is taken_keys
    others: list[tuple[list[pa.Array], list[int]]] = [
        ([users], [0, 1, 3]),
        ([users], [0, 2]),
        ([days], [0, 2, 3]),
        ([users, days], [0, 2, 3]),
        ([], [0, 2, 3]),
        ([pa.array(["b", "b", "b", "b"])], [0, 2, 3]),
    ]
    for columns, row_numbers in others:
        own = known_key_hashes.keys_of_rows(columns, np.array(row_numbers), everything=False)
        assert [column.to_pylist() for column in own.columns] == [
            column.take(row_numbers).to_pylist() for column in columns
        ]
        assert own.key_hashes.tolist() == hash_keys(own.columns, len(row_numbers)).tolist()
    whole = known_key_hashes.keys_of_rows([users], np.arange(4), everything=True)
    assert whole.columns[0] is users
    assert whole.key_hashes.tolist() == hash_keys([users]).tolist()


def rows_of(groups: Groups, length: int) -> list[list[int]]:
    order = np.arange(length) if groups.order is None else groups.order
    return [order[a:b].tolist() for a, b in pairwise(groups.offsets.tolist())]


@examples(200)
@given(st.data())
def test_groups_by_the_number_of_a_key_are_those_by_its_hash(data: st.DataObject) -> None:
    exact = [kind for kind in DataType if kind is not DataType.FLOAT]
    kinds = data.draw(st.lists(st.sampled_from(exact), min_size=1, max_size=3))
    some = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), min_size=1, max_size=5))
    rows = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=30))
    starts = st.lists(st.sampled_from([0, 60, -60, 2**62, -(2**61)]), min_size=len(rows), max_size=len(rows))
    start_columns = [np.array(numbers, np.int64) for numbers in data.draw(st.lists(starts, max_size=2))]
    columns = columns_of(rows, kinds)
    with numbering_all_keys():
        by_number = Keys(columns, len(rows)).group_rows(*start_columns)
    assert by_number.numbered_groups is not None
    by_hash = Keys(columns, len(rows)).group_rows(*start_columns)
    assert by_hash.numbered_groups is None
    assert rows_of(by_number.groups, len(rows)) == rows_of(by_hash.groups, len(rows))
    assert by_number.numbered_groups.arranged_groups.sizes.tolist() == by_hash.groups.sizes.tolist()
    assert by_number.hashes.tolist() == by_hash.hashes.tolist()
    assert all(own.equals(other) for own, other in zip(by_number.keys, by_hash.keys, strict=True))
    assert [some[by_number.rows].tolist() for some in start_columns] == [
        some[by_hash.rows].tolist() for some in start_columns
    ]
    values = np.array(data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=len(rows), max_size=len(rows))))
    folds: list[np.ufunc] = [np.add, np.minimum, np.maximum]
    for fold in folds:
        values_in_order = values if by_hash.groups.order is None else values[by_hash.groups.order]
        assert (
            by_number.numbered_groups.reduce(fold, values).tolist()
            == by_hash.groups.reduce(fold, values_in_order, 0).tolist()
        )


def test_many_numbers_are_put_in_order_by_their_digits() -> None:
    number = np.random.default_rng(3).integers(0, 2**33, 1000)
    groups = NumberedGroups(number[:10] % 7, 7).groups, NumberedGroups(number % 2**21, 2**21).groups
    for some, numbers in zip(groups, (number[:10] % 7, number % 2**21), strict=True):
        assert some.order is not None
        assert some.order.tolist() == np.argsort(numbers, kind="stable").tolist()


def hashed_rows(patch: pytest.MonkeyPatch, columns: list[pa.Array], *start_columns: Any) -> int:
    """How many keys are hashed to group rows."""
    numbers: list[int] = []

    def counting(columns: list[pa.Array], rows: int | None = None) -> Any:
        numbers.append(len(columns[0]))
        return hash_keys(columns, rows)

    patch.setattr(keys, "hash_keys", counting)
    groups = Keys(columns, len(columns[0])).group_rows(*start_columns)
    patch.undo()
    assert sum(groups.groups.sizes) == len(columns[0])
    return sum(numbers)


def test_keys_that_many_rows_have_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(keys.LEAST_ROWS.value)
    users, hours = pa.array(rows % 1000), rows // 20_000 * 3_600
    assert hashed_rows(monkeypatch, [users], hours) == 1000
    assert hashed_rows(monkeypatch, [users, pa.array(rows % 2 == 0)], hours, hours + 3_600) == 1000


def test_keys_get_no_numbers_where_that_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(keys.LEAST_ROWS.value)
    users = pa.array(rows % 1000)
    assert hashed_rows(monkeypatch, [pa.array(rows)]) == len(rows)  # all differ
    assert hashed_rows(monkeypatch, [pa.array(rows % 1000 + 0.5)]) == len(rows)  # 0.0 and -0.0 are one key
    assert hashed_rows(monkeypatch, [users[1:]]) == len(rows) - 1  # few rows
    many_windows = rows // 300
    assert hashed_rows(monkeypatch, [users], many_windows) == len(rows) + 1000  # more places than rows
    assert hashed_rows(monkeypatch, [users], rows) == len(rows) + 1000  # each row in a window of its own


def test_keys_of_one_hash_get_no_numbers() -> None:
    with numbering_all_keys(), set_sizes(hash_bits=0):
        names = pa.array(["b", "a", "b"])
        groups = Keys([names], 3).group_rows()
        assert groups.numbered_groups is None
        assert rows_of(groups.groups, 3) == [[1], [0, 2]]
