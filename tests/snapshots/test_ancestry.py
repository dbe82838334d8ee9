"""Searches among ancestors: what they find is what walking by parents finds, in far fewer requests."""

import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from catalog_helpers import commit_some
from hypothesis import given
from hypothesis import strategies as st

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import READERS, Link, ancestor_at, common_ancestor, walk_lineage
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest, Skip, skips_after
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store.local import MemoryStore
from tests.manifests import new_manifest

EPOCHS = 2_000
LOGARITHMIC = 2 * math.ceil(math.log2(EPOCHS))
"""Manifests that a search reads at most: two on each level of the trees."""

BEGINNING = new_manifest(
    snapshot_id="0",
    pipeline="p",
    fingerprint="f",
    branch="main",
    epoch=0,
    parent=None,
    generation=0,
    created_at="2026-01-01T00:00:00Z",
    progress={},
)


def child(parent: Manifest, snapshot_id: str) -> Manifest:
    """The epoch after ``parent``."""
    skips = skips_after(Skip(parent.snapshot_id, parent.epoch), parent.skips)
    return parent.replace(snapshot_id=snapshot_id, epoch=parent.epoch + 1, parent=parent.snapshot_id, skips=skips)


def link_of(manifest: Manifest, *, is_broken: bool = False) -> Link:
    problem = BrokenObjectError("cut off") if is_broken else None
    return Link(manifest.snapshot_id, manifest.epoch, manifest.parent, None if is_broken else manifest, problem)


@st.composite
def forests(draw: st.DrawFn) -> dict[str, Link]:
    """Snapshots with one beginning or two, most in long lines; the oldest were written before there were skips, and
    some are broken.
    """
    links_so_far = [BEGINNING]
    first_with_skips = draw(st.integers(0, 40))
    for number in range(1, draw(st.integers(2, 120))):
        if number == 60 and draw(st.booleans()):
            links_so_far.append(BEGINNING.replace(snapshot_id="60"))
            continue
        parent = links_so_far[-1 if draw(st.integers(0, 9)) else draw(st.integers(0, len(links_so_far) - 1))]
        new = child(parent, str(number))
        links_so_far.append(new if new.epoch >= first_with_skips else new.replace(skips=()))
    broken_numbers = draw(st.sets(st.integers(0, len(links_so_far) - 1), max_size=10))
    return {
        each.snapshot_id: link_of(each, is_broken=number in broken_numbers) for number, each in enumerate(links_so_far)
    }


@given(forests(), st.data())
def test_a_search_finds_what_the_walk_by_parents_finds(links: dict[str, Link], data: st.DataObject) -> None:
    one, other = (links[data.draw(st.sampled_from(sorted(links)))] for _ in range(2))
    line = {link.epoch: link.snapshot_id for link in walk_lineage(links.__getitem__, one.snapshot_id)}
    snapshot_ids_beside = [link.snapshot_id for link in walk_lineage(links.__getitem__, other.snapshot_id)]
    for epoch in range(max(line) + 3):
        assert ancestor_at(links.__getitem__, one, epoch) == line.get(epoch)
    ancestor = next((links[each] for each in snapshot_ids_beside if each in line.values()), None)
    assert common_ancestor(links.__getitem__, one, other) == ancestor


def test_skips_are_few_and_each_leads_to_an_ancestor() -> None:
    manifest, ids = BEGINNING, ["0"]
    for number in range(1, EPOCHS):
        manifest = child(manifest, f"s{number}")
        ids.append(manifest.snapshot_id)
        assert len(manifest.skips) <= math.log2(number + 1) + 1
        assert all(newer.epoch > older.epoch for newer, older in pairwise(manifest.skips))
        assert all(ids[skip.epoch] == skip.snapshot_id for skip in manifest.skips)


@pytest.fixture(scope="module")
def long() -> tuple[MemoryStore, list[str]]:
    """A catalog of many epochs on main, and of a branch that left it a hundred epochs ago."""
    store = MemoryStore()
    catalog = Catalog(store, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), EPOCHS)
    catalog.fork("side", ids[-100])
    commit_some(catalog, catalog.claim("side", "run"), 100)
    return store, ids


@pytest.mark.slow
def test_ancestors_cost_a_logarithm(long: tuple[MemoryStore, list[str]]) -> None:
    store, ids = long
    side = Catalog(store, "p").head().refs["side"]
    for epoch in (0, 1, 2, 500, 976, 1023, 1024, 1500, 1899, 1900, 1998, 1999):
        requests_before = store.requests.snapshot()
        newcomer = Catalog(store, "p")
        assert newcomer.is_ancestor(ids[epoch], ids[-1])
        assert not newcomer.is_ancestor(side, ids[epoch])
        assert newcomer.is_ancestor(ids[epoch], side) == (epoch <= EPOCHS - 100)
        assert store.requests.since(requests_before)["get"] <= 2 * LOGARITHMIC + 3, epoch
    requests_before = store.requests.snapshot()
    ancestor = Catalog(store, "p").common_ancestor(side, ids[-1])
    assert ancestor is not None
    assert ancestor.snapshot_id == ids[-100]
    assert store.requests.since(requests_before)["get"] <= 2 * LOGARITHMIC


def test_what_follows_a_snapshot_costs_a_logarithm(long: tuple[MemoryStore, list[str]]) -> None:
    store, ids = long
    side = Catalog(store, "p").head().refs["side"]
    for epoch in (-1, 0, 500, EPOCHS - 101, EPOCHS - 100, EPOCHS - 99, EPOCHS - 1):
        requests_before = store.requests.snapshot()
        newcomer = Catalog(store, "p")
        link = None if epoch < 0 else newcomer.link(ids[epoch])
        successor, side_successor = newcomer.successor(link, ids[-1]), newcomer.successor(link, side)
        assert (None if successor is None else successor.snapshot_id) == next(iter(ids[epoch + 1 :]), None)
        assert (side_successor is None) == (epoch > EPOCHS - 100)
        assert (successor == side_successor) == (epoch < EPOCHS - 100 or successor is side_successor is None)
        assert store.requests.since(requests_before)["get"] <= 2 * LOGARITHMIC + 4, epoch


