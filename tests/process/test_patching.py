"""Output patches: rows of a branch replace those of main where windows have expired, and main goes on as it was."""

import os
import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.model.time import to_instant
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.restore import BelowPublishedError
from headrace_lab.actions import recover
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Patch
from tests.process.late_clicks import SESSIONS, START, Live, Row, hour, late_for_main, pipeline

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


def test_what_came_too_late_is_patched_in(late: Live) -> None:
    refs_before, panes = late.refs(), late.panes()
    assert late.current("fix") != late.current()
    result = late.patch()
    assert (result.action, result.epochs, result.counts["panes"], result.counts["retractions"]) == ("patch", (3,), 2, 1)
    assert late.refs() == {**refs_before, "main": result.snapshot, "published": result.snapshot}
    assert late.current() == late.current("fix")
    key_and_window = {"user": "ann", "window_start": START, "window_end": START + timedelta(hours=1)}
    added_rows = [pane for pane in late.panes() if pane["epoch"] == 3]
    withdrawn, ann, cyd = sorted(added_rows, key=lambda pane: (pane["user"], pane["sequence"]))
    (standing_pane,) = (p for p in panes if p["user"] == "ann" and p["pane_index"] == 1 and p["window_start"] == START)
    assert withdrawn == {**standing_pane, "is_retraction": True, "epoch": 3, "sequence": 0}
    assert ann == {
        **key_and_window,
        "clicks": 2,
        "spent": 101,
        "pane_time": standing_pane["pane_time"],
        "timing": "LATE",
        "pane_index": 2,
        "nonspeculative_index": 1,
        "is_first": False,
        "is_last": True,
        "is_retraction": False,
        "epoch": 3,
        "sequence": 1,
    }
    numbers = ("pane_index", "nonspeculative_index", "is_first", "sequence")
    assert [cyd[name] for name in numbers] == [0, 0, True, 1]
    late.check()


def test_a_patch_that_is_done_again_changes_nothing(late: Live) -> None:
    late.patch()
    head_before = late.catalog.head()
    second_result = late.patch()
    assert (second_result.epochs, second_result.snapshot) == ((), head_before.refs["main"])
    assert late.catalog.head() == head_before
    assert late.rehearse().output.rows.differing == 0


def test_the_live_lane_goes_on_and_a_rollback_takes_the_patch_back(late: Live) -> None:
    snapshot_before, unpatched_rows = late.refs()["main"], late.current()
    late.patch()
    late.land(("ann", 5.7, 5), ("bob", 9.5, 1))
    late.land(("ann", 0.3, 7))  # too late again
    late.process()
    late.check()
    patched_rows = [row for row in late.current("fix") if hour(row) == 0]
    assert [row for row in late.current() if hour(row) == 0] == patched_rows
    assert [row[3:] for row in late.current() if row[0] == "ann" and hour(row) == 5] == [(2, 6)]
    assert [row[3:] for row in late.current() if row[0] == "bob" and hour(row) == 9] == [(1, 1)]
    late.catalog.rollback("main", snapshot_before, "without the patch")
    assert late.current() == unpatched_rows
    late.process()
    assert [row for row in late.current() if hour(row) == 0] == [row for row in unpatched_rows if hour(row) == 0]
    late.check()


def test_a_dry_run_says_what_changes_and_what_does_not(late: Live) -> None:
    late.write(2, ("ann", 5.5, 2), ("bob", 5.6, 1))  # hour 5 is open on main
    late.backfill("other")
    head_before = late.catalog.head()
    rehearsal = late.rehearse("other")
    assert late.catalog.head() == head_before
    rows = rehearsal.output.rows
    assert (rows.before, rows.after, rows.added, rows.removed, rows.changed) == (4, 5, 1, 0, 1)
    assert [(row.kind, row.key["user"]) for row in rehearsal.output.first] == [("changed", "ann"), ("added", "cyd")]
    changed_row = rehearsal.output.first[0]
    assert changed_row.before is not None
    assert changed_row.after is not None
    assert (changed_row.before["spent"], changed_row.after["spent"], changed_row.after["timing"]) == (1, 101, "LATE")
    assert rehearsal.left == {"open on main": 1}
    assert rehearsal.refusals == ()
    late.patch("other")
    assert [row[4] for row in late.current() if row[0] == "ann"] == [101, 1]
    assert late.rehearse("other").left == {"open on main": 1}
    late.check()


def test_windows_that_are_open_on_the_branch_stay(late: Live) -> None:
    late.write(2, ("ann", 1.2, 1))  # so the watermark of the branch does not pass the first hour and its lateness
    late.backfill("other")
    assert late.rehearse("other").left == {"open on main": 2, "open on the branch": 3}
    assert late.patch("other").epochs == ()


