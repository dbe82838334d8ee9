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
from tests.stored_progress import written


class Audited:
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
                progress=written(progress),
                schema={"keys": [], "values": [], "late_keys": []},
                logs={"inputs": inputs},
                counts={"panes": epoch + 1, **({"late_dropped": 1} if epoch == 0 else {})},
            )
            self.catalog.commit(claim, manifest)
            head = manifest.snapshot_id
        assert head is not None
        return head

    def audit(self, after: str | None, until: str) -> None:
        write_audit(self.store, AuditOutcome("p", after, until, True, (), "2026-01-01T00:00:00Z"))


def _read(progress: PipelineProgress, files: Iterable[InputFile]) -> dict[str, InputProgress]:
    """The inputs of ``progress`` after ``files``."""
    counts = {OWN: SourcePosition()} | progress.offsets
    for file in files:
        before = counts.get(file.input, SourcePosition())
        counts[file.input] = replace(before, files=before.files + 1, bytes=before.bytes + file.size)
    return {name: InputProgress(offsets) for name, offsets in counts.items()}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def test_a_publish_counts_every_epoch_of_the_range(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(2)
    audited.audit(None, first)
    result = publish_audited("p", root, last_announced=None)
    assert (result.epochs, result.counts) == ((0, 1), {"panes": 1 + 2, "late_dropped": 1})
    second = audited.commit(3)
    with pytest.raises(AuditMissingError):
        publish_audited("p", root, last_announced=first)
    audited.audit(first, second)
    result = publish_audited("p", root, last_announced=first)
    assert (result.epochs, result.epoch, result.counts["panes"]) == ((2, 3, 4), 4, 3 + 4 + 5)


def test_who_comes_after_the_entry_hears_of_the_same_rows(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(1)
    audited.audit(None, first)
    publish_audited("p", root, last_announced=None)
    second = audited.commit(2)
    audited.audit(first, second)
    once = publish_audited("p", root, last_announced=first)
    audited.catalog.claim("main", "a run that found nothing")
    again = publish_audited("p", root, last_announced=first)
    assert again.epochs == once.epochs == (1, 2)
    assert again.counts == once.counts == {"panes": 2 + 3}
    assert publish_audited("p", root, last_announced=second).counts == {}
    audited.catalog.rollback("main", first, "back")
    assert publish_audited("p", root, last_announced=second).counts == {}


def test_what_a_person_released_is_counted_too(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(1)
    audited.audit(None, first)
    publish_audited("p", root, last_announced=None)
    released = audited.commit(2)
    audited.catalog.release(released, "the expectation was wrong")
    assert publish_audited("p", root, last_announced=first).counts == {"panes": 2 + 3}
    third = audited.commit(1)
    audited.audit(released, third)
    assert publish_audited("p", root, last_announced=first).counts == {"panes": 2 + 3 + 4}


def test_behind_a_rollback_what_is_new_counts_from_where_it_went_back_to(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(1)
    audited.catalog.release(first, "as it is")
    given_up = audited.commit(4)
    audited.catalog.release(given_up, "by mistake")
    audited.catalog.rollback("main", first, "back")
    second = audited.commit(2)
    audited.audit(first, second)
    result = publish_audited("p", root, last_announced=given_up)
    assert (result.epochs, result.counts) == ((1, 2), {"panes": 2 + 3})


def test_who_knows_a_snapshot_of_another_root_hears_of_everything(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(2)
    audited.audit(None, first)
    assert publish_audited("p", root, last_announced="20250101T000000-gone").counts["panes"] == 1 + 2


def test_a_cut_over_counts_the_whole_branch(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(2)
    audited.audit(None, first)
    publish_audited("p", root, last_announced=None)
    replayed = audited.commit(4, "replay")
    audited.audit(None, replayed)
    result = hr.open(root)["p"].promote("replay")
    assert (result.epochs, result.counts["panes"]) == ((0, 1, 2, 3), 1 + 2 + 3 + 4)
    assert publish_audited("p", root, last_announced=first).counts == result.counts


def test_a_replay_whose_clock_is_ahead_does_not_become_main(root: str) -> None:
    audited = Audited(root)
    ahead = to_instant(datetime.now(UTC) + timedelta(hours=1))
    audited.audit(None, audited.commit(1, "replay", ahead))
    with pytest.raises(ClockAheadError, match=re.escape(render(ahead))):
        hr.open(root)["p"].promote("replay")


def test_a_rehearsal_says_all_that_is_against_a_promotion(root: str) -> None:
    audited = Audited(root)
    audited.commit(1, files=landed("a"))
    audited.commit(1, "replay", to_instant(datetime.now(UTC) + timedelta(hours=1)))
    before = audited.catalog.head()
    refusals = rehearse_change(audited.catalog, CutOver("replay")).refusals
    assert [type(each) for each in refusals] == [AuditMissingError, ClockAheadError, BranchBehindError]
    assert audited.catalog.head() == before


def landed(*names: str, size: int = 10, of: str = OWN) -> list[InputFile]:
    return [InputFile(f"landing/{name}", size, "etag", of) for name in names]


def test_a_branch_that_lacks_a_file_of_main_does_not_become_main_however_many_others_it_has(root: str) -> None:
    audited = Audited(root)
    audited.commit(1, files=landed("b", "a straggler that a full sweep found"))
    audited.audit(None, audited.commit(1, "replay", files=landed("b", "c", "d")))
    with pytest.raises(BranchBehindError, match=r"1 files .* landing/a straggler"):
        hr.open(root)["p"].promote("replay")
    caught_up = audited.commit(1, "replay", files=landed("a straggler that a full sweep found"))
    audited.audit(None, caught_up)
    assert hr.open(root)["p"].promote("replay").published == caught_up


def test_a_corrected_file_may_be_smaller_than_the_one_that_main_read(root: str) -> None:
    audited = Audited(root)
    audited.commit(1, files=landed("a", size=100))
    corrected = audited.commit(1, "replay", files=landed("a", size=90))
    audited.audit(None, corrected)
    assert hr.open(root)["p"].promote("replay").published == corrected


def test_an_input_that_the_pipeline_does_not_have_any_more_holds_nothing_up(root: str) -> None:
    audited = Audited(root)
    audited.commit(1, files=[*landed("a"), *landed("b", of="dropped")])
    without = audited.commit(1, "replay", files=landed("a"))
    audited.audit(None, without)
    assert hr.open(root)["p"].promote("replay").published == without


def test_an_input_that_moved_is_compared_by_number(root: str) -> None:
    audited = Audited(root)
    audited.commit(1, files=landed("a", "b"))
    audited.audit(None, audited.commit(1, "replay", files=landed("elsewhere/a")))
    with pytest.raises(BranchBehindError):
        hr.open(root)["p"].promote("replay")
    moved = audited.commit(1, "replay", files=landed("elsewhere/b"))
    audited.audit(None, moved)
    assert hr.open(root)["p"].promote("replay").published == moved


@pytest.mark.parametrize("kind", ["manifests", "index"])
def test_a_broken_head_of_main_does_not_stop_the_cut_over_that_replaces_it(root: str, kind: str) -> None:
    audited = Audited(root)
    whole = audited.commit(1, files=landed("a"))
    audited.commit(1, files=landed(*"a" * RADIX.value))
    for broken in [*audited.store.list(f"p/{kind}/")]:
        if whole not in broken.path:
            audited.store.delete(broken.path)
    replayed = audited.commit(1, "replay", files=landed("a"))
    audited.audit(None, replayed)
    assert hr.open(root)["p"].promote("replay").published == replayed


def test_a_cut_over_that_was_done_is_told_again(root: str) -> None:
    audited = Audited(root)
    audited.commit(1)
    audited.audit(None, audited.commit(3, "replay"))
    told = hr.open(root)["p"].promote("replay")
    audited.commit(1)
    again = hr.open(root)["p"].promote("replay")
    assert replace(again, run_id=told.run_id, started_at=told.started_at, finished_at=told.finished_at) == told
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("another")
    audited.catalog.fork("replay", None)
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")
    audited.catalog.drop("replay")
    audited.catalog.rollback("main", None, "back")
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")


def test_a_dropped_branch_is_not_told_as_the_one_of_its_name_that_was_promoted(root: str) -> None:
    audited = Audited(root)
    audited.commit(1)
    audited.audit(None, audited.commit(3, "replay"))
    hr.open(root)["p"].promote("replay")
    audited.commit(1, "replay")  # another branch
    audited.catalog.drop("replay")
    with pytest.raises(UnknownBranchError):
        hr.open(root)["p"].promote("replay")


def test_a_name_that_is_used_again_does_not_bring_back_what_was_rolled_back(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(1)
    audited.catalog.fork("fix", first)
    second = audited.commit(2, "fix")
    audited.audit(None, second)
    hr.open(root)["p"].promote("fix")
    audited.catalog.rollback("main", first, "a mistake")
    audited.catalog.fork("fix", second)
    audited.audit(first, second)
    before = audited.catalog.head()
    for _ in range(2):
        with pytest.raises(ForkGivenUpError, match=f"continues from snapshot {second} .* main was rolled back"):
            hr.open(root)["p"].promote("fix")
        assert [type(each) for each in rehearse_change(audited.catalog, CutOver("fix")).refusals] == [ForkGivenUpError]
        audited.catalog.drop("fix")
        audited.catalog.fork("fix", second)
    audited.catalog.rollback("main", None, "all of it")
    audited.audit(None, second)
    with pytest.raises(ForkGivenUpError):
        hr.open(root)["p"].promote("fix")
    assert audited.catalog.head().refs["fix"] == before.refs["fix"]


def test_a_branch_of_a_branch_becomes_main_unless_main_has_left_what_its_parent_began_with(root: str) -> None:
    audited = Audited(root)
    first, second = audited.commit(1), audited.commit(1)
    audited.audit(None, second)
    publish_audited("p", root, last_announced=None)
    audited.catalog.fork("parent", second)
    audited.catalog.fork("child", audited.commit(2, "parent"))
    last = audited.commit(1, "child")
    audited.audit(second, last)
    assert rehearse_change(audited.catalog, CutOver("child")).refusals == ()
    audited.catalog.release(first, "looked at")
    audited.catalog.rollback("main", first, "back")
    audited.audit(first, last)
    with pytest.raises(ForkGivenUpError, match=f"continues from snapshot {second} "):
        hr.open(root)["p"].promote("child")
    audited.catalog.fork("again", first)
    audited.catalog.fork("child-again", audited.commit(2, "again"))
    last = audited.commit(1, "child-again")
    audited.audit(first, last)
    assert hr.open(root)["p"].promote("child-again").published == last
    assert hr.open(root)["p"].promote("child-again").published == last
    # Main has what "again" has, and gives it up.
    audited.catalog.rollback("main", first, "back")
    audited.audit(first, audited.catalog.head().refs["again"])
    with pytest.raises(ForkGivenUpError, match="main was rolled back"):
        hr.open(root)["p"].promote("again")


def test_what_another_promotion_has_replaced_is_named(root: str) -> None:
    audited = Audited(root)
    first, second = audited.commit(1), audited.commit(1)
    audited.catalog.fork("late", second)
    audited.audit(None, audited.commit(1, "late"))
    audited.catalog.fork("early", first)
    last = audited.commit(1, "early")
    audited.audit(None, last)
    hr.open(root)["p"].promote("early")
    audited.audit(first, audited.catalog.head().refs["late"])
    entry = audited.catalog.head().entry
    with pytest.raises(ForkGivenUpError, match=rf"{second} .* another branch was promoted \(entry {entry} of the log"):
        hr.open(root)["p"].promote("late")


def test_the_branch_that_was_looked_at_is_promoted_and_no_other_of_its_name() -> None:
    audited = Audited("memory://names")
    first = audited.commit(1)
    audited.catalog.fork("fix", first)
    audited.audit(None, audited.commit(1, "fix"))

    def meanwhile() -> None:
        audited.catalog.drop("fix")
        audited.catalog.fork("fix", first)
        audited.commit(1, "fix")

    slow = FaultyStore(audited.store, hold_first("create", "/log/", meanwhile))
    with pytest.raises(PublishConflictError, match="branch fix is at"):
        make_change(Catalog(slow, "p"), CutOver("fix"), run_id="person")
    assert audited.catalog.head().refs["main"] == first
