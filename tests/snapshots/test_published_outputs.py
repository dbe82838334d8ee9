"""What readers see of each output, where outputs have names: a ref of its own, moved by one entry for all that move."""

from datetime import UTC, datetime

import pytest
from catalog_helpers import commit_some

from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import PublishConflictError, RefusedError
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.codec import NewerFormatError
from headrace_snapshots.format.output_view import as_called_in
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.log import Entry
from headrace_snapshots.output_catalog import OutputCatalog
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.store.local import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOTH = ("x", "y")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def catalog(store: MemoryStore) -> Catalog:
    return Catalog(store, "p")


@pytest.fixture
def ids(catalog: Catalog) -> list[str]:
    """Five epochs of main with the outputs x and y."""
    return commit_some(catalog, catalog.claim("main", "test"), 5, BOTH)


def published_refs(catalog: Catalog) -> dict[str, str]:
    return {ref: snapshot for ref, snapshot in catalog.head().refs.items() if ref.startswith("published")}


def test_one_entry_moves_the_outputs_that_may_move(catalog: Catalog, ids: list[str]) -> None:
    entry = catalog.publish_outputs({"x": ids[1], "y": ids[1]}, {"x": None, "y": None})
    assert entry.moves == {"published/x": (None, ids[1]), "published/y": (None, ids[1])}
    assert entry.message == "published epoch 1 of x, y"
    catalog.publish_outputs({"x": ids[2]}, {"x": ids[1], "y": ids[1]})
    assert published_refs(catalog) == {"published/x": ids[2], "published/y": ids[1]}
    last = catalog.publish_outputs({"x": ids[4], "y": ids[3]}, {"x": ids[2], "y": ids[1]})
    assert last.message == "published epoch 4 of x and epoch 3 of y"


def test_a_publish_expects_where_all_outputs_are(catalog: Catalog, ids: list[str]) -> None:
    """Also one that stays: what moves was decided by where that is."""
    catalog.publish_outputs({"y": ids[0]}, {"x": None, "y": None})
    with pytest.raises(PublishConflictError, match=f"published/y is at {ids[0]}, not at None any more"):
        catalog.publish_outputs({"x": ids[1]}, {"x": None, "y": None})
    assert published_refs(catalog) == {"published/y": ids[0]}


def test_an_output_only_moves_forward_along_main(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[2]}, {"x": None})
    with pytest.raises(RefusedError, match=f"{ids[2]} is published of x already"):
        catalog.publish_outputs({"x": ids[2], "y": ids[2]}, {"x": ids[2], "y": None})
    with pytest.raises(RefusedError, match="is published of x: that would be a rollback"):
        catalog.publish_outputs({"x": ids[1]}, {"x": ids[2]})
    catalog.release(ids[1], "why", ["y"])
    assert published_refs(catalog) == {"published/x": ids[2], "published/y": ids[1]}


def test_a_commit_gives_readers_what_they_see_under_a_new_name(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[1], "y": ids[2]}, {"x": None, "y": None})
    catalog.fork("side", ids[4])
    for branch, expected in (("side", {"published/x": ids[1]}), ("main", {"published/z": ids[1]})):
        claim = catalog.claim(branch, "test")
        head = catalog.manifest(ids[4])
        outputs = {"z": {"formerly": ["older", "x"]}, "y": {"formerly": ["z"]}}
        new_manifest = head.replace(
            snapshot_id=catalog.new_snapshot_id(), branch=branch, generation=claim.generation, epoch=5, parent=ids[4],
            schema={"outputs": outputs},
        )  # fmt: skip
        entry = catalog.commit(claim, new_manifest)
        assert published_refs(catalog) == {"published/y": ids[2], **expected}
    assert entry.moves == {
        "main": (ids[4], new_manifest.snapshot_id), "published/z": (None, ids[1]), "published/x": (ids[1], None)
    }  # fmt: skip
    next_manifest = new_manifest.replace(
        snapshot_id=catalog.new_snapshot_id(), epoch=6, parent=new_manifest.snapshot_id
    )
    assert [*catalog.commit(claim, next_manifest).moves] == ["main"], "a name is given once"


