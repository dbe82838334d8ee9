"""What a run that looks at the log once must not go by an old look for: each of these was shown by a review."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from catalog_helpers import commit_some, manifest_for

from headrace.pipeline.validation import UpstreamCycleError
from headrace.read.lineage.cut import consistent_cut
from headrace.runs.plan import MoveBack
from headrace.runs.recovery_target import move_back
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.summary import keep_result, read_summary, renew_summary
from headrace.runs.restore import BelowPublishedError, restore_head
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest, Patch
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store.local import MemoryStore

MONTH_LATER = datetime(2030, 2, 1, tzinfo=UTC)
WHEN = "2026-01-01T00:00:00Z"

both = pytest.mark.parametrize("looks_once", [False, True])


def begin_catalog(memory: MemoryStore, epochs: int, publish: tuple[int, ...] = ()) -> tuple[Catalog, list[str]]:
    """Somebody else's catalog with so many epochs on main, of which some were published, one after the other."""
    other = Catalog(memory, "p")
    ids = commit_some(other, other.claim("main", "other"), epochs)
    published_snapshot: str | None = None
    for epoch in publish:
        other.publish(ids[epoch], published_snapshot)
        published_snapshot = ids[epoch]
    other.settle_hint()
    return other, ids


def run_expiries(memory: MemoryStore, keep: int, times: int = 1) -> None:
    for _ in range(times):
        expire(Catalog(memory, "p"), Keep(keep), MONTH_LATER)


def catalog_after_look(memory: MemoryStore, *, looks_once: bool) -> Catalog:
    """A run's catalog, which has looked."""
    run = Catalog(memory, "p", looks_once=looks_once)
    run.head()
    return run


@both
@pytest.mark.parametrize("walk", [Catalog.ancestry, Catalog.whole_ancestry])
def test_a_line_is_walked_past_what_expires_meanwhile(
    memory: MemoryStore, looks_once: bool, walk: Callable[[Catalog, str], Iterator[Any]]
) -> None:
    other, ids = begin_catalog(memory, 20, publish=(19,))
    other.tag("old", ids[2])
    run = catalog_after_look(memory, looks_once=looks_once)
    run_expiries(memory, 5, times=3)
    snapshot_ids = [manifest.snapshot_id for manifest in walk(run, ids[-1])]
    assert snapshot_ids == [manifest.snapshot_id for manifest in walk(Catalog(memory, "p"), ids[-1])]


@pytest.fixture
def stale_run(memory: MemoryStore, looks_once: bool) -> tuple[Catalog, list[str]]:
    """A run that has looked before the mark that it knows was deleted, and the ids of snapshots."""
    other, ids = begin_catalog(memory, 20, publish=(3, 15, 19))
    run_expiries(memory, 12)
    run = catalog_after_look(memory, looks_once=looks_once)
    commit_some(other, other.claim("main", "others"), 2)
    run_expiries(memory, 12, times=3)
    return run, ids


@both
def test_a_mark_that_is_gone_makes_a_question_look_again(stale_run: tuple[Catalog, list[str]]) -> None:
    run, ids = stale_run
    assert run.is_kept(ids[17])


@both
def test_a_rehearsal_of_a_rollback_goes_by_the_newest_mark(stale_run: tuple[Catalog, list[str]]) -> None:
    run, ids = stale_run
    assert run.would_roll_back("main", ids[17])["main"][1] == ids[17]


@both
def test_a_rollback_takes_readers_to_what_the_newest_mark_keeps(stale_run: tuple[Catalog, list[str]]) -> None:
    run, ids = stale_run
    assert run.rollback("main", ids[17], "back").refs["published"] == ids[15]


@both
def test_a_broken_entry_in_the_middle_ends_no_run(memory: MemoryStore, looks_once: bool) -> None:
    other, ids = begin_catalog(memory, 3)
    run = catalog_after_look(memory, looks_once=looks_once)
    number = run.head().entry
    for name in ("a", "b"):
        other.tag(name, ids[0])
    memory.write(f"p/log/{number + 1:020d}.json", b"{")
    assert run.claim("main", "run").snapshot_id == ids[-1]
    assert {"tags/a", "tags/b"} < run.head().refs.keys()


