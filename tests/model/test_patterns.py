"""Patterns: the automaton's table against Python's ``re`` and against the reference's derivatives."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.model.expressions.expr import col
from headrace.model.time import Instant
from headrace.model.triggers.data_driven import AfterPattern, PatternTable, compile_pattern, parse_pattern
from headrace.model.windows import Window
from headrace_lab.reference.trigger_leaves import OnceMatched
from headrace_lab.reference.trigger_node import Arrival, FiringClocks, Moment
from tests.reference.strategies import examples

LETTERS = "abc"
SYMBOLS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^ab]", "[^c]"])
PATTERNS = st.recursive(
    SYMBOLS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=5,
)


def ends(table: PatternTable, word: list[frozenset[str]]) -> list[bool]:
    """Whether a match has ended at or before each element."""
    state, ended_flags = 0, []
    for letters in word:
        code = sum(1 << i for i, letter in enumerate(table.letters) if letter in letters)
        state = table.transitions[state][code]
        ended_flags.append(state == table.accepting)
    return ended_flags


def usable(pattern: str) -> bool:
    return re.fullmatch(pattern, "") is None


@examples(300)
@given(PATTERNS.filter(usable), st.text(alphabet="abcd", max_size=8))
def test_elements_with_one_letter_match_as_text_does(pattern: str, text: str) -> None:
    """d satisfies no predicate."""
    table = compile_pattern(pattern, LETTERS)
    matches = ends(table, [frozenset(letter) & frozenset(LETTERS) for letter in text])
    assert matches == [re.search(pattern, text[: i + 1]) is not None for i in range(len(text))]


@examples(300)
@given(PATTERNS.filter(usable), st.lists(st.frozensets(st.sampled_from(LETTERS)), max_size=8))
def test_the_table_is_what_the_reference_simulates(pattern: str, word: list[frozenset[str]]) -> None:
    node = OnceMatched(AfterPattern(f"({pattern})|abc", {letter: col(letter) for letter in LETTERS}))
    moment = Moment(FiringClocks(), Window(Instant(0), Instant(1)), {})
    ready_flags = []
    for letters in word:
        node.on_element(moment, Arrival({letter: letter in letters for letter in LETTERS}, 0))
        ready_flags.append(node.ready(moment))
    assert ready_flags == ends(compile_pattern(f"({pattern})|abc", LETTERS), word)


def test_the_table_is_complete_and_keeps_a_match() -> None:
    table = compile_pattern("ab", "ab")
    assert all(len(row) == 4 and max(row) < len(table.transitions) for row in table.transitions)
    assert set(table.transitions[table.accepting]) == {table.accepting}
    assert ends(table, [frozenset("ab"), frozenset("ab"), frozenset()]) == [False, True, True]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(b", "is missing"),
        ("a)", "unexpected"),
        ("a{2", "write .3"),
        ("a{3,2}", "cannot repeat"),
        ("a{101}", "at most 100"),
        ("[a", "write \\[ab\\]"),
        ("a b", "character 2: unexpected"),
        ("a|(", "letter is missing|. is missing"),
        ("*a", "unexpected"),
    ],
)
def test_what_is_no_pattern_is_told(pattern: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_pattern(pattern)


def test_patterns_that_need_too_many_states_are_refused() -> None:
    with pytest.raises(PipelineError, match="states"):
        compile_pattern("(a|b)*a(a|b){20}", "ab")


@pytest.mark.parametrize(
    ("pattern", "names", "message"),
    [
        ("a*", "a", "before any element"),
        ("ab", "a", "same letters: b"),
        ("a", "ab", "same letters: b"),
        ("a", ["a", "bc"], "single letters"),
        ("[abcdefghi]", "abcdefghi", "at most 8"),
    ],
)
def test_after_pattern_refuses_what_cannot_be_meant(pattern: str, names: list[str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        AfterPattern(pattern, {name: col("x") for name in names})
