"""Regular expressions of expressions: what is refused, and that RE2 is given what means to it what the oracle says."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace import col
from headrace.kernel.expressions.evaluation import evaluate as evaluate_columns
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.regex import RegexError, to_captures, to_re2
from headrace_lab.reference import evaluate
from tests.reference.strategies import examples


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a(?=b)", r"look-around, flags or names.*\.lower\(\)"),
        ("(?i)a", "flags"),
        ("(?P<x>a)", "names"),
        (r"(a)\1", "back-references"),
        (r"\Ba", r"the escape \\B"),
        (r"\pL", r"the escape \\p"),
        (r"\x41", r"the escape \\x"),
        ("a\\", "a backslash ends"),
        ("(a", r"not closed.*write \) at its end, or \\\("),
        ("a)", r"no group that \) closes"),
        ("[a", "a class is not closed"),
        ("[]a]", "no character"),
        (r"[^\s\S]", "no character"),
        ("[[:alpha:]]", r"\[ inside a class"),
        ("[z-a]", "backwards"),
        (r"[a-\d]", "between two characters"),
        ("*a", r"nothing before \*"),
        ("a**", "cannot be repeated"),
        ("a*+", "cannot be repeated"),
        ("^*", "a place in the text"),
        ("a{", r"\{2,5\}"),
        ("a{,3}", r"\{2,5\}"),
        ("{3}", "nothing to close"),
        ("a{3,2}", "from low to high"),
        ("a{1001}", "up to 1000"),
        ("(?:a{100}){100}", "too large"),
        ("(?:(?:^){999}){999}", "too large"),
        ("(" * 51 + ")" * 51, "nested too deep"),
    ],
)
def test_what_the_engines_do_not_share_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(RegexError, match=why):
        to_re2(pattern)


def assert_alike(pattern: str, texts: list[str]) -> None:
    """The form for RE2 agrees with what the oracle makes of the pattern itself."""
    match_flags = pc.match_substring_regex(pa.array(texts, pa.string()), to_re2(pattern)).to_pylist()
    expr = col("text").matches(pattern)
    assert match_flags == [evaluate(expr, {"text": text}, {"text": DataType.STRING}) for text in texts]


@pytest.mark.parametrize(
    "pattern",
    [
        "^$",
        "a$",
        r"^\s+$",
        r"\bb\b",
        "[^b]",
        "[]-]".replace("]-", r"\]-"),
        r"[\w.-]+",
        "a|",
        "(|a)b",
        "é?",
        "[à-ü]",
        ".",
        r"\$",
        "[$]$",
        r"[^\]$]|\\$",
        "[&&]",
        "[+--]",
    ],
)
def test_the_form_for_re2_means_what_the_oracle_says(pattern: str) -> None:
    ends = ["a", "a\n", "\n", "$", "$\n", "\\\n"]
    assert_alike(pattern, ["", *ends, "b", "ab", "a b", "\v", "\x1f", "é", "É", "-", "]", "\U0001f600", "a\x00b"])


def test_the_largest_patterns_that_are_accepted_are_no_burden_to_either() -> None:
    holes = "".join(chr(code) for code in range(0x300, 0x300 + 2 * 499, 2))
    assert_alike(f"[^{holes}]{{2}}", ["ab", "a", "\u0300\u0302", "\u0301\u0303"])
    assert_alike("(?:a|[^b-\U0001ffff]){300}", ["a" * 300, "a" * 299])


_ATOMS = st.sampled_from(
    [*"abé-", ".", r"\$", "[b$]", r"\d", r"\W", r"\s", "[ab]", "[^a]", "[a-c1]", r"\.", "(?:ab)", "[\\n]"]
)
_PIECES = st.builds(str.__add__, _ATOMS, st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}?", "+?"]))
_PATTERNS = st.recursive(
    st.lists(_PIECES | st.sampled_from(["^", "$", r"\b"]), min_size=1, max_size=4).map("".join),
    lambda inner: st.builds("({}|{})".format, inner, inner) | st.builds("(?:{})?{}".format, inner, inner),
    max_leaves=4,
)


@examples(300)
@given(_PATTERNS, st.lists(st.text("abc1é-. $\n\x0b", max_size=6), min_size=1, max_size=5))
def test_random_patterns_mean_what_the_oracle_says(pattern: str, texts: list[str]) -> None:
    assert_alike(pattern, texts)


@examples(300)
@given(st.data(), _PATTERNS, st.lists(st.text("abc1é-. $\n\x0b", max_size=6), min_size=1, max_size=5))
def test_what_random_patterns_match_is_what_the_oracle_says(
    data: st.DataObject, pattern: str, texts: list[str]
) -> None:
    try:
        captures = to_captures(pattern)
    except RegexError:
        assume(False)
    groups = st.integers(0, min(captures.groups, 9))
    read = [col("text").regexp_extract(pattern, data.draw(groups))]
    if not captures.may_be_empty:
        read.append(col("text").regexp_replace(pattern, rf"<\{data.draw(groups)}\\>"))
    for expr in read:
        replaced_texts = evaluate_columns(expr, {"text": pa.array(texts, pa.string())}).to_pylist()
        assert replaced_texts == [evaluate(expr, {"text": text}, {"text": DataType.STRING}) for text in texts]


@pytest.mark.parametrize("pattern", ["(a*)*", "(a|)+", "(?:^)?a", "(a?b*){2}"])
def test_what_may_be_nothing_is_not_repeated_where_it_counts_what_matches(pattern: str) -> None:
    with pytest.raises(RegexError, match=r"what is repeated may be nothing at all.*\(a\+\)\?|cannot be repeated"):
        to_captures(pattern)
    if "^" not in pattern:
        assert_alike(pattern, ["", "a", "b", "abab"])
