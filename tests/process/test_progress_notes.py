"""A run says in the summary of its pipeline where it is, as long as it goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.pipeline.loading.registry import in_file
from headrace.runs.reporting.listener import NOTED_EVERY, ProgressNotes, Silent
from headrace.runs.reporting.summary import PipelineState, UnderWay, read_summary, renew_summary
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectStore, open_store
from tests.airflow.subprocesses import write_pipeline
from tests.airflow.test_end_to_end import land

pytestmark = pytest.mark.slow  # whole runs

_START = "2026-11-28T10:00:00Z"
_UNDER_WAY = UnderWay("ours", "process", "main", _START, _START)


@dataclass
class _Looking(Silent):
    """What the summary says whenever an epoch is committed."""

    store: ObjectStore
    seen: list[UnderWay | None]

    def committed(self, manifest: Manifest) -> None:
        self.seen.append(_under_way(self.store))


def _under_way(store: ObjectStore) -> UnderWay | None:
    summary = read_summary(store, "clicks")
    return None if summary is None else summary.under_way


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    own_store = open_store((tmp_path / "root").as_uri())
    for number in range(3):
        land(own_store, "clicks", f"{number}.jsonl", range(number * 7, number * 7 + 10))
    yield own_store


def _run(store: ObjectStore, folder: Path, clock: Iterator[float]) -> tuple[Any, list[UnderWay | None]]:
    (registered_pipeline,) = in_file(write_pipeline(folder, "clicks", options='executor="local"', most=None))
    looking = _Looking(store, [])
    notes = ProgressNotes(looking, store, "clicks", _UNDER_WAY, lambda: next(clock))
    result = hr.open(store.uri, create=True)[registered_pipeline.pipeline].run(listener=notes, files_per_epoch=1)
    return result, looking.seen


def test_a_run_notes_files_records_and_epochs_until_it_has_ended(store: ObjectStore, tmp_path: Path) -> None:
    result, seen_progress = _run(store, tmp_path, iter(range(0, 1000, 10)))
    figures = [
        None if one is None else (one.files_found, one.files, one.records, one.epochs, one.epoch)
        for one in seen_progress
    ]
    assert figures == [(3, 0, 0, 0, None), (3, 1, 10, 1, 0), (3, 2, 20, 2, 1)]
    catalog = Catalog(store, "clicks")
    assert _under_way(store) is None
    ProgressNotes(Silent(), store, "clicks", _UNDER_WAY).planned(2)
    renew_summary(catalog)
    assert _under_way(store) is not None, "a person has decided something meanwhile"
    renew_summary(catalog, result)
    assert _under_way(store) is None
    summary = read_summary(store, "clicks")
    assert summary is not None
    assert summary.state is PipelineState.PUBLISHED


def test_it_notes_seldom(store: ObjectStore, tmp_path: Path) -> None:
    _, seen_progress = _run(store, tmp_path, iter([0.0, *([NOTED_EVERY / 2] * 100)]))
    assert [one is not None and one.epochs for one in seen_progress] == [0, 0, 0]
