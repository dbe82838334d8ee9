"""What a version promises by name (docs/versions.md), and what earlier ones have promised: tests/golden/public_api.csv.

These are public names and their arguments, methods that users call, commands and their options, columns of views, exit
codes, variables of the environment. ``python -m scripts.public_api`` says which of the released ones are gone; then it
fails. With ``--write`` it lists those that are new. Nothing is taken off it: docs/versions.md says how a name goes.
"""

import csv
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from types import ModuleType
from typing import Any, Unpack, get_args, get_origin

import click

from scripts.errors import ROOT
from scripts.reference import all_commands

GOLDEN = ROOT / "tests" / "golden" / "public_api.csv"
OURS = ("headrace", "headrace_snapshots")
_VARIABLE = re.compile(r"\bHEADRACE_[A-Z0-9_]+\b")


WITH_MEMBERS = (
    *("Expr", "FileSource", "Input"),
    *("OpenDeployment", "PipelineHandle", "OutputReader", "LazyView", "RunResult", "RunError"),
)
"""Classes whose methods and fields users name: parts of definitions, and what ``hr.open`` leads to."""


def public_api() -> Iterator[str]:
    """Each thing that users may name, as they write it: ``hr.FixedWindows(offset=)``, ``headrace run --executor``."""
    import headrace

    yield from _names_of("hr", headrace)
    for name, command in all_commands().items():
        yield f"headrace {name}"
        yield from (f"headrace {name} {_spell_word(one)}" for one in chain.from_iterable(map(_words, command.params)))
    yield from _columns()
    from headrace.cli.app import exit_code_meanings

    yield from (f"exit code {code}" for code, _ in exit_code_meanings())
    yield from _VARIABLE.findall((ROOT / "docs" / "settings.md").read_text(encoding="utf-8"))


def _columns() -> Iterator[str]:
    """Columns that views have beside a pipeline's own."""
    from headrace.read.views.columns import View, ViewColumns

    columns = ViewColumns({}, {}, {}, output="any")
    yield from (f"column {view}.{name}" for view in View for name in columns.column_types(view))


def _words(parameter: click.Parameter) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _spell_word(word: str) -> str:
    return word if word.startswith("-") else word.upper()


def _names_of(path: str, module: ModuleType) -> Iterator[str]:
    for name in module.__all__:
        value = getattr(module, name)
        yield f"{path}.{name}"
        if name == "errors":  # which have a list of their own
            continue
        if isinstance(value, ModuleType):
            yield from _names_of(f"{path}.{name}", value)
            continue
        if name in WITH_MEMBERS or path == "hr.testing" or (isinstance(value, type) and issubclass(value, Enum)):
            yield from (f"{path}.{name}{part}" for part in _members(value))
        if path != "hr.types" and callable(value):
            yield from (f"{path}.{name}{part}" for part in _arguments(value))


def _members(kind: object) -> Iterator[str]:
    """Methods with their arguments, properties and fields of ``kind``, also those that it inherits from ours."""
    for base in kind.__mro__ if isinstance(kind, type) else ():
        if base.__module__.partition(".")[0] not in OURS:
            continue
        fields = inspect.get_annotations(base)
        for name in {*vars(base), *fields}:
            if not name.startswith("_"):
                yield f".{name}"
                member = inspect.getattr_static(kind, name, None)
                if inspect.isfunction(function := getattr(member, "__func__", member)):
                    yield from (f".{name}{part}" for part in _arguments(function))


def _arguments(public: Any) -> Iterator[str]:
    """What ``public`` takes by name, those of ``**options: Unpack[Options]`` among them."""
    if isinstance(public, type) and issubclass(public, Enum):
        return
    try:
        parameters = inspect.signature(public).parameters.values()
    except ValueError:  # of a class that C makes
        return
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD and get_origin(parameter.annotation) is Unpack:
            yield from (f"({name}=)" for options in get_args(parameter.annotation) for name in options.__annotations__)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name != "self":
            yield f"({parameter.name}=)"


def read_released() -> dict[str, str]:
    """Each name that was released, and since which version."""
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        next(rows := csv.reader(file))  # the names of the columns
        return dict(rows)


def find_gone(names: Iterable[str] | None = None) -> list[str]:
    """Names each thing that was released and is not among the ``names`` that are there, by default all."""
    current_names = {*(public_api() if names is None else names)}
    return [
        f"{name} was released in {version} and is gone; docs/versions.md says how a name goes"
        for name, version in read_released().items()
        if name not in current_names
    ]


def find_unlisted() -> list[str]:
    """What is new, and no version has promised: a release lists it."""
    return sorted({*public_api()} - read_released().keys())


def write() -> None:
    """List what is new."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    names = dict.fromkeys(public_api(), version) | read_released()
    with GOLDEN.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "since"])
        writer.writerows(sorted(names.items()))


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    print("\n".join(find_gone()) or "All that was released is there.")
    sys.exit(bool(find_gone()))
