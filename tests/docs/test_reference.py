"""What the site generates is all that there is: every command, every error, each with its own code."""

import re
from collections import Counter

import click

from scripts.errors import error_classes
from scripts.front import FIGURES, pictures
from scripts.reference import SEARCH_WORDS, all_commands, commands, errors, fill_page, public_names
from tests.docs.pages import DOCS, ROOT


def test_every_error_has_a_code_of_its_own_in_the_branch_of_its_base() -> None:
    classes = error_classes()
    codes_twice = [code for code, number in Counter(error.code for error in classes.values()).items() if number > 1]
    assert not codes_twice
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


PLACES = {
    "retracting": ("How: accumulation and lateness", "a value: `how`"),
    "coalesce": ("Expressions", "an expression"),
    "json": ("Sources", "a source"),
    "kafka": ("Sources", "a source"),
    "avro": ("Sources", "a value: `values` of Kafka"),
    "published": ("Sources", "an input: a source with its event time"),
    "delta_change_type": ("Sources", "a value: `changelog` of a source"),
    "kafka_sink": ("Sinks", "a sink"),
    "delta": ("Sinks", "a sink"),
    "as_of": ("Joins", "a join"),
    "top": ("What: rows of a group", "a value: `what` of rows"),
    "cron": ("Schedules and retention", "a function"),
}


def test_the_page_of_names_says_where_each_belongs_and_what_it_is() -> None:
    sections = dict(part.split("\n", 1) for part in public_names().removeprefix("## ").split("\n## "))
    for name, (section, role) in PLACES.items():
        assert f"| [`hr.{name}`](#headrace.{name}) | {role} | " in sections[section]
        assert sum(f".. autofunction:: headrace.{name}\n" in part for part in sections.values()) == 1


def test_the_picture_of_the_front_page_shows_what_its_pipeline_gives() -> None:
    for name, picture in pictures().items():
        assert (FIGURES / name).read_text(encoding="utf-8") == picture, "python -m scripts.front draws it"
        assert ">24<" in picture
        assert "too late" in picture


def test_the_words_that_people_search_for_are_entries_of_one_page_each() -> None:
    words = [word.lower() for page in SEARCH_WORDS.values() for word in page]
    required_words = {
        "upsert",
        "dedupe",
        "scd 2",
        "watermark stuck",
        "backfill",
        "exactly once",
        "replay",
        "late data",
        "cdc",
    }
    assert required_words <= {*words}
    assert len(words) == len({*words})
    for page in SEARCH_WORDS:
        source = [(DOCS / f"{page}.md").read_text(encoding="utf-8")]
        fill_page(None, page, source)
        assert source[0].splitlines()[2].startswith("```{index} ! "), page


def test_the_places_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named_paths = set(re.findall(r"`((?:[a-z_]+/)*[\w]+\.(?:py|md)|(?:[a-z_]+/)+[a-z_]*)`", text))
    assert len(named_paths) > 20
    folders = (ROOT, ROOT / "jobs" / "headrace", ROOT / "lab" / "headrace_lab")
    assert {name for name in named_paths if not any((folder / name).exists() for folder in folders)} == set()
