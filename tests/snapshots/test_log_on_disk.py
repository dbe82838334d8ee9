"""The end of a log on a disk is asked for number by number: it is the end that a listing tells, whatever happens to the
log meanwhile.
"""

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from catalog_helpers import commit_some

from headrace.errors import HeadraceError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import DamagedLogError
from headrace_snapshots.log import AppendResult, CatalogLog, End, Entry
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import LocalStore, ObjectInfo
from headrace_snapshots.testing import FaultyStore


def store_that_lists(store: LocalStore) -> FaultyStore:
    """The same objects, of which only a listing tells which are there."""
    return FaultyStore(store, lambda _: None)


def entry(number: int, writer: str, base: int = 0) -> Entry:
    return Entry(
        number=number,
        write_id=f"{writer}-{number}",
        at="2026-01-01T00:00:00Z",
        kind=Kind.TAG,
        branch=None,
        generation=None,
        moves={f"tags/{writer}": (None, str(number))},
        refs={},
        generations={},
        base=base,
        message="",
        detail=None,
    )


def path_of(root: Path, number: int) -> Path:
    return root / "p" / "log" / f"{number:020d}.json"


def end_parts(end: End) -> tuple[int, str | None, bool]:
    return end.number, None if end.entry is None else end.entry.write_id, end.lost is None


@pytest.mark.parametrize("seed", range(15))
def test_each_look_finds_what_a_listing_finds(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    store = LocalStore(tmp_path)
    logs = [CatalogLog(store, "p", looks_once=draw.random() < 0.5) for _ in range(3)]
    base, next_number, is_lost = 0, 0, False
    for step in range(80):
        log = draw.choice(logs)
        action = draw.random()
        if action < 0.6:
            new_entry = entry(next_number, f"w{step}", base)
            log.look_again()
            log.find_end()
            with suppress(HeadraceError):
                if log.append(new_entry, is_last=draw.random() < 0.4) is AppendResult.APPENDED:
                    next_number += 1
        elif action < 0.7 and next_number > 3:
            base = draw.randrange(base, next_number)
            log.look_again()
            if log.find_end().lost is None and log.append(
                entry(next_number, f"w{step}", base), is_last=draw.random() < 0.5
            ):
                next_number += 1
                # an expiry that is killed has deleted the first of them
                for number in range(draw.randrange(base + 1)):
                    path_of(tmp_path, number).unlink(missing_ok=True)
        elif action < 0.75 and base > 0:
            # a writer that was stopped meanwhile finds its number free
            late_writer = CatalogLog(store, "p")
            number = draw.randrange(base)
            if not path_of(tmp_path, number).exists():
                assert late_writer.append(entry(number, f"s{step}"), is_last=True) is AppendResult.FOLDED_AWAY
        elif action < 0.76 and next_number > base:
            path_of(tmp_path, draw.randrange(base, next_number)).unlink(missing_ok=True)
            is_lost = True
        fresh_log = CatalogLog(store, "p")
        listed_end = CatalogLog(store_that_lists(store), "p").find_end()
        assert end_parts(fresh_log.find_end()) == end_parts(listed_end), step
        if is_lost:
            return
        for log in logs:
            log.look_again()
            assert end_parts(log.find_end()) == end_parts(listed_end), step


class UnlistedStore(LocalStore):
    """A store that lists nothing, and tells who asks for it."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        raise AssertionError(f"{prefix} is listed")


def test_a_look_costs_as_much_after_many_entries(tmp_path: Path) -> None:
    catalog = Catalog(LocalStore(tmp_path), "p")
    commit_some(catalog, catalog.claim("main", "run"), 2)
    catalog.settle_hint()
    run = Catalog(UnlistedStore(tmp_path), "p", looks_once=True)
    commit_some(run, run.claim("main", "other"), 2)
    run.settle_hint()
    assert Catalog(UnlistedStore(tmp_path), "p").head() == run.head()


def test_a_lost_entry_shows_by_what_follows_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    catalog = Catalog(store, "p")
    (snapshot, *_) = commit_some(catalog, catalog.claim("main", "run"), 2)
    catalog.settle_hint()
    hint = (tmp_path / "p" / "log-hint.json").read_bytes()
    for name in ("a", "b", "c"):
        catalog.tag(name, snapshot)
    (tmp_path / "p" / "log-hint.json").write_bytes(hint)
    path_of(tmp_path, catalog.head().entry - 1).unlink()
    with pytest.raises(DamagedLogError, match="is missing, and later entries exist"):
        Catalog(store, "p").head()


def test_a_hint_of_an_older_version_is_as_good(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = CatalogLog(store, "p")
    for number in range(3):
        log.append(entry(number, "w"), is_last=True)
    CatalogLog(store, "p").write_hint(1)
    assert b"write_id" not in (tmp_path / "p" / "log-hint.json").read_bytes()
    assert end_parts(CatalogLog(store, "p").find_end()) == (2, "w-2", True)


def lose_entries_behind_hint(root: Path, catalog: Catalog) -> Catalog:
    """Lose 40 entries behind that which the hint names. What others have stored behind those is there. Gives a catalog
    that knew of none of them.
    """
    (snapshot, *_) = commit_some(catalog, catalog.claim("main", "run"), 2)
    catalog.settle_hint()
    hint_path, last = root / "p" / "log-hint.json", catalog.head().entry
    hint, hint_times = hint_path.read_bytes(), hint_path.stat()
    open_catalog = Catalog(LocalStore(root), "p")
    assert open_catalog.head() == catalog.head()
    for number in range(45):
        catalog.tag(f"tag-{number}", snapshot)
    assert b"write_id" in hint_path.read_bytes()
    for number in range(last + 1, last + 41):
        path_of(root, number).unlink()
    newest_hint = hint_path.read_bytes()
    hint_path.write_bytes(hint)
    os.utime(hint_path, ns=(hint_times.st_atime_ns, hint_times.st_mtime_ns))
    (root / "newest-hint.json").write_bytes(newest_hint)
    return open_catalog


def test_many_lost_entries_behind_an_old_hint_stop_what_comes(tmp_path: Path) -> None:
    catalog = Catalog(LocalStore(tmp_path), "p")
    lose_entries_behind_hint(tmp_path, catalog)
    with pytest.raises(DamagedLogError, match="is missing, and later entries exist"):
        Catalog(LocalStore(tmp_path), "p").head()
    run = Catalog(LocalStore(tmp_path), "p", looks_once=True)
    with pytest.raises(DamagedLogError, match="is missing, and later entries exist"):
        run.claim("main", "another")


def test_many_lost_entries_behind_a_known_one_stop_what_comes(tmp_path: Path) -> None:
    catalog = Catalog(LocalStore(tmp_path), "p")
    open_catalog = lose_entries_behind_hint(tmp_path, catalog)
    (tmp_path / "newest-hint.json").replace(tmp_path / "p" / "log-hint.json")
    for look in (open_catalog.head, lambda: open_catalog.claim("main", "another")):
        with pytest.raises(DamagedLogError, match="is missing, and later entries exist"):
            look()
