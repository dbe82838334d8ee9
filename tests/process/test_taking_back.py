"""Promotions that are taken back: main returns to what it was, however that expired meanwhile; and batches."""

from pathlib import Path

import pytest

from headrace.errors import InputEndedError, RefusedError, UnknownBranchError
from tests.process.late_clicks import Live, late_for_main, pipeline

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


def test_a_batch_does_not_become_main_but_patches_it(late: Live) -> None:
    late.process(branch="batch", mode="batch", publish=False)
    head_before = late.catalog.head()
    (error,) = late.history.promote("batch", dry_run=True).refusals
    assert isinstance(error, InputEndedError)
    with pytest.raises(InputEndedError, match="`headrace promote clicks batch --patch` takes its results"):
        late.history.promote("batch")
    assert late.catalog.head() == head_before
    late.patch("batch")
    late.land(("ann", 6.5, 1))
    assert late.process().counts["late_dropped"] == 0
    late.check()


def test_a_batch_does_not_begin_a_main(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    live.land(("ann", 0.1, 1))
    live.process(branch="batch", mode="batch", publish=False)
    with pytest.raises(InputEndedError, match="`headrace backfill clicks --promote`") as error:
        live.history.promote("batch")
    assert "--patch" not in str(error.value)


def test_a_main_whose_input_has_ended_may_become_another_batch(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    live.land(("ann", 0.1, 1))
    live.process(mode="batch")
    live.process(branch="batch", mode="batch", publish=False)
    live.history.promote("batch")
    assert live.current() != []


def test_a_promotion_is_taken_back_and_main_goes_on(late: Live) -> None:
    old, seen_rows = late.refs(), late.current()
    late.history.promote("fix")
    late.land(("ann", 6.5, 1))
    late.process()
    promoted_snapshot = late.refs()["main"]
    assert late.current() != seen_rows
    entry = late.history.rollback(to=old["main"])
    assert {ref: late.refs()[ref] for ref in ("main", "published")} == {ref: old[ref] for ref in ("main", "published")}
    assert entry.moves == {"main": (promoted_snapshot, old["main"]), "published": (promoted_snapshot, old["published"])}
    assert late.current() == seen_rows
    assert len(late.process().epochs) == 1  # the file that came after the promotion
    late.check()
    with pytest.raises(RefusedError, match="is not an ancestor"):
        late.history.rollback(to=promoted_snapshot)
    with pytest.raises(UnknownBranchError):
        late.history.promote("fix")
    late.backfill("again")
    late.history.promote("again")
    late.check()


def test_what_readers_had_not_seen_before_a_promotion_they_do_not_see_after_it(late: Live) -> None:
    seen_rows = late.current()
    late.land(("ann", 6.5, 1))
    late.process(publish=False)
    old = late.refs()
    late.backfill("whole")
    late.history.promote("whole")
    late.history.rollback(to=old["main"])
    assert late.refs()["published"] == old["published"] != old["main"]
    assert late.current() == seen_rows
    late.process()
    assert late.refs()["published"] == old["main"]
    late.check()


@pytest.mark.parametrize("keep_way_back", [True, False], ids=["kept", "expired"])
def test_the_way_back_expires_as_published_snapshots_do(late: Live, keep_way_back: bool) -> None:
    old, seen_rows = late.refs(), late.current()
    late.history.promote("fix")
    late.land(("ann", 6.5, 1))
    late.process()
    late.history.expire(keep_last=10 if keep_way_back else 1)
    if not keep_way_back:
        with pytest.raises(RefusedError, match="expired"):
            late.history.rollback(to=old["main"])
        late.history.expire(keep_last=1)
        late.check()
        return
    late.history.expire(keep_last=10)
    late.check()
    late.history.rollback(to=old["main"])
    assert late.current() == seen_rows
    late.process()
    for _ in range(2):
        late.history.expire(keep_last=10)
    late.check()
    assert late.history.expire(keep_last=10).marked.objects == 0
