"""Circles that a plan would make, found before anything is written."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from scripts.rehouse.checkout import Checkout
from scripts.rehouse.names import is_for_types

CLEAN = ("headrace.read", "headrace_snapshots")
"""Packages in which imports for types alone count too, as in ``tests/tooling/test_imports.py``."""

Graph = dict[str, set[str]]


def predicted_circle(checkout: Checkout, places: Mapping[str, str]) -> list[str]:
    """The modules of one circle after a plan, each imported by the one before it; empty if there is none."""
    files = checkout.modules()
    graph: Graph = {}
    clean: dict[str, Graph] = {package: {} for package in CLEAN}
    for module, file in files.items():
        importer = places.get(module, module)
        for imported, typed in _imports(ast.parse(file.read_text(encoding="utf-8")), files):
            _add(graph if not typed else {}, importer, imported, places, files)
            for package, inner in clean.items():
                if module.startswith(package) and imported.startswith(package):
                    _add(inner, importer, imported, places, files)
    for edges in (graph, *clean.values()):
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            return list(error.args[1])
    return []


def _imports(tree: ast.Module, files: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Each module that is imported, and whether for types alone."""
    typed = {id(part) for node in ast.walk(tree) if is_for_types(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                imported = full if full in files else node.module
                if imported in files:
                    yield imported, id(node) in typed


def _add(graph: Graph, importer: str, imported: str, places: Mapping[str, str], files: Mapping[str, object]) -> None:
    """An import as it is after the plan. What is imported imports its packages, too: these count as well."""
    target = places.get(imported, imported)
    if target == importer:
        return
    edges = graph.setdefault(importer, set())
    edges.add(target)
    package = target.rpartition(".")[0]
    while package:
        if package in files and package != importer and not importer.startswith(f"{package}."):
            edges.add(package)
        package = package.rpartition(".")[0]
