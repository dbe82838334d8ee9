"""A release covers rows: where the same ones are computed again, the decision still holds."""

import json
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace import expect
from headrace.audit.range import releases_that_hold
from headrace.audit.store import AuditFailedError, AuditOutcome, read_audit
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.executors.on_spark import AUDIT_BYTES
from headrace.runs.options import RunOptions
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.process.clicks import clicks, land, records
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both

EXPECTED = (
    expect("column_values_to_be_between", column="spent", min_value=0, max_value=1000),
    expect("column_values_to_be_between", column="spent", min_value=0, max_value=1000, view="panes"),
    expect("column_max_to_be_between", column="spent", max_value=1000),
)
PIPELINE = clicks(expectations=EXPECTED)


def land_bad(root: Path, file: int, user: str, price: int = 5000) -> None:
    """A file with one click that no expectation likes."""
    path = root / "landing" / "clicks" / f"part-{file:05d}.jsonl"
    path.write_text(json.dumps({**records(file)[0], "user": user, "price": price}) + "\n")


class ReleasedRoot:
    """Two good epochs that readers see, and one with a bad row that a person has released."""

    def __init__(self, folder: Path) -> None:
        self.executor, self.folder, self.root, self.pipeline = LOCAL, folder, folder.as_uri(), PIPELINE
        self.catalog = Catalog(open_store(self.root), PIPELINE.name)
        land(folder, 0, 2)
        self.run("good")
        self.good = self.refs["published"]
        land_bad(folder, 2, "rich")
        with pytest.raises(AuditFailedError):
            self.run("bad")
        self.entry = self.catalog.release(self.refs["main"], "ada: he is rich").number

    def copy_to(self, folder: Path, executor: ExecutorUnderTest) -> "ReleasedRoot":
        """The same under another root, where ``executor`` goes on."""
        # with the times of files, of which local files have their ETags
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        own = copy(self)
        own.executor, own.folder, own.root = executor, folder, folder.as_uri()
        own.catalog = Catalog(open_store(own.root), PIPELINE.name)
        return own

    @property
    def refs(self) -> dict[str, str]:
        return dict(self.catalog.head().refs)

    @property
    def readers_see_all(self) -> bool:
        return self.refs["published"] == self.refs["main"] != self.good

    def run(self, run_id: str) -> None:
        LOCAL.process(self.pipeline, self.root, RunOptions(run_id, publish=True))

    def recover(self, snapshot: str | None = None) -> AuditOutcome:
        options = RunOptions("recover", snapshot=snapshot or self.good, publish=True)
        result = self.executor.recover(self.pipeline, self.root, options)
        assert result.audit is not None
        outcome = read_audit(
            self.catalog.store, self.pipeline.name, result.audit.from_snapshot, result.audit.to_snapshot
        )
        assert outcome is not None
        return outcome


@pytest.fixture(scope="module")
def template_root(tmp_path_factory: pytest.TempPathFactory) -> ReleasedRoot:
    """What tests begin with, made once."""
    return ReleasedRoot(tmp_path_factory.mktemp("released"))


@pytest.fixture
def released_root(executor: ExecutorUnderTest, template_root: ReleasedRoot, tmp_path: Path) -> ReleasedRoot:
    return template_root.copy_to(tmp_path, executor)


@on_both
def test_a_recovery_keeps_the_decision(released_root: ReleasedRoot) -> None:
    outcome = released_root.recover()
    assert released_root.readers_see_all
    assert [(f.success, f.released) for f in outcome.findings] == [(True, (released_root.entry,))] * len(EXPECTED)
    assert "ada: he is rich" in str(releases_that_hold(released_root.catalog)[0])


@on_both
def test_the_decision_is_about_its_rows_alone(
    released_root: ReleasedRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUDIT_BYTES, "0")  # on Spark with Spark's frames
    land_bad(tmp_path, 3, "richer", 6000)
    with pytest.raises(AuditFailedError, match="1 of 1 values are unexpected"):
        released_root.recover()
    assert released_root.refs["published"] == released_root.good
    outcome = read_audit(released_root.catalog.store, "clicks", released_root.good, released_root.refs["main"])
    assert outcome is not None
    assert [[row["user"] for row in finding.failing] for finding in outcome.findings] == [["richer"], ["richer"], []]
    assert outcome.findings[2].observed == 6000


def test_other_values_of_the_same_key_and_window_are_not_released(released_root: ReleasedRoot, tmp_path: Path) -> None:
    land_bad(tmp_path, 3, "rich", 6000)
    with pytest.raises(AuditFailedError):
        released_root.run("more")
    with pytest.raises(AuditFailedError):
        released_root.recover()


@on_both
def test_a_release_whose_rows_are_lost_asks_again(released_root: ReleasedRoot, tmp_path: Path) -> None:
    manifest = released_root.catalog.manifest(released_root.refs["published"])
    *_, newest = released_root.catalog.file_records(manifest.logs["panes"])
    for file in newest.files:
        (tmp_path / file.path).unlink()
    with pytest.raises(AuditFailedError, match="1 of 1 values are unexpected"):
        released_root.recover()
    assert released_root.refs["published"] == released_root.good


def test_a_person_who_rolls_back_takes_the_release_back(released_root: ReleasedRoot) -> None:
    history = PipelineHandle(released_root.catalog)
    (reported_line,) = history.rollback(to=released_root.good, dry_run=True).told
    assert reported_line.startswith(f"the release by log entry {released_root.entry} (ada: he is rich) ends")
    history.rollback(to=released_root.good, message="ada: he is not")
    assert releases_that_hold(released_root.catalog) == []
    with pytest.raises(AuditFailedError):
        released_root.run("again")
    assert released_root.refs["published"] == released_root.good
    with pytest.raises(AuditFailedError):
        released_root.recover()


def test_rolling_back_to_after_the_release_leaves_it(released_root: ReleasedRoot, tmp_path: Path) -> None:
    kept_snapshot = released_root.refs["main"]
    land(tmp_path, 3, 4)
    released_root.run("after")
    history = PipelineHandle(released_root.catalog)
    assert history.rollback(to=kept_snapshot, dry_run=True).told == ()
    history.rollback(to=kept_snapshot)
    released_root.recover()
    assert released_root.readers_see_all


def test_a_backfill_keeps_the_decision(executor: ExecutorUnderTest, released_root: ReleasedRoot) -> None:
    executor.backfill(released_root.pipeline, released_root.root, RunOptions("anew", branch="anew"))
    hr.open(released_root.root)["clicks"].promote("anew")
    assert released_root.readers_see_all


def test_another_definition_asks_again(executor: ExecutorUnderTest, released_root: ReleasedRoot) -> None:
    more = {**PIPELINE.what, "least": PIPELINE.what["spent"]}
    changed_pipeline = replace(PIPELINE, what=more)
    result = executor.backfill(changed_pipeline, released_root.root, RunOptions("anew", branch="anew"))
    assert result.audit is not None
    assert not result.audit.success
