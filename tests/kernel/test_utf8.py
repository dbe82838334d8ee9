"""Which bytes are text: each value for itself, whatever stands beside it."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.expressions.string_bytes import are_text, text_of

CUT = st.text(max_size=3).flatmap(lambda text: st.integers(0, 4).map(lambda left: text.encode()[: -left or None]))
"""Text, and text that ends in the middle of a character."""


def is_text(octets: bytes | None) -> bool:
    try:
        (octets or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.none() | CUT | st.binary(max_size=6), max_size=6))
def test_values_are_text_if_python_says_so(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    assert are_text(column).tolist() == [*map(is_text, values)]
    texts = [None if value is None or not is_text(value) else value.decode() for value in values]
    assert text_of(column).to_pylist() == texts


def test_a_value_that_is_cut_takes_nothing_of_the_next_one() -> None:
    for cut in (b"\xc3", b"\xe0", b"\xe0\xa0", b"\xf0", b"\xf0\x90", b"\xf0\x90\x80"):
        assert are_text(pa.array([b"a", cut, b"a"], pa.binary())).tolist() == [True, False, True]
