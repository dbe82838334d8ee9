"""Which names ``scripts/house_names`` counts."""

from pathlib import Path

import pytest

from scripts.house_names import bare_names, gone_public_names, is_bare, one_word_share, worse_names

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


ENUM = """
from enum import StrEnum

class Fate(StrEnum):
    KEPT = "kept"

    def told(self): ...

class Rows:
    KEPT = 1
"""


def test_members_of_an_enum_are_read_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "jobs/headrace").mkdir(parents=True)
    (tmp_path / "jobs/headrace/code.py").write_text(ENUM)
    names = [(place, name) for _, place, name in bare_names(tmp_path, ("jobs/headrace",))]
    assert sorted(names) == [("jobs/headrace/code.py:10", "KEPT"), ("jobs/headrace/code.py:7", "told")]


def test_a_public_name_is_counted_where_it_is_not_public(tmp_path: Path) -> None:
    """Another name in the same file, and the same name in another scope, count."""
    (tmp_path / "jobs/headrace/model/triggers").mkdir(parents=True)
    code = "class Never: ...\nclass Always: ...\nclass Twice: ...\ndef read():\n    class Never: ...\n"
    (tmp_path / "jobs/headrace/model/triggers/elementary.py").write_text(code)
    names = [(place.rpartition(":")[2], name) for _, place, name in bare_names(tmp_path, ("jobs/headrace",))]
    assert sorted(names) == [("3", "Twice"), ("5", "Never")]


def test_each_public_name_is_there(tmp_path: Path) -> None:
    assert gone_public_names(Path(__file__).resolve().parents[2]) == []
    (tmp_path / "jobs/headrace/model/triggers").mkdir(parents=True)
    (tmp_path / "jobs/headrace/model/triggers/elementary.py").write_text("class Never: ...\n")
    gone_names = gone_public_names(tmp_path)
    assert "jobs/headrace/model/triggers/elementary.py: Always" in gone_names
    assert "jobs/headrace/model/triggers/elementary.py: Never" not in gone_names


def test_a_figure_that_falls_behind_is_named() -> None:
    floors = {"one word": 25.0, "functions": 3}
    assert worse_names({"one word": 25.0, "functions": 3}, floors) == []
    assert worse_names({"one word": 25.1, "functions": 4}, floors) == [
        "one word: 25.1, at most 25.0",
        "functions: 4, at most 3",
    ]
