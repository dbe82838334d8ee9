"""What type checkers read of the public names: stubs beside the packages that import their names when they are used.

``python -m scripts.stubs`` says which stub is stale, and fails then, as ``make check`` does; ``--write`` writes them.
Where names stand is said once, in the packages (``_HOMES``), and of errors by their classes. At run time nothing reads
a stub. A function that takes ``**options: Unpack[Options]`` is written out, with each of its options and its docstring:
completion in editors (jedi) does not look into them.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.errors import FOLDERS, ROOT, ErrorClass, error_classes

LAZY = {
    "headrace": "jobs/headrace/__init__.pyi",
    "headrace.testing": "jobs/headrace/testing/__init__.pyi",
    "headrace.types": "jobs/headrace/types.pyi",
}
"""Packages with a table ``_HOMES``, and their stubs."""

ERRORS = "jobs/headrace/errors.pyi"
_WIDTH = 121
"""A line is no longer than 120 characters."""

_HEAD = '"""What type checkers know of {package}: written by ``python -m scripts.stubs --write``."""\n\n'


def stubs() -> dict[str, str]:
    """Every stub's text, by its path."""
    return {path: "".join(lazy_names(package)) for package, path in LAZY.items()} | {
        ERRORS: "".join(errors(error_classes())).replace("\n\n\n", "\n\n")
    }


def lazy_names(package: str) -> Iterator[str]:
    """The stub of ``package``: an import of each name."""
    module = import_module(package)
    homes: Mapping[str, str] = vars(module)["_HOMES"]
    modules = vars(module).get("_MODULES", ())
    yield _HEAD.format(package=package)
    written_out = {name: definition for name in sorted(homes) if (definition := written_function(homes[name], name))}
    exports = {(package, f"{name} as {name}") for name in modules}
    exports |= {(homes[name], f"{name} as {name}") for name in homes if name not in written_out}
    imports = {one for name in written_out for one in _imports(homes[name], written_out[name]) if one[1] not in homes}
    yield from _import_lines(exports | imports)
    yield "\n__all__: list[str]\n"
    yield "__version__: str\n" if "__version__" in vars(module) else ""
    for name, function in written_out.items():
        yield f"\n{_text(getattr(import_module(homes[name]), name), function)}\n"


def _import_lines(imports: Collection[tuple[str, str]]) -> Iterator[str]:
    """The lines that import (module, name), as a formatter has them: names without ``as`` of a module share one."""
    plain = {
        module: sorted(name for home, name in imports if home == module and " " not in name) for module, _ in imports
    }
    lines = {one for one in imports if " " in one[1]} | {
        (home, ", ".join(names)) for home, names in plain.items() if names
    }
    libraries = sorted(line for line in lines if not line[0].startswith("headrace"))
    yield from (f"from {module} import {names}\n" for module, names in libraries)
    yield "\n" if libraries else ""
    yield from (f"from {module} import {names}\n" for module, names in sorted(lines - {*libraries}))


def written_function(module: str, name: str) -> ast.FunctionDef | None:
    """The function ``name`` with its options in the place of ``**options: Unpack[Options]``; None if it has none."""
    body = _parse_module(module).body
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name and (rest := node.args.kwarg):
            match rest.annotation:
                case ast.Subscript(value=ast.Name("Unpack"), slice=ast.Name(options)):
                    (fields,) = (one.body for one in body if isinstance(one, ast.ClassDef) and one.name == options)
                    annotated_fields = [one for one in fields if isinstance(one, ast.AnnAssign)]
                    function = deepcopy(node)
                    function.args.kwonlyargs += [
                        ast.arg(ast.unparse(one.target), one.annotation) for one in annotated_fields
                    ]
                    function.args.kwarg = None
                    return function
    return None


def _imports(home: str, function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Each module and name that the annotations of ``function``, which stands in ``home``, need."""
    arguments = function.args
    annotations = [one.annotation for one in (*arguments.args, *arguments.kwonlyargs)] + [function.returns]
    used = {node.id for one in annotations if one for node in ast.walk(one) if isinstance(node, ast.Name)}
    for line in _parse_module(home).body:
        match line:
            case ast.ImportFrom(module=str(module)):
                yield from ((module, ast.unparse(one)) for one in line.names if (one.asname or one.name) in used)
            case ast.ClassDef(name=name) if name in used:
                yield home, name


def _text(function: Callable[..., Any], node: ast.FunctionDef) -> str:
    """The function as a stub has it: a line for each argument, and the docstring."""
    lines = [*map(_argument(function), node.args.args), "*", *map(_argument(function), node.args.kwonlyargs)]
    returns = ast.unparse(node.returns) if node.returns else "None"
    arguments = "".join(f"    {line},\n" for line in lines)
    return f'def {node.name}(\n{arguments}) -> {returns}:\n    """{_literal(ast.get_docstring(node, clean=False))}"""'


def _argument(function: Callable[..., Any]) -> Callable[[ast.arg], str]:
    parameters = inspect.signature(function).parameters

    def format_argument(argument: ast.arg) -> str:
        default = parameters[argument.arg].default
        text = f"{argument.arg}: {ast.unparse(argument.annotation or ast.Constant(None))}"
        value = default.value if isinstance(default, Enum) else default
        return text if default is inspect.Parameter.empty else f"{text} = {_format_default(value)}"

    return format_argument


def _format_default(value: object) -> str:
    """A default as formatted code has it."""
    if isinstance(value, str):
        return "'\"'" if value == '"' else f'"{value}"'
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else repr(value)


def _literal(docstring: str | None) -> str:
    return (docstring or "").replace("\\", "\\\\")


def errors(classes: Mapping[str, ErrorClass]) -> Iterator[str]:
    """The stub of ``headrace.errors``: what it defines, then each other class as if it stood there.

    A stub that imported them would have each module of the house depend on all others.
    """
    yield _HEAD.format(package="headrace.errors")
    yield "from collections.abc import Sequence\nfrom typing import ClassVar, Final\n\n"
    yield "OPERANDS: Final[str]\n\n"
    for error in _bases_first(classes):
        body = _parse_module(error.module).body
        (node,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == error.name)
        members = "".join(_members(node))
        head = f"class {error.name}({', '.join(map(ast.unparse, node.bases))}):"
        yield f"\n{head}\n{members}\n" if members else f"{head} ...\n"


def _bases_first(classes: Mapping[str, ErrorClass], base: str = "") -> Iterator[ErrorClass]:
    for error in sorted(classes.values(), key=lambda error: error.code):
        if (error.base if error.base in classes else "") == base:
            yield error
            yield from _bases_first(classes, error.name)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign):
            yield f"    {ast.unparse(line.target)}: {ast.unparse(line.annotation)}\n"
        elif isinstance(line, ast.FunctionDef) and line.name in ("__init__", "__init_subclass__"):
            line.args.defaults = [ast.Constant(...) for _ in line.args.defaults]
            line.args.kw_defaults = [value and ast.Constant(...) for value in line.args.kw_defaults]
            arguments = ast.unparse(line.args).replace("=...", " = ...")
            whole = f"    def {line.name}({arguments}) -> None: ...\n"
            yield whole if len(whole) <= _WIDTH else f"    def {line.name}(\n        {arguments}\n    ) -> None: ...\n"


@cache
def _parse_module(module: str) -> ast.Module:
    package, _, inner = module.partition(".")
    (folder,) = (folder for folder in FOLDERS if Path(folder).name == package)
    path = ROOT / folder / inner.replace(".", "/")
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def stale_stubs(root: Path = ROOT) -> list[str]:
    """Names each stub below ``root`` that is not what it would be written as."""
    return [
        f"{path}: stale: python -m scripts.stubs --write"
        for path, text in stubs().items()
        if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != text
    ]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for name, content in stubs().items():
            (ROOT / name).write_text(content, encoding="utf-8")
    stale = stale_stubs()
    print("\n".join(stale) if stale else "All stubs say what is there.")
    sys.exit(bool(stale))
