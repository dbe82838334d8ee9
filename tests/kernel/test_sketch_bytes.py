"""Sketches as bytes: what their format is, and that merged ones say what all values would."""

import base64
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.kernel.aggregates.sketches import SketchError
from headrace.kernel.columns import Groups
from headrace.model.combiners import DISTINCT_ERROR, RANK_ERROR
from headrace.model.expressions.data_types import DataType
from headrace_lab.reference.sketch_bytes import distinct_sketch, quantile_sketch
from tests.kernel.folding import accumulator
from tests.kernel.test_sketches import fold

GOLDEN = Path(__file__).parent / "golden" / "sketches-1.json"
"""Sketches that some version wrote: each can be merged for ever, and the same values make the same bytes."""

MANY = [number * number % 100_003 for number in range(3000)]
VALUES: dict[str, tuple[Any, Sequence[Any]]] = {
    "differ, few": (col("s").distinct_sketch(), ["a", "b", "", "ä", "a"]),
    "differ, ints": (col("i").distinct_sketch(), [-1, 0, 2**63 - 1]),
    "differ, many": (col("i").distinct_sketch(), MANY),
    "quantiles, ints": (col("i").quantile_sketch(), [3, 1, 2, 2]),
    "quantiles, floats": (col("x").quantile_sketch(), [0.5, float("inf"), -1.25]),
    "quantiles, decimals": (col("m").quantile_sketch(), [Decimal("1.5"), Decimal("-0.000000001")]),
    "quantiles, many": (col("i").quantile_sketch(), MANY),
}


def sketch(aggregate: hr.Aggregate, values: Sequence[Any], kind: Any = None) -> bytes | None:
    """That of all ``values``."""
    made_accumulator = accumulator(aggregate)
    (part,) = made_accumulator.parts
    array = pa.array(values, kind)
    (value,) = made_accumulator.result({part.name: fold(part, array, Groups(np.array([0, len(array)])))}).to_pylist()
    return value


KINDS = {"m": pa.decimal128(38, 9)}


@pytest.mark.parametrize("name", VALUES)
def test_the_bytes_of_format_1_stay(name: str) -> None:
    aggregate, values = VALUES[name]
    data = sketch(aggregate, values, KINDS.get(str(aggregate.input)))
    assert data == base64.b64decode(json.loads(GOLDEN.read_text())[name])


def test_golden_sketches_are_merged() -> None:
    golden = {name: base64.b64decode(text) for name, text in json.loads(GOLDEN.read_text()).items()}
    assert hr.merge_distinct_sketches([golden["differ, few"], golden["differ, few"], None]) == 4
    true = len({*MANY})
    assert (
        abs(hr.merge_distinct_sketches([golden["differ, many"], golden["differ, ints"]]) - true) < true * DISTINCT_ERROR
    )
    assert hr.merge_quantile_sketches([golden["quantiles, ints"]], [0.0, 0.5, 1.0]) == [1, 2, 3]
    assert hr.merge_quantile_sketches(iter([golden["quantiles, floats"]]), (0.5,)) == [0.5]
    assert hr.merge_quantile_sketches([golden["quantiles, decimals"]], [1.0]) == [Decimal("1.5")]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=20), st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_few_values_have_the_bytes_of_the_reference(texts: list[str], numbers: list[int]) -> None:
    assert sketch(col("s").distinct_sketch(), texts) == distinct_sketch(texts, DataType.STRING)
    assert sketch(col("i").quantile_sketch(), numbers) == quantile_sketch(sorted(numbers), DataType.INT)


@pytest.mark.parametrize("parts", [1, 7, 60])
def test_merged_sketches_are_right_to_their_error(parts: int) -> None:
    values = np.random.default_rng(parts).integers(0, 40_000, 60_000)
    cut = np.array_split(values, parts)
    true = len(np.unique(values))
    distinct = pa.array([sketch(col("i").distinct_sketch(), some) for some in cut], pa.binary())
    assert abs(hr.merge_distinct_sketches(distinct) - true) < DISTINCT_ERROR * true
    sketches = pa.array([sketch(col("i").quantile_sketch(), some) for some in cut], pa.binary()).to_pandas()
    ascending = np.sort(values)
    for q, estimate in zip(
        (0.0, 0.1, 0.5, 0.99), hr.merge_quantile_sketches(sketches, [0.0, 0.1, 0.5, 0.99]), strict=True
    ):
        assert estimate is not None
        least, most = (np.searchsorted(ascending, int(estimate), side) for side in ("left", "right"))  # type: ignore[call-overload]
        assert least - RANK_ERROR * len(values) <= q * len(values) <= most + RANK_ERROR * len(values)


def test_a_sketch_of_nothing_is_null() -> None:
    assert sketch(col("s").distinct_sketch(), [], pa.string()) is None
    assert sketch(col("i").quantile_sketch(), [], pa.int64()) is None
    assert (hr.merge_distinct_sketches([None, float("nan")]), hr.merge_quantile_sketches([None], [0.5])) == (0, [None])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "are no sketch of how many values differ"),
        (quantile_sketch([1], DataType.INT), "are no sketch of how many values differ"),
        (distinct_sketch(["a"], DataType.STRING)[:-1], "is cut off, or damaged: it has 12 bytes"),
        (b"HRD\x01\x01" + bytes(9), "is cut off, or damaged"),
        (b"HRD\x02\x00", "has format 2, and this version reads 1: update Headrace"),
    ],
)
def test_what_is_no_sketch_is_refused(octets: bytes, why: str) -> None:
    with pytest.raises(SketchError, match=why):
        hr.merge_distinct_sketches([octets])


def test_quantiles_of_what_is_no_sketch_of_theirs_are_refused() -> None:
    one, other = quantile_sketch([1], DataType.INT), quantile_sketch([1.0], DataType.FLOAT)
    for wrong, why in (
        ([one, other], "sketches of double and of int64 are not merged"),
        ([one[:-1]], "is cut off"),
        ([distinct_sketch(["a"], DataType.STRING)], "no sketch of quantiles"),
    ):
        with pytest.raises(SketchError, match=why):
            hr.merge_quantile_sketches(wrong, [0.5])
    with pytest.raises(PipelineError, match="qs"):
        hr.merge_quantile_sketches([one], [1.5])
    with pytest.raises(PipelineError, match="give a column of sketches"):
        hr.merge_distinct_sketches(["HRD"])  # type: ignore[list-item]
