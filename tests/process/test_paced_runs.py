"""Merges go on over runs of one epoch each, and nobody sees of them but in how many layers things lie."""

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import Pipeline, col, count
from headrace.distribute.tasks.background import most_layers
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.files import FANOUT, UnfinishedMerge
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.fsck import fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, land, truth
from tests.process.executors import LOCAL, ExecutorUnderTest, SparkStandIn, on_both
from tests.process.test_process import current
from tests.reading import read

pytestmark = pytest.mark.slow  # runs of many epochs

NAME = CLICKS.name


def _small_steps() -> AbstractContextManager[None]:
    """Inside, a merge takes several epochs although it is small."""
    return set_sizes(fanout=4, merge_step_rows=25, merge_pace=0, fold_bytes=3_000)


@pytest.fixture(autouse=True)
def _in_small_steps() -> Iterator[None]:
    with _small_steps():
        yield


def runs(root: Path, first: int, last: int, executor: ExecutorUnderTest = LOCAL) -> Iterator[Manifest]:
    """The manifests of runs of one epoch each."""
    for number in range(first, last):
        land(root, number, number + 1)
        options = RunOptions(f"run-{number}", executor=executor.executor)
        result = executor.process(CLICKS, root.as_uri(), options)
        assert current(CLICKS, root) == truth(number + 1)
        yield catalog(root).manifest(str(result.snapshot))


def catalog(root: Path) -> Catalog:
    return Catalog(open_store(root.as_uri()), NAME)


def unfinished_merges(manifest: Manifest, table: str) -> list[UnfinishedMerge]:
    """Those of which something is done."""
    return [merge for merge in manifest.merges.get(table, ()) if merge.files]


def done_files(manifest: Manifest) -> list[Path]:
    return [
        Path(file.path)
        for merges in manifest.merges.values()
        for merge in merges
        for part in merge.files
        for file in part
    ]


def epochs_of(manifest: Manifest, table: str) -> list[set[int]]:
    """The epochs in whose folders the files of each layer lie."""
    return [{int(file.path.split("/")[2][:8]) for file in layer.files} for layer in manifest.tables[table]]


@on_both
def test_what_one_run_has_done_of_a_merge_the_next_ones_finish(tmp_path: Path, executor: ExecutorUnderTest) -> None:
    on_spark = executor.executor == "spark"  # 40 runs take long there; what is merged first is enough
    manifests = [*runs(tmp_path, 0, 22 if on_spark else 40, executor)]
    for table in ("state", "current"):
        assert any(unfinished_merges(manifest, table) for manifest in manifests), (
            f"a merge of {table} took several runs"
        )
        pieced_layers = [layer for manifest in manifests for layer in epochs_of(manifest, table) if len(layer) > 1]
        assert pieced_layers, f"a layer of {table} has files of several runs"
        assert max(len(manifest.tables[table]) for manifest in manifests) <= most_layers() + FANOUT.value
        oldest_layer = manifests[-1].tables[table][0]
        assert on_spark or oldest_layer.last_epoch > 2 * FANOUT.value, "what was merged over several runs is, again"
    check_catalog(open_store(tmp_path.as_uri()), NAME)


def run_until_unfinished(root: Path) -> tuple[int, Manifest]:
    """Runs until both tables have something that is half done; how many there were."""
    number = 0
    while number < 40:
        (manifest,) = runs(root, number, number + 1)
        number += 1
        if unfinished_merges(manifest, "state") and unfinished_merges(manifest, "current"):
            return number, manifest
    raise AssertionError("no merge takes several runs")


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Manifest]:
    """A root of such runs, which tests begin with copies of."""
    root = tmp_path_factory.mktemp("half-done")
    with _small_steps():
        return root, *run_until_unfinished(root)


@pytest.fixture
def with_unfinished(half_done: tuple[Path, int, Manifest], tmp_path: Path) -> tuple[int, Manifest]:
    """How many runs there were in ``tmp_path``, and the manifest of the last one."""
    root, number, manifest = half_done
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)  # with the times of files: local files have ETags of them
    return number, manifest


