"""A chain of aggregations names its tables and logs; what its pipeline has once is apart from it."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace import Deduplicate, Pipeline
from headrace.distribute.epoch import Attempt, ComputedEpoch
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.model.time import Instant
from headrace.pipeline.endpoints import OWN
from headrace.sources.landing import Landing
from headrace_snapshots.format.manifest import IDS, REJECTED, UNNAMED, OutputTables
from headrace_snapshots.names import ObjectKind, data_prefix, kind_of
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.distribute.blobs import OverBlobs
from tests.process.clicks import CLICKS, land

EPOCHS = 3
DEDUPLICATING_PIPELINE = change_pipeline(CLICKS, deduplicate=Deduplicate("user", "1d"))


def epochs(pipeline: Pipeline, root: Path, names: OutputTables) -> list[ComputedEpoch]:
    """A file an epoch, by an engine whose output has these ``names``."""
    store = open_store(root.as_uri())
    work = TaskEnvironment.from_pipeline(pipeline, store, Landing(pipeline, store))
    work = replace(work, chains=tuple(replace(chain, names=names) for chain in work.chains))
    engine = OverBlobs(work, lambda epoch: Attempt("a", data_prefix(pipeline.name, epoch, f"{epoch:016x}")), 2)
    return [engine.compute({OWN: [file]}, Instant(0)) for file in engine.landing.new_files({})[OWN]]


@pytest.mark.parametrize("pipeline", [CLICKS, DEDUPLICATING_PIPELINE], ids=["all", "deduplicated"])
@pytest.mark.parametrize("names", [UNNAMED, OutputTables("hourly")], ids=["unnamed", "hourly"])
def test_tables_and_logs_of_a_chain_have_its_names(pipeline: Pipeline, names: OutputTables, tmp_path: Path) -> None:
    land(tmp_path, 0, EPOCHS)
    *_, last = epochs(pipeline, tmp_path, names)
    ids = {IDS} if pipeline.deduplicate is not None else set[str]()
    assert {*last.written.tables} == {names.state_table(0), *ids}
    assert {*last.written.logs} == {names.panes, names.late, REJECTED}
    layers = [layer for some in last.written.tables.values() for layer in some]
    files = [file for layer in layers for file in layer.files] + [
        f for some in last.written.logs.values() for f in some
    ]
    assert {kind_of(pipeline.name, file.path) for file in files} == {ObjectKind.DATA}


def test_a_chain_computes_the_same_whatever_its_output_is_called(tmp_path: Path) -> None:
    land(tmp_path, 0, EPOCHS)
    unnamed_epochs, hourly = (
        epochs(DEDUPLICATING_PIPELINE, tmp_path, names) for names in (UNNAMED, OutputTables("hourly"))
    )
    for one, other in zip(unnamed_epochs, hourly, strict=True):
        own = {name.removeprefix("hourly/"): n for name, n in other.counts.items() if name.startswith("hourly/")}
        assert own == one.counts
    assert sum(each.counts["duplicates"] for each in unnamed_epochs), "and its pipeline tells duplicates across epochs"
    assert [each.progress.chain for each in unnamed_epochs] == [each.progress.chain for each in hourly]
    assert [replace(each.progress, chains={}) for each in unnamed_epochs] == [
        replace(each.progress, chains={}) for each in hourly
    ]
    digests = [
        [[file.sha256 for file in each.written.logs[names.panes]] for each in some]
        for some, names in ((unnamed_epochs, UNNAMED), (hourly, OutputTables("hourly")))
    ]
    assert digests[0] == digests[1]
