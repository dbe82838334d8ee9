"""Values in texts that hold JSON: the kernel reads what the oracle reads, whatever stands beside it."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import col
from headrace.errors import PipelineError
from headrace.kernel.expressions import string_bytes
from headrace.kernel.expressions.evaluation import evaluate_column
from headrace.model.expressions.data_types import IN_JSON, DataType
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.typing import to_json, type_of
from headrace_lab.reference.evaluate import evaluate
from tests.kernel.columns import are_alike
from tests.reference.strategies import examples

SCHEMA = {"s": DataType.STRING}
S = col("s")
KINDS: dict[DataType, Any] = {DataType.STRING: str, DataType.INT: int, DataType.FLOAT: float, DataType.BOOL: bool}
DEEP = 500


def read(expr: Expr, texts: Sequence[str | None]) -> list[Any]:
    return evaluate_column(expr, {"s": pa.array(texts, pa.string())}, SCHEMA, len(texts)).to_pylist()


def assert_as_the_oracle(expr: Expr, texts: Sequence[str | None]) -> None:
    """All at once, and each alone."""
    expected = [evaluate(expr, {"s": text}, SCHEMA) for text in texts]
    values = read(expr, texts)
    assert all(map(are_alike, values, expected)), [
        row for row in zip(texts, values, expected, strict=True) if row[1] != row[2]
    ]
    single_values = [read(expr, [text])[0] for text in texts]
    assert all(map(are_alike, single_values, expected)), [
        row for row in zip(texts, single_values, expected, strict=True) if row[1] != row[2]
    ]


VALUES = [
    '"x"', '""', '"é\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00"', '"\\u0000"',
    '"a\\nb"', '"\\x"', '"a\nb"', '"NaN"',
    "0", "-0", "-0.0", "1", "-7", "1.0", "1.5", "1e2", "1E400", "1e-999", "01", "+1", ".5", "1.",
    "-", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "123456789012345678901234567890", "1" * 400, "1" * 5000,
    "0.1", "2.2250738585072011e-308", "true", "false", "null", "True", "NaN", "Infinity", "-Infinity", "Inf", "nan",
    "[]", "[1]", '["x"]', '[1, "x"]', "{}", '{"a": 1}', "[" * DEEP + "]" * DEEP,
    "[" * (DEEP - 2) + "]" * (DEEP - 2), "", "'x'",
]  # fmt: skip
TEXTS = [
    *VALUES,
    *[f'{{"a": {value}}}' for value in VALUES],
    *[f'{{"b": {value}, "a": "x"}}' for value in VALUES],
    '{"a": 1, "a": 2}', '{"a": "x"} {"a": "y"}', '{"a": "x"', '{"a": {}', '1}', '{"a": "}', '"x"}',
    '{"a":', "{}", "}{", "{", "}",
    ' \t\n\r{"a"\n:\r"x"}\n', '\ufeff{"a": "x"}', '\xa0{"a": "x"}', '{"a": "x",}', '{"\\u0061": "x"}', '{"a": "x"}\x00',
    '{"a": [{"b": 1}, {"b": 2.5}]}', '{"a": [{"b": "x"}]}', '{"a": [null, {}]}',
    '{"a": {"b": "x"}}', '{"a": {"b": null}}',
    '{"a": {"b": 1, "b": true}}', '[{"b": 1}]', '{"A": "x"}', '{"a.b": "x"}',
]  # fmt: skip
PATHS: list[Any] = ["a", "a.b", ["a", 0], ["a", -1, "b"], ["a", 2**62], [0], [0, "b"], ["a.b"]]


@pytest.mark.parametrize("path", PATHS, ids=str)
@pytest.mark.parametrize("kind", IN_JSON)
def test_what_is_hard_to_read(kind: DataType, path: Any) -> None:
    assert_as_the_oracle(S.json_field(path, KINDS[kind]), [None, *TEXTS])


@pytest.mark.parametrize("text", [text for text in TEXTS if text.strip().startswith("{")])
def test_one_text_says_nothing_of_those_beside_it(text: str) -> None:
    clean = [json.dumps({"a": str(number)}) for number in range(600)]
    texts = [*clean[:300], text, *clean[300:]]
    expr = S.json_field("a", str)
    assert read(expr, texts) == [evaluate(expr, {"s": one}, SCHEMA) for one in texts]


_LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text('ab\\"{}[]\n\ud800é', max_size=4)
)
_DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    text = json.dumps(draw(_DOCUMENTS), indent=draw(st.sampled_from([None, 1])))
    if draw(st.integers(0, 5)):
        return text
    cut_index = draw(st.integers(0, len(text)))
    return text[:cut_index] + draw(st.sampled_from(["", "{", "}", '"', "\n", ",", "}{"])) + text[cut_index + 1 :]


@examples(400)
@given(
    st.sampled_from(IN_JSON),
    st.lists(st.sampled_from("abc") | st.integers(-2, 2), min_size=1, max_size=3),
    st.lists(_texts(), max_size=6),
)
def test_random_documents_are_read_as_the_oracle_reads_them(kind: DataType, path: Any, texts: list[str]) -> None:
    assert_as_the_oracle(S.json_field(path, KINDS[kind]), texts)


@examples(200)
@given(st.lists(st.text('{}[]:," \n1a', max_size=12).map('{{"a": {}}}'.format), min_size=2, max_size=6))
def test_texts_that_are_nearly_objects_stay_apart(texts: list[str]) -> None:
    assert_as_the_oracle(S.json_field("a", str), texts)
    assert_as_the_oracle(S.json_field("a", int), texts)


def test_clean_objects_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_texts: list[str] = []

    def loads(text: str, **options: Any) -> Any:
        loaded_texts.append(text)
        return json.loads(text, **options)

    monkeypatch.setattr(string_bytes, "loads", loads)
    texts = [json.dumps({"user": {"id": number}, "tags": [1, "x"], "note": "\u00e9 {"}) for number in range(5_000)]
    assert read(S.json_field("user.id", int), texts) == list(range(5_000))
    assert not loaded_texts
    texts[1234] = '{"user": {"id": "a text"}}'
    assert read(S.json_field("user.id", int), texts)[1233:1236] == [1233, None, 1235]
    assert len(loaded_texts) <= 256


def test_it_is_written_as_fields_of_sources_are() -> None:
    expr = S.json_field("user.id", int)
    assert to_json(expr) == [
        "function", "json_int", ["column", "s"], ["literal", "user", "string"], ["literal", "id", "string"]
    ]  # fmt: skip
    assert to_json(S.json_field(["user", "id"], DataType.INT)) == to_json(expr)
    assert render(S.json_field(["a", 0], float)) == "s.json_field(['a', 0], float)"
    assert {type_of(S.json_field("a", kind), SCHEMA) for kind in KINDS} == {*IN_JSON}


@pytest.mark.parametrize(
    ("path", "kind", "why"),
    [
        ("", int, "write text such as"),
        ([], int, "write the names that lead to it"),
        (3, int, "write the names that lead to it"),
        ("a..b", int, "write text such as"),
        (["a", None], int, "write text such as"),
        (["a", 2**63], int, "whole number"),
        (["a", True], int, "whole number"),
        ("a", dict, "write one of"),
        ("a", bytes, "and cast what is read"),
    ],
)
def test_what_is_no_path_or_no_type(path: Any, kind: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        S.json_field(path, kind)