def test_what_an_older_version_would_misread_has_a_newer_format(catalog: Catalog, ids: list[str]) -> None:
    assert {entry.format for entry in catalog.entries()} == {1}
    entry = catalog.publish_outputs({"x": ids[1]}, {"x": None})
    assert entry.format == 3
    with set_sizes(newest_format=2), pytest.raises(NewerFormatError, match="log/7 has format 3"):
        Entry.from_bytes(entry.to_bytes(), "log/7")


def test_a_rollback_takes_back_each_output_that_is_newer(catalog: Catalog, ids: list[str], store: ObjectStore) -> None:
    """Each to what its readers could see: x to what was published before the target, y to the target itself."""
    catalog.publish_outputs({"x": ids[1], "y": ids[2]}, {})
    catalog.publish_outputs({"x": ids[4], "y": ids[3]}, {})
    expected = {"main": (ids[4], ids[2]), "published/x": (ids[4], ids[1]), "published/y": (ids[3], ids[2])}
    assert dict(catalog.would_roll_back("main", ids[2])) == expected
    assert catalog.rollback("main", ids[2], "back").moves == expected
    catalog.rollback("main", None, "all of it")
    assert published_refs(catalog) == {}
    check_catalog(store, "p")


def test_a_rollback_leaves_no_reader_with_what_nobody_let_them_see(catalog: Catalog, ids: list[str]) -> None:
    """Epochs 0 to 4 were published at once, so nobody saw one within: only a person can say that readers may."""
    catalog.publish_outputs({"x": ids[4], "y": ids[2]}, {})
    head_before = catalog.head()
    for act in (catalog.would_roll_back, lambda *targets: catalog.rollback(*targets, "back")):
        with pytest.raises(RefusedError, match=f"readers of x would see nothing.*`headrace release p.x {ids[2]}`"):
            act("main", ids[2])
    assert catalog.head() == head_before
    assert catalog.release(ids[2], "looked at by hand", ["x"]).moves == {}
    assert published_refs(catalog) == {"published/x": ids[4], "published/y": ids[2]}
    assert catalog.rollback("main", ids[3], "back").moves == {
        "main": (ids[4], ids[3]), "published/x": (ids[4], ids[2])
    }  # fmt: skip


def test_a_writer_that_steps_back_leaves_readers_what_they_could_see(catalog: Catalog) -> None:
    claim = catalog.claim("main", "test")
    ids = commit_some(catalog, claim, 5)
    catalog.publish(ids[1], None)
    catalog.publish(ids[4], ids[1])
    catalog.step_back(claim, ids[3], "broken")
    assert published_refs(catalog) == {"published": ids[1]}


def test_what_an_earlier_rollback_let_readers_see_is_no_evidence(catalog: Catalog, store: ObjectStore) -> None:
    """As 0.1.2 left it: readers are at an epoch that was never published. They go to no such one again."""
    ids = commit_some(catalog, catalog.claim("main", "test"), 5)
    catalog.publish(ids[1], None)
    catalog.publish(ids[4], ids[1])
    entry = catalog.rollback("main", ids[3], "back")
    moves = {"main": (ids[4], ids[3]), "published": (ids[4], ids[3])}
    path = next(info.path for info in store.list("p/log/") if info.path.endswith(f"{entry.number:020d}.json"))
    store.write(path, entry.replace(moves=moves, refs={**entry.refs, "published": ids[3]}).to_bytes())
    catalog_again = Catalog(store, "p")
    assert published_refs(catalog_again) == {"published": ids[3]}
    catalog_again.rollback("main", ids[2], "further")
    assert published_refs(catalog_again) == {"published": ids[1]}


def test_a_rollback_to_before_an_output_came_leaves_nothing_of_it_published(catalog: Catalog) -> None:
    claim = catalog.claim("main", "test")
    snapshots_before = commit_some(catalog, claim, 2, ("x",))
    catalog.publish_outputs({"x": snapshots_before[1]}, {})
    snapshots_after = commit_some(catalog, claim, 2, BOTH)
    catalog.publish_outputs({"x": snapshots_after[1], "y": snapshots_after[1]}, {})
    catalog.rollback("main", snapshots_before[1], "without y")
    assert published_refs(catalog) == {"published/x": snapshots_before[1]}


