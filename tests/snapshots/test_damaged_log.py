"""Entries of the catalog's log that are gone or damaged: never an older answer, and a way out that is named."""

from collections.abc import Iterator

import pytest
from catalog_helpers import commit_some, manifest_for

from headrace.errors import HeadraceError
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog, LostEntry
from headrace_snapshots.errors import DamagedLogError, FencedError, RefusedError
from headrace_snapshots.format.codec import NewerFormatError
from headrace_snapshots.store import ObjectInfo
from headrace_snapshots.store.local import MemoryStore

LAST = 9
"""Entries of the log below: began, claimed, eight epochs; its hint names the last."""


def path(number: int) -> str:
    return f"p/log/{number:020d}.json"


@pytest.fixture
def ids(memory: MemoryStore) -> list[str]:
    catalog = Catalog(memory, "p")
    snapshots = commit_some(catalog, catalog.claim("main", "run"), 8)
    catalog.settle_hint()
    return snapshots


def refusal(store: MemoryStore) -> str:
    """What everybody is told who comes now, and nobody changes anything."""
    paths_before = [info.path for info in store.list("p/log/")]
    texts: set[str] = set()
    for action in (
        lambda: Catalog(store, "p").head(),
        lambda: Catalog(store, "p").claim("main", "the next run"),
        lambda: Catalog(store, "p").tag("kept", "x"),
    ):
        with pytest.raises((DamagedLogError, HeadraceError)) as error:
            action()
        texts.add(f"{error.value.code}: {error.value}")
    assert [info.path for info in store.list("p/log/")] == paths_before
    return next(text for text in texts if text.startswith("restore.damaged_log"))


def test_a_gap_is_no_end(memory: MemoryStore, ids: list[str]) -> None:
    memory.delete("p/log-hint.json")
    memory.delete(path(5))
    text = refusal(memory)
    assert f"{path(5)} is missing, and later entries exist" in text
    assert "Bring it back from a backup" in text
    assert f"`headrace rollback p --to {ids[-1]}`" in text


def test_a_gap_behind_what_a_reader_knows_is_found_by_that_reader(memory: MemoryStore, ids: list[str]) -> None:
    reader, writer = Catalog(memory, "p"), Catalog(memory, "p")
    assert reader.head().entry == LAST
    commit_some(writer, writer.claim("main", "run"), 3)
    memory.delete(path(LAST + 1))
    with pytest.raises(DamagedLogError, match=f"{path(LAST + 1)} is missing"):
        reader.head()


def test_entries_that_the_hint_names_and_are_gone_are_told(memory: MemoryStore, ids: list[str]) -> None:
    for number in (8, 9):
        memory.delete(path(number))
    text = refusal(memory)
    assert "p/log-hint.json names entry 9, and there is none from there on" in text
    assert (
        f"`headrace rollback p --to {ids[5]}` continues from entry 7 (main at {ids[5]}, published at nothing)" in text
    )


@pytest.mark.parametrize("spoil", [b"", b"\x00" * 40])
def test_a_damaged_newest_entry_has_a_way_out(memory: MemoryStore, ids: list[str], spoil: bytes) -> None:
    old = Catalog(memory, "p")
    claim = old.claim("main", "the run that is stopped")
    old.publish(ids[3], None)
    memory.write(path(LAST + 2), spoil)
    text = refusal(memory)
    assert f"{path(LAST + 2)} is broken" in text
    assert f"`headrace rollback p --to {ids[-1]}` continues from entry {LAST + 1}" in text
    entry = Catalog(memory, "p").rollback("main", ids[-1], "given up")
    assert (entry.number, entry.base) == (LAST + 3, LAST + 3)
    catalog_again = Catalog(memory, "p")
    assert catalog_again.head().refs == {"main": ids[-1]}
    assert [type(record) for record in catalog_again.history()][:3] == [type(entry), LostEntry, type(entry)]
    with pytest.raises(FencedError):
        old.commit(claim, manifest_for(old, claim, ids[-1]))
    memory.delete("p/log-hint.json")
    more = commit_some(catalog_again, catalog_again.claim("main", "the next run"), 2)
    assert Catalog(memory, "p").head().refs == {"main": more[-1]}
    check_catalog(memory, "p")


