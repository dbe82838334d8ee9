"""Runs whose layers have many files: manifests name nodes, and nobody sees that but who looks for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.fsck import fsck
from headrace_snapshots.names import ObjectKind, object_folder
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, land, truth
from tests.process.test_process import current

pytestmark = pytest.mark.slow  # whole runs

NAME = CLICKS.name
FILES_IN_A_MANIFEST = 8
PARTS = 2 * FILES_IN_A_MANIFEST
USERS = 10 * PARTS


def run(root: Path, number: int) -> Catalog:
    """A run of one epoch more, whose results are right; the catalog after it."""
    land(root, number, number + 1, USERS)
    process(CLICKS, root.as_uri(), RunOptions(f"run-{number}", executor="local"))
    assert current(CLICKS, root) == truth(number + 1, USERS)
    return Catalog(open_store(root.as_uri()), NAME)


@pytest.fixture
def _many_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As many tasks as a cluster has, each with a few keys."""
    monkeypatch.setenv("HEADRACE_TASKS", str(PARTS))
    with set_sizes(task_bytes=1, files_in_a_manifest=FILES_IN_A_MANIFEST):
        yield


@pytest.mark.usefixtures("_many_parts")
def test_runs_go_on_from_layers_in_nodes(tmp_path: Path) -> None:
    for number in range(4):
        catalog = run(tmp_path, number)
    head = catalog.manifest(catalog.head().refs["main"])
    assert head.format == 6
    stored_paths = {Path(info.path).stem for info in catalog.store.list(object_folder(NAME, ObjectKind.INDEX))}
    assert {node.id for node in head.nodes} <= stored_paths
    assert fsck(catalog, deep=True).problems == ()
    check_catalog(catalog.store, NAME)


@pytest.mark.usefixtures("_many_parts")
def test_a_run_falls_back_where_a_node_is_lost(tmp_path: Path) -> None:
    for number in range(3):
        catalog = run(tmp_path, number)
    head = catalog.head().refs["main"]
    nodes_before, now = (
        {node.id for node in catalog.manifest(one).layer_nodes} for one in [*_line(catalog, head)][1::-1]
    )
    for node in now - nodes_before:
        catalog.store.delete(f"{object_folder(NAME, ObjectKind.INDEX)}{node}.json")
    catalog = run(tmp_path, 3)
    assert head not in [*_line(catalog, catalog.head().refs["main"])]
    assert fsck(catalog, deep=True).problems == ()


def _line(catalog: Catalog, head: str) -> list[str]:
    return [link.snapshot_id for link in catalog.lineage(head)]


@pytest.mark.usefixtures("_many_parts")
@set_sizes(fanout=4, merge_step_rows=400, merge_pace=0)
def test_a_merge_goes_on_over_runs_with_its_parts_in_nodes(tmp_path: Path) -> None:
    merging, epochs = set[int](), 0
    while not merging or epochs < max(merging) + 3:
        catalog = run(tmp_path, epochs)
        head = catalog.manifest(catalog.head().refs["main"])
        merging |= {epochs for merges in head.merges.values() for merge in merges if merge.nodes}
        epochs += 1
    assert any(layer.node and layer.first_epoch < layer.last_epoch for layer in head.tables["state"]), "it was done"
    assert fsck(catalog, deep=True).problems == ()
    check_catalog(catalog.store, NAME)
