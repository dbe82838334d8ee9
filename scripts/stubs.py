"""What type checkers read of the public names: stubs beside the packages that import their names when they are used.

``python -m scripts.stubs`` says which stub is stale, and fails then, as ``make check`` does; ``--write`` writes them.
Where names stand is said once, in the packages (``_HOMES``), and of errors by their classes. At run time nothing reads
a stub.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

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
    yield from (f"from {package} import {name} as {name}\n" for name in sorted(modules))
    yield from (f"from {homes[name]} import {name} as {name}\n" for name in sorted(homes, key=lambda n: (homes[n], n)))
    yield "\n__all__: list[str]\n"
    yield "__version__: str\n" if "__version__" in vars(module) else ""


def errors(classes: Mapping[str, ErrorClass]) -> Iterator[str]:
    """The stub of ``headrace.errors``: what it defines, then each other class as if it stood there.

    A stub that imported them would have each module of the house depend on all others.
    """
    yield _HEAD.format(package="headrace.errors")
    yield "from collections.abc import Sequence\nfrom typing import ClassVar, Final\n\n"
    yield "OPERANDS: Final[str]\n\n"
    for error in _bases_first(classes):
        body = _parsed(error.module).body
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


def _parsed(module: str) -> ast.Module:
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
