"""A catalog that looks at its log once: what it goes by, and what it does where others have gone on meanwhile."""

from collections.abc import Callable

import pytest
from catalog_helpers import commit_some, manifest_for

from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import DamagedLogError, FencedError, PublishConflictError, RefusedError
from headrace_snapshots.store import ObjectInfo
from headrace_snapshots.store.local import MemoryStore


@pytest.fixture
def other(memory: MemoryStore) -> Catalog:
    """Somebody else's catalog, with three epochs on main."""
    catalog = Catalog(memory, "p")
    commit_some(catalog, catalog.claim("main", "other"), 3)
    catalog.settle_hint()
    return catalog


@pytest.fixture
def run(memory: MemoryStore, other: Catalog) -> Catalog:
    """A run's catalog, which has looked."""
    catalog = Catalog(memory, "p", looks_once=True)
    assert catalog.head() == other.head()
    return catalog


def test_one_look_answers_every_question_until_something_is_stored(
    memory: MemoryStore, run: Catalog, other: Catalog
) -> None:
    head, requests_before = run.head(), memory.requests.snapshot()
    other.tag("t", head.refs["main"])
    assert (run.head(), run.known_head()) == (head, head)
    run.is_kept(head.refs["main"])
    run.list_entries(limit=1)
    asked_requests = memory.requests.since(requests_before)
    assert asked_requests["list"] <= 2, "those of the tag alone"
    run.claim("main", "run")
    assert "tags/t" in run.head().refs, "an entry follows what others have stored"


def test_a_run_of_one_epoch_lists_the_log_once_for_each_entry(memory: MemoryStore, other: Catalog) -> None:
    requests_before = memory.requests.snapshot()
    run = Catalog(memory, "p", looks_once=True)
    claim = run.claim("main", "run")
    (snapshot,) = commit_some(run, claim, 1)
    run.publish(snapshot, run.head().refs.get("published"))
    run.settle_hint()
    asked_requests = memory.requests.since(requests_before)
    assert (asked_requests["create"], asked_requests["list"]) == (3, 4), "the look, and what follows each entry"
    check_catalog(memory, "p")


@pytest.mark.parametrize("entries", [1, 3, 40])
def test_an_entry_finds_its_place_behind_those_of_others(
    memory: MemoryStore, run: Catalog, other: Catalog, entries: int
) -> None:
    main = other.head().refs["main"]
    for number in range(entries):
        other.tag(f"t{number}", main)
    entry = run.claim("main", "run")
    assert len(run.head().refs) == entries + 1
    commit_some(run, entry, 1)
    check_catalog(memory, "p")


def test_what_stands_against_an_entry_is_looked_at_again(run: Catalog, other: Catalog) -> None:
    main = other.head().refs["main"]
    other.fork("fix", main)
    claim = other.claim("fix", "other")
    (snapshot,) = commit_some(other, claim, 1)
    run.drop("fix")  # it knew of no such branch
    first = other.manifest(main).parent
    assert first is not None
    other.publish(first, None)
    run.publish(main, first)  # nor that anything is published
    with pytest.raises(RefusedError, match="fix"):
        run.drop("fix")
    with pytest.raises(PublishConflictError):
        run.publish(main, snapshot)


def test_a_writer_that_was_replaced_is_fenced(memory: MemoryStore, run: Catalog, other: Catalog) -> None:
    claim = run.claim("main", "run")
    commit_some(other, other.claim("main", "another run"), 2)
    with pytest.raises(FencedError, match="another run"):
        run.commit(claim, manifest_for(run, claim, claim.snapshot_id))
    check_catalog(memory, "p")


def test_an_entry_in_the_place_of_one_that_was_lost_is_told(memory: MemoryStore, run: Catalog, other: Catalog) -> None:
    main, last = other.head().refs["main"], other.head().entry
    other.tag("lost", main)
    other.tag("kept", main)
    memory.delete(f"p/log/{last + 1:020d}.json")
    with pytest.raises(DamagedLogError, match=f"another entry was stored as .*{last + 1:020d}.json and is lost"):
        run.claim("main", "run")


class LettingOthersGoOn(MemoryStore):
    """A store in which something else happens once, right after an object was created."""

    happens: Callable[[], object] | None = None

    def create(self, path: str, data: bytes) -> ObjectInfo:
        info = super().create(path, data)
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return info


@pytest.mark.parametrize("memory", [LettingOthersGoOn("others")], ids=["others"])
def test_an_entry_right_before_that_of_another_is_no_damage(
    memory: LettingOthersGoOn, run: Catalog, other: Catalog
) -> None:
    main = other.head().refs["main"]
    memory.happens = lambda: other.tag("quick", main)
    claim = run.claim("main", "run")
    assert "tags/quick" in run.head().refs
    commit_some(run, claim, 1)
    check_catalog(memory, "p")