def test_a_rollback_to_before_an_output_was_removed_gives_its_readers_what_they_saw(catalog: Catalog) -> None:
    claim = catalog.claim("main", "test")
    snapshots_before = commit_some(catalog, claim, 2, BOTH)
    catalog.publish_outputs(dict.fromkeys(BOTH, snapshots_before[0]), {})
    snapshots_after = commit_some(catalog, claim, 1, ("x",))
    catalog.publish_outputs({"x": snapshots_after[0], "y": None}, dict.fromkeys(BOTH, snapshots_before[0]))
    catalog.rollback("main", snapshots_before[1], "with y")
    assert published_refs(catalog) == dict.fromkeys(("published/x", "published/y"), snapshots_before[0])


def test_a_publish_says_that_an_output_is_gone(catalog: Catalog) -> None:
    claim = catalog.claim("main", "test")
    snapshots_before = commit_some(catalog, claim, 1, BOTH)
    catalog.publish_outputs(dict.fromkeys(BOTH, snapshots_before[0]), {})
    snapshots_after = commit_some(catalog, claim, 1, ("x",))
    entry = catalog.publish_outputs({"x": snapshots_after[0], "y": None}, dict.fromkeys(BOTH, snapshots_before[0]))
    assert published_refs(catalog) == {"published/x": snapshots_after[0]}
    assert entry.message == "published epoch 1 of x"


def test_a_promotion_publishes_all_outputs_of_the_branch_and_no_other(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[3], "y": ids[1]}, {})
    catalog.fork("new", None)
    new = commit_some(catalog, catalog.claim("new", "test"), 2, ("x", "z"))
    entry = catalog.promote("new", expected_main=ids[4])
    assert published_refs(catalog) == {"published/x": new[1], "published/z": new[1]}
    assert entry.format == 3
    catalog.rollback("main", ids[4], "taken back")
    assert published_refs(catalog) == {"published/x": ids[3], "published/y": ids[1]}


def test_names_come_and_go_by_a_promotion(catalog: Catalog, store: ObjectStore) -> None:
    """From one output without a name to two, and back."""
    snapshots_before = commit_some(catalog, catalog.claim("main", "test"), 2)
    catalog.publish(snapshots_before[0], None)
    catalog.fork("named", None)
    named_snapshots = commit_some(catalog, catalog.claim("named", "test"), 1, BOTH)
    catalog.promote("named", expected_main=snapshots_before[1])
    assert published_refs(catalog) == {"published/x": named_snapshots[0], "published/y": named_snapshots[0]}
    entry = catalog.rollback("main", snapshots_before[1], "taken back")
    assert published_refs(catalog) == {"published": snapshots_before[0]}
    assert Entry.from_bytes(entry.to_bytes(), "it").past == entry.past
    catalog.fork("again", None)
    commit_some(catalog, catalog.claim("again", "test"), 1, BOTH)
    catalog.promote("again", expected_main=snapshots_before[1])
    catalog.fork("unnamed", None)
    unnamed_snapshots = commit_some(catalog, catalog.claim("unnamed", "test"), 1)
    last = catalog.promote("unnamed", expected_main=catalog.head().refs["main"])
    assert published_refs(catalog) == {"published": unnamed_snapshots[0]}
    assert last.format == 3, "it says what was published of x and y before"
    check_catalog(store, "p")


def test_nobody_drops_what_readers_see(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[1]}, {})
    with pytest.raises(RefusedError, match="published/x cannot be dropped"):
        catalog.drop("published/x")


