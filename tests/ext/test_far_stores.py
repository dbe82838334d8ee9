"""What is asked of a store over a network is asked at once; of a disk in turn."""

import threading
import uuid

import pytest

from headrace.ext.stores import ObjectNotFoundError, do_all, do_both, folders_in
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store.local import MemoryStore
from tests.snapshots.catalog_helpers import commit_some

WAIT = 20.0
"""Seconds after which a request that should have been made at once with another gives up on it."""


class FarStore(MemoryStore):
    """A store that is asked over a network: requests of a ``meeting`` end once all of them are under way."""

    lists_in_pages = True

    def __init__(self) -> None:
        super().__init__(uuid.uuid4().hex)
        self.meeting: tuple[threading.Barrier, tuple[str, ...]] | None = None

    def meet(self, path: str) -> None:
        if self.meeting is not None and any(part in path for part in self.meeting[1]):
            self.meeting[0].wait(WAIT)

    def read(self, path: str) -> bytes:
        self.meet(path)
        return super().read(path)


def test_two_requests_are_made_at_once() -> None:
    both = threading.Barrier(2)
    assert do_both(FarStore(), lambda: both.wait(WAIT) >= 0, lambda: both.wait(WAIT) >= 0) == (True, True)


def test_the_error_of_the_first_counts_once_both_have_ended() -> None:
    ended_calls: list[str] = []

    def first() -> None:
        ended_calls.append("first")
        raise ValueError("first")

    def second() -> None:
        ended_calls.append("second")
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        do_both(FarStore(), first, second)
    assert sorted(ended_calls) == ["first", "second"]


def test_many_are_made_at_once_and_answered_in_order() -> None:
    all_four = threading.Barrier(4)
    assert do_all(FarStore(), lambda item: (all_four.wait(WAIT), item)[1], [3, 1, 4, 1]) == [3, 1, 4, 1]


def test_no_more_are_under_way_than_are_allowed() -> None:
    under_way, most, lock, three = 0, 0, threading.Lock(), threading.Barrier(3)

    def request(_: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        three.wait(WAIT)
        with lock:
            under_way -= 1

    do_all(FarStore(), request, range(9), at_once=3)
    assert most == 3


def test_a_disk_is_asked_in_turn() -> None:
    thread = threading.get_ident()
    assert do_both(MemoryStore(), threading.get_ident, threading.get_ident) == (thread, thread)
    assert {*do_all(MemoryStore(), lambda _: threading.get_ident(), range(9))} == {thread}


def test_entries_of_a_log_are_read_at_once() -> None:
    store = FarStore()
    catalog = Catalog(store, "p")
    commit_some(catalog, catalog.claim("main", "run"), 6)
    numbers = [f"log/{number:020d}" for number in range(8)]
    store.meeting = threading.Barrier(len(numbers)), tuple(numbers)
    assert [entry.number for entry in catalog.list_entries(limit=8)] == [7, 6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(ObjectNotFoundError):
        store.read("p/log/none.json")


def test_folders_are_found_among_objects() -> None:
    store = MemoryStore()
    for path in ("b/1", "b/c/2", "a", "a.b/3", "ä/4", "z"):
        store.write(path, b"")
    assert folders_in(store) == ["a.b", "b", "ä"]
    assert folders_in(store, "b/") == ["c"]
    assert folders_in(store, "none/") == []
