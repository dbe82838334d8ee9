"""Branches that scheduled backfills have left behind are dropped by later ones, unless somebody may be at work."""

from collections.abc import Callable, Set
from datetime import UTC, datetime, timedelta

import pytest

from headrace.runs.backfill.branches import KEPT_BRANCHES, STILL_TIME, UNUSED_TIME, drop_abandoned, how_long
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import FencedError
from headrace_snapshots.expiry import expire
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store.local import MemoryStore
from tests.manifests import new_manifest

FIRST = datetime(2026, 5, 1, 3, tzinfo=UTC)


class Nights:
    """A pipeline whose scheduled backfills fail; ``now`` is the clock of all."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = FIRST
        self.catalog = self.another()
        self.first = self.commit("main")

    def another(self) -> Catalog:
        return Catalog(self.store, "p", now=lambda: self.now)

    def commit(self, branch: str, catalog: Catalog | None = None) -> str:
        catalog = catalog or self.catalog
        claim = catalog.claim(branch, "test")
        epoch = 0 if claim.snapshot_id is None else catalog.manifest(claim.snapshot_id).epoch + 1
        manifest = new_manifest(
            snapshot_id=catalog.new_snapshot_id(),
            pipeline="p",
            fingerprint="f",
            branch=branch,
            epoch=epoch,
            parent=claim.snapshot_id,
            generation=claim.generation,
            created_at=self.now.isoformat().replace("+00:00", "Z"),
            progress={"watermark": None},
        )
        catalog.commit(claim, manifest)
        return manifest.snapshot_id

    def fails(self, night: int, *, commits: bool = True) -> str:
        """One night's branch: forked, and filled with an epoch."""
        self.now = FIRST + timedelta(days=night)
        name = branch(night)
        self.catalog.fork(name, self.first)
        if commits:
            self.commit(name)
        return name

    def drop(self, night: int, catalog: Catalog | None = None, *, awaited_names: Set[str] = frozenset()) -> list[str]:
        """As the run of ``night`` does when it begins: the names of what it dropped."""
        self.now = FIRST + timedelta(days=night)
        catalog = catalog or self.catalog
        return [each.name for each in drop_abandoned(catalog, branch(night), self.now, lambda: awaited_names)]

    def branches(self) -> set[str]:
        return {*self.catalog.head().generations} - {"main"}


def branch(night: int) -> str:
    moment = FIRST + timedelta(days=night)
    return f"backfill-scheduled__{moment:%Y-%m-%dT%H-%M-%S}-00-00-{night:08x}"


@pytest.fixture
def nights() -> Nights:
    return Nights()


def test_only_the_newest_that_failed_stay_and_what_they_held_expires(nights: Nights) -> None:
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 2)]
    assert nights.drop(KEPT_BRANCHES + 2) == failed_branches[:2]
    assert nights.branches() == {*failed_branches[2:]}
    assert nights.drop(KEPT_BRANCHES + 2) == []
    messages = [entry.message for entry in nights.catalog.list_entries(limit=2)]
    assert messages == [f"dropped {name}, which was never promoted" for name in reversed(failed_branches[:2])]


@pytest.mark.slow
def test_what_failed_nights_held_expires(nights: Nights) -> None:
    """Each night fails, beside a live lane; the number of snapshots that are stored comes to a stand."""
    stored_branches = []
    for night in range(20):
        nights.drop(night)
        nights.fails(night)
        published_snapshot = nights.catalog.head().refs.get("published")
        nights.catalog.publish(nights.commit("main"), published_snapshot)
        expire(nights.catalog, Keep(1), nights.now)
        stored_branches.append(len([*nights.store.list("p/manifests/")]))
    assert len(nights.branches()) == KEPT_BRANCHES + 1
    assert max(stored_branches[10:]) == max(stored_branches[:10])
    check_catalog(nights.store, "p")


def test_a_branch_without_an_epoch_goes_too(nights: Nights) -> None:
    empty = nights.fails(0, commits=False)
    for night in range(1, KEPT_BRANCHES + 1):
        nights.fails(night)
    assert nights.drop(KEPT_BRANCHES + 1) == [empty]


def test_branches_that_people_name_and_later_runs_stay(nights: Nights) -> None:
    nights.catalog.fork("backfill-by-hand", nights.first)
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 1)]
    assert nights.drop(KEPT_BRANCHES) == [], "of an attempt that comes late, its own and what is newer are no business"
    assert nights.drop(KEPT_BRANCHES + 1) == failed_branches[:1]
    assert "backfill-by-hand" in nights.branches()