def test_rollback_and_publish_cost_a_logarithm_of_the_epochs_between(long: tuple[MemoryStore, list[str]]) -> None:
    store, ids = long
    the_log = 9  # the hint, the entry that it names, the last one
    Catalog(store, "p").publish(ids[3], None)
    requests_before = store.requests.snapshot()
    Catalog(store, "p").publish(ids[-1], ids[3])
    Catalog(store, "p").rollback("main", ids[3], "far back")
    assert Catalog(store, "p").head().refs["published"] == ids[3]
    requests = store.requests.since(requests_before)
    assert requests["get"] <= 3 * (LOGARITHMIC + the_log)
    assert requests["create"] == 2
    with pytest.raises(RefusedError, match="not an ancestor"):
        Catalog(store, "p").rollback("main", ids[-1], "forward")


@pytest.mark.parametrize("written_before", [0, 10, 30])
@pytest.mark.parametrize("is_there", [True, False], ids=["broken", "missing"])
def test_what_is_broken_on_the_way_is_passed(memory: MemoryStore, written_before: int, is_there: bool) -> None:
    """``written_before``: so many manifests are as they were written before there were skips."""
    catalog = Catalog(memory, "p")
    claim = catalog.claim("main", "run")
    ids = commit_some(catalog, claim, written_before)
    for snapshot_id in ids:
        path = f"p/manifests/{snapshot_id}.json"
        memory.write(path, catalog.manifest(snapshot_id).replace(skips=()).to_bytes())
    ids += commit_some(Catalog(memory, "p"), claim, 31 - written_before)
    for gone_id in ids[5:26]:
        path = f"p/manifests/{gone_id}.json"
        if is_there:
            memory.write(path, memory.read(path)[:-40])
        else:
            memory.delete(path)
    newcomer = Catalog(memory, "p")
    assert all(newcomer.is_ancestor(each, ids[-1]) for each in (*ids[:5], *ids[26:]))
    assert not newcomer.is_ancestor(ids[-1], ids[3])
    assert [link.epoch for link in newcomer.lineage(ids[-1])] == [*range(30, -1, -1)]
    newcomer.rollback("main", ids[2], "past what is broken")
    assert newcomer.head().refs["main"] == ids[2]


def read_by(store: MemoryStore, action: Callable[[Catalog], object]) -> int:
    """How many objects a newcomer reads for ``action``."""
    requests_before = store.requests.snapshot()
    action(Catalog(store, "p"))
    return store.requests.since(requests_before)["get"]


@pytest.mark.slow
def test_a_whole_line_is_read_by_as_many_requests_as_one_by_one(long: tuple[MemoryStore, list[str]]) -> None:
    store, ids = long
    for end in (None, ids[0], ids[EPOCHS // 2], ids[-2], ids[-1]):
        line = [each.snapshot_id for each in Catalog(store, "p").whole_ancestry(ids[-1], end)]
        assert line == ids[0 if end is None else ids.index(end) + 1 :][::-1]
        one_by_one = read_by(store, lambda catalog, end=end: [*catalog.ancestry(ids[-1], end)])
        at_once = read_by(store, lambda catalog, end=end: catalog.whole_ancestry(ids[-1], end))
        assert at_once <= one_by_one + 1, "until itself"


class CrowdedStore(MemoryStore):
    """A store that answers nobody who reads a manifest, but for the first, until ``least`` wait for it."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self._least, self._all_wait = least, threading.Condition()
        self.waiting = self.most = 0
        self.is_open = True

    def read(self, path: str) -> bytes:
        if "/manifests/" not in path or self.is_open:
            return super().read(path)
        with self._all_wait:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            self._all_wait.notify_all()
            assert self._all_wait.wait_for(lambda: self.most >= self._least, timeout=20), "nobody else reads"
            self.waiting -= 1
        return super().read(path)


def test_a_whole_line_is_read_several_at_once_and_no_more_than_that() -> None:
    store = CrowdedStore(least=4)
    catalog = Catalog(store, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 120)
    newcomer = Catalog(store, "p")
    newcomer.manifest(ids[-1])
    store.is_open = False
    assert [each.snapshot_id for each in newcomer.whole_ancestry(ids[-1])] == ids[::-1]
    assert 4 <= store.most <= READERS


def test_a_whole_line_ends_and_fails_as_the_walk_does(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    claim = catalog.claim("main", "run")
    ids = commit_some(catalog, claim, 20)
    catalog.tag("kept", ids[3])
    catalog.publish(ids[-1], None)
    for _ in range(2):
        expire(catalog, Keep(5), datetime(2026, 2, 1, tzinfo=UTC))
    line = [each.snapshot_id for each in Catalog(memory, "p").whole_ancestry(ids[-1])]
    assert line == [*ids[:14:-1], ids[3]] == [each.snapshot_id for each in Catalog(memory, "p").ancestry(ids[-1])]
    with pytest.raises(RefusedError, match="is not an ancestor"):
        Catalog(memory, "p").whole_ancestry(ids[3], until=ids[-1])
    path = f"p/manifests/{ids[17]}.json"
    memory.write(path, memory.read(path)[:-9])
    with pytest.raises(BrokenObjectError, match=path):
        Catalog(memory, "p").whole_ancestry(ids[-1])
