"""Expiry by example: what each rule keeps, what a second look saves, what is told."""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from catalog_helpers import commit_some, manifest_for

from headrace_lab.fault_plans import hold_first
from headrace_lab.sizes import set_sizes
from headrace_snapshots import expiry
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedAfterCommitError, FencedError, MissingSnapshotError, RefusedError
from headrace_snapshots.expiry import Expired, ObjectAmount, Total, expire
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import RADIX, FileLog, FileRecord, InputFile
from headrace_snapshots.gc_roots import Keep, KeepError
from headrace_snapshots.log import Entry, LostEntry
from headrace_snapshots.names import ObjectKind
from headrace_snapshots.store import ObjectInfo
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import FaultyStore, HoldRequest, Operation

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def names_in_folder(store: MemoryStore, folder: str) -> set[str]:
    return {info.path.rpartition("/")[2].removesuffix(".json") for info in store.list(f"p/{folder}/")}


def swept(store: MemoryStore, keep: Keep, now: datetime = NOW) -> set[str]:
    """The snapshots that are left when all is marked and deleted."""
    for _ in range(2):
        expire(Catalog(store, "p"), keep, now)
        Catalog(store, "p").claim("main", "the next run")
    expire(Catalog(store, "p"), keep, now)
    return names_in_folder(store, "manifests")


def test_nothing_expires_while_nothing_is_published(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 5)
    assert swept(memory, Keep(1)) == {*ids}
    catalog.publish(ids[2], None)
    assert swept(memory, Keep(1)) == {*ids[2:]}
    assert swept(memory, Keep(2)) == {*ids[2:]}, "what is gone does not come back"


def test_a_pipeline_without_anything_to_expire_is_left_alone(memory: MemoryStore) -> None:
    assert expire(Catalog(memory, "p"), Keep(1), NOW) == Expired(0, None, Total(), Total(), Total())
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 3)
    catalog.publish(ids[-1], None)
    etags_by_path_before = {info.path: info.etag for info in memory.list("p/")}
    assert expire(catalog, Keep(3), NOW).kept == 3
    assert {info.path: info.etag for info in memory.list("p/")} == etags_by_path_before


def test_young_snapshots_are_kept_and_a_clock_alone_makes_none_old(memory: MemoryStore) -> None:
    """All manifests are a month old by the clock of who expires; the log says they are of the last hour."""
    early = Catalog(memory, "p", now=lambda: datetime(2026, 1, 1, 1, tzinfo=UTC))
    ids = commit_some(early, early.claim("main", "run"), 4)
    early.publish(ids[-1], None)
    assert expire(early, Keep(1, timedelta(days=7)), NOW).kept == 4, "nothing was stored since"
    late = Catalog(memory, "p", now=lambda: NOW)
    late.tag("now", ids[-1])
    assert expire(late, Keep(1, timedelta(days=7)), datetime(2026, 1, 1, tzinfo=UTC)).kept == 4
    assert expire(late, Keep(1, timedelta(days=40)), NOW).kept == 4
    assert expire(late, Keep(1, timedelta(days=7)), NOW).kept == 1


def test_tags_keep_their_snapshot_or_are_dropped(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 6)
    catalog.publish(ids[-1], None)
    catalog.tag("old", ids[1])
    catalog.tag("new", ids[5])
    assert swept(memory, Keep(2)) == {ids[1], ids[4], ids[5]}
    assert [link.epoch for link in catalog.lineage(ids[5])] == [5, 4, 1]
    assert catalog.is_ancestor(ids[1], ids[5])
    assert not catalog.is_ancestor(ids[5], ids[1])
    common = catalog.common_ancestor(ids[1], ids[4])
    assert common is not None
    assert common.snapshot_id == ids[1]
    found_expiry = expire(catalog, Keep(2, tags=False), NOW)
    assert found_expiry.tags == ("tags/old",)
    assert {*catalog.head().refs} == {"main", "published", "tags/new"}
    assert swept(memory, Keep(2)) == {ids[4], ids[5]}


