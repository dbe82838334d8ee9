"""Arrows of the house: who names whom. Floors are those of the first contract of import-linter (``pyproject.toml``).

* An arrow up is a module of a higher floor that a module of a lower floor names. It names it by an import, for types
  alone too, or in a string that is no docstring. import-linter holds the code to the imports; it reads no strings.
* A circle is a set of modules of which each imports, for types alone too, another on the way back to itself.

``python -m scripts.house_arrows`` prints both. ``scripts.house_figures`` counts them for ``make check``.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

BASES: Final = {"headrace": "jobs", "headrace_snapshots": "snapshots", "headrace_airflow": "plugins"}
_MODULE_NAME = re.compile(r"\bheadrace\w*(?:\.\w+)+")

Places = frozenset[tuple[int, str]]
"""Lines, and the modules that are named there."""


@cache
def parse_text(text: str) -> ast.Module:
    """The syntax tree of the ``text`` of a module: once, however many of the house's rules look at it."""
    return ast.parse(text)


@dataclass(frozen=True)
class NamedModules:
    """The modules of the product that one of its files imports, and those that its strings name."""

    file: str
    imports: Places
    strings: Places


def named_modules(root: Path) -> dict[str, NamedModules]:
    """What each module of the checkout at ``root`` names."""
    files = {}
    for package, base in BASES.items():
        for file in sorted((root / base / package).rglob("*.py")):
            names = file.relative_to(root / base).with_suffix("").parts
            files[".".join(names[:-1] if names[-1] == "__init__" else names)] = file
    packages = {module for module, file in files.items() if file.name == "__init__.py"}
    modules = {}
    for module, file in files.items():
        tree = parse_text(file.read_text(encoding="utf-8"))
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        imports, strings = set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= {(node.lineno, name) for name in _imported_names(node) if name in files}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                # groups of entry points are called as packages are
                strings |= {
                    (node.lineno, name) for name in _MODULE_NAME.findall(node.value) if name in files.keys() - packages
                }
        modules[module] = NamedModules(str(file.relative_to(root)), frozenset(imports), frozenset(strings))
    return modules


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What may be modules of all that is imported."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def house_floors(root: Path) -> dict[str, int]:
    """How high each package of the contract of floors stands, the lowest 0."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    return {name.strip(): height for height, row in enumerate(reversed(rows)) for name in re.split(r"[|:]", row)}


def floor_of(module: str, floors: Mapping[str, int]) -> int | None:
    """The floor of the nearest package of a module that has one. None: it stands beside the house."""
    while module and module not in floors:
        module = module.rpartition(".")[0]
    return floors.get(module)


def without_floor(modules: Mapping[str, NamedModules], floors: Mapping[str, int]) -> list[str]:
    """The modules, packages apart, that stand beside the house: no contract says who may import them."""
    packages = {module.rpartition(".")[0] for module in modules}
    return sorted(module for module in modules.keys() - packages if floor_of(module, floors) is None)


def arrows_up(modules: Mapping[str, NamedModules], floors: Mapping[str, int]) -> list[str]:
    """Every arrow up, with its place."""
    problems = []
    for module, modules_named in modules.items():
        own_floor = floor_of(module, floors)
        for line, target in sorted(modules_named.imports | modules_named.strings):
            target_floor = floor_of(target, floors)
            if own_floor is not None and target_floor is not None and target_floor > own_floor:
                problems.append(f"{modules_named.file}:{line}: {module} names {target}, which stands above it")
    return problems


def circling_modules(modules: Mapping[str, NamedModules]) -> list[str]:
    """The modules that import themselves by way of others."""
    imports_by_module = {
        module: {name for _, name in modules_named.imports} - {module} for module, modules_named in modules.items()
    }
    for package in modules.keys() & {module.rpartition(".")[0] for module in modules}:
        for names in imports_by_module.values():  # importing a module of it is no import of what else it has
            if any(name.startswith(f"{package}.") for name in names):
                names.discard(package)
    while ends := {module for module, names in imports_by_module.items() if not names & imports_by_module.keys()}:
        imports_by_module = {module: names - ends for module, names in imports_by_module.items() if module not in ends}
    return sorted(module for module in imports_by_module if _leads_back(module, imports_by_module))


def _leads_back(start: str, imports_by_module: Mapping[str, set[str]]) -> bool:
    """Whether a way from ``start`` ends there."""
    front, modules_done = [start], set[str]()
    for module in front:  # which grows
        for name in imports_by_module.get(module, set()) - modules_done:
            if name == start:
                return True
            modules_done.add(name)
            front.append(name)
    return False


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    modules = named_modules(root)
    print(*arrows_up(modules, house_floors(root)), *circling_modules(modules), sep="\n")