def test_a_rollback_gives_a_gap_up(memory: MemoryStore, ids: list[str]) -> None:
    memory.delete("p/log-hint.json")
    memory.delete(path(5))
    with pytest.raises(RefusedError, match="not an ancestor"):
        Catalog(memory, "p").rollback("main", _aside(memory), "x")
    Catalog(memory, "p").rollback("main", ids[2], "given up")
    assert Catalog(memory, "p").head().refs == {"main": ids[2]}
    assert commit_some(Catalog(memory, "p"), Catalog(memory, "p").claim("main", "run"), 1)
    check_catalog(memory, "p")


def _aside(memory: MemoryStore) -> str:
    """A snapshot that is not on main."""
    other = Catalog(MemoryStore(), "p")
    manifest = manifest_for(other, other.claim("main", "run"), None)
    memory.write(f"p/manifests/{manifest.snapshot_id}.json", manifest.to_bytes())
    return manifest.snapshot_id


def test_a_log_without_any_entry_left_says_so(memory: MemoryStore, ids: list[str]) -> None:
    for info in list(memory.list("p/log/")):
        memory.delete(info.path)
    assert "no other entry can be read either" in refusal(memory)
    with pytest.raises(RefusedError, match="no branch main"):
        Catalog(memory, "p").rollback("main", None, "x")


def test_an_old_entry_that_is_lost_does_not_end_the_history(memory: MemoryStore, ids: list[str]) -> None:
    memory.write(path(3), memory.read(path(3))[:-30])
    memory.delete(path(1))
    catalog = Catalog(memory, "p")
    assert catalog.head().refs == {"main": ids[-1]}
    entries = list(catalog.history())
    assert [entry.number for entry in entries] == list(range(LAST, -1, -1))
    lost_problems_by_number = {entry.number: entry.problem for entry in entries if isinstance(entry, LostEntry)}
    assert set(lost_problems_by_number) == {1, 3}
    assert "missing" in lost_problems_by_number[1]
    assert "broken" in lost_problems_by_number[3]
    assert [entry.number for entry in catalog.list_entries()] == [9, 8, 7, 6, 5, 4, 2, 0]


def test_entries_below_the_base_are_not_missed(memory: MemoryStore, ids: list[str]) -> None:
    memory.delete(path(5))
    memory.delete("p/log-hint.json")
    Catalog(memory, "p").rollback("main", ids[-1], "given up")
    for number in range(LAST):
        memory.delete(path(number))
    memory.delete("p/log-hint.json")
    assert Catalog(memory, "p").head().refs == {"main": ids[-1]}
    check_catalog(memory, "p")


def test_an_entry_of_a_newer_version_is_no_damage(memory: MemoryStore, ids: list[str]) -> None:
    memory.write(path(LAST), memory.read(path(LAST)).replace(b'"format":1', b'"format":99', 1))
    for action in (lambda: Catalog(memory, "p").head(), lambda: Catalog(memory, "p").rollback("main", ids[0], "x")):
        with pytest.raises(NewerFormatError):
            action()


def test_entries_that_are_appended_while_one_lists_are_no_gap(memory: MemoryStore, ids: list[str]) -> None:
    class Late(MemoryStore):
        """Its listing has seen an entry, and not the one before it."""

        def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
            return (info for info in memory.list(prefix, start_after) if info.path != path(LAST - 1))

        read, stat = staticmethod(memory.read), staticmethod(memory.stat)  # type: ignore[assignment]

    memory.delete("p/log-hint.json")
    assert Catalog(Late(), "p").head().refs == {"main": ids[-1]}
