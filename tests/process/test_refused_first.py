"""Options that would be refused at the end of a run are refused before anything is computed, or anybody is fenced."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace.runs.backfill.backfill import backfill
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions, RunOptionsError, parse_span
from headrace.runs.publishing.promotion import ForkGivenUpError, InputEndedError, PatchedSinceError
from tests.process.late_clicks import START, Live, late_for_main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"branch": "trial", "publish": True}, "readers see main"),
        ({"branch": "trial", "publish": True, "mode": Mode.BATCH}, "readers see main"),
        ({"branch": "trial", "publish": True, "snapshot": "x"}, "readers see main"),
        ({"mode": Mode.BATCH, "max_epochs": 2}, "all input as one epoch"),
        ({"mode": Mode.BATCH, "files_per_epoch": 2}, "all input as one epoch"),
        ({"mode": Mode.BATCH, "bytes_per_epoch": 2}, "all input as one epoch"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], said: str) -> None:
    with pytest.raises(RunOptionsError, match=said):
        RunOptions("run", **options)  # type: ignore[arg-type]


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


def promotes(live: Live, branch: str, *, since: float | None = None) -> None:
    begin: datetime | None = None if since is None else START + timedelta(hours=since)
    span = None if begin is None else parse_span(begin.isoformat(), None)
    backfill(live.pipeline, live.root, RunOptions("fill", branch=branch, span=span, promotes=True))


@pytest.mark.slow
def test_a_batch_on_a_branch_that_is_not_empty_claims_nothing(late: Live) -> None:
    late.process(mode=Mode.BATCH)  # nothing has landed: there is nothing to refuse
    late.land(("ann", 6.5, 1))
    before = late.catalog.head()
    with pytest.raises(RunOptionsError, match="takes all input at once"):
        late.process(mode=Mode.BATCH)
    assert late.catalog.head() == before


@pytest.mark.slow
def test_a_backfill_that_could_not_be_promoted_computes_nothing(late: Live) -> None:
    late.patch()
    late.process(branch="batch", mode=Mode.BATCH, publish=False)
    late.catalog.fork("lost", late.refs()["main"])
    late.land(("ann", 6.5, 1))
    late.process()
    before = late.catalog.head()
    with pytest.raises(PatchedSinceError):
        promotes(late, "new", since=5)
    with pytest.raises(InputEndedError):
        promotes(late, "batch")
    assert late.catalog.head() == before
    first = next(each.snapshot_id for each in late.catalog.ancestry(late.refs()["main"]) if each.epoch == 0)
    late.catalog.release(first, "looked at")
    late.catalog.rollback("main", first, "back")
    before = late.catalog.head()
    with pytest.raises(ForkGivenUpError):
        promotes(late, "lost")
    assert late.catalog.head() == before
    promotes(late, "whole")
    late.history.promote("whole")
    late.check()
