"""Which names ``scripts/house_names`` counts."""

from pathlib import Path

import pytest

from scripts.house_names import bare_names, is_bare, one_word_share, worse_names

CODE = """
class Held:
    kept: int = 0

class HeldRows:
    @property
    def given(self): ...

    def of(self, known): ...

def read_rows(): ...

def __dir__(): ...

def read():
    found = 1
    return found
"""


@pytest.mark.parametrize("name", ["of", "_at", "held", "told", "merged", "again", "without", "NOTED"])
def test_a_participle_a_preposition_or_an_adverb_says_nothing(name: str) -> None:
    assert is_bare(name)


@pytest.mark.parametrize("name", ["read", "rows", "held_rows", "HeldRows", "speed", "seed", "feed", "expected", "need"])
def test_a_noun_a_verb_or_two_words_do(name: str) -> None:
    assert not is_bare(name)


def test_names_are_counted_by_what_they_name(tmp_path: Path) -> None:
    (tmp_path / "jobs/headrace").mkdir(parents=True)
    (tmp_path / "jobs/headrace/code.py").write_text(CODE)
    names = [(kind, name) for kind, _, name in bare_names(tmp_path, ("jobs/headrace",))]
    assert sorted(names) == [
        ("functions", "given"), ("functions", "of"), ("others", "found"), ("others", "known"), ("types", "Held")
    ]  # fmt: skip
    assert one_word_share(tmp_path) == 66.7, (
        "of `of`, `read_rows` and `read`; a property is no function, nor is a dunder"
    )


def test_a_figure_that_falls_behind_is_named() -> None:
    floors = {"one word": 25.0, "functions": 3}
    assert worse_names({"one word": 25.0, "functions": 3}, floors) == []
    assert worse_names({"one word": 25.1, "functions": 4}, floors) == [
        "one word: 25.1, at most 25.0",
        "functions: 4, at most 3",
    ]
