"""Output patches of one of several outputs: the others stay as they are, and know nothing of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.runs.client.recording import make_change
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.plan import CutOver
from headrace.runs.publishing import patch as patching
from headrace.runs.publishing.patch import OtherDefinitionError, UnpatchableError
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.errors import PublishConflictError
from headrace_snapshots.format.manifest import Manifest, Patch
from headrace_snapshots.format.output_view import UnknownOutputError, parked_in
from headrace_snapshots.fsck import fsck
from tests.process.executors import ExecutorUnderTest
from tests.process.late_clicks import Live, pipeline
from tests.process.outputs import line

ONE = pipeline()
HOURS = hr.Output(key=ONE.key, what=ONE.what, where=ONE.where, when=ONE.when, how=ONE.how)
PAIRS = replace(HOURS, where=hr.FixedWindows("2h"))
BOTH = hr.Pipeline("clicks", ONE.input, outputs={"hours": HOURS, "pairs": PAIRS}, executor="local")
READING_HOURS = replace(PAIRS, of="hours", what={"spent": col("spent").sum()})


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """Two clicks of the first hour came too late for main; a backfill in one epoch, branch ``fix``, has them."""
    live = Live(tmp_path / "live", BOTH)
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10))
    live.land(("ann", 5.5, 1), ("bob", 5.6, 1))
    live.land(("ann", 0.5, 100), ("cyd", 0.6, 1000))
    live.process()
    live.backfill()
    return live


def rows(
    live: Live, output: str, ref: str = "published", values: Sequence[str] = ("clicks", "spent")
) -> list[tuple[Any, ...]]:
    read = hr.open(live.root)["clicks"][output].current(at=ref).to_arrow().to_pylist()
    return sorted((row["user"], row["window_start"], *(row[value] for value in values)) for row in read)


def spent_rows(live: Live, output: str, ref: str = "published") -> list[tuple[Any, ...]]:
    return rows(live, output, ref, ["spent"])


def tables_of(manifest: Manifest, output: str) -> Mapping[str, Any]:
    named_tables = {**manifest.tables, **manifest.logs}
    return {name: value for name, value in named_tables.items() if name.startswith(f"{output}/")}


def check(live: Live) -> None:
    check_catalog(live.catalog.store, "clicks")
    assert fsck(live.catalog, deep=True).damage == ()


def test_rows_of_one_output_are_patched(live: Live) -> None:
    manifest_before, refs = line(live.catalog)[-1], live.refs()
    others = rows(live, "pairs")
    assert rows(live, "hours") != rows(live, "hours", "fix")
    rehearsal = live.history.promote("fix", output="hours", patch=True, dry_run=True)
    assert (rehearsal.output.rows.added, rehearsal.output.rows.changed, rehearsal.refusals) == (1, 1, ())
    result = live.history.promote("fix", output="hours", patch=True)
    assert (result.action, result.epochs, result.counts["panes"]) == ("patch", (3,), 2)
    head = line(live.catalog)[-1]
    moved_refs = ("main", "published/hours", "published/pairs")
    assert live.refs() == {**refs, **dict.fromkeys(moved_refs, head.snapshot_id)}, "pairs are as they were"
    assert (head.is_patch, head.patch.output if head.patch else None) == (True, "hours")
    assert tables_of(head, "pairs") == tables_of(manifest_before, "pairs")
    assert (head.counts["hours/panes"], head.counts["pairs/panes"]) == (2, 0)
    assert rows(live, "hours") == rows(live, "hours", "fix")
    assert rows(live, "pairs") == others
    check(live)
    assert live.history.promote("fix", output="hours", patch=True).epochs == (), "done again it changes nothing"
    assert live.history.promote("fix", output="pairs", patch=True).epochs == (4,)
    assert rows(live, "pairs") == rows(live, "pairs", "fix")
    assert rows(live, "hours") == rows(live, "hours", "fix")
    check(live)
    live.land(("ann", 5.7, 5))
    live.process()
    assert {*live.refs().values()} == {live.refs()["main"], live.refs()["fix"]}
    check(live)


def test_one_that_was_stopped_is_published_by_the_next(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_publish(*_: object) -> None:
        raise PublishConflictError("stopped")

    with monkeypatch.context() as patch, pytest.raises(PublishConflictError):
        patch.setattr(patching, "publish_range", stop_publish)
        live.history.promote("fix", output="hours", patch=True)
    head = line(live.catalog)[-1]
    assert (head.is_patch, live.refs()["published/hours"]) == (True, head.parent)
    assert live.history.promote("fix", output="hours", patch=True).epochs == (3,)
    assert live.refs()["published/hours"] == head.snapshot_id
    check(live)


def test_outputs_that_are_computed_again_pass_over_patches(live: Live) -> None:
    live.history.promote("fix", output="hours", patch=True)
    more = replace(BOTH, outputs={**BOTH.outputs, "more": HOURS})
    live.pipeline = more
    live.land(("ann", 6.5, 5))
    live.process()
    head = line(live.catalog)[-1]
    assert parked_in(head) == {}
    own = [record.epoch for record in live.catalog.file_records(head.logs["more/panes"])]
    assert own == [0, 1, 4], "of the patch and of what came too late there is none"
    check(live)


@pytest.mark.parametrize("is_renamed", [False, True])
def test_what_was_patched_stays_also_under_another_name(
    is_renamed: bool, live: Live, executor: ExecutorUnderTest
) -> None:
    live.history.fork(line(live.catalog)[0].snapshot_id, "side")
    live.history.promote("fix", output="hours", patch=True)
    name, own = ("hourly", replace(HOURS, formerly="hours")) if is_renamed else ("hours", HOURS)
    live.pipeline = replace(BOTH, outputs={name: own, "pairs": PAIRS})
    live.land(("ann", 6.5, 5))
    live.process()
    executor.process(live.pipeline, live.root, RunOptions("side", branch="side"))
    rehearsal = live.history.promote("side", output=name, patch=True, dry_run=True)
    assert (rehearsal.output.rows.differing, rehearsal.left) == (0, {"patched since the branch was forked": 2})


def test_an_adoption_says_which_patches_it_gives_up(live: Live, executor: ExecutorUnderTest) -> None:
    live.history.promote("fix", output="hours", patch=True)
    changed_pipeline = replace(BOTH, outputs={**BOTH.outputs, "hours": replace(HOURS, filter=col("price") < 900)})
    executor.backfill(changed_pipeline, live.root, RunOptions("again", branch="again", output="hours"))
    (warning,) = make_change(live.catalog, CutOver("again", "hours"), run_id="adopt").warnings
    assert "the patch of epoch 3, by branch fix, is given up" in warning
    assert "headrace promote clicks.hours" in warning
    check(live)


def test_a_patch_and_an_adoption_are_published_together(
    live: Live, executor: ExecutorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_publish(*_: object) -> None:
        raise PublishConflictError("stopped")

    with monkeypatch.context() as patch, pytest.raises(PublishConflictError):
        patch.setattr(patching, "publish_range", stop_publish)
        live.history.promote("fix", output="hours", patch=True)
    live.pipeline = replace(BOTH, outputs={**BOTH.outputs, "pairs": replace(PAIRS, filter=col("price") < 900)})
    executor.backfill(live.pipeline, live.root, RunOptions("again", branch="again", output="pairs"))
    refs_before, second_rows = live.refs(), rows(live, "pairs", "again")
    assert make_change(live.catalog, CutOver("again", "pairs"), run_id="adopt").warnings == (), (
        "nothing of the patch is given up"
    )
    adopted_manifest = line(live.catalog)[-1]
    seen_refs = {name: snapshot for name, snapshot in live.refs().items() if name.startswith("published")}
    assert {*seen_refs.values()} == {refs_before["published/pairs"]}, "both wait"
    executor.audit(live.pipeline, live.root, RunOptions("audit"))
    live.history.publish()
    assert {name: snapshot for name, snapshot in live.refs().items() if name.startswith("published")} == {
        "published/hours": adopted_manifest.snapshot_id, "published/pairs": adopted_manifest.snapshot_id
    }  # fmt: skip
    assert rows(live, "hours") == rows(live, "hours", "fix")
    assert rows(live, "pairs") == second_rows != rows(live, "pairs", "fix")
    check(live)
    live.land(("ann", 5.7, 5))
    live.process()
    patched_rows = [row for row in rows(live, "hours", "fix") if row not in rows(live, "hours")]
    assert len(patched_rows) <= 1, "only the window that goes on has changed"
    live.history.rollback(to=str(refs_before["published/hours"]))
    assert live.refs()["published/hours"] == live.refs()["published/pairs"] == refs_before["published/hours"]
    assert rows(live, "hours") != rows(live, "hours", "fix")
    live.process()
    check(live)


def test_a_rollback_says_which_patch_it_gives_up(live: Live) -> None:
    snapshot_before = live.refs()["main"]
    live.history.promote("fix", output="hours", patch=True)
    (reported_line,) = live.history.rollback(to=snapshot_before, dry_run=True).told
    assert "`headrace promote clicks.hours fix --patch` makes it again" in reported_line
    live.history.rollback(to=snapshot_before)
    assert live.refs()["published/hours"] == snapshot_before


def test_which_outputs_are_not_patched(live: Live, executor: ExecutorUnderTest) -> None:
    with pytest.raises(UnpatchableError, match=r"outputs hours, pairs.*headrace promote clicks\.hours fix --patch"):
        live.history.promote("fix", patch=True)
    with pytest.raises(UnknownOutputError):
        live.history.promote("fix", output="days", patch=True)
    executor.process(BOTH, live.root, RunOptions("without", without=("pairs",)))
    live.land(("ann", 6.5, 5))
    executor.process(BOTH, live.root, RunOptions("left", without=("pairs",)))
    with pytest.raises(UnpatchableError, match="output pairs of clicks is parked"):
        live.history.promote("fix", output="pairs", patch=True)
    live.pipeline = replace(BOTH, outputs={**BOTH.outputs, "below": READING_HOURS})
    live.process()
    live.backfill("below")
    with pytest.raises(UnpatchableError, match="is read by below, which would not hear of a patch"):
        live.history.promote("below", output="hours", patch=True)


def test_one_command_computes_an_output_and_patches_it(live: Live) -> None:
    expected_rows, others = rows(live, "hours", "fix"), rows(live, "pairs")
    clicks = hr.open(live.root)[BOTH]
    result = clicks.backfill(output="hours", branch="again", patch=True)
    assert (result.action, result.epochs, result.counts["panes"]) == ("patch", (3,), 2)
    assert (rows(live, "hours"), rows(live, "pairs")) == (expected_rows, others)
    assert parked_in(line(live.catalog, "again")[-1]) == {"pairs": -1}, "nobody needs it"
    assert clicks.backfill(output="hours", branch="again", patch=True).epochs == (), "done again it changes nothing"
    check(live)


@pytest.mark.parametrize("name", ["pairs", "below"])
def test_a_range_is_computed_from_the_newest_snapshot_without_what_it_depends_on(tmp_path: Path, name: str) -> None:
    live = Live(tmp_path / "live", replace(BOTH, outputs={**BOTH.outputs, "below": READING_HOURS}))
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10))
    live.land(("ann", 4.1, 1), ("bob", 5.6, 1))
    live.land(("ann", 9.5, 1))
    live.land(("ann", 4.2, 100), ("cyd", 5.3, 1000))  # too late
    live.process()
    spent_before = {output: spent_rows(live, output) for output in live.pipeline.outputs}
    clicks = hr.open(live.root)[live.pipeline]
    span = {"start": "2026-01-01T04:00:00Z", "end": "2026-01-01T06:00:00Z"}

    assert clicks.backfill(branch="whole", **span).forked_from == line(live.catalog)[0].snapshot_id
    assert clicks.backfill(branch="nothing").forked_from is None
    assert spent_rows(live, name, "whole") == spent_rows(live, name, "nothing") != spent_before[name]
    result = clicks.backfill(output=name, branch="again", patch=True, **span)
    assert (result.action, result.counts["panes"]) == ("patch", 2)
    spent_after = {**spent_before, name: spent_rows(live, name, "nothing")}
    assert {output: spent_rows(live, output) for output in live.pipeline.outputs} == spent_after
    assert line(live.catalog, "again")[0] == line(live.catalog)[0], "where it has begun"
    check(live)


def test_what_is_against_a_patch_is_said_before_anything_is_computed(live: Live) -> None:
    cheap = replace(BOTH, outputs={**BOTH.outputs, "hours": replace(HOURS, filter=col("price") < 900)})
    refusals: list[tuple[hr.Pipeline, dict[str, Any], type[Exception], str]] = [
        (BOTH, {}, UnpatchableError, r"headrace backfill clicks\.hours --patch"),
        (BOTH, {"output": "hour"}, UnknownOutputError, "hour"),
        (BOTH, {"output": "hours", "promote": True}, RunOptionsError, "choose one"),
        (cheap, {"output": "hours"}, OtherDefinitionError, r"headrace backfill clicks\.hours --promote"),
    ]
    for shop, options, error, match in refusals:
        with pytest.raises(error, match=match):
            hr.open(live.root)[shop].backfill(branch="again", patch=True, **options)
    assert "again" not in live.catalog.head().generations


def test_a_patch_of_an_output_is_stored_with_its_name() -> None:
    assert Patch(3, "fix", "s").to_json() == {"epoch": 3, "branch": "fix", "snapshot": "s"}
    assert Patch.from_json(Patch(3, "fix", "s", "hours").to_json()).output == "hours"


def test_a_window_of_panes_that_were_partly_read_before_the_fork_stays_as_it_was_patched(tmp_path: Path) -> None:
    output_below = replace(HOURS, of="pairs", what={"spent": col("spent").sum()})
    live = Live(tmp_path / "live", replace(BOTH, outputs={"pairs": PAIRS, "below": output_below}))
    live.land(("ann", 0.1, 1))
    live.land(("ann", 1.5, 1), ("ann", 2.5, 1))
    live.land(("ann", 9, 1))
    live.process()
    live.backfill("range", first_hour=2.2)
    live.write(1, ("ann", 0.1, 100))
    live.backfill("whole")
    live.history.promote("whole", output="below", patch=True)
    patched_rows = spent_rows(live, "below")
    assert patched_rows == spent_rows(live, "below", "whole") != spent_rows(live, "below", "range")
    live.history.promote("range", output="below", patch=True)
    assert spent_rows(live, "below") == patched_rows
    check(live)
