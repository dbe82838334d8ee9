"""The catalog as its callers see it."""

import json

import pytest
from catalog_helpers import commit_some, data_path, manifest_for

from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.errors import (
    DamagedLogError,
    FencedError,
    MissingSnapshotError,
    PublishConflictError,
    RefusedError,
)
from headrace_snapshots.format.codec import BrokenObjectError, checksum
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, InputFile
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.store.local import MemoryStore


@pytest.fixture
def catalog(memory: MemoryStore) -> Catalog:
    return Catalog(memory, "p")


def test_an_empty_catalog_can_be_looked_at_and_is_not_written(memory: MemoryStore, catalog: Catalog) -> None:
    assert catalog.head().entry == -1
    assert catalog.list_entries() == []
    with pytest.raises(RefusedError, match="no entry yet"):
        catalog.rollback("main", None, "x")
    assert list(memory.list("")) == []


def test_a_life_of_a_pipeline(store: ObjectStore) -> None:
    """On every kind of store: claim, commit, publish, tag, fork, promote, roll back, read again from outside."""
    catalog = Catalog(store, "p")
    claim = catalog.claim("main", "run 1")
    assert claim.snapshot_id is None
    ids = commit_some(catalog, claim, 5)
    catalog.publish(ids[2], None, {"audit": "a/b"})
    catalog.publish(ids[3], ids[2])
    catalog.tag("before-the-change", ids[1])
    catalog.fork("backfill", None)
    other = Catalog(store, "p")
    branch = other.claim("backfill", "run 2")
    replayed_snapshots = commit_some(other, branch, 2)
    assert catalog.claim("main", "run 3").snapshot_id == ids[4]
    catalog.promote("backfill", expected_main=ids[4])
    head = Catalog(store, "p").head()
    assert head.refs == {
        "main": replayed_snapshots[1],
        "published": replayed_snapshots[1],
        "tags/before-the-change": ids[1],
    }
    assert set(head.generations) == {"main"}
    with pytest.raises(FencedError, match="branch backfill is gone"):
        other.commit(branch, manifest_for(other, branch, replayed_snapshots[1]))
    kinds = [entry.kind.value for entry in catalog.list_entries(limit=100)][::-1]
    assert kinds == ["init", "claim", *["commit"] * 5, "publish", "publish", "tag", "fork", "claim", "commit", "commit",
                     "claim", "promote"]  # fmt: skip
    check_catalog(store, "p")


def test_commits_need_the_newest_claim(catalog: Catalog, memory: MemoryStore) -> None:
    old = catalog.claim("main", "the first run")
    first = commit_some(catalog, old, 1)[0]
    new = catalog.claim("main", "the second run")
    assert (new.generation > old.generation, new.snapshot_id) == (True, first)
    with pytest.raises(FencedError, match=r"entry 3 \(claim: claimed by the second run\) at 20") as error:
        catalog.commit(old, manifest_for(catalog, old, first))
    assert error.value.code == "give_up.fenced"
    commit_some(catalog, new, 1)
    check_catalog(memory, "p")


def test_two_commits_under_one_claim_do_not_both_follow_one_parent(catalog: Catalog) -> None:
    claim = catalog.claim("main", "run")
    twin = manifest_for(catalog, claim, None)
    commit_some(catalog, claim, 1)
    with pytest.raises(FencedError, match=r"not at None any more since entry 2 \(commit: epoch 0\)"):
        catalog.commit(claim, twin)


def test_a_manifest_must_fit(catalog: Catalog) -> None:
    claim = catalog.claim("main", "run")
    first = commit_some(catalog, claim, 1)[0]
    other = catalog.claim("other", "run")
    with pytest.raises(RefusedError, match="not of p under"):
        catalog.commit(claim, manifest_for(catalog, other, None))
    manifest = manifest_for(catalog, claim, first)
    with pytest.raises(RefusedError, match="epoch 9 does not follow"):
        catalog.commit(claim, manifest.replace(epoch=9))


def test_publishing_goes_forward_along_main(catalog: Catalog) -> None:
    ids = commit_some(catalog, catalog.claim("main", "run"), 4)
    side = commit_some(catalog, catalog.claim("side", "run"), 2)
    entry = catalog.publish(ids[1], None, {"audit": "x"})
    assert (entry.kind, entry.moves, entry.detail) == (Kind.PUBLISH, {"published": (None, ids[1])}, {"audit": "x"})
    with pytest.raises(PublishConflictError, match=f"published is at {ids[1]}, not at None"):
        catalog.publish(ids[2], None)
    with pytest.raises(RefusedError, match="would be a rollback"):
        catalog.publish(ids[0], ids[1])
    with pytest.raises(RefusedError, match="not on main"):
        catalog.publish(side[1], ids[1])
    with pytest.raises(RefusedError, match="published already"):
        catalog.publish(ids[1], ids[1])
    with pytest.raises(MissingSnapshotError, match="no snapshot nonsense"):
        catalog.publish("nonsense", ids[1])
    with pytest.raises(RefusedError, match="needs a message"):
        catalog.release(ids[3], " ")
    assert catalog.release(ids[3], "checked by hand").kind is Kind.RELEASE
    assert catalog.head().refs["published"] == ids[3]


