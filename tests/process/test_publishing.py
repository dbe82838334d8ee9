"""What a publish and a cut-over say became visible: everything of the range, not its newest epoch alone. No Spark."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.audit.store import AuditOutcome, write_audit
from headrace.ext.sources import SourcePosition
from headrace.model.time import MIN_INSTANT, Instant, render, to_instant
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.progress import progress_of
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.client.recording import make_change, rehearse_change
from headrace.runs.plan import CutOver
from headrace.runs.publishing.promotion import BranchBehindError, ClockAheadError, ForkGivenUpError
from headrace.runs.publishing.publish import AuditMissingError, publish_audited
from headrace.sources.progress import InputProgress, PipelineProgress
from headrace_lab.fault_plans import hold_first
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import PublishConflictError
from headrace_snapshots.format.files import RADIX, FileLog, FileRecord, InputFile
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore
from tests.manifests import new_manifest
from tests.stored_progress import progress_fields


class AuditedDeployment:
    """A pipeline whose epoch n wrote n+1 panes, and audits of it as they are asked for."""

    def __init__(self, root: str) -> None:
        self.store = open_store(root)
        self.catalog = Catalog(self.store, "p")

    def commit(
        self, epochs: int, branch: str = "main", clock: Instant = MIN_INSTANT, files: Iterable[InputFile] = ()
    ) -> str:
        """Commit ``epochs`` epochs, the first of which reads ``files``; the id of the last."""
        claim = self.catalog.claim(branch, "test")
        head = claim.snapshot_id
        inputs = FileLog.empty() if head is None else self.catalog.manifest(head).logs["inputs"]
        progress = PipelineProgress() if head is None else progress_of(self.catalog, self.catalog.manifest(head))
        progress = PipelineProgress(_read(progress, files), processing_time=clock)
        for _ in range(epochs):
            epoch = 0 if head is None else self.catalog.manifest(head).epoch + 1
            if files:
                inputs, files = self.catalog.append_record(inputs, FileRecord(epoch, tuple(files))), ()
            manifest = new_manifest(
                snapshot_id=self.catalog.new_snapshot_id(),
                pipeline="p",
                fingerprint="f",
                branch=branch,
                epoch=epoch,
                parent=head,
                generation=claim.generation,
                created_at="2026-01-01T00:00:00Z",
                progress=progress_fields(progress),
                schema={"keys": [], "values": [], "late_keys": []},
                logs={"inputs": inputs},
                counts={"panes": epoch + 1, **({"late_dropped": 1} if epoch == 0 else {})},
            )
            self.catalog.commit(claim, manifest)
            head = manifest.snapshot_id
        assert head is not None
        return head

    def audit(self, start: str | None, end: str) -> None:
        write_audit(self.store, AuditOutcome("p", start, end, True, (), "2026-01-01T00:00:00Z"))


def _read(progress: PipelineProgress, files: Iterable[InputFile]) -> dict[str, InputProgress]:
    """The inputs of ``progress`` after ``files``."""
    counts = {OWN: SourcePosition()} | progress.offsets
    for file in files:
        position_before = counts.get(file.input, SourcePosition())
        counts[file.input] = replace(
            position_before, files=position_before.files + 1, bytes=position_before.bytes + file.size
        )
    return {name: InputProgress(offsets) for name, offsets in counts.items()}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def test_a_publish_counts_every_epoch_of_the_range(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(2)
    audited_deployment.audit(None, first)
    result = publish_audited("p", root, last_announced=None)
    assert (result.epochs, result.counts) == ((0, 1), {"panes": 1 + 2, "late_dropped": 1})
    second = audited_deployment.commit(3)
    with pytest.raises(AuditMissingError):
        publish_audited("p", root, last_announced=first)
    audited_deployment.audit(first, second)
    result = publish_audited("p", root, last_announced=first)
    assert (result.epochs, result.epoch, result.counts["panes"]) == ((2, 3, 4), 4, 3 + 4 + 5)


def test_who_comes_after_the_entry_hears_of_the_same_rows(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(1)
    audited_deployment.audit(None, first)
    publish_audited("p", root, last_announced=None)
    second = audited_deployment.commit(2)
    audited_deployment.audit(first, second)
    first_result = publish_audited("p", root, last_announced=first)
    audited_deployment.catalog.claim("main", "a run that found nothing")
    second_result = publish_audited("p", root, last_announced=first)
    assert second_result.epochs == first_result.epochs == (1, 2)
    assert second_result.counts == first_result.counts == {"panes": 2 + 3}
    assert publish_audited("p", root, last_announced=second).counts == {}
    audited_deployment.catalog.rollback("main", first, "back")
    assert publish_audited("p", root, last_announced=second).counts == {}


def test_what_a_person_released_is_counted_too(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(1)
    audited_deployment.audit(None, first)
    publish_audited("p", root, last_announced=None)
    released_snapshot = audited_deployment.commit(2)
    audited_deployment.catalog.release(released_snapshot, "the expectation was wrong")
    assert publish_audited("p", root, last_announced=first).counts == {"panes": 2 + 3}
    third = audited_deployment.commit(1)
    audited_deployment.audit(released_snapshot, third)
    assert publish_audited("p", root, last_announced=first).counts == {"panes": 2 + 3 + 4}


def test_behind_a_rollback_what_is_new_counts_from_where_it_went_back_to(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(1)
    audited_deployment.catalog.release(first, "as it is")
    given_up = audited_deployment.commit(4)
    audited_deployment.catalog.release(given_up, "by mistake")
    audited_deployment.catalog.rollback("main", first, "back")
    second = audited_deployment.commit(2)
    audited_deployment.audit(first, second)
    result = publish_audited("p", root, last_announced=given_up)
    assert (result.epochs, result.counts) == ((1, 2), {"panes": 2 + 3})


def test_who_knows_a_snapshot_of_another_root_hears_of_everything(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(2)
    audited_deployment.audit(None, first)
    assert publish_audited("p", root, last_announced="20250101T000000-gone").counts["panes"] == 1 + 2


def test_a_cut_over_counts_the_whole_branch(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(2)
    audited_deployment.audit(None, first)
    publish_audited("p", root, last_announced=None)
    replayed_snapshot = audited_deployment.commit(4, "replay")
    audited_deployment.audit(None, replayed_snapshot)
    result = hr.open(root)["p"].promote("replay")
    assert (result.epochs, result.counts["panes"]) == ((0, 1, 2, 3), 1 + 2 + 3 + 4)
    assert publish_audited("p", root, last_announced=first).counts == result.counts


def test_a_replay_whose_clock_is_ahead_does_not_become_main(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    future_moment = to_instant(datetime.now(UTC) + timedelta(hours=1))
    audited_deployment.audit(None, audited_deployment.commit(1, "replay", future_moment))
    with pytest.raises(ClockAheadError, match=re.escape(render(future_moment))):
        hr.open(root)["p"].promote("replay")


def test_a_rehearsal_says_all_that_is_against_a_promotion(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1, files=input_files("a"))
    audited_deployment.commit(1, "replay", to_instant(datetime.now(UTC) + timedelta(hours=1)))
    head_before = audited_deployment.catalog.head()
    refusals = rehearse_change(audited_deployment.catalog, CutOver("replay")).refusals
    assert [type(each) for each in refusals] == [AuditMissingError, ClockAheadError, BranchBehindError]
    assert audited_deployment.catalog.head() == head_before


def input_files(*names: str, size: int = 10, input_name: str = OWN) -> list[InputFile]:
    return [InputFile(f"landing/{name}", size, "etag", input_name) for name in names]


def test_a_branch_that_lacks_a_file_of_main_does_not_become_main_however_many_others_it_has(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1, files=input_files("b", "a straggler that a full sweep found"))
    audited_deployment.audit(None, audited_deployment.commit(1, "replay", files=input_files("b", "c", "d")))
    with pytest.raises(BranchBehindError, match=r"1 files .* landing/a straggler"):
        hr.open(root)["p"].promote("replay")
    caught_up = audited_deployment.commit(1, "replay", files=input_files("a straggler that a full sweep found"))
    audited_deployment.audit(None, caught_up)
    assert hr.open(root)["p"].promote("replay").published == caught_up


def test_a_corrected_file_may_be_smaller_than_the_one_that_main_read(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1, files=input_files("a", size=100))
    corrected_snapshot = audited_deployment.commit(1, "replay", files=input_files("a", size=90))
    audited_deployment.audit(None, corrected_snapshot)
    assert hr.open(root)["p"].promote("replay").published == corrected_snapshot


def test_an_input_that_the_pipeline_does_not_have_any_more_holds_nothing_up(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1, files=[*input_files("a"), *input_files("b", input_name="dropped")])
    snapshot_without = audited_deployment.commit(1, "replay", files=input_files("a"))
    audited_deployment.audit(None, snapshot_without)
    assert hr.open(root)["p"].promote("replay").published == snapshot_without


def test_an_input_that_moved_is_compared_by_number(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1, files=input_files("a", "b"))
    audited_deployment.audit(None, audited_deployment.commit(1, "replay", files=input_files("elsewhere/a")))
    with pytest.raises(BranchBehindError):
        hr.open(root)["p"].promote("replay")
    moved_snapshot = audited_deployment.commit(1, "replay", files=input_files("elsewhere/b"))
    audited_deployment.audit(None, moved_snapshot)
    assert hr.open(root)["p"].promote("replay").published == moved_snapshot


@pytest.mark.parametrize("kind", ["manifests", "index"])
def test_a_broken_head_of_main_does_not_stop_the_cut_over_that_replaces_it(root: str, kind: str) -> None:
    audited_deployment = AuditedDeployment(root)
    whole = audited_deployment.commit(1, files=input_files("a"))
    audited_deployment.commit(1, files=input_files(*"a" * RADIX.value))
    for info in [*audited_deployment.store.list(f"p/{kind}/")]:
        if whole not in info.path:
            audited_deployment.store.delete(info.path)
    replayed_snapshot = audited_deployment.commit(1, "replay", files=input_files("a"))
    audited_deployment.audit(None, replayed_snapshot)
    assert hr.open(root)["p"].promote("replay").published == replayed_snapshot


def test_a_cut_over_that_was_done_is_told_again(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1)
    audited_deployment.audit(None, audited_deployment.commit(3, "replay"))
    result = hr.open(root)["p"].promote("replay")
    audited_deployment.commit(1)
    second_result = hr.open(root)["p"].promote("replay")
    assert (
        replace(second_result, run_id=result.run_id, started_at=result.started_at, finished_at=result.finished_at)
        == result
    )
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("another")
    audited_deployment.catalog.fork("replay", None)
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")
    audited_deployment.catalog.drop("replay")
    audited_deployment.catalog.rollback("main", None, "back")
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")


def test_a_dropped_branch_is_not_told_as_the_one_of_its_name_that_was_promoted(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    audited_deployment.commit(1)
    audited_deployment.audit(None, audited_deployment.commit(3, "replay"))
    hr.open(root)["p"].promote("replay")
    audited_deployment.commit(1, "replay")  # another branch
    audited_deployment.catalog.drop("replay")
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")


def test_a_name_that_is_used_again_does_not_bring_back_what_was_rolled_back(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first = audited_deployment.commit(1)
    audited_deployment.catalog.fork("fix", first)
    second = audited_deployment.commit(2, "fix")
    audited_deployment.audit(None, second)
    hr.open(root)["p"].promote("fix")
    audited_deployment.catalog.rollback("main", first, "a mistake")
    audited_deployment.catalog.fork("fix", second)
    audited_deployment.audit(first, second)
    head_before = audited_deployment.catalog.head()
    for _ in range(2):
        with pytest.raises(ForkGivenUpError, match=f"continues from snapshot {second} .* main was rolled back"):
            hr.open(root)["p"].promote("fix")
        assert [type(each) for each in rehearse_change(audited_deployment.catalog, CutOver("fix")).refusals] == [
            ForkGivenUpError
        ]
        audited_deployment.catalog.drop("fix")
        audited_deployment.catalog.fork("fix", second)
    audited_deployment.catalog.rollback("main", None, "all of it")
    audited_deployment.audit(None, second)
    with pytest.raises(ForkGivenUpError):
        hr.open(root)["p"].promote("fix")
    assert audited_deployment.catalog.head().refs["fix"] == head_before.refs["fix"]


def test_a_branch_of_a_branch_becomes_main_unless_main_has_left_what_its_parent_began_with(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first, second = audited_deployment.commit(1), audited_deployment.commit(1)
    audited_deployment.audit(None, second)
    publish_audited("p", root, last_announced=None)
    audited_deployment.catalog.fork("parent", second)
    audited_deployment.catalog.fork("child", audited_deployment.commit(2, "parent"))
    last = audited_deployment.commit(1, "child")
    audited_deployment.audit(second, last)
    assert rehearse_change(audited_deployment.catalog, CutOver("child")).refusals == ()
    audited_deployment.catalog.release(first, "looked at")
    audited_deployment.catalog.rollback("main", first, "back")
    audited_deployment.audit(first, last)
    with pytest.raises(ForkGivenUpError, match=f"continues from snapshot {second} "):
        hr.open(root)["p"].promote("child")
    audited_deployment.catalog.fork("again", first)
    audited_deployment.catalog.fork("child-again", audited_deployment.commit(2, "again"))
    last = audited_deployment.commit(1, "child-again")
    audited_deployment.audit(first, last)
    assert hr.open(root)["p"].promote("child-again").published == last
    assert hr.open(root)["p"].promote("child-again").published == last
    # Main has what "again" has, and gives it up.
    audited_deployment.catalog.rollback("main", first, "back")
    audited_deployment.audit(first, audited_deployment.catalog.head().refs["again"])
    with pytest.raises(ForkGivenUpError, match="main was rolled back"):
        hr.open(root)["p"].promote("again")


def test_what_another_promotion_has_replaced_is_named(root: str) -> None:
    audited_deployment = AuditedDeployment(root)
    first, second = audited_deployment.commit(1), audited_deployment.commit(1)
    audited_deployment.catalog.fork("late", second)
    audited_deployment.audit(None, audited_deployment.commit(1, "late"))
    audited_deployment.catalog.fork("early", first)
    last = audited_deployment.commit(1, "early")
    audited_deployment.audit(None, last)
    hr.open(root)["p"].promote("early")
    audited_deployment.audit(first, audited_deployment.catalog.head().refs["late"])
    entry = audited_deployment.catalog.head().entry
    with pytest.raises(ForkGivenUpError, match=rf"{second} .* another branch was promoted \(entry {entry} of the log"):
        hr.open(root)["p"].promote("late")


def test_the_branch_that_was_looked_at_is_promoted_and_no_other_of_its_name() -> None:
    audited_deployment = AuditedDeployment("memory://names")
    first = audited_deployment.commit(1)
    audited_deployment.catalog.fork("fix", first)
    audited_deployment.audit(None, audited_deployment.commit(1, "fix"))

    def commit_meanwhile() -> None:
        audited_deployment.catalog.drop("fix")
        audited_deployment.catalog.fork("fix", first)
        audited_deployment.commit(1, "fix")

    slow = FaultyStore(audited_deployment.store, hold_first("create", "/log/", commit_meanwhile))
    with pytest.raises(PublishConflictError, match="branch fix is at"):
        make_change(Catalog(slow, "p"), CutOver("fix"), run_id="person")
    assert audited_deployment.catalog.head().refs["main"] == first
