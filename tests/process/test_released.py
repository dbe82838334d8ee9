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
from tests.process.executors import LOCAL, Executed, on_both

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


class Released:
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

    def copied(self, folder: Path, executor: Executed) -> "Released":
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """What tests begin with, made once."""
    return Released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def released(executor: Executed, made: Released, tmp_path: Path) -> Released:
    return made.copied(tmp_path, executor)


@on_both
def test_a_recovery_keeps_the_decision(released: Released) -> None:
    outcome = released.recover()
    assert released.readers_see_all
    assert [(f.success, f.released) for f in outcome.findings] == [(True, (released.entry,))] * len(EXPECTED)
    assert "ada: he is rich" in str(releases_that_hold(released.catalog)[0])


@on_both
def test_the_decision_is_about_its_rows_alone(
    released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUDIT_BYTES, "0")  # on Spark with Spark's frames
    land_bad(tmp_path, 3, "richer", 6000)
    with pytest.raises(AuditFailedError, match="1 of 1 values are unexpected"):
        released.recover()
    assert released.refs["published"] == released.good
    outcome = read_audit(released.catalog.store, "clicks", released.good, released.refs["main"])
    assert outcome is not None
    assert [[row["user"] for row in finding.failing] for finding in outcome.findings] == [["richer"], ["richer"], []]
    assert outcome.findings[2].observed == 6000


def test_other_values_of_the_same_key_and_window_are_not_released(released: Released, tmp_path: Path) -> None:
    land_bad(tmp_path, 3, "rich", 6000)
    with pytest.raises(AuditFailedError):
        released.run("more")
    with pytest.raises(AuditFailedError):
        released.recover()


@on_both
def test_a_release_whose_rows_are_lost_asks_again(released: Released, tmp_path: Path) -> None:
    manifest = released.catalog.manifest(released.refs["published"])
    *_, newest = released.catalog.file_records(manifest.logs["panes"])
    for file in newest.files:
        (tmp_path / file.path).unlink()
    with pytest.raises(AuditFailedError, match="1 of 1 values are unexpected"):
        released.recover()
    assert released.refs["published"] == released.good


def test_a_person_who_rolls_back_takes_the_release_back(released: Released) -> None:
    history = PipelineHandle(released.catalog)
    (reported_line,) = history.rollback(to=released.good, dry_run=True).told
    assert reported_line.startswith(f"the release by log entry {released.entry} (ada: he is rich) ends")
    history.rollback(to=released.good, message="ada: he is not")
    assert releases_that_hold(released.catalog) == []
    with pytest.raises(AuditFailedError):
        released.run("again")
    assert released.refs["published"] == released.good
    with pytest.raises(AuditFailedError):
        released.recover()


def test_rolling_back_to_after_the_release_leaves_it(released: Released, tmp_path: Path) -> None:
    kept_snapshot = released.refs["main"]
    land(tmp_path, 3, 4)
    released.run("after")
    history = PipelineHandle(released.catalog)
    assert history.rollback(to=kept_snapshot, dry_run=True).told == ()
    history.rollback(to=kept_snapshot)
    released.recover()
    assert released.readers_see_all


def test_a_backfill_keeps_the_decision(executor: Executed, released: Released) -> None:
    executor.backfill(released.pipeline, released.root, RunOptions("anew", branch="anew"))
    hr.open(released.root)["clicks"].promote("anew")
    assert released.readers_see_all


def test_another_definition_asks_again(executor: Executed, released: Released) -> None:
    more = {**PIPELINE.what, "least": PIPELINE.what["spent"]}
    changed_pipeline = replace(PIPELINE, what=more)
    result = executor.backfill(changed_pipeline, released.root, RunOptions("anew", branch="anew"))
    assert result.audit is not None
    assert not result.audit.success
