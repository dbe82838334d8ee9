"""Kept snapshots are compared whatever has expired between them, and what a dry run says is what the act does."""

from itertools import product
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ForkGivenUpError, HeadraceError
from tests.process.late_clicks import Live, pipeline

pytestmark = pytest.mark.slow


def expire(live: Live) -> None:
    """Only the newest snapshot stays, and what has a name."""
    for _ in range(2):
        live.history.expire(keep_last=1)


def split_history(live: Live, *, branch: str = "") -> None:
    """Main goes back by one epoch and on with other clicks; what it had is the tag ``bad``, or ``branch``."""
    live.land(("ann", 0.1, 1))
    live.process()
    first = live.refs()["main"]
    live.land(("ann", 0.2, 3500), ("bob", 0.2, 1))
    live.process()
    if branch:
        live.history.fork("main", branch)
    else:
        live.history.tag("bad", "main")
    live.history.rollback(to=first, message="wrong prices")
    if not branch:
        live.write(2, ("ann", 0.2, 35))
    live.land(("cyd", 0.3, 1))
    live.process()


def test_a_diff_is_the_same_once_the_common_ancestor_has_expired(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    split_history(live)
    diff_before = live.history.diff("bad", "published").to_json()
    assert diff_before["logs"]["panes"] == {"rows": {"before": 4, "after": 4}, "only_before": 3, "only_after": 3}
    expire(live)
    diff_after = live.history.diff("bad", "published").to_json()
    assert diff_before.pop("ancestor")["branch"] == "main"
    ancestor = diff_after.pop("ancestor")
    assert (ancestor["epoch"], ancestor["branch"]) == (0, None)
    assert not live.catalog.is_stored(ancestor["snapshot"])
    assert diff_after == diff_before


@pytest.mark.parametrize("is_patch", [False, True])
def test_a_dry_run_refuses_as_the_act_does_once_the_common_ancestor_has_expired(tmp_path: Path, is_patch: bool) -> None:
    live = Live(tmp_path, pipeline())
    split_history(live, branch="fix")
    expire(live)
    refusals = live.history.promote("fix", patch=is_patch, dry_run=True).refusals
    with pytest.raises(HeadraceError) as error_info:
        live.history.promote("fix", patch=is_patch)
    assert (error_info.value.code, str(error_info.value)) == (refusals[0].code, str(refusals[0]))
    assert ForkGivenUpError in {type(refusal) for refusal in refusals}


def test_a_branch_whose_fork_has_expired_goes_on(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline())
    split_history(live, branch="fix")
    expire(live)
    live.land(("ann", 0.4, 7))
    assert live.process(branch="fix", publish=False).epochs == (2, 3)
    audit = live.backfill().audit
    assert audit is not None
    assert (audit.success, audit.from_snapshot) == (True, None)


WHOLE = {"clicks": hr.count(), "spent": col("price").sum(), "most": col("price").max()}


def test_rows_are_compared_once_the_last_aggregate_was_dropped(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline(what=WHOLE))
    for number, clicks in enumerate(([("ann", 0.1, 1), ("bob", 0.1, 2), *many()], [("ann", 0.2, 3)])):
        live.land(*clicks)
        live.process()
        live.history.tag(f"t{number}", "main")
    live.pipeline = pipeline(what={name: WHOLE[name] for name in ("clicks", "spent")})
    live.history.fork("main", "fix")
    for number, click in enumerate((("bob", 0.3, 5), ("bob", 0.4, 7)), start=2):
        live.land(click)
        live.process()
        live.history.tag(f"t{number}", "main")
    assert live.process(branch="fix", publish=False).epochs == (2, 3)
    touched_users = [set[str](), {"ann"}, {"bob"}, {"bob"}]
    for one, other in product(range(4), range(4)):
        diff = live.history.diff(f"t{one}", f"t{other}")
        users = set[str]().union(*touched_users[min(one, other) + 1 : max(one, other) + 1])
        assert {row.key["user"] for row in diff.output.first} == users
        assert diff.output.is_comparable
        (stage,) = diff.stages
        assert stage.is_comparable == ((one < 2) == (other < 2)), "all aggregates are in the state of the first two"
        if stage.is_comparable:
            assert stage.state.changed == len(users)
    rehearsal = live.history.promote("fix", dry_run=True)
    assert (rehearsal.refusals, rehearsal.diff.output.rows.differing) == ((), 0)
    live.history.promote("fix")


def many() -> list[tuple[str, float, int]]:
    """So many that the layers of later epochs are not merged with theirs."""
    return [(f"user {number}", 0.1, 1) for number in range(60)]
