"""The catalog, exhaustively for small bounds: all interleavings of runs, people and upkeep, lost answers and late puts.

The code is the catalog's own. Whoever works with it may stand still anywhere for as long as the others take, or die
there. HEADRACE_INTERLEAVINGS=all takes larger bounds.
"""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import tenacity
from exploring import Explorer, Objects, Program
from interleaved import (
    EMPTY,
    begun_catalog,
    check,
    committer,
    drops,
    expirer,
    folds,
    forks,
    hands_over,
    marked_epochs,
    promoted_epochs,
    promoter,
    published_epochs,
    published_outputs,
    published_since,
    publishes,
    publishes_outputs,
    rolls_back,
    tagger,
    takes_back,
)

from headrace_lab.sizes import set_sizes
from headrace_snapshots import catalog, catalog_reader, expiry, gc_roots
from headrace_snapshots.format.codec import StoredObject
from headrace_snapshots.holds import Marks
from headrace_snapshots.log import CatalogLog, Entry
from headrace_snapshots.protocol import transitions
from headrace_snapshots.store import ObjectExistsError

ALL = os.environ.get("HEADRACE_INTERLEAVINGS") == "all"


class _InTurn:
    """A pool that does one thing after another: what programs ask for comes in one order."""

    def __init__(self, *_: object, **__: object) -> None:
        self.map = map

    def __enter__(self) -> "_InTurn":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run again for each answer, and read some hundred objects a hundred thousand times."""
    read = StoredObject.from_bytes.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(StoredObject, "from_bytes", classmethod(cache(read)))


@pytest.fixture(autouse=True)
def _small_quick_and_quiet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    _read_once(monkeypatch)
    caplog.set_level("ERROR", "headrace_snapshots")
    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)
    for module in (expiry, gc_roots, catalog_reader):
        monkeypatch.setattr(module, "ThreadPoolExecutor", _InTurn)
    with set_sizes(kept_entries=2):
        yield


Case = tuple[tuple[Program, ...], Objects, int, int]
"""Programs, what is stored at first, how many faults, and the least number of states that there are."""

RUN = committer("a", 1, files=True)
ROLLBACK = rolls_back("first-0")
BACK_1 = rolls_back("first-1")
BOTH = publishes_outputs("first-3", {"x": "first-2", "y": "first-1"})
ONE = publishes_outputs("first-3", {"x": "first-2"})
OTHER = publishes_outputs("first-2", {"y": "first-1"})
FIRST = publishes_outputs("first-0", {"z": None})
OF_BOTH = committer("a", 1, outputs=("x", "y"))
CASES: dict[str, Case] = {
    "two first claims, a fault": ((committer("a", 0), committer("b", 0)), EMPTY, 1, 4_000),
    "two runs, a fault": ((committer("a", 2), committer("b", 1)), begun_catalog(), 1, 44_000),
    "a run while the log is folded": ((committer("a", 1), folds("other")), begun_catalog(3), 0, 3_000),
    "a run while another one begins and folds the log": (
        (committer("a", 1), folds("main")),
        begun_catalog(1),
        0,
        4_300,
    ),
    "a run and a rollback, a fault": ((RUN, ROLLBACK), published_epochs(3), 1, 8_000),
    "a run and a promotion, a fault": ((RUN, promoter), published_epochs(3), 1, 4_000),
    "a run and an expiry": ((RUN, expirer("e", 1)), marked_epochs(3), 0, 4_500),
    "a rollback and two expiries": ((ROLLBACK, expirer("e")), published_epochs(3), 0, 1_600),
    "a promotion and two expiries": ((promoter, expirer("e")), published_epochs(3), 0, 3_000),
    "a publish, and a run that folds the log": (
        (publishes("first-2"), folds("main", 1)),
        published_epochs(3),
        0,
        5_900,
    ),
    "a rollback, and a run that folds the log": ((ROLLBACK, folds("main", 1)), published_epochs(3), 0, 17_000),
    "a fork, and a run that folds the log": ((forks("first-2"), folds("main", 1)), published_epochs(3), 0, 6_000),
    "a promotion, and a run that folds the log": ((promoter, folds("main", 1)), published_epochs(3), 0, 3_500),
    "a drop, and a run that folds the log": ((drops("other"), folds("main", 1)), published_epochs(3), 0, 5_600),
    "a promotion that is taken back, and a run, a fault": ((takes_back, RUN), promoted_epochs(3), 1, 8_300),
    "a promotion that is taken back, and two expiries": ((takes_back, expirer("e")), promoted_epochs(3), 0, 1_500),
    "a promotion that is taken back, and a run that folds": (
        (takes_back, folds("main", 1)),
        promoted_epochs(3),
        0,
        100,
    ),
    "a publish of two outputs and a rollback, a fault": ((BOTH, BACK_1), published_outputs(4), 1, 2_000),
    "a publish of two outputs and a promotion, a fault": ((BOTH, promoter), published_outputs(4), 1, 1_800),
    "a publish of two outputs and two expiries": ((BOTH, expirer("e")), published_outputs(4), 0, 6_500),
    "a first publish of an output, and an expiry": ((FIRST, expirer("e", 1)), published_outputs(3, ("z",)), 0, 1_000),
    "final rows and a rollback, a fault": ((hands_over, ROLLBACK), published_epochs(3), 1, 2_000),
    "final rows and a promotion, a fault": ((hands_over, promoter), published_since(3), 1, 1_500),
    "a tag, its end, and two expiries": ((tagger("first-0"), expirer("e")), published_epochs(3), 0, 7_000),
}
LARGER: dict[str, Case] = {
    "two publishes, each of an output, and a rollback": ((ONE, OTHER, BACK_1), published_outputs(4), 0, 44_000),
    "a run while another one goes on and folds the log": (
        (committer("a", 1), folds("main", 1)),
        begun_catalog(1),
        0,
        9_700,
    ),
    "a rollback of two outputs and two expiries": (
        (BACK_1, expirer("e")),
        published_outputs(4),
        0,
        9_000,
    ),
    "a publish of two outputs, and a run that folds": (
        (BOTH, folds("main", 1)),
        published_outputs(4),
        0,
        7_500,
    ),
    "a tag, and a run that folds the log": ((tagger("first-2"), folds("main", 1)), published_epochs(3), 0, 10_000),
    "final rows and two expiries": ((hands_over, expirer("e")), published_epochs(3), 0, 1_500),
    "final rows, and a run that folds": ((hands_over, folds("main", 1)), published_epochs(3), 0, 5_000),
    "two first claims, two faults": ((committer("a", 0), committer("b", 0)), EMPTY, 2, 60_000),
    "a run, and one that begins and folds, a fault": ((committer("a", 1), folds("main")), begun_catalog(1), 1, 88_000),
    "a run, and one that goes on and folds, a fault": (
        (committer("a", 1), folds("main", 1)),
        begun_catalog(1),
        1,
        244_000,
    ),
    "two runs, two faults": ((committer("a", 1), committer("b", 1)), begun_catalog(), 2, 120_000),
    "a run and a run that publishes": (
        (committer("a", 1), committer("b", 1, publishes=True)),
        begun_catalog(1),
        1,
        77_000,
    ),
    "a run, a rollback and a promotion": ((RUN, ROLLBACK, promoter), published_epochs(3), 0, 70_000),
    "a run and a tag, a fault": ((RUN, tagger("first-0")), published_epochs(3), 1, 40_000),
    "a run and two expiries": ((RUN, expirer("e")), published_epochs(3), 0, 23_000),
    "a run, another one, and two expiries": ((RUN, committer("b", 0), expirer("e")), marked_epochs(3), 0, 20_000),
    "a publish of two outputs, a rollback and a promotion": (
        (BOTH, BACK_1, promoter),
        published_outputs(4),
        0,
        120_000,
    ),
    "a publish of two outputs, a rollback and an expiry": (
        (BOTH, BACK_1, expirer("e", 1)),
        published_outputs(4),
        0,
        900_000,
    ),
    "two publishes, each of an output, and a rollback, a fault": (
        (ONE, OTHER, BACK_1),
        published_outputs(4),
        1,
        640_000,
    ),
    "a run, a publish of two outputs and a rollback": ((OF_BOTH, BOTH, BACK_1), published_outputs(4), 0, 350_000),
    "a first publish of an output, and two expiries": ((FIRST, expirer("e")), published_outputs(3, ("z",)), 0, 2_800),
    "two pairs of expiries": ((expirer("e"), expirer("f")), published_epochs(3), 0, 50_000),
    "a rollback and two expiries, a fault": ((ROLLBACK, expirer("e")), published_epochs(3), 1, 5_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *(LARGER if ALL else ())])
def test_every_interleaving(case: str) -> None:
    programs, objects, faults, least = {**CASES, **LARGER}[case]
    assert check(Explorer(programs, objects, faults)) >= least


# What the checks are worth: without a rule of the protocol they fail.


@pytest.mark.slow
def test_a_writer_that_takes_its_own_entry_for_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at the write id, after an answer that was lost."""

    def careless(log: CatalogLog, entry: Entry) -> bool:
        try:
            log._store.create(log._entry_path(entry.number), entry.to_bytes())
        except ObjectExistsError:
            return False
        return True

    monkeypatch.setattr(CatalogLog, "_create", careless)
    with pytest.raises(AssertionError):
        check(Explorer((committer("a", 1), committer("b", 0)), begun_catalog(), 1))


