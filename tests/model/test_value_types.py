"""Types of values in words, and back."""

import itertools

import pytest

from headrace import DataType, ListType
from headrace.model.expressions.data_types import PairsType, ValueType, from_words, in_words

KINDS: list[ValueType] = [
    *DataType,
    *map(ListType, DataType),
    *(PairsType(left, right) for left, right in itertools.product(DataType, repeat=2)),
]


@pytest.mark.parametrize("kind", KINDS, ids=in_words)
def test_words_of_a_type_mean_that_type(kind: ValueType) -> None:
    assert from_words(in_words(kind)) == kind
