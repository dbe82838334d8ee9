"""Landed objects that are broken, deleted, older than they were, or swapped: nothing wrong is counted, fsck says so,
and what it advises works.
"""

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import product

import pytest

from headrace.errors import FixDataError, RestoreError
from headrace.ext.sources import SplitGoneError
from headrace.runs.client.handle import PipelineHandle
from headrace.sources.landed.ranges import LandedDamagedError
from headrace.sources.landing import Landing
from headrace.testing.connectors.worlds import records
from headrace_snapshots.format.codec import encode_object
from headrace_snapshots.store import ObjectStore
from tests.sources.test_conformance import OutboxWorld, counting, daily, kept_outbox, outbox
from tests.sources.test_landed import LANDED_FOLDER, handle, root, store

__all__ = ["daily", "handle", "outbox", "root", "store"]


def total(handle: PipelineHandle) -> int:
    return sum(row["n"] for row in handle.read("current", at="main").to_json())


def path_of(store: ObjectStore, what: str, number: int, landed_text: str = LANDED_FOLDER) -> str:
    """The claim, the seal, or the first file of a range."""
    if what == "file":
        return min(info.path for info in store.list(f"{landed_text}{number:020d}-"))
    return f"{landed_text}_ranges/{number:020d}{'.seal' if what == 'seal' else ''}.json"


def delete_object(store: ObjectStore, what: str, number: int) -> None:
    store.delete(path_of(store, what, number))


