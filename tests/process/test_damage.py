"""A stored file that is not what was written: whoever reads it says so and names it, and the ways out."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import FixedWindows, Pipeline
from headrace.audit.store import read_audit
from headrace.distribute.local import LocalEngine
from headrace.read.snapshots.progress import progress_of
from headrace.runs.commits import attempts_of
from headrace.runs.maintenance import check
from headrace.runs.options import RunOptions
from headrace.runs.reporting.results import RunResult
from headrace.runs.restore import ChangedPipelineError
from headrace.sources.landing import Landing
from headrace.state.file_cache import default_cache
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import FANOUT
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import audit_folder
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, MODEST, clicks, land, truth
from tests.process.executors import ExecutorUnderTest
from tests.process.test_process import current

MODEST_CLICKS = clicks(expectations=MODEST)


def catalog_of(root: Path) -> Catalog:
    return Catalog(open_store(root.as_uri()), CLICKS.name)


def head_of(root: Path, branch: str = "main") -> Manifest:
    catalog = catalog_of(root)
    return catalog.manifest(catalog.head().refs[branch])


def newest_of(root: Path, table: str) -> Path:
    """The newest file of a layered table."""
    return root / head_of(root).tables[table][-1].files[-1].path


def flip_unnoticed(file: Path) -> None:
    """Flip one bit so that Parquet reads the file without a complaint, with another number in it."""
    data = bytearray(file.read_bytes())
    right = pq.read_table(io.BytesIO(data), columns=["clicks", "spent"])
    for place in range(len(data) * 8):
        data[place // 8] ^= 1 << place % 8
        try:
            damaged_table = pq.read_table(io.BytesIO(data), columns=["clicks", "spent"])
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            damaged_table = None
        if damaged_table is not None and damaged_table.schema.equals(right.schema) and not damaged_table.equals(right):
            file.write_bytes(data)
            return
        data[place // 8] ^= 1 << place % 8
    raise AssertionError(f"Parquet notices every flip in {file}")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))


def run(
    root: Path, name: str, executor: ExecutorUnderTest, pipeline: Pipeline = CLICKS, *, publish: bool = False
) -> RunResult:
    return executor.process(pipeline, root.as_uri(), RunOptions(name, publish=publish))


def advised_snapshot(error: BrokenObjectError) -> str:
    """The snapshot that the message advises to go back to."""
    advice = re.search(r"`headrace rollback clicks --to (\S+)`", str(error))
    assert advice, error
    return advice[1]


def test_a_fold_does_not_copy_what_was_damaged(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, FANOUT.value - 1)
    run(tmp_path, "whole", executor)
    damaged_path = tmp_path / head_of(tmp_path).tables["current"][FANOUT.value - 4].files[0].path
    flip_unnoticed(damaged_path)
    land(tmp_path, FANOUT.value - 1, FANOUT.value + 1)
    with pytest.raises(BrokenObjectError, match=damaged_path.name) as error:
        run(tmp_path, "folding", executor)
    assert head_of(tmp_path).epoch == FANOUT.value - 1, "the next one would have taken the fold over"
    assert "run `headrace backfill clicks` (or the backfill DAG)" in str(error.value)

    catalog_of(tmp_path).rollback("main", advised_snapshot(error.value), "as the message says")
    assert head_of(tmp_path).epoch == FANOUT.value - 5
    run(tmp_path, "after", executor)
    assert current(CLICKS, tmp_path) == truth(FANOUT.value + 1)

    folded_path = tmp_path / head_of(tmp_path).tables["current"][0].files[0].path
    assert folded_path.name.startswith("current-")
    flip(folded_path)
    with pytest.raises(BrokenObjectError, match=folded_path.name) as error:
        executor.audit(MODEST_CLICKS, tmp_path.as_uri(), RunOptions("audit"))
    assert catalog_of(tmp_path).manifest(advised_snapshot(error.value)).epoch == FANOUT.value - 2, (
        "it was begun beside the next one"
    )


@pytest.mark.parametrize("damage", [flip_unnoticed, flip, Path.unlink])
def test_an_audit_passes_nothing_that_was_damaged(
    executor: ExecutorUnderTest, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    land(tmp_path, 0, 1)
    published_snapshot = run(tmp_path, "published", executor, MODEST_CLICKS, publish=True).published
    land(tmp_path, 1, 2)
    run(tmp_path, "unaudited", executor)
    damaged_path = newest_of(tmp_path, "current")
    damage(damaged_path)
    with pytest.raises(BrokenObjectError, match=damaged_path.name) as error:
        run(tmp_path, "audited", executor, MODEST_CLICKS, publish=True)
    assert catalog_of(tmp_path).head().refs["published"] == published_snapshot == advised_snapshot(error.value)
    assert "readers with it" not in str(error.value)


def test_what_an_engine_goes_on_from_is_verified_as_it_is_loaded(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """However it became so after the restore had looked at it."""
    land(tmp_path, 0, 2)
    executor.process(CLICKS, tmp_path.as_uri(), RunOptions("first", max_epochs=1))
    head, damaged_path, store = head_of(tmp_path), newest_of(tmp_path, "state"), open_store(tmp_path.as_uri())
    engine = LocalEngine(CLICKS, store, Landing(CLICKS, store), attempts_of(catalog_of(tmp_path)))
    progress = progress_of(catalog_of(tmp_path), head)
    flip(damaged_path)
    engine.restore(head.epoch, progress, head.tables)  # from what was verified as it came into the cache
    for file in default_cache().folder.glob("*.arrow"):
        file.unlink()
    default_cache.cache_clear()
    engine = LocalEngine(CLICKS, store, Landing(CLICKS, store), attempts_of(catalog_of(tmp_path)))
    engine.restore(head.epoch, progress, head.tables)
    with pytest.raises(BrokenObjectError, match=damaged_path.name):
        engine.compute(engine.landing.new_files(progress.offsets), progress.processing_time)


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_repair_stores_a_file_of_state_again_from_the_local_cache(
    executor: ExecutorUnderTest, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    land(tmp_path, 0, 3)
    run(tmp_path, "first", executor)
    damaged_path = newest_of(tmp_path, "state")
    content_before = damaged_path.read_bytes()
    damage(damaged_path)
    report = check(catalog_of(tmp_path), deep=True, repair=True)
    path = str(damaged_path.relative_to(tmp_path))
    assert [(problem.path, problem.is_repaired) for problem in report.problems] == [(path, True)]
    assert damaged_path.read_bytes() == content_before
    damage(newest_of(tmp_path, "current"))
    assert check(catalog_of(tmp_path), deep=True, repair=True).damage, "of which the cache has nothing"


def test_a_damaged_audit_is_made_anew_and_a_changed_definition_gets_none(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 1)
    snapshot = str(run(tmp_path, "unpublished", executor, MODEST_CLICKS).snapshot)
    store = open_store(tmp_path.as_uri())
    stored_audit = read_audit(store, CLICKS.name, None, snapshot)
    result = tmp_path / audit_folder(CLICKS.name, None, snapshot) / "result.json"
    flip(result)
    changed_pipeline = clicks(FixedWindows("2h"), expectations=MODEST)
    with pytest.raises(ChangedPipelineError):
        executor.audit(changed_pipeline, tmp_path.as_uri(), RunOptions("changed"))
    second_result = run(tmp_path, "again", executor, MODEST_CLICKS, publish=True)
    assert second_result.published == snapshot
    (warning,) = second_result.warnings
    assert str(result.relative_to(tmp_path)) in warning
    audit = read_audit(store, CLICKS.name, None, snapshot)
    assert audit is not None
    assert stored_audit is not None
    assert audit.findings == stored_audit.findings
