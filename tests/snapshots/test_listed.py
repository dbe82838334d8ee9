"""A restore looks at many files of one folder by a listing, and notices what it noticed by looking at each."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from catalog_helpers import manifest_for

from headrace.runs.restore import RestoredRun, restore_head
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import check_size
from headrace_snapshots.format.files import DataFile, FileLog, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectInfo
from headrace_snapshots.store.local import MemoryStore
from tests.stored_progress import progress_fields

OF_LOG = 1
"""Listings of the log."""


class FarStore(MemoryStore):
    """A store that lists in pages."""

    lists_in_pages = True

    def __init__(self) -> None:
        super().__init__(uuid4().hex)


class Line:
    """Two epochs; the layer of the second has so many ``files``, beside so many ``others`` of its folder."""

    def __init__(self, store: MemoryStore, files: int, others: int = 0) -> None:
        self.store = store
        catalog = Catalog(store, "p")
        claim = catalog.claim("main", "run")
        self.ids: list[str] = []
        layers: tuple[Layer, ...] = ()
        for epoch, count in enumerate((1, files)):
            parent = self.ids[-1] if self.ids else None
            manifest = manifest_for(catalog, claim, parent).replace(progress=progress_fields(PipelineProgress()))
            prefix = catalog.data_prefix(epoch, manifest.snapshot_id)
            self.files = tuple(DataFile(f"{prefix}/state-{n:05}.parquet", 1, 4, "0" * 64) for n in range(count))
            for path in [file.path for file in self.files] + [f"{prefix}/state-000-{n}" for n in range(others)]:
                store.write(path, b"rows")
            layers = (*layers, Layer.from_files(self.files, epoch, epoch))
            catalog.commit(claim, manifest.replace(tables={"state": layers}, logs={"inputs": FileLog.empty()}))
            self.ids.append(manifest.snapshot_id)

    def restore_run(self) -> tuple[RestoredRun, dict[str, int]]:
        """What the next run goes on from, and what it asks of the store after its claim."""
        catalog = Catalog(self.store, "p")
        claim = catalog.claim("main", "next")
        requests_before = self.store.requests.snapshot()

        def verify(_: Manifest, __: str, file: DataFile, info: ObjectInfo | None) -> None:
            check_size(self.store, file, info)

        run = restore_head(catalog, claim, lambda manifest: manifest, verify, lambda *_: [])
        return run, self.store.requests.since(requests_before)


@pytest.mark.parametrize(("files", "lists"), [(1_000, 1), (10_000, 10)])
def test_many_files_of_a_folder_are_looked_at_by_pages(files: int, lists: int) -> None:
    line = Line(FarStore(), files)
    run, requests = line.restore_run()
    assert run.head is not None
    assert (run.head.snapshot_id, run.warning) == (line.ids[-1], None)
    assert requests["list"] == OF_LOG + lists
    assert requests["stat"] == 1, "of the layer with one file"


@pytest.mark.parametrize(("store", "files"), [(FarStore, 15), (MemoryStore, 100)])
def test_few_files_and_those_on_a_disk_are_looked_at_one_by_one(store: Callable[[], MemoryStore], files: int) -> None:
    _, requests = Line(store(), files).restore_run()
    assert (requests["list"], requests["stat"]) == (OF_LOG, files + 1)


def test_files_among_very_many_others_are_looked_at_one_by_one() -> None:
    _, requests = Line(FarStore(), 20, others=3_000).restore_run()
    assert (requests["list"], requests["stat"]) == (OF_LOG + 1, 21)


def remove(store: MemoryStore, path: str) -> None:
    store.delete(path)


def cut(store: MemoryStore, path: str) -> None:
    store.write(path, b"row")


@pytest.mark.parametrize("damage", [remove, cut])
@pytest.mark.parametrize("number", [0, 57, -1])
def test_what_is_gone_or_cut_is_noticed(damage: Callable[[MemoryStore, str], None], number: int) -> None:
    line = Line(FarStore(), 100)
    damage(line.store, line.files[number].path)
    run, _ = line.restore_run()
    assert run.head is not None
    assert run.head.snapshot_id == line.ids[0]
    assert run.warning is not None
    assert f"{line.files[number].path} {'is missing' if damage is remove else 'has 3 bytes'}" in run.warning
