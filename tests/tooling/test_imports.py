"""Modules do not import each other in circles, not even within functions."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

ROOTS = ("headrace", "headrace_snapshots", "headrace_airflow")

CLEAN = ("headrace.read", "headrace_snapshots")
"""Packages without circles even where imports for types alone count. The goal is the whole of ``headrace``."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom: all imports that stand in a file."""
    return grimp.build_graph(*ROOTS, cache_dir=None)


@pytest.mark.parametrize("package", CLEAN)
def test_no_modules_import_each_other_in_a_circle(package: str, graph: grimp.ImportGraph) -> None:
    modules = {package} | graph.find_descendants(package)
    _check({module: graph.find_modules_directly_imported_by(module) & modules for module in modules})


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph(*ROOTS, exclude_type_checking_imports=True, cache_dir=None)
    _check({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError, match=r"'b', 'c', 'b'|'c', 'b', 'c'"):
        _check({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()})


def _check(imports: Mapping[str, set[str]]) -> None:
    """Raises CycleError, which names the modules of a circle."""
    TopologicalSorter(imports).prepare()
