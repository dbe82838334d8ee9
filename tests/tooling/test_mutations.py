"""The list of deliberate mistakes stays true to the package's text; ``make mutations`` runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutations import CASES, MUTATIONS, REPOSITORY, Case, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_changes_one_place_and_names_what_exists(mutation: Mutation) -> None:
    text = (REPOSITORY / "jobs/headrace" / mutation.file).read_text()
    assert text.count(mutation.old) == 1
    assert mutation.old != mutation.new
    if isinstance(mutation.by, Case):
        assert f'"{mutation.by.glob}"' in (CASES / f"{mutation.by.file}.json").read_text()
    else:
        file = REPOSITORY / Path(*mutation.by.module.split("."))
        assert f"def {mutation.by.function}(" in file.with_suffix(".py").read_text()


def test_a_mutation_names_nothing_that_is_not_there(tmp_path: Path) -> None:
    """An undefined name fails in every test, whatever the mistake would have done."""
    for number, mutation in enumerate(MUTATIONS):
        text = (REPOSITORY / "jobs/headrace" / mutation.file).read_text()
        (tmp_path / f"mutation_{number}.py").write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--no-cache", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
