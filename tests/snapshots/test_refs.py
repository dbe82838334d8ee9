"""One text is the name of one kind of thing."""

from dataclasses import replace

import pytest
from catalog_helpers import commit_some

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.names import NameKind, kind_of, kind_of_name, manifest_path, ref_of, why_not
from headrace_snapshots.protocol.moves import Append, ClaimBranch, Tag
from headrace_snapshots.protocol.transitions import decide
from headrace_snapshots.store.local import MemoryStore

NAMES = (
    "fix",
    "v1",
    "2026",
    "backfill-scheduled__2026-01-01T00_00_00",
    "release-2026-11-21",
    "x" * 100,
    "0123456789abcde",
)
OTHERS = {
    "beginning": NameKind.BEGINNING,
    "2026-11-21": NameKind.TIME,
    "2026-11-21T10:00:00Z": NameKind.TIME,
    "2026-11-21-before-the-change": NameKind.TIME,
    "0123456789abcdef": NameKind.SNAPSHOT,
    "0123456789ABCDEF": NameKind.SNAPSHOT,
    "tags/v1": NameKind.TAG,
}
BAD_NAMES = (
    *OTHERS,
    "none",
    "None",
    "tags",
    "published",
    "Beginning",
    "",
    "-x",
    "a b",
    "a/b",
    "fix\n",
    "ä",
    "x" * 101,
    "a:b",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_name_and_nothing_else(name: str) -> None:
    assert kind_of_name(name) is NameKind.REF
    assert why_not(name) is None


@pytest.mark.parametrize("text", OTHERS)
def test_other_things_are_told_by_their_form(text: str) -> None:
    assert kind_of_name(text) is OTHERS[text]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_could_mean_another_thing_names_nothing(memory: MemoryStore, name: str) -> None:
    catalog = Catalog(memory, "p")
    (snapshot,) = commit_some(catalog, catalog.claim("main", "run"), 1)
    for action in (
        lambda: catalog.tag(name, snapshot),
        lambda: catalog.fork(name, snapshot),
        lambda: catalog.claim(name, "run"),
    ):
        with pytest.raises(RefusedError, match="cannot name a branch or tag"):
            action()


def test_every_snapshot_has_such_an_id(memory: MemoryStore) -> None:
    for _ in range(100):
        snapshot_id = Catalog(memory, "p").new_snapshot_id()
        assert kind_of_name(snapshot_id) is NameKind.SNAPSHOT
        assert kind_of("p", manifest_path("p", snapshot_id)) is not None


def test_a_branch_and_a_tag_share_no_name(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    (snapshot,) = commit_some(catalog, catalog.claim("main", "run"), 1)
    catalog.fork("fix", None)
    for name in ("main", "fix"):
        with pytest.raises(RefusedError, match=f"there is a branch {name}, so"):
            catalog.tag(name, snapshot)
    catalog.tag("v1", snapshot)
    for action in (lambda: catalog.fork("v1", None), lambda: catalog.claim("v1", "run")):
        with pytest.raises(RefusedError, match="there is a tag v1, so"):
            action()
    assert catalog.claim("fix", "run").branch == "fix"


def test_names_of_before_are_found_as_they_are_written(memory: MemoryStore) -> None:
    """A tag called as a branch, and one called as a time: their refs stand in the log, whatever is said now."""
    refs, branches = {"main": "a", "tags/main": "b", "tags/2026-01-01": "c"}, {"main"}
    assert ref_of("main", refs, branches) == "main"
    assert ref_of("tags/main", refs, branches) == "tags/main"
    assert ref_of("2026-01-01", refs, branches) == "tags/2026-01-01"
    assert ref_of("fix", refs, branches) is None


def test_a_branch_of_before_goes_on_whatever_it_is_called(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    commit_some(catalog, catalog.claim("main", "run"), 1)
    head = catalog.head()
    old = replace(head, generations={**head.generations, "a:b": head.entry})
    assert isinstance(decide(old, ClaimBranch("a:b"), {}), Append)
    assert not isinstance(decide(old, Tag("a:b", "x"), {}), Append)
