"""When a recovery moves the branch back, and when it leaves it: on a catalog whose snapshots are empty. No Spark."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace import FixedWindows
from headrace.audit.store import AuditOutcome, write_audit
from headrace.pipeline.identity import fingerprint
from headrace.runs.options import RunOptions
from headrace.runs.restore import ChangedPipelineError, InputGoneError
from headrace.sources.progress import PipelineProgress
from headrace_lab.actions import recover
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FileLog
from headrace_snapshots.store import open_store
from tests.manifests import new_manifest
from tests.process.clicks import CLICKS, clicks
from tests.stored_progress import progress_fields


class Empty:
    """The catalog of CLICKS, whose epochs read nothing and are audited."""

    def __init__(self, root: str) -> None:
        self.catalog = Catalog(open_store(root), CLICKS.name)

    def commit(self) -> str:
        claim = self.catalog.claim("main", "test")
        parent = claim.snapshot_id
        manifest = new_manifest(
            snapshot_id=self.catalog.new_snapshot_id(),
            pipeline=CLICKS.name,
            fingerprint=fingerprint(CLICKS),
            branch="main",
            epoch=0 if parent is None else self.catalog.manifest(parent).epoch + 1,
            parent=parent,
            generation=claim.generation,
            created_at="2026-01-01T00:00:00Z",
            progress=progress_fields(PipelineProgress()),
            logs={"inputs": FileLog.empty()},
        )
        self.catalog.commit(claim, manifest)
        outcome = AuditOutcome(CLICKS.name, None, manifest.snapshot_id, True, (), "2026-01-01T00:00:00Z")
        write_audit(self.catalog.store, outcome)
        return manifest.snapshot_id

    @property
    def main(self) -> str:
        return self.catalog.head().refs["main"]


def test_another_attempt_keeps_what_the_first_has_replayed(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    empty = Empty(root)
    target, _ = empty.commit(), empty.commit()
    recover(CLICKS, root, RunOptions("first", executor="local", snapshot=target, request="r"))
    assert empty.main == target
    replayed_snapshot = empty.commit()
    recover(CLICKS, root, RunOptions("second", executor="local", snapshot=target, request="r"))
    assert empty.main == replayed_snapshot
    recover(CLICKS, root, RunOptions("another", executor="local", snapshot=target, request="s"))
    assert empty.main == target


def test_nothing_moves_for_a_pipeline_that_could_not_go_on(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    empty = Empty(root)
    target, head = empty.commit(), empty.commit()
    empty.catalog.publish(head, None)
    with pytest.raises(ChangedPipelineError, match="backfill"):
        recover(
            clicks(FixedWindows(timedelta(hours=2))),
            root,
            RunOptions("changed", executor="local", snapshot=target),
        )
    assert empty.catalog.head().refs == {"main": head, "published": head}


def test_nothing_moves_where_input_that_would_be_read_again_is_gone(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    source = hr.json("landing", {"user": str, "at": datetime}).event_time("at", bound="0s")
    what, where = {"n": hr.count()}, hr.FixedWindows("1h")
    handle = hr.open(tmp_path.as_uri())[hr.Pipeline("visits", source, key="user", what=what, where=where)]
    snapshots = []
    for number in range(3):
        (landing / f"{number}.json").write_text('{"user": "ann", "at": "2026-05-01T00:00:00Z"}\n')
        snapshots.append(str(handle.run(executor="local").snapshot))
    (landing / "1.json").unlink()
    with pytest.raises(InputGoneError, match=r"1 of these files are gone: landing/1\.json.*headrace rollback visits"):
        handle.recover(snapshots[0], executor="local")
    assert str(handle.show("main").snapshot_id) == snapshots[2]
    handle.recover(snapshots[1], executor="local")  # which has it
    (row,) = handle.read("state", at="main").to_json()
    assert row["n"] == 3