def test_a_row_that_the_branch_does_not_have_is_withdrawn(late: Live) -> None:
    late.write(1, ("ann", 0.1, 1))
    late.backfill("other")
    assert late.patch("other").counts["retractions"] == 2
    assert late.current() == late.current("other")
    late.check()
    result = late.patch("fix")
    assert (result.counts["panes"], result.counts["retractions"]) == (1, 0), "and may come back"
    assert late.current() == late.current("fix")
    (bob,) = (pane for pane in late.panes() if pane["epoch"] == result.epoch)
    assert (bob["user"], bob["pane_index"]) == ("bob", 2)
    late.check()


def test_the_last_aggregation_is_what_is_patched(tmp_path: Path) -> None:
    next_stage = hr.Aggregation(
        key="clicks", what={"users": hr.count(), "spent": col("spent").sum()}, where=hr.FixedWindows("2h")
    )
    live = Live(tmp_path, pipeline(then=[next_stage]))
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10), ("cyd", 1.9, 5))
    live.land(("ann", 3.4, 1))  # passes the lateness of hours 0 and 1, not that of hours 2 and 3
    live.land(("ann", 0.5, 100), ("dan", 2.5, 3))
    live.process()
    live.backfill()
    assert {hour(row) for row in live.current("fix")} >= {0}
    live.patch()
    first = [row for row in live.current("fix") if hour(row) == 0]
    assert first
    assert [row for row in live.current() if hour(row) == 0] == first
    live.land(("ann", 9.5, 1))
    live.process()
    assert [row for row in live.current() if hour(row) == 0] == first
    live.check()


def test_sessions_that_a_late_click_links_are_patched_together(tmp_path: Path) -> None:
    live = Live(tmp_path, SESSIONS)
    live.land(("ann", 0.0, 1), ("ann", 1.5, 10), ("bob", 0.0, 1))
    live.land(("ann", 9.0, 1))
    live.land(("ann", 0.75, 100))
    live.process()
    live.backfill()
    assert len(live.current()) == len(live.current("fix")) + 1
    result = live.patch()
    assert (result.counts["panes"], result.counts["retractions"]) == (1, 2)
    assert live.current() == live.current("fix")
    live.check()


def test_rows_of_all_types_are_copied_as_they_are(tmp_path: Path) -> None:
    price, time_column = col("price"), col("at")
    what = {
        "number": hr.count(),
        "ratio": price.mean(),
        "exact": (price.cast(Decimal) / 3).sum(),
        "user": col("user").max(),
        "day": time_column.date().max(),
        "newest": time_column.max(),
        "prices": price.collect(),
        "users": col("user").collect(),
        "pairs": price.pairs(col("user"), "both"),
    }
    live = Live(tmp_path, pipeline(key={"parity": price % 2 == 0, "initial": price.cast(Decimal) % 2}, what=what))
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10))
    live.land(("ann", 5.5, 1), ("bob", 5.6, 2))
    live.land(("cyd", 0.5, 101), ("", 0.6, 1000))
    live.process()
    live.backfill()
    assert live.patch().counts["retractions"] == 2
    assert live.current() == live.current("fix")
    live.check()


def test_rows_from_before_a_column_was_renamed_are_patched(late: Live) -> None:
    late.pipeline = pipeline(what={"clicks": hr.count(), "paid": col("price").sum()}, renamed={"spent": "paid"})
    late.land(("ann", 5.9, 1))
    late.process()
    late.backfill("renamed")
    late.patch("renamed")
    assert late.current() == late.current("renamed")
    late.check()
    late.land(("ann", 9.9, 1))
    late.process()
    late.check()


def test_the_global_window_of_a_batch_is_over(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline(where=hr.GlobalWindows(), when=hr.Repeatedly(hr.AfterCount(1))))
    live.land(("ann", 0.1, 1), ("bob", 5.0, 2))
    live.process(mode=Mode.BATCH)
    live.write(1, ("ann", 0.1, 7), ("bob", 5.0, 2))
    live.process(branch="whole", mode=Mode.BATCH, publish=False)
    assert live.patch("whole").counts["panes"] == 1
    assert live.current() == live.current("whole") != []
    live.check()


