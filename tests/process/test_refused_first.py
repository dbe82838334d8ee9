"""Options that would be refused at the end of a run are refused before anything is computed, or anybody is fenced."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.option_values import parse_span
from headrace.runs.options import Mode, RunOptions
from headrace.runs.publishing.promotion import ForkGivenUpError, InputEndedError, PatchedSinceError
from headrace_lab.actions import backfill
from tests.process.late_clicks import SESSIONS, START, Live, late_for_main, pipeline


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branch": "trial", "publish": True}, "readers see main"),
        ({"branch": "trial", "publish": True, "mode": Mode.BATCH}, "readers see main"),
        ({"branch": "trial", "publish": True, "snapshot": "x"}, "readers see main"),
        ({"mode": Mode.BATCH, "max_epochs": 2}, "all input as one epoch"),
        ({"mode": Mode.BATCH, "files_per_epoch": 2}, "all input as one epoch"),
        ({"mode": Mode.BATCH, "bytes_per_epoch": 2}, "all input as one epoch"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], message: str) -> None:
    with pytest.raises(RunOptionsError, match=message):
        RunOptions("run", **options)  # type: ignore[arg-type]


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


def promotes(live: Live, branch: str, *, first_hour: float | None = None) -> None:
    begin: datetime | None = None if first_hour is None else START + timedelta(hours=first_hour)
    span = None if begin is None else parse_span(begin.isoformat(), None)
    backfill(live.pipeline, live.root, RunOptions("fill", branch=branch, span=span, promotes=True))


@pytest.mark.slow
def test_a_batch_on_a_branch_that_is_not_empty_claims_nothing(late: Live) -> None:
    late.process(mode=Mode.BATCH)  # nothing has landed: there is nothing to refuse
    late.land(("ann", 6.5, 1))
    head_before = late.catalog.head()
    with pytest.raises(RunOptionsError, match="takes all input at once"):
        late.process(mode=Mode.BATCH)
    assert late.catalog.head() == head_before


@pytest.mark.slow
def test_a_backfill_that_could_not_be_promoted_computes_nothing(late: Live) -> None:
    late.patch()
    late.process(branch="batch", mode=Mode.BATCH, publish=False)
    late.catalog.fork("lost", late.refs()["main"])
    late.land(("ann", 6.5, 1))
    late.process()
    head_before = late.catalog.head()
    with pytest.raises(PatchedSinceError, match="a backfill of clicks that is promoted and begins with snapshot"):
        promotes(late, "new", first_hour=5)
    with pytest.raises(InputEndedError):
        promotes(late, "batch")
    assert late.catalog.head() == head_before
    first = next(each.snapshot_id for each in late.catalog.ancestry(late.refs()["main"]) if each.epoch == 0)
    late.catalog.release(first, "looked at")
    late.catalog.rollback("main", first, "back")
    head_before = late.catalog.head()
    with pytest.raises(ForkGivenUpError):
        promotes(late, "lost")
    assert late.catalog.head() == head_before
    promotes(late, "whole")
    late.history.promote("whole")
    late.check()


@pytest.mark.slow
@pytest.mark.parametrize("is_merging", [False, True])
def test_what_is_advised_where_main_was_patched_since_can_be_done(tmp_path: Path, is_merging: bool) -> None:
    live = Live(tmp_path, SESSIONS if is_merging else pipeline())
    for clicks in ([("ann", 0.1, 1)], [("ann", 5.1, 1)], [("ann", 15.1, 1)]):
        live.land(*clicks)
    live.process()
    live.write(1, ("ann", 0.1, 50))
    live.backfill("whole")
    live.patch("whole")
    live.write(1, ("ann", 0.1, 1))
    live.write(2, ("ann", 5.1, 70))
    with pytest.raises(PatchedSinceError, match=r"Backfill from the beginning, without --from") as new:
        promotes(live, "range", first_hour=5)
    assert "range" not in live.catalog.head().generations
    assert ("`headrace promote clicks range --patch`" in str(new.value)) == (not is_merging)
    live.backfill("range", first_hour=5)
    with pytest.raises(PatchedSinceError, match=r"branch range of clicks continues from snapshot") as error:
        live.history.promote("range")
    assert ("`headrace promote clicks range --patch`" in str(error.value)) == (not is_merging)
    if is_merging:
        live.write(1, ("ann", 0.1, 50))
        promotes(live, "again")
        live.history.promote("again")
    else:
        live.patch("range")
    assert [row[4] for row in live.current()] == [50, 70, 1]
    live.check()