def test_readers_of_all_outputs_see_the_oldest(catalog: Catalog, ids: list[str]) -> None:
    def publish_snapshot() -> tuple[str | None, str | None]:
        refs = catalog.head().refs
        return catalog.published_by_all(refs), catalog.published_by_any(refs)

    assert publish_snapshot() == (None, None)
    catalog.publish_outputs({"x": ids[3]}, {})
    assert publish_snapshot() == (None, ids[3])
    catalog.publish_outputs({"y": ids[1]}, {})
    assert publish_snapshot() == (ids[1], ids[3])
    catalog.publish_outputs({"x": ids[4], "y": ids[4]}, {})
    assert publish_snapshot() == (ids[4], ids[4])


def test_an_output_has_a_catalog_of_its_own(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[1], "y": ids[0]}, {})
    catalog.publish_outputs({"x": ids[3]}, {})
    x, y = (OutputCatalog(catalog, output) for output in BOTH)
    assert (published_refs(x), published_refs(y)) == ({"published": ids[3]}, {"published": ids[0]})
    assert [entry.moves for entry in x.list_entries(limit=2)] == [
        {"published": (ids[1], ids[3])},
        {"published": (None, ids[1])},
    ]
    assert [entry.moves for entry in y.list_entries(limit=2)] == [{}, {"published": (None, ids[0])}]
    assert x.published_by_all(x.head().refs) == ids[3]
    with pytest.raises(TypeError, match="the catalog of output x of p is for readers"):
        x.publish(ids[4], ids[3])


def test_expiry_keeps_what_an_output_has_not_published_and_names_it(catalog: Catalog, ids: list[str]) -> None:
    catalog.publish_outputs({"x": ids[4]}, {})
    expiry = expire(catalog, Keep(1), NOW)
    assert (expiry.kept, expiry.first_epoch, expiry.held_by) == (5, 0, ("y",))
    catalog.publish_outputs({"y": ids[1]}, {})
    expiry_behind = expire(catalog, Keep(1), NOW)
    assert (expiry_behind.kept, expiry_behind.first_epoch, expiry_behind.held_by) == (4, 1, ("y",))
    catalog.publish_outputs({"y": ids[4]}, {})
    together_expiry = expire(catalog, Keep(1), NOW)
    assert (together_expiry.kept, together_expiry.first_epoch, together_expiry.held_by) == (1, 4, ())


def commit_renamed(catalog: Catalog, claim: Claim, outputs: dict[str, list[str]]) -> str:
    """Commits an epoch whose ``outputs`` had these names before."""
    head = catalog.manifest(catalog.head().refs[claim.branch])
    schema = {"outputs": {name: {"fingerprint": "f", "formerly": old_names} for name, old_names in outputs.items()}}
    manifest = head.replace(
        snapshot_id=catalog.new_snapshot_id(),
        generation=claim.generation,
        epoch=head.epoch + 1,
        parent=head.snapshot_id,
        schema=schema,
    )
    catalog.commit(claim, manifest)
    return manifest.snapshot_id


def test_names_go_round_and_come_back(catalog: Catalog, store: ObjectStore) -> None:
    """x becomes z, y becomes x, z becomes y: what readers see goes with each, and a rollback takes it back."""
    claim = catalog.claim("main", "test")
    (first,) = commit_some(catalog, claim, 1, BOTH)
    catalog.publish_outputs({"x": first}, {"x": None})
    (second,) = commit_some(catalog, claim, 1, BOTH)
    catalog.publish_outputs({"y": second}, {"y": None})
    for outputs in (
        {"z": ["x"], "y": []},
        {"z": ["x"], "x": ["y"]},
        {"y": ["z", "x"], "x": ["y"]},
    ):
        last = commit_renamed(catalog, claim, outputs)
    assert published_refs(catalog) == {"published/x": second, "published/y": first}
    renamed_manifest = as_called_in(catalog.manifest(first), catalog.manifest(last))
    assert {name: own["formerly"] for name, own in renamed_manifest.schema["outputs"].items()} == {
        "y": ["x"],
        "x": ["y"],
    }
    assert renamed_manifest.tables.keys() == catalog.manifest(first).tables.keys()
    catalog.publish_outputs({"x": last, "y": last}, {"x": second, "y": first})
    catalog.rollback("main", second, "back")
    assert published_refs(catalog) == {"published/x": first, "published/y": second}
    check_catalog(store, "p")
