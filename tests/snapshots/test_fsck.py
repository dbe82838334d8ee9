"""Fsck names what is damaged, whatever it is and whatever happened to it, and what to do about it."""

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from catalog_helpers import manifest_for

from headrace_lab.fault_plans import hold_first
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import Expired, Total, expire
from headrace_snapshots.format.codec import encode_object
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.fsck import FsckReport, Witness, fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import FaultPlan, FaultyStore, Operation

EPOCHS = 6


def file(store: MemoryStore, path: str, rows: int) -> DataFile:
    data = f"{path} with {rows} rows".encode()
    store.write(path, data)
    return DataFile(path, rows, len(data), sha256(data).hexdigest())


def commit(catalog: Catalog, store: MemoryStore, parent: Manifest | None, claim: object) -> Manifest:
    """An epoch with a file of each kind; 33 names of one pane file, so that every second epoch completes a node."""
    manifest = manifest_for(catalog, claim, None if parent is None else parent.snapshot_id)  # type: ignore[arg-type]
    epoch, prefix = manifest.epoch, catalog.data_prefix(manifest.epoch, manifest.snapshot_id)
    made_by_name = {
        name: file(store, f"{prefix}/{name}.parquet", epoch) for name in ("state", "current", "panes", "late")
    }
    logs = {"panes": (made_by_name["panes"],) * 33, "late": (made_by_name["late"],)}
    manifest = manifest.replace(
        tables={name: (Layer.from_files((made_by_name[name],), epoch, epoch),) for name in ("state", "current")},
        logs={
            name: catalog.append_record(parent.logs[name] if parent else FileLog.empty(), FileRecord(epoch, files))
            for name, files in logs.items()
        },
    )
    catalog.commit(claim, manifest)  # type: ignore[arg-type]
    return manifest


@pytest.fixture
def snapshots(memory: MemoryStore) -> list[Manifest]:
    catalog = Catalog(memory, "p")
    claim = catalog.claim("main", "run")
    manifests: list[Manifest] = []
    for number in range(EPOCHS):
        manifests.append(commit(catalog, memory, manifests[-1] if manifests else None, claim))
        catalog.publish(manifests[-1].snapshot_id, manifests[-2].snapshot_id if number else None)
    expire(catalog, Keep(EPOCHS - 1), datetime(2026, 1, 1, tzinfo=UTC))
    return manifests


def paths(store: MemoryStore, snapshots: list[Manifest]) -> dict[str, tuple[str, str]]:
    """An object of each kind that the newest snapshot needs, and an older one of that kind."""
    new, old = (f"p/data/{each.epoch:08d}-{each.snapshot_id}" for each in (snapshots[-1], snapshots[-2]))
    nodes = [f"p/index/{ref.id}.json" for ref in snapshots[-1].logs["panes"].levels[0].refs]
    head = Catalog(store, "p").head()
    assert head.horizon is not None
    return {
        "entry": (f"p/log/{head.entry - 2:020d}.json", f"p/log/{head.entry - 3:020d}.json"),
        "newest entry": (f"p/log/{head.entry:020d}.json", f"p/log/{head.entry - 1:020d}.json"),
        "hint": ("p/log-hint.json", ""),
        "mark": (Catalog(store, "p").marks.path(head.horizon.mark), ""),
        "manifest": tuple(f"p/manifests/{each.snapshot_id}.json" for each in (snapshots[-1], snapshots[-2])),  # type: ignore[dict-item]
        "node": (nodes[-1], nodes[0]),
        "late": (f"{new}/late.parquet", f"{old}/late.parquet"),
        **{name: (f"{new}/{name}.parquet", f"{old}/{name}.parquet") for name in ("state", "current", "panes")},
    }


KINDS = ("entry", "newest entry", "hint", "mark", "manifest", "node", "state", "current", "panes", "late")
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "truncated": lambda data: data[:-7],
    "emptied": lambda data: b"",
}


def _noting(operations: list[Operation]) -> FaultPlan:
    def plan(operation: Operation) -> None:
        operations.append(operation)

    return plan


def check_store(store: MemoryStore, path: str) -> FsckReport:
    report = fsck(Catalog(store, "p"), deep=True)
    assert path in {problem.path for problem in report.damage}, [problem.path for problem in report.problems]
    problem = next(problem for problem in report.damage if problem.path == path)
    assert problem.problem
    assert problem.needed_by
    assert problem.remedy
    return report