class SlowListing(MemoryStore):
    """A store whose listings are held back in the thread ``reader`` once they have been made."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.reader: threading.Thread | None = None
        self.listing, self.go_on = threading.Event(), threading.Event()

    def list(self, prefix: str, start_after: str = "") -> Iterator[Any]:
        infos = [*super().list(prefix, start_after)]
        if threading.current_thread() is self.reader:
            self.listing.set()
            assert self.go_on.wait(60)
        return iter(infos)


def test_no_thread_makes_the_log_older_than_what_another_has_stored() -> None:
    memory = SlowListing()
    begin_catalog(memory, 3)
    run = Catalog(memory, "p", looks_once=True)
    claim = run.claim("main", "run")
    run.look_again()
    memory.reader = reader = threading.Thread(target=run.head)
    reader.start()
    assert memory.listing.wait(60)
    committed_snapshots = commit_some(run, claim, 2)
    memory.go_on.set()
    reader.join()
    assert run.head().refs["main"] == committed_snapshots[-1]


@pytest.mark.parametrize("order", ["cab", "abc", "bca"])
def test_a_circle_beside_others_is_named(order: str) -> None:
    reads: dict[str, list[str]] = {"c": [], "a": ["b", "c"], "b": ["a"]}
    with pytest.raises(UpstreamCycleError, match=r"a reads b reads a|b reads a reads b"):
        consistent_cut([*order], lambda names: [reads[name] for name in names], lambda upstream: upstream)


@both
def test_a_patch_that_comes_while_a_recovery_is_planned_is_told(memory: MemoryStore, looks_once: bool) -> None:
    other, ids = begin_catalog(memory, 3)
    run = catalog_after_look(memory, looks_once=looks_once)
    stage = MoveBack("main", ids[0], run.head().refs["main"], "recovery r")
    manifest = manifest_for(other, other.claim("main", "patch"), ids[-1]).replace(patch=Patch(3, "fix", ids[2]))
    other.commit(other.claim("main", "patch"), manifest.replace(generation=other.head().entry))
    outcome = move_back(run, stage, give_up_delivered=False)
    assert outcome.given_up == manifest.snapshot_id
    assert other.list_entries(limit=1)[0].detail["patches"]
    assert any("patch of epoch 3" in warning for warning in outcome.warnings)


@both
def test_a_fall_back_takes_no_readers_back_who_came_meanwhile(memory: MemoryStore, looks_once: bool) -> None:
    other, ids = begin_catalog(memory, 3, publish=(1,))
    run = Catalog(memory, "p", looks_once=looks_once)
    claim = run.claim("main", "run")

    def read_progress(manifest: Manifest) -> None:
        if manifest.snapshot_id == ids[2]:
            if other.head().refs["published"] == ids[1]:  # by the task of the run before, which nothing fences
                other.publish(ids[2], ids[1])
            raise BrokenObjectError("file x is broken")

    with pytest.raises(BelowPublishedError, match="file x is broken"):
        restore_head(run, claim, lambda manifest: manifest, lambda *_: None, lambda *_: [], progress=read_progress)
    assert other.head().refs["published"] == ids[2]


@both
def test_a_run_that_stores_nothing_writes_no_older_summary(memory: MemoryStore, looks_once: bool) -> None:
    other, ids = begin_catalog(memory, 3, publish=(0,))
    run = catalog_after_look(memory, looks_once=looks_once)
    other.publish(ids[2], ids[0])
    renew_summary(other)
    keep_result(run, RunResult("r", "p", "audit", "succeeded", WHEN, WHEN))
    summary = read_summary(memory, "p")
    assert summary is not None
    assert summary.entry == other.head().entry