@pytest.mark.slow
def test_a_log_that_is_folded_under_a_writer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at what follows an entry that was just stored."""
    monkeypatch.setattr(CatalogLog, "_newest_entry_after", lambda log, entry: None)
    with pytest.raises(AssertionError):
        check(Explorer((committer("a", 1), folds("other")), begun_catalog(3), 0))


@pytest.mark.slow
def test_a_writer_that_is_told_only_that_it_was_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look whether the branch leads to what it has committed."""
    monkeypatch.setattr(catalog, "has_taken_effect", lambda *_: False)
    with pytest.raises(AssertionError):
        check(Explorer((committer("a", 1), folds("main")), begun_catalog(1), 0))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("that folds the log")])
def test_a_person_who_is_told_of_a_conflict_though_it_counted_is_found(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Without the look whether what was asked for is so."""
    programs, objects, faults, _ = CASES[case]
    monkeypatch.setattr(catalog, "has_taken_effect", lambda *_: False)
    with pytest.raises(AssertionError):
        check(Explorer(programs, objects, faults))


@pytest.mark.parametrize("person", [ROLLBACK, promoter])
def test_a_person_who_goes_below_what_was_handed_over_is_found(
    monkeypatch: pytest.MonkeyPatch, person: Program
) -> None:
    """Without the look at what was handed over."""
    monkeypatch.setattr(transitions, "with_deliveries", lambda head, decision, *_: decision)
    with pytest.raises(AssertionError):
        check(Explorer((hands_over, person), published_since(3), 0))


@pytest.mark.parametrize("person", [tagger("first-0"), ROLLBACK])
def test_a_ref_to_what_is_marked_is_found(monkeypatch: pytest.MonkeyPatch, person: Program) -> None:
    """Without the question whether the mark has it."""
    monkeypatch.setattr(Marks, "is_kept", lambda *_: True)
    with pytest.raises(AssertionError):
        check(Explorer((person, expirer("e", 1)), marked_epochs(3), 0))


@pytest.mark.slow
def test_an_expiry_that_does_not_wait_for_writers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no snapshot names is taken for garbage, though a run may be about to name it."""
    dead = expiry._Expiry._dead_objects

    def hasty(*arguments: Any) -> tuple[dict[str, int], dict[str, int]]:
        free, unknown = dead(*arguments)
        return {**free, **unknown}, {}

    monkeypatch.setattr(expiry._Expiry, "_dead_objects", hasty)
    with pytest.raises(AssertionError):
        check(Explorer((RUN, expirer("e")), published_epochs(3), 0))