def test_a_rollback_takes_published_along_only_when_it_is_newer(catalog: Catalog) -> None:
    claim = catalog.claim("main", "run")
    ids = commit_some(catalog, claim, 6)
    catalog.publish(ids[1], None)
    catalog.publish(ids[2], ids[1])
    assert catalog.rollback("main", ids[4], "late").moves == {"main": (ids[5], ids[4])}
    assert catalog.rollback("main", ids[2], "exactly").moves == {"main": (ids[4], ids[2])}
    both = catalog.rollback("main", ids[1], "below")
    assert both.moves == {"main": (ids[2], ids[1]), "published": (ids[2], ids[1])}
    with pytest.raises(FencedError, match="rollback: below"):
        catalog.commit(claim, manifest_for(catalog, claim, ids[1]))
    with pytest.raises(RefusedError, match="not an ancestor"):
        catalog.rollback("main", ids[3], "that is not behind any more")
    with pytest.raises(RefusedError, match="no branch nowhere"):
        catalog.rollback("nowhere", ids[1], "x")
    catalog.rollback("main", None, "to the beginning")
    assert catalog.head().refs == {}
    with pytest.raises(RefusedError, match="branch main is at its beginning already"):
        catalog.rollback("main", None, "again")
    with pytest.raises(RefusedError, match=f"at its beginning, and nothing is before that: it cannot go to {ids[1]}"):
        catalog.rollback("main", ids[1], "forward")
    claim_again = catalog.claim("main", "run")
    assert (claim_again.snapshot_id, catalog.manifest(commit_some(catalog, claim_again, 1)[0]).epoch) == (None, 0)


def test_promoting_needs_main_where_it_was(catalog: Catalog, memory: MemoryStore) -> None:
    claim = catalog.claim("main", "run")
    ids = commit_some(catalog, claim, 2)
    branch = catalog.fork("fix", ids[0])
    assert branch.refs["fix"] == ids[0]
    commit_some(catalog, catalog.claim("fix", "run"), 1)
    with pytest.raises(PublishConflictError, match="main is at"):
        catalog.promote("fix", expected_main=ids[0])
    catalog.promote("fix", expected_main=ids[1])
    with pytest.raises(FencedError, match="promote: promoted fix"):
        catalog.commit(claim, manifest_for(catalog, claim, ids[1]))
    with pytest.raises(RefusedError, match="no branch fix"):
        catalog.promote("fix", expected_main=None)
    with pytest.raises(RefusedError):
        catalog.promote("main", expected_main=None)
    check_catalog(memory, "p")


def test_promoting_what_is_main_already_still_fences_its_writer(catalog: Catalog) -> None:
    claim = catalog.claim("main", "run")
    head = commit_some(catalog, claim, 1)[0]
    catalog.fork("same", head)
    catalog.promote("same", expected_main=head)
    with pytest.raises(FencedError, match="promoted same"):
        catalog.commit(claim, manifest_for(catalog, claim, head))


def test_a_branch_made_again_does_not_let_its_old_writer_in(catalog: Catalog) -> None:
    catalog.claim("main", "run")
    old = catalog.claim("b", "old")
    catalog.drop("b")
    catalog.fork("b", None)
    with pytest.raises(FencedError, match="fork: forked b empty"):
        catalog.commit(old, manifest_for(catalog, old, None))


def test_tags_and_names(catalog: Catalog) -> None:
    ids = commit_some(catalog, catalog.claim("main", "run"), 2)
    catalog.tag("v1", ids[0])
    with pytest.raises(RefusedError, match="tag v1 already"):
        catalog.tag("v1", ids[1])
    catalog.drop("tags/v1")
    catalog.tag("v1", ids[1])
    with pytest.raises(RefusedError, match="no branch or tag"):
        catalog.drop("v2")
    for ref in ("main", "published"):
        with pytest.raises(RefusedError, match="cannot be dropped"):
            catalog.drop(ref)
    for name in ("", "published", "a/b", "tags/x", "-x", "x y", "x" * 201):
        with pytest.raises(RefusedError, match="cannot name"):
            catalog.claim(name, "run")
    with pytest.raises(RefusedError, match="branch main already"):
        catalog.fork("main", None)