def test_what_is_whole_has_no_problem(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    memory.write("p/data/00000099-0123456789abcdef/panes.parquet", b"of a run that was killed")
    memory.write("p/somebody-elses", b"?")
    report = fsck(Catalog(memory, "p"), deep=True)
    assert report.problems == ()
    assert report.snapshots == EPOCHS - 1
    assert report.unknown == ("p/somebody-elses",)
    assert report.unreferenced == 1 + 1 + 2, "that, the expired manifest, and its state and current"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_changed_content_is_named(memory: MemoryStore, snapshots: list[Manifest], kind: str, damage: str) -> None:
    path, _ = paths(memory, snapshots)[kind]
    memory.write(path, DAMAGES[damage](memory.read(path)))
    check_store(memory, path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_object_is_named(memory: MemoryStore, snapshots: list[Manifest], kind: str) -> None:
    path, _ = paths(memory, snapshots)[kind]
    if kind == "newest entry":
        Catalog(memory, "p").tag("after", snapshots[-1].snapshot_id)  # of the last one nobody would know
    memory.delete(path)
    check_store(memory, path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"hint", "mark"}])
def test_an_object_replaced_by_an_older_one_is_named(memory: MemoryStore, snapshots: list[Manifest], kind: str) -> None:
    path, older = paths(memory, snapshots)[kind]
    memory.write(path, memory.read(older))
    check_store(memory, path)


def test_an_older_mark_is_named_and_made_again_and_a_late_hint_is_none_of_its_business(
    memory: MemoryStore, snapshots: list[Manifest]
) -> None:
    hint, catalog = memory.read("p/log-hint.json"), Catalog(memory, "p")
    head = catalog.head()
    assert head.horizon is not None
    mark = memory.read(catalog.marks.path(head.horizon.mark))
    claim = catalog.claim("main", "another run")
    parent = snapshots[-1]
    for _ in range(4):
        parent_before, parent = parent, commit(catalog, memory, parent, claim)
        catalog.publish(parent.snapshot_id, parent_before.snapshot_id)
    expire(catalog, Keep(2), datetime(2026, 1, 1, tzinfo=UTC))
    horizon = catalog.head().horizon
    assert horizon is not None
    memory.write("p/log-hint.json", hint)
    memory.write(catalog.marks.path(horizon.mark), mark)
    report = fsck(Catalog(memory, "p"))
    assert {problem.path for problem in report.damage} == {catalog.marks.path(horizon.mark)}
    mended_report = fsck(Catalog(memory, "p"), repair=True)
    assert [problem.is_repaired for problem in mended_report.problems] == [True]
    assert memory.read("p/log-hint.json") != hint
    assert fsck(Catalog(memory, "p")).problems == ()


