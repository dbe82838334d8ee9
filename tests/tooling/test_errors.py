"""Errors: each is drawn in ``headrace.errors``, reached there by its name, and stays what was released."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest

import headrace as hr
from headrace.error_tree import TREE
from headrace.own_parts import EXTRAS
from scripts.errors import (
    GOLDEN,
    ErrorClass,
    codes_above,
    draw_tree,
    error_classes,
    read_released,
    stale_errors,
    unlike_released,
)


@cache
def classes_now() -> dict[str, ErrorClass]:
    """Read when a test asks: each process that collects tests would read all sources."""
    return error_classes()


def test_the_tree_is_drawn_and_all_that_was_released_is_there() -> None:
    assert stale_errors() == []
    assert draw_tree(classes_now()) == TREE.removeprefix("\n")


def printed_by(script: str) -> list[str]:
    """The lines that ``script`` prints in a process of its own."""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


AS_CLASSES = """
import headrace as hr
for name in dir(hr.errors):
    error = getattr(hr.errors, name)
    print(name, error.code, error.remedy, error.exit_code, *(getattr(base, "code", "") for base in error.__mro__[1:]))
"""


@pytest.mark.airflow
@pytest.mark.slow
def test_classes_are_what_was_released() -> None:
    """The classes themselves, whatever their sources say, in a process without the tests' filters of warnings."""
    printed_result = subprocess.run(
        [sys.executable, "-c", AS_CLASSES], capture_output=True, text=True, check=True, timeout=120
    )
    classes = {name: codes for name, *codes in (line.split() for line in printed_result.stdout.splitlines())}
    for line in read_released().values():
        assert classes[line.error][:3] == [line.code, line.remedy, str(line.exit_code)]
        assert not line.below or line.below in classes[line.error][3:]


def _classes_with(**changes: object) -> Mapping[str, ErrorClass]:
    classes = classes_now()
    return {**classes, "FencedError": replace(classes["FencedError"], **changes)}  # type: ignore[arg-type]


CHANGED_CLASSES: dict[str, tuple[Callable[[], Mapping[str, ErrorClass]], list[str]]] = {
    "renamed": (
        lambda: _classes_with(code="give_up.overtaken"),
        [
            "give_up.fenced_after_commit is not below give_up.fenced any more, where 0.1.0 had it: it stays",
            "give_up.fenced (FencedError) was released in 0.1.0 and is gone: a code stays",
            "give_up.overtaken (FencedError) is not in tests/golden/error_codes.csv: python -m scripts.errors --write",
        ],
    ),
    "moved": (
        lambda: _classes_with(base="RetryError"),
        [
            "give_up.fenced is not below give_up any more, where 0.1.0 had it: it stays",
            "give_up.fenced: its remedy is 'retry' and was 'give_up' in 0.1.0: it stays",
            "give_up.fenced: its exit_code is 30 and was 50 in 0.1.0: it stays",
            "give_up.fenced_after_commit: its remedy is 'retry' and was 'give_up' in 0.1.0: it stays",
            "give_up.fenced_after_commit: its exit_code is 30 and was 50 in 0.1.0: it stays",
        ],
    ),
    "removed": (
        lambda: {name: error for name, error in classes_now().items() if name != "AtError"},
        ["config.snapshot_ref (AtError) was released in 0.1.0 and is gone: a code stays"],
    ),
    "its class renamed": (
        lambda: {
            **{n: e for n, e in classes_now().items() if n != "AtError"},
            "RefError": replace(classes_now()["AtError"], name="RefError"),
        },
        ["config.snapshot_ref: its error is 'RefError' and was 'AtError' in 0.1.0: it stays"],
    ),
    "added": (
        lambda: {
            **classes_now(),
            "NewError": replace(classes_now()["AtError"], name="NewError", code="config.brand_new"),
        },
        ["config.brand_new (NewError) is not in tests/golden/error_codes.csv: python -m scripts.errors --write"],
    ),
    "the branch's exit code": (
        lambda: {**classes_now(), "RestoreError": replace(classes_now()["RestoreError"], exit_code=41)},
        [
            f"{code}: its exit_code is 41 and was 40 in {line.since}: it stays"
            for code, line in read_released().items()
            if line.remedy == "restore"
        ],
    ),
}


@pytest.mark.parametrize("change", CHANGED_CLASSES)
def test_an_error_that_changes_is_named(change: str) -> None:
    make_classes, messages = CHANGED_CLASSES[change]
    assert sorted(unlike_released(make_classes(), read_released())) == sorted(messages)


def test_a_class_may_come_between_an_error_and_its_branch() -> None:
    new_class = replace(
        classes_now()["GiveUpError"], name="TakenOverError", base="GiveUpError", code="give_up.taken_over"
    )
    new_class = replace(new_class, exit_code=None, remedy=None)
    classes = {**_classes_with(base="TakenOverError"), "TakenOverError": new_class}
    assert [*codes_above(classes["FencedError"], classes)] == ["give_up.taken_over", "give_up", "headrace"]
    assert [line.partition(" ")[0] for line in unlike_released(classes, read_released())] == ["give_up.taken_over"]


def test_the_golden_list_is_sorted_and_names_versions() -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()[1:]
    assert lines == sorted(lines, key=lambda line: line.partition(",")[0])
    assert {line.since for line in read_released().values()} >= {"0.1.0", "0.1.2", "0.2.0"}


def test_a_mistyped_name_is_told_from_one_of_a_part_that_is_not_installed() -> None:
    with pytest.raises(AttributeError, match=r"^headrace.errors has no 'FencedEror'; did you mean 'FencedError'\?$"):
        hr.errors.FencedEror  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Fenced'"):
        from headrace.errors import Fenced  # noqa: F401
    assert {*dir(hr.errors)} == {*classes_now()}


WITHOUT_EXTRAS = """
import sys
for library in {blocked}:
    sys.modules[library] = None
import headrace as hr
assert hr.errors.HeadraceError and dir(hr.errors)
ours = {{module for module in sys.modules if module.partition(".")[0] == "headrace"}}
tables = ("built_in", "error_tree", "errors", "own_parts")
assert ours == {{"headrace", *(f"headrace.{{table}}" for table in tables)}}, ours
unreached = []
for name in dir(hr.errors):
    try:
        assert issubclass(getattr(hr.errors, name), hr.errors.HeadraceError)
    except hr.errors.NotInstalledError as error:
        unreached.append(f"{{name}}: {{error}}")
print(*unreached, sep="\\n")
"""


@pytest.mark.slow
def test_without_any_extra_all_errors_but_airflows_are_reached() -> None:
    """An ``except`` that names an error works wherever Headrace runs, and says what is missing where it cannot."""
    libraries = {module.partition(".")[0] for modules in EXTRAS.values() for module in modules} - {"pandas", "pytest"}
    script = WITHOUT_EXTRAS.format(blocked=sorted({*libraries, "headrace_lab"}))
    unreached_parts = dict(line.split(": ", 1) for line in printed_by(script))
    others = {"headrace_airflow": "pip install 'headrace[airflow]'", "headrace_lab": "headrace_lab is not installed"}
    assert unreached_parts.keys() == {e.name for e in classes_now().values() if e.module.partition(".")[0] in others}
    for name, message in unreached_parts.items():
        assert others[classes_now()[name].module.partition(".")[0]] in message
