"""The commit protocol, exhaustively for small bounds: all interleavings of two writers, lost answers and late puts.

The code is the catalog's own. A writer may stand still anywhere for as long as the other takes, or die there.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import pytest
import tenacity
from catalog_helpers import commit_some, manifest_for
from exploring import Explorer, Objects, Program, stored

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import FencedError, PublishConflictError, RefusedError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.log import CatalogLog
from headrace_snapshots.protocol import Horizon, Kind
from headrace_snapshots.store import (
    MemoryStore,
    ObjectExistsError,
    ObjectStore,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from headrace_snapshots.testing import violations

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Said:
    """What a writer knows of what it did to ``snapshot``: ``done`` as entry ``number``, ``failed``, or ``unknown``."""

    outcome: str
    snapshot: str
    number: int = -1


def catalog_over(store: ObjectStore, writer: str) -> Catalog:
    """A catalog whose ids are the same each time."""
    numbers = count()
    return Catalog(store, "p", now=lambda: WHEN, new_id=lambda: f"{writer}{next(numbers)}")


def attempt(say: Callable[[Hashable], None], snapshot: str, action: Callable[[], Entry]) -> bool:
    try:
        say(Said("done", snapshot, action().number))
    except UnknownOutcomeError:
        say(Said("unknown", snapshot))
        return False
    except (FencedError, StoreUnavailableError, PublishConflictError, RefusedError):
        say(Said("failed", snapshot))
        return False
    return True


def committer(writer: str, epochs: int, *, publishes: bool = False) -> Program:
    """A run: it claims main, commits so many epochs, and publishes what it committed."""

    def program(store: ObjectStore, say: Callable[[Hashable], None]) -> None:
        catalog = catalog_over(store, writer)
        try:
            claim = catalog.claim("main", writer)
        except (StoreUnavailableError, UnknownOutcomeError):
            return
        parent, published = claim.snapshot_id, catalog.head().refs.get("published") if publishes else None
        for number in range(epochs):
            manifest = manifest_for(catalog, claim, parent, f"{writer}-{number}")
            if not attempt(say, manifest.snapshot_id, lambda made=manifest: catalog.commit(claim, made)):
                return
            parent = manifest.snapshot_id
        if publishes and parent is not None:
            attempt(say, f"published {parent}", lambda: catalog.publish(parent, published))

    return program


def expirer(store: ObjectStore, say: Callable[[Hashable], None]) -> None:
    """Appends an entry, gives up all of the log but what says so, and deletes it."""
    catalog = catalog_over(store, "expirer")
    try:
        catalog.claim("other", "expirer")
    except (StoreUnavailableError, UnknownOutcomeError):
        return
    head = catalog.head()
    horizon = Horizon("nothing", folded=head.entry + 1)
    if attempt(say, "", lambda: catalog.expire(head.entry, horizon, tags=(), idle=(), message="expired")):
        catalog.fold()


def begun(epochs: int = 0) -> Objects:
    """A catalog that has begun, with so many epochs on main."""
    store = MemoryStore()
    catalog = catalog_over(store, "first")
    commit_some(catalog, catalog.claim("main", "first"), epochs)
    return frozenset((info.path, store.read(info.path)) for info in store.list(""))


@dataclass(frozen=True)
class Found:
    """What the store leads to. ``numbers``: of the entries that count, by what they committed or published."""

    base: int
    numbers: Mapping[str, int]
    main: frozenset[str]

    @classmethod
    def at(cls, objects: Objects) -> "Found":
        """Raises AssertionError for what must not be."""
        store = stored(objects)
        assert list(violations(store, "p")) == []
        catalog = Catalog(store, "p")
        head = catalog.head()
        main = frozenset(link.snapshot_id for link in catalog.lineage(head.refs["main"])) if "main" in head.refs else ()
        counting = [entry for entry in catalog.entries() if entry.number >= head.base]
        numbers = {entry.refs["main"]: entry.number for entry in counting if entry.kind is Kind.COMMIT}
        published = {
            f"published {entry.refs['published']}": entry.number for entry in counting if entry.kind is Kind.PUBLISH
        }
        return cls(head.base, {**numbers, **published}, frozenset(main))

    def has(self, one: Said) -> bool:
        """Whether it is there, as that entry, unless that was folded away."""
        if one.number < self.base:
            return one.snapshot in self.main or one.snapshot.startswith("published") or not one.snapshot
        return self.numbers.get(one.snapshot) == one.number or not one.snapshot


def check(explorer: Explorer) -> int:
    """What holds in each state; how many there are.

    Nobody was told of what is not there, or that something failed which is there. No number was given twice. (Only a
    writer that stood still while its entry was folded away may be told that it was fenced, though its epoch counts.)
    """
    known: dict[Objects, Found] = {}
    states = 0
    for state in explorer.states():
        states += 1
        if state.objects not in known:
            known[state.objects] = Found.at(state.objects)
        found = known[state.objects]
        said = [one for asked in explorer.asked(state) for one in asked.said if isinstance(one, Said)]
        done = [one for one in said if one.outcome == "done"]
        assert all(found.has(one) for one in done), (done, found)
        assert not [one for one in said if one.outcome == "failed" and one.snapshot in found.numbers]
        assert len({one.number for one in done}) == len(done)
    return states


@pytest.fixture(autouse=True)
def _quick_and_quiet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", "headrace_snapshots.log")
    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)


EMPTY: Objects = frozenset()
# Programs, what is stored at first, how many faults, and the least number of states that there are.
CASES: dict[str, tuple[tuple[Program, ...], Objects, int, int]] = {
    "two first claims, two faults": ((committer("a", 0), committer("b", 0)), EMPTY, 2, 60_000),
    "two runs, a fault": ((committer("a", 2), committer("b", 1)), begun(), 1, 50_000),
    "two runs, two faults": ((committer("a", 1), committer("b", 1)), begun(), 2, 150_000),
    "a run and a run that publishes": ((committer("a", 1), committer("b", 1, publishes=True)), begun(1), 1, 100_000),
    "a run while the log is folded": ((committer("a", 1), expirer), begun(3), 0, 3_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_interleaving(case: str) -> None:
    programs, objects, faults, least = CASES[case]
    assert check(Explorer(programs, objects, faults)) >= least


def test_a_writer_that_takes_its_own_entry_for_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checks are worth: without the look at the write id, after an answer that was lost, they fail."""

    def careless(log: CatalogLog, entry: Entry) -> bool:
        try:
            log._store.create(log._path(entry.number), entry.to_bytes())
        except ObjectExistsError:
            return False
        return True

    monkeypatch.setattr(CatalogLog, "_create", careless)
    with pytest.raises(AssertionError):
        check(Explorer((committer("a", 1), committer("b", 0)), begun(), 1))


def test_a_log_that_is_folded_under_a_writer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, without the look at what follows an entry that was just stored."""
    monkeypatch.setattr(CatalogLog, "_is_void", lambda log, entry: False)
    with pytest.raises(AssertionError):
        check(Explorer((committer("a", 1), expirer), begun(3), 0))
