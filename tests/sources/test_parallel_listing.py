"""A listing by many requests at once is the listing of one after the other, however names lie."""

import random
import threading
from collections.abc import Iterator
from itertools import islice
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RetryError
from headrace.ext.sources import SourceSplit
from headrace.ext.stores import RequestCounts, sort_key
from headrace.sources import parallel_listing
from headrace.sources.file_planning import inputs_of, listed_inputs, missing_splits
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import ObjectInfo, ObjectStore, open_store
from headrace_snapshots.store.local import MemoryStore
from tests.minio_bucket import BUCKET
from tests.reference.strategies import examples


class ListedStore(MemoryStore):
    """A bucket with names that this package would not put, as others do, in pages."""

    lists_in_pages = True

    def __init__(self, names: set[str]) -> None:
        self.uri, self.requests = "listed://", RequestCounts()
        self._names = sorted(names, key=sort_key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self.requests.add("list")
        start_key = sort_key(start_after)
        return (ObjectInfo(one, 0, "e") for one in self._names if one.startswith(prefix) and sort_key(one) > start_key)


LETTERS = st.sampled_from("0129aAzZ/~ -.=%+&ä\ud7ff\ue000🚰\U0010ffff")
ANY = st.text(LETTERS, min_size=1, max_size=6)
SKEWED_NAMES = st.builds(
    "year=2026/{}{}".format, st.sampled_from(["", "a", "z/"]), st.text("01", min_size=4, max_size=7)
)
NAMES = st.sets(st.one_of(ANY, SKEWED_NAMES), max_size=120)


@pytest.fixture(scope="module", autouse=True)
def small_pages() -> Iterator[None]:
    """So that few names are many pages."""
    with set_sizes(
        listing_page=3,
        listing_requests=4,
        listing_pages_ahead=3,
        listing_pages_before_cut=1,
        listing_few_sought=4,
    ):
        yield


@examples(400)
@given(NAMES, st.lists(ANY, max_size=4), st.one_of(st.just(""), ANY))
def test_the_order_and_the_names_are_those_of_one_listing(names: set[str], bounds: list[str], start: str) -> None:
    store = ListedStore({f"landing/{name}" for name in names} | {"landing", "landing.json", "landing0", "other/a"})
    start, bounds = start and f"landing/{start}", sorted((f"landing/{name}" for name in bounds), key=sort_key)
    listed_objects = [*parallel_listing.listed_in_parallel(store, "landing/", start, bounds)]
    assert listed_objects == [*store.list("landing/", start)]


@examples(100)
@given(NAMES, st.sets(ANY, max_size=12), st.randoms(use_true_random=False))
def test_names_that_are_sought_are_found(names: set[str], others: set[str], order: random.Random) -> None:
    store = ListedStore({f"landing/{name}" for name in names})
    some = order.sample(sorted(names), len(names) // 2)
    inputs_there = inputs_of(store, "landing", {f"landing/{name}" for name in (*some, *others)})
    assert inputs_there.keys() == {f"landing/{name}" for name in (*some, *(others & names))}
    assert store.requests.snapshot()["list"] <= len(some) + len(others) + len(names) // 3 + 1


class Meeting(ListedStore):
    """A request waits a moment for another to be under way; ``meeting_count`` is how many had not to wait in vain."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(names)
        self._under_way, self._has_come, self.meeting_count = 0, threading.Condition(), 0

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._has_come:
            self._under_way += 1
            self._has_come.notify_all()
            self.meeting_count += self._has_come.wait_for(lambda: self._under_way > 1, 0.005)
        yield from super().list(prefix, start_after)
        with self._has_come:
            self._under_way -= 1


LAYOUTS = {
    "flat": [f"landing/part-{number:05}.json" for number in range(900)],
    "uuid": [f"landing/{UUID(int=random.Random(number).getrandbits(128))}" for number in range(900)],
    "one folder has most": [f"landing/{'b/c' if number % 90 else f'a{number}'}/{number:05}" for number in range(900)],
    "deep": [f"landing/{'/'.join(f'{number:06}')}" for number in range(900)],
    "other letters": [f"landing/straße={chr(0x4E00 + number)}/ü.json" for number in range(900)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@set_sizes(listing_pages_ahead=100, listing_pages_before_cut=8)
def test_requests_are_under_way_together_whatever_the_layout(layout: str) -> None:
    names = LAYOUTS[layout]
    store = Meeting({*names})
    assert [info.path for info in listed_inputs(store, "landing", ())] == sorted(names, key=sort_key)
    assert store.meeting_count > 150  # of 300 pages
    assert store.requests.snapshot()["list"] < 450


@set_sizes(listing_pages_before_cut=8)
def test_who_stops_reading_stops_the_requests_and_they_do_not_run_away() -> None:
    store = ListedStore({*LAYOUTS["uuid"]})
    listing = listed_inputs(store, "landing", ())
    assert len([*islice(listing, 20)]) == 20
    listing.close()  # type: ignore[attr-defined]
    assert store.requests.snapshot()["list"] < 60
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("listing")]


@pytest.mark.parametrize("number", [0, 1, 7, 40, 150])
def test_the_error_of_one_request_is_raised(number: int) -> None:
    class Breaks(ListedStore):
        def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
            if self.requests.snapshot()["list"] >= number:
                raise RetryError("no page")
            return super().list(prefix, start_after)

    store = Breaks({*LAYOUTS["flat"]})
    with pytest.raises(RetryError, match="no page"):
        [*listed_inputs(store, "landing", ())]


@pytest.fixture(scope="module")
def bucket(minio: str) -> ObjectStore:
    """Names of many kinds on a real server, which keeps none with an empty part."""
    store = open_store(f"s3://{BUCKET}/parallel")
    draw = random.Random(20261128)
    letters = "0129aAzZ~ -.=%+&äß\ue000🚰"
    names = {
        *(f"landing/{''.join(draw.choices(letters, k=draw.randint(1, 5)))}x" for _ in range(60)),
        *(f"landing/skew/{number:04}" for number in range(60)),
        *(f"landing/{draw.choice('ab')}/{draw.choice('0~ -%ä🚰')}/{number}.json" for number in range(30)),
        "landing.json",
        "landing/skew.json",
        "landing/skew-/a",
    }
    for name in names:
        store.write(name, b"x")
    return store


def test_on_a_server_too(bucket: ObjectStore) -> None:
    whole = [*bucket.list("landing/")]
    assert [info.path for info in whole] == sorted((info.path for info in whole), key=sort_key)
    assert len(whole) > 140
    draw = random.Random(7)
    for _ in range(5):
        small = set_sizes(listing_requests=draw.randint(1, 8), listing_page=draw.randint(4, 30))
        bounds = sorted((info.path for info in draw.sample(whole, draw.choice([0, 0, 2]))), key=sort_key)
        choice_after = draw.choice(["", draw.choice(whole).path])
        with small:
            listed_objects = [*parallel_listing.listed_in_parallel(bucket, "landing/", choice_after, bounds)]
        assert listed_objects == [info for info in whole if sort_key(info.path) > sort_key(choice_after)]


def test_files_that_are_gone_are_named_by_requests_for_their_names(bucket: ObjectStore) -> None:
    read = [SourceSplit(info.path, info.size, info.etag) for info in bucket.list("landing/")]
    lost_source_splits = [SourceSplit(f"landing/{name}", 1, "e") for name in ("skew/0007x", "ä/gone", "zzz")]
    assert [*missing_splits(bucket, "landing", [*read[::9], *lost_source_splits])] == [
        (split, "is gone") for split in lost_source_splits
    ]
