"""State of runs without a JVM: restored from cache or store, verified before that, and merged beside the epochs."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Pipeline
from headrace.distribute.local import LocalEngine
from headrace.read.snapshots.progress import progress_of
from headrace.runs.commits import attempts_of
from headrace.runs.executors.on_local import LocalExecution
from headrace.runs.process import process
from headrace.sources.landing import Landing
from headrace.state.file_cache import default_cache
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.fault_plans import FaultyStore, Operation
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore, open_store
from tests.process.clicks import CLICKS, FILES, SESSIONS, land, truth
from tests.process.test_local import NOON, current, local
from tests.reading import read

MANY = 35


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HEADRACE_CACHE", str(folder))
    default_cache.cache_clear()
    yield folder
    default_cache.cache_clear()


def lose_the_cache(folder: Path) -> None:
    for file in folder.glob("*.arrow"):
        file.unlink()
    default_cache.cache_clear()


def keep_the_cache(_: Path) -> None:
    default_cache.cache_clear()  # as a process does that begins


CACHE = pytest.mark.parametrize("lose", [lose_the_cache, keep_the_cache])


def head_of(root: Path, pipeline: Pipeline = CLICKS) -> Manifest:
    catalog = Catalog(open_store(root.as_uri()), pipeline.name)
    return catalog.manifest(catalog.head().refs["main"])


def state_files(manifest: Manifest) -> list[tuple[str, DataFile]]:
    tables = manifest.tables.items()
    return [(name, file) for name, layers in tables if name != "current" for each in layers for file in each.files]


def restore_engine(store: ObjectStore, manifest: Manifest) -> LocalEngine:
    """What a run does before its first epoch."""
    landing = Landing(CLICKS, store)
    side = LocalExecution(CLICKS, store, landing)
    for table, file in state_files(manifest):
        side.verify(table, file)
    catalog = Catalog(store, CLICKS.name)
    engine = side.engine(attempts_of(catalog))
    engine.restore(manifest.epoch, progress_of(catalog, manifest), manifest.tables)
    return engine


def data_requests(store: ObjectStore, manifest: Manifest) -> list[str]:
    """The kinds of requests for data files that a restore makes."""
    kinds: list[str] = []

    def note_request(operation: Operation) -> None:
        if operation.path.endswith(".parquet"):
            kinds.append(operation.kind)

    restore_engine(FaultyStore(store, note_request), manifest)
    return kinds


@pytest.mark.slow
def test_a_restore_reads_state_once_and_then_not_at_all(tmp_path: Path, cache: Path) -> None:
    land(tmp_path)
    process(CLICKS, tmp_path.as_uri(), local("first"))
    store, manifest = open_store(tmp_path.as_uri()), head_of(tmp_path)
    files = len(state_files(manifest))
    assert files == FILES
    for expected in (["stat"] * files, ["get", "stat"] * files, ["stat"] * files):
        assert sorted(data_requests(store, manifest)) == sorted(expected)
        if expected == ["stat"] * files:
            lose_the_cache(cache)
        default_cache.cache_clear()


@pytest.mark.slow
def test_a_process_goes_on_when_somebody_removes_the_cache(tmp_path: Path, cache: Path) -> None:
    for number in range(3):
        land(tmp_path, number, number + 1)
        process(CLICKS, tmp_path.as_uri(), local(f"run-{number}"), now=lambda: NOON)
        shutil.rmtree(cache)
    assert current(CLICKS, tmp_path) == truth(3)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))


@pytest.mark.slow
@CACHE
@pytest.mark.parametrize("damage", [Path.unlink, flip])
def test_a_broken_state_file_costs_a_replay_and_nothing_else(
    tmp_path: Path, cache: Path, damage: Callable[[Path], None], lose: Callable[[Path], None]
) -> None:
    land(tmp_path, 0, 4)
    process(CLICKS, tmp_path.as_uri(), local("first"), now=lambda: NOON)
    broken_path = tmp_path / head_of(tmp_path).tables["state"][-1].files[0].path
    damage(broken_path)
    lose(cache)
    land(tmp_path, 4, 5)
    result = process(CLICKS, tmp_path.as_uri(), local("after"), now=lambda: NOON)
    assert result.epochs == (3, 4)
    (warning,) = result.warnings
    assert broken_path.name in warning
    assert "fell back to snapshot" in warning
    assert current(CLICKS, tmp_path) == truth()
    check_catalog(open_store(tmp_path.as_uri()), CLICKS.name)


@pytest.mark.slow  # as many epochs as it takes until layers merge
@pytest.mark.parametrize("pipeline", [CLICKS, SESSIONS], ids=lambda pipeline: pipeline.name)
def test_merges_change_nothing_however_often_a_run_begins(tmp_path: Path, cache: Path, pipeline: Pipeline) -> None:
    once_root, often_root = tmp_path / "once", tmp_path / "often"
    land(once_root, 0, MANY)
    process(pipeline, once_root.as_uri(), local("whole"), now=lambda: NOON)
    for file in range(0, MANY, 5):
        land(often_root, file, min(file + 5, MANY))
        process(pipeline, often_root.as_uri(), local(f"run-{file}"), now=lambda: NOON)
        (lose_the_cache if file % 2 else keep_the_cache)(cache)
    for root in (once_root, often_root):
        manifest = head_of(root, pipeline)
        assert len(manifest.tables["state"]) < 16
        assert manifest.tables["state"][0].last_epoch - manifest.tables["state"][0].first_epoch >= 15
        check_catalog(open_store(root.as_uri()), pipeline.name)
    for view in ("panes", "current"):
        assert read(pipeline, often_root.as_uri(), view, "main") == read(pipeline, once_root.as_uri(), view, "main")
