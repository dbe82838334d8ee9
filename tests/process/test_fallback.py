"""A run on a snapshot that is broken: it says so, continues from the newest whole one, and its answer is the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.pipeline.sources import NameOrder
from headrace.runs.client.recording import run_recorded
from headrace.runs.options import RunOptions
from headrace.runs.reporting.listener import Silent
from headrace.runs.reporting.results import read_run_result as read_result
from headrace.runs.restore import BelowPublishedError
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, land, truth
from tests.process.executors import ExecutorUnderTest
from tests.process.test_process import current, panes_twice


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))


def head_of(root: Path) -> Manifest:
    catalog = Catalog(open_store(root.as_uri()), CLICKS.name)
    return catalog.manifest(catalog.head().refs["main"])


def newest_state_file(root: Path) -> Path:
    return root / head_of(root).tables["state"][-1].files[0].path


@pytest.mark.parametrize("damage", [Path.unlink, flip])
def test_a_broken_state_file_costs_a_replay_and_nothing_else(
    executor: ExecutorUnderTest, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 2)
    published_snapshot = executor.process(CLICKS, root, RunOptions("published", publish=True)).published
    land(tmp_path, 2, 4)
    executor.process(CLICKS, root, RunOptions("unpublished"))
    broken_path = newest_state_file(tmp_path)
    damage(broken_path)
    land(tmp_path, 4, 5)

    class Readers(Silent):
        """What readers see whenever an epoch is committed."""

        seen: list[str | None] = []

        def committed(self, manifest: Manifest) -> None:
            self.seen.append(catalog.head().refs.get("published"))

    catalog = Catalog(open_store(root), CLICKS.name)
    readers = Readers()
    result = run_recorded(
        "process", CLICKS, root, RunOptions("after", publish=True, executor=executor.executor), readers
    )
    assert result.epochs == (3, 4)
    (warning,) = result.warnings
    assert broken_path.relative_to(tmp_path).as_posix() in warning
    assert "fell back to snapshot" in warning
    assert read_result(open_store(root), CLICKS.name, "after") == result
    assert readers.seen == [published_snapshot, published_snapshot]
    assert result.published == result.snapshot != published_snapshot
    assert current(CLICKS, tmp_path, "published") == truth()
    assert panes_twice(CLICKS, tmp_path) == []
    assert any(broken_path.name in entry.message for entry in catalog.list_entries() if entry.kind == "rollback")
    check_catalog(open_store(root), CLICKS.name)


def test_below_what_readers_see_a_person_decides(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 2)
    executor.process(CLICKS, root, RunOptions("first", publish=True))
    broken_path = newest_state_file(tmp_path)
    whole = head_of(tmp_path).parent
    broken_path.unlink()
    land(tmp_path, 2, 3)
    with pytest.raises(BelowPublishedError, match=broken_path.name) as error:
        executor.process(CLICKS, root, RunOptions("refused", publish=True))
    assert f"`headrace release clicks {whole} --message WHY` and `headrace rollback" in str(error.value)
    assert current(CLICKS, tmp_path, "published") == truth(2)
    recovery_options = RunOptions("recovery", snapshot=whole, publish=True)
    with pytest.raises(RefusedError, match=f"`headrace release clicks {whole}`"):
        executor.recover(CLICKS, root, recovery_options)
    assert current(CLICKS, tmp_path, "published") == truth(2), "nothing has moved"
    hr.open(root)["clicks"].release(str(whole), message="the first file was right")
    result = executor.recover(CLICKS, root, RunOptions("recovery", snapshot=whole, publish=True))
    assert result.epochs == (1, 2)
    assert current(CLICKS, tmp_path, "published") == truth(3)


def test_a_straggler_is_read_again(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """It sorts below the mark of the snapshot that is restored, where only a full sweep looks."""
    pipeline, root = (
        change_pipeline(CLICKS, source=replace(CLICKS.source, names=NameOrder.ORDERED, look_back=1)),
        tmp_path.as_uri(),
    )
    land(tmp_path, 1, 4)
    snapshot_before = executor.process(pipeline, root, RunOptions("first")).snapshot
    land(tmp_path, 0, 1)
    assert executor.process(pipeline, root, RunOptions("blind")).epochs == ()
    swept = executor.process(pipeline, root, RunOptions("swept", full_sweep=True))
    assert swept.epochs == (3,)
    assert 'names="ordered"' in swept.warnings[0]
    assert "part-00000" in swept.warnings[0]
    newest_state_file(tmp_path).unlink()
    land(tmp_path, 4, 5)
    assert executor.process(pipeline, root, RunOptions("after")).epochs == (3, 4)
    assert current(pipeline, tmp_path) == truth()
    recovered_result = executor.recover(pipeline, root, RunOptions("recovery", snapshot=snapshot_before))
    assert recovered_result.epochs == (3, 4)
    assert current(pipeline, tmp_path) == truth()
