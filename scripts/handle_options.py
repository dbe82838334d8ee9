"""The options in the signatures of ``PipelineHandle``'s methods, as ``RunOptions`` declares them.

``python -m scripts.handle_options`` says which signatures are stale, and fails then, as ``make check`` does. With
``--write`` it writes them again: readers and type checkers see signatures like any others.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace.runs.option_kinds import RunOption
from headrace.runs.options import COMMANDS, options_of_method
from headrace_snapshots.names import MAIN

ROOT: Final = Path(__file__).resolve().parents[1]
CLIENT: Final = "jobs/headrace/runs/client"
_WORDS: Final[dict[Any, str]] = {MAIN: "MAIN"}


class UndeclaredMethodError(Exception):
    """A method takes none of its declared options so far: one has to be written by hand, to show their place."""


def stale_signatures(root: Path = ROOT) -> Iterator[str]:
    """Names each method whose options are not as they are declared."""
    for file in sorted((root / CLIENT).glob("*.py")):
        if (new_text := with_declared_options(text := file.read_text())) != text:
            old_lines, new_lines = text.splitlines(), new_text.splitlines()
            line = next(
                (n for n, (a, b) in enumerate(zip(old_lines, new_lines, strict=False)) if a != b), len(old_lines)
            )
            yield (
                f"{file.relative_to(root)}:{line + 1}: options are not as headrace.runs.options declares them: "
                "run python -m scripts.handle_options --write"
            )


def write_signatures(root: Path = ROOT) -> None:
    """Write the options of all methods as they are declared."""
    for file in sorted((root / CLIENT).glob("*.py")):
        text = file.read_text()
        if (new_text := with_declared_options(text)) != text:
            file.write_text(new_text)


def with_declared_options(text: str) -> str:
    """A module with the options of each method that has the name of a command as they are declared.

    They stand together, and what stands between the first and the last of them is an option that was. Raises
    UndeclaredMethodError.
    """
    lines = text.splitlines(keepends=True)
    methods = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs]
    for method in sorted(methods, key=lambda node: -node.lineno):  # from the end: numbers of lines before it stay
        options = options_of_method(method.name) if method.name in COMMANDS else []
        if not options:
            continue
        names = {option.name for option in options}
        places = [
            (argument.lineno, (default or argument).end_lineno or argument.lineno)
            for argument, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
            if argument.arg in names
        ]
        if not places:
            raise UndeclaredMethodError(f"{method.name} takes none of its options: write one of {', '.join(names)}")
        lines[places[0][0] - 1 : places[-1][1]] = [f"        {parameter(option)},\n" for option in options]
    return "".join(lines)


def parameter(option: RunOption) -> str:
    """An option as a parameter of a method."""
    kind = option.kind.annotation
    default = option.default
    if default is None:
        kind = f'"{kind.strip(chr(34))} | None"' if kind.startswith('"') else f"{kind} | None"
    elif default in _WORDS:
        return f"{option.name}: {kind} = {_WORDS[default]}"
    default_text = json.dumps(str(default)) if isinstance(default, str) else repr(default)
    return f"{option.name}: {kind} = {default_text}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write_signatures()
    print(*(stale := [*stale_signatures()]), sep="\n")
    sys.exit(bool(stale))
