"""Patches that are refused, or leave rows as they are: what stands against one, and that nothing moves."""

from pathlib import Path

import pytest

import headrace as hr
from headrace import col, expect
from headrace.errors import (
    AuditFailedError,
    AuditMissingError,
    BranchBehindError,
    ForkGivenUpError,
    HeadraceError,
    OpenWindowsError,
    OtherDefinitionError,
    PatchedSinceError,
    UnpatchableError,
    UnpublishedError,
)
from tests.own_windows import Validity
from tests.process.late_clicks import SESSIONS, Live, late_for_main, pipeline

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


def check_refusal(live: Live, kind: type[HeadraceError], message: str, branch: str = "fix") -> None:
    """A patch, and in a dry run it says so; nothing moves."""
    head_before = live.catalog.head()
    assert kind in map(type, live.rehearse(branch).refusals)
    with pytest.raises(kind, match=message):
        live.patch(branch)
    assert live.catalog.head() == head_before


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (pipeline(how=hr.discarding("30m")), "DISCARDING"),
        (pipeline(how=hr.retracting(None)), "no limit of lateness"),
        (pipeline(where=Validity(1_000_000)), "your own class Validity"),
    ],
    ids=["discarding", "no limit", "own windows"],
)
def test_pipelines_whose_rows_cannot_be_replaced(tmp_path: Path, definition: hr.Pipeline, message: str) -> None:
    live = Live(tmp_path, definition)
    live.land(("ann", 0.1, 1))
    live.process()
    live.backfill()
    check_refusal(live, UnpatchableError, message)


def test_a_branch_of_another_definition_is_refused(late: Live) -> None:
    late.pipeline = pipeline(what={"clicks": hr.count(), "spent": col("price").max()})
    late.backfill("other")
    check_refusal(late, OtherDefinitionError, "another definition", "other")


def test_a_branch_without_an_audit_is_refused(late: Live) -> None:
    for info in [*late.catalog.store.list("clicks/audits/none--")]:
        if late.refs()["fix"] in info.path:
            late.catalog.store.delete(info.path)
    check_refusal(late, AuditMissingError, "has no audit")


def test_a_branch_that_is_behind_main_is_refused_and_so_is_what_readers_have_not_seen(late: Live) -> None:
    late.land(("ann", 6.5, 1))
    late.process(publish=False)
    check_refusal(late, UnpublishedError, "readers are at")
    late.process()
    check_refusal(late, BranchBehindError, "has not read 1 files")
    late.backfill()
    late.patch()
    assert late.current() == late.current("fix")


def test_what_main_has_given_up_is_not_brought_back(late: Live) -> None:
    late.catalog.fork("given-up", late.refs()["main"])
    late.land(("ann", 7.5, 1))
    late.process(branch="given-up", publish=False)
    first = next(m.snapshot_id for m in late.catalog.ancestry(late.refs()["main"]) if m.epoch == 0)
    late.catalog.release(first, "looked at")
    late.catalog.rollback("main", first, "all but the first file")
    late.process(branch="given-up", publish=False)  # audits what readers do not see any more, too
    check_refusal(late, ForkGivenUpError, "main does not have any more", "given-up")


MODEST = (expect("column_values_to_be_between", column="spent", min_value=0, max_value=500),)


def test_what_the_audit_does_not_let_through_is_never_on_main(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline(expectations=MODEST))
    live.land(("ann", 0.1, 1))
    live.land(("ann", 5.5, 1))
    live.land(("ann", 0.5, 100), ("cyd", 0.6, 1000))
    live.process()
    live.backfill()
    check_refusal(live, AuditFailedError, "expectations failed")
    live.write(3, ("ann", 0.5, 100), ("cyd", 0.6, 400))
    live.backfill("modest")
    result = live.patch("modest")
    assert result.audit is not None
    assert (result.audit.success, result.audit.to_snapshot) == (True, result.snapshot)
    assert live.current() == live.current("modest")


def test_a_patch_that_fails_its_own_audit_is_never_on_main(tmp_path: Path) -> None:
    """What holds of the whole branch need not hold of the rows that a patch writes."""
    least = expect("table_row_count_to_be_between", min_value=2)
    live = Live(tmp_path, pipeline(expectations=(least,)))
    live.land(("ann", 0.1, 1), ("bob", 0.1, 1))
    live.land(("ann", 5.5, 1), ("bob", 5.5, 1))
    live.land(("ann", 0.5, 100))
    live.process()
    live.backfill()
    refs_before = live.refs()
    with pytest.raises(AuditFailedError, match="nothing was patched"):
        live.patch()
    assert live.refs() == refs_before
    live.land(("ann", 5.7, 1), ("bob", 5.7, 1))
    live.process()
    live.check()


