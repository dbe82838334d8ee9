"""Imports have no circles, wherever in a module they stand."""

from graphlib import TopologicalSorter

import grimp
import pytest

PACKAGES = ("headrace", "headrace_snapshots", "headrace_airflow")

STILL_ROUND = "headrace.model."
"""Expressions and aggregates know each other; the rest of the house does not wait for them."""


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    imports = {
        module: graph.find_modules_directly_imported_by(module)
        for module in graph.modules
        if not module.startswith(STILL_ROUND)
    }

    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules
