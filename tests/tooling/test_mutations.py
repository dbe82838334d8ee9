"""The list of deliberate mistakes stays true to the engine's text; ``make mutations`` runs it."""

from pathlib import Path

import pytest

from scripts.mutations import CASES, MUTATIONS, Mutation, mutated


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_one_place_and_names_cases_that_exist(mutation: Mutation, tmp_path: Path) -> None:
    root = mutated(mutation, tmp_path)
    assert mutation.new in (root / "headrace" / mutation.file).read_text()
    file, name = mutation.cases
    assert f'"{name}"' in (CASES / f"{file}.json").read_text()
