"""What readers in other pipelines hold is kept, on main without gaps, and where main has gone back, too."""

import json
from datetime import UTC, datetime

import pytest
from catalog_helpers import commit_some

from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import Expired, expire
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.fsck import fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.holds import ReaderHold, drop_holds, read_holds
from headrace_snapshots.names import ObjectKind, kind_of
from headrace_snapshots.store.local import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READER = ReaderHold("file:///elsewhere", "daily", "source", "", ())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def catalog(store: MemoryStore) -> Catalog:
    return Catalog(store, "p")


@pytest.fixture
def ids(catalog: Catalog) -> list[str]:
    """Six epochs of main, of which the last is published."""
    ids = commit_some(catalog, catalog.claim("main", "test"), 6)
    catalog.publish(ids[-1], None)
    return ids


def hold_snapshots(store: MemoryStore, *snapshots: str, reader: str = "daily") -> None:
    ReaderHold("file:///elsewhere", reader, "source", "", snapshots).put(store, "p")


def swept(catalog: Catalog) -> Expired:
    """Three expiries that keep the newest, each after a run, so that nothing waits for a writer."""
    for _ in range(3):
        catalog.claim("main", "test")
        expiry = expire(catalog, Keep(1), NOW)
    return expiry


def far_behind(catalog: Catalog) -> list[tuple[str, int, str | None]]:
    """Who is far behind after such expiries, how many snapshots are unread, and when the first of them came."""
    return [(one.name, one.unread, one.since) for one in swept(catalog).behind]


def creation_time(catalog: Catalog, snapshot: str) -> str:
    return datetime.fromisoformat(catalog.manifest(snapshot).created_at).isoformat(timespec="seconds")


def manifest_ids(catalog: Catalog) -> set[str]:
    return {info.path.rpartition("/")[2].removesuffix(".json") for info in catalog.store.list("p/manifests/")}


def test_main_is_kept_from_the_oldest_that_is_held(store: MemoryStore, catalog: Catalog, ids: list[str]) -> None:
    hold_snapshots(store, ids[2], ids[4])
    hold_snapshots(store, ids[5], reader="other")
    expiry = swept(catalog)
    assert manifest_ids(catalog) == {*ids[2:]}
    assert (expiry.kept, expiry.first_epoch, expiry.readers) == (4, 2, ("daily.source",))
    assert not fsck(catalog).problems
    check_catalog(store, "p")
    hold_snapshots(store, ids[4])
    assert swept(catalog).readers == ("daily.source",)
    assert manifest_ids(catalog) == {*ids[4:]}
    assert drop_holds(store, "p", "daily") == ["daily.source"]
    assert (swept(catalog).readers, manifest_ids(catalog)) == ((), {ids[5]})


def test_who_has_read_what_is_published_is_not_behind_however_much_is_kept_for_it(
    store: MemoryStore, catalog: Catalog, ids: list[str]
) -> None:
    hold_snapshots(store, *ids)
    hold_snapshots(store, ids[0], ids[2], reader="other")
    hold_snapshots(store, ids[1], reader="third")
    expiry = swept(catalog)
    assert (expiry.kept, expiry.readers) == (6, ("daily.source", "other.source", "third.source"))
    times = [creation_time(catalog, ids[number]) for number in (2, 3)]
    assert far_behind(catalog) == [("third.source", 4, times[0]), ("other.source", 3, times[1])]
    assert json.loads(json.dumps(expiry.to_json()))["behind"][0] == {
        "name": "third.source", "unread": 4, "since": times[0],
    }  # fmt: skip
    catalog.claim("main", "test")
    assert expire(catalog, Keep(4), NOW).behind == expiry.behind[:1]  # the rule keeps what the other one has read


def test_what_is_not_published_yet_is_not_unread(store: MemoryStore, catalog: Catalog, ids: list[str]) -> None:
    hold_snapshots(store, ids[4])
    commit_some(catalog, catalog.claim("main", "test"), 2)
    assert far_behind(catalog) == [("daily.source", 1, creation_time(catalog, ids[5]))]


def test_what_main_has_left_is_kept_as_long_as_it_is_held(store: MemoryStore, catalog: Catalog, ids: list[str]) -> None:
    hold_snapshots(store, ids[4])
    catalog.release(ids[1], "looked at", [""])
    catalog.rollback("main", ids[1], "test")
    more = commit_some(catalog, catalog.claim("main", "test"), 1)
    catalog.publish(more[0], ids[1])
    assert far_behind(catalog) == [("daily.source", 1, creation_time(catalog, more[0]))]
    assert swept(catalog).readers == ("daily.source",)
    assert manifest_ids(catalog) == {ids[4], *more}
    assert (catalog.is_kept(ids[4]), catalog.is_ancestor(ids[4], more[0])) == (True, False)
    check_catalog(store, "p")
    drop_holds(store, "p", "daily.source")
    swept(catalog)
    assert manifest_ids(catalog) == {*more}


def test_who_has_only_to_take_back_what_main_has_left_is_behind_by_nothing_new(
    store: MemoryStore, catalog: Catalog, ids: list[str]
) -> None:
    hold_snapshots(store, ids[4])
    catalog.release(ids[1], "looked at", [""])
    catalog.rollback("main", ids[1], "test")
    assert far_behind(catalog) == [("daily.source", 0, None)]


def test_a_hold_that_comes_after_the_mark_is_seen_by_the_sweep(
    store: MemoryStore, catalog: Catalog, ids: list[str]
) -> None:
    expire(catalog, Keep(1), NOW)
    hold_snapshots(store, ids[3])
    catalog.claim("main", "test")
    expire(catalog, Keep(1), NOW)
    assert ids[3] in manifest_ids(catalog)
    assert ids[2] not in manifest_ids(catalog)


def test_what_is_gone_is_held_for_nothing(store: MemoryStore, catalog: Catalog, ids: list[str]) -> None:
    swept(catalog)
    hold_snapshots(store, ids[0], "0123456789abcdef")
    assert swept(catalog).kept == 1


@pytest.mark.parametrize("damage", [b"{", b"{}", b'{"format": 1, "sha256": "x"}'])
def test_nothing_expires_while_nobody_knows_what_is_held(
    store: MemoryStore, catalog: Catalog, ids: list[str], damage: bytes
) -> None:
    hold_snapshots(store, ids[0])
    (path,) = (info.path for info in store.list("p/readers/"))
    assert kind_of("p", path) is ObjectKind.READERS
    store.write(path, damage)
    with pytest.raises(BrokenObjectError, match=r"p/readers/daily-.*in which daily says what it needs of p, cannot be"):
        expire(catalog, Keep(1), NOW)
    assert manifest_ids(catalog) == {*ids}


def test_a_hold_says_who_needs_what(store: MemoryStore, ids: list[str]) -> None:
    hold_snapshots(store, ids[1])
    (path,) = (info.path for info in store.list("p/readers/"))
    document = json.loads(store.read(path))
    assert {name: document[name] for name in document if name != "sha256"} == {
        "format": 1, "kind": "reader", "root": "file:///elsewhere", "pipeline": "daily", "input": "source",
        "output": "", "snapshots": [ids[1]],
    }  # fmt: skip
    assert read_holds(store, "p") == [ReaderHold("file:///elsewhere", "daily", "source", "", (ids[1],))]
    hold_snapshots(store, ids[2], reader="other")
    assert [hold.pipeline for hold in read_holds(store, "p")] == ["daily", "other"]