def test_a_key_may_be_the_names_of_sql(tmp_path: Path) -> None:
    definition = pipeline(
        key={"select": col("user"), "m": col("price") % 2}, what={"before": hr.count(), "d": col("at").max()}
    )
    live = Live(tmp_path, replace(definition, where=hr.Sessions("1h")))
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10))
    live.land(("ann", 5.5, 1))
    live.land(("ann", 0.5, 3))
    live.process()
    live.backfill()
    assert live.patch().counts["panes"] == 1
    assert live.current() == live.current("fix")
    live.check()


def clicks_of(seed: int) -> list[list[tuple[str, float, int]]]:
    """Files of clicks that are an hour and a half apart; some come much too late."""
    dice = random.Random(seed)

    def click(file: int) -> tuple[str, float, int]:
        late = dice.choice([0, 0, 0, 0.6, 2, 5])
        return dice.choice(["ann", "bob", "cyd"]), max(0, 1.5 * file + dice.random() - late), dice.randrange(100)

    return [[click(file) for _ in range(dice.randrange(1, 8))] for file in range(dice.randrange(3, 8))]


@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others; the first three have each kind of window
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "3"))))
def test_random_patches_give_what_the_branch_has_of_all_that_has_expired(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lateness = dice.choice([0, 30, 90])
    how = dice.choice([hr.retracting, hr.accumulating])
    where = [hr.FixedWindows("1h"), hr.SlidingWindows("2h", "1h"), hr.Sessions("30m")][seed % 3]
    live = Live(tmp_path, pipeline(where=where, how=how(f"{lateness}m")))
    for file in clicks_of(seed):
        live.land(*file)
    live.process()
    live.backfill()
    if live.rehearse().refusals:  # sessions that may become part of open ones
        live.land(*((user, 50.0, 1) for user in ("ann", "bob", "cyd")))
        live.process()
        live.backfill()
    rows_before, branch = live.current(), live.current("fix")
    watermark = StoredProgress.from_manifest(live.catalog.manifest(live.refs()["main"])).watermark

    def has_expired(row: Row) -> bool:
        return watermark > to_instant(row[2]) - 1 + lateness * 60 * 1_000_000

    live.patch()
    expired_rows = [row for row in branch if has_expired(row)]
    assert live.current() == sorted([*expired_rows, *(row for row in rows_before if not has_expired(row))])
    live.check()
    live.land(("ann", 60.0, 1), ("bob", 60.0, 1), ("cyd", 60.0, 1))
    live.process()
    assert [row for row in live.current() if has_expired(row)] == expired_rows
    live.check()


def test_a_patch_is_no_epoch_that_a_replay_does_again(late: Live) -> None:
    late.patch()
    late.land(("ann", 5.8, 3))
    late.process()
    late.process(branch="again", mode=Mode.REPLAY, publish=False)
    panes = [pane for pane in late.panes() if pane["epoch"] != 3]
    found_rows = [{**pane, "epoch": pane["epoch"] + (pane["epoch"] > 2)} for pane in late.panes("again")]
    assert found_rows == panes
    late.backfill("another")
    late.patch("another")
    assert [row for row in late.current() if hour(row) == 0] == [row for row in late.current("fix") if hour(row) == 0]


def test_a_branch_with_a_patch_is_no_replay(late: Live) -> None:
    late.patch()
    late.catalog.fork("again", late.refs()["main"])
    with pytest.raises(RunOptionsError, match="epoch 3 differs"):
        late.process(branch="again", mode=Mode.REPLAY, publish=False)


def test_a_recovery_says_that_it_gives_a_patch_up(late: Live) -> None:
    first = next(m.snapshot_id for m in late.catalog.ancestry(late.refs()["main"]) if m.epoch == 0)
    late.patch()
    late.catalog.release(first, "looked at")
    options = RunOptions("back", executor="local", publish=True, snapshot=first)
    (warning, *_) = recover(late.pipeline, late.root, options).warnings
    assert "the patch of epoch 3, by branch fix, is given up" in warning
    assert "`headrace promote clicks fix --patch` makes it again" in warning
    late.patch()
    assert late.current() == late.current("fix")
    late.check()


def patched_twice(late: Live) -> str:
    """The snapshot before two patches, of which the first's branch continues from main."""
    snapshot_before = late.refs()["main"]
    late.patch()
    late.write(1, ("ann", 0.1, 5), ("bob", 0.2, 10))
    late.backfill("second")
    late.patch("second")
    late.write(1, ("ann", 0.1, 1), ("bob", 0.2, 10))
    return snapshot_before


def test_a_rollback_names_the_patches_that_it_gives_up_and_what_makes_them_again(late: Live) -> None:
    snapshot_before = patched_twice(late)
    head = late.catalog.head()
    given_up = late.history.rollback(to=snapshot_before, dry_run=True)
    assert late.catalog.head() == head
    assert [(each.epoch, each.branch) for each in given_up.patches] == [(4, "second"), (3, "fix")]
    assert "`headrace promote clicks second --patch` makes it again" in given_up.told[0]
    late.catalog.drop("fix")
    snapshot = head.refs["fix"]
    reported_line = late.history.rollback(to=snapshot_before, dry_run=True).told[1]
    assert (
        f"`headrace fork clicks {snapshot} patch-3` and `headrace promote clicks patch-3 --patch` make" in reported_line
    )
    entry = late.history.rollback(to=snapshot_before)
    assert [each["epoch"] for each in entry.detail["patches"]] == [4, 3]
    # Both ways are true.
    late.process()
    late.catalog.fork("patch-3", snapshot)
    late.patch("patch-3")
    late.patch("second")
    assert late.history.rollback(to=snapshot_before, dry_run=True).moves["main"][1] == snapshot_before
    late.check()


def test_what_is_gone_is_made_again_by_a_backfill(late: Live) -> None:
    snapshot_before = patched_twice(late)
    late.catalog.drop("fix")
    late.catalog.drop("second")
    for _ in range(2):
        late.history.expire(keep_last=9)
    for reported_line in late.history.rollback(to=snapshot_before, dry_run=True).told:
        assert "`headrace backfill clicks` computes such a branch again" in reported_line


def test_whoever_advises_a_rollback_says_which_patches_are_lost_by_it(late: Live) -> None:
    late.patch()
    manifest = late.catalog.manifest(late.refs()["main"])
    assert manifest.parent is not None
    for layers in manifest.tables.values():
        for file in layers[0].files:
            (late.folder / file.path).unlink(missing_ok=True)
    lost_patches = "This gives up output patches: the patch of epoch 3, by branch fix, is given up"
    late.land(("ann", 5.8, 3))
    with pytest.raises(BelowPublishedError, match=lost_patches):
        late.process()


def test_fsck_and_readers_that_advise_a_rollback_say_so_too(late: Live) -> None:
    late.patch()
    manifest = late.catalog.manifest(late.refs()["main"])
    for file in manifest.tables["current"][-1].files:
        (late.folder / file.path).unlink()
    lost_patches = "This gives up output patches: the patch of epoch 3, by branch fix, is given up"
    (problem,) = late.history.fsck().damage
    assert f"`headrace rollback clicks --to {manifest.parent}`" in problem.remedy
    assert lost_patches in problem.remedy
    with pytest.raises(BrokenObjectError, match=lost_patches):
        late.current()


def test_the_branch_may_go_once_main_is_patched(late: Live) -> None:
    late.patch()
    expected_rows = late.current()
    late.land(("ann", 5.8, 3))
    late.process()
    late.catalog.drop("fix")
    for _ in range(2):
        late.history.expire(keep_last=1)
    late.check()
    assert [row for row in late.current() if hour(row) == 0] == [row for row in expected_rows if hour(row) == 0]
    late.process()


def test_many_epochs_after_a_patch_the_layers_of_current_are_merged(late: Live) -> None:
    late.write(1, ("ann", 0.1, 1))
    late.backfill("other")
    late.write(1, ("ann", 0.1, 1), ("bob", 0.2, 10))
    late.patch("other")  # which takes a row of bob back
    for number in range(20):
        late.land((f"u{number}", 6 + number, 1))
    late.process()
    (first, *_) = late.catalog.manifest(late.refs()["main"]).tables["current"]
    assert (first.first_epoch, first.last_epoch > 3) == (0, True)
    assert [row for row in late.current() if hour(row) == 0] == [r for r in late.current("other") if hour(r) == 0]
    late.check()


def test_what_is_said_of_a_patch(late: Live) -> None:
    result = late.patch()
    manifest = late.catalog.manifest(str(result.snapshot))
    assert manifest.patch == Patch(3, "fix", late.refs()["fix"])
    entries = late.catalog.list_entries(limit=5)
    assert next(entry.message for entry in entries if entry.kind == "commit") == "epoch 3, a patch by branch fix"
    assert "epoch 3, a patch by branch fix on main" in str(late.history.graph())
    assert late.history.diff(manifest.parent, "main").output.rows.changed == 1
    explanation = str(late.history.explain("ann", window=START, pipeline=late.pipeline))
    assert "pane 2, late, of epoch 3: clicks = 2, spent = 101" in explanation
    late.land(("ann", 5.8, 3))
    late.process()
    newest = late.catalog.manifest(late.refs()["main"])
    assert (newest.patch, newest.is_patch) == (manifest.patch, False)
