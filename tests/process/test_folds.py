"""Layers of ``current`` are folded beside the epochs: none waits for it but the last of a run."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.distribute.epoch import Attempts, ComputedEpoch
from headrace.distribute.local import LocalEngine
from headrace.distribute.process import Stop
from headrace.errors import RetryError
from headrace.model.time import Instant
from headrace.pipeline.endpoints import OWN
from headrace.runs.commits import Committer, attempts_of
from headrace.runs.executors.on_local import LocalExecution
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.sources.landing import Landing
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FANOUT, DataFile, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, land, truth
from tests.process.executors import computing
from tests.process.test_process import current

SECONDS = 60.0
EPOCHS = FANOUT.value + 8
pytestmark = pytest.mark.slow  # runs of many epochs


FilesByPart = tuple[tuple[DataFile, ...], ...]


class HoldingEngine(LocalEngine):
    """An engine whose folds wait for ``release_event``, or end with the run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.release_event, self.began = threading.Event(), threading.Event()
        self.in_time: list[bool] = []

    def compact_current(self, layers: Sequence[Layer], *rest: Any, stop: Stop, **options: Any) -> FilesByPart:
        self.began.set()
        with stop.call_on_stop(self.release_event.set):
            self.in_time.append(self.release_event.wait(SECONDS))
        return super().compact_current(layers, *rest, stop=stop, **options)


def run_held(
    root: Path, *, release_at: int, epochs: int = EPOCHS, fails: bool = False
) -> tuple[HoldingEngine, list[Manifest]]:
    """A run of so many epochs, whose folds wait for the commit of epoch ``release_at``."""
    land(root, 0, epochs)
    store = open_store(root.as_uri())
    catalog = Catalog(store, CLICKS.name)
    engine = HoldingEngine(CLICKS, store, Landing(CLICKS, store), attempts_of(catalog))
    committed_manifests: list[Manifest] = []

    def on_commit(manifest: Manifest) -> None:
        committed_manifests.append(manifest)
        if manifest.epoch == release_at:
            engine.release_event.set()

    committer = Committer(engine, catalog, catalog.claim("main", "test"), None, on_commit)
    try:
        for number, file in enumerate(engine.landing.new_files({})[OWN]):
            is_last = number == epochs - 1 and not fails  # a run that fails has not come to its last epoch
            committer.submit(engine.compute({OWN: [file]}, Instant(0), wait_for_merges=is_last))
        if fails:
            raise RetryError("the run ends here")
        committer.drain()
    finally:
        committer.close()
        engine.close()
    return engine, committed_manifests


def layers(manifest: Manifest) -> list[tuple[int, int]]:
    return [(layer.first_epoch, layer.last_epoch) for layer in manifest.tables["current"]]


def test_epochs_are_committed_while_a_fold_is_running(tmp_path: Path) -> None:
    engine, committed_manifests = run_held(tmp_path, release_at=FANOUT.value + 3)
    assert [manifest.epoch for manifest in committed_manifests] == [*range(EPOCHS)]
    assert engine.in_time == [True], "the commits that it waited for came while it was held"
    single = [(epoch, epoch) for epoch in range(EPOCHS)]
    assert layers(committed_manifests[FANOUT.value + 3]) == single[: FANOUT.value + 4], (
        "nothing is folded before the fold is done"
    )
    assert layers(committed_manifests[-1]) == [(0, FANOUT.value - 1), *single[FANOUT.value :]], (
        "and what came meanwhile stays above it"
    )
    assert current(CLICKS, tmp_path) == truth(EPOCHS)
    check_catalog(open_store(tmp_path.as_uri()), CLICKS.name)


def test_the_last_epoch_of_a_run_waits_for_the_fold(tmp_path: Path) -> None:
    class Waiting(HoldingEngine):
        def compute(self, *arguments: Any, **options: Any) -> ComputedEpoch:
            computed_epoch = super().compute(*arguments, **options)
            if computed_epoch.wait_for_merges:
                self.release_event.set()
            return computed_epoch

    land(tmp_path, 0, FANOUT.value + 1)
    store = open_store(tmp_path.as_uri())
    catalog = Catalog(store, CLICKS.name)
    waiting_engine = Waiting(CLICKS, store, Landing(CLICKS, store), attempts_of(catalog))
    committed_manifests: list[Manifest] = []
    committer = Committer(waiting_engine, catalog, catalog.claim("main", "test"), None, committed_manifests.append)
    for number, file in enumerate(waiting_engine.landing.new_files({})[OWN]):
        committer.submit(waiting_engine.compute({OWN: [file]}, Instant(0), wait_for_merges=number == FANOUT.value))
    committer.drain()
    committer.close()
    assert layers(committed_manifests[-1]) == [(0, FANOUT.value - 1), (FANOUT.value, FANOUT.value)]
    assert waiting_engine.in_time == [True]


def test_a_fold_ends_with_the_run_that_failed_and_the_next_run_does_it(tmp_path: Path) -> None:
    with pytest.raises(RetryError, match="the run ends here"):
        run_held(tmp_path, release_at=-1, epochs=FANOUT.value + 1, fails=True)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("fold")]
    assert not [*tmp_path.rglob("current-*")]
    land(tmp_path, FANOUT.value + 1, FANOUT.value + 2)
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("next", executor="local"))
    manifest = Catalog(open_store(tmp_path.as_uri()), CLICKS.name).manifest(str(result.snapshot))
    assert layers(manifest)[0][0] == 0
    assert layers(manifest)[0][1] >= FANOUT.value - 1, "begun with the run, over what was committed before"
    assert current(CLICKS, tmp_path) == truth(FANOUT.value + 2)


def test_runs_of_one_epoch_fold_as_well(tmp_path: Path) -> None:
    """Each begins with what is to be folded, and its only commit takes it over."""
    folded_epochs: list[int] = []

    class CountingEngine(LocalEngine):
        def compact_current(self, layers: Sequence[Layer], *rest: Any, **options: Any) -> FilesByPart:
            folded_epochs.append(len(layers))
            return super().compact_current(layers, *rest, **options)

    def make_counting_engine(run: LocalExecution, attempts: Attempts) -> LocalEngine:
        return CountingEngine(run.pipeline, run.store, run.landing, attempts)

    for number in range(FANOUT.value + 4):
        land(tmp_path, number, number + 1)
        with computing(make_counting_engine):
            result = process(CLICKS, tmp_path.as_uri(), RunOptions(f"run-{number}", executor="local"))
    manifest = Catalog(open_store(tmp_path.as_uri()), CLICKS.name).manifest(str(result.snapshot))
    assert folded_epochs == [FANOUT.value]
    assert len(manifest.tables["current"]) == 5
    assert current(CLICKS, tmp_path) == truth(FANOUT.value + 4)