def test_a_session_that_is_still_open_is_in_the_way(tmp_path: Path) -> None:
    live = Live(tmp_path, SESSIONS)
    live.land(("ann", 0.0, 1), ("bob", 0.0, 1))
    live.land(("ann", 3.0, 10), ("ann", 3.9, 10))
    live.land(("ann", 0.9, 1), ("ann", 1.6, 1), ("ann", 2.3, 100), ("bob", 0.5, 1))  # links both of hers
    live.process()
    live.backfill()
    head_before = live.catalog.head()
    (refusal,) = live.rehearse().refusals
    assert isinstance(refusal, OpenWindowsError)
    with pytest.raises(OpenWindowsError, match=r"1 rows that .* such as user = ann, window_start = 2026-01-01 00:00"):
        live.patch()
    assert live.catalog.head() == head_before
    live.land(("ann", 20.0, 1))
    live.process()
    live.backfill()
    live.patch()
    assert live.current() == live.current("fix")
    live.check()


def test_a_branch_that_was_forked_before_a_patch_does_not_take_it_back(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    for clicks in ([("ann", 0.1, 1)], [("ann", 3.1, 1)], [("ann", 5.1, 1)], [("ann", 10.1, 1), ("bob", 0.2, 7)]):
        live.land(*clicks)
    live.process()
    live.write(1, ("ann", 0.1, 1000))
    live.backfill("whole")
    live.write(1, ("ann", 0.1, 1))
    live.write(3, ("ann", 5.1, 50))
    live.backfill("range", first_hour=5)
    live.backfill("later", first_hour=5)
    live.patch("whole")
    rehearsal = live.rehearse("range")
    assert rehearsal.left == {"patched since the branch was forked": 2}  # hers, and one that only the patch has
    live.patch("range")
    assert [row[4] for row in live.current() if row[0] == "ann"] == [1000, 1, 50, 1]
    assert [row[4] for row in live.current() if row[0] == "bob"] == [7]
    live.check()
    with pytest.raises(PatchedSinceError, match="was patched in epoch 5, by branch range"):
        live.history.promote("later")
    assert PatchedSinceError in map(type, live.history.promote("later", dry_run=True).refusals)
    live.write(1, ("ann", 0.1, 1000))
    live.backfill("anew")
    live.history.promote("anew")
    assert [row[4] for row in live.current() if row[0] == "ann"] == [1000, 1, 50, 1]


def test_a_window_of_a_range_may_be_patched_again(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    for clicks in ([("ann", 0.1, 1)], [("ann", 5.1, 1)], [("ann", 10.1, 1)]):
        live.land(*clicks)
    live.process()
    for price in (50, 70):
        live.write(2, ("ann", 5.1, price))
        live.backfill(f"to-{price}", first_hour=5)
        live.patch(f"to-{price}")
        assert [row[4] for row in live.current()] == [1, price, 1]
    live.check()


def test_a_patch_that_cannot_be_told_from_others_any_more_is_refused_and_no_damage(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    for clicks in ([("ann", 0.1, 1)], [("ann", 3.1, 1)], [("ann", 5.1, 1)], [("ann", 10.1, 1)]):
        live.land(*clicks)
    live.process()
    live.write(3, ("ann", 5.1, 50))
    live.backfill("range", first_hour=5)
    live.patch("range")
    assert live.rehearse("range").refusals == ()
    for _ in range(2):
        live.history.expire(keep_last=1)
    head_before = live.catalog.head()
    (refusal,) = live.rehearse("range").refusals
    assert isinstance(refusal, PatchedSinceError)
    with pytest.raises(PatchedSinceError, match="what came before the patch in epoch 4 has expired"):
        live.patch("range")
    assert live.catalog.head() == head_before
    live.check()


def test_a_rehearsal_says_that_sessions_were_patched_since(tmp_path: Path) -> None:
    live = Live(tmp_path, SESSIONS)
    for clicks in ([("ann", 0.1, 1)], [("ann", 5.1, 1)], [("ann", 15.1, 1)]):
        live.land(*clicks)
    live.process()
    live.write(2, ("ann", 5.1, 50))
    live.backfill("range", first_hour=5)
    live.patch("range")
    assert [row[4] for row in live.current()] == [1, 50, 1]
    (refusal,) = live.rehearse("range").refusals
    assert isinstance(refusal, PatchedSinceError)
    with pytest.raises(PatchedSinceError, match="and its windows merge"):
        live.patch("range")


def test_a_branch_with_nothing_new_is_refused_neither_by_a_patch_nor_by_its_rehearsal(tmp_path: Path) -> None:
    live = Live(tmp_path, SESSIONS)
    for clicks in ([("ann", 0.1, 1)], [("ann", 5.1, 1)], [("ann", 15.1, 1)]):
        live.land(*clicks)
    live.process()
    live.catalog.fork("idle", live.refs()["main"])
    live.write(2, ("ann", 5.1, 50))
    live.backfill("range", first_hour=5)
    live.patch("range")
    head_before = live.catalog.head()
    assert live.rehearse("idle").refusals == ()
    assert live.patch("idle").epochs == ()
    assert live.catalog.head() == head_before