def cut_object(store: ObjectStore, what: str, number: int) -> None:
    path = path_of(store, what, number)
    data = store.read(path)
    store.write(path, data[: len(data) // 2])


def alter_object(store: ObjectStore, what: str, number: int) -> None:
    """As long as it was."""
    path = path_of(store, what, number)
    data = bytearray(store.read(path))
    data[len(data) // 2] ^= 1
    store.write(path, bytes(data))


def older(store: ObjectStore, what: str, number: int) -> None:
    """What a range before it had."""
    store.write(path_of(store, what, number), store.read(path_of(store, what, 0)))


def swap_objects(store: ObjectStore, what: str, number: int) -> None:
    path, other_path = path_of(store, what, number), path_of(store, what, 3 - number)
    mine, other = store.read(path), store.read(other_path)
    store.write(path, other)
    store.write(other_path, mine)


def without_seals(store: ObjectStore) -> None:
    """As 0.1.2 landed it."""
    for info in [*store.list(f"{LANDED_FOLDER}_ranges/")]:
        if info.path.endswith(".seal.json"):
            store.delete(info.path)
        else:
            claim = json.loads(store.read(info.path))["content"]
            store.write(
                info.path, encode_object("landed_range", {k: claim[k] for k in ("number", "splits", "after", "landed")})
            )


def follow(handle: PipelineHandle, store: ObjectStore, landed_text: str = LANDED_FOLDER) -> None:
    """Do what fsck advises."""
    handle.fsck(repair=True)
    remedies = " ".join(problem.remedy for problem in handle.fsck(deep=True).damage)
    if match := re.search(r"rollback \w+ --to (\w+)", remedies):
        handle.rollback(to=match[1], message="as fsck says")
    numbers = [int(number) for number in re.findall(r"of range (\d+) and later", remedies)]
    for info in [*store.list(landed_text)] if numbers else ():
        number_match = re.search(r"/(\d{20})[-.]", info.path)
        if number_match is not None and int(number_match[1]) >= min(numbers):
            store.delete(info.path)


@dataclass(frozen=True)
class Case:
    """A ``damage`` of ``what`` range ``number`` has; main ``is_read`` up to it or not; ``is_old``: it has no seal."""

    damage: Callable[[ObjectStore, str, int], None]
    what: str
    number: int
    is_read: bool
    is_old: bool

    def __str__(self) -> str:
        where = f"{'middle' if self.number == 1 else 'newest'}-{'read' if self.is_read else 'unread'}"
        return f"{self.damage.__name__}-{self.what}-{where}-{'old' if self.is_old else 'sealed'}"

    @property
    def can_be_told(self) -> bool:
        """Whether anything says what it was: of what 0.1.2 landed, nothing says which file it was."""
        return (
            not self.is_old
            or self.what == "claim"
            or (self.what == "file" and self.damage in (delete_object, cut_object))
        )

    @property
    def heals(self) -> bool:
        """Whether the next run makes it again, as that of a lander that was killed."""
        return (self.what, self.number, self.damage) == ("seal", 2, delete_object)


ALL = [
    case
    for values in product(
        (delete_object, cut_object, alter_object, older, swap_objects),
        ("claim", "seal", "file"),
        (1, 2),
        (True, False),
        (False, True),
    )
    if (case := Case(*values)).can_be_told
]
CASES = ALL if "HEADRACE_EXAMPLES" in os.environ else ALL[::3]


@pytest.mark.hypothesis
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_damaged_gives_no_wrong_row_and_what_fsck_advises_helps(
    case: Case, outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    check_damage(case, outbox, handle, store)


CLAIM_CASES = [case for case in ALL if case.what == "claim" or (case.what == "seal" and not case.is_old)]


@pytest.mark.hypothesis
@pytest.mark.parametrize("case", CLAIM_CASES if "HEADRACE_EXAMPLES" in os.environ else CLAIM_CASES[::7], ids=str)
@kept_outbox
def test_so_it_does_where_a_source_keeps_its_records_and_is_claimed_alone(
    case: Case, outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    check_damage(case, outbox, handle, store)


def check_damage(case: Case, outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore) -> None:
    """Nothing wrong is counted, fsck says what is damaged, and doing what it advises ends right."""
    outbox.append(records(0, 8))
    handle.run()
    for first in (8, 16):
        outbox.append(records(first, 8))
        handle.run() if case.is_read else Landing(counting(outbox.source, executor="local"), store).land_all({})
    if case.is_old:
        without_seals(store)
    case.damage(store, case.what, case.number)
    if not case.is_old and not case.heals:
        assert handle.fsck(deep=True).damage, "it says so"
    outbox.append(records(24, 8))
    try:
        handle.run()
    except (FixDataError, RestoreError) as error:
        assert "fsck counting" in str(error)
        assert handle.fsck(deep=True).damage
    else:
        assert total(handle) == 32
    follow(handle, store)
    assert handle.fsck(deep=True).damage == ()
    handle.run()
    assert total(handle) == 32
    handle.backfill(promote=True, branch="again")
    assert total(handle) == 32


def test_a_number_that_was_read_is_not_claimed_again(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    for first in (0, 8, 16):
        outbox.append(records(first, 8))
        handle.run()
    for what in ("claim", "seal", "file"):
        delete_object(store, what, 2)  # as a bucket that was set back
    outbox.append(records(24, 40))
    for _ in range(2):
        with pytest.raises(
            SplitGoneError, match=r"2\.json.* is gone\. Bring it back from a backup.*`headrace fsck counting`"
        ):
            handle.run()
    (problem,) = handle.fsck().damage
    assert problem.path == path_of(store, "claim", 2)
    follow(handle, store)
    handle.run()
    assert total(handle) == 64


def test_a_landed_file_that_was_replaced_by_another_is_not_counted(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    for first in (0, 8, 16):
        outbox.append(records(first, 8))
        handle.run()
    older(store, "file", 2)
    with pytest.raises(LandedDamagedError, match="has another content than when it was landed"):
        handle.backfill(promote=True)
    assert total(handle) == 24
    (problem,) = handle.fsck(deep=True).damage
    assert problem.path == path_of(store, "file", 2)


def test_a_file_that_is_gone_from_the_newest_range_is_fetched_again_if_the_source_gives_the_same(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    Landing(counting(outbox.source, executor="local"), store).land_all({})
    records_before = store.read(path_of(store, "file", 0))
    path = path_of(store, "file", 0)
    store.delete(path)
    handle.run()
    assert store.read(path) == records_before
    assert total(handle) == 8
    store.delete(path)
    with closing(sqlite3.connect(outbox.database)) as database, database:
        database.execute("UPDATE outbox SET message = replace(message, '2026', '2027')")
    with pytest.raises(LandedDamagedError, match="is gone, and the source gives other bytes in its place"):
        handle.run()


def test_a_claim_is_written_again_from_its_seal(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    handle.run()
    path = path_of(store, "claim", 0)
    records_before = store.read(path)
    for damage in (delete_object, cut_object):
        damage(store, "claim", 0)
        (problem,) = handle.fsck().damage
        assert "--repair` writes it again" in problem.remedy
        handle.run()
        assert handle.fsck(repair=True).damage == ()
        assert store.read(path) == records_before
