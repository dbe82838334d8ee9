"""Modules do not import each other in circles, not even within functions or for types alone."""

from collections.abc import Iterator

import grimp
import pytest

ROOTS = ("headrace", "headrace_snapshots", "headrace_airflow")
CLEAN = ("headrace.read", "headrace_snapshots")
"""Packages without circles. The goal is the whole of ``headrace``."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom: all imports that stand in a file."""
    return grimp.build_graph(*ROOTS, cache_dir=None)


@pytest.mark.parametrize("package", CLEAN)
def test_no_modules_import_each_other_in_a_circle(package: str, graph: grimp.ImportGraph) -> None:
    modules = {package} | graph.find_descendants(package)
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    assert list(_circles(imports)) == []


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d", "a"}, "e": set[str]()}
    assert list(_circles(imports)) == [["b", "c"]]


def _circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """The groups of modules that all lead to each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for imported in sorted(imports[module]):
            if imported not in number:
                yield from visit(imported)
            if imported in path:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == number[module]:
            group = path[path.index(module) :]
            del path[path.index(module) :]
            if len(group) > 1:
                yield sorted(group)

    for module in sorted(imports):
        if module not in number:
            yield from visit(module)