def test_what_a_person_started_and_nobody_promoted_goes_after_two_weeks_by_the_name_of_its_run(nights: Nights) -> None:
    left = f"backfill-manual__2026-05-01T04-00-00-00-00-{5:08x}"
    for name in (left, "backfill-manual__of-mine", f"trial-{5:08x}"):
        nights.catalog.fork(name, nights.first)
    fortnight = UNUSED_TIME.days
    assert nights.drop(fortnight - 1) == []
    assert nights.drop(fortnight + 1) == [left]
    assert nights.branches() == {"backfill-manual__of-mine", f"trial-{5:08x}"}


def test_what_a_person_is_asked_about_stays_until_there_is_an_answer(nights: Nights) -> None:
    by_hand = f"backfill-manual__2026-05-01T04-00-00-00-00-{5:08x}"
    nights.catalog.fork(by_hand, nights.first)
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 2)]
    year = 365
    assert nights.drop(year, awaited_names={by_hand, failed_branches[0]}) == [failed_branches[1]]
    assert {by_hand, failed_branches[0]} <= nights.branches()
    assert nights.drop(year, awaited_names={by_hand}) == [failed_branches[0]]
    assert nights.drop(year) == [by_hand]


def test_people_are_told_how_long_a_branch_stays_as_it_does(nights: Nights) -> None:
    """As its skipped task says it, and the form before."""
    by_hand = f"backfill-manual__2026-05-01T04-00-00-00-00-{5:08x}"
    stays_by_branch = {name: how_long(name) for name in (branch(0), by_hand, "trial")}
    assert stays_by_branch == {
        branch(0): f"until the schedule has {KEPT_BRANCHES} newer ones",
        by_hand: f"until it has not changed for {UNUSED_TIME.days} days",
        "trial": "until it is dropped",
    }
    for name in (by_hand, "trial"):
        nights.catalog.fork(name, nights.first)
    for night in range(KEPT_BRANCHES):
        nights.fails(night)
    assert nights.drop(UNUSED_TIME.days - 1) == []
    nights.fails(UNUSED_TIME.days - 1)
    assert nights.drop(UNUSED_TIME.days + 1) == [branch(0), by_hand]
    assert "trial" in nights.branches()


@pytest.mark.parametrize("action", ["commits", "claims"])
def test_where_something_was_done_of_late_somebody_may_be_at_work(nights: Nights, action: str) -> None:
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 1)]
    nights.now = FIRST + timedelta(days=9) - STILL_TIME / 2
    if action == "commits":
        nights.commit(failed_branches[0])
    else:
        nights.catalog.claim(failed_branches[0], "somebody")
    assert nights.drop(9) == []
    assert nights.drop(10) == failed_branches[:1]


def test_a_run_that_begins_while_it_is_decided_keeps_its_branch(nights: Nights) -> None:
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 1)]
    nights.now = FIRST + timedelta(days=9)
    beginning = _BusyCatalog(
        nights.store, lambda: nights.commit(failed_branches[0], nights.another()), lambda: nights.now
    )
    assert nights.drop(9, beginning) == []
    assert failed_branches[0] in nights.branches()


def test_what_others_do_elsewhere_only_makes_it_look_again(nights: Nights) -> None:
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 1)]
    busy = _BusyCatalog(nights.store, lambda: nights.commit("main", nights.another()), lambda: nights.now)
    assert nights.drop(9, busy) == failed_branches[:1]


def test_who_still_writes_to_what_was_dropped_is_fenced(nights: Nights) -> None:
    failed_branches = [nights.fails(night) for night in range(KEPT_BRANCHES + 1)]
    zombie = nights.another()
    nights.now = FIRST
    claim = zombie.claim(failed_branches[0], "hangs")
    head = zombie.manifest(claim.snapshot_id or "")
    assert nights.drop(9) == failed_branches[:1]
    with pytest.raises(FencedError, match=f"branch {failed_branches[0]} is gone"):
        fields = {"snapshot_id": "late", "epoch": head.epoch + 1, "parent": head.snapshot_id}
        zombie.commit(claim, head.replace(**fields, generation=claim.generation, skips=()))


class _BusyCatalog(Catalog):
    """A catalog beside which something is done once, just before it drops a branch."""

    def __init__(self, store: MemoryStore, action: Callable[[], object], now: Callable[[], datetime]) -> None:
        super().__init__(store, "p", now=now)
        self._action: Callable[[], object] | None = action

    def drop(self, ref: str, message: str = "", *, expected: int | None = None):  # type: ignore[no-untyped-def]
        action, self._action = self._action, None
        if action is not None:
            action()
        return super().drop(ref, message, expected=expected)