def test_a_branch_is_kept_whole_and_so_is_what_it_was_forked_from(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 5)
    catalog.publish(ids[-1], None)
    catalog.fork("fix", ids[1])
    own = commit_some(catalog, catalog.claim("fix", "run"), 3)
    assert swept(memory, Keep(1)) == {ids[1], ids[4], *own}
    common = catalog.common_ancestor(ids[4], own[-1])
    assert common is not None
    assert common.snapshot_id == ids[1]


def test_going_back_below_what_is_kept_says_why_not(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 5)
    catalog.publish(ids[-1], None)
    expire(catalog, Keep(2), NOW)
    for action in (
        lambda: catalog.rollback("main", ids[0], "back"),
        lambda: catalog.tag("t", ids[0]),
        lambda: catalog.fork("b", ids[0]),
    ):
        with pytest.raises(RefusedError, match="has expired"):
            action()
    expire(catalog, Keep(2), NOW)
    with pytest.raises(MissingSnapshotError, match="expired"):
        Catalog(memory, "p").rollback("main", ids[0], "back")
    catalog.release(ids[3], "looked at")
    assert catalog.rollback("main", ids[3], "back").refs == {"main": ids[3], "published": ids[3]}


def test_what_readers_could_see_of_a_tag_is_known_once_the_log_is_folded(memory: MemoryStore) -> None:
    """Of tags on snapshots that were published, and on one that was not."""
    catalog = Catalog(memory, "p")
    claim, published_snapshot = catalog.claim("main", "run"), None
    ids: list[str] = []
    for _ in range(2 * expiry.KEPT_ENTRIES.value // 4):
        ids += commit_some(catalog, claim, 2)
        catalog.publish(ids[-1], published_snapshot)
        published_snapshot = ids[-1]
    catalog.tag("seen", ids[3])
    catalog.tag("within", ids[4])
    for _ in range(2):
        expire(catalog, Keep(2), NOW)
    head = catalog.head()
    assert head.base > 20
    assert head.horizon is not None
    assert head.horizon.seen == {"published": [ids[3]]}
    assert catalog.would_roll_back("main", ids[4]) == {"main": (ids[-1], ids[4]), "published": (ids[-1], ids[3])}
    assert catalog.rollback("main", ids[3], "back").refs["published"] == ids[3]
    catalog.drop("tags/seen")
    catalog.drop("tags/within")
    expire(catalog, Keep(1), NOW)
    horizon_again = catalog.head().horizon
    assert horizon_again is not None
    assert horizon_again.seen == {}


def test_what_a_second_look_finds_in_use_is_kept(memory: MemoryStore) -> None:
    """The result of a run that is written once more under its old name."""
    catalog = Catalog(memory, "p")
    catalog.claim("main", "run")
    memory.write("p/runs/a.json", b"{}")
    memory.write("p/runs/b.json", b"{}")
    live: set[str] = set()

    def judge(infos: Collection[ObjectInfo], kept_ids: Collection[str], notes: dict[str, str]) -> set[str]:
        return {info.path for info in infos} & live

    assert expire(catalog, Keep(1), NOW, beside={ObjectKind.RUNS: judge}).marked.objects == 2
    live.add("p/runs/a.json")
    assert expire(catalog, Keep(1), NOW, beside={ObjectKind.RUNS: judge}).swept.objects == 1
    assert names_in_folder(memory, "runs") == {"a"}


def test_garbage_waits_for_its_writer(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    claim = catalog.claim("main", "run")
    catalog.fork("fix", None)
    memory.write("p/data/00000000-0123456789abcdef/panes.parquet", b"rows")
    for _ in range(3):
        found_expiry = expire(catalog, Keep(1), NOW)
        assert (found_expiry.waiting.objects, found_expiry.writers) == (1, ("fix", "main"))
    catalog.claim("main", "another run")
    assert expire(catalog, Keep(1), NOW).writers == ("fix",)
    catalog.drop("fix")
    assert expire(catalog, Keep(1), NOW).swept == Total(1, 4, {"data": ObjectAmount(1, 4)})
    with pytest.raises(FencedError):
        catalog.commit(claim, manifest_for(catalog, claim, None))


@set_sizes(kept_entries=5)
def test_a_branch_where_nothing_happens_holds_nothing_up(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    idle = catalog.claim("fix", "a run that hangs")
    memory.write("p/data/00000000-0123456789abcdef/panes.parquet", b"rows")
    published_snapshot = None
    for _ in range(2):
        ids = commit_some(catalog, catalog.claim("main", "run"), 4)
        catalog.publish(ids[-1], published_snapshot)
        published_snapshot = ids[-1]
    found_expiry = expire(catalog, Keep(1), NOW)
    assert found_expiry.fenced == ("fix",)
    catalog.claim("main", "run")
    assert expire(catalog, Keep(1), NOW).swept.objects > 0
    assert not names_in_folder(memory, "data")
    with pytest.raises(FencedError, match="expire"):
        catalog.commit(idle, manifest_for(catalog, idle, None))


@set_sizes(kept_entries=5)
def test_the_log_is_folded_and_its_history_ends_there(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 20)
    catalog.publish(ids[-1], None)
    assert expire(catalog, Keep(3), NOW).folded > 10
    for reader in (catalog, Catalog(memory, "p")):
        entries = [*reader.history()]
        assert not [entry for entry in entries if isinstance(entry, LostEntry)]
        assert entries[-1].number == min(int(name) for name in names_in_folder(memory, "log"))
    memory.delete("p/log-hint.json")
    assert Catalog(memory, "p").head().refs["main"] == ids[-1]


def commits_and_stands_still(memory: MemoryStore, branch: str, act: Callable[[], object]) -> tuple[Entry, str]:
    """A writer of ``branch`` whose entry is stored, and who goes on only after ``act``; what it has committed."""
    held_operations: list[Operation] = []

    def plan(operation: Operation) -> HoldRequest | None:
        if "/log/" in operation.path:
            held_operations.append(operation)
        is_after = [each.kind for each in held_operations[-2:]] == ["create", "list"]
        return HoldRequest(act) if is_after and operation is held_operations[-1] else None

    writer = Catalog(memory, "p")
    claim = writer.claim(branch, "a run that is stopped")
    stopped_catalog = Catalog(FaultyStore(memory, plan), "p")
    manifest = manifest_for(stopped_catalog, claim, claim.snapshot_id)
    try:
        return stopped_catalog.commit(claim, manifest), manifest.snapshot_id
    except FencedError as error:
        error.add_note(manifest.snapshot_id)
        raise


def stands_still(memory: MemoryStore, action: Callable[[Catalog], Entry], act: Callable[[], object]) -> Entry:
    """``action`` by somebody whose entry is stored, and who goes on only after ``act``."""
    texts: list[str] = []

    def plan(operation: Operation) -> HoldRequest | None:
        if "/log/" in operation.path:
            texts.append(operation.kind)
        is_after = texts[-2:] == ["create", "list"] and texts.count("create") == 1 and "/log/" in operation.path
        return HoldRequest(act) if is_after else None

    return action(Catalog(FaultyStore(memory, plan), "p"))


def goes_on(catalog: Catalog, branch: str, *, expiries: int = 1, keep: int = 9) -> None:
    """Another run of ``branch``, after which the log is folded."""
    more = commit_some(catalog, catalog.claim(branch, "another run"), 6)
    if branch == "main":
        catalog.publish(more[-1], catalog.head().refs.get("published"))
    for _ in range(expiries):
        expire(catalog, Keep(keep), NOW)


@pytest.fixture
def two_epoch_catalog(memory: MemoryStore) -> Iterator[Catalog]:
    """Two epochs on main; little is kept of the log."""
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 2)
    catalog.publish(ids[0], None)
    with set_sizes(kept_entries=2):
        yield catalog


def test_who_was_fenced_after_its_entry_was_stored_is_told_that_it_counts(
    memory: MemoryStore, two_epoch_catalog: Catalog
) -> None:
    def act_meanwhile() -> None:
        head = two_epoch_catalog.head()
        goes_on(two_epoch_catalog, "main", keep=3)
        assert two_epoch_catalog.head().base > head.entry, "the entry is folded away"

    with pytest.raises(FencedAfterCommitError, match="counts: there is nothing to repeat") as error:
        commits_and_stands_still(memory, "main", act_meanwhile)
    (snapshot,) = error.value.__notes__
    assert two_epoch_catalog.is_ancestor(snapshot, two_epoch_catalog.head().refs["main"])
    assert error.value.code == "give_up.fenced_after_commit"


def test_who_stood_still_and_was_not_fenced_goes_on(memory: MemoryStore, two_epoch_catalog: Catalog) -> None:
    """While its branch stood still too, the log was folded for main's sake."""
    entry_before = two_epoch_catalog.head().entry
    entry, snapshot = commits_and_stands_still(memory, "fix", lambda: goes_on(two_epoch_catalog, "main", keep=1))
    assert two_epoch_catalog.head().base > entry.number > entry_before
    writer = Catalog(memory, "p")
    claim = Claim("fix", two_epoch_catalog.head().generations["fix"], snapshot)
    writer.commit(claim, manifest_for(writer, claim, snapshot))
    assert [each.snapshot_id for each in writer.ancestry(writer.head().refs["fix"])][1:] == [snapshot]


def test_a_commit_to_a_branch_that_was_promoted_counts_though_another_has_its_name(
    memory: MemoryStore, two_epoch_catalog: Catalog
) -> None:
    def act_meanwhile() -> None:
        two_epoch_catalog.promote("fix", expected_main=two_epoch_catalog.head().refs["main"])
        two_epoch_catalog.fork("fix", None)
        commit_some(two_epoch_catalog, two_epoch_catalog.claim("fix", "another branch"), 3)
        goes_on(two_epoch_catalog, "main", keep=3)

    with pytest.raises(FencedAfterCommitError, match="counts: there is nothing to repeat"):
        commits_and_stands_still(memory, "fix", act_meanwhile)


@pytest.mark.parametrize("action", ["rollback", "drop"])
def test_what_was_given_up_after_it_was_committed_does_not_count(
    memory: MemoryStore, two_epoch_catalog: Catalog, action: str
) -> None:
    branch = "main" if action == "rollback" else "fix"

    def act_meanwhile() -> None:
        if action == "drop":
            two_epoch_catalog.drop("fix")
        else:
            two_epoch_catalog.rollback("main", two_epoch_catalog.head().refs["published"], "wrong")
        goes_on(two_epoch_catalog, "main", keep=1)

    with pytest.raises(FencedError, match="nothing that it has not committed is visible") as error:
        commits_and_stands_still(memory, branch, act_meanwhile)
    assert type(error.value) is FencedError
    (snapshot,) = error.value.__notes__
    assert snapshot not in two_epoch_catalog.head().refs.values()


@pytest.mark.parametrize("action", ["publish", "rollback", "fork", "promote", "tag", "drop"])
def test_what_a_person_did_counts_though_the_log_was_folded_since(
    memory: MemoryStore, two_epoch_catalog: Catalog, action: str
) -> None:
    """Main continues from there, with other writers, and the entry is gone when the person is answered."""
    first, second = (
        link.snapshot_id for link in [*two_epoch_catalog.lineage(two_epoch_catalog.head().refs["main"])][::-1]
    )
    two_epoch_catalog.fork("other", first)
    (other,) = commit_some(two_epoch_catalog, two_epoch_catalog.claim("other", "run"), 1)
    actions: dict[str, Callable[[Catalog], Entry]] = {
        "publish": lambda catalog: catalog.publish(second, first),
        "rollback": lambda catalog: catalog.rollback("main", first, "back"),
        "fork": lambda catalog: catalog.fork("fix", second),
        "promote": lambda catalog: catalog.promote("other", expected_main=second),
        "tag": lambda catalog: catalog.tag("t", first),
        "drop": lambda catalog: catalog.drop("other"),
    }
    head_before = two_epoch_catalog.head()

    def act_meanwhile() -> None:
        goes_on(two_epoch_catalog, "main", keep=3)
        assert two_epoch_catalog.head().base > head_before.entry + 1, "the entry is folded away"

    stands_still(memory, actions[action], act_meanwhile)
    head = two_epoch_catalog.head()
    line = {two_epoch_catalog.ancestor_at(head.refs["main"], epoch) for epoch in range(3)}
    assert {
        "publish": first in line and second in line,
        "rollback": second not in line,
        "fork": head.refs.get("fix") == second,
        "promote": other in line and "other" not in head.generations,
        "tag": head.refs.get("tags/t") == first,
        "drop": "other" not in head.generations,
    }[action]


def test_where_what_would_tell_has_expired_nobody_claims_to_know(
    memory: MemoryStore, two_epoch_catalog: Catalog
) -> None:
    with pytest.raises(FencedError, match="may have been committed to branch main, and has expired since") as error:
        commits_and_stands_still(memory, "main", lambda: goes_on(two_epoch_catalog, "main", expiries=2, keep=1))
    assert type(error.value) is FencedError


@set_sizes(kept_entries=2)
def test_an_entry_below_the_fold_is_void_and_its_writer_is_told(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 2)
    held_claim = catalog.claim("main", "a run that is stopped")

    def act_meanwhile() -> None:
        more = commit_some(catalog, catalog.claim("main", "another run"), 6)
        catalog.publish(more[-1], None)
        expire(catalog, Keep(1), NOW)

    stopped_catalog = Catalog(FaultyStore(memory, hold_first("create", "/log/", act_meanwhile)), "p")
    with pytest.raises(FencedError, match="has generation 5, not 4"):
        stopped_catalog.commit(held_claim, manifest_for(stopped_catalog, held_claim, ids[-1]))
    void = f"{5:020d}"
    assert void in names_in_folder(memory, "log"), "it was created, since its number had become free"
    memory.delete("p/log-hint.json")
    for reader in (Catalog(memory, "p"), catalog):
        assert reader.head().refs == catalog.head().refs
        assert [entry.number for entry in reader.history()][-1] > 5
    catalog.tag("t", catalog.head().refs["main"])
    for _ in range(3):
        catalog.drop("tags/t")
        catalog.tag("t", catalog.head().refs["main"])
    expire(catalog, Keep(1), NOW)
    assert void not in names_in_folder(memory, "log")


def test_a_mark_that_is_damaged_is_made_anew(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 4)
    catalog.publish(ids[-1], None)
    expire(catalog, Keep(1), NOW)
    horizon = catalog.head().horizon
    assert horizon is not None
    memory.write(catalog.marks.path(horizon.mark), b"?")
    with pytest.raises(BrokenObjectError):
        catalog.tag("t", ids[0])
    assert expire(catalog, Keep(1), NOW).waiting.snapshots == 3, "nobody knows any more that they are nobody's"
    catalog.claim("main", "another run")
    assert expire(catalog, Keep(1), NOW).swept.snapshots == 3


def test_a_crash_between_mark_and_entry_leaves_what_the_next_one_clears(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 4)
    catalog.publish(ids[-1], None)

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        expire(Catalog(FaultyStore(memory, hold_first("create", "/log/", crash)), "p"), Keep(1), NOW)
    assert len(names_in_folder(memory, "marks")) == 1
    assert catalog.head().horizon is None
    assert catalog.tag("t", ids[0]).number, "nothing has expired yet"
    assert expire(catalog, Keep(1), NOW).marked.snapshots == 2
    assert len(names_in_folder(memory, "marks")) == 1


def test_two_writers_never_store_the_same_node(memory: MemoryStore) -> None:
    """After a rollback the same files are read again: a late delete of the old node must not hit the new one."""
    record = FileRecord(0, (InputFile("a", 1, "e", "source"),) * RADIX.value)
    one, other = (Catalog(memory, "p").append_record(FileLog.empty(), record) for _ in range(2))
    assert one.levels[0].refs[0].id != other.levels[0].refs[0].id


def test_an_entry_says_what_is_kept_and_older_versions_refuse_it(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 4)
    plain = catalog.publish(ids[-1], None)
    assert b'"format":1' in plain.to_bytes()
    expire(catalog, Keep(2), NOW)
    entry = catalog.list_entries(limit=1)[0]
    assert entry.horizon is not None
    assert (entry.floor("main"), entry.floor("fix")) == (2, 0)
    assert entry.horizon.grafts == {ids[2]: None}
    assert b'"format":2' in entry.to_bytes()
    assert Entry.from_bytes(entry.to_bytes(), "x") == entry


@pytest.mark.parametrize("rule", [{"last": 0}, {"younger": timedelta(days=-1)}])
def test_a_rule_that_makes_no_sense(rule: dict[str, int]) -> None:
    with pytest.raises(KeepError):
        Keep(**rule)  # type: ignore[arg-type]
