"""Types of values in words, and back."""

import itertools

import pytest

from headrace import DataType, ListType
from headrace.model.expressions.data_types import MapType, PairsType, StructType, ValueType, from_words, in_words

_INNER = StructType((("a b", ListType(DataType.INT)), ('"', MapType(DataType.FLOAT))))
KINDS: list[ValueType] = [
    MapType(DataType.STRING),
    MapType(MapType(_INNER)),
    StructType((("é", _INNER), ("list of int", DataType.DATE))),
    *DataType,
    *map(ListType, DataType),
    PairsType(_INNER, MapType(DataType.INT)),
    PairsType(MapType(StructType(((" and ", DataType.INT),))), ListType(_INNER)),
    PairsType(DataType.STRING, ListType(ListType(DataType.BOOL))),
    *(PairsType(left, right) for left, right in itertools.product(DataType, repeat=2)),
]


@pytest.mark.parametrize("kind", KINDS, ids=in_words)
def test_words_of_a_type_mean_that_type(kind: ValueType) -> None:
    assert from_words(in_words(kind)) == kind