@SparkStandIn.stand_in()
def test_merges_go_on_where_a_run_turns_to_spark(
    with_unfinished: tuple[int, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, _ = with_unfinished
    fits = iter([True, True, False])  # the plan asks, and then two epochs
    monkeypatch.setattr(
        "headrace.runs.executors.choice.fitting_executor",
        lambda *_: ExecutorDecision("local" if next(fits) else "spark", "as the test says"),
    )
    land(tmp_path, number, number + 6)
    result = process(CLICKS, tmp_path.as_uri(), RunOptions("turning", executor="auto"))
    line = [*catalog(tmp_path).ancestry(str(result.snapshot))][5::-1]
    assert [manifest.progress["executor"] for manifest in line] == ["local", *["tasks"] * 5]
    assert current(CLICKS, tmp_path) == truth(number + 6)
    manifest_before, manifest_after = line[:2]
    paths = {Path(file.path) for merge in manifest_before.merges["state"] for part in merge.files for file in part}
    stored_paths = {
        Path(file.path) for layers in manifest_after.tables.values() for layer in layers for file in layer.files
    }
    assert paths, "a merge is half done when the run turns"
    assert paths <= {*done_files(manifest_after)} | stored_paths
    check_catalog(open_store(tmp_path.as_uri()), NAME)


def test_a_file_that_is_gone_makes_its_merge_begin_again(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    number, manifest = with_unfinished
    gone_paths = done_files(manifest)
    for path in gone_paths:
        (tmp_path / path).unlink()
    manifests_after = [*runs(tmp_path, number, number + 14)]
    assert not {*done_files(manifests_after[0])} & {*gone_paths}
    stored_paths = {
        Path(f.path) for layers in manifests_after[-1].tables.values() for layer in layers for f in layer.files
    }
    assert not stored_paths & {*gone_paths}
    assert any(len(layer) > 1 for layer in epochs_of(manifests_after[-1], "state")), "they were done all the same"


def test_a_damaged_file_makes_its_merge_begin_again(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    number, manifest = with_unfinished
    damaged_paths = {Path(file.path) for merge in manifest.merges["state"] for part in merge.files for file in part}
    for path in damaged_paths:
        data = bytearray((tmp_path / path).read_bytes())
        data[len(data) // 3] ^= 255
        (tmp_path / path).write_bytes(data)
    for manifest_after in runs(tmp_path, number, number + 6):
        assert manifest_after.epoch == number, "none falls back"
        named_paths = {
            Path(f.path) for layers in manifest_after.tables.values() for layer in layers for f in layer.files
        }
        assert not damaged_paths & {*named_paths, *done_files(manifest_after)}
        number += 1


def test_a_file_that_is_gone_is_no_reason_to_roll_back(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    _, manifest = with_unfinished
    for path in done_files(manifest):
        (tmp_path / path).unlink()
    remedies = [problem.remedy for problem in fsck(catalog(tmp_path)).problems]
    assert remedies
    assert all("begins again" in remedy for remedy in remedies)


def test_an_expiry_keeps_what_is_done_of_merges(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    number, manifest = with_unfinished
    for _ in range(2):  # marks, then deletes
        expire(catalog(tmp_path), Keep(1), datetime(2126, 1, 1, tzinfo=UTC))
    assert all((tmp_path / path).is_file() for path in done_files(manifest))
    assert fsck(catalog(tmp_path), deep=True).problems == ()
    (manifest_after,) = runs(tmp_path, number, number + 1)
    for table in ("state", "current"):
        merges_before = {merge.first_epoch: merge for merge in unfinished_merges(manifest, table)}
        going_on = [merge for merge in unfinished_merges(manifest_after, table) if merge.first_epoch in merges_before]
        assert all(len(merge.files) > len(merges_before[merge.first_epoch].files) for merge in going_on)


def test_a_version_that_knows_of_no_merges_loses_only_what_was_done(
    with_unfinished: tuple[int, Manifest], tmp_path: Path
) -> None:
    number, manifest = with_unfinished
    fields = manifest.to_json()
    del fields["merges"]
    assert Manifest.from_json(json.loads(json.dumps(fields))).tables == manifest.tables
    (tmp_path / f"{NAME}/manifests/{manifest.snapshot_id}.json").write_bytes(
        Manifest.from_json(fields).to_bytes(),
    )
    assert [*runs(tmp_path, number, number + 6)][-1].epoch == number + 5


def test_a_changed_definition_begins_its_merges_again(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    number, manifest = with_unfinished
    land(tmp_path, number, number + 1)
    visits = Pipeline(
        NAME,
        CLICKS.inputs[0],
        key={"user": col("user")},
        where=CLICKS.stages[0].aggregation.where,
        when=CLICKS.stages[0].aggregation.when,
        how=CLICKS.stages[0].aggregation.how,
        what={"visits": count(), "spent": col("price").sum()},
        renamed={"clicks": "visits"},
    )
    result = LOCAL.process(visits, tmp_path.as_uri(), RunOptions("renamed"))
    rows = read(visits, tmp_path.as_uri(), "current", "main").to_pylist()
    assert {(row["user"], row["window_start"]): (row["visits"], row["spent"]) for row in rows} == truth(number + 1)
    manifest_after = catalog(tmp_path).manifest(str(result.snapshot))
    assert not {*done_files(manifest_after)} & {*done_files(manifest)}


def test_a_branch_goes_on_with_what_main_has_done(with_unfinished: tuple[int, Manifest], tmp_path: Path) -> None:
    number, manifest = with_unfinished
    catalog(tmp_path).fork("fix", manifest.snapshot_id)
    land(tmp_path, number, number + 4)
    LOCAL.process(CLICKS, tmp_path.as_uri(), RunOptions("fix", branch="fix", publish=False))
    assert current(CLICKS, tmp_path, "fix") == truth(number + 4)
    LOCAL.process(CLICKS, tmp_path.as_uri(), RunOptions("main"))
    assert current(CLICKS, tmp_path) == truth(number + 4)
    assert fsck(catalog(tmp_path), deep=True).problems == ()