def test_the_hint_is_repaired_and_nothing_else_is_touched(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    old_contents = {info.path: memory.read(info.path) for info in memory.list("p/")}
    memory.write("p/log-hint.json", b"?")
    report = fsck(Catalog(memory, "p"), repair=True)
    assert [(problem.path, problem.is_repaired) for problem in report.problems] == [("p/log-hint.json", True)]
    assert fsck(Catalog(memory, "p")).problems == ()
    new_contents = {info.path: memory.read(info.path) for info in memory.list("p/")}
    assert {path for path in old_contents if old_contents[path] != new_contents[path]} <= {"p/log-hint.json"}


def test_a_hint_that_is_ahead_of_the_log_is_named(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    catalog = Catalog(memory, "p")
    hint = encode_object("log-hint", {"entry": catalog.head().entry + 1})
    memory.write("p/log-hint.json", hint)
    assert {problem.path for problem in fsck(catalog).damage} == {"p/log-hint.json"}
    assert fsck(catalog, repair=True).damage == ()
    assert memory.read("p/log-hint.json") != hint


@pytest.mark.parametrize("damage", [*DAMAGES, "deleted"])
def test_a_file_of_which_there_is_a_copy_is_stored_again(
    memory: MemoryStore, snapshots: list[Manifest], damage: str
) -> None:
    path, older = paths(memory, snapshots)["state"]
    whole = memory.read(path)
    if damage == "deleted":
        memory.delete(path)
    else:
        memory.write(path, DAMAGES[damage](whole))
    wrong = {path: whole[::-1]}
    assert fsck(Catalog(memory, "p"), deep=True, repair=True, copies=lambda f: wrong.get(f.path)).damage
    copies = {path: whole, older: b"never looked at"}
    report = fsck(Catalog(memory, "p"), deep=True, repair=True, copies=lambda f: copies.get(f.path))
    assert [(problem.path, problem.is_repaired) for problem in report.problems] == [(path, True)]
    assert memory.read(path) == whole
    assert fsck(Catalog(memory, "p"), deep=True).problems == ()


def test_garbage_goes_once_its_writers_are_fenced_and_what_readers_may_read_stays(
    memory: MemoryStore, snapshots: list[Manifest]
) -> None:
    killed_text = "p/data/00000099-0123456789abcdef/panes.parquet"
    memory.write(killed_text, b"of a run that was killed")
    paths_before = {info.path for info in memory.list("p/")}

    def repair_all() -> Expired:
        collected_objects = fsck(Catalog(memory, "p"), repair=True).collected
        assert collected_objects is not None
        return collected_objects

    assert (repair_all().waiting, repair_all().waiting) == (
        Total.from_sizes({killed_text: 24}),
        Total.from_sizes({killed_text: 24}),
    )
    Catalog(memory, "p").claim("main", "another run")
    assert repair_all().swept == Total.from_sizes({killed_text: 24})
    gone_paths = {path for path in paths_before - {info.path for info in memory.list("p/")} if "/marks/" not in path}
    assert gone_paths == {killed_text}, "what has expired is left to the next expiry"
    assert expire(Catalog(memory, "p"), Keep(EPOCHS - 1), datetime(2026, 1, 1, tzinfo=UTC)).swept.snapshots == 1


def test_nothing_is_collected_while_something_is_damaged(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    memory.delete(paths(memory, snapshots)["panes"][0])
    report = fsck(Catalog(memory, "p"), repair=True)
    assert report.damage
    assert report.collected is None


def test_a_size_is_compared_without_reading(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    path, _ = paths(memory, snapshots)["state"]
    memory.write(path, memory.read(path)[:-1])
    operations: list[Operation] = []
    report = fsck(Catalog(FaultyStore(memory, _noting(operations)), "p"))
    assert [problem.path for problem in report.problems] == [path]
    assert "its manifest says" in report.problems[0].problem
    assert not [operation for operation in operations if operation.path.startswith("p/data/")]


def test_the_way_out_is_the_newest_whole_snapshot(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    state, _ = paths(memory, snapshots)["state"]
    memory.delete(state)
    memory.delete(f"p/manifests/{snapshots[-2].snapshot_id}.json")
    report = fsck(Catalog(memory, "p"))
    assert len(report.problems) == 2
    for problem in report.problems:
        assert f"`headrace rollback p --to {snapshots[-3].snapshot_id}`" in problem.remedy


def test_the_way_out_depends_on_who_needs_it(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    catalog = Catalog(memory, "p")
    catalog.tag("june", snapshots[-2].snapshot_id)
    catalog.fork("trial", snapshots[-2].snapshot_id)
    trial_manifest = commit(catalog, memory, snapshots[-2], catalog.claim("trial", "run"))
    memory.delete(trial_manifest.tables["state"][0].files[0].path)
    (own,) = fsck(catalog).problems
    assert f"`headrace rollback p --to {snapshots[-2].snapshot_id} --branch trial`" in own.remedy
    catalog.drop("trial")
    memory.delete(f"p/data/{snapshots[-2].epoch:08d}-{snapshots[-2].snapshot_id}/state.parquet")
    (older,) = fsck(catalog).problems
    assert "main goes on, only older snapshots miss it, until they expire" in older.remedy
    catalog.rollback("main", snapshots[-3].snapshot_id, "back")
    (tagged_problem,) = fsck(catalog).problems
    assert "`headrace drop p tags/june`" in tagged_problem.remedy


def test_nothing_is_expired_while_something_kept_cannot_be_read(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    path, _ = paths(memory, snapshots)["node"]
    data = memory.read(path)
    memory.write(path, b"?")
    horizon = Catalog(memory, "p").head().horizon
    assert horizon is not None
    marks = Catalog(memory, "p").marks
    marks.write(marks.read(horizon.mark).replace(facts=None))  # nothing is known of it from earlier expiries
    paths_before = {info.path for info in memory.list("p/")}
    with pytest.raises(Exception, match="is broken") as error:
        expire(Catalog(memory, "p"), Keep(1), datetime(2026, 1, 1, tzinfo=UTC))
    assert getattr(error.value, "code", "") == "restore.broken_object"
    assert {info.path for info in memory.list("p/")} == paths_before
    memory.write(path, data)
    assert expire(Catalog(memory, "p"), Keep(1), datetime(2026, 1, 1, tzinfo=UTC)).marked.snapshots


@set_sizes(kept_entries=3)
def test_what_an_expiry_has_folded_and_not_seen_is_not_lost(memory: MemoryStore, snapshots: list[Manifest]) -> None:
    """It listed before a branch came and went, and folded the entries that say so: what is left is for the next."""
    catalog = Catalog(memory, "p")
    lost_manifests: list[Manifest] = []

    def act_meanwhile() -> None:
        claim = catalog.claim("trial", "run")
        lost_manifests.append(commit(catalog, memory, None, claim))
        catalog.drop("trial")
        claim, main, published_snapshot = catalog.claim("main", "run"), snapshots[-1], catalog.head().refs["published"]
        for _ in range(3):
            main = commit(catalog, memory, main, claim)
        catalog.publish(main.snapshot_id, published_snapshot)

    slow = Catalog(FaultyStore(memory, hold_first("list", "p/data/", act_meanwhile)), "p")
    expire(slow, Keep(1), datetime.now(UTC))
    (trial,) = lost_manifests
    assert catalog.is_stored(trial.snapshot_id)
    assert trial.snapshot_id not in {shown_value for entry in catalog.entries() for shown_value in entry.refs.values()}
    witness = Witness("p/runs/one.json", frozenset({trial.snapshot_id}))
    assert fsck(catalog, witnesses=lambda *_: [witness]).problems == ()