def test_pages_of_the_log(catalog: Catalog) -> None:
    commit_some(catalog, catalog.claim("main", "run"), 30)
    numbers = [entry.number for entry in catalog.list_entries(limit=10)]
    assert numbers == list(range(31, 21, -1))
    assert [entry.number for entry in catalog.list_entries(before=numbers[-1], limit=3)] == [21, 20, 19]
    assert [entry.number for entry in catalog.list_entries(before=2)] == [1, 0]


def test_ancestry(catalog: Catalog) -> None:
    ids = commit_some(catalog, catalog.claim("main", "run"), 5)
    assert [m.snapshot_id for m in catalog.ancestry(ids[4], until=ids[1])] == [ids[4], ids[3], ids[2]]
    assert [m.epoch for m in catalog.ancestry(ids[1])] == [1, 0]
    assert list(catalog.ancestry(ids[1], until=ids[1])) == []
    assert catalog.is_ancestor(ids[0], ids[4])
    assert catalog.is_ancestor(ids[4], ids[4])
    assert not catalog.is_ancestor(ids[4], ids[0])
    with pytest.raises(RefusedError, match="not an ancestor"):
        list(catalog.ancestry(ids[0], until=ids[3]))


def test_file_logs_are_kept_beside_the_manifests(catalog: Catalog) -> None:
    log = FileLog.empty()
    for epoch in range(130):
        log = catalog.append_record(
            log, FileRecord(epoch, (InputFile(f"landing/[{epoch}].json", 10, "etag", "source"),))
        )
    assert [r.epoch for r in catalog.file_records(log)] == list(range(130))
    assert [r.epoch for r in catalog.file_records(log, since_epoch=127)] == [128, 129]


@pytest.mark.parametrize("hint", [b"", b"{}", b"[1]", b'{"entry": "x"}', b'{"entry": 10000}', b'{"entry": 0}', None])
def test_the_hint_is_never_trusted(memory: MemoryStore, catalog: Catalog, hint: bytes | None) -> None:
    ids = commit_some(catalog, catalog.claim("main", "run"), 40)
    memory.delete("p/log-hint.json")
    if hint is not None:
        memory.write("p/log-hint.json", hint)
    requests_before = memory.requests.snapshot()
    assert Catalog(memory, "p").head().refs == {"main": ids[-1]}
    assert memory.requests.since(requests_before)["get"] < 20


def test_broken_control_objects_are_named(memory: MemoryStore, catalog: Catalog) -> None:
    ids = commit_some(catalog, catalog.claim("main", "run"), 3)
    path = f"p/manifests/{ids[1]}.json"
    good = memory.read(path)
    memory.write(path, good[:-40])
    with pytest.raises(BrokenObjectError, match=f"{path} is broken"):
        Catalog(memory, "p").manifest(ids[1])
    memory.write(path, memory.read(f"p/manifests/{ids[0]}.json"))
    with pytest.raises(BrokenObjectError, match=f"is the manifest of {ids[0]}"):
        Catalog(memory, "p").manifest(ids[1])
    memory.delete(path)
    with pytest.raises(MissingSnapshotError, match=ids[1]):
        list(Catalog(memory, "p").ancestry(ids[2]))
    last = "p/log/00000000000000000004.json"
    entry = json.loads(memory.read(last))
    entry["content"]["refs"]["main"] = ids[0]
    memory.write(last, json.dumps(entry).encode())
    with pytest.raises(DamagedLogError, match=f"{last} is broken .*checksum"):
        Catalog(memory, "p").head()
    memory.write(last, memory.read("p/log/00000000000000000003.json"))
    with pytest.raises(DamagedLogError, match="holds entry 3"):
        Catalog(memory, "p").head()


def test_data_files_are_verified(memory: MemoryStore) -> None:
    path = data_path("p", 7, "attempt", "panes", "00000")
    assert path == "p/data/00000007-attempt/panes-00000.parquet"
    memory.write(path, b"rows")
    file = DataFile(path, 1, 4, checksum(b"rows"))
    assert read_verified(memory, file) == b"rows"
    memory.write(path, b"ROWS")
    with pytest.raises(BrokenObjectError, match="does not have the checksum"):
        read_verified(memory, file)
    memory.write(path, b"row")
    with pytest.raises(BrokenObjectError, match="has 3 bytes, its manifest says 4"):
        read_verified(memory, file)
    memory.delete(path)
    with pytest.raises(BrokenObjectError, match="is missing"):
        read_verified(memory, file)
