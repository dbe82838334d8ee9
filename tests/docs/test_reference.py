"""What the site generates is all that there is: every command, every error, each with its own code."""

import re
from collections import Counter

import click

from scripts.errors import error_classes
from scripts.reference import all_commands, commands, errors
from tests.docs.pages import ROOT


def test_every_error_has_a_code_of_its_own_in_the_branch_of_its_base() -> None:
    classes = error_classes()
    twice = [code for code, number in Counter(error.code for error in classes.values()).items() if number > 1]
    assert not twice
    for error in classes.values():
        if error.base in classes and error.base != "HeadraceError":
            branch = classes[error.base].code.partition(".")[0]
            assert error.code.startswith(f"{branch}."), error
        assert error.meaning, f"{error.name} does not say what it means"


def test_the_page_of_errors_has_them_all_with_exit_codes() -> None:
    page = errors()
    for error in error_classes().values():
        if error.name != "HeadraceError":
            assert f"`{error.code}`" in page or f"## {error.code}: exit code {error.exit_code}" in page, error


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = commands()
    for name, command in all_commands().items():
        section = page.partition(f"## headrace {name}\n")[2].partition("\n## ")[0]
        assert section
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or f"`{parameter.opts[0]}`" in section


def test_the_places_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)*[\w]+\.(?:py|md)|(?:[a-z_]+/)+[a-z_]*)`", text))
    assert len(named) > 20
    folders = (ROOT, ROOT / "jobs" / "headrace", ROOT / "lab" / "headrace_lab")
    assert {name for name in named if not any((folder / name).exists() for folder in folders)} == set()
